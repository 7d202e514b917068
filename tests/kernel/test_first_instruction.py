"""A job that asks for level io is counted from its first instruction, and what nobody confirms is never published."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from ground import Cgroup, Ground, Slot, forked, on_ground, until
from level_node import Node

from condor_joblens.agent.levels import provisional_io
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import METRICS

ASKS = b'Cmd = "/bin/true"\nJobLensLevel = "io"\n'
IO_COLUMNS = [metric.column for metric in METRICS if metric.level is Level.IO]
COUNTED = {"read_calls": 100, "write_calls": 100, "read_bytes": 1000, "write_bytes": 1000}


@pytest.fixture
def preloaded(name: str) -> Iterator[Ground]:
    """A tracer that keeps the programs of level io loaded."""
    with on_ground(name, keep_loaded=("io",), max_jobs={"io": 2}) as ground:
        load(ground)
        yield ground


def load(ground: Ground) -> None:
    """As joblensd at its start: a thread loads them."""
    done = threading.Event()
    ground.tracer.load_aside(done.set)
    assert done.wait(60)
    ground.tracer.settle()


@pytest.fixture
def own(preloaded: Ground, tmp_path: Path) -> tuple[Node, Slot]:
    """A run whose slot has just been made."""
    slot = preloaded.slot()
    return Node([slot], tmp_path), slot


def is_unpublished(node: Node, run: int = 0) -> bool:
    """Whether no number of level io is in the run's row."""
    row = node.runs.rows[run]
    return row["level"] == b"basic" and all(not row[column] >= 0 for column in IO_COLUMNS)


@pytest.mark.guest
def test_its_first_call_is_counted_and_published_with_the_decision(own: tuple[Node, Slot], data: Path) -> None:
    node, slot = own
    provisional_io.begin(node.levels, 0, ASKS)
    slot.run("rw", data, 50, 10)  # as the wrapper: not the job's
    node.job_starts(0)
    slot.run("rw", data, 100, 10)
    slot.run("absent", data, 7)
    node.take()
    assert is_unpublished(node)
    node.level(0, Level.IO)
    provisional_io.settle(node.levels, 0)
    assert node.files(0) == COUNTED, "at once, not with the next round"
    assert node.node.handles[0].notes["late_io"] == ""
    slot.run("rw", data, 10, 10)
    node.take()
    assert node.files(0)["read_calls"] == 110


