"""How much triggers may have done: for a run, for a user, and on the node. What is beyond is counted by name.

A user's share is less than the node's: his jobs leave room for what happens in other users' jobs.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

MOST_USERS = 256
"""Whose share is known; of more, the one who has had nothing done for the longest time begins anew."""


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
        bounds = self._bounds
        each = (
            (self._runs[run], bounds.of_run, ""),
            (self._users[user], bounds.of_user, " for all jobs of this user"),
            (self._node, bounds.of_node, " for all jobs of this node"),
        )
        for bucket, most, whose in each:
            if not bucket.has():
                words = bounds.said.format(most, whose)
                self.refused[run, file, words] += 1
                return words
        for bucket, _, _ in each:
            bucket.take()
        self._users.move_to_end(user)
        return ""

    def forget(self, run: int) -> None:
        """The run is over; what it has had done counts for its user still."""
        self._runs.pop(run, None)
        for key in [key for key in self.refused if key[0] == run]:
            del self.refused[key]

    def _bucket(self, most: float) -> Bucket:
        return Bucket(most, self._bounds.seconds, self._clock)
