"""A daemon's log in HTCondor's form: one line a message, with the local time before it, rotated to `.old` by size."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
from collections.abc import Callable

from condor_joblens.common.errors import printable
from condor_joblens.common.log_settings import DEFAULT, Flags
from condor_joblens.common.privilege import as_owner

LONGEST = 2000
"""Characters of the longest message. The rest of it is cut."""

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_log(path: str | None, owner: tuple[int, int] | None = None, greatest: int = DEFAULT.greatest_bytes) -> Log:
    """The log at `path`, which belongs to `owner` (user and group id). Without a path it is standard error.

    Never raises. If the file can't be opened, standard error says so and is the log.
    """
    return Log(path, owner, greatest)


class Log:
    """Call it with a message of HTCondor's category D_ALWAYS. It never raises and never waits.

    A full disk costs the message. Any thread may call it.
    """

    def __init__(self, path: str | None, owner: tuple[int, int] | None, greatest: int) -> None:
        self.flags = Flags()
        self.greatest = greatest  # bytes after which it is rotated; 0: never
        self.open_as_owner: Callable[[str], int] = _open_as_owner  # a file, as the owner of its folder
        # Two descriptors for the daemon's whole life. Another file is put below them, so that a thread which writes
        # at that moment writes to the one or the other, and never to a number that means something else by now.
        self._file, self._old = _copy(sys.stderr.fileno()), -1
        self._rotates = threading.Lock()
        if path:
            self.reopen(path, owner)

    def reopen(self, path: str, owner: tuple[int, int] | None = None) -> None:
        """Goes on in the file at `path`: after a change of the configuration, or if the file was moved away.

        If that can't be opened, the log goes on in the file where it was, which says so.
        """
        try:
            file, old = self._open(path, owner), self._open(f"{path}.old", owner)
        except OSError as error:
            self.error(f"{path} can't be opened as a log: {error.strerror}; the log goes on here")
            return
        with self._rotates:
            os.dup2(file, self._file, inheritable=False)
            os.close(file)
            if self._old < 0:
                self._old = old
            else:
                os.dup2(old, self._old, inheritable=False)
                os.close(old)

    def __call__(self, message: str) -> None:
        self._write("D_ALWAYS", message)

    def error(self, message: str) -> None:
        """What failed; always shown."""
        self._write("D_ERROR", message)

    def full_debug(self, message: str) -> None:
        """What only somebody who looks for a fault wants to see: shown if <SUBSYS>_DEBUG has D_FULLDEBUG."""
        if self.flags.full_debug:
            self._write("D_FULLDEBUG", message)

    def _write(self, category: str, message: str) -> None:
        line = f"{self.flags.header(category)} {printable(message, LONGEST)}\n"
        with contextlib.suppress(OSError):
            os.write(self._file, line.encode())
            if self._old >= 0 and 0 < self.greatest < os.fstat(self._file).st_size:
                self._rotate()

    def _open(self, path: str, owner: tuple[int, int] | None) -> int:
        """Opens for appending. The folder may be another user's: no link that this user puts there is followed."""
        try:
            file = os.open(path, APPEND, 0o644)
        except PermissionError:
            # joblensd may not write in HTCondor's folder, but HTCondor's user may
            file = self.open_as_owner(path)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                raise OSError(0, "it is no plain file, or one with two names")
            if owner and (status.st_uid, status.st_gid) != owner:
                with contextlib.suppress(PermissionError):  # after privileges were dropped
                    os.fchown(file, *owner)
        except BaseException:
            os.close(file)
            raise
        return file

    def _rotate(self) -> None:
        # Both files are open since before privileges were dropped; the folder may not be ours to rename in.
        if not self._rotates.acquire(blocking=False):
            return  # another thread does it
        try:
            os.ftruncate(self._old, 0)
            with open(f"/proc/self/fd/{self._file}", "rb") as file:
                while block := file.read(1 << 20):
                    os.write(self._old, block)
            os.ftruncate(self._file, 0)
        finally:
            self._rotates.release()


def _copy(descriptor: int) -> int:
    try:
        return os.dup(descriptor)
    except OSError:  # whoever started us closed it
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _open_as_owner(path: str) -> int:
    folder = os.stat(os.path.dirname(path) or ".")
    with as_owner(folder.st_uid, folder.st_gid):
        return os.open(path, APPEND, 0o644)
