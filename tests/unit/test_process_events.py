"""Process events on their way: to the right run, in batches, with their losses, and into the state of their run."""

from __future__ import annotations

import os
import selectors
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from condor_joblens.agent.lifecycle import process_events
from condor_joblens.agent.output.emit_events import EventEmitter
from condor_joblens.jobs.death_sentence import last_exits, said
from condor_joblens.jobs.run_state import STATE
from condor_joblens.model.events import EVENT, EventKind
from condor_joblens.model.metrics import empty_rows
from condor_joblens.tracer import map_layout

SLOTS = 8


class Ring:
    """A ring of process events, filled by hand."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        self.batches: list[np.ndarray] = []
        self.taken = 0

    def fileno(self) -> int:
        return self.reader

    def put(self, *events: np.ndarray) -> None:
        self.batches.append(np.concatenate(events))
        os.write(self.writer, b"x")

    def take(self) -> np.ndarray:
        self.taken += 1
        with_something = bool(self.batches)
        if with_something:
            os.read(self.reader, 1)
        nothing: np.ndarray = np.zeros(0, map_layout.PROCESS_EVENT)
        return self.batches.pop(0) if with_something else nothing


class Told(list[Any]):
    """The ring of events."""

    def append(self, events: np.ndarray) -> None:
        assert events.dtype == EVENT
        self.extend(events)


@pytest.fixture
def node() -> Any:
    rows, state = empty_rows(3), np.zeros(3, STATE)
    rows["run_number"] = [11, 12, 13]
    state["used"], state["kernel_slot"], state["cgroup_id"] = True, [4, 2, -1], [104, 102, 103]
    runs = SimpleNamespace(rows=rows, state=state, living=lambda: np.flatnonzero(state["used"]))
    losses: dict[str, int] = {}
    tracer = SimpleNamespace(processes=Ring(), max_slots=SLOTS, new_process_losses=lambda: dict(losses), lost=lambda: 0)
    node: Any = SimpleNamespace(runs=runs, tracer=tracer, events=Told(), losses=losses)
    node.agent = SimpleNamespace(node=node, output=SimpleNamespace(events=EventEmitter(node, node.events)))
    return node


def event(slot: int, cgroup: int, code: int | None = None, program: bytes = b"job", flags: int = 0) -> np.ndarray:
    """An exec, or an exit with that code."""
    found: np.ndarray = np.zeros(1, map_layout.PROCESS_EVENT)
    found["slot"], found["cgroup_id"], found["program"], found["flags"] = slot, cgroup, program, flags
    found["kind"] = map_layout.PROCESS_EXEC if code is None else map_layout.PROCESS_EXIT
    found["exit_code"], found["tgid"] = code or 0, 99
    return found


def test_each_event_is_of_the_run_in_whose_slot_it_happened(node: Any) -> None:
    stale = event(4, 999)  # of a cgroup that had this index before
    unknown = event(7, 103)
    node.tracer.processes.put(event(2, 102), stale, event(4, 104), unknown, event(2, 102, 256))
    assert process_events.drain(node.agent) == 5
    assert [(one["run_number"], one["kind"]) for one in node.events] == [
        (12, EventKind.EXEC), (11, EventKind.EXEC), (12, EventKind.EXIT),
    ]  # fmt: skip


def test_what_went_wrong_is_kept_for_its_run(node: Any) -> None:
    ends = [event(2, 102, 54 << 8, b"xrdcp"), event(4, 104, 0), event(2, 102, 11, b"reco")]
    node.tracer.processes.put(*ends, event(2, 102, 101 << 8, b"joblens_activat"))
    process_events.drain(node.agent)
    assert [said(one) for one in last_exits(node.runs.state["death"][1])] == ["xrdcp exited 54", "SIGSEGV in reco"]
    assert node.runs.rows["exits"][1].startswith(b"xrdcp exited 54 after ")
    assert node.runs.state["death"]["count"].tolist() == [0, 2, 0]


def test_of_thousands_of_failures_the_first_and_the_last_are_kept(node: Any) -> None:
    node.tracer.processes.put(*(event(2, 102, (number % 255 + 1) << 8, b"p%d" % number) for number in range(3000)))
    process_events.drain(node.agent)
    death = node.runs.state["death"][1]
    assert death["count"] == 3000 and death["first"]["program"] == b"p0"
    assert last_exits(death)[-1]["program"] == b"p2999" and len(node.events) == 3000


def test_a_victim_has_its_limit(node: Any) -> None:
    node.runs.rows["memory_limit_bytes"] = [1, 4096, 3]
    victim = event(2, 102, 9, b"greedy", map_layout.PROCESS_OOM_VICTIM)
    victim["resident_pages"] = victim["peak_pages"] = 1
    node.tracer.processes.put(event(4, 104), victim)
    process_events.drain(node.agent)
    oom = [one for one in node.events if one["kind"] == EventKind.OOM]
    told = [(one["limit"], one["value"], one["program"]) for one in oom]
    assert told == [(4096, os.sysconf("SC_PAGE_SIZE"), b"greedy")]
    assert node.runs.state["death"][1]["victim"]["program"] == b"greedy"


def test_losses_are_events(node: Any) -> None:
    node.losses.update(exec=3)
    process_events.drain(node.agent)
    loss = node.events[0]
    assert (loss["kind"], loss["value"], loss["run_number"]) == (EventKind.LOSS, 3, 0)
    assert loss["text"] == b"exec events in the kernel"


def test_while_things_happen_they_are_looked_at_in_batches(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(process_events.time, "monotonic", lambda: clock[0])
    selector, ring = selectors.DefaultSelector(), node.tracer.processes
    batches = process_events.Batches(node.agent, selector)
    assert batches.timeout(clock[0]) == 3600.0

    def serve() -> None:
        for key, _ in selector.select(0):
            key.data()

    ring.put(event(2, 102))
    serve()
    assert len(node.events) == 1 and batches.timeout(clock[0]) == pytest.approx(process_events.LINGER)
    # more comes, and waits: the selector does not tell
    ring.put(event(2, 102))
    serve()
    batches.resume(clock[0])
    assert len(node.events) == 1
    clock[0] += 1.001 * process_events.LINGER
    batches.resume(clock[0])
    assert len(node.events) == 2 and batches.timeout(clock[0]) == pytest.approx(process_events.LINGER)
    # then nothing: the selector is asked again
    clock[0] += 1.001 * process_events.LINGER
    batches.resume(clock[0])
    assert batches.timeout(clock[0]) == 3600.0
    ring.put(event(2, 102))
    serve()
    assert len(node.events) == 3
