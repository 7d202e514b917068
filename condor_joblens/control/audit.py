"""The lines about commands in joblensd's log. Every command that is granted has one, so a user has so many a minute.

Of refusals each user's first ones in a minute have a line, and a sum comes after it: they cost nothing to ask for.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from condor_joblens.control.verbs import Refused

IN_A_ROW = 30
A_SECOND = 1.0
"""Commands that a user may ask for at once, after a pause, and from then on. Root is trusted."""

REFUSALS = 10
REFUSALS_SECONDS = 60.0

MOST_USERS = 256
"""Users who are known; of more, those who have asked for nothing for the longest time are forgotten."""


@dataclass
class _User:
    left: float  # commands that he may still ask for
    at: float  # when that was so, CLOCK_MONOTONIC
    refused: int = 0  # in the minute that began then:
    since: float = 0.0


class Audit:
    """What users have asked for lately."""

    def __init__(self, log: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self._users: OrderedDict[int, _User] = OrderedDict()

    def pace(self, uid: int) -> None:
        """Counts a command of this user. Raises Refused if there were too many."""
        if uid == 0:
            return
        user, now = self._of(uid), self._clock()
        user.left = min(float(IN_A_ROW), user.left + A_SECOND * (now - user.at))
        user.at = now
        if user.left < 1:
            raise Refused(f"you have asked for {IN_A_ROW} commands: from now on one a second")
        user.left -= 1

    def granted(self, line: str) -> None:
        """What is being done, by whom, in which run."""
        self._log(line)

    def refused(self, uid: int, line: str) -> None:
        """What is not done, who has asked, and why."""
        user, now = self._of(uid), self._clock()
        if now - user.since >= REFUSALS_SECONDS:
            self._sum(uid, user)
            user.refused, user.since = 0, now
        user.refused += 1
        if user.refused <= REFUSALS:
            self._log(line)

    def _sum(self, uid: int, user: _User) -> None:
        if user.refused > REFUSALS:
            self._log(f"user {uid}: {user.refused - REFUSALS} more commands were refused in a minute")

    def _of(self, uid: int) -> _User:
        found = self._users.get(uid)
        if found is None:
            found = self._users[uid] = _User(float(IN_A_ROW), self._clock(), since=self._clock())
            if len(self._users) > MOST_USERS:
                self._sum(*self._users.popitem(last=False))
        self._users.move_to_end(uid)
        return found
