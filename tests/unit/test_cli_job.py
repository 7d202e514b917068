"""`joblens job ID`: what an ID finds, on a node and on an access point, and the page that tells of it."""

import json
import stat

import pytest
from cli_samples import GIB, NOW, bob, busy, publish, row
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.cli import accesspoint, io_sections, job, job_page, main, runs, units, web
from condor_joblens.cli.runs import Run
from condor_joblens.cli.terminal import Style
from condor_joblens.common.errors import JobLensError

LIVING = """\
Job 12.0 of alice on slot1_1, running for 3 h 12 min
          watched at level basic; why: 10-default.lua (default); numbers 0.6 s old

CPU       0.98 of 1 core      [||||||||||||||||||||] 98 % in the last seconds
          3 h 2 min of CPU time, 4 % of it in the kernel; 0.95 cores on average; its threads waited 12 s for a
          CPU

Memory    1.2 of 2.0 GiB      [||||||||||||        ] 60 % now
          1.0 GiB heap and stacks, 204.8 MiB mapped files and shared; largest process 1.4 GiB

I/O       read 3.4 GB in 52,000 calls; wrote 12.0 MB in 900 calls; from storage 3.3 GB, to storage 12.0 MB

Network   TCP sent 1.2 MB, received 900.0 MB; 12 connections made; 1 connection failed; 3 connections open;
          7 segments sent again; round trip 12.3 ms

Processes 4 live with 18 threads (1 want a CPU, 0 wait for storage); 3,400 created; 3,300 started a program;
          3,396 ended; 2 of them with an exit code other than 0"""

CLOSE = """\
Time      63 % of its time it waited for cvmfs; 2,704 calls failed with ENOENT
          cvmfs       [|||||||||||||       ]  63 %  1 h 59 min
          running     [||||||              ]  30 %  56 min 40 s
          other sleep [|                   ]   3 %  5 min 50 s
          network     [                    ]   2 %  3 min 30 s
          no CPU free [                    ]   1 %  2 min
          local       [                    ]   1 %  1 min

Files     ON     OPENED  FAILED     READ   CALLS  WRITTEN  CALLS
          cvmfs  12,034   1,204   3.3 GB  52,000        -      -
          local     310       -  30.0 MB   2,000  12.0 MB    900

Calls     metadata    [||||||||||||        ]  59 %  98,000, 1,540 failed
          read        [||||||              ]  32 %  54,020, 3.3 GB
          open        [||                  ]   8 %  13,548, 1,204 failed
          wait        [                    ]   1 %  1,200, 30 failed

Errors    2,704 calls failed with ENOENT: no such file or directory
          40 calls failed with EACCES: permission denied
          30 calls failed with EAGAIN: resource temporarily unavailable
          2 calls failed otherwise

Servers   WHERE                         RECEIVED      SENT  CONNECTIONS  FAILED  ROUND TRIP
          xrootd-cern (192.0.2.7:1094)  880.0 MB  880.0 kB            3       -     12.3 ms
          [2001:db8::1]:443              20.0 MB   20.0 kB            3       1     12.3 ms
          all others                       500 B         -            3       -           -"""

ENDED = """\
Job 13.4 of bob on slot1_10, ended after 1 min 5 s, 2 min ago
          watched at level basic (asked for: io)

CPU       0.30 of 8 cores     [|                   ] 4 % over its whole life
          20 s of CPU time

Memory    900.0 of 512.0 MiB  [||||||||||||||||||||] 176 % in its largest process
          largest process 900.0 MiB

Processes 3 ended; 2 ended by a signal

! these numbers are not complete: 7 events lost on this node
! it uses 0.30 cores on average and asked for 8
! the kernel killed 1 process for want of memory
! it used more memory than it asked for: 900.0 MiB, 512.0 MiB asked for"""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def page(rows):
    (run,) = runs.from_rows(rows)
    return run


def test_a_living_job_in_words_and_bars():
    assert "\n".join(job_page.render(page(row()), NOW + 0.6, Style())) == LIVING


