"""How often somebody may try to log in where it costs more than a look into a table."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

from condor_joblens.common.errors import JobLensError

EACH, ALL = 10, 120
"""Attempts in a minute, of each way to log in: from one place, and from everywhere."""

AT_ONCE = 4
"""That wait for their answer, of each way: a schedd that does not answer keeps nobody from the OpenID provider."""

_SECONDS = 60.0


class TooMany(JobLensError):
    """Later, it is allowed again."""


class LoginRates:
    """Of one process. Any thread may ask."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._tried: list[tuple[float, str, str]] = []
        self._running: Counter[str] = Counter()

    @contextlib.contextmanager
    def one(self, way: str, place: str) -> Iterator[None]:
        """An attempt. way: to log in. place: where it comes from. Raises TooMany."""
        with self._lock:
            now = self._clock()
            self._tried = [one for one in self._tried if now - one[0] < _SECONDS]
            places = [where for _, how, where in self._tried if how == way]
            if len(places) >= ALL or places.count(place) >= EACH:
                raise TooMany("there were too many attempts to log in: wait a minute")
            if self._running[way] >= AT_ONCE:
                raise TooMany("others are logging in: try again in some seconds")
            self._tried.append((now, way, place))
            self._running[way] += 1
        try:
            yield
        finally:
            with self._lock:
                self._running[way] -= 1
