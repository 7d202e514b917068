"""A run's level goes up and down: what is published of it loses and doubles nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ground import Ground, Slot, on_ground, until
from level_node import Node

from condor_joblens.common.errors import JobLensError
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import METRICS, text
from condor_joblens.tracer import loader
from condor_joblens.tracer.bpf import Tracer
from condor_joblens.tracer.on_demand import LoadingThread


@pytest.fixture
def node(slot: Slot, tmp_path: Path) -> Node:
    return Node([slot], tmp_path)


@pytest.mark.guest
def test_what_is_done_at_io_is_counted_once_and_what_is_done_at_basic_is_not(
    slot: Slot, node: Node, data: Path
) -> None:
    done = 0
    for number in range(1, 5):
        node.level(0, Level.IO)
        slot.run("rw", data, 100 * number, 10)
        done += 100 * number
        if number % 2:
            node.take()
        node.level(0, Level.BASIC)
        slot.run("rw", data, 50, 10)
        node.take()
        assert node.files(0) == {
            "read_calls": done, "write_calls": done, "read_bytes": 10 * done, "write_bytes": 10 * done,
        }  # fmt: skip


def test_below_io_its_numbers_are_absent_and_after_it_they_stay(slot: Slot, node: Node, data: Path) -> None:
    node.level(0, Level.BASIC)
    slot.run("rw", data, 10, 10)
    node.take()
    groups = ("Syscall", "Fs", "Errors", "Wait")
    columns = [metric.column for metric in METRICS if metric.level is Level.IO and metric.group in groups]
    assert all(not node.runs.rows[column][0] >= 0 for column in columns)
    node.level(0, Level.IO)
    assert all(node.runs.rows[column][0] == 0 for column in columns)
    slot.run("rw", data, 10, 10)
    node.level(0, Level.BASIC)
    before = node.runs.rows[columns][0]
    slot.run("rw", data, 10, 10)
    node.take()
    assert node.runs.rows[columns][0] == before
    assert node.files(0)["write_calls"] == 10


def test_the_closest_levels_count_what_io_counts_and_say_so(slot: Slot, node: Node, data: Path) -> None:
    node.level(0, Level.TRACE)
    slot.run("rw", data, 10, 10)
    node.take()
    assert node.files(0)["write_calls"] == 10
    assert "counts what io counts" in node.node.handles[0].notes["level"]
    node.level(0, Level.IO)
    slot.run("rw", data, 10, 10)
    node.take()
    assert node.files(0)["write_calls"] == 20
    assert node.node.handles[0].notes["level"] == ""


def test_a_job_for_which_there_is_no_room_stays_at_basic_and_says_so(name: str, tmp_path: Path) -> None:
    with on_ground(name) as ground:
        ground.tracer.close()
        ground.tracer = Tracer(8, ground.pins, max_jobs={"io": 1})
        ground.watch(ground.base)
        slots = [ground.slot("condor_slot1"), ground.slot("condor_slot2")]
        node = Node(slots, tmp_path)
        node.level(0, Level.IO)
        node.level(1, Level.IO)
        assert node.runs.rows["level"].tolist()[:2] == [b"io", b"basic"]
        assert "JOBLENS_MAX_JOBS_IO" in node.node.handles[1].notes["io"]
        node.level(0, Level.BASIC)
        node.level(1, Level.IO)
        assert text(node.runs.rows["level"][1]) == "io" and node.node.handles[1].notes["io"] == ""


@pytest.mark.guest
def test_the_jobs_together_did_what_each_of_them_did(ground: Ground, tmp_path: Path, data: Path) -> None:
    slots = [ground.slot(f"condor_slot{number}") for number in range(4)]
    node = Node(slots, tmp_path)
    for run in range(4):
        node.level(run, Level.IO)
    jobs = [slot.start("rw", f"{data}.{number}", 1000 * number, 10) for number, slot in enumerate(slots, 1)]
    for job in jobs:
        job.wait()
    node.take()
    assert [node.files(run)["write_calls"] for run in range(4)] == [1000, 2000, 3000, 4000]
    assert int(np.sum(node.runs.rows["syscall_write_bytes"][:4])) >= 100_000


def test_the_programs_stay_for_a_while_after_their_last_job(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    tracer = node.node.tracer
    monkeypatch.setattr(tracer.sensors["io"], "linger_seconds", 3600.0)
    before = set(tracer.attached())
    node.level(0, Level.IO)
    closely = set(tracer.attached())
    node.level(0, Level.BASIC)
    tracer.settle()
    assert set(tracer.attached()) == closely > before
    monkeypatch.setattr(tracer.sensors["io"], "linger_seconds", 0.0)
    tracer.settle()
    assert set(tracer.attached()) == before


class Aside:
    """Level io is loaded by a thread, which waits for a word of ours between two parts of it."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        self.goes_on, self._done = threading.Event(), threading.Event()
        load_part = loader._load_part

        def wait(*arguments: Any) -> None:
            assert self.goes_on.wait(60)
            load_part(*arguments)

        monkeypatch.setattr(loader, "_load_part", wait)
        node.node.tracer.load_aside(self._done.set)

    def is_done(self) -> None:
        """Lets it load, and waits for that."""
        self.goes_on.set()
        assert self._done.wait(60)


