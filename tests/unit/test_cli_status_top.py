"""`joblens status` and `joblens top`, from rows in a shared file to what is printed."""

import json

import numpy as np
import pytest
from cli_samples import NOW, bob, busy, publish, row

from condor_joblens.cli import main, runs, status, top, top_servers
from condor_joblens.cli.terminal import Style

STATUS = """\
2 jobs, 1.00 cores, 1.8 GiB; numbers 0.4 s old
SLOT      JOB   OWNER  LEVEL   CORES           MEMORY    READ  WRITTEN  PROC     TIME
slot1_1   12.0  alice  basic  0.98/1      1.2/2.0 GiB  3.4 GB  12.0 MB     4  3:12:00
slot1_10  13.4  bob    basic  0.02/8  600.0/512.0 MiB       -        -     1     1:05

slot1_10: level io does what basic does in this version"""

NARROW = """\
2 jobs, 1.00 cores, 1.8 GiB; numbers 0.4 s old
SLOT      JOB   OWNER  LEVEL   CORES           MEMORY    READ  PROC     TIME
slot1_1   12.0  alice  basic  0.98/1      1.2/2.0 GiB  3.4 GB     4  3:12:00
slot1_10  13.4  bob    basic  0.02/8  600.0/512.0 MiB       -     1     1:05

slot1_10: level io does what basic does in this version"""

TOP = """\
2 jobs, 1.00 cores, 1.8 GiB; numbers 0.4 s old
SLOT      JOB   OWNER  LEVEL   CORES           MEMORY    READ/s  WRITE/s   NET/s  PROC     TIME
slot1_1   12.0  alice  basic  0.98/1      1.2/2.0 GiB  500.0 kB    500 B  1.5 kB     4  3:12:00
slot1_10  13.4  bob    basic  0.02/8  600.0/512.0 MiB         -        -       -     1     1:05

slot1_10: level io does"""


def read(folder):
    return runs.living(str(folder))


def test_status_is_one_line_a_slot_in_the_order_of_slots(tmp_path):
    publish(tmp_path, "rows", bob(), row())
    assert "\n".join(status.lines(*read(tmp_path), NOW + 0.4, Style())) == STATUS


def test_status_gives_up_columns_on_a_narrow_terminal(tmp_path):
    publish(tmp_path, "rows", bob(), row())
    lines = status.lines(*read(tmp_path), NOW + 0.4, Style(80))
    assert "\n".join(lines) == NARROW
    assert max(map(len, lines)) <= 80


def test_status_of_an_empty_node_and_of_one_without_numbers(tmp_path):
    writer = publish(tmp_path, "rows")
    assert status.lines(*read(tmp_path), NOW + 2, Style()) == ["no job runs on this node; numbers 2.0 s old"]
    writer.publish(row(), 0.0)
    assert "has not taken any number yet" in status.lines(*read(tmp_path), NOW, Style())[0]


