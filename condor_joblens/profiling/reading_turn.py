"""Of the processes that read jobs' variables, one at a time takes programs' debug information apart.

It may cost seconds of CPU. After it the next one waits, so that all of them together keep to a share of a core. When
that is stands in a page of memory that their starter has shared with all of them.
"""

from __future__ import annotations

import mmap
import struct
import time

LEASE_SECONDS = 60.0
"""For which a turn is taken at first: a reader that is ended within it keeps nobody from his for longer."""

MOST_SECONDS = 600.0
"""The longest rest after a turn. What says more was not written by a reader that is sound, and is not believed."""

_UNTIL = struct.Struct("=d")  # CLOCK_MONOTONIC, in seconds


class ReadingTurn:
    """Whose turn it is. Two that ask in the very same moment may both have it, which costs one rest and no more."""

    def __init__(self, page: mmap.mmap) -> None:
        """On a page that is shared with all who ask for the same turn."""
        self._page = page
        self._is_held = False

    def take(self) -> bool:
        """Whether files may be taken apart now, until `give_back`."""
        if not self._is_held:
            now = time.monotonic()
            (until,) = _UNTIL.unpack_from(self._page)
            if now < until <= now + MOST_SECONDS:
                return False
            self._is_held = True
            _UNTIL.pack_into(self._page, 0, now + LEASE_SECONDS)
        return True

    def give_back(self, used: float, share: float) -> bool:
        """After so many seconds of CPU, of a share of a core that all have together. Whether it was taken at all."""
        if not self._is_held:
            return False
        self._is_held = False
        _UNTIL.pack_into(self._page, 0, time.monotonic() + min(used / share, MOST_SECONDS))
        return True


def shared_page() -> mmap.mmap:
    """For all processes that are forked after this."""
    return mmap.mmap(-1, mmap.PAGESIZE)
