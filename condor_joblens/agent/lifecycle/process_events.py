"""Process events: from the kernel's ring into the ring of events, and abnormal exits into the state of their run."""

from __future__ import annotations

import math
import select
import selectors
import time
from collections import Counter
from typing import Any

import numpy as np

from condor_joblens.agent import throttle
from condor_joblens.agent.agent import Agent
from condor_joblens.agent.lifecycle import death
from condor_joblens.agent.node import Node
from condor_joblens.common.redact import LOOK_SECONDS, WITHHELD, Redactor, clipped
from condor_joblens.jobs.death_sentence import program_of
from condor_joblens.model.events import EVENT, SINKS_WITHOUT_EVENTS, EventKind
from condor_joblens.sample.kernel_counters import held_bytes
from condor_joblens.tracer.event_records import (
    MARK_CHOICE,
    MARK_ENDED,
    MARK_NAME,
    MARK_PROGRAM,
    MARK_TEXT,
    RecordMaker,
    Records,
)
from condor_joblens.tracer.map_layout import COMMAND_BYTES
from condor_joblens.tracer.process_ring import EVENTS_AT_A_TIME

NAMED_AT_A_TIME = 64
"""Abnormal exits of one batch whose programs get the names of their scripts; the others have the kernel's names."""

PROGRAM_BYTES, TEXT_BYTES = EVENT["program"].itemsize, EVENT["text"].itemsize

TO_COMPLETE = MARK_PROGRAM | MARK_TEXT | MARK_NAME | MARK_CHOICE

AT_END_SECONDS = 0.0005
"""CPU time for command lines at the end of a run."""

SAVED_SECONDS = 0.1
"""Seconds of work on process events that are saved up while there are none."""

BIRTH_NS = 1_000_000_000
"""Nanoseconds after which an event whose run is unknown is nobody's: the birth of its slot has long been told."""

LINGER = 0.04
"""Seconds between two reads of the ring while events come: ten thousand programs a second are twenty-five batches."""

LINGER_FOR_TRIGGERS = 0.02
"""The same, if triggers wait for them: what they do is to follow within 50 ms."""

LOOK_SECONDS_FOR_TRIGGERS = 0.002
"""CPU time for the command lines of one batch, if triggers wait for them: they can't judge one that is withheld. With
cold caches, the first takes 0.4 ms."""

_MAKER = RecordMaker(EVENTS_AT_A_TIME)


class Batches:
    """Reads the ring as rarely as its most impatient reader allows, and for a share of the time only.

    If a sink or a trigger takes events, the first is read as soon as it comes. As long as more follow, they are read
    every LINGER seconds. If none does, they are read once a round. The kernel then wakes joblensd only if the
    ring is a quarter full.
    """

    def __init__(self, agent: Agent, selector: selectors.BaseSelector) -> None:
        self._agent, self._selector = agent, selector
        self._share = throttle.TimeShare(SAVED_SECONDS)
        # each wake-up is told once: at a quarter full the ring would be readable again with the next event
        self._ring = select.epoll()
        self._ring.register(agent.node.tracer.processes.fileno(), select.EPOLLIN | select.EPOLLET)
        self._count = 0  # events of the last batch
        self._until: float | None = None  # CLOCK_MONOTONIC; None: the selector wakes us
        self._has_reader = self._wants_events()
        agent.node.tracer.wake_for_process_events(at_once=self._has_reader)
        self._listen()

    def _wants_events(self) -> bool:
        is_sinks = not SINKS_WITHOUT_EVENTS.issuperset(self._agent.node.config.sinks)
        return is_sinks or self._agent.output.events.wants_processes

    def begin_round(self) -> None:
        """Reads what waits if no sink takes events, or if condor_reconfig has just changed that."""
        wants = self._wants_events()
        if wants != self._has_reader:
            self._has_reader = wants
            self._agent.node.tracer.wake_for_process_events(at_once=wants)
        elif wants:
            return
        if self._until is None:
            self._woken()

    def _listen(self) -> None:
        self._until = None
        self._selector.register(self._ring, selectors.EVENT_READ, self._woken)

    def _woken(self) -> None:
        self._ring.poll(0)
        is_more, pause = self._read(), self._pause()
        if is_more or pause:
            self._selector.unregister(self._ring)
            self._until = time.monotonic() + pause

    def _read(self) -> bool:
        """Reads one batch, so that ends of runs are served between two; whether there is more to read."""
        began = throttle.working_time()
        self._count = read_batch(self._agent)
        self._share.spend(began)
        return self._count == EVENTS_AT_A_TIME

    def _pause(self) -> float:
        linger = LINGER_FOR_TRIGGERS if self._agent.output.events.wants_processes else LINGER
        return max(self._share.pause(time.monotonic()), linger if self._has_reader else 0.0)

    def timeout(self, now: float) -> float:
        """Seconds until `resume` has something to do; `now` is time.monotonic()."""
        return 3600.0 if self._until is None else max(0.0, self._until - now)

    def resume(self, now: float) -> None:
        """Reads again if it is time; if nothing has come, the selector wakes us for the next event."""
        if self._until is None or now < self._until:
            return
        is_more, pause = self._read(), self._pause()
        if is_more or (self._count and pause):
            self._until = time.monotonic() + pause
        else:
            self._listen()


