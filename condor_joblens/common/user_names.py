"""Names of users by their ids. They can come from a directory service, so from a socket: joblensd has another ask."""

from __future__ import annotations

import pwd
import time
from collections.abc import Callable
from typing import Optional

KEPT, KEPT_SECONDS = 256, 60.0
"""So many names, and so long, are not asked for again: whoever asks joblensd for something may do so often."""

LookUp = Callable[[int], Optional[str]]


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
        self._known: dict[int, tuple[float, str | None]] = {}  # until when, by time.monotonic()

    def name_of(self, uid: int) -> str | None:
        """The user's name; None if there is none."""
        now = time.monotonic()
        until, name = self._known.get(uid, (0.0, None))
        if now >= until:
            if len(self._known) >= KEPT:
                self._known.clear()
            name = self.look_up(uid)
            self._known[uid] = now + KEPT_SECONDS, name
        return name


NAMES = UserNames()
"""Those of this process."""
