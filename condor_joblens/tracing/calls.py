"""Entries and exits put together to calls: where thread and stack pointer are the same.

At an entry and at an exit the stack pointer is where the return address lies. What lies deeper in the stack than where
a thread is later has not returned: it was unwound, by an exception or by longjmp.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from condor_joblens.common.quantile_sketch import QuantileSketch
from condor_joblens.tracing.call_tree import ROOT, CallTree

MOST_THREADS = 10_000
"""Whose calls are known; those of the thread that was seen first are forgotten for another one's."""

MOST_DEEP = 10_000
"""Calls of a thread that are known at a time, the innermost."""

_REMEMBERED = 64
"""Unwound calls of a thread that are kept, to see whether they return after all."""


class End(enum.Enum):
    """How a call ended."""

    RETURNED = "returned"
    LEFT = "left"
    """By a jump to another function, which returns in its place."""
    UNWOUND = "unwound"
    """By an exception, longjmp, or the end of its thread in it."""
    NOT_LOOKED_FOR = "entered"
    """Its entry alone is known: it is a function of Go, whose stacks move."""


class Kind(enum.IntEnum):
    """enum traced_kind of joblens_trace.h."""

    ENTRY = 0
    RETURN = 1
    LEAVE = 2
    OFF = 4


class Hit(NamedTuple):
    """One hit of a probe. There are thousands a second: a tuple is made fastest."""

    kind: Kind
    function: int
    time_ns: int
    stack: int
    thread: int
    pid: int
    tid: int
    lost: int = 0  # hits of which nobody was told, until then
    values: tuple[int, ...] = ()
    texts: tuple[tuple[int, bytes], ...] = ()  # number of the register, and the text


@dataclass
class Call:
    """One call, from its entry on."""

    entry: Hit
    depth: int  # how many calls of traced functions it is in
    end: End | None = None
    ended_ns: int = 0  # of one that was unwound: when that was seen
    result: int = 0
    node: int = ROOT  # of the call tree


@dataclass
class Sums:
    """What is known of all calls of a function. entries = returned + left + unwound + inside + unknown."""

    entries: int = 0
    returned: int = 0
    left: int = 0
    unwound: int = 0
    unknown: int = 0
    """Calls of which nobody knows how they ended: hits were lost, or there was no room."""
    begun_before: int = 0
    """Ends of calls that had begun before."""
    total_ns: int = 0
    """From entry to exit of those that returned or left."""
    longest_ns: int = 0
    times: QuantileSketch = field(default_factory=QuantileSketch)
    """Of the same, ns."""

    @property
    def inside(self) -> int:
        """Calls of which no end was seen so far: an unwound one is noticed when its thread hits the next probe."""
        return self.entries - self.returned - self.left - self.unwound - self.unknown


@dataclass
class _Thread:
    open: list[Call] = field(default_factory=list)
    unwound: list[Call] = field(default_factory=list)


