"""What each run has of something that is bounded for all: who has most gives way.

The sums are kept as things come and go, so that a question about them does not look at all that is there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import chain


@dataclass
class _Run:
    """What a run has: the sum of its parts, and things by number, the one used least lately first."""

    sum: int = 0
    own: OrderedDict[int, None] = field(default_factory=OrderedDict)
    shared: OrderedDict[int, None] = field(default_factory=OrderedDict)  # with other runs


@dataclass
class _Thing:
    cost: int
    runs: set[int]

    @property
    def part(self) -> int:
        """Each run's."""
        return self.cost // len(self.runs)


class FairShares:
    """Things by number, with what they cost. Of one that several runs have, each has its part."""

    def __init__(self) -> None:
        self._things: dict[int, _Thing] = {}
        self._runs: dict[int, _Run] = {}
        self.changes = 0
        """How often anything has come, gone, or got another run."""

    def put(self, number: int, cost: int, runs: Collection[int]) -> None:
        """A new thing, of one run or more."""
        self.remove(number)
        self._enter(number, _Thing(cost, set(runs)))

    def remove(self, number: int) -> None:
        """It is gone, if it was there."""
        thing = self._things.get(number)
        if thing is not None:
            self._leave(number, thing)

    def use(self, number: int, run: int) -> None:
        """A run of a thing has used it now."""
        if number in self._things:
            held = self._runs[run]
            (held.own if number in held.own else held.shared).move_to_end(number)

    def change_runs(self, number: int, runs: Collection[int]) -> None:
        """A thing has these runs now, if it is there; without any it is gone."""
        thing = self._things.get(number)
        if thing is not None and thing.runs != set(runs):
            self._leave(number, thing)
            if runs:
                self._enter(number, _Thing(thing.cost, set(runs)))

    def of(self, run: int) -> list[int]:
        """Numbers of all that a run has."""
        held = self._runs.get(run)
        return [] if held is None else [*held.own, *held.shared]

    def to_go(self, run: int, wanted: int, free: int, *, may_be_own: bool) -> list[int] | None:
        """What has to go so that `wanted` more are free for a run; None if that would not be fair.

        Of the run that has most it is what it used least lately, and what nobody else has first. None: `run` itself
        would have most, or as much as any other, and nothing of its own can go.
        """
        if free >= wanted:
            return []
        sums = {each: held.sum for each, held in self._runs.items()}
        sums[run] = sums.get(run, 0) + wanted
        gone: dict[int, None] = {}
        left: dict[int, Iterator[int]] = {}
        while free < wanted:
            most = max(sums, key=lambda each: (sums[each], each == run))
            if most == run and not may_be_own:
                return None
            candidates = left.setdefault(most, self._candidates(most, only_own=most == run))
            number = next((each for each in candidates if each not in gone), None)
            if number is None:
                return None
            gone[number] = None
            thing = self._things[number]
            free += thing.cost
            for each in thing.runs:
                sums[each] -= thing.part
        return [*gone]

    def _candidates(self, run: int, *, only_own: bool) -> Iterator[int]:
        held = self._runs.get(run, _Run())
        return iter(held.own) if only_own else chain(held.own, held.shared)

    def _enter(self, number: int, thing: _Thing) -> None:
        self.changes += 1
        self._things[number] = thing
        for run in thing.runs:
            held = self._runs.setdefault(run, _Run())
            held.sum += thing.part
            (held.own if len(thing.runs) == 1 else held.shared)[number] = None

    def _leave(self, number: int, thing: _Thing) -> None:
        self.changes += 1
        del self._things[number]
        for run in thing.runs:
            held = self._runs[run]
            held.sum -= thing.part
            del (held.own if number in held.own else held.shared)[number]
            if not held.own and not held.shared:
                del self._runs[run]
