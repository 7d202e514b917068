"""Names of users by their ids. They can come from a directory service, which may be slow: joblensd waits for none.

A process that may wait looks names up itself. joblensd has another process ask (`ask`), and goes on: until that knows a
name, the last one is used, or none. So nothing that matters is told from a name but whose artifacts of old runs are.
"""

from __future__ import annotations

import pwd
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from typing import Optional

from condor_joblens.common import privilege

KEPT, KEPT_SECONDS = 256, 60.0
"""So many names, and so long, are not asked for again: whoever asks joblensd for something may do so often."""

AT_ONCE, MOST_WANTED = 4, 64
"""Names that are asked for at a time, and those that are to be asked for: of more nobody asks."""

NOBODY = 65534
"""The kernel's overflow user id, and on most machines that of the user nobody."""

LookUp = Callable[[int], Optional[str]]


@cache
def nobodys() -> frozenset[int]:
    """As these ids run jobs of several people: none of them is the owner of the others' jobs. Looked up once."""
    found = privilege.user("nobody")
    return frozenset({NOBODY} if found is None else {NOBODY, found.pw_uid})


def of_this_process(uid: int) -> str | None:
    """The name, as the C library finds it; None if there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


class UserNames:
    """Names that are looked up by `look_up`, which can be replaced."""

    def __init__(self, look_up: LookUp = of_this_process) -> None:
        self.look_up = look_up
        self.ask: Callable[[int], object] | None = None
        """Has somebody else look a name up, and returns at once; `learn` is called later. None: `look_up` does it."""
        self._known: OrderedDict[int, tuple[float, str | None]] = OrderedDict()  # until when, by time.monotonic()
        self._wanted: OrderedDict[int, list[Callable[[], object]]] = OrderedDict()  # -> who waits; the first are asked

    def name_of(self, uid: int) -> str | None:
        """The user's name; None if there is none, or none is known yet."""
        if uid == 0:
            return "root"
        until, name = self._known.get(uid, (0.0, None))
        if time.monotonic() < until:
            return name
        if self.ask is None:
            name = self.look_up(uid)
            self._keep(uid, name)
        elif uid not in self._wanted and len(self._wanted) < MOST_WANTED:
            self._wanted[uid] = []
            if len(self._wanted) <= AT_ONCE:
                self.ask(uid)
        return name

    def is_awaited(self, uid: int, then: Callable[[], object]) -> bool:
        """Whether somebody else looks the name up now. `then` is called after that; it is not to raise."""
        self.name_of(uid)
        if uid not in self._wanted:
            return False
        self._wanted[uid].append(then)
        return True

    def learn(self, uid: int, name: str | None) -> None:
        """What somebody else has found."""
        self._keep(uid, name)
        if uid not in self._wanted:
            return
        waiting = self._wanted.pop(uid)
        if self.ask is not None and len(self._wanted) >= AT_ONCE:
            self.ask(list(self._wanted)[AT_ONCE - 1])
        for then in waiting:
            then()

    def _keep(self, uid: int, name: str | None) -> None:
        self._known[uid] = time.monotonic() + KEPT_SECONDS, name
        self._known.move_to_end(uid)
        if len(self._known) > KEPT:
            self._known.popitem(last=False)


NAMES = UserNames()
"""Those of this process."""
