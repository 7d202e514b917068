"""What access points tell of their queues, with a real store: counts, causes, lists and lives, each for its viewers."""

from __future__ import annotations

import hashlib
import json
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_server import Hub, ask
from sinks import deliver, make, runs, until

from condor_joblens.eventlog.reader import Reader
from condor_joblens.export.records import RowEncoder
from condor_joblens.sinks import RecordKind
from condor_joblens.sinks.hub import HubSink

AP = "ap.example.org"
HOSTILE = "<script>alert(1)</script> \"' {{ 7*7 }} \u202e =cmd"
PEOPLE = f"""
[Alice]
login = remote:alice
jobs = alice@{AP}
[Bob]
login = remote:bob
jobs = bob@{AP}, alice@other.example.org
[Mona]
role = manager
login = remote:mona
groups = physics@{AP}
[Olga]
role = operator
login = remote:olga
[Adam]
role = administrator
login = remote:adam
"""
NOW = int(time.time())


def told(trigger: int, job: str, owner: str = "alice", ago: int = 60, **more: Any) -> str:
    """An event as HTCondor writes it."""
    cluster, _, process = job.partition(".")
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW - ago))
    said = {
        "Cmd": f"/home/{owner}/fit.py", "Cluster": int(cluster), "Proc": int(process), "Owner": owner,
        "User": f"{owner}@example.org", "EventTime": when, "EventTypeNumber": 28, "TriggerEventTypeNumber": trigger,
        "GlobalJobId": f"{AP}#{job}#1700000000", **more,
    }  # fmt: skip
    return json.dumps(said, indent=2) + "\n"


HOLD = {"HoldReason": f"Transfer of /home/alice/17 failed: {HOSTILE}", "HoldReasonCode": 13, "HoldReasonSubCode": 2}
LOG = (
    told(0, "1.0")
    + told(0, "2.0", ago=600)
    + told(12, "2.0", **HOLD)
    + told(0, "3.0", "bob", AccountingGroup="physics.muons")
    + told(40, "3.0", "bob", Type=2, AccountingGroup="physics.muons")
    + told(0, "4.0", "carol")
    + told(1, "4.0", "carol", SlotName="slot1@ep1")
    + told(0, "5.0", ago=500)
    + told(1, "5.0", ago=400, SlotName="slot1@ep1")
    + told(5, "5.0", ago=300, TerminatedNormally=True, ReturnValue=3)
)


SLOTS = (
    '"ep1" "Partitionable" "Unclaimed" 6 12000 "$CondorVersion: 25.4.0 2026-10-01 $" "Debian13" "X86_64"',
    '"ep1" "Dynamic" "Claimed" 2 4000 "$CondorVersion: 25.4.0 2026-10-01 $" "Debian13" "X86_64"',
    '"ep2" "Static" "Owner" 4 8000 "$CondorVersion: 23.9.6 2024-08-08 $" "<b>" "X86_64"',
)


MANY = 6000
IDLE = [f'"w{number:04}" "Static" "Unclaimed" 1 1 undefined undefined undefined' for number in range(MANY)]


