"""Keeps `.update.ad` from its reader for some milliseconds, until the last numbers of the job are in it.

At the end of a job its starter reads the file once. It does not wait for joblensd. But the kernel lets whoever opens a
file wait while another process has a lease on it (fcntl(2), F_SETLEASE). To take one is quick, and measuring is not. So
the lease is taken first. Then the numbers are written into that same file, for its reader has found it already. A lease
ends by this process's own clock, or with this process: no starter waits for longer than LONGEST.
"""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import time
from dataclasses import dataclass

from condor_joblens.common.same_mount import open_in
from condor_joblens.publish import updatead
from condor_joblens.publish.updatead import WriteResult, Written

LONGEST = 0.05
"""Seconds for which a starter can be made to wait, once, at the end of its job."""

MOST = 128
"""Leases at a time. Who ends beside so many others has to be quick enough without."""

_OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
Folder = tuple[int, int]
"""Device and inode of an open folder."""


@dataclass
class Lease:
    """On the open `file`, until this time.monotonic()."""

    file: int
    until: float


class AdLeases:
    """The leases of this process, one a folder. All of it is done as the folder's owner, whom the file belongs to."""

    def __init__(self) -> None:
        """Who opens such a file has the kernel tell its holder so by a signal, which would end it."""
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        self._leases: dict[Folder, Lease] = {}

    def take(self, folder: int) -> None:
        """A lease on the `.update.ad` of the open `folder`; none if there is no such file, or another has it open.

        A second one while there is one still is that one, for longer. Raises nothing that a job's user can cause.
        """
        place = _place(folder)
        until = time.monotonic() + LONGEST
        if place in self._leases:
            self._leases[place].until = until
            return
        if len(self._leases) >= MOST:
            return
        try:
            file = open_in(folder, updatead.NAME, _OPEN)
        except OSError:
            return
        try:
            status = os.fstat(file)
            # a file that has another name as well would be changed by that name, too; and to close what the job's user
            # deletes meanwhile is to delete it
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and updatead.is_quickly_deleted(status):
                fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
                self._leases[place] = Lease(file, until)
                return
        except OSError:  # it is being read or written, or its file system has no leases
            pass
        os.close(file)

    def write(self, folder: int, owner: int, text: str) -> Written | None:
        """Puts JobLensUsage into the leased file, and lets its readers go on; None if that file is another's by now.

        `text` is one line, and `owner` whom the file must belong to. None as well if there is no lease, or no space.
        """
        lease = self._leases.get(_place(folder))
        if lease is None:
            return None
        try:
            return _write(lease.file, owner, text)
        except OSError:
            return None
        finally:
            self.release(folder)

    def release(self, folder: int) -> None:
        """Readers of this folder's file go on."""
        lease = self._leases.pop(_place(folder), None)
        if lease is not None:
            _end(lease)

    def timeout(self) -> float | None:
        """Seconds until `expire` has something to do; None: it hasn't."""
        if not self._leases:
            return None
        return max(0.0, min(lease.until for lease in self._leases.values()) - time.monotonic())

    def expire(self) -> None:
        """Readers who have waited for long enough go on."""
        now = time.monotonic()
        for place in [place for place, lease in self._leases.items() if lease.until <= now]:
            _end(self._leases.pop(place))


def _place(folder: int) -> Folder:
    status = os.fstat(folder)
    return status.st_dev, status.st_ino


def _end(lease: Lease) -> None:
    os.close(lease.file)  # nobody else has it: the lease ends with it


def _write(file: int, owner: int, text: str) -> Written | None:
    status = os.fstat(file)
    if status.st_uid != owner or status.st_nlink > 1 or status.st_size > updatead.GREATEST:
        return None
    before = os.pread(file, updatead.GREATEST, 0)
    after = updatead.with_attribute(before, text)
    # one call, so that no reader finds a part of it: what is left of a longer text is covered by blanks
    after = after[:-1].ljust(len(before) - 1) + b"\n"
    is_whole = os.pwrite(file, after, 0) == len(after)
    written = os.fstat(file)
    if not is_whole or written.st_nlink == 0:  # the startd may have put its own file in this one's place
        return None
    return Written(WriteResult.DONE, updatead.version_of(written), updatead.version_of(status))