class Calls:
    """What all threads call."""

    def __init__(self, functions: int) -> None:
        self.sums = [Sums() for _ in range(functions)]
        self.switches_stacks = False
        """Whether a call returned that had been left behind: then nothing is known to be unwound."""
        self.tree = CallTree()
        self._threads: dict[int, _Thread] = {}
        self._lost = 0
        self.entry_alone: set[int] = set()
        """Functions of which entries alone are told, each as a call: nothing is known of how it ends."""
        self._off: set[int] = set()

    def take(self, hit: Hit) -> Iterator[Call]:
        """The calls that have ended by what was hit, the innermost first."""
        if hit.lost != self._lost:  # it may have been the end of any call
            self._lost = hit.lost
            for function in range(len(self.sums)):
                self._forget_open(function)
        if hit.kind is Kind.OFF:
            self.forget(hit.function)
        if hit.function in self._off:
            return
        if hit.function in self.entry_alone:
            if hit.kind is Kind.ENTRY:
                self.sums[hit.function].entries += 1
                self.sums[hit.function].unknown += 1
                self.tree.enter(ROOT, hit.function)
                yield Call(hit, 0, End.NOT_LOOKED_FOR, hit.time_ns)
            return
        thread = self._thread(hit.thread)
        yield from self._unwind(thread, hit)
        if hit.kind is Kind.ENTRY:
            self._enter(thread, hit)
        else:
            call = self._exit(thread, hit)
            if call is not None:
                yield call

    def forget(self, function: int) -> None:
        """How the calls of a function end that have not ended so far is not known, and no more are taken."""
        self._off.add(function)
        self._forget_open(function)

    def _forget_open(self, function: int) -> None:
        for thread in self._threads.values():
            kept = [call for call in thread.open if call.entry.function != function]
            self.sums[function].unknown += len(thread.open) - len(kept)
            thread.open = kept

    def _thread(self, number: int) -> _Thread:
        thread = self._threads.get(number)
        if thread is None:
            if len(self._threads) >= MOST_THREADS:
                gone = self._threads.pop(next(iter(self._threads)))
                for call in gone.open:
                    self.sums[call.entry.function].unknown += 1
            thread = self._threads[number] = _Thread()
        return thread

    def _unwind(self, thread: _Thread, hit: Hit) -> Iterator[Call]:
        """Calls whose frame is deeper than where the thread is now; an entry takes the place of one at the same."""
        while thread.open:
            call = thread.open[-1]
            stack = call.entry.stack
            if stack > hit.stack or (stack == hit.stack and hit.kind is not Kind.ENTRY):
                return
            thread.open.pop()
            sums = self.sums[call.entry.function]
            if self.switches_stacks:
                sums.unknown += 1
                continue
            sums.unwound += 1
            self.tree.unwind(call.node)
            call.end, call.ended_ns = End.UNWOUND, hit.time_ns
            thread.unwound.append(call)
            del thread.unwound[:-_REMEMBERED]
            yield call

    def _enter(self, thread: _Thread, hit: Hit) -> None:
        self.sums[hit.function].entries += 1
        if len(thread.open) >= MOST_DEEP:
            gone = thread.open.pop(0)
            self.sums[gone.entry.function].unknown += 1
        parent = thread.open[-1].node if thread.open else ROOT
        is_folded = bool(thread.open) and parent == ROOT
        node = ROOT if is_folded else self.tree.enter(parent, hit.function)
        self.tree.folded += is_folded
        thread.open.append(Call(hit, len(thread.open), node=node))

    def _exit(self, thread: _Thread, hit: Hit) -> Call | None:
        sums = self.sums[hit.function]
        call = thread.open[-1] if thread.open else None
        if call is None or call.entry.stack != hit.stack or call.entry.function != hit.function:
            if self._came_back(thread, hit):
                return None
            sums.begun_before += 1
            return None
        thread.open.pop()
        call.end = End.RETURNED if hit.kind is Kind.RETURN else End.LEFT
        call.ended_ns, call.result = hit.time_ns, hit.values[0] if hit.values else 0
        took = call.ended_ns - call.entry.time_ns
        sums.total_ns += took
        sums.longest_ns = max(sums.longest_ns, took)
        sums.times.add(took)
        self.tree.end(call.node, took)
        if call.end is End.RETURNED:
            sums.returned += 1
        else:
            sums.left += 1
        return call

    def _came_back(self, thread: _Thread, hit: Hit) -> bool:
        """Whether a call ends that was said to be unwound: the program has more than one stack for a thread."""
        for call in thread.unwound:
            if call.entry.stack == hit.stack and call.entry.function == hit.function:
                thread.unwound.remove(call)
                sums = self.sums[hit.function]
                sums.unwound -= 1
                self.tree.unwind(call.node, -1)
                sums.unknown += 1
                self.switches_stacks = True
                return True
        return False