def sections(text):
    """The page's paragraphs by their labels."""
    return {part.split()[0]: part for part in text.split("\n\n")}


def test_at_level_io_the_page_tells_what_the_job_does():
    told = sections("\n".join(job_page.render(page(busy()), NOW, Style())))
    expected = sections(CLOSE)
    assert {label: told[label] for label in expected} == expected


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_the_page_fits_any_terminal(width):
    rows = busy(death="out of memory: " + "x" * 180, uncounted="asynchronous I/O (io_submit)", exits="a exited 1")
    lines = job_page.render(page(rows), NOW, Style(width))
    assert max(map(len, lines)) <= width
    told = sections("\n".join(lines))
    assert {"Death", "Time", "Files", "Calls", "Errors", "Servers"} <= set(told)
    assert "not counted: asynchronous" in " ".join(" ".join(lines).split())


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"wait_running_seconds": 90000}, "% of its time it was running; 2,704 calls failed with ENOENT"),
        ({"wait_run_queue_seconds": 90000}, "it was ready to run and no CPU was free"),
        ({"wait_socket_blocked_seconds": 9000, "wait_sleep_seconds": 90000}, "it slept: timers, locks, children"),
        ({"wait_socket_blocked_seconds": 80000, "wait_sleep_seconds": 90000}, "it waited for the network"),
        ({"wait_file_lock_seconds": 80000, "wait_sleep_seconds": 90000}, "it waited for file locks"),
        ({"errors_enoent": 0, "errors_eacces": 0}, "63 % of its time it waited for cvmfs"),
    ],
)
def test_the_verdict_is_a_sentence(columns, sentence):
    verdict = io_sections.verdict(page(busy(**columns)))
    assert sentence in verdict
    assert ("failed" in verdict) == ("errors_enoent" not in columns), "programs live with EAGAIN"


def words(lines):
    """The page as if no line ended."""
    return " ".join(" ".join(lines).split())


def test_growth_is_told_where_it_is_more_than_its_uncertainty():
    def told(**columns):
        return "an hour" in words(job_page.render(page(row(**columns)), NOW, Style()))

    assert told(memory_growth_bytes_per_hour=GIB, memory_growth_error_bytes_per_hour=GIB // 10)
    assert not told(memory_growth_bytes_per_hour=GIB, memory_growth_error_bytes_per_hour=GIB)
    assert not told(memory_growth_bytes_per_hour=0, memory_growth_error_bytes_per_hour=0)


def test_failed_connections_are_told_by_cause():
    text = words(job_page.render(page(row(tcp_failed=5, tcp_refused=3, tcp_timed_out=1)), NOW, Style()))
    assert "5 connections failed (3 refused, 1 without an answer)" in text


def test_shares_add_up_to_the_time_of_all_states():
    shares = io_sections.shares(page(busy(wait_file_lock_seconds=200)))
    assert shares["file locks"] == 200
    assert sum(shares.values()) == pytest.approx(3400 + 120 + 60 + 7700)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)


def test_below_level_io_nothing_is_said_of_what_is_not_known():
    assert io_sections.verdict(page(row())) == "" and io_sections.shares(page(row())) == {}
    assert not {"Time", "Files", "Calls", "Errors", "Servers"} & set(sections(LIVING))


def test_an_access_point_shows_the_same_from_the_job_s_ad(tmp_path):
    record = page(busy()).record()
    usage = record["JobLensUsage"]
    ad = {"ClusterId": 12, "ProcId": 0, "Owner": "alice", "JobStatus": 2, "JobLensUsage": json.loads(json.dumps(usage))}
    told = sections("\n".join(job_page.render(accesspoint.from_ad(ad), NOW, Style())))
    expected = sections(CLOSE)
    assert {label: told[label] for label in expected} == expected


def test_a_note_is_shown_as_it_stands():
    note = r'JobLensLevel = "C:\io" is not a level'
    assert f"! {note}" in job_page.render(page(row(note=note)), NOW, Style())