@pytest.fixture
def own(name: str, tmp_path: Path) -> Iterator[tuple[Node, Slot]]:
    """A tracer of its own, with a run."""
    with on_ground(name) as ground:
        slot = ground.slot()
        yield Node([slot], tmp_path), slot


@pytest.mark.guest
def test_while_io_is_loaded_a_job_is_counted_as_before_and_then_gets_its_level(
    own: tuple[Node, Slot], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, slot = own
    aside = Aside(node, monkeypatch)
    node.level(0, Level.IO)
    assert node.runs.rows["level"][0] == b"basic"
    assert node.node.handles[0].notes["io"].startswith("level io is coming: ")
    slot.run("rw", data, 50, 10)
    node.take()
    assert node.runs.rows["process_exited"][0] == 1
    aside.is_done()
    node.level(0, Level.IO)
    assert node.runs.rows["level"][0] == b"io" and node.node.handles[0].notes["io"] == ""
    slot.run("rw", data, 100, 10)
    node.take()
    assert node.files(0)["write_calls"] == 100


def test_what_is_loaded_for_a_job_that_needs_it_no_more_goes_again(
    own: tuple[Node, Slot], monkeypatch: pytest.MonkeyPatch
) -> None:
    node, slot = own
    tracer = slot.tracer
    before = tracer.attached()
    monkeypatch.setattr(tracer.sensors["io"], "linger_seconds", 3600.0)
    aside = Aside(node, monkeypatch)
    node.level(0, Level.IO)
    node.level(0, Level.BASIC)
    assert node.node.handles[0].notes["io"] == ""
    aside.is_done()
    node.take()
    assert tracer.sensors["io"].sensor.loaded is not None
    assert tracer.attached() == before, "nobody pays for it"
    monkeypatch.setattr(tracer.sensors["io"], "linger_seconds", 0.0)
    node.take()
    assert tracer.sensors["io"].sensor.loaded is None
    # and for the next one it is loaded anew
    node.level(0, Level.IO)
    until(lambda: tracer.sensors["io"].start(slot.index))


def test_a_tracer_that_ends_while_io_is_loaded_leaves_nothing_in_the_kernel(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with on_ground(name) as ground:
        node = Node([ground.slot()], tmp_path)
        tracer, begun, ends, loaded = ground.tracer, threading.Event(), threading.Event(), []
        load_part = loader._load_part

        def load_until_the_end(*arguments: Any) -> None:
            load_part(*arguments)
            loaded.append(arguments[1].name)
            begun.set()
            assert ends.wait(60)

        give_up = LoadingThread.give_up

        def end(loading: LoadingThread) -> None:
            loading._is_wanted = False
            ends.set()
            give_up(loading)

        monkeypatch.setattr(LoadingThread, "give_up", end)
        monkeypatch.setattr(loader, "_load_part", load_until_the_end)
        tracer.load_aside(lambda: None)
        node.level(0, Level.IO)
        assert begun.wait(60)
        tracer.close()
        assert loaded == ["context switches"], "the parts after it are not begun"
        assert not ground.pins.exists()
        ground.tracer = Tracer(8, ground.pins)


@pytest.mark.parametrize("step", [(loader, "_load_part"), (loader.Loaded, "_attach_program")])
def test_what_the_kernel_refuses_is_said_and_is_the_reason(
    name: str, step: tuple[Any, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with on_ground(name) as ground:
        basic = ground.tracer.attached()

        def refuse(*_: Any) -> None:
            raise JobLensError("not today")

        monkeypatch.setattr(*step, refuse)
        node = Node([ground.slot("condor_slot1"), ground.slot("condor_slot2")], tmp_path)
        done = threading.Event()
        ground.tracer.load_aside(done.set)
        node.level(0, Level.IO)
        assert done.wait(60)
        for run in (0, 1):
            node.level(run, Level.IO)
            assert node.runs.rows["level"][run] == b"basic"
            assert "the kernel refuses" in node.node.handles[run].notes["io"]
        assert "level io can't count context switches: not today" in node.said
        assert ground.tracer.attached() == basic


@pytest.mark.parametrize("part", ["UDP", "io_uring"])
def test_a_part_that_is_missing_is_not_the_reason_where_another_is(
    name: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_part = loader._load_part

    def refuse(loaded: Any, wanted: loader.Part, *rest: Any) -> None:
        if wanted.name == part:
            raise JobLensError("no")
        load_part(loaded, wanted, *rest)

    monkeypatch.setattr(loader, "_load_part", refuse)
    with on_ground(name, max_jobs={"io": 1}) as ground:
        node = Node([ground.slot("condor_slot1"), ground.slot("condor_slot2")], tmp_path)
        node.level(0, Level.IO)
        node.level(1, Level.IO)
        assert node.said[0] == f"level io can't count {part}: no"
        assert "JOBLENS_MAX_JOBS_IO = 1" in node.node.handles[1].notes["io"]
        node.runs.state["kernel_slot"][1] = -1
        node.level(1, Level.IO)
        assert "no room for this job" in node.node.handles[1].notes["io"]