@pytest.mark.parametrize("decided_before", [False, True], ids=["provisional", "decided"])
def test_a_job_that_begins_while_counters_are_set_to_zero_is_said_to_lack_its_first_calls(
    own: tuple[Node, Slot], data: Path, decided_before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its wrapper had called, and then waited no longer."""
    node, slot = own
    provisional_io.begin(node.levels, 0, ASKS)
    if decided_before:
        node.level(0, Level.IO)
    sensor = slot.tracer.sensors["io"]
    stop = sensor.stop
    monkeypatch.setattr(sensor, "stop", lambda index: (slot.run("rw", data, 30, 10), stop(index))[1])
    node.job_starts(0)
    slot.run("rw", data, 100, 10)
    node.level(0, Level.IO)
    node.take()
    assert node.files(0) == COUNTED
    assert "level io began" in node.node.handles[0].notes["late_io"]


@pytest.mark.guest
def test_what_the_decision_refuses_is_forgotten_also_if_the_level_comes_later(
    own: tuple[Node, Slot], data: Path
) -> None:
    node, slot = own
    basic = slot.tracer.attached()
    assert "jl_switch" not in basic, "nobody is at io, and nobody pays for it"
    provisional_io.begin(node.levels, 0, ASKS)
    assert "jl_switch" in slot.tracer.attached()
    node.job_starts(0)
    slot.run("rw", data, 100, 10)
    provisional_io.settle(node.levels, 0)
    slot.run("rw", data, 100, 10)
    node.take()
    assert is_unpublished(node)
    assert slot.tracer.attached() == basic, "it does not linger for a job that did not get it"
    assert slot.tracer.sensors["io"].sensor.loaded is not None  # type: ignore[attr-defined]
    node.level(0, Level.IO)
    slot.run("rw", data, 10, 10)
    node.take()
    assert node.files(0)["read_calls"] == 10
    assert "level io began" in node.node.handles[0].notes["late_io"]


def test_without_its_wrapper_the_note_says_what_was_missed(own: tuple[Node, Slot], data: Path) -> None:
    node, slot = own
    slot.run("rw", data, 50, 10)  # the job itself: it has begun before joblensd heard of its slot
    provisional_io.begin(node.levels, 0, ASKS)
    slot.run("rw", data, 100, 10)
    node.level(0, Level.IO)
    assert node.files(0) == COUNTED
    assert "level io began" in node.node.handles[0].notes["late_io"]


def test_a_job_that_does_not_ask_or_may_not_is_not_counted(own: tuple[Node, Slot]) -> None:
    node, slot = own
    for ad, cap in ((b"", Level.IO), (b'JobLensLevel = "basic"\n', Level.IO), (ASKS, Level.BASIC)):
        node.node.config = type(node.node.config)(max_level=cap)
        provisional_io.begin(node.levels, 0, ad)
        assert not slot.tracer.counters["io_key"][slot.index] and "jl_switch" not in slot.tracer.attached()


def test_who_is_decided_has_precedence_over_who_is_not(preloaded: Ground, tmp_path: Path, data: Path) -> None:
    slots = [preloaded.slot(f"condor_slot{number}") for number in range(3)]
    node = Node(slots, tmp_path)
    for run in (0, 1, 2):
        provisional_io.begin(node.levels, run, ASKS)
    assert node.runs.state["io_provisional"][:3].tolist() == [True, True, False], "JOBLENS_MAX_JOBS_IO is 2"
    slots[0].run("rw", data, 100, 10)
    node.level(2, Level.IO)
    assert node.runs.rows["level"][2] == b"io"
    assert node.runs.state["io_provisional"][:3].tolist() == [True, False, False]
    node.level(0, Level.IO)
    assert node.files(0) == COUNTED


def test_a_closer_level_by_hand_publishes_it_too(own: tuple[Node, Slot], data: Path) -> None:
    node, slot = own
    provisional_io.begin(node.levels, 0, ASKS)
    node.job_starts(0)
    slot.run("rw", data, 100, 10)
    node.level(0, Level.TRACE)
    assert node.files(0) == COUNTED
    node.level(0, Level.BASIC)
    slot.run("rw", data, 100, 10)
    node.take()
    assert node.files(0) == COUNTED


@pytest.mark.guest
@pytest.mark.parametrize("confirmed", [True, False])
def test_a_joblensd_that_is_killed_before_the_decision_publishes_nothing_and_loses_nothing(
    name: str, tmp_path: Path, data: Path, confirmed: bool
) -> None:
    def live() -> None:
        ground = Ground(name, keep_loaded=("io",))
        node = Node([ground.slot()], tmp_path)
        provisional_io.begin(node.levels, 0, ASKS)
        node.job_starts(0)
        os.kill(os.getpid(), signal.SIGKILL)

    assert os.waitpid(forked(live), 0)[1] == signal.SIGKILL
    cgroup = Cgroup(Ground.place(name) / "condor_slot1")
    cgroup.run("rw", data, 100, 10)
    with on_ground(name, keep_loaded=("io",)) as ground:
        assert ground.tracer.adopted
        ground.tracer.load_aside(lambda: None)  # what is adopted stays
        slot = Slot(cgroup.path, ground.tracer)
        node = Node([slot], tmp_path)
        provisional_io.take_over(node.levels, 0)
        node.level(0, Level.BASIC)
        node.take()
        assert is_unpublished(node)
        if confirmed:
            node.level(0, Level.IO)
            assert node.files(0) == COUNTED
        provisional_io.settle(node.levels, 0)
        node.level(0, Level.BASIC)
        until(lambda: (node.take(), "jl_switch" not in ground.tracer.attached())[1])
        assert is_unpublished(node) != confirmed


def test_a_joblensd_that_was_stopped_meanwhile_counts_anew(own: tuple[Node, Slot]) -> None:
    """An orderly stop takes the programs away: what they had counted is gone."""
    node, slot = own
    provisional_io.begin(node.levels, 0, ASKS)
    slot.tracer.counters["io_key"][slot.index] = 0
    provisional_io.take_over(node.levels, 0)
    assert not node.runs.state["io_provisional"][0]


def talk() -> None:
    """A datagram to a server that listens, and a connection that is refused."""
    with socket.socket() as nobody, socket.socket() as client:
        nobody.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            client.connect(nobody.getsockname())
    with socket.socket(type=socket.SOCK_DGRAM) as server, socket.socket(type=socket.SOCK_DGRAM) as client:
        server.bind(("127.0.0.1", 0))
        client.sendto(b"hello", server.getsockname())


@pytest.mark.guest
@pytest.mark.parametrize("confirmed", [True, False])
def test_the_network_at_io_is_as_unpublished_as_calls(own: tuple[Node, Slot], confirmed: bool) -> None:
    node, slot = own
    provisional_io.begin(node.levels, 0, ASKS)
    node.job_starts(0)
    slot.run("wait", 1)
    slot.call(talk)
    node.take()
    assert is_unpublished(node) and node.runs.rows["tcp_failed"][0] == 1
    if confirmed:
        node.level(0, Level.IO)
        node.take()
        assert [node.runs.rows[column][0] for column in ("tcp_refused", "udp_sends")] == [1, 1]
        return
    provisional_io.settle(node.levels, 0)
    node.take()
    assert is_unpublished(node)
    keys, _ = slot.tracer.endpoints.read()
    assert slot.cgroup_id not in keys["cgroup_id"]
    slot.call(talk)
    node.level(0, Level.IO)
    slot.call(talk)
    node.take()
    assert node.runs.rows["udp_sends"][0] == 1, "what was not confirmed does not come later"