def test_where_nobody_asked_and_no_rule_said_anything_it_is_the_site_s_default():
    text = "\n".join(job_page.render(page(row(policy="as asked", reason="the site's default")), NOW, Style()))
    assert "; why: the site's default; " in text and "asked" not in text.partition("\n\n")[0]


def test_an_ad_that_was_shortened_says_so():
    ad = {"ClusterId": 12, "ProcId": 0, "JobLensUsage": {"Shortened": True, "Death": '/Expr(ifThenElse(a, "b", c))/'}}
    text = "\n".join(job_page.render(accesspoint.from_ad(ad), NOW, Style()))
    assert "no room for everything" in text and "Expr" not in text


def test_servers_without_a_line_of_their_own_are_together_in_the_last() -> None:
    endpoints = [{"Address": f"192.0.2.{n}", "Port": 80, "SentBytes": 100 - n, "Connections": 2} for n in range(16)]
    endpoints.append({"Scope": "rest", "SentBytes": 1000, "Connections": 5})
    lines = io_sections.servers(Run({}, {}, endpoints=endpoints), 100)
    assert len(lines) == 1 + io_sections.MOST_LINES and "192.0.2.6" in lines[-2]
    others = sum(100 - n for n in range(7, 16)) + 1000
    assert lines[-1].split() == ["all", "others", "-", *units.volume(others).split(), str(2 * 9 + 5), "-", "-"]


def test_what_was_asked_of_file_servers_is_there_at_every_level() -> None:
    servers = [
        {"Name": "/cvmfs/x.org", "Class": "Cvmfs", "Requests": 5120, "SentBytes": 409600, "ReceivedBytes": 20_000_000,
         "Seconds": 41.7, "Errors": 3},
        {"Requests": 2, "SentBytes": 160, "ReceivedBytes": 0, "Seconds": 0.0, "Errors": 0},
    ]  # fmt: skip
    ad = {**AD, "JobLensUsage": {"Level": "basic", "Servers": servers}}
    told = sections("\n".join(job_page.render(accesspoint.from_ad(ad), NOW, Style())))["Asked"]
    assert [line.split() for line in told.splitlines()] == [
        ["Asked", "SERVER", "REQUESTS", "RECEIVED", "SENT", "ERRORS", "ANSWERS", "TOOK"],
        ["/cvmfs/x.org", "5,120", "20.0", "MB", "409.6", "kB", "3", "42", "s"],
        ["all", "others", "2", "-", "160", "B", "-", "0.0", "s"],
    ]
    assert "Asked" not in sections("\n".join(job_page.render(accesspoint.from_ad(AD), NOW, Style())))


@given(st.lists(st.dictionaries(st.sampled_from(["Name", "Address", "Port", "RttSeconds", "SentBytes"]), JSON) | JSON))
def test_whatever_stands_for_an_endpoint_or_a_file_server_is_printed_harmlessly(listed):
    run = accesspoint.from_ad({**AD, "JobLensUsage": {"Endpoint": listed, "Servers": listed}})
    text = "\n".join(job_page.render(run, NOW, Style()))
    assert text.isascii() and text.replace("\n", "").isprintable()


def test_an_ended_job_tells_what_it_did_and_what_was_remarkable():
    rows = bob(
        final=True, note="", complete=False, lost=7, memory_largest_process_peak_bytes=900 * 2**20,
        memory_resident_bytes=-1, memory_oom_kills=1, process_live=0, process_exited=3, process_signalled=2,
        process_uninterruptible=0,
    )  # fmt: skip
    assert "\n".join(job_page.render(page(rows), NOW + 120, Style())) == ENDED


def test_the_peak_of_an_ended_job_is_that_of_all_its_processes_or_of_one_that_nobody_saw_in_time() -> None:
    for together, largest in ((300, 900), (900, 300)):
        rows = bob(
            final=True, memory_resident_peak_bytes=together << 20, memory_largest_process_peak_bytes=largest << 20
        )  # fmt: skip
        lines = job_page.render(page(rows), NOW + 120, Style())
        assert any(line.startswith("Memory    900.0 of 512.0 MiB") and line.endswith("at its peak") for line in lines)


