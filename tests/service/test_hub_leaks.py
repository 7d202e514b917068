"""Jobs whose memory leaks, with a real store: who sees which, and what a reading is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_server import ALICE, STAFF, Hub, ask
from sinks import deliver_all, make, runs

from condor_joblens.export.records import RowEncoder
from condor_joblens.sinks import Record, RecordKind
from condor_joblens.sinks.hub import HubSink

MIB = 1 << 20
MEMORY = {  # of a job, by the share of four hours that is over: MiB
    "1.0": ("alice", lambda part: 1000 + 800 * part),
    "1.1": ("alice", lambda part: 1800),
    "1.2": ("alice", lambda part: 1000 if part < 0.5 else 1800),
    "2.0": ("bob", lambda part: 1000 + 400 * part),
}
PERIOD = 90


@pytest.fixture(scope="module")
def hub(folder: Path, server: Any) -> Iterator[Hub]:
    started = server(Hub, folder / "leaks")
    started.people.write_text(ALICE + STAFF)
    with started:
        sink = make(HubSink, URL=started.url, TOKEN_FILE=str(started.folder / "node1"))
        now = int(time.time())
        for _ in range(2):  # what comes twice is read once
            send(sink, now)
        yield started


def send(sink: HubSink, now: int) -> None:
    """Samples of four hours, and of one hour of 3.0, which grows too."""
    encoder, steps = RowEncoder("node1"), 4 * 3600 // PERIOD
    records: list[Record] = []
    for step in range(steps + 1):
        jobs = [*MEMORY, *(["3.0"] if step > 0.75 * steps else [])]
        rows = runs(len(jobs), step + 1)
        for number, job in enumerate(jobs):
            name = f"ap.example.org#{job}#1700000000"
            owner, amount = MEMORY.get(job, MEMORY["1.0"])
            rows["global_job_id"][number], rows["run"][number], rows["job_id"][number] = name, f"{name}#1", job
            rows["owner"][number] = owner
            rows["memory_cgroup_anon_bytes"][number] = amount(step / steps) * MIB
            rows["start_time"][number] = now - (3600 if job == "3.0" else 4 * 3600)
        rows["memory_cgroup_kernel_bytes"], rows["memory_limit_bytes"] = 0, 2200 * MIB
        rows["executable"], rows["period_seconds"] = "fit.py", PERIOD
        rows["update_time"] = now - 4 * 3600 + PERIOD * step
        records += encoder.records(rows, RecordKind.SAMPLE)
    deliver_all(sink, records)


def test_leaks_are_told_to_those_who_may_know(hub: Hub) -> None:
    """With the hours to the limit; no step, no plateau, nothing that has run for too short a time."""
    for person, jobs in (("alice", ["1.0"]), ("olga", ["1.0", "2.0"]), ("adam", ["1.0", "2.0"])):
        status, found, _ = ask(hub, person, "/leaks.json")
        assert status == 200
        assert ([job["JobId"] for job in found["jobs"]], found["count"], found["is_cut"]) == (jobs, len(jobs), False)
        first = found["jobs"][0]
        assert first["bytes_per_hour"] == pytest.approx(200 * MIB, rel=0.02)
        assert first["hours"] == pytest.approx(2.0, rel=0.02)
        assert first["share"] == pytest.approx(200 / 1400, rel=0.05)
        assert ("Executable" in first) == (person != "olga") and first["Owner"] == "alice"
        told = ask(hub, person, "/api/v1/leaks", limit=1)[1]
        assert (told["count"], told["jobs"][0]["JobId"], told["jobs"][0]["hours"]) == (len(jobs), "1.0", first["hours"])
        assert (told["jobs"][0]["Executable"] is None) == (person == "olga") and len(told["jobs"]) == 1
        page = ask(hub, person, "/leaks")[2]
        assert "2.0 h" in page and "14 %" in page and ("fit.py" in page) == (person != "olga")
        assert len(ask(hub, person, "/leaks.csv")[2].splitlines()) == 1 + len(jobs)
    assert ask(hub, "", "/leaks")[0] == 401


def test_a_run_has_one_reading_in_each_time(hub: Hub) -> None:
    rows = hub.ask(
        "SELECT Run, count() AS n, uniqExact(Place) AS places FROM memory_readings FINAL GROUP BY Run ORDER BY Run"
    )
    assert len(rows) == 5 and all(row["n"] == row["places"] for row in rows)
    assert all(39 <= row["n"] <= 41 for row in rows[:4]), rows
