"""Who holds the file lock for which a process waits, by /proc/locks."""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST_LINES = 100_000


@dataclass(frozen=True)
class FileLock:
    """A line of /proc/locks: a lock that is held, or that is waited for."""

    number: str  # a lock and those who wait for it have the same
    waits: bool
    kind: str  # FLOCK, POSIX, OFDLCK, LEASE ...
    access: str  # READ or WRITE
    pid: int  # -1 of a lock that belongs to an open file
    inode: int


_LINE = re.compile(r"(\d+): (->)?\s*(\w+)\s+\w+\s+(\w+)\s+(-?\d+)\s+(?:[0-9a-f]+:[0-9a-f]+:(\d+)|<none>:0)\s.*")


def parse(text: str) -> list[FileLock]:
    """All locks that the kernel tells us of; lines of another form are left out."""
    found = []
    for line in text.splitlines()[:MOST_LINES]:
        # those who wait for one that waits itself stand further to the right
        match = _LINE.fullmatch(re.sub(r"\s+->", " ->", line.strip(), count=1))
        if match is not None:
            number, arrow, kind, access, pid, inode = match.groups()
            found.append(FileLock(number, bool(arrow), kind, access, int(pid), int(inode or 0)))
    return found


def holders(locks: list[FileLock], pid: int, inode: int, of_open_file: bool = False) -> list[FileLock]:
    """The locks that are in the way of the one for which this process waits; `inode` of its file, 0: unknown.

    The table names nobody who waits for a lock of an open file (F_OFD_SETLKW): such a lock is found by its file alone.
    """
    if of_open_file:
        waiting = [lock for lock in locks if lock.waits and lock.kind == "OFDLCK" and inode and lock.inode == inode]
    else:
        waiting = [lock for lock in locks if lock.waits and lock.pid == pid and (not inode or lock.inode == inode)]
    numbers = {lock.number for lock in waiting}
    return [lock for lock in locks if not lock.waits and lock.number in numbers]