def test_a_job_of_which_nothing_is_known_is_two_lines():
    lines = job_page.render(Run({}, {}), NOW, Style())
    assert lines == ["Job ? of ?, running for 0.0 s", "          watched at level ?"]


@pytest.mark.parametrize(
    ("columns", "remark"),
    [
        ({"complete": False, "lost": 0}, "these numbers are not complete"),
        ({"cpu_average_cores": 2.0}, "it uses 2.00 cores on average and asked for only 1"),
        (
            {"cpu_run_queue_seconds": 5000.0},
            "its threads waited 1 h 23 min for a CPU, against 3 h 2 min on one",
        ),
        (
            {"memory_resident_bytes": int(1.9 * GIB)},
            "it came close to the memory it asked for: 1.9 GiB of 2.0 GiB",
        ),
        ({"process_uninterruptible": 3}, "3 threads in uninterruptible sleep: mostly that is storage which"),
        ({"note": "counted from the middle"}, "counted from the middle"),
        ({"memory_hours_to_limit": 3.2}, "its memory grows, and reaches its limit in 3 h 12 min"),
        ({"uncounted": "bytes of sendmmsg"}, "not counted: bytes of sendmmsg"),
    ],
)
def test_what_is_remarkable(columns, remark):
    assert remark in "\n".join(job_page.remarkable(page(row(**columns)), NOW))
    assert not list(job_page.remarkable(page(row()), NOW))


@pytest.mark.parametrize(
    ("identity", "run", "others"),
    [
        ("12.0", "second", ["first"]),
        ("12", "12.1", ["second", "first"]),
        ("gid", "second", ["first"]),
        ("first", "first", []),
        ("slot1_2", "12.1", []),
        ("slot1_1@node", "second", ["first"]),
        ("9.0", "long ago", []),
    ],
)
def test_what_an_id_names_is_the_last_run_and_the_others(tmp_path, identity, run, others):
    publish(
        tmp_path, "rows",
        row(run="second", global_job_id="gid", slot="slot1_1@node"),
        row(run="12.1", job_id="12.1", slot="slot1_2@node", start_time=int(NOW) - 5),
    )  # fmt: skip
    publish(
        tmp_path, "ended",
        row(run="first", global_job_id="gid", slot="slot1_1@node", final=True, update_time=int(NOW) - 20000),
        row(run="long ago", job_id="9.0", slot="slot1_7@node", final=True, update_time=int(NOW) - 90000),
    )  # fmt: skip
    found = job.find(identity, str(tmp_path))
    assert found.run.fact("run") == run
    assert [other.fact("run") for other in found.others] == others


@pytest.mark.parametrize("is_told_late", [False, True])
def test_a_run_that_ends_while_it_is_looked_for_is_found_once(tmp_path, monkeypatch, is_told_late):
    """joblensd adds it to those that have ended, and takes it out of those that live afterwards."""
    publish(tmp_path, "rows", row(run="ends"), row(run="goes on", job_id="12.0", start_time=int(NOW) - 5))
    publish(tmp_path, "ended", row(run="first", final=True, update_time=int(NOW) - 20000))

    def end() -> None:
        publish(tmp_path, "ended", row(run="ends", final=True, death="of old age", update_time=int(NOW)))
        publish(tmp_path, "rows", row(run="goes on", job_id="12.0", start_time=int(NOW) - 5))

    def then(read):
        def reading(folder):
            found = read(folder)
            if not done:
                done.append(end())
            return found

        return reading

    done: list[None] = []
    for name in ("living", "ended"):
        monkeypatch.setattr(job, name, then(getattr(job, name)))
    if is_told_late:
        end()
    found = job.find("12.0", str(tmp_path))
    told = [run for run in (found.run, *found.others) if run.fact("run") == "ends"]
    assert [run.fact("death") for run in told] == ["of old age"]
    assert [run.fact("run") for run in (found.run, *found.others)] == ["goes on", "ends"]


