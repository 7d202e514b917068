"""Reports that a job asked for (+JobLensReport), in its own folder: they come back with its output.

The folder is the job's, which may put anything there at any moment. So nothing of the job's is ever replaced. A
file that begins as ours do may be, and an empty one, which the job has made to have it filled. What is mounted there
is not asked (same_mount.py).
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import errno
import os
import stat

from condor_joblens.common.same_mount import is_plain, open_in
from condor_joblens.publish.updatead import STARTDS_TEMPORARY, is_quickly_deleted, remove_small

MARK = b"written by JobLens"
"""In the first bytes of a report."""

MARK_WITHIN = 100
MOST_BYTES = 2 << 20


class Report(enum.Enum):
    """The files that are written in a job's folder."""

    FLAME = "flame.svg"
    HANG = "hang.txt"


class ReportResult(enum.Enum):
    """What became of a report."""

    DONE = "written"
    TAKEN = "the job has a file of that name"
    FAILED = "the job's folder can't be written"


_MODE = 0o644
_NOT_OURS = (errno.ELOOP, errno.ENXIO, errno.EACCES, errno.EXDEV)
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_EXCHANGE = 2  # linux/fs.h: RENAME_EXCHANGE
_libc = ctypes.CDLL(None, use_errno=True)


def write(folder: int, owner: int, report: Report, content: bytes) -> ReportResult:
    """Puts the report into the open `folder`, whole or not at all. The caller has the file-system ids of `owner`.

    Raises nothing that a job, its user or a full disk can cause.
    """
    name = report.value
    try:
        is_there = _is_there(folder, owner, name)
        if is_there is None:
            return ReportResult.TAKEN
        file = os.open(".", os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, _MODE, dir_fd=folder)
        try:
            os.fchmod(file, _MODE)
            if os.write(file, content) < len(content):
                raise OSError(errno.ENOSPC, "short write")
            done = _exchange(file, folder, owner, name) if is_there else _link(file, folder, name)
        finally:
            os.close(file)
    except OSError:
        return ReportResult.FAILED
    return ReportResult.DONE if done else ReportResult.TAKEN


def _is_there(folder: int, owner: int, name: str) -> bool | None:
    """Whether there is a file of ours, or one to be filled; None: one of the job's."""
    try:
        if not is_plain(folder, name):
            return None
        file = open_in(folder, name, _READ)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno in _NOT_OURS:
            return None
        raise
    try:
        status = os.fstat(file)
        is_owners = stat.S_ISREG(status.st_mode) and status.st_uid == owner and status.st_nlink == 1
        is_ours = (
            is_owners and is_quickly_deleted(status) and (status.st_size == 0 or MARK in os.pread(file, MARK_WITHIN, 0))
        )
        return True if is_ours else None
    finally:
        os.close(file)


def _link(file: int, folder: int, name: str) -> bool:
    """Gives the open file its name; False if another has it."""
    try:
        os.link(f"/proc/self/fd/{file}", name, dst_dir_fd=folder)
    except FileExistsError:
        return False
    return True


def _exchange(file: int, folder: int, owner: int, name: str) -> bool:
    """Puts the open file in the place of ours; False, and all is as it was, if that is the job's by now.

    A starter never takes a file of the temporary name for output.
    """
    if not _link(file, folder, STARTDS_TEMPORARY):
        raise OSError(errno.EBUSY, "the startd writes")
    names = (folder, STARTDS_TEMPORARY.encode(), folder, name.encode())
    try:
        if _libc.renameat2(*names, _EXCHANGE):
            raise OSError(ctypes.get_errno(), "renameat2")
        if _is_there(folder, owner, STARTDS_TEMPORARY) is None:  # it is the job's, made this moment
            _libc.renameat2(*names, _EXCHANGE)
            return False
    finally:
        with contextlib.suppress(OSError):
            remove_small(folder, STARTDS_TEMPORARY)
    return True
