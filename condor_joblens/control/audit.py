"""The lines about commands in joblensd's log. Every command that is granted has one, so a user has so many a minute.

Of refusals the first ones of each user, and of all, have a line in a minute, and a sum comes when it is over. They cost
nothing to ask for, and one person can have thousands of user ids (subuid(5)).
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from condor_joblens.common.errors import printable
from condor_joblens.control.verbs import Payer, Refused

IN_A_ROW = 30
A_SECOND = 1.0
"""Commands that a user may ask for at once, after a pause, and from then on. Root is trusted."""

REFUSALS, REFUSALS_OF_ALL = 10, 60
"""Lines of refusals of one user, and of all of them, sums included, in REFUSALS_SECONDS."""

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
        self._users: OrderedDict[Payer, _User] = OrderedDict()
        self._lines, self._left_out, self._since = 0, 0, clock()  # of refusals, in the minute that began then
        self._due = math.inf  # by the clock: a minute is over of which a sum is to be told

    def pace(self, uid: Payer) -> None:
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

    def refused(self, uid: Payer, line: str) -> None:
        """What is not done, who has asked, and why."""
        user, now = self._of(uid), self._clock()
        if now - user.since >= REFUSALS_SECONDS:
            self._sum(uid, user)
            user.refused, user.since = 0, now
        user.refused += 1
        if user.refused <= REFUSALS:
            self._tell(line)
        else:
            self._due = min(self._due, user.since + REFUSALS_SECONDS)

    def timeout(self) -> float:
        """Seconds until `sums` has something to tell; an hour at most."""
        return min(3600.0, max(0.0, self._due - self._clock()))

    def sums(self, at_once: bool = False) -> None:
        """Tells of the minutes that are over how many refusals had no line; or of those that are not yet, too.

        To be called when `timeout` is over: who has flooded the log may never ask again.
        """
        now = self._clock()
        if now < self._due and not (at_once and self._due < math.inf):
            return
        for uid, user in self._users.items():
            if user.refused > REFUSALS and (at_once or now - user.since >= REFUSALS_SECONDS):
                self._sum(uid, user)
                user.refused, user.since = 0, now
        if self._left_out and (at_once or now - self._since >= REFUSALS_SECONDS):
            self._begin_minute(now)
        self._due = min(
            [user.since + REFUSALS_SECONDS for user in self._users.values() if user.refused > REFUSALS]
            + [self._since + REFUSALS_SECONDS if self._left_out else math.inf]
        )

    def _sum(self, uid: Payer, user: _User) -> None:
        if user.refused > REFUSALS:
            self._tell(f"{_named(uid)}: {user.refused - REFUSALS} more commands were refused in a minute")

    def _tell(self, line: str) -> None:
        """A line of a refusal, if there were not too many of them."""
        now = self._clock()
        if now - self._since >= REFUSALS_SECONDS:
            self._begin_minute(now)
        self._lines += 1
        if self._lines <= REFUSALS_OF_ALL:
            self._log(line)
        else:
            self._left_out += 1
            self._due = min(self._due, self._since + REFUSALS_SECONDS)

    def _begin_minute(self, now: float) -> None:
        left_out, self._lines, self._left_out, self._since = self._left_out, 0, 0, now
        if left_out:
            self._log(f"{left_out} more lines about refused commands of many users were left out")

    def _of(self, uid: Payer) -> _User:
        found = self._users.get(uid)
        if found is None:
            found = self._users[uid] = _User(float(IN_A_ROW), self._clock(), since=self._clock())
            if len(self._users) > MOST_USERS:
                self._sum(*self._users.popitem(last=False))
        self._users.move_to_end(uid)
        return found


def _named(who: Payer) -> str:
    if isinstance(who, str):
        return printable(who, 100)
    return f"user {who}" if who >= 0 else "people afar"
