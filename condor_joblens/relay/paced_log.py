"""The relay server's log: nobody who has a token fills it. What has no line is counted, and the sum has one."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

LINES, REFUSALS = 60, 10
"""Of one source in a minute, and of those what is refused to it."""

SECONDS = 60.0

LOOK_SECONDS = 30.0
"""Between two looks for what a log has left out in a minute that is over."""


@dataclass
class _Source:
    since: float  # CLOCK_MONOTONIC; in the minute that began then:
    lines: int = 0
    refusals: int = 0
    left_out: int = 0


class PacedLog:
    """What each source is told of. Sources are who has a token, so there are not many."""

    def __init__(self, log: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self._sources: OrderedDict[str, _Source] = OrderedDict()  # by when their minute began

    def tell(self, source: str, line: str, is_refusal: bool = False) -> None:
        """A line about this source, if it has not had its share of this minute."""
        self.sums()
        found = self._sources.setdefault(source, _Source(self._clock()))
        if found.lines >= LINES or (is_refusal and found.refusals >= REFUSALS):
            found.left_out += 1
            return
        found.lines += 1
        found.refusals += is_refusal
        self._log(line)

    def sums(self, at_once: bool = False) -> None:
        """Says how many lines were left out of each source, when its minute is over; or now."""
        now = self._clock()
        while self._sources:
            name, source = next(iter(self._sources.items()))
            if not at_once and now - source.since < SECONDS:
                return
            self._sources.popitem(last=False)
            if source.left_out:
                self._log(f"{name}: {source.left_out} more lines in a minute")


class Sums(Protocol):
    """A log that leaves lines out, and tells how many: PacedLog, and control/audit.py."""

    def sums(self, at_once: bool = False) -> None:
        """Tells it of the minutes that are over; or now."""


async def tell_sums(log: Sums) -> None:
    """For ever: whoever has flooded the log may never ask again, and has his sum none the less."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        log.sums()
