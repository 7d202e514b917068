"""A job on one axis of time: its processes, what they called, opened and connected to, and curves of what it used.

It is put together from what is kept of a job: traces, last events, starts and ends of processes, series of numbers. All
of it comes from the job in the end, so whoever shows it escapes it; how much there can be is bounded here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from condor_joblens.profiles.last_events import Event
from condor_joblens.profiles.traced_calls import TracedCalls

OF_TRACES = frozenset({"call", "return", "command"})
"""Events that the artifacts of traces have as well, with their ends."""

MOST_PROCESSES, MOST_THREADS, MOST_MARKS, MOST_POINTS = 60, 8, 5000, 5000
"""Processes that are shown, threads of one, events of all, and points of a curve. What is left out is counted."""

RARE = frozenset({"failed", "refused", "signal", "raised", "throw"})
"""Kinds of events that tell of trouble: they stay if there are too many."""

FILES, CONNECTIONS = frozenset({"open", "failed"}), frozenset({"connect", "refused"})
"""Kinds of events that stand in a row of their own."""

LEAST_SECONDS = 1e-3
"""Of the axis."""

_SLACK = 0.05  # seconds by which two sources tell a time differently
_FORKED = re.compile(r"process ([0-9]{1,9})")


@dataclass(frozen=True)
class Life:
    """When a process lived, as somebody has seen it."""

    pid: int
    begun: float  # epoch seconds, as all times here
    ended: Optional[float]  # None: it lives
    program: str = ""
    parent: int = 0
    ending: str = ""


@dataclass(frozen=True)
class Mark:
    """What happened at a moment."""

    time: float
    kind: str  # as last_events.Event.what
    text: str


@dataclass(frozen=True)
class Bar:
    """A call of a function."""

    begun: float
    seconds: Optional[float]  # None: when it ended is not known
    name: str
    depth: int
    end: str
    arguments: tuple[str, ...] = ()
    result: str = ""

    @property
    def is_moment(self) -> bool:
        """Whether all that is known is that it was unwound, or that it raised."""
        return self.seconds is None and self.end not in ("entered", "returned")

    @property
    def words(self) -> str:
        """`fit(run = 3)`."""
        return f"{self.name}({', '.join(self.arguments)})" if self.arguments else self.name


@dataclass
class Thread:
    """Calls of a thread."""

    tid: int
    bars: list[Bar] = field(default_factory=list)


@dataclass
class Process:
    """One process, and all that is known of it."""

    pid: int  # 0: nobody knows which one
    begun: float
    ended: float
    program: str = ""
    parent: int = 0
    depth: int = 0  # below those that have started it
    is_begin_known: bool = False
    is_end_known: bool = False
    is_alive: bool = False
    ending: str = ""  # status 3, SIGSEGV
    commands: list[Mark] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    threads: list[Thread] = field(default_factory=list)


@dataclass(frozen=True)
class Curve:
    """What the job used. A value is the mean since the point before."""

    title: str  # CPU
    unit: str  # cores
    points: Sequence[tuple[float, float]]  # time and value, in order


@dataclass
class Timeline:
    """All of it, between `begun` and `ended`."""

    job: str
    node: str
    begun: float
    ended: float
    processes: list[Process] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)  # what is not there, and why


@dataclass
class Material:
    """What a time line is made of."""

    job: str
    node: str = ""
    events: list[Event] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    traces: list[TracedCalls] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    looked: float = 0.0  # when it was seen which processes live; 0: nobody has looked


def made_of(material: Material, since: Optional[float] = None, until: Optional[float] = None) -> Timeline:
    """The time line between these times; without them of all that there is. Raises ValueError if that is nothing."""
    found = _Processes()
    for life in sorted(material.lives, key=lambda each: (each.begun, each.ended is None)):
        found.live(life)
    for event in sorted(material.events, key=lambda each: each.time):
        found.take(event)
    for trace in material.traces:
        found.calls(trace)
    processes = found.all
    curves = [curve for curve in map(_bounded, material.curves) if curve.points]
    times = [each.begun for each in processes] + [each.ended for each in processes]
    times += [curve.points[place][0] for curve in curves for place in (0, -1)]
    times += [material.looked] if material.looked and any(each.is_alive for each in processes) else []
    if not times:
        raise ValueError("nothing is known of it that has a time")
    begun = min(times) if since is None else since
    ended = max(max(times) if until is None else until, begun + LEAST_SECONDS)
    made = Timeline(material.job, material.node, begun, ended, remarks=list(material.remarks))
    made.curves = [_within(curve, begun, ended) for curve in curves]
    made.curves = [curve for curve in made.curves if curve.points]
    made.processes = _chosen([_cut(each, begun, ended) for each in processes if _overlaps(each, begun, ended)], made)
    _bound_marks(made)
    return made


class _Processes:
    """Finds out whose an event is: a number can be that of several processes, one after the other."""

    def __init__(self) -> None:
        self.all: list[Process] = []
        self._by_pid: dict[int, list[Process]] = {}

    def live(self, life: Life) -> None:
        known = self._at(life.pid, life.begun, life.ended)
        process = known or self._new(life.pid, life.begun)
        if not process.is_begin_known or life.begun < process.begun:
            process.begun, process.is_begin_known = life.begun, True
        process.program = process.program or life.program
        process.parent = process.parent or life.parent
        if life.ended is None:
            process.is_alive = True
        else:
            process.ended, process.is_end_known, process.is_alive = life.ended, True, False
            process.ending = process.ending or life.ending

    def take(self, event: Event) -> None:
        process = self._at(event.pid, event.time, event.time) or self._new(event.pid, event.time)
        if not process.is_end_known:
            process.ended = max(process.ended, event.time)
        if event.what != "exec" or not process.program:
            process.program = event.program or process.program
        if event.what == "exit":
            process.ended, process.is_end_known, process.is_alive = event.time, True, False
            process.ending = event.result or process.ending
        elif event.what == "fork":
            self._fork(process, event)
        elif event.what == "exec":
            self._exec(process, event)
        elif event.what not in OF_TRACES:
            kind = "refused" if (event.what, event.call) == ("failed", "connect") else event.what
            process.marks.append(Mark(event.time, kind, said(event)))

    @staticmethod
    def _exec(process: Process, event: Event) -> None:
        process.program = event.program or process.program
        words = event.about or event.program
        near = [each.text for each in process.commands[-2:] if abs(each.time - event.time) < _SLACK]
        if not any(text.split(" ")[0] == words.split(" ")[0] for text in near):  # else another source has told it
            process.commands.append(Mark(event.time, "exec", words))

    def _fork(self, process: Process, event: Event) -> None:
        made = _FORKED.fullmatch(event.result)
        if made is None:
            return
        child = self._at(int(made[1]), event.time, event.time) or self._new(int(made[1]), event.time)
        child.parent = child.parent or process.pid
        child.program = child.program or process.program
        if abs(child.begun - event.time) < _SLACK:
            child.is_begin_known = True

    def calls(self, trace: TracedCalls) -> None:
        """Of threads those with most calls."""
        threads: dict[tuple[int, int], Thread] = {}
        for call in trace.calls:
            end = call.time + (call.seconds or 0.0)
            process = self._at(call.pid, call.time, end) or self._new(call.pid, call.time)
            if not process.is_begin_known:
                process.begun = min(process.begun, call.time)
            if not process.is_end_known:
                process.ended = max(process.ended, end)
            thread = threads.get((id(process), call.tid))
            if thread is None:
                thread = threads[id(process), call.tid] = Thread(call.tid)
                process.threads.append(thread)
            arguments = tuple(call.arguments or ())
            name = trace.functions[call.function].name
            thread.bars.append(Bar(call.time, call.seconds, name, call.depth, call.end, arguments, call.result or ""))

    def _at(self, pid: int, begun: float, ended: Optional[float]) -> Optional[Process]:
        """The process of that number at that time: the last one that had not ended before."""
        for process in reversed(self._by_pid.get(pid, [])):
            is_over = process.is_end_known and begun > process.ended + _SLACK
            is_before = process.is_begin_known and ended is not None and ended < process.begun - _SLACK
            if not is_over and not is_before:
                return process
        return None

    def _new(self, pid: int, time: float) -> Process:
        process = Process(pid, time, time)
        self.all.append(process)
        self._by_pid.setdefault(pid, []).append(process)
        return process


def said(event: Event) -> str:
    """`openat ENOENT: /data/x`."""
    words = " ".join(part for part in (event.call, event.result) if part)
    return ": ".join(part for part in (words, event.about) if part)


def _overlaps(process: Process, begun: float, ended: float) -> bool:
    return process.begun <= ended and (process.is_alive or process.ended >= begun)


def _cut(process: Process, begun: float, ended: float) -> Process:
    """What of it lies in that time. A process that lives goes on until the end."""
    if process.is_alive:
        process.ended = max(process.ended, ended)
    process.commands = [each for each in process.commands if begun <= each.time <= ended]
    process.marks = [each for each in process.marks if begun <= each.time <= ended]
    for thread in process.threads:
        thread.bars = [bar for bar in thread.bars if bar.begun <= ended and bar.begun + (bar.seconds or 0.0) >= begun]
    process.threads = [thread for thread in process.threads if thread.bars]
    return process


def _chosen(processes: list[Process], made: Timeline) -> list[Process]:
    """Those that have most to tell, each below the one that has started it; and at most so many threads of each."""

    def weight(process: Process) -> tuple[float, ...]:
        rare = sum(mark.kind in RARE for mark in process.marks)
        is_bad = bool(process.ending) and process.ending != "status 0"
        return bool(process.threads), rare > 0, is_bad, process.ended - process.begun

    kept = sorted(processes, key=weight, reverse=True)[:MOST_PROCESSES]
    if len(kept) < len(processes):
        made.remarks.append(
            f"{len(processes) - len(kept)} more processes are not shown: --since and --until show fewer"
        )
    for process in kept:
        threads = sorted(process.threads, key=lambda each: -len(each.bars))
        if len(threads) > MOST_THREADS:
            made.remarks.append(f"process {process.pid}: calls of {len(threads) - MOST_THREADS} threads are not shown")
        process.threads = sorted(threads[:MOST_THREADS], key=lambda each: each.bars[0].begun)
    return _in_order(kept)


def _in_order(processes: Iterable[Process]) -> list[Process]:
    """By their begins, and each after its parent, if that is there."""
    in_time = sorted(processes, key=lambda each: (each.begun, each.pid))
    known = {each.pid: each for each in in_time}
    children: dict[int, list[Process]] = {}
    for each in in_time:
        parent = known.get(each.parent)
        is_child = parent is not None and parent is not each and parent.begun <= each.begun + _SLACK
        children.setdefault(id(parent) if is_child else 0, []).append(each)
    found: list[Process] = []
    waiting = [(each, 0) for each in reversed(children.pop(0, []))]
    while waiting or children:
        if not waiting:  # parents in a circle
            waiting = [(each, 0) for each in children.pop(next(iter(children)))]
        process, depth = waiting.pop()
        process.depth = depth
        found.append(process)
        waiting += [(child, depth + 1) for child in reversed(children.pop(id(process), []))]
    return found


def _bound_marks(made: Timeline) -> None:
    """The frequent ones go first, evenly: each time every second one."""
    everything = [mark for process in made.processes for mark in process.marks]
    total = len(everything)
    rare = sum(mark.kind in RARE for mark in everything)
    if total <= MOST_MARKS:
        return
    step = math.ceil((total - rare) / max(1, MOST_MARKS - min(rare, MOST_MARKS // 2)))
    rare_step = math.ceil(rare / (MOST_MARKS // 2)) if rare > MOST_MARKS // 2 else 1
    at, left = 0, 0
    for process in made.processes:
        kept = []
        for mark in process.marks:
            at += 1
            if at % (rare_step if mark.kind in RARE else step) == 0:
                kept.append(mark)
        process.marks, left = kept, left + len(kept)
    made.remarks.append(f"{total - left} of {total} events are not drawn: --since and --until show fewer")


def _bounded(curve: Curve) -> Curve:
    points = sorted(point for point in curve.points if all(map(math.isfinite, point)))
    step = math.ceil(len(points) / MOST_POINTS) or 1
    return Curve(curve.title, curve.unit, points[::-step][::-1])


def _within(curve: Curve, begun: float, ended: float) -> Curve:
    """Its points there, and the one after: it tells of the time before."""
    found = [point for point in curve.points if begun <= point[0] <= ended]
    found += [point for point in curve.points if point[0] > ended][:1] if curve.points[0][0] <= ended else []
    return Curve(curve.title, curve.unit, found)


def record(made: Timeline) -> dict[str, Any]:
    """All of it in JSON. Times are epoch seconds."""
    return {
        "JobId": made.job,
        "Node": made.node,
        "BeginTime": made.begun,
        "EndTime": made.ended,
        "Remarks": made.remarks,
        "Processes": [_process(each) for each in made.processes],
        "Curves": [
            {"Title": each.title, "Unit": each.unit, "Points": [list(point) for point in each.points]}
            for each in made.curves
        ],
    }


def _process(process: Process) -> dict[str, Any]:
    return {
        "Pid": process.pid,
        "ParentPid": process.parent,
        "Program": process.program,
        "Begun": process.begun,
        "BeginIsKnown": process.is_begin_known,
        "Ended": process.ended,
        "EndIsKnown": process.is_end_known,
        "Alive": process.is_alive,
        "Ending": process.ending,
        "Events": [
            {"Time": each.time, "Kind": each.kind, "Text": each.text}
            for each in sorted([*process.commands, *process.marks], key=lambda each: each.time)
        ],
        "Calls": [
            {"Thread": thread.tid, "Time": bar.begun, "Seconds": bar.seconds, "Function": bar.name,
             "Depth": bar.depth, "End": bar.end, "Arguments": list(bar.arguments), "Result": bar.result}
            for thread in process.threads
            for bar in thread.bars
        ],
    }  # fmt: skip
