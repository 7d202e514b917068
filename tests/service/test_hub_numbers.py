"""The hub's numbers with a real store: each run counts once, silence is told, and a number leads to its jobs."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import time
import urllib.parse
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from hub_server import Hub, ask
from sinks import deliver, make, runs, until

from condor_joblens.common import machine
from condor_joblens.common.errors import JobLensError
from condor_joblens.export.records import RowEncoder
from condor_joblens.hub.store.client import StoreTooMuch
from condor_joblens.hub.web.ended import KIND
from condor_joblens.hub.web.failures import kind
from condor_joblens.sinks import Record, RecordKind
from condor_joblens.sinks.hub import HubSink
from condor_joblens.sinks.selection import PERIOD_KNOB

PEOPLE = """
[Alice]
login = remote:alice
jobs = alice@ap.example.org
[Mona]
role = manager
login = remote:mona
jobs = mona@ap.example.org
groups = physics@ap.example.org
[Olga]
role = operator
login = remote:olga
jobs = olga@ap.example.org
[Adam]
role = administrator
login = remote:adam
jobs = adam@ap.example.org
"""


class Sent:
    """Records of one run after the other."""

    def __init__(self, hub: Hub) -> None:
        self.hub, self.now = hub, int(time.time())

    def run(
        self, job: str, owner: str = "alice", node: str = "node1", age: int = 0, sequence: int = 1,
        kind: RecordKind = RecordKind.SAMPLE, code: int = 0, period: float = 0.0, **columns: Any,
    ) -> None:  # fmt: skip
        """One record. age: seconds since the run's last numbers; code: its exit code, told by an event."""
        name = f"ap.example.org#{job}#1700000000"
        rows = runs(1, sequence)
        rows["global_job_id"], rows["run"], rows["job_id"], rows["owner"] = name, f"{name}#1", job, owner
        rows["accounting_group"] = columns.pop("group", "")
        rows["executable"], rows["first_failure"], rows["death"] = "fit.py", "", ""
        rows["hang_suspected"] = rows["cpu_idle_seconds"] = 0
        # runs that are heard of now go on for half an hour: on a busy machine, tests take longer than two minutes
        rows["memory_limit_bytes"], rows["period_seconds"] = -1, 1 if age else 600
        rows["start_time"], rows["update_time"] = self.now - age - 600, self.now - age
        for column, value in columns.items():
            rows[column] = value
        batch = list(RowEncoder(node).records(rows, kind))
        if code:
            said = {"Type": "event", "Id": f"{node}/e/{job}", "Schema": 1, "Node": node, "Time": self.now - age}
            said |= {"Kind": "RunEnd", "Run": f"{name}#1", "RunNumber": 1, "ExitCode": code}
            line = json.dumps(said).encode()
            batch.append(Record(RecordKind.EVENT, str(said["Id"]), name, float(self.now), line, frozenset()))
        sink = make(HubSink, URL=self.hub.url, TOKEN_FILE=str(self.hub.folder / node))
        sink.settings = {**sink.settings, PERIOD_KNOB.name.lower(): period}
        deliver(sink, batch)

    def still_runs(self, sequence: int) -> None:
        """The one run of node10 is heard of now: it counts as running for a minute."""
        self.run("72.0", node="node10", sequence=sequence, owner="olga", executable="mine.py", death="")


