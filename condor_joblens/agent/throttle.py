"""A share of joblensd's time, and no more, for what any user of the machine can make it do.

Any user may connect to the control socket, and up to HTCondor 23 the folder in which joblensd watches for
`.update.ad` is the job's own. joblensd weighs more than jobs do: without a bound one user could take a whole core.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable

from condor_joblens.common.signals import interrupting
from condor_joblens.common.working_time import WorkingTime

SHARE = 0.1
"""Share of the time for each throttle."""

BURST_SECONDS = 0.5
"""Seconds of work that a throttle saves up while it is idle: some hundred jobs that start together don't wait."""

TURN_SECONDS = 0.002
"""Seconds of work after which the rest waits for the next turn of the loop. A run may have ended meanwhile, and its
starter looks for the last numbers after six milliseconds."""


working_time = WorkingTime()
"""By which shares are kept; of joblensd's own thread, and opened before that can open nothing any more."""


class TimeShare:
    """A share of the time for work of one kind; `most` seconds of it are saved up while there is none.

    That joblensd has to wait for a core is not put down to anybody: it is what others do to it.
    """

    def __init__(self, most: float = BURST_SECONDS, share: float = SHARE) -> None:
        self._most, self._share = most, share
        self._saved, self._since = most, time.monotonic()

    def spend(self, began: float) -> None:
        """Work that began then, by `working_time`, has just ended."""
        self.take(max(0.0, working_time() - began))  # it reads two clocks, one after the other

    def take(self, took: float) -> None:
        """Work that has taken so many seconds has just ended."""
        now = time.monotonic()
        self._saved = min(self._most, self._saved + self._share * (now - took - self._since)) - took
        self._since = now

    def pause(self, now: float) -> float:
        """Seconds until there is time for more."""
        return max(0.0, self._since - self._saved / self._share - now) if self._saved < 0 else 0.0


class Throttle:
    """A selector within the loop's: what is registered with `selector` is served for SHARE of the time."""

    def __init__(self, outer: selectors.BaseSelector) -> None:
        self.selector = selectors.EpollSelector()
        self._outer = outer
        self._share = TimeShare()
        self._is_paused = False
        self._served = -1  # the last descriptor that was served
        outer.register(self.selector, selectors.EVENT_READ, lambda: self.run(self._serve))

    def _serve(self) -> None:
        until = time.monotonic() + TURN_SECONDS
        # what is left is ready in the next turn too, and comes first then
        ready = sorted((key for key, _ in self.selector.select(0)), key=lambda key: (key.fd <= self._served, key.fd))
        for key in ready:
            self._served = key.fd
            key.data()
            if time.monotonic() > until:
                break

    def run(self, work: Callable[[], object]) -> None:
        """Does the work, and pauses if that took more time than was left. SIGALRM must have a handler."""
        began = working_time()
        with interrupting():
            work()
        self._share.spend(began)
        if self._share.pause(time.monotonic()) > 0 and not self._is_paused:
            self._outer.unregister(self.selector)
            self._is_paused = True

    @property
    def is_paused(self) -> bool:
        """Whether nothing is served now."""
        return self._is_paused

    def timeout(self, now: float) -> float:
        """Seconds until `resume` has something to do; `now` is time.monotonic()."""
        return self._share.pause(now) if self._is_paused else 3600.0

    def resume(self, now: float) -> None:
        """Serves again if the pause is over."""
        if self._is_paused and self.timeout(now) == 0:
            self._outer.register(self.selector, selectors.EVENT_READ, lambda: self.run(self._serve))
            self._is_paused = False
