"""inotify: the kernel reports what happens to files and folders, so that nobody needs to poll."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator

# include/uapi/linux/inotify.h
MODIFY, CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x2, 0x8, 0x40, 0x80, 0x100, 0x200
OVERFLOW, IGNORED, IS_FOLDER = 0x4000, 0x8000, 0x40000000

_CLOEXEC, _NONBLOCK = 0o2000000, 0o4000
_HEADER = struct.Struct("iIII")  # watch, what happened, cookie, length of the name
_READ_BYTES = 1 << 16

_libc = ctypes.CDLL(None, use_errno=True)


def add_watch(instance: int, path: bytes, what: int) -> int | None:
    """Adds a watch to the inotify instance with this descriptor: see Inotify.add."""
    watch = int(_libc.inotify_add_watch(instance, path, what))
    return None if watch < 0 else watch


class Inotify:
    """One inotify instance. Each watch in it is a number."""

    def __init__(self) -> None:
        """Raises OSError if the user's inotify instances are used up (fs.inotify.max_user_instances)."""
        self._descriptor = int(_libc.inotify_init1(_CLOEXEC | _NONBLOCK))
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")

    def fileno(self) -> int:
        """Readable when there is something to take."""
        return self._descriptor

    def add(self, path: str, what: int) -> int | None:
        """Watches a file or folder for `what`, a sum of the words above. None if it can't be watched.

        It can be gone, or the user has too many watches (fs.inotify.max_user_watches).
        """
        return add_watch(self._descriptor, os.fsencode(path), what)

    def remove(self, watch: int) -> None:
        """Ends a watch. The kernel has done that already if the file is gone."""
        _libc.inotify_rm_watch(self._descriptor, watch)

    def take(self) -> Iterator[tuple[int, int, bytes]]:
        """Watch, what happened, and the file's name in a watched folder, for each event since the last call.

        With OVERFLOW, whose watch is -1, the kernel says that it had no room for events (fs.inotify.max_queued_events):
        anything can have happened in any watched folder.

        One read at most: whoever causes events without end must not keep us here.
        """
        try:
            events = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        position = 0
        while position < len(events):
            watch, what, _, length = _HEADER.unpack_from(events, position)
            position += _HEADER.size
            yield watch, what, events[position : position + length].rstrip(b"\0")
            position += length

    def close(self) -> None:
        """Gives the descriptor back."""
        os.close(self._descriptor)
