"""Each user's share of the time for requests: who has had it waits, and nobody else does."""

from __future__ import annotations

import socket
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Protocol

MAX_USERS = 256
"""Users whose share is known; of more, those who have asked for nothing for the longest time are forgotten."""


class Share(Protocol):
    """A share of the time. Times are CLOCK_MONOTONIC, where nothing else is said."""

    def spend(self, began: float) -> None:
        """Work that began then, by the clock of whoever serves, has just ended."""

    def pause(self, now: float) -> float:
        """Seconds until there is time for more."""


class Unlimited:
    """All of the time."""

    def spend(self, began: float) -> None:
        """It does not matter."""

    def pause(self, now: float) -> float:
        """None."""
        return 0.0


class UserTurns:
    """The users who have asked lately, and the connections of those who have had their share."""

    def __init__(self, share: Callable[[], Share]) -> None:
        """`share` makes the share of one user."""
        self._share = share
        self._shares: OrderedDict[int, Share] = OrderedDict()  # by uid, who has asked last at the end
        self._waiting: OrderedDict[socket.socket, int] = OrderedDict()  # -> uid, the longest waiting first

    def spend(self, uid: int, began: float) -> None:
        """What has begun then, by the clock of whoever serves, was for this user."""
        self._of(uid).spend(began)
        self._shares.move_to_end(uid)
        if len(self._shares) > MAX_USERS:
            self._shares.popitem(last=False)

    def must_wait(self, uid: int, connection: socket.socket, now: float) -> bool:
        """Whether the user has had his share; his connection comes out of `due` then, when he has time again."""
        if self._of(uid).pause(now) <= 0:
            return False
        self._waiting[connection] = uid
        return True

    def due(self, now: float) -> Iterator[tuple[socket.socket, int]]:
        """Takes out the waiting connections of users who have time, with their users."""
        for connection, uid in list(self._waiting.items()):
            if connection in self._waiting and self._of(uid).pause(now) <= 0:
                del self._waiting[connection]
                yield connection, uid

    def timeout(self, now: float) -> float:
        """Seconds until `due` has something."""
        return min((self._of(uid).pause(now) for uid in set(self._waiting.values())), default=3600.0)

    def forget(self, connection: socket.socket) -> None:
        """It is closed."""
        self._waiting.pop(connection, None)

    def _of(self, uid: int) -> Share:
        found = self._shares.get(uid)
        if found is None:
            found = self._shares[uid] = self._share()
        return found
