"""How often somebody may try to log in where it costs more than a look into a table."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from condor_joblens.common.errors import JobLensError

EACH, ALL = 10, 120
"""Attempts in a minute: from one place, and from everywhere."""

AT_ONCE = 4
"""That wait for their answer."""

_SECONDS = 60.0


class TooMany(JobLensError):
    """Later, it is allowed again."""


class LoginRates:
    """Of one process. Any thread may ask."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._tried: list[tuple[float, str]] = []
        self._running = 0

    @contextlib.contextmanager
    def one(self, place: str) -> Iterator[None]:
        """An attempt. place: where it comes from. Raises TooMany."""
        with self._lock:
            now = self._clock()
            self._tried = [(when, who) for when, who in self._tried if now - when < _SECONDS]
            if len(self._tried) >= ALL or sum(who == place for _, who in self._tried) >= EACH:
                raise TooMany("there were too many attempts to log in: wait a minute")
            if self._running >= AT_ONCE:
                raise TooMany("others are logging in: try again in some seconds")
            self._tried.append((now, place))
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
