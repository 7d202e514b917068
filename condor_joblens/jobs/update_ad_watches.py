"""Tells when somebody puts a new `.update.ad` into a job's folder: an event of the kernel's (inotify), not a poll."""

from __future__ import annotations

import ctypes
import os
import struct

NAME = b".update.ad"

# include/uapi/linux/inotify.h
_IN_CLOEXEC, _IN_NONBLOCK = 0o2000000, 0o4000
_IN_MOVED_TO, _IN_CLOSE_WRITE = 0x80, 0x8
_HEADER = struct.Struct("iIII")  # watch, what happened, cookie, length of the name

_libc = ctypes.CDLL(None, use_errno=True)


class Watches:
    """The folders of many jobs; each watch is a number."""

    def __init__(self) -> None:
        """Raises OSError where the user's inotify instances are used up."""
        self._descriptor = _libc.inotify_init1(_IN_CLOEXEC | _IN_NONBLOCK)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")

    def fileno(self) -> int:
        """Readable when there is something to take."""
        return int(self._descriptor)

    def add(self, folder: int) -> int | None:
        """Watches the open folder; None where it can't be (too many watches: fs.inotify.max_user_watches)."""
        path = f"/proc/self/fd/{folder}".encode()
        watch = int(_libc.inotify_add_watch(self._descriptor, path, _IN_MOVED_TO | _IN_CLOSE_WRITE))
        return None if watch < 0 else watch

    def remove(self, watch: int) -> None:
        """Forgets a folder; one that is gone has been forgotten by itself."""
        _libc.inotify_rm_watch(self._descriptor, watch)

    def take(self) -> set[int]:
        """The watches in whose folder an `.update.ad` has been put since the last call, by whomever.

        Of at most one read: a job that writes many files in its folder could otherwise keep us here for ever.
        """
        try:
            events = os.read(self._descriptor, 1 << 16)
        except BlockingIOError:
            return set()
        found: set[int] = set()
        position = 0
        while position < len(events):
            watch, _, _, length = _HEADER.unpack_from(events, position)
            position += _HEADER.size
            if events[position : position + length].rstrip(b"\0") == NAME:
                found.add(watch)
            position += length
        return found
