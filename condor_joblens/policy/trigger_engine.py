"""The triggers and what they are told: the inside of the child. Knows Lua, and events as bytes.

A run has a share of the child's time. Beyond it they are not asked about its events. So a handler that takes
long, on what one user does, delays nobody else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from condor_joblens.policy.lua_sandbox import PolicyError, error_of, open_runtime, part

MEMORY = 96 << 20  # bytes for all that is Lua's
INSTRUCTIONS = 50_000  # of one handler, once: about 0.25 ms
CHUNK = 64  # events of a run between two looks at the clock
RUN_SHARE = 0.05  # of a core, for the events of one run
RUN_SAVED = 0.1  # seconds that a run can save up
_SEPARATOR = "\x1f"
_SOURCE = part("triggers.lua")


Plain = Union[str, bool, float]


@dataclass(frozen=True)
class Test:
    """A test of a field that is known when the file is read."""

    field: str  # in small letters
    how: str  # one_of, above, below, at_least or at_most
    values: tuple[Plain, ...]  # of a text the first 32 bytes


@dataclass(frozen=True)
class Handler:
    """One `on` of a file."""

    file: str
    line: int
    kind: str
    asks: tuple[str, ...]  # the fields, or of kind metric the numbers, that its filter looks at
    tests: tuple[Test, ...]  # those of its filter that can be made before an event is sent; all must hold


@dataclass(frozen=True)
class Act:
    """What a handler wants done."""

    run: int  # its run_number
    handler: int  # its index
    verb: str
    first: str
    second: str


@dataclass(frozen=True)
class Failing:
    """A handler failed on a run."""

    run: int
    handler: int
    what: str


@dataclass
class Outcome:
    """What came of a batch."""

    acts: list[Act]
    failed: list[Failing]
    worked: list[str]  # files of which a handler was asked, and did not fail
    dropped: int  # acts that were too many at once
    skipped: dict[int, int]  # run -> its events that were beyond its share


@dataclass
class _Share:
    seconds: float = RUN_SAVED
    at: float = 0.0


class TriggerEngine:
    """Loaded triggers. Nobody but this object calls into its Lua."""

    def __init__(self, layout: Mapping[str, Any], clock: Callable[[], float] = time.thread_time) -> None:
        """`layout` is trigger_kinds.layout(); `clock` gives seconds of CPU."""
        self._lua, host = open_runtime(MEMORY, INSTRUCTIONS)
        self._clock = clock
        columns = layout["columns"]
        self._size = int(layout["size"])
        table = self._lua.table_from
        self._host = self._lua.execute(
            _SOURCE,
            host,
            INSTRUCTIONS,
            self._size,
            table({name: place for name, (place, _) in columns.items()}),
            table({name: form for name, (_, form) in columns.items()}),
            table(dict(layout["kinds"])),
            table({number: name for name, number in layout["errors"].items()}),
            table({number: name for name, number in layout["signals"].items()}),
            table({kind: table(list(words)) for kind, words in layout["ends"].items()}),
            table(list(layout["paths"])),
            name="=triggers",
        )
        self._feed, self._row = self._host.feed, self._host.row
        self._shares: dict[int, _Share] = {}
        self._now = 0.0
        self.handlers: list[Handler] = []

    def load(self, files: Iterable[tuple[str, str]]) -> list[PolicyError]:
        """Adds the handlers of (file, text); what is wrong with those that are not taken."""
        errors = []
        for file, text in files:
            try:
                answer = self._host.load(file, text)
            except Exception as error:  # lupa raises of many kinds
                answer = (None, str(error))
            if answer is not True:
                errors.append(error_of(file, 1, "", answer[1]))
        self.handlers = [_handler(self._host.handler(index + 1)) for index in range(self._host.count())]
        return errors

    @property
    def paths(self) -> list[str]:
        """The numbers that the files name: what a row has, in this order."""
        return [path for path in str(self._host.wanted()).split("\n") if path]

    def set_aside(self, files: Iterable[str]) -> None:
        """Handlers of these files are not asked any more."""
        for file in files:
            self._host.aside(file)

    def begin(self, now: float) -> None:
        """What follows happens at `now`, epoch seconds."""
        self._now = now
        local = time.localtime(now)
        self._host.time(local.tm_hour, local.tm_min, (local.tm_wday + 1) % 7)

    def introduce(self, runs: Iterable[Sequence[Any]]) -> None:
        """Whose these runs are: number, job, owner, slot, name, level."""
        for number, job, owner, slot, name, level in runs:
            self._host.introduce(number, job, owner, slot, name, level)

    def forget(self, runs: Iterable[int]) -> None:
        """These runs are over."""
        for number in runs:
            self._host.forget(number)
            self._shares.pop(number, None)

    def events(self, groups: Iterable[tuple[int, int]], events: bytes) -> Outcome:
        """Asks about events, which lie one run's after the other's: (run, how many) of each."""
        skipped: dict[int, int] = {}
        first = 0
        for run, count in groups:
            left = self._feed_run(run, events, first, count)
            if left:
                skipped[run] = left
            first += count
        return self._outcome(skipped)

    def _feed_run(self, run: int, events: bytes, first: int, count: int) -> int:
        """How many of its events were beyond the run's share."""
        share = self._share(run)
        end = first + count
        while first < end and share.seconds > 0:
            began = self._clock()
            size = min(CHUNK, end - first)
            piece = events[first * self._size : (first + size) * self._size]  # all that is passed is copied
            self._feed(run, piece, size, self._now)
            share.seconds -= self._clock() - began
            first += size
        return end - first

    def rows(self, runs: Sequence[tuple[int, str]], numbers: bytes) -> Outcome:
        """Asks about the numbers of (run, level): of each a row of little-endian float64, by `paths`."""
        width = 8 * len(self.paths)
        skipped: dict[int, int] = {}
        for place, (run, level) in enumerate(runs):
            share = self._share(run)
            if share.seconds <= 0:
                skipped[run] = 1
                continue
            began = self._clock()
            self._row(run, level, numbers[place * width : (place + 1) * width], self._now)
            share.seconds -= self._clock() - began
        return self._outcome(skipped)

    def _share(self, run: int) -> _Share:
        share = self._shares.get(run)
        if share is None:
            share = self._shares[run] = _Share(at=self._now)
        passed = max(0.0, self._now - share.at)
        share.seconds, share.at = min(RUN_SAVED, share.seconds + RUN_SHARE * passed), self._now
        return share

    def _outcome(self, skipped: dict[int, int]) -> Outcome:
        acts, failed, worked, dropped = self._host.take()
        return Outcome(
            [_act(line) for line in _lines(acts)],
            [_failing(line) for line in _lines(failed)],
            _lines(worked),
            int(dropped),
            skipped,
        )


def _lines(told: str) -> list[str]:
    return told.split("\n") if told else []


def _handler(told: tuple[Any, ...]) -> Handler:
    file, line, kind, asks, tests = told
    return Handler(file, line, kind, tuple(filter(None, asks.split("\n"))), tuple(map(_test, _lines(tests))))


def _test(line: str) -> Test:
    field, how, *values = line.split(_SEPARATOR)
    return Test(field, how, tuple(map(_plain, values)))


def _plain(told: str) -> Plain:
    sort, value = told[0], told[1:]
    return value if sort == "t" else value == "1" if sort == "b" else float(value)


def _act(line: str) -> Act:
    run, handler, verb, first, second = line.split(_SEPARATOR)
    return Act(int(run), int(handler) - 1, verb, first, second)


def _failing(line: str) -> Failing:
    run, handler, what = line.split(_SEPARATOR)
    return Failing(int(run), int(handler) - 1, what)
