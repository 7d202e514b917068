"""How much triggers may have done: for a run, for a user, and on the node. What is beyond is counted by name.

A user's share is less than the node's, and once half of the node's is used up, it is what one run may have. So the
jobs of a few users leave room for what happens in other users' jobs.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

MOST_USERS = 256
"""Whose share is known; of more, the one who has had nothing done for the longest time begins anew."""

_WHILE_BUSY = " for all jobs of this user on a busy node"


class Bucket:
    """Lets so many through in so many seconds, and as many at once."""

    def __init__(self, most: float, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._rate, self._clock = most, most / seconds, clock
        self._left, self._at = most, clock()

    def has(self, wanted: float = 1.0) -> bool:
        """Whether there is room for `wanted` more."""
        now = self._clock()
        self._left = min(self._most, self._left + self._rate * (now - self._at))
        self._at = now
        return self._left >= wanted

    def take(self, wanted: float = 1.0) -> bool:
        """The same; they have it then."""
        if not self.has(wanted):
            return False
        self._left -= wanted
        return True

    def used(self) -> float:
        """How many of those that were let through lately still count."""
        self.has()
        return self._most - self._left


@dataclass(frozen=True)
class Bounds:
    """So many in so many seconds."""

    of_run: int
    of_user: int
    of_node: int
    seconds: float
    said: str
    """What is said of what is beyond, with {} in the place of the number and of whose it is."""


class Limits:
    """Of each run, of each user and of the node."""

    def __init__(self, bounds: Bounds, clock: Callable[[], float] = time.monotonic) -> None:
        self._bounds, self._clock = bounds, clock
        self._node = self._bucket(bounds.of_node)
        self._runs: dict[int, Bucket] = {}
        self._users: OrderedDict[int | None, Bucket] = OrderedDict()  # who has had something done last at the end
        self.refused: Counter[tuple[int, str, str]] = Counter()
        """By run, file and what was used up, since the run's begin."""

    def why_not(self, run: int, user: int | None, file: str) -> str:
        """Empty: a trigger of this file may have one more done for this run of the user; else which bound it is beyond.

        Runs whose user nobody knows have one share.
        """
        if run not in self._runs:
            self._runs[run] = self._bucket(self._bounds.of_run)
        if user not in self._users:
            self._users[user] = self._bucket(self._bounds.of_user)
            if len(self._users) > MOST_USERS:
                self._users.popitem(last=False)
        buckets = self._runs[run], self._users[user], self._node
        beyond = self._beyond(*buckets)
        if beyond:
            self.refused[run, file, beyond] += 1
            return beyond
        for bucket in buckets:
            bucket.take()
        self._users.move_to_end(user)
        return ""

    def _beyond(self, of_run: Bucket, of_user: Bucket, of_node: Bucket) -> str:
        """Which bound has no room for one more; empty: all have."""
        bounds = self._bounds
        is_busy = of_node.used() >= bounds.of_node / 2
        each = (
            (of_run.has(), bounds.of_run, ""),
            (of_user.has(), bounds.of_user, " for all jobs of this user"),
            (not is_busy or of_user.used() + 1 <= bounds.of_run, bounds.of_run, _WHILE_BUSY),
            (of_node.has(), bounds.of_node, " for all jobs of this node"),
        )
        return next((bounds.said.format(most, whose) for has, most, whose in each if not has), "")

    def forget(self, run: int) -> None:
        """The run is over; what it has had done counts for its user still."""
        self._runs.pop(run, None)
        for key in [key for key in self.refused if key[0] == run]:
            del self.refused[key]

    def _bucket(self, most: float) -> Bucket:
        return Bucket(most, self._bounds.seconds, self._clock)
