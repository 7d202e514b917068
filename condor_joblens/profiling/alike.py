"""Which threads of a job are told one by one: of those that wait alike a few, and of the rest how many they are.

A job can have ten thousand threads, most of which wait for the same. What a look says of it has few pages all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from condor_joblens.profiling.threads import Thread
from condor_joblens.profiling.verdict import Pair

MOST_THREADS = 2000
"""Threads that are told of, the first one of each process before all others."""

MOST_ALIKE, FEW_ALIKE, MANY = 64, 8, 1000
"""So many that wait alike are told of; the second, of a job with more threads than the third."""


@dataclass
class Beyond:
    """What is known when waits are: further threads to tell of, and how many others wait as one that is told of."""

    more: list[Thread] = field(default_factory=list)
    alike: dict[int, int] = field(default_factory=dict)  # number of a thread -> others
    left_out: int = 0  # threads that are in neither


def first_of(found: Sequence[Thread]) -> list[Thread]:
    """Threads that are told of at once, by what the kernel says of each, in the order of processes."""
    count = _most(found)
    counted: dict[Hashable, int] = {}
    chosen = []
    for thread in sorted(found, key=lambda thread: (not thread.is_first, thread.pid, thread.tid)):
        place = thread.registers[0] if thread.registers is not None else 0
        key = (thread.pid, thread.is_first, thread.state, thread.call, thread.kernel, place)
        counted[key] = counted.get(key, 0) + 1
        if thread.is_first or counted[key] <= count:
            chosen.append(thread)
    return sorted(chosen[:MOST_THREADS], key=lambda thread: (thread.pid, thread.tid))


def beyond(pairs: Sequence[Pair], told: Iterable[Thread], telling: Collection[int]) -> Beyond:
    """What is to be told besides; threads that tell the cause, by their numbers, in any case."""
    known = {thread.tid for thread in told}
    room, count = MOST_THREADS - len(known), _most(pairs)
    found = Beyond()
    shown: dict[Hashable, list[int]] = {}  # by what they wait for
    rest: list[tuple[Hashable, Thread]] = []
    for thread, wait in pairs:
        key = (thread.pid, thread.state, thread.call, wait.cause, wait.object, wait.holder)
        if thread.tid in known:
            shown.setdefault(key, []).append(thread.tid)
        elif thread.tid in telling:
            found.more.append(thread)
            shown.setdefault(key, []).append(thread.tid)
        else:
            rest.append((key, thread))
    for what, thread in rest:
        there = shown.setdefault(what, [])
        if len(there) < count and len(found.more) < room:
            found.more.append(thread)
            there.append(thread.tid)
        elif there:
            found.alike[there[0]] = found.alike.get(there[0], 0) + 1
        else:
            found.left_out += 1
    return found


def _most(found: Sequence[object]) -> int:
    return FEW_ALIKE if len(found) > MANY else MOST_ALIKE
