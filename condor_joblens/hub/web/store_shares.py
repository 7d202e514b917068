"""Each viewer's share of the store's time: whoever asks ever new questions waits, and nobody else does."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from condor_joblens.hub.web.shared import OfOneViewer

T = TypeVar("T")

SHARE = 0.4
"""Seconds of the store a second: some pages that are open, over 200,000 runs."""

SAVED = 30.0
"""Seconds that are saved up while a viewer asks for nothing."""


MOST_OF_AN_ANSWER = 10.0
"""Seconds that are put down to a viewer for one: in more than that he has waited for others."""


class StoreShares:
    """Of the people who have asked lately. Any thread may ask."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}  # name of a person -> seconds that were left, and when
        self._lock = threading.Lock()

    def take(self, name: str, ask: Callable[[], T]) -> T:
        """What `ask` says, in this person's time. Raises OfOneViewer if there is none left."""
        left = self._left_of(name)
        if left < 0:
            seconds = math.ceil(-left / SHARE)
            raise OfOneViewer(f"your questions have kept the hub busy: the next one is answered in {seconds} s")
        begin = self._clock()
        said = ask()  # a store that fails is nobody's fault who asks
        took = min(MOST_OF_AN_ANSWER, self._clock() - begin)
        with self._lock:
            self._left[name] = self._now(name) - took, self._clock()
            self._forget()
        return said

    def _left_of(self, name: str) -> float:
        with self._lock:
            return self._now(name)

    def _now(self, name: str) -> float:
        left, at = self._left.get(name, (SAVED, self._clock()))
        return min(SAVED, left + SHARE * (self._clock() - at))

    def _forget(self) -> None:
        """Who has all of his share again is as one who never asked."""
        for name in [name for name in self._left if self._now(name) >= SAVED]:
            del self._left[name]
