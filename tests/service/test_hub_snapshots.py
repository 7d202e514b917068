"""Snapshots of live runs with a real store: they say what the tables say, to each viewer, and never less unnoticed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_server import STAFF, Hub, ask
from sinks import deliver, make, runs, until

from condor_joblens.export.records import RowEncoder
from condor_joblens.hub.store.client import Store, StoreNoTable, socket_of
from condor_joblens.hub.store.forget import Forgetter
from condor_joblens.hub.store.schema import SNAPSHOTS
from condor_joblens.hub.web import filters
from condor_joblens.hub.web.leaking import leaking
from condor_joblens.hub.web.live_snapshots import LiveSnapshots, Snapshot
from condor_joblens.hub.web.nodes import nodes
from condor_joblens.hub.web.people import Person, read_people
from condor_joblens.hub.web.reads import LIVES, SORTS, Reader
from condor_joblens.hub.web.servers import server, servers
from condor_joblens.hub.web.site_reads import site
from condor_joblens.model.servers import Scope
from condor_joblens.sinks import RecordKind
from condor_joblens.sinks.hub import HubSink

AP, SERVER = "ap.example.org", "fs7.example.org"
PEOPLE = f"""
[alice]
jobs = alice@{AP}
[mona]
role = manager
jobs = mona@{AP}
groups = physics@{AP}
[olga]
role = operator
jobs = olga@{AP}
[adam]
role = administrator
"""
RUNS, PAGE = 60, 7


@pytest.fixture(scope="module")
def hub(folder: Path, server: Any) -> Iterator[Hub]:
    made = server(Hub, folder / "snapshots")
    constants = made.folder / "program/condor_joblens/hub/web/live_snapshots.py"
    text = constants.read_text()
    assert "LEAST_ROWS = 20_000" in text
    constants.write_text(text.replace("LEAST_ROWS = 20_000", f"LEAST_ROWS = {RUNS}"))
    made.people.write_text(STAFF)
    with made as started:
        send(started, 0, 1)
        send(started, 0, 2)
        yield started


def send(hub: Hub, begin: int, sequence: int, node: str = "node1", count: int = RUNS) -> None:
    """A record of each of so many runs: all that tells them apart differs, and some are not well, or silent."""
    now, rows, numbers = int(time.time()), runs(count, sequence), range(begin, begin + count)
    for place, number in enumerate(numbers):
        name = f"{AP}#{number}.0#1700000000"
        rows["global_job_id"][place], rows["run"][place], rows["job_id"][place] = name, f"{name}#1", f"{number}.0"
        rows["owner"][place] = ("alice", "bob", "carol", "mona")[number % 4]
        rows["accounting_group"][place] = ("physics", "physics.top", "other")[number % 3]
        rows["update_time"][place] = now - (5000 if number % 10 == 9 else number % 7)
        rows["hang_suspected"][place] = number % 11 == 3
        rows["cpu_idle_seconds"][place] = 5000 if number % 13 == 4 else 0
        rows["memory_resident_bytes"][place] = (number * 7919) % 1000 << 20
        rows["cpu_recent_cores"][place] = (number * 31) % 17 / 4
        listed = rows["servers"][place]
        listed["scope"] = Scope.NONE
        if number % 5 == 0:
            listed[0]["name"], listed[0]["scope"] = SERVER, Scope.SERVER
            listed[0]["requests"], listed[0]["seconds"], listed[0]["errors"] = 100 * sequence, 5.0 * sequence, 0
    rows["start_time"], rows["memory_limit_bytes"], rows["period_seconds"] = now - 9000, -1, 600
    rows["run_number"], rows["executable"], rows["death"] = 1, "fit.py", ""
    sink = make(HubSink, URL=hub.url, TOKEN_FILE=str(hub.folder / node))
    deliver(sink, RowEncoder(node).records(rows, RecordKind.SAMPLE))


def store(hub: Hub) -> Store:
    return Store(socket_of(f"{hub.folder}/kept"))


@pytest.fixture(autouse=True)
def nothing_left(hub: Hub) -> Iterator[None]:
    yield
    for name in tables(hub):
        store(hub).change(f"DROP TABLE {name} SYNC")


def made(hub: Hub) -> tuple[LiveSnapshots, Snapshot]:
    """The newest one, made here and now."""
    snapshots = LiveSnapshots(store(hub), least_rows=1)
    snapshots.renew()
    found = snapshots._newest
    assert found is not None
    return snapshots, found


def tables(hub: Hub) -> set[str]:
    return {name for name in store(hub).tables() if name.startswith(SNAPSHOTS)}


def people() -> list[Person]:
    return list(read_people(PEOPLE))


QUESTIONS: dict[str, Callable[[Reader], Any]] = {
    "site": lambda reader: site(reader, lambda name, ask, stamp=None: ask()),
    "nodes": nodes,
    "servers": servers,
    "server": lambda reader: server(reader, SERVER),
    "leaks": leaking,
    "node": lambda reader: reader.jobs_of_node("node1", 20),
    "points": lambda reader: reader.pairs(("Cpu.RecentCores", "Memory.ResidentBytes"), "", "running", {}, 50, 5),
    "words": lambda reader: reader.jobs("bob", most=PAGE),
    **{
        f"running by {sort}": lambda reader, sort=sort: [
            reader.jobs(sort=sort, page=page, most=PAGE) for page in (1, 20)
        ]
        for sort in (*SORTS, "-memory", "-cores", "health", "-health", "Process.Live", "-Io.ReadCalls")
    },
    **{
        f"{state} by {sort}": lambda reader, state=state, sort=sort: reader.jobs(sort=sort, state=state, most=PAGE)
        for state in LIVES
        for sort in ("-updated", "-memory", "Process.Live")
    },
    **{
        f"of {name}": lambda reader, name=name, value=value: reader.jobs(most=PAGE, sort="-memory", **{name: value})
        for name, value in {
            **{"owner": "bob", "group": "physics", "vo": "atlas", "executable": "fit.py", "node": "node1"},
            **{"cluster": f"{AP}#12", "schedd": AP, "server": SERVER, "cause": "SIGABRT", "mine": "1"},
            **{"since": time.time() - 3, "until": time.time() - 3},
        }.items()
    },
    "columns": lambda reader: reader.jobs(most=PAGE, sort="-Cpu.Seconds", columns=("Cpu.Seconds", "Io.ReadCalls")),
}


@pytest.mark.parametrize("two_nodes", [False, True], ids=["each run of one node", "a run of which two nodes tell"])
def test_each_viewer_is_told_the_same_with_and_without_one(hub: Hub, two_nodes: bool) -> None:
    assert {*filters.NAMES} < {name.removeprefix("of ") for name in QUESTIONS}
    if two_nodes:
        send(hub, 5, 1, node="node2", count=3)
    _, snapshot = made(hub)
    assert snapshot.is_unique is not two_nodes
    some = 0
    for person in people():
        for name, question in QUESTIONS.items():
            plain, of_snapshot = Reader(store(hub), person), Reader(store(hub), person, snapshot=snapshot)
            plain.now, plain.hour, plain.oldest = of_snapshot.now, of_snapshot.hour, of_snapshot.oldest
            expected = question(plain)
            assert question(of_snapshot) == expected, (person.name, name)
            some += bool(expected)
    assert some > 100


def test_numbers_are_those_of_its_moment(hub: Hub) -> None:
    snapshots, snapshot = made(hub)
    reader = Reader(store(hub), people()[3], snapshot=snapshot)
    before = reader.jobs()
    send(hub, RUNS, 1, count=2)
    assert reader.jobs() == before and before["time"] == snapshot.time
    assert Reader(store(hub), people()[3]).jobs()["count"] == before["count"] + 2
    snapshots.renew()
    assert tables(hub) == {snapshots._newest.table}, "the former one is gone"  # type: ignore[union-attr]
    snapshots._drop(snapshots._newest)
    assert tables(hub) == set()


@pytest.mark.parametrize("how", ["TRUNCATE TABLE", "DROP TABLE"])
def test_one_that_is_gone_is_never_taken_for_a_site_without_jobs(hub: Hub, how: str) -> None:
    """A store that begins anew has its tables of memory still, without rows."""
    snapshots, snapshot = made(hub)
    store(hub).change(f"{how} {snapshot.table}")
    reader = Reader(store(hub), people()[3], snapshot=snapshot)
    answered = set()
    for name, question in QUESTIONS.items():
        try:
            question(reader)
            answered.add(name)
        except StoreNoTable:
            pass
    # jobs that are over are in none, nor are all numbers
    assert answered == {"of cause", *(name for name in QUESTIONS if "Io.ReadCalls" in name)}
    snapshots._forget(snapshot)
    assert snapshots._newest is None


def test_what_another_process_has_left_is_dropped(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    left = f"{SNAPSHOTS}{time.time() - 500:.0f}_0"
    store(hub).change(f"CREATE TABLE {left} (x UInt8) ENGINE = Memory")
    _, snapshot = made(hub)
    assert tables(hub) == {left, snapshot.table}, "it may be in use"
    monkeypatch.setattr("condor_joblens.hub.web.live_snapshots._LEFT_SECONDS", 400)
    _, newer = made(hub)
    assert tables(hub) == {snapshot.table, newer.table}


def test_of_few_runs_there_is_none(hub: Hub) -> None:
    snapshots = LiveSnapshots(store(hub))
    snapshots.renew()
    assert snapshots.newest() is None and tables(hub) == set()


def test_who_is_forgotten_is_in_none(hub: Hub) -> None:
    _, snapshot = made(hub)
    Forgetter(store(hub), [("carol", AP)]).forget()
    assert tables(hub) == set()
    with pytest.raises(StoreNoTable):
        Reader(store(hub), people()[3], snapshot=snapshot).jobs()


def test_pages_say_of_which_moment_they_are_and_outlive_the_store(hub: Hub) -> None:
    def jobs(sort: str = "-memory") -> dict[str, Any]:
        status, answer, text = ask(hub, "adam", "/jobs.json", sort=sort)
        return dict(answer) if status == 200 else {"error": text}

    until(lambda: "snapshot_time" in jobs(), "a snapshot")
    by_tables = Reader(store(hub), people()[3]).jobs(sort="-memory")
    found = jobs()
    assert [row["Run"] for row in found["jobs"]] == [row["Run"] for row in by_tables["jobs"]]
    assert found["time"] == found["snapshot_time"] <= time.time() and found["count"] == by_tables["count"]
    for path in ("/", "/jobs", "/nodes", "/node/node1", "/servers", f"/servers/{SERVER}", "/leaks", "/scatter"):
        assert "Live runs are those of" in ask(hub, "adam", path)[2], path
    assert "snapshot_time" not in ask(hub, "adam", "/api/v1/jobs")[2]
    assert hub.kill_one("store")
    until(lambda: "error" not in jobs("memory"), "the store")
    assert jobs("memory")["count"] == by_tables["count"], "a table of memory has no rows then"