def take_ahead(agent: Agent) -> None:
    """Takes all process events until now out of the kernel's ring, and of these records abnormal exits alone.

    A run has ended, and why is said in its last ad. `drain` shows the events, when that ad is written.
    """
    node, began = agent.node, time.monotonic_ns()
    held, node.events_of_unborn = node.events_of_unborn, []
    for found in held:  # a run of milliseconds: its events were taken at the end of another, before its birth was told
        _record_ahead(node, found[found["time_ns"] + BIRTH_NS > began])
    while True:
        found = node.tracer.processes.take()
        _record_ahead(node, found)
        if len(found) < EVENTS_AT_A_TIME or found["time_ns"][-1] > began:
            return


def _record_ahead(node: Node, found: np.ndarray) -> None:
    """Records what went wrong in runs that are known. Events of the others wait for the births of their slots."""
    by_cgroup = node.runs.by_cgroup
    runs = np.array([by_cgroup.get(cgroup, -1) for cgroup in found["cgroup_id"].tolist()], "i8")
    is_known = runs >= 0
    if is_known.any():
        node.events_ahead.append(found[is_known])
        death.record_exits(node, runs[is_known], found[is_known])
    if not is_known.all():
        node.events_of_unborn.append(found[~is_known])


def drain(agent: Agent) -> int:
    """Emits all process events since the last call, none that come meanwhile; how many there were.

    Runs end, and their starters do not wait: command lines get AT_END_SECONDS of CPU time.
    """
    began, redactor, count = time.monotonic_ns(), Redactor(AT_END_SECONDS), 0
    _emit_held(agent, redactor, began)
    while True:
        found = _take(agent, redactor, began)
        count += len(found)
        if len(found) < EVENTS_AT_A_TIME or found["time_ns"][-1] > began:
            return count


def read_batch(agent: Agent) -> int:
    """Emits the oldest process events, EVENTS_AT_A_TIME at most; how many there were."""
    wants_more = agent.output.events.wants_processes
    now, redactor = time.monotonic_ns(), Redactor(LOOK_SECONDS_FOR_TRIGGERS if wants_more else LOOK_SECONDS)
    _emit_held(agent, redactor, now)
    return len(_take(agent, redactor, now))


def _take(agent: Agent, redactor: Redactor, now_ns: int) -> np.ndarray:
    found: np.ndarray = agent.node.tracer.processes.take()
    if len(found):
        _emit(agent, found, redactor, now_ns)
    return found


def _emit_held(agent: Agent, redactor: Redactor, now_ns: int) -> None:
    """Emits what was taken ahead, and what came before the birth of its slot was told: births come by another ring."""
    held, agent.node.events_of_unborn = agent.node.events_of_unborn, []
    ahead, agent.node.events_ahead = agent.node.events_ahead, []
    for found in held:
        _emit(agent, found, redactor, now_ns)
    for found in ahead:
        _emit(agent, found, redactor, now_ns, is_recorded=True)


def _emit(agent: Agent, found: np.ndarray, redactor: Redactor, now_ns: int, is_recorded: bool = False) -> None:
    """Makes records of `found`; `is_recorded`: abnormal exits are in the state of their runs already."""
    runs = agent.node.runs
    cgroups, run_number = found["cgroup_id"].tolist(), runs.rows["run_number"]
    distinct = set(cgroups)
    run_of = {cgroup: runs.by_cgroup[cgroup] for cgroup in distinct if cgroup in runs.by_cgroup}
    if len(run_of) < len(distinct):
        unborn = np.array([cgroup not in run_of for cgroup in cgroups]) & (found["time_ns"] + BIRTH_NS > now_ns)
        if unborn.any():
            agent.node.events_of_unborn.append(found[unborn].copy())
    numbers = {cgroup: int(run_number[run]) for cgroup, run in run_of.items()}
    records = _MAKER.make(found, [numbers.get(cgroup, 0) for cgroup in cgroups], time.time() - time.monotonic())
    if not agent.node.config.arguments:
        _leave_out_arguments(records)
    if records.has_marks:
        for error in complete(records, found, redactor):
            head = "a process event can't be shown in full: what is lacking of it is not shown, all others are"
            agent.node.failures.log("process events", head, error)
        of_runs = np.array([run_of.get(cgroup, -1) for cgroup in cgroups])
        _limit_victims(agent.node, of_runs, records)
        if not is_recorded:
            _record_exits(agent.node, found, of_runs, records)
    agent.output.events.append(records.events)


