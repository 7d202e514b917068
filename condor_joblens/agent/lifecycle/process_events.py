"""Process events: from the kernel's ring into the ring of events, and abnormal exits into the state of their run."""

from __future__ import annotations

import selectors
import time

import numpy as np

from condor_joblens.agent.agent import Agent
from condor_joblens.agent.lifecycle import death
from condor_joblens.agent.node import Node
from condor_joblens.common.redact import clipped, command_lines
from condor_joblens.jobs.death_sentence import program_of
from condor_joblens.model.events import EVENT, EventKind
from condor_joblens.sample.kernel_counters import NANO, held_bytes
from condor_joblens.tracer import map_layout
from condor_joblens.tracer.process_ring import EVENTS_AT_A_TIME

NAMED_AT_A_TIME = 64
"""Abnormal exits of one batch whose programs get the names of their scripts; the others have the kernel's names."""

TEXT_BYTES = EVENT["text"].itemsize

LINGER = 0.02
"""Seconds between two reads of the ring while events come: ten thousand programs a second are fifty batches."""


class Batches:
    """Reads the first event as soon as it comes, and every LINGER seconds as long as more follow."""

    def __init__(self, agent: Agent, selector: selectors.BaseSelector) -> None:
        self._agent, self._selector = agent, selector
        self._until: float | None = None  # CLOCK_MONOTONIC; None: the selector wakes us
        self._listen()

    def _listen(self) -> None:
        self._until = None
        self._selector.register(self._agent.node.tracer.processes.fileno(), selectors.EVENT_READ, self._drain)

    def _drain(self) -> None:
        drain(self._agent)
        self._selector.unregister(self._agent.node.tracer.processes.fileno())
        self._until = time.monotonic() + LINGER

    def timeout(self, now: float) -> float:
        """Seconds until `resume` has something to do; `now` is time.monotonic()."""
        return 3600.0 if self._until is None else max(0.0, self._until - now)

    def resume(self, now: float) -> None:
        """Reads again if it is time; if nothing has come, the selector wakes us for the next event."""
        if self._until is not None and now >= self._until:
            if drain(self._agent):
                self._until = time.monotonic() + LINGER
            else:
                self._listen()


def drain(agent: Agent) -> int:
    """Emits all process events since the last call; how many there were."""
    count = 0
    while True:
        found = agent.node.tracer.processes.take()
        count += len(found)
        if len(found):
            _emit(agent, found)
        if len(found) < EVENTS_AT_A_TIME:
            break
    agent.output.events.process_losses()
    return count


def _emit(agent: Agent, found: np.ndarray) -> None:
    node = agent.node
    runs = _runs_of(node, found)
    found, runs = found[runs >= 0], runs[runs >= 0]
    events = as_events(found, node.runs.rows["run_number"][runs], time.time() - time.monotonic())
    limits = node.runs.rows["memory_limit_bytes"][runs]
    victims = events["kind"] == EventKind.OOM
    events["limit"][victims] = limits[found["flags"] & map_layout.PROCESS_OOM_VICTIM != 0]
    agent.output.events.ring.append(events)
    death.record_exits(node, runs, found)


def _runs_of(node: Node, found: np.ndarray) -> np.ndarray:
    """The run of each event, -1 if its slot has none."""
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