@pytest.fixture(scope="module")
def hub(folder: Path, server: Any) -> Iterator[Hub]:
    started = server(Hub, folder / "numbers", nodes=("node1", "node2", "node10"))
    started.people.write_text(PEOPLE)
    with started:
        sent = Sent(started)
        for number in range(9):  # a wave: one cluster, on two nodes
            node = f"node{1 + number % 2}"
            sent.run(
                f"7.{number}", node=node, kind=RecordKind.JOB, death=f"out of memory: reco held {number} GiB of 4 GiB"
            )
        # crashes.py: the death is known later, and the last record comes again
        for number in range(3):
            sent.run(f"8.{number}", kind=RecordKind.JOB, sequence=5)
            sent.run(f"8.{number}", kind=RecordKind.JOB, sequence=6, death="SIGABRT in reco", corrects=True)
            sent.run(
                f"8.{number}", kind=RecordKind.JOB, sequence=7, death="std::bad_alloc, SIGABRT in reco", corrects=True
            )
        sent.run("9.0", kind=RecordKind.JOB, code=3, owner="carol", group="physics")
        sent.run("9.1", kind=RecordKind.JOB, code=3, owner="mona", first_failure="open of /secret/7/x failed")
        sent.run("70.0", kind=RecordKind.JOB, age=7200, death="out of memory: reco held 1 GiB of 4 GiB")
        sent.run("71.0", node="node2")
        sent.still_runs(1)
        sent.run("73.0", age=300)
        sent.run("74.0", age=300, period=300.0)
        sent.run("75.0", age=300, period_seconds=200)
        # two nodes tell of one run
        sent.run("76.0", node="node1", owner="bob")
        sent.run("76.0", node="node2", owner="bob")
        yield started


def jobs(hub: Hub, person: str, **words: Any) -> list[str]:
    status, answer, text = ask(hub, person, "/jobs.json", **words)
    assert status == 200, text
    assert answer["count"] == len(answer["jobs"])
    return sorted(row["JobId"] for row in answer["jobs"])


def site(hub: Hub, person: str) -> dict[str, Any]:
    status, answer, text = ask(hub, person, "/site.json")
    assert status == 200, text
    return answer


def test_a_run_whose_last_record_was_corrected_counts_once_under_its_last_cause(hub: Hub) -> None:
    found = site(hub, "adam")
    counts = {wave["cause"]: wave["count"] for wave in found["failures"]}
    assert counts == {
        "out of memory: reco": 9,
        "std::bad_alloc, SIGABRT in reco": 3,
        "exit code 3": 1,
        "exit code 3: open of /secret/N/x failed": 1,
    }
    assert found["last_hour"] == {"ended": 14, "failed": 14}
    node = ask(hub, "adam", "/node/node1.json")[1]
    assert (node["node"]["ended"], node["node"]["failed"]) == (10, 10)
    assert sum(hour["ended"] for hour in node["hours"]) == 11
    assert {one["cause"]: one["count"] for one in node["causes"]}["std::bad_alloc, SIGABRT in reco"] == 3
    assert not any(one["cause"].startswith("SIGABRT") for one in node["causes"])


def test_runs_that_went_silent_are_listed_by_their_own_period(hub: Hub) -> None:
    assert jobs(hub, "adam", state="silent") == ["73.0"]
    assert jobs(hub, "adam", state="running") == ["71.0", "72.0", "74.0", "75.0", "76.0"]
    (row,) = ask(hub, "adam", "/jobs.json", state="silent")[1]["jobs"]
    assert row["Health"] == "unknown" and row["Why"].startswith("no numbers for ")
    assert site(hub, "adam")["site"]["silent"] == 1
    api = ask(hub, "adam", "/api/v1/jobs", state="silent", columns="JobId")[1]["jobs"]
    assert [(row["JobId"], row["Health"]) for row in api] == [("73.0", "unknown")]


def test_a_run_of_which_two_nodes_tell_counts_once(hub: Hub) -> None:
    assert site(hub, "adam")["site"]["runs"] == 5
    groups = ask(hub, "adam", "/api/v1/summary", by="owner")[1]["groups"]
    assert {group["name"]: group["runs"] for group in groups}["bob"] == 1
    for sort in ("-cores", "-updated", "owner"):
        assert jobs(hub, "adam", state="all", sort=sort).count("76.0") == 1
    assert ask(hub, "adam", "/jobs.json", state="all", page=1)[1]["count"] == len(jobs(hub, "adam", state="all"))
    for words in ({}, {"sort": "-Cpu.Seconds"}):
        answer = ask(hub, "adam", "/api/v1/jobs", owner="bob", columns="JobId,Node", **words)[1]
        assert [row["JobId"] for row in answer["jobs"]] == ["76.0"] and not answer["is_cut"]


