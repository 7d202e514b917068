"""How fast somebody may ask for more, who is no user of this machine."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

MOST_SOURCES = 4096
"""Who are known; of more, those who have asked for nothing for the longest time are forgotten."""


class Pace:
    """So many at once, and so many a second from then on; of each source."""

    def __init__(self, at_once: int, a_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._at_once, self._a_second, self._clock = at_once, a_second, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # how many still, and when that was so

    def may(self, source: str) -> bool:
        """Whether this source may have one more; that counts then."""
        now = self._clock()
        left, at = self._left.pop(source, (float(self._at_once), now))
        left = min(float(self._at_once), left + self._a_second * (now - at))
        self._left[source] = (left - 1 if left >= 1 else left), now
        if len(self._left) > MOST_SOURCES:
            self._left.popitem(last=False)
        return left >= 1
