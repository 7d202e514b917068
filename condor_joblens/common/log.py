"""HTCondor's kind of log: a line a message with the local time before it, rotated to `.old` by size."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time

from condor_joblens.common.errors import printable

GREATEST = 10_000_000
"""Bytes after which a log is rotated, as HTCondor does (MAX_DEFAULT_LOG)."""

LONGEST = 2000
"""Characters of the longest message; the rest of it is cut."""

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_log(path: str | None, owner: tuple[int, int] | None = None, greatest: int = GREATEST) -> Log:
    """The log at `path`, belonging to `owner` (user and group id); standard error where there is no path.

    Never raises: what can't be opened is said on standard error, which is then the log.
    """
    return Log(path, owner, greatest)


class Log:
    """Call it with a message. It never raises and never waits: a full disk costs the message."""

    def __init__(self, path: str | None, owner: tuple[int, int] | None, greatest: int) -> None:
        self._greatest = greatest
        self._file, self._old = sys.stderr.fileno(), -1
        if path:
            self.reopen(path, owner)

    def reopen(self, path: str, owner: tuple[int, int] | None = None) -> None:
        """Goes on at `path`, e.g. after a reconfiguration; where it can't be opened, where the log was."""
        try:
            file, old = _open(path, owner), _open(f"{path}.old", owner)
        except OSError as error:
            self(f"{path} can't be opened as a log: {error.strerror}; the log goes on here")
            return
        if self._old >= 0:
            os.close(self._file)
            os.close(self._old)
        self._file, self._old = file, old

    def __call__(self, message: str) -> None:
        line = f"{time.strftime('%m/%d/%y %H:%M:%S')} {printable(message, LONGEST)}\n"
        with contextlib.suppress(OSError):
            os.write(self._file, line.encode())
            if self._old >= 0 and os.fstat(self._file).st_size > self._greatest:
                self._rotate()

    def _rotate(self) -> None:
        # Both files are open since before privileges were dropped; the folder may not be ours to rename in.
        os.ftruncate(self._old, 0)
        with open(f"/proc/self/fd/{self._file}", "rb") as file:
            while block := file.read(1 << 20):
                os.write(self._old, block)
        os.ftruncate(self._file, 0)


def _open(path: str, owner: tuple[int, int] | None) -> int:
    """Opens for appending. The folder may be another user's: nothing that he links there is written."""
    file = os.open(path, _APPEND, 0o644)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise OSError(0, "it is no plain file, or one with two names")
        if owner and (status.st_uid, status.st_gid) != owner:
            os.fchown(file, *owner)
    except BaseException:
        os.close(file)
        raise
    return file
