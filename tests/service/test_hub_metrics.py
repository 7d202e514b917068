"""Any metric as a column of jobs and as a chart of one, and two of them against each other."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_server import ALICE, STAFF, Hub, ask
from sinks import deliver, make, runs

from condor_joblens.export.records import RowEncoder
from condor_joblens.hub.web.scatter import MOST_POINTS
from condor_joblens.sinks import RecordKind
from condor_joblens.sinks.hub import HubSink

FAULTS, WAITED = "Memory.MajorFaults", "Cpu.IdleSeconds"
MANY = MOST_POINTS + 500
"""Runs of olga's cluster."""


@pytest.fixture(scope="module")
def hub(folder: Path, server: Any) -> Iterator[Hub]:
    started = server(Hub, folder / "metrics")
    started.people.write_text(ALICE + STAFF.replace("login = remote:olga", "login = remote:olga\njobs = olga@other"))
    with started:
        send(started, "ap.example.org", "alice", 30, [1, 2, 3])
        send(started, "other", "olga", MANY, [1])
        yield started


def send(hub: Hub, schedd: str, owner: str, count: int, sequences: list[int]) -> None:
    """Runs with a hundred major faults each and some more, of which the last one has a hundred thousand."""
    encoder, sink = RowEncoder("node1"), make(HubSink, URL=hub.url, TOKEN_FILE=str(hub.folder / "node1"))
    now = int(time.time())
    for sequence in sequences:
        rows = runs(count, sequence)
        for number in range(count):
            name = f"{schedd}#7.{number}#1700000000"
            rows["global_job_id"][number], rows["run"][number] = name, f"{name}#1"
            rows["job_id"][number] = f"7.{number}"
        rows["owner"], rows["start_time"], rows["period_seconds"] = owner, now - 600, 600
        rows["update_time"] = now - 10 + sequence
        rows["memory_major_faults"] = [*range(100, 99 + count), 100_000]
        rows["cpu_idle_seconds"] = 5.0
        deliver(sink, encoder.records(rows, RecordKind.SAMPLE))


def test_jobs_have_any_metric_as_a_column_and_are_sorted_by_it(hub: Hub) -> None:
    status, answer, text = ask(hub, "alice", "/jobs.json", column=FAULTS, sort=f"-{FAULTS}")
    assert status == 200, text
    assert [row[FAULTS] for row in answer["jobs"]] == [100_000, *range(128, 99, -1)] and answer["count"] == 30
    page = ask(hub, "alice", "/jobs", column=FAULTS, sort=f"-{FAULTS}")[2]
    assert re.search(r'<th [^>]*aria-sort="descending"><a [^>]*>Memory.MajorFaults</a>', page) and "100,000" in page
    assert f"column={FAULTS}" in page, "the address of another order keeps it"
    assert ask(hub, "alice", "/jobs.csv", column=FAULTS)[2].splitlines()[0].count(FAULTS) == 1
    status, answer, _ = ask(hub, "alice", "/jobs.json", column="Memory.MajorFaults) --")
    assert status == 400 and "no metric is called" in answer["error"]
    assert ask(hub, "alice", "/jobs", column="x")[0] == 400
    assert ask(hub, "alice", "/jobs", column=FAULTS, state="held")[0] == 200, "a queue has no metrics, and no fault"


def test_two_metrics_are_drawn_of_the_jobs_that_the_viewer_may_see(hub: Hub) -> None:
    words = {"x": WAITED, "y": FAULTS}
    answer = ask(hub, "alice", "/scatter.json", **words)[1]
    assert answer["count"] == 30 and sorted(row["y"] for row in answer["points"]) == [*range(100, 129), 100_000]
    assert answer["far"] == ["ap.example.org#7.29#1700000000#1"] and answer["is_log"] == {"x": False, "y": True}
    page = ask(hub, "alice", "/scatter", **words)[2]
    assert page.count("h0") == 29 and '<a href="/job/ap.example.org%237.29%231700000000%231">7.29</a>' in page
    table = ask(hub, "alice", "/scatter.csv", **words)[2].splitlines()
    assert table[0] == f"JobId,Run,{WAITED},{FAULTS},Far" and len(table) == 31
    answer = ask(hub, "alice", "/scatter.json", q="7.3", **words)[1]
    assert [row["JobId"] for row in answer["points"]] == ["7.3"] and answer["far"] == []
    assert ask(hub, "alice", "/scatter.json", x="Owner")[0] == 400
    assert ask(hub, "alice", "/scatter.json", state="held")[0] == 400
    assert "Of no such job" in ask(hub, "alice", "/scatter", q="nothing")[2]


def test_of_many_jobs_some_are_drawn_always_the_same_and_what_is_far(hub: Hub) -> None:
    first, second = (ask(hub, person, "/scatter.json", x=WAITED, y=FAULTS)[1] for person in ("adam", "olga"))
    assert first["count"] == MANY + 30 and first["points"] == second["points"]
    assert MOST_POINTS <= len(first["points"]) < MOST_POINTS + 80
    assert f"other#7.{MANY - 1}#1700000000#1" in first["far"]
    assert f" of {MANY + 30} jobs, chosen at random" in ask(hub, "adam", "/scatter", x=WAITED, y=FAULTS)[2]
    assert {row["Run"].partition("#")[0] for row in ask(hub, "olga", "/scatter.json", mine=1)[1]["points"]} == {"other"}


def test_a_job_has_any_metric_over_time_with_its_siblings(hub: Hub) -> None:
    path = "/job/ap.example.org%237.3%231700000000%231"
    answer = ask(hub, "alice", f"{path}.json", metric=FAULTS)[1]
    assert answer["series"][FAULTS] == [103, 103, 103]
    band = answer["band"][FAULTS]
    assert all(100 < low < 110 < high for low, high in zip(band["low"], band["high"]))
    assert FAULTS not in ask(hub, "alice", f"{path}.json")[1]["series"]
    page = ask(hub, "alice", path, metric=FAULTS)[2]
    assert f".json?metric={FAULTS}" in page and "without the chart of" in page
    assert ask(hub, "alice", f"{path}.json", metric="Owner")[0] == 400