def _leave_out_arguments(records: Records) -> None:
    """Programs are shown without what they were started with (JOBLENS_ARGUMENTS)."""
    records.events["text"][records.events["kind"] == EventKind.EXEC] = WITHHELD.encode()
    records.marks["mark"] &= ~np.uint32(MARK_TEXT)


def _limit_victims(node: Node, runs: np.ndarray, records: Records) -> None:
    """Whom the OOM killer has chosen is shown with the limit of its run."""
    events, event_of, mark = records.events, records.marks["event"], records.marks["mark"]
    for index in np.flatnonzero(mark & MARK_CHOICE):
        events["limit"][index] = node.runs.rows["memory_limit_bytes"][runs[event_of[index]]]


def _record_exits(node: Node, found: np.ndarray, runs: np.ndarray, records: Records) -> None:
    """What tells why a run died: its abnormal exits."""
    event_of, mark = records.marks["event"], records.marks["mark"]
    ended = event_of[mark & (MARK_ENDED | MARK_CHOICE) == MARK_ENDED]
    if len(ended):
        death.record_exits(node, runs[ended], found[ended])


def complete(records: Records, found: np.ndarray, redactor: Redactor) -> list[Exception]:
    """Fills in what C leaves to Python: texts without their secrets, names of scripts, memory of victims.

    Returns what was raised. It costs the one record, which then has no program or text: nothing unread is shown.
    """
    errors: list[Exception] = []
    to_name = records.marks["mark"] & MARK_NAME != 0
    beyond = _by_turns(records, np.flatnonzero(to_name).tolist())[NAMED_AT_A_TIME:]
    records.marks["mark"][beyond] &= ~np.uint32(MARK_NAME)
    order = _by_turns(records, np.flatnonzero(records.marks["mark"] & TO_COMPLETE).tolist())
    for position, index in enumerate(order):
        if redactor.is_late:
            _withhold(records, found, np.array(order[position:]))
            break
        event = found[int(records.marks["event"][index])]
        try:
            _complete_one(records.events[index], event, int(records.marks["mark"][index]), redactor)
        except Exception as error:
            records.events["program"][index] = records.events["text"][index] = b""
            errors.append(error)
    return errors


def _withhold(records: Records, found: np.ndarray, late: np.ndarray) -> None:
    """Fills in what needs no look for secrets: `late` (indices) had no time for that.

    Command lines are not shown, nor are names of programs that may be a secret. All at once: a storm of command lines
    costs no time when there is none.
    """
    events, mark = records.events, records.marks["mark"][late]
    events["text"][late[mark & MARK_TEXT != 0]] = WITHHELD.encode()
    events["program"][late[mark & MARK_PROGRAM != 0]] = b""
    for index in late[mark & MARK_CHOICE != 0].tolist():
        events["value"][index] = held_bytes(found[int(records.marks["event"][index])])


def _by_turns(records: Records, indices: list[int]) -> list[int]:
    """`indices` of records in an order in which runs take turns: who has few is not kept waiting by who has many."""
    turns: Counter[int] = Counter()
    order = []
    for index, run_number in zip(indices, records.events["run_number"][indices].tolist()):
        order.append((turns[run_number], index))
        turns[run_number] += 1
    return [index for _, index in sorted(order)]


def _complete_one(record: Any, event: Any, mark: int, redactor: Redactor) -> None:
    program, command = bytes(event["program"]), bytes(event["command"])
    if mark & MARK_NAME:
        record["program"] = clipped(program_of(program, command), PROGRAM_BYTES)
    elif mark & MARK_PROGRAM:
        record["program"] = clipped(redactor.line(program), PROGRAM_BYTES)
    if mark & MARK_TEXT:
        record["text"] = clipped(redactor.line(command, len(command) == COMMAND_BYTES), TEXT_BYTES)
    if mark & MARK_CHOICE:
        record["value"] = held_bytes(event)


def as_events(found: np.ndarray, run_numbers: np.ndarray, epoch: float) -> np.ndarray:
    """`found` (map_layout.PROCESS_EVENT, shape (n,)) as EVENT, in its order.

    The OOM killer's victims have a record more. Events whose run number is 0 have none. `epoch` is the time, in
    epoch seconds, at which CLOCK_MONOTONIC was 0. Taking commands apart has all the time that it takes.
    """
    records = RecordMaker(len(found)).make(found, run_numbers.tolist(), epoch)
    complete(records, found, Redactor(math.inf))
    return records.events