@pytest.mark.parametrize(
    "words, found",
    [
        ({"cause": "out of memory: reco"}, [*(f"7.{n}" for n in range(9)), "70.0"]),
        ({"cause": "out of memory: reco", "since": 1}, [f"7.{n}" for n in range(9)]),
        ({"cause": "std::bad_alloc, SIGABRT in reco"}, ["8.0", "8.1", "8.2"]),
        ({"cause": "exit code 3"}, ["9.0"]),
        ({"cause": "exit code 3: open of /secret/N/x failed"}, ["9.1"]),
        ({"cluster": "ap.example.org#7"}, [f"7.{n}" for n in range(9)]),
        ({"node": "node1", "cluster": "ap.example.org#7"}, [f"7.{n}" for n in range(0, 9, 2)]),
        ({"owner": "carol"}, ["9.0"]),
        ({"group": "physics"}, ["9.0"]),
        ({"owner": "' OR 1 --"}, []),
    ],
)
def test_jobs_are_found_by_exact_parameters(hub: Hub, words: dict[str, Any], found: list[str]) -> None:
    words = {**words, "since": time.time() - 3600} if "since" in words else words
    assert jobs(hub, "adam", state="failed", **words) == sorted(found)
    rows = ask(hub, "adam", "/api/v1/jobs", state="failed", columns="JobId", **words)[1]["jobs"]
    assert sorted(row["JobId"] for row in rows) == sorted(found), "programs and pages have the same parameters"


def test_an_operator_and_a_manager_find_their_own_by_words_and_others_by_what_they_see(hub: Hub) -> None:
    assert jobs(hub, "olga", q="mine.py") == ["72.0"] and jobs(hub, "olga", q="fit.py", state="all") == []
    assert jobs(hub, "olga", executable="mine.py") == ["72.0"] and jobs(hub, "olga", executable="fit.py") == []
    assert jobs(hub, "olga", state="failed", cause="out of memory", since=time.time() - 3600) == [
        f"7.{n}" for n in range(9)
    ]
    assert jobs(hub, "olga", state="failed", cause="out of memory: reco") == []
    assert jobs(hub, "olga", state="failed", cause="exit code 3") == ["9.0", "9.1"]
    causes = {wave["cause"]: wave["count"] for wave in site(hub, "olga")["failures"]}
    assert causes == {"out of memory": 9, "SIGABRT": 3, "exit code 3": 2}
    # of her own she reads why, of her group's the kind
    causes = {wave["cause"]: wave["count"] for wave in site(hub, "mona")["failures"]}
    assert causes == {"exit code 3: open of /secret/N/x failed": 1, "exit code 3": 1}
    assert jobs(hub, "mona", state="failed", cause="exit code 3: open of /secret/N/x failed") == ["9.1"]
    assert jobs(hub, "mona", state="failed", cause="exit code 3") == ["9.0"]


def links(page: str) -> list[tuple[str, str]]:
    """Path and text of each link to jobs within the page's main part."""
    main = page[page.index("<main>") : page.index("</main>")]
    found = re.findall(r'<a [^>]*?href="(/jobs[^"]*)"[^>]*>([^<]*)</a>', main)
    return [(unescape(path), text) for path, text in found]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("person", ["adam", "olga", "mona", "alice"])
def test_a_number_leads_to_as_many_jobs(hub: Hub, person: str) -> None:
    """Each whole number that is a link to jobs, on the pages Site, Nodes and One node."""
    looked = 0
    for path in ("/", "/nodes", "/node/node1"):
        for there, text in links(ask(hub, person, path)[2]):
            number = re.match(r"[0-9]+(?![0-9.]| [KMGT]?i?B)", text)
            if number and "sort=" not in there:
                count = ask(hub, person, there.replace("/jobs?", "/jobs.json?"))[1]["count"]
                assert count == int(number[0]), (path, there, text)
                looked += 1
    assert looked >= 5


