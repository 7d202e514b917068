"""What strangers can make joblensd do gets a share of its time, and no more.

Anybody on the machine may connect to the activation socket, and up to HTCondor 23 the folder that we watch for
`.update.ad` is the job's own. joblensd has real-time priority: without a bound whoever wants one would have a core.
"""

from __future__ import annotations

import selectors
import signal
import time
from collections.abc import Callable

SHARE = 0.1
"""Of the time, for each of those who are paced."""

SAVED = 0.5
"""Seconds of work that are saved up while little comes: some hundred jobs that start together don't wait."""

INTERRUPT = 0.01
"""Seconds after which a system call within the work is interrupted. Whoever sends a descriptor over a socket decides
what closing it takes: minutes, for a TCP connection with SO_LINGER whose peer does not read."""


class Paced:
    """A selector within the loop's: what is registered with `selector` is served for SHARE of the time."""

    def __init__(self, outer: selectors.BaseSelector) -> None:
        self.selector = selectors.EpollSelector()
        self._outer = outer
        self._saved, self._since = SAVED, time.monotonic()
        self._rests = False
        outer.register(self.selector, selectors.EVENT_READ, lambda: self.run(self._serve))

    def _serve(self) -> None:
        for key, _ in self.selector.select(0):
            key.data()

    def run(self, work: Callable[[], object]) -> None:
        """Works, and rests afterwards where that took more than there was. SIGALRM must have a handler."""
        began = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, INTERRUPT, INTERRUPT)
        try:
            work()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        now = time.monotonic()
        self._saved = min(SAVED, self._saved + SHARE * (began - self._since)) - (now - began)
        self._since = now
        if self._saved < 0 and not self._rests:
            self._outer.unregister(self.selector)
            self._rests = True

    def timeout(self, now: float) -> float:
        """Seconds until `resume` has something to do; `now` is time.monotonic()."""
        return max(0.0, self._since - self._saved / SHARE - now) if self._rests else 3600.0

    def resume(self, now: float) -> None:
        """Goes on serving when it has rested enough."""
        if self._rests and self.timeout(now) == 0:
            self._outer.register(self.selector, selectors.EVENT_READ, lambda: self.run(self._serve))
            self._rests = False
