"""The event log as its writers rotate it: EventLog, EventLog.1, EventLog.2, or EventLog.old.

Writers append. What they change of what is there is the first event alone, at a rotation. So a file is known again by
its inode and by what stands before the place that was read to.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace

from condor_joblens.common.errors import JobLensError
from condor_joblens.eventlog.cursor import Cursor

MOST_BYTES = 1 << 20
"""That are read at a time."""

MOST_FILES = 100
_MARK_BYTES = 256


@dataclass(frozen=True)
class Piece:
    """What stands behind a cursor."""

    data: bytes
    begin: Cursor  # where it begins
    is_end: bool  # of a file that was rotated: nothing follows in it
    lost: str = ""  # why there may be events before it that were never read

    def after(self, taken: int, sequence: int) -> Cursor:
        """The cursor when so many of its bytes are taken."""
        if not taken:
            return replace(self.begin, sequence=sequence)
        tail = self.data[max(0, taken - _MARK_BYTES) : taken]
        return Cursor(self.begin.inode, self.begin.offset + taken, _mark(tail), sequence)


class LogFiles:
    """Of one path: EVENT_LOG."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, cursor: Cursor) -> Piece | None:
        """Behind the cursor; None if there is nothing new. Raises JobLensError if the log can't be read."""
        with contextlib.ExitStack() as opened:
            files = [opened.enter_context(_opened(descriptor)) for descriptor in self._descriptors()]
            if not files:
                return None
            inodes = [os.fstat(file).st_ino for file in files]
            place, lost = _place(files, inodes, cursor)
            if lost or not cursor.inode:
                cursor = Cursor(inodes[0], 0, "", cursor.sequence)
            while True:
                data = os.pread(files[place], MOST_BYTES, cursor.offset)
                is_live = place == len(files) - 1
                if data or (is_live and lost):
                    is_end = not is_live and cursor.offset + len(data) >= os.fstat(files[place]).st_size
                    return Piece(data, cursor, is_end, lost)
                if is_live:
                    return None
                place += 1
                cursor = Cursor(inodes[place], 0, "", cursor.sequence)

    def _descriptors(self) -> Iterator[int]:
        """Of all files, opened, the oldest first: one that is rotated meanwhile stays what it is.

        The newest is opened first. What a rotation makes of it meanwhile is the same file again.
        """
        found: list[int] = []
        seen: set[tuple[int, int]] = set()
        for number in range(MOST_FILES + 1):
            names = [self._path] if number == 0 else [f"{self._path}.{number}"]
            names += [f"{self._path}.old"] if number == 1 else []
            for name in names:
                try:
                    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    for one in found:
                        os.close(one)
                    raise JobLensError(f"{name} can't be read: {error.strerror}") from None
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode) or (status.st_dev, status.st_ino) in seen:
                    os.close(descriptor)
                    continue
                seen.add((status.st_dev, status.st_ino))
                found.append(descriptor)
        return reversed(found)


@contextlib.contextmanager
def _opened(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _place(files: list[int], inodes: list[int], cursor: Cursor) -> tuple[int, str]:
    """Which file the cursor is in, and why it is in none: then all that is there is read."""
    if not cursor.inode:
        return 0, ""
    if cursor.inode not in inodes:
        return 0, "the file that was read last is gone: it was rotated away"
    place = inodes.index(cursor.inode)
    begin = max(0, cursor.offset - _MARK_BYTES)
    before = os.pread(files[place], cursor.offset - begin, begin)
    if len(before) < cursor.offset - begin:
        return 0, "the log was truncated"
    length = cursor.mark.partition(":")[0]
    if length.isdecimal() and cursor.mark != _mark(before[len(before) - int(length) :]):
        return 0, "the log was written anew"
    return place, ""


def _mark(tail: bytes) -> str:
    """Its length, and a digest."""
    return f"{len(tail)}:{hashlib.sha256(tail).hexdigest()[:32]}"