def test_a_state_or_time_that_is_none_is_refused_in_a_sentence(hub: Hub) -> None:
    for words in ({"state": "1; DROP"}, {"since": "yesterday"}, {"until": "nan"}, {"cause": "x" * 400}):
        status, _, text = ask(hub, "adam", "/jobs", **words)
        assert status == 400 and "This can't be asked" in text and "</nav>" in text
        assert ask(hub, "adam", "/jobs.json", **words)[0] == 400
    status, _, text = ask(hub, "adam", "/jobs/none")
    assert status == 404 and "Not there" in text and "</nav>" in text
    assert ask(hub, "adam", "/job/none")[0] == 404


def test_kinds_of_causes_are_the_same_for_the_store(hub: Hub) -> None:
    said = [
        "SIGSEGV in /home/a",
        "out of memory: x",
        "exit code 3: y",
        "disk is full",
        "std::bad_alloc, SIGABRT",
        "SIG",
    ]
    for one in said:
        query = f"SELECT {KIND} AS kind FROM (SELECT {{said:String}} AS Cause, '' AS Death, '' AS FirstFailure)"
        assert hub.ask(query, said=one) == [{"kind": kind(one)}]


def store(hub: Hub) -> Any:
    from condor_joblens.hub.store.client import Store, socket_of

    return Store(socket_of(f"{hub.folder}/kept"))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT sum(number) FROM numbers(1000000000000)",
        "SELECT groupArray(toString(number)) FROM numbers(1000000000)",
        "SELECT number FROM numbers(3000000)",
        "SELECT repeat('x', 1000000) AS long FROM numbers(400)",
    ],
)
def test_what_asks_for_too_much_is_told_so(hub: Hub, query: str) -> None:
    """Time, memory, rows and bytes: ClickHouse says the name of the error last, behind all else."""
    with pytest.raises(StoreTooMuch):
        store(hub).bounded(1, 16 << 20).ask(query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM file('/etc/passwd', 'LineAsString')",
        "SELECT file('/etc/passwd') AS x",
        "SELECT FiLe /* */ ('/etc/passwd') AS x",
        "SELECT `file`('/etc/passwd') AS x",
        "SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString')",
        "SELECT * FROM s3('http://127.0.0.1:1/a/b', 'LineAsString')",
        "SELECT * FROM remote('127.0.0.1', system.one)",
        "SELECT * FROM executable('/bin/id', 'LineAsString', 'x String')",
        "SELECT * FROM sqlite('/etc/passwd', 'x')",
        "SELECT 1 INTO OUTFILE '/tmp/joblens-outfile'",
        "SELECT 1 SETTINGS readonly = 0",
        "DROP TABLE samples",
        "INSERT INTO samples (Id) SELECT 'x'",
    ],
)
def test_what_pages_ask_reaches_no_file_and_changes_nothing(hub: Hub, query: str) -> None:
    with pytest.raises(JobLensError) as refusal:
        store(hub).ask(query)
    said = str(refusal.value)
    assert "root:" not in said and ("READONLY" in said or "a question that only reads has no" in said), said
    assert hub.ask("SELECT 'file(' AS x, 1 AS settings_of") == [{"x": "file(", "settings_of": 1}]


def test_records_of_another_schema_are_kept_and_said(hub: Hub) -> None:
    said_there = "1 records of the last day have another schema"
    said = {"Type": "sample", "Id": "odd/1/1", "Schema": 9, "Node": "node1", "Time": time.time(), "New": 1}
    line = json.dumps(said).encode()
    deliver(
        make(HubSink, URL=hub.url, TOKEN_FILE=str(hub.folder / "node1")),
        [Record(RecordKind.SAMPLE, "odd/1/1", "odd", time.time(), line, frozenset())],
    )
    (row,) = hub.ask("SELECT Whole FROM other_schemas FINAL")
    assert json.loads(row["Whole"]) == said
    text = until(lambda: found if said_there in (found := ask(hub, "adam", "/")[2]) else "", "the sentence")
    assert urllib.parse.quote("odd/1/1", safe="") not in text


