"""How much triggers may have done for one run and on one node; what is beyond that is counted by name."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable


class Bucket:
    """Lets so many through in so many seconds, and as many at once."""

    def __init__(self, most: float, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._rate, self._clock = most, most / seconds, clock
        self._left, self._at = most, clock()

    def take(self, wanted: float = 1.0) -> bool:
        """Whether there is room for `wanted` more; they have it then."""
        now = self._clock()
        self._left = min(self._most, self._left + self._rate * (now - self._at))
        self._at = now
        if self._left < wanted:
            return False
        self._left -= wanted
        return True


class Limits:
    """Of each run and of the node, so many in so many seconds."""

    def __init__(
        self, of_run: float, of_node: float, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._of_run, self._seconds, self._clock = of_run, seconds, clock
        self._node = Bucket(of_node, seconds, clock)
        self._runs: dict[int, Bucket] = {}
        self.refused: Counter[tuple[int, str]] = Counter()
        """By run and file, since its begin."""

    def allow(self, run: int, file: str) -> bool:
        """Whether a trigger of this file may have one more done for the run."""
        bucket = self._runs.get(run)
        if bucket is None:
            bucket = self._runs[run] = Bucket(self._of_run, self._seconds, self._clock)
        if bucket.take() and self._node.take():
            return True
        self.refused[run, file] += 1
        return False

    def forget(self, run: int) -> None:
        """The run is over."""
        self._runs.pop(run, None)
        for key in [key for key in self.refused if key[0] == run]:
            del self.refused[key]