def test_other_runs_are_listed_below(tmp_path, capsys):
    publish(tmp_path, "rows", row())
    publish(tmp_path, "ended", row(run="an earlier run", final=True))
    assert main.main(["job", "12.0", "--run-dir", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3] == "1 more run of that name, the latest first:"
    assert lines[-1].endswith("ended  3:12:00  an earlier run")


def condor(folder, monkeypatch, name, ads, code=0, complaint=""):
    """A command `name` in the PATH that prints `ads` and notes its arguments."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(ads) if ads else "")
    program = folder / name
    program.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {folder}/{name}.arguments\n'
        f'cat {folder}/{name}.json\necho "{complaint}" >&2\nexit {code}\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


AD = {
    "ClusterId": 12, "ProcId": 0, "Owner": "alice", "GlobalJobId": "ap#12.0#1", "RemoteHost": "slot1_1@node",
    "RequestCpus": 1, "RequestMemory": 2048, "JobStatus": 2,
    "JobLensUsage": {
        "Run": "ap#12.0#1#1", "Level": "basic", "LevelNumber": 1, "StartTime": int(NOW) - 60,
        "UpdateTime": int(NOW), "Final": False, "Complete": True,
        "Cpu": {"RecentCores": 0.5, "Seconds": 30.0}, "Memory": {"ResidentBytes": GIB},
    },
}  # fmt: skip


def test_on_an_access_point_the_queue_is_asked(tmp_path, monkeypatch):
    condor(tmp_path / "bin", monkeypatch, "condor_q", [AD])
    found = job.find("12.0", str(tmp_path))
    assert found.run.number("Cpu.RecentCores") == 0.5
    assert found.run.request_memory == 2 * GIB
    assert job_page.title(found.run, NOW) == "Job 12.0 of alice on slot1_1@node, running for 1 min"
    arguments = (tmp_path / "bin" / "condor_q.arguments").read_text().split("\n")
    assert arguments[:2] == ["-allusers", "12.0"] and "-json" in arguments


def test_and_then_the_history_which_knows_how_the_job_ended(tmp_path, monkeypatch):
    condor(tmp_path / "bin", monkeypatch, "condor_q", [])
    usage = {**AD["JobLensUsage"], "Final": True}
    ended = {**AD, "JobStatus": 4, "ExitBySignal": True, "ExitSignal": 9, "JobLensUsage": usage}
    condor(tmp_path / "bin", monkeypatch, "condor_history", [ended])
    run = job.find("12.0", str(tmp_path)).run
    assert run.over and run.ending == "signal 9 ended it"
    assert "signal 9 ended it" in "\n".join(job_page.render(run, NOW + 5, Style()))


def ad_of(process, **more):
    start = int(NOW) - 1000 + process
    usage = {**AD["JobLensUsage"], "Run": f"ap#12.{process}#1#1", "StartTime": start, "Final": "ExitCode" in more}
    return {**AD, "ProcId": process, "GlobalJobId": f"ap#12.{process}#1", "JobLensUsage": usage, **more}


ENDED_WELL = {"JobStatus": 4, "ExitBySignal": False, "ExitCode": 0}


@pytest.mark.parametrize(
    ("status", "begun", "words"),
    [
        (1, -60, "is idle again: these numbers are of its last run"),
        (2, 5, "runs again: there are no numbers of that yet, these are of the run before"),
        (2, -60, ""),  # it has just ended, and its access point does not know
    ],
)
def test_a_job_that_was_put_off_is_not_told_as_one_that_has_ended(status, begun, words):
    usage = {**AD["JobLensUsage"], "Final": True}
    ad = {**AD, "JobStatus": status, "JobCurrentStartDate": usage["UpdateTime"] + begun, "JobLensUsage": usage}
    run = accesspoint.from_ad(ad)
    assert run.ending == words and run.over
    assert words in " ".join(line.strip() for line in job_page.render(run, NOW, Style()))


def test_of_a_cluster_the_queue_and_the_history_are_asked(tmp_path, monkeypatch):
    """While one job of it runs, those that have ended are there too, each once."""
    condor(tmp_path / "bin", monkeypatch, "condor_q", [ad_of(0), ad_of(1), {**ad_of(4), "JobLensUsage": None}])
    condor(tmp_path / "bin", monkeypatch, "condor_history", [ad_of(n, **ENDED_WELL) for n in (3, 2, 1)])
    found = job.find("12", str(tmp_path))
    assert found.run.fact("job_id") == "12.0" and not found.run.over, "what runs comes first"
    assert [(other.fact("job_id"), other.over) for other in found.others] == [
        ("12.3", True), ("12.2", True), ("12.1", True),
    ]  # fmt: skip
    (tmp_path / "bin" / "condor_history.arguments").unlink()
    job.find("12.0", str(tmp_path))
    assert not (tmp_path / "bin" / "condor_history.arguments").exists(), "one job is in one of the two"


def test_of_a_cluster_the_page_begins_with_which_job_it_shows(tmp_path, monkeypatch, capsys):
    ended = [{**ad_of(n, **ENDED_WELL), "JobLensUsage": None} for n in range(8)]
    condor(tmp_path / "bin", monkeypatch, "condor_q", [])
    condor(tmp_path / "bin", monkeypatch, "condor_history", [ad_of(8, **ENDED_WELL), *ended])
    for option in ([], ["--summary"]):
        assert main.main(["job", "12", *option, "--run-dir", str(tmp_path)]) == 0
        told = words(capsys.readouterr().out.splitlines())
        which = "12 is a cluster: this is its job 12.8, one of 9 that are known here; joblens jobs 12 tells of all"
        assert told.startswith(f"{which} Job 12.8 of"), "also if the others have no numbers"
    condor(tmp_path / "bin", monkeypatch, "condor_history", [ad_of(0, **ENDED_WELL)])
    assert job.find("12", str(tmp_path)).which == "", "most clusters are of one job"
    publish(tmp_path, "rows", row(), row(run="two", job_id="12.1", slot="slot1_2", start_time=int(NOW)))
    assert job.find("12", str(tmp_path)).which.endswith("joblens jobs 12, on the access point, tells of all")
    assert job.find("12.1", str(tmp_path)).which == ""


def test_where_a_cluster_has_more_jobs_the_command_for_all_of_them_is_named(tmp_path, monkeypatch, capsys):
    most = accesspoint.MOST_ENDED
    condor(tmp_path / "bin", monkeypatch, "condor_q", [ad_of(most)])
    condor(tmp_path / "bin", monkeypatch, "condor_history", [ad_of(n, **ENDED_WELL) for n in range(most)])
    assert main.main(["job", "12", "--run-dir", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"{most} more runs of that name, the latest first:" in lines
    words = (tmp_path / "bin" / "condor_history.arguments").read_text().split()
    assert words[:3] == ["12", "-limit", str(most)]
    assert lines[-1] == f"of those that have ended at most {most} are here; joblens jobs 12 tells of all"


def test_a_history_that_does_not_answer_costs_no_running_job(tmp_path, monkeypatch):
    condor(tmp_path / "bin", monkeypatch, "condor_q", [ad_of(0)])
    condor(tmp_path / "bin", monkeypatch, "condor_history", [], code=1, complaint="no history")
    found = job.find("12", str(tmp_path))
    assert found.run.fact("job_id") == "12.0" and found.others == []
    assert found.note == "condor_history fails: no history: of those that have ended none is here"
    condor(tmp_path / "bin", monkeypatch, "condor_q", [])
    with pytest.raises(JobLensError, match="condor_history fails"):
        job.find("12", str(tmp_path))


def test_a_node_has_its_own_jobs_of_a_cluster_and_says_so(tmp_path, capsys):
    publish(tmp_path, "rows", row(), row(run="12.1", job_id="12.1", slot="slot1_2@node"))
    assert main.main(["job", "12", "--run-dir", str(tmp_path)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "those of this node; joblens jobs 12, on the access point, tells of all"


@pytest.mark.parametrize("number", [1e19, 1e299, -1, float("inf"), float("nan"), True, "7", [7], None])
def test_a_number_that_no_run_can_have_is_left_out(number):
    usage = {**AD["JobLensUsage"], "Cpu": {"Seconds": number}, "Endpoint": [{"Address": "192.0.2.7", "Port": number}]}
    run = accesspoint.from_ad({**AD, "JobLensUsage": {**usage, "UpdateTime": number}})
    assert run.number("Cpu.Seconds") is None and "update_time" not in run.facts
    assert run.endpoints == [{"Address": "192.0.2.7"}]


def test_an_end_without_final_numbers_is_said():
    run = accesspoint.from_ad({**AD, "JobStatus": 3, "RemoveReason": "via condor_rm"})
    text = "\n".join(job_page.render(run, NOW + 500, Style()))
    assert "ended after 1 min, 8 min 20 s ago" in text
    assert "! its final numbers did not arrive" in text


@pytest.mark.parametrize(
    ("ad", "ending"),
    [
        ({"JobStatus": 4, "ExitCode": 3, "ExitBySignal": False}, "completed with exit code 3"),
        ({"JobStatus": 3, "RemoveReason": "via condor_rm\n\033[2J"}, "was removed: via condor_rm\\n\\x1b[2J"),
        ({"JobStatus": 5, "HoldReason": "memory"}, "is held: memory"),
        ({"JobStatus": 5, "HoldReason": None}, "is held: no reason given"),
        ({"JobStatus": 3}, "was removed: no reason given"),
        ({"JobStatus": 2}, ""),
    ],
)
def test_how_a_job_ended(ad, ending):
    assert accesspoint.from_ad({**AD, **ad}).ending == ending


@pytest.mark.parametrize(
    ("ad", "message"),
    [
        ({"JobStatus": 1}, "job 12.0 is idle; it has not run yet, and has no numbers before"),
        ({"JobStatus": 1, "NumJobStarts": 1}, "job 12.0 is idle; it has no JobLensUsage: it asked for level off"),
        ({"JobStatus": 2}, "job 12.0 is running; it has no JobLensUsage: it asked for level off"),
        ({"JobStatus": 2, "NumJobStarts": 0}, "job 12.0 is running; it has no JobLensUsage"),
        ({"JobStatus": 5, "NumJobStarts": 0, "HoldReason": "as\x1b it was"},
         "job 12.0 is held: as\\x1b it was; it has not run yet"),
        ({"JobStatus": 4, "ExitCode": 3}, "job 12.0 completed with exit code 3; it has no JobLensUsage"),
        ({"JobStatus": 3}, "job 12.0 was removed: no reason given; it has no"),
        ({"JobStatus": [7]}, "job 12.0 is there; it has no"),
    ],
)  # fmt: skip
def test_a_job_without_numbers_gets_its_state_and_nothing_else(tmp_path, monkeypatch, ad, message):
    condor(tmp_path / "bin", monkeypatch, "condor_q", [{"ClusterId": 12, "ProcId": 0, **ad}])
    with pytest.raises(JobLensError) as raised:
        job.find("12.0", str(tmp_path))
    assert str(raised.value).startswith(message)


def test_of_a_cluster_without_numbers_one_job_is_told(tmp_path, monkeypatch):
    ads = [{"ClusterId": 12, "ProcId": process, "JobStatus": 1} for process in range(3)]
    condor(tmp_path / "bin", monkeypatch, "condor_q", ads)
    condor(tmp_path / "bin", monkeypatch, "condor_history", [])
    with pytest.raises(JobLensError, match=r"^job 12\.0 is idle; .* Of 2 more of that name there are none either$"):
        job.find("12", str(tmp_path))


def test_of_a_job_that_nobody_knows_that_is_said(tmp_path, monkeypatch):
    condor(tmp_path / "bin", monkeypatch, "condor_q", [])
    condor(tmp_path / "bin", monkeypatch, "condor_history", [])
    with pytest.raises(JobLensError, match="nothing is known"):
        job.find("12.0", str(tmp_path))


def test_an_id_never_becomes_an_expression(tmp_path, monkeypatch):
    condor(tmp_path / "bin", monkeypatch, "condor_q", [AD])
    for hostile in ('x" || true || "', 'a#1.0#1" || true', "-constraint", "--help", "12.0 13.0"):
        with pytest.raises(JobLensError, match="no name by which an access point knows a job"):
            job.find(hostile, str(tmp_path))
    assert not (tmp_path / "bin" / "condor_q.arguments").exists()
    job.find("ap.example#12.0#1799980000", str(tmp_path))
    assert 'GlobalJobId == "ap.example#12.0#1799980000"' in (tmp_path / "bin" / "condor_q.arguments").read_text()


def test_a_schedd_that_fails_is_one_line(tmp_path, monkeypatch, capsys):
    condor(tmp_path / "bin", monkeypatch, "condor_q", [], code=1, complaint="Can't find address of local schedd")
    assert main.main(["job", "12.0", "--run-dir", str(tmp_path)]) == 1
    message = capsys.readouterr().err
    assert "condor_q fails: Can't find address of local schedd" in message
    assert message.count("\n") == 1


NAMES = st.sampled_from(
    [
        "Run",
        "Level",
        "LevelNumber",
        "StartTime",
        "UpdateTime",
        "Final",
        "Complete",
        "Lost",
        "Note",
        "Cpu",
        "Memory",
    ]
)


@given(
    st.dictionaries(NAMES, JSON | st.dictionaries(st.sampled_from(["RecentCores", "ResidentBytes"]), JSON)),
    JSON,
)
def test_whatever_an_owner_writes_into_the_ad_is_printed_harmlessly(usage, cpus):
    run = accesspoint.from_ad({**AD, "RequestCpus": cpus, "JobLensUsage": usage})
    text = "\n".join(job_page.render(run, NOW, Style()))
    assert text.isascii() and text.replace("\n", "").isprintable()
    json.dumps(run.record())


def test_json_is_the_job_and_its_other_runs(tmp_path, capsys):
    publish(tmp_path, "rows", row())
    publish(tmp_path, "ended", row(run="before", final=True))
    assert main.main(["job", "12.0", "--json", "--run-dir", str(tmp_path)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["Job"]["JobLensUsage"]["Memory"]["AnonBytes"] == GIB
    assert [other["JobLensUsage"]["Run"] for other in printed["Others"]] == ["before"]


@pytest.mark.parametrize(
    "facts, path",
    [
        ({"run": "ap1#12.0#17#1", "job_id": "12.0"}, "/job/ap1%2312.0%2317%231"),
        ({"run": "a/b?c&d=<e>", "job_id": "12.0"}, "/job/a%2Fb%3Fc%26d%3D%3Ce%3E"),
        ({"job_id": "12.0"}, "/jobs?state=all&q=12.0"),
    ],
)
def test_a_job_has_its_page_at_the_hub(facts, path, monkeypatch, capsys):
    monkeypatch.setattr(web, "read_macros", lambda pattern: {"JOBLENS_HUB_PAGES": "https://hub.example.org/joblens/"})
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert web.run(Run(facts, {})) == 0
    assert capsys.readouterr().out == f"https://hub.example.org/joblens{path}\n"


@pytest.mark.parametrize("value", ["", "hub.example.org", "https://x/ y", "javascript:alert(1)", "https://x/?a=b"])
def test_without_the_hubs_address_it_says_what_is_missing(value, monkeypatch):
    monkeypatch.setattr(web, "read_macros", lambda pattern: {"JOBLENS_HUB_PAGES": value})
    with pytest.raises(JobLensError, match="JOBLENS_HUB_PAGES is not set"):
        web.run(Run({"run": "x"}, {}))