def test_jobs_and_nodes_are_there_as_csv(hub: Hub) -> None:
    """Each row of the list, and no cell that a spreadsheet takes for a formula."""
    Sent(hub).run("79.0", node="node2", executable="=cmd|' /C calc'!A0", note="@SUM(1)\n-2", kind=RecordKind.JOB)
    Sent(hub).still_runs(2)
    for path, count in (("/jobs.csv?state=failed", 15), ("/jobs.csv?state=ended", 16), ("/nodes.csv", 3)):
        status, _, text = ask(hub, "adam", path)
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
        assert (status, len(rows)) == (200, count)
        assert not any(re.match(r"[=+@\t\r]|-[^0-9]", cell) for row in rows for cell in row.values())
    assert "'=cmd" in ask(hub, "adam", "/jobs.csv?state=ended")[2]
    assert "=cmd" not in ask(hub, "olga", "/jobs.csv?state=ended")[2]
    assert ask(hub, "adam", "/jobs.csv?state=x")[0] == 400
    status, _, text = ask(
        hub, "adam", "/api/v1/jobs", accept="text/csv", state="all", limit=2, columns="JobId,Executable"
    )
    assert status == 200 and text.splitlines()[0] == "Run,Health,Why,IsMine,ExitCode,JobId,Executable"
    assert len(text.splitlines()) == 3
    assert ask(hub, "adam", "/api/v1/schema", accept="text/csv")[1], "what is no table stays JSON"


def test_programs_are_told_of_nodes(hub: Hub) -> None:
    Sent(hub).still_runs(3)
    found = ask(hub, "adam", "/api/v1/nodes")[1]
    page = ask(hub, "adam", "/nodes.json")[1]
    assert [row["node"] for row in found["nodes"]] == [row["node"] for row in page["nodes"]]
    (row,) = ask(hub, "adam", "/api/v1/nodes", node="node10")[1]["nodes"]
    assert (row["runs"], row["health"]) == (1, "unknown")
    assert ask(hub, "alice", "/api/v1/nodes", node="node10")[1]["nodes"] == [], "none of her jobs is there"