def test_status_tells_which_policies_were_set_aside(tmp_path, capsys):
    publish(tmp_path, "rows")
    (tmp_path / "policies.aside").write_text("20-site.lua: 20-site.lua:3: rule \x1b[31m fails\n")
    assert main.main(["status", "--run-dir", str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert said == "policy set aside: 20-site.lua: 20-site.lua:3: rule \\x1b[31m fails"


def test_text_from_strangers_reaches_no_terminal(tmp_path):
    publish(tmp_path, "rows", row(owner="\033[2Jmallory", note="a\nb\u202e", slot="s\x07"))
    text = "\n".join(status.lines(*read(tmp_path), NOW, Style()))
    assert text.isascii() and text.replace("\n", "").isprintable()
    assert text.count("\n") == 4
    assert "\\x1b[2Jmallory" in text


@pytest.mark.parametrize("width", [80, 60])
def test_owner_and_level_stay_where_there_is_little_room(tmp_path, width):
    long = {"slot": "slot12_128", "job_id": "12345678.1234", "owner": "production_user", "level": "profile"}
    publish(tmp_path, "rows", busy(**long, request_cpus=128.0, cpu_recent_cores=127.5), bob())
    before = top.next_sample(str(tmp_path), None)
    sample = top.Sample(before.runs, NOW, {}, {str(before.runs[0].facts["run"]): "62% cvmfs"})
    for lines in (status.lines(before.runs, NOW, NOW, Style(width)), top.lines(sample, NOW, "slot", Style(width))):
        assert max(map(len, lines)) <= width
        assert lines[1].split()[:4] == ["SLOT", "JOB", "OWNER", "LEVEL"]
        (job,) = [line for line in lines if line.startswith("slot12_128")]
        assert job.split()[:4] == ["slot12_128", "12345678.1234", "production_user", "profile"]


def test_a_note_stands_below_once_with_the_slots_that_have_it(tmp_path):
    note = "jobs are watched at basic here: " + "the cap of level io is reached, " * 4
    publish(tmp_path, "rows", bob(), *(row(slot=f"slot1_{i}", note=note) for i in range(2, 8)))
    lines = status.lines(*read(tmp_path), NOW, Style(80))
    assert lines.count("") == 1 and max(map(len, lines)) <= 80
    assert " ".join(line.strip() for line in lines[lines.index("") + 1 : -1]) == (
        f"slot1_2 slot1_3 slot1_4 slot1_5 and 2 more: {note.strip()}"
    )
    assert lines[-1] == "slot1_10: level io does what basic does in this version"


def test_a_job_that_is_over_and_has_left_its_cgroup_is_none_that_runs(tmp_path):
    hung = {"hang_suspected": 1, "hang_seconds": 310, "hang_cause": "pipe"}
    publish(tmp_path, "rows", bob(), row(final=True, process_live=0, **hung))
    lines = status.lines(*read(tmp_path), NOW + 0.4, Style())
    assert lines[0].startswith("1 job, 0.02 cores") and "; 1 more is over; numbers" in lines[0]
    assert not any("seems to hang" in line for line in lines)
    assert "slot1_1: it is over, and HTCondor has not removed its cgroup yet" in lines
    publish(tmp_path, "rows", row(final=True, process_live=0))
    assert (
        status.lines(*read(tmp_path), NOW + 2, Style())[0] == "no job runs on this node; 1 is over; numbers 2.0 s old"
    )
    publish(tmp_path, "rows", row(**hung))
    assert "slot1_1: seems to hang for 5 min 10 s: pipe" in status.lines(*read(tmp_path), NOW + 2, Style())
    publish(tmp_path, "rows", row(**{**hung, "hang_cause": "busy"}))
    (said,) = [line for line in status.lines(*read(tmp_path), NOW + 2, Style()) if "may hang" in line]
    assert said == "slot1_1: may hang: busy in the same places for 5 min 10 s, without reading or writing"
    publish(tmp_path, "rows", row(final=True, process_live=1))
    assert status.lines(*read(tmp_path), NOW + 2, Style())[0].startswith("1 job"), "something of it still runs"


def test_what_is_not_known_is_a_dash_and_absent_from_json(tmp_path, capsys):
    publish(tmp_path, "rows", bob())
    assert main.main(["status", "--json", "--run-dir", str(tmp_path)]) == 0
    printed = json.loads(capsys.readouterr().out)
    job = printed["Jobs"][0]
    assert printed["Time"] == NOW
    assert (job["JobId"], job["Owner"], job["RequestCpus"]) == ("13.4", "bob", 8.0)
    assert job["JobLensUsage"]["Cpu"] == {"Seconds": 19.5, "RecentCores": 0.02, "AverageCores": 0.3}
    assert "Io" not in job["JobLensUsage"] and "Policy" not in job


def test_without_joblensd_one_line_says_so(tmp_path, capsys):
    assert main.main(["status", "--run-dir", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"joblens: {tmp_path}/rows is not there")
    assert captured.err.count("\n") == 1


def samples(folder):
    writer = publish(folder, "rows", row(), bob())
    before = top.next_sample(str(folder), None)
    grown = row(io_call_read_bytes=3_401_000_000, io_call_write_bytes=12_001_000, tcp_sent_bytes=1_203_000)
    grown["update_time"] += 2
    writer.publish(grown, NOW + 2)
    return before, top.next_sample(str(folder), before)


def test_rates_are_growth_over_the_time_between_two_publications(tmp_path):
    before, after = samples(tmp_path)
    assert before.rates == {}
    assert after.of(after.runs[0]) == {"read": 500_000.0, "write": 500.0, "net": 1500.0}
    again = top.next_sample(str(tmp_path), after)
    assert again is after, "what was read twice has the rates that it had"


def test_top_shows_rates_and_dashes_where_there_are_none(tmp_path):
    _, after = samples(tmp_path)
    publish(tmp_path, "rows", row(), bob(note="level io does"))
    sample = top.Sample(read(tmp_path)[0], NOW, after.rates)
    assert "\n".join(top.lines(sample, NOW + 0.4, "cores", Style())) == TOP


def test_top_shows_what_a_job_at_level_io_waited_for_since_the_last_time(tmp_path):
    writer = publish(tmp_path, "rows", busy(), bob())
    before = top.next_sample(str(tmp_path), None)
    writer.publish(np.concatenate([busy(wait_socket_blocked_seconds=211.5, wait_sleep_seconds=7702), bob()]), NOW + 2)
    after = top.next_sample(str(tmp_path), before)
    lines = top.lines(after, NOW + 2, "slot", Style())
    assert lines[1].split()[10] == "WAITS" and "75% network" in lines[2]
    assert " - " in lines[3], "of a job below level io nothing is known"
    assert "WAITS" not in top.lines(before, NOW, "slot", Style())[1]


@pytest.mark.parametrize(
    ("sort", "first"),
    [
        ("cores", "12.0"), ("memory", "12.0"), ("slot", "12.0"), ("job", "9.1"), ("owner", "12.0"),
        ("time", "9.1"), ("proc", "9.1"), ("read", "12.0"),
    ],
)  # fmt: skip
def test_top_sorts_names_upwards_and_numbers_downwards(tmp_path, sort, first):
    publish(
        tmp_path, "rows", bob(),
        row(job_id="9.1", run="nine", slot="slot1_9", owner="zoe", start_time=1, process_live=900,
            cpu_recent_cores=0.5, memory_resident_bytes=1),
        row(),
    )  # fmt: skip
    found, taken = read(tmp_path)
    sample = top.Sample(found, taken, {"ap.example#12.0#1799980000#1": {"read": 5.0}})
    assert top.ordered(sample, NOW, sort)[0].fact("job_id") == first


@pytest.mark.parametrize("sort", ["slot", "job", "owner", "cores"])
def test_top_sorts_names_with_digits_that_are_no_numbers(tmp_path, sort):
    publish(tmp_path, "rows", row(job_id="9.²", slot="slot1_²", owner="zoe.²"), row())
    found, taken = read(tmp_path)
    assert len(top.ordered(top.Sample(found, taken, {}), NOW, sort)) == 2


def test_every_key_is_the_first_letter_of_its_column_and_none_is_q():
    assert all(column.startswith(key) for key, column in top.KEYS.items())
    assert "q" not in top.KEYS


def test_top_piped_prints_as_many_refreshes_as_asked_for(tmp_path, capsys):
    publish(tmp_path, "rows", row())
    assert main.main(["top", "-n", "2", "-d", "0.1", "--run-dir", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("slot1_1 ") == 2
    assert "\033" not in printed
    assert main.main(["top", "-n", "1", "-d", "0.1", "--json", "--run-dir", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["Jobs"][0]["JobId"] == "12.0"


def with_servers(run, *entries):
    for place, (name, requests, received) in enumerate(entries):
        its = run["servers"][0, place]
        its["name"], its["scope"], its["requests"], its["received_bytes"] = name, 1, requests, received
        its["seconds"] = requests / 10
    return run


def test_top_by_server_has_a_line_for_each_owner_and_for_nobody(tmp_path, capsys):
    two = {"run": "ap.example#14.0#1#1", "slot": "slot1_2"}
    nobody = {"Name": "/cvmfs/x", "Class": "Cvmfs", **dict.fromkeys(top_servers.NUMBERS, 0.0)}
    (tmp_path / "servers").write_text(json.dumps({"Unattributed": [nobody]}))
    publish(tmp_path, "rows", with_servers(row(), (b"/cvmfs/x", 10, 0)), with_servers(row(**two), (b"/cvmfs/x", 5, 0)))
    before = top_servers.next_sample(str(tmp_path), None)
    first = top_servers.lines(before, NOW, "cores", Style())
    assert all(line.split()[-5:] == 5 * ["-"] for line in first[2:4]), "a rate that nobody knows is no 0"
    assert top_servers.FIRST in first
    (tmp_path / "servers").write_text(json.dumps({"Unattributed": [{**nobody, "Requests": 60}]}))
    publish(
        tmp_path,
        "rows",
        with_servers(row(), (b"/cvmfs/x", 30, 4_000_000)),
        with_servers(row(**two), (b"/cvmfs/x", 15, 0), (b"/eos\x1b", 8, 0)),
        time=NOW + 2,
    )
    after = top_servers.next_sample(str(tmp_path), before)
    lines = [line.split() for line in top_servers.lines(after, NOW + 2, "cores", Style())[2:]]
    assert top_servers.FIRST not in top_servers.lines(after, NOW + 2, "cores", Style())
    assert lines[3][0] == "TCP:" and lines[:3] == [
        ["/cvmfs/x", "Cvmfs", "alice", "2", "15", "2.0", "MB", "0", "B", "1.5", "0"],
        ["/cvmfs/x", "Cvmfs", "(no", "job)", "-", "30", "0", "B", "0", "B", "0.0", "0"],
        ["/eos\\x1b", "Cvmfs", "alice", "1", "4", "0", "B", "0", "B", "0.4", "0"],
    ]
    first = {order: top_servers.ordered(after, order)[0] for order in top_servers.KEYS.values()}
    assert first["requests"][2] == "(no job)" and first["jobs"] == ("/cvmfs/x", "Cvmfs", "alice")
    assert top_servers.next_sample(str(tmp_path), after) is after
    assert max(map(len, top_servers.lines(after, NOW, "owner", Style(60)))) <= 60
    assert main.main(["top", "--by", "server", "--json", "-n", "1", "-d", "0.1", "--run-dir", str(tmp_path)]) == 0
    assert {entry["Owner"] for entry in json.loads(capsys.readouterr().out)["Servers"]} == {"alice", "(no job)"}


def test_top_by_server_has_bytes_of_own_connections_and_says_whose_are_unknown(tmp_path):
    one, two = {"run": "ap.example#14.0#1#1", "slot": "slot1_2"}, {"run": "ap.example#15.0#1#1", "slot": "slot1_3"}
    publish(tmp_path, "rows", busy(), row(**one), with_servers(row(**two), (b"/cvmfs/x", 10, 0)))
    before = top_servers.next_sample(str(tmp_path), None)
    later, fresh = busy(), busy(run="ap.example#16.0#1#1", slot="slot1_4")
    later["endpoints"]["received_bytes"][0, 0] += 4_000_000
    later["endpoints"]["port"][0, 1] = 444  # it was among the rest until now: how much of it is new is not known
    publish(tmp_path, "rows", later, fresh, row(**one), with_servers(row(**two), (b"/cvmfs/x", 30, 0)), time=NOW + 2)
    after = top_servers.next_sample(str(tmp_path), before)
    lines = [line.split() for line in top_servers.lines(after, NOW + 2, "bytes", Style())[2:]]
    assert lines[0] == ["xrootd-cern", "(192.0.2.7:1094)", "TCP", "alice", "2", "-", "2.0", "MB", "0", "B", "-", "-"]
    assert ["[2001:db8::1]:444", "TCP", "alice", "1", "-", "0", "B", "0", "B", "-", "-"] in lines
    assert [line[0] for line in lines if line and line[0] == "::"] == [], "nobody knows which servers the rest are"
    said = " ".join(" ".join(line) for line in lines)
    assert (
        "TCP: bytes of connections that jobs at level io have themselves, not requests; 2 jobs below level io" in said
    )
    tcp = [entry for entry in json.loads(top_servers.as_json(after))["Servers"] if entry["Class"] == "TCP"]
    assert {frozenset(entry["PerSecond"]) for entry in tcp} == {frozenset(("ReceivedBytes", "SentBytes"))}


def test_top_by_server_says_that_there_is_nothing(tmp_path):
    publish(tmp_path, "rows")
    (tmp_path / "servers").write_text("[]")
    assert "no file server" in top_servers.lines(top_servers.next_sample(str(tmp_path), None), NOW, "bytes", Style())[1]
