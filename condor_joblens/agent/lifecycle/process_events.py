"""What starts and ends in the jobs: from the kernel's ring into the ring of events, and what went wrong to its run."""

from __future__ import annotations

import selectors
import time

import numpy as np

from condor_joblens.agent.lifecycle import death
from condor_joblens.agent.node import Node
from condor_joblens.agent.output import emit_events
from condor_joblens.common.redact import clipped, command_lines
from condor_joblens.jobs.deaths import program_of
from condor_joblens.model.events import EVENT, EventKind
from condor_joblens.sample.task_counters import NANO, held_bytes
from condor_joblens.tracer import map_layout
from condor_joblens.tracer.process_ring import EVENTS_AT_A_TIME

NAMED_AT_A_TIME = 64
"""Abnormal ends of one batch whose programs are called by their scripts' names; the others have the kernel's."""

TEXT_BYTES = EVENT["text"].itemsize


LINGER = 0.02
"""Seconds between two looks into the ring while things happen: ten thousand programs a second are fifty batches."""


class Batches:
    """Takes what happens at once where nothing did before, and every LINGER seconds while more does."""

    def __init__(self, node: Node, selector: selectors.BaseSelector) -> None:
        self._node, self._selector = node, selector
        self._until: float | None = None  # CLOCK_MONOTONIC; None: the selector tells
        self._listen()

    def _listen(self) -> None:
        self._until = None
        self._selector.register(self._node.tracer.processes.fileno(), selectors.EVENT_READ, self._take)

    def _take(self) -> None:
        take(self._node)
        self._selector.unregister(self._node.tracer.processes.fileno())
        self._until = time.monotonic() + LINGER

    def timeout(self, now: float) -> float:
        """Seconds until `resume` has something to do; `now` is time.monotonic()."""
        return 3600.0 if self._until is None else max(0.0, self._until - now)

    def resume(self, now: float) -> None:
        """Looks again, where it is time, and waits for the selector's word where nothing has come."""
        if self._until is not None and now >= self._until:
            if take(self._node):
                self._until = time.monotonic() + LINGER
            else:
                self._listen()


def take(node: Node) -> int:
    """Everything that has happened to processes since the last call; how much it was."""
    taken = 0
    while True:
        found = node.tracer.processes.take()
        taken += len(found)
        if len(found):
            _tell(node, found)
        if len(found) < EVENTS_AT_A_TIME:
            break
    emit_events.process_losses(node)
    return taken


def _tell(node: Node, found: np.ndarray) -> None:
    runs = _runs_of(node, found)
    found, runs = found[runs >= 0], runs[runs >= 0]
    events = as_events(found, node.runs.rows["run_number"][runs], time.time() - time.monotonic())
    limits = node.runs.rows["memory_limit_bytes"][runs]
    victims = events["kind"] == EventKind.OOM
    events["limit"][victims] = limits[found["flags"] & map_layout.PROCESS_OOM_VICTIM != 0]
    node.events.append(events)
    death.remember(node, runs, found)


def _runs_of(node: Node, found: np.ndarray) -> np.ndarray:
    """The run of each event, -1 where its slot has none."""
    run_of_slot: np.ndarray = np.full(node.tracer.max_slots, -1, "i8")
    living = node.runs.living()
    slots = node.runs.state["kernel_slot"][living]
    run_of_slot[slots[slots >= 0]] = living[slots >= 0]
    runs = run_of_slot[found["slot"]]
    # a slot's index can have been another cgroup's
    known: np.ndarray = np.where(node.runs.state["cgroup_id"][runs] == found["cgroup_id"], runs, -1)
    return known


def as_events(found: np.ndarray, run_numbers: np.ndarray, epoch: float) -> np.ndarray:
    """`found` (layout.PROCESS_EVENT, shape (n,)) as EVENT, in its order; the OOM killer's victims have a record more.

    `run_numbers` has shape (n,); `epoch` is the time, in epoch seconds, at which CLOCK_MONOTONIC was 0.
    """
    victim = found["flags"] & map_layout.PROCESS_OOM_VICTIM != 0
    source: np.ndarray = np.repeat(np.arange(len(found)), 1 + victim)
    events: np.ndarray = np.zeros(len(source), EVENT)
    of = found[source]
    is_exec = of["kind"] == map_layout.PROCESS_EXEC
    # the victim's first record is that of the choice, the second its end
    is_oom: np.ndarray = np.zeros(len(source), "?")
    is_oom[1:] = source[1:] == source[:-1]
    is_oom[:-1], is_oom[-1:] = is_oom[1:].copy(), False
    events["time"] = of["time_ns"] * NANO + epoch
    events["run_number"] = run_numbers[source]
    events["kind"] = np.where(is_oom, EventKind.OOM, np.where(is_exec, EventKind.EXEC, EventKind.EXIT))
    events["pid"], events["parent_pid"] = of["pid"], of["parent_pid"]
    events["exit_code"] = np.where(is_oom, 0, of["exit_code"])
    events["limit"] = -1
    events["value"] = np.where(is_oom, held_bytes(of), 0)
    events["lived_seconds"] = of["lived_ns"] * NANO
    events["program"] = command_lines(of["program"], EVENT["program"].itemsize)
    for index in np.flatnonzero(~is_exec & (is_oom | (of["exit_code"] != 0)))[:NAMED_AT_A_TIME]:
        name = program_of(bytes(of["program"][index]), bytes(of["command"][index]))
        events["program"][index] = clipped(name, EVENT["program"].itemsize)
    if is_exec.any():
        events["text"][is_exec] = command_lines(of["command"][is_exec], TEXT_BYTES)
    return events