def test_the_client_of_the_page_works(hub: Hub) -> None:
    """docs/examples/hub_client.py and the ten lines beside it, as a person of the hub's machine."""
    examples = Path(__file__).parents[2] / "docs/examples"
    text = PEOPLE.replace("login = remote:adam", "login = remote:adam, unix:daemon")
    new = hub.people.with_name("people.new")
    new.write_text(text)
    new.replace(hub.people)
    place = hub.folder / "examples"
    shutil.copytree(examples, place, ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        ["setpriv", "--reuid=daemon", "--clear-groups", "python3", "-B", str(place / "hub_report.py"),
         f"unix:{hub.folder}/sockets/pages.sock"],
        capture_output=True, text=True, timeout=120, cwd="/", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "fit.py failed" in done.stdout and done.stdout.splitlines()[-1].endswith(" GiB")


def test_a_jobs_life_is_on_one_axis_with_its_clusters_band(hub: Hub) -> None:
    """What each may read of it; and memory of which nothing lives is no 0."""
    sent, name = Sent(hub), "ap.example.org#80.0#1700000000"
    for number in range(12):
        for step in range(3):
            live = 0 if (number, step) == (0, 2) else 2
            sent.run(
                f"80.{number}", age=300 - 100 * step, sequence=step + 1, start_time=sent.now - 600, process_live=live,
                memory_resident_bytes=live * 1000 * (number + 1), cpu_recent_cores=number, progress=f"step {step}",
            )  # fmt: skip
    events = (("Level", {"Level": "io", "Reason": "by hand"}), ("Death", {"Reason": "x"}))
    for place, (word, more) in enumerate(events):
        said = {"Type": "event", "Id": f"node1/line/{place}", "Schema": 1, "Node": "node1", "Time": sent.now - 200}
        said |= {"Kind": word, "Run": f"{name}#1", "GlobalJobId": name, "RunNumber": 1, **more}
        for node in ("node1", "node2"):  # what a node says that has nothing of the job is on no page
            said |= {"Id": f"{node}/line/{place}", "Node": node, "Kind": word if node == "node1" else "Oom"}
            batch = [Record(RecordKind.EVENT, str(said["Id"]), name, 0.0, json.dumps(said).encode(), frozenset())]
            deliver(make(HubSink, URL=hub.url, TOKEN_FILE=str(hub.folder / node)), batch)
    path = f"/job/{urllib.parse.quote(name + '#1', safe='')}"
    for person, told in (("alice", ["", "step 0", "io: by hand", "x"]), ("olga", ["", "io", ""])):
        found = ask(hub, person, f"{path}.json")[1]
        line, band = found["timeline"], found["band"]
        kinds = ["submit", "start", "level", "death"]
        marks = {mark["kind"]: mark["words"] for mark in line["marks"]}
        assert [each for each in dict.fromkeys(mark["kind"] for mark in line["marks"]) if each != "progress"] == kinds
        assert (marks["level"], marks["death"]) == (told[-2], told[-1]) and ("progress" in marks) == (person == "alice")
        assert (line["begin"], line["unknown"][0], len(line["runs"])) == (1_700_000_000, "match", 1)
        assert found["series"]["ResidentBytes"] == [2000, 2000, None]
        assert band["runs"] == 11 and band["Cores"]["low"][0] == pytest.approx(2)
        assert band["ResidentBytes"]["high"][0] == pytest.approx(2000 * 11)
        page = ask(hub, person, path)[2]
        assert "before the axis begins" in page and ("by hand" in page) == (person == "alice")
        assert re.search(r"<time>[\d-]{10} \d\d:\d\d:\d\d UTC</time>", page), "a job may live for seconds"


def test_a_node_tells_staff_how_it_does_and_nobody_else(hub: Hub) -> None:
    told: dict[str, Any] = {**machine.machine(), **machine.disk("Execute", "/")}
    about = {"Type": "health", "Id": "node2/h", "Schema": 1, "Node": "node2", "Time": time.time()}
    said = {
        **about,
        "CpuSeconds": 1.0,
        "ResidentBytes": 1,
        "Sinks": [],
        "Machine": {**told, "Kernel": "<b>6", "Load": 1e300},
    }
    line = json.dumps(said).encode()
    sink = make(HubSink, URL=hub.url, TOKEN_FILE=str(hub.folder / "node2"))
    deliver(sink, [Record(RecordKind.HEALTH, "node2/h", "node2", time.time(), line, frozenset())])
    found = ask(hub, "adam", "/node/node2.json")[1]["machine"]
    assert found.pop("Kernel") == "<b>6" and "Load" not in found
    assert found == {name: value for name, value in told.items() if name not in ("Kernel", "Load")}
    page = ask(hub, "adam", "/node/node2")[2]
    assert "Disk free for jobs" in page and "<b>6" not in page and "&lt;b&gt;6" in page
    assert "Disk free for jobs" not in ask(hub, "alice", "/node/node2")[2]


def test_the_page_of_a_node_says_that_it_has_not_all_of_its_jobs(hub: Hub) -> None:
    assert "that use most cores" not in ask(hub, "adam", "/node/node2")[2]
    for number in range(21):
        Sent(hub).run(f"90.{number}", node="node10", owner="olga")
    found = re.search(r"The 20 of (\d+) that use most cores", ask(hub, "adam", "/node/node10")[2])
    assert found and int(found[1]) >= 21


def test_who_sees_all_is_not_told_of_jobs_of_his_own(hub: Hub) -> None:
    assert "This hub has no rules" in ask(hub, "adam", "/rules")[2]
    assert "or there are no rules" in ask(hub, "alice", "/rules")[2]
    headings = {"adam": "All of these", "mona": "Your jobs and your groups&#x27;", "alice": "Your jobs"}
    for person, heading in headings.items():
        assert f'<h2 id="whole">{heading}</h2>' in ask(hub, person, "/trends", by="owner", days=1)[2]
