"""The load of file servers with a real store: of now, not of runs' whole lives; and who reads which name."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hub_server import ALICE, STAFF, Hub, ask
from sinks import deliver, make, runs

from condor_joblens.export.records import RowEncoder
from condor_joblens.hub.store.client import Store, socket_of
from condor_joblens.hub.store.schema import SERVER_READINGS, SERVER_SECONDS
from condor_joblens.model import classes
from condor_joblens.model.servers import Scope
from condor_joblens.sinks import RecordKind
from condor_joblens.sinks.hub import HubSink

CVMFS, NFS = "/cvmfs/atlas.example.org", "fs7.example.org"
QUOTED = 'fs"8'
"""Its name has an escape in the text of a list."""

DAYS_AGO = 2 * 86400
SENT = (  # job, owner, server, started ago, age, requests, seconds of waiting, type
    ("1.0", "alice", CVMFS, DAYS_AGO, 600, 1_000_000, 9000.0, RecordKind.SAMPLE),
    ("1.0", "alice", CVMFS, DAYS_AGO, 60, 1_000_600, 9003.0, RecordKind.SAMPLE),
    ("1.0", "alice", CVMFS, DAYS_AGO, 0, 1_001_800, 9009.0, RecordKind.SAMPLE),
    ("2.0", "bob", CVMFS, 100, 0, 300, 30.0, RecordKind.SAMPLE),
    ("3.0", "bob", NFS, DAYS_AGO, 0, 50_000, 5.0, RecordKind.SAMPLE),
    ("4.0", "alice", CVMFS, 600, 30, 500, 5.0, RecordKind.JOB),
    ("5.0", "carol", QUOTED, DAYS_AGO, 0, 10, 0.5, RecordKind.SAMPLE),
)


@pytest.fixture(scope="module")
def hub(folder: Path, server: Any) -> Iterator[Hub]:
    started = server(Hub, folder / "servers")
    started.people.write_text(ALICE + STAFF)
    with started:
        send(started)
        yield started


def send(hub: Hub) -> None:
    """All of it twice: what comes again changes no load, nor does what the store merges when it likes.

    Newest numbers are of the end of a time of which one reading is kept, and the ones before of the same time.
    """
    now, places = SERVER_SECONDS * (int(time.time()) // SERVER_SECONDS) - 1, list(classes.SERVERS)
    sink = make(HubSink, URL=hub.url, TOKEN_FILE=str(hub.folder / "node1"))
    for place, (job, owner, name, began, age, requests, seconds, kind) in 2 * list(enumerate(SENT)):
        rows, run = runs(1, place + 1), f"ap.example.org#{job}#1700000000"
        rows["global_job_id"], rows["run"], rows["job_id"], rows["owner"] = run, f"{run}#1", job, owner
        rows["start_time"], rows["update_time"], rows["period_seconds"] = now - began, now - age, 3600
        rows["death"] = "SIGABRT in reco" if kind is RecordKind.JOB else ""
        listed = rows["servers"][0]
        listed["scope"] = Scope.NONE
        listed[0]["name"], listed[0]["scope"] = name, Scope.SERVER
        listed[0]["class"] = places.index("Cvmfs" if name == CVMFS else "Nfs")
        listed[0]["requests"], listed[0]["seconds"], listed[0]["errors"] = requests, seconds, 0
        listed[0]["sent_bytes"], listed[0]["received_bytes"] = 100 * requests, 900 * requests
        deliver(sink, RowEncoder("node1").records(rows, kind))
    Store(socket_of(f"{hub.folder}/kept")).change(f"OPTIMIZE TABLE {SERVER_READINGS.name} FINAL")


@pytest.mark.parametrize("path", ["/servers.json", "/site.json", "/api/v1/servers"])
def test_load_is_that_of_now_and_of_servers_that_one_may_know(hub: Hub, path: str) -> None:
    found = {row["name"]: row for row in ask(hub, "adam", path)[1]["servers"]}
    assert next(iter(found)) == CVMFS and set(found) == {CVMFS, NFS, QUOTED}
    both, unknown = found[CVMFS], found[NFS]
    assert (both["class"], both["runs"], both["owners"], both["unknown"]) == ("Cvmfs", 2, 2, 0)
    assert both["requests_per_second"] == pytest.approx(1200 / 60 + 300 / 100)
    assert both["bytes_per_second"] == pytest.approx(1000 * both["requests_per_second"])
    assert both["waiting"] == pytest.approx(6 / 60 + 30 / 100)
    assert both["wait_seconds"] == pytest.approx(36 / 1500)
    assert (unknown["runs"], unknown["unknown"], unknown["requests_per_second"]) == (1, 1, None), "one reading alone"
    (hers,) = ask(hub, "alice", path)[1]["servers"]
    assert (hers["name"], hers["runs"], hers["requests_per_second"]) == (CVMFS, 1, pytest.approx(20))
    assert ask(hub, "olga", path)[1]["servers"] == [], "an operator reads names of his own jobs' servers alone"


def test_a_servers_page_has_its_day_jobs_users_and_failures(hub: Hub) -> None:
    path = f"/servers/{quote(CVMFS, safe='')}"
    for person, jobs, asked in (("adam", ["1.0", "2.0"], 600 + 1200 + 300 + 500), ("alice", ["1.0"], 1800 + 500)):
        found = ask(hub, person, f"{path}.json")[1]
        assert [row["job"] for row in found["jobs"]] == jobs
        assert [row["owner"] for row in found["users"]] == ["alice", "bob"][: len(jobs)]
        lasted = [min(1800.0, found["time"] - step["begin"]) for step in found["steps"]]
        in_all = sum(step["requests_per_second"] * seconds for step, seconds in zip(found["steps"], lasted))
        assert in_all == pytest.approx(asked, rel=1e-3) and len(found["steps"]) == 48
        assert (found["ended"], found["failed"]) == (1, 1)
        assert [(one["cause"], one["count"]) for one in found["causes"]] == [("SIGABRT in reco", 1)]
        status, _, page = ask(hub, person, path)
        assert status == 200 and "Requests a second" in page and ("bob" in page) == (person == "adam")
    found = ask(hub, "adam", f"/servers/{quote(QUOTED, safe='')}.json")[1]
    assert [(row["owner"], row["runs"]) for row in found["users"]] == [("carol", 1)]
    assert [(row["job"], row["owner"], row["node"]) for row in found["jobs"]] == [("5.0", "carol", "node1")]
    assert [(row["class"], row["owners"], row["unknown"]) for row in found["now"]] == [("Nfs", 1, 1)]
    for person, name in (("olga", CVMFS), ("alice", NFS), ("adam", "nowhere")):
        assert ask(hub, person, f"/servers/{quote(name, safe='')}.json")[0] == 404
        assert ask(hub, person, f"/servers/{quote(name, safe='')}")[0] == 404