class WithCollector(Hub):
    """Asks a collector that has two machines of interest, and many others."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "slots").write_text("\n".join((*SLOTS, *IDLE)))
        (folder / "condor_status").write_text(f"#!/bin/sh\nexec cat {folder}/slots\n")
        (folder / "condor_status").chmod(0o755)

    def command(self) -> list[str]:
        return [*super().command(), "--collector", f"{self.folder}/condor_status"]


@pytest.fixture(scope="module")
def hub(folder: Path, server: Any) -> Iterator[Hub]:
    started = server(WithCollector, folder / "queue")
    started.people.write_text(PEOPLE)
    token = started.folder / "ap"
    token.write_text("swordfish-of-ap")
    token.chmod(0o600)
    with open(started.folder / "tokens", "a", encoding="ascii") as file:
        file.write(f"access-point {AP} {hashlib.sha256(b'swordfish-of-ap').hexdigest()}\n")
    log = started.folder / "EventLog"
    log.write_text(LOG)
    with started:
        sink = make(HubSink, URL=started.url, TOKEN_FILE=str(token))
        for name in ("first", "second"):  # all of it comes twice
            said: list[str] = []
            reader = Reader(str(log), str(started.folder / name), AP, sink, said.append)
            while not reader.step():
                pass
            assert said == []
        deliver(sink, [])
        yield started


def get(hub: Hub, person: str, path: str, **words: Any) -> dict[str, Any]:
    status, answer, text = ask(hub, person, path, **words)
    assert status == 200, text
    return answer


def queued(job: str) -> str:
    return f"/queued/{urllib.parse.quote(f'{AP}#{job}#1700000000', safe='')}"


def listed(hub: Hub, person: str, state: str, **words: Any) -> list[str]:
    answer = get(hub, person, "/jobs.json", state=state, **words)
    assert answer["count"] == len(answer["jobs"])
    return sorted(row["JobId"] for row in answer["jobs"])


def test_what_came_twice_is_kept_once(hub: Hub) -> None:
    assert hub.ask("SELECT count() AS n FROM job_events FINAL") == [{"n": LOG.count("\n}\n")}]
    assert hub.ask("SELECT count() AS n FROM job_states FINAL") == [{"n": 5}]


def test_the_site_counts_states_and_says_why_jobs_are_held(hub: Hub) -> None:
    found = get(hub, "adam", "/site.json")["queue"]
    states = {"idle": 1, "held": 1, "transferring": 1, "suspended": 0, "running": 1, "unwatched": 1}
    assert found["site"] == states and set(found["mine"].values()) == {0}
    (held,) = found["held"]
    assert held["cause"].startswith("Transfer of /home/alice/N failed") and (held["code"], held["jobs"]) == (13, 1)
    assert get(hub, "olga", "/site.json")["queue"]["held"] == [
        {"cause": "", "code": 13, "name": "TransferInputError", "jobs": 1}
    ]
    bob = get(hub, "bob", "/site.json")["queue"]
    assert bob["site"] is None and bob["held"] == [] and bob["mine"]["transferring"] == 1
    assert listed(hub, "adam", "held", cause=held["cause"]) == ["2.0"]
    assert listed(hub, "olga", "held", cause=held["cause"]) == []


def test_the_pool_is_as_its_collector_has_it(hub: Hub) -> None:
    until(lambda: get(hub, "adam", "/site.json")["pool"], "the collector's answer", 120)
    pool = get(hub, "adam", "/site.json")["pool"]
    assert {name: pool[name] for name in ("nodes", "cores", "claimed_cores", "untold")} == {
        "nodes": MANY + 2, "cores": MANY + 12, "claimed_cores": 2, "untold": MANY + 2,
    }  # fmt: skip
    assert pool["memory"] == MANY + 24000 << 20 and pool["claimed_memory"] == 4000 << 20
    found = get(hub, "olga", "/nodes.json")
    assert [(one["version"], one["nodes"]) for one in found["versions"]] == [("", MANY), ("23.9.6", 1), ("25.4.0", 1)]
    first = next(one for one in found["nodes"] if one["node"] == "ep1")
    assert (first["health"], first["claimed_cores"], first["pool_cores"]) == ("unknown", 2, 8)
    assert first["why"].endswith("and 2 of its cores are claimed")
    assert "2 of 8 cores" in ask(hub, "olga", "/node/ep1")[2]
    assert "25.4.0" in ask(hub, "olga", "/nodes")[2] and f"2 of {MANY + 12}" in ask(hub, "alice", "/")[2]
    mine = get(hub, "alice", "/nodes.json")
    assert mine["versions"] == [] and mine["nodes"] == [], "machines are staff's"


def test_each_of_many_machines_is_found(hub: Hub) -> None:
    until(lambda: get(hub, "adam", "/site.json")["pool"], "the collector's answer", 120)
    found = get(hub, "olga", "/nodes.json")
    assert len(found["nodes"]) == found["count"] == MANY + 2 and not found["is_cut"]
    page = ask(hub, "olga", "/nodes", only="unknown", page=MANY // 200)[2]
    assert f"{MANY + 1} to {MANY + 2} of {MANY + 2}" in page and f"w{MANY - 1}" in page and "w0000" not in page
    page = ask(hub, "olga", "/nodes", q="W5999")[2]
    assert "1 to 1 of 1" in page and "w5999" in page and "1 unknown" in page
    assert [one["node"] for one in get(hub, "olga", "/nodes.json", q="ep")["nodes"]] == ["ep1", "ep2"]


@pytest.mark.parametrize(
    "person, state, found",
    [
        ("adam", "idle", ["1.0"]), ("alice", "idle", ["1.0"]), ("bob", "idle", []), ("alice", "held", ["2.0"]),
        ("bob", "held", []), ("mona", "transferring", ["3.0"]), ("mona", "idle", []), ("olga", "unwatched", ["4.0"]),
        ("alice", "unwatched", []), ("adam", "suspended", []),
    ],
)  # fmt: skip
def test_each_sees_his_own_in_each_state(person: str, state: str, found: list[str], hub: Hub) -> None:
    assert listed(hub, person, state) == found


def test_programs_get_the_same_counts_and_jobs_as_pages(hub: Hub) -> None:
    for person in ("adam", "olga", "bob", "alice"):
        page, answer = get(hub, person, "/site.json")["queue"], get(hub, person, "/api/v1/queue")
        assert {**page, "time": answer["time"]} == answer
    answer = get(hub, "adam", "/api/v1/queued", state="held", owner="alice", schedd=AP)
    (held,) = answer["jobs"]
    assert (held["JobId"], held["Code"], answer["count"]) == ("2.0", 13, 1) and HOSTILE in held["Reason"]
    (told_less,) = get(hub, "olga", "/api/v1/queued", state="held")["jobs"]
    assert "Reason" not in told_less and told_less["Code"] == 13
    assert get(hub, "olga", "/api/v1/queued", state="held", cause="x")["count"] == 0
    assert get(hub, "bob", "/api/v1/queued", state="held")["jobs"] == []
    assert get(hub, "adam", "/api/v1/queued", page=1)["jobs"] == []
    assert ask(hub, "adam", "/api/v1/queued", state="running")[0] == 400


def test_lists_are_searched_by_what_a_viewer_may_see(hub: Hub) -> None:
    assert listed(hub, "adam", "held", q="alert") == ["2.0"] == listed(hub, "alice", "held", q="alert fit.py")
    assert listed(hub, "olga", "held", q="alert") == []
    assert listed(hub, "adam", "idle", owner="alice", schedd=AP) == ["1.0"]
    assert ask(hub, "adam", "/jobs.json", state="idle", node="ep1")[0] == 400


def test_a_job_has_its_life_in_order_and_for_its_viewers_alone(hub: Hub) -> None:
    found = get(hub, "alice", queued("5.0") + ".json")
    assert [(step["kind"], step["words"]) for step in found["life"]] == [
        ("submit", ""), ("execute", "on slot1@ep1"), ("end", "exit code 3"),
    ]  # fmt: skip
    assert found["job"]["State"] == "ended" and found["runs"] == []
    for person, job in (("bob", "5.0"), ("alice", "3.0"), ("alice", "77.0")):
        assert ask(hub, person, queued(job) + ".json")[0] == 404
    held = get(hub, "olga", queued("2.0") + ".json")
    assert "Reason" not in held["job"] and held["life"][-1]["words"] == "code 13 (TransferInputError)"
    assert get(hub, "mona", queued("3.0") + ".json")["job"]["State"] == "transferring"


def test_what_a_hold_says_is_text_on_every_page(hub: Hub) -> None:
    for path in ("/", "/jobs?state=held", queued("2.0")):
        status, _, page = ask(hub, "alice", path)
        assert status == 200 and "alert(1)" in page, page
        assert "<script>alert" not in page and "49" not in page.partition("alert(1)")[2][:60]
    rows = ask(hub, "alice", "/jobs.csv", state="held")[2]
    assert "2.0" in rows and "\n=" not in rows


def test_forgetting_a_person_takes_what_was_told_of_his_jobs(hub: Hub) -> None:
    from condor_joblens.hub.store.client import Store, socket_of
    from condor_joblens.hub.store.forget import Forgetter

    found = Forgetter(Store(socket_of(f"{hub.folder}/kept")), [("alice", AP)]).count()
    assert found["job_states"] >= 3 and found["job_events"] >= 6  # also what the engine has not merged yet


def test_what_is_not_well_comes_first_and_is_told_to_whom_it_concerns(hub: Hub) -> None:
    rows, now = runs(4), int(time.time())
    for number, (owner, idle) in enumerate((("alice", 0), ("alice", 700), ("bob", 700), ("carol", 0))):
        name = f"{AP}#9.{number}#1700000000"
        rows["global_job_id"][number], rows["run"][number] = name, f"{name}#1"
        rows["job_id"][number], rows["owner"][number], rows["cpu_idle_seconds"][number] = f"9.{number}", owner, idle
        rows["accounting_group"][number] = "physics.muons" if owner == "bob" else ""
    rows["hang_suspected"], rows["memory_limit_bytes"] = 0, -1
    rows["start_time"], rows["update_time"], rows["period_seconds"] = now - 800, now, 600
    deliver(
        make(HubSink, URL=hub.url, TOKEN_FILE=str(hub.folder / "node1")),
        RowEncoder("node1").records(rows, RecordKind.SAMPLE),
    )
    found = get(hub, "adam", "/jobs.json")["jobs"]
    assert [(row["JobId"], row["Health"]) for row in found] == [
        ("9.1", "suspect"), ("9.2", "suspect"), ("9.0", "well"), ("9.3", "well"),
    ]  # fmt: skip
    assert listed(hub, "adam", "suspect") == ["9.1", "9.2"] and listed(hub, "alice", "suspect") == ["9.1"]
    assert {row["JobId"] for row in get(hub, "adam", "/api/v1/jobs", state="suspect")["jobs"]} == {"9.1", "9.2"}
    expected = {"alice": 1, "bob": 1, "mona": 1, "olga": 0}
    until(  # what was asked a moment ago serves on
        lambda: {who: get(hub, who, "/site.json")["mine"]["suspect"] for who in expected} == expected,
        "the suspect jobs on the page Site", 120,
    )  # fmt: skip
    until(lambda: get(hub, "adam", "/site.json")["site"]["suspect"] == 2, "all of them", 120)
    assert ">1 suspect<" in ask(hub, "alice", "/")[2] and ">1 held<" in ask(hub, "alice", "/")[2]
    assert "your groups" in ask(hub, "mona", "/")[2] and "Your jobs" not in ask(hub, "olga", "/")[2]
