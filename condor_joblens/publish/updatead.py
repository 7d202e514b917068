"""Puts JobLensUsage into `.update.ad`, the file in which a job's starter looks for what it tells the shadow.

The startd writes that file at its own updates, a line `Name = expression` an attribute in the old syntax. The
starter reads it, as the directory's owner, at each of its own (condor_starter.V6.1/jic_shadow.cpp,
publishStartdUpdates), whoever wrote it. Up to HTCondor 23 the directory is the job's own: its user may put
anything there at any moment. So nothing is opened by path, no link is followed, nothing that is mounted there is asked,
and nothing is parsed.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import errno
import os
import re
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Optional, TypeVar

from condor_joblens.common.same_mount import open_in, status_in
from condor_joblens.publish.attribute import ATTRIBUTE

NAME = ".update.ad"

TEMPORARY = ".update.ad.joblens"
"""A name of our own, so that the startd and joblensd never write the same file."""

STARTDS_TEMPORARY = ".update.ad.tmp"
"""The startd's own name, for folders that are the job's (up to HTCondor 23). A starter never takes a file of this name
for output of the job."""

GREATEST = 1 << 18
"""What is larger is not the startd's, and is replaced."""

MOST_DELETED = 8 << 20
"""Bytes of a file that is deleted: to delete a file of gigabytes in many pieces takes seconds, in which all wait."""

ABANDONED = 10.0
"""A temporary file of so many seconds was left by somebody who was killed."""

Version = Optional[tuple[int, int]]
"""What tells one `.update.ad` from the next: its inode, and when it was changed last (ns), which nobody can set. None:
there is no such file."""

T = TypeVar("T")
_ATTEMPTS = 5  # the startd holds its temporary file for some 0.1 ms
_PAUSE = 0.001
_RENAME_NOREPLACE, _RENAME_EXCHANGE = 1, 2  # linux/fs.h
_libc = ctypes.CDLL(None)
# Lines that are blank, which would end the ad for its reader, or of our name. A carriage return or form feed ends no
# line for HTCondor. One pass in C: a user can write a megabyte of lines that begin like ours.
_TAKEN_OUT = re.compile(rb"^[ \t\r\v\f]*(?:%b[ \t\r\v\f]*(?:=[^\n]*)?)?(?:\n|\Z)" % ATTRIBUTE.encode(), re.M | re.I)


class WriteResult(enum.Enum):
    """What became of an attempt to replace the attribute."""

    DONE = "written"
    GONE = "the directory is gone: the job has ended"
    BUSY = "the startd is writing the file: try again"
    FULL = "the file system or the quota is full"
    DENIED = "the directory may not be written"
    FAILED = "the directory can't be written"
    TAKEN = "a file of the job's is in the way: it is too large to be deleted, or something is mounted there"


_OUTCOMES = {
    errno.ENOENT: WriteResult.GONE,
    errno.ESTALE: WriteResult.GONE,
    errno.ENOSPC: WriteResult.FULL,
    errno.EDQUOT: WriteResult.FULL,
    errno.EACCES: WriteResult.DENIED,
    errno.EPERM: WriteResult.DENIED,
    errno.EROFS: WriteResult.DENIED,
    errno.EFBIG: WriteResult.TAKEN,
    errno.EXDEV: WriteResult.TAKEN,  # open_in
}


@dataclass(frozen=True)
class Written:
    """What became of an attempt: the file that is there now, and the one whose content went into it."""

    result: WriteResult
    version: Version = None
    replaced: Version = None  # None also if the attempt failed


class _Present(NamedTuple):
    """What was there: its content and mode; no status where it is missing or can't be the startd's or ours."""

    content: bytes = b""
    mode: int = 0o644
    status: os.stat_result | None = None


def replace(directory: int, owner: int, group: int, text: str, temporary: str = TEMPORARY) -> Written:
    """Makes `JobLensUsage = text` the attribute's only line in `.update.ad` of the open `directory`.

    `text` is one line (see classad.usage_ads). The file is made if it is missing, and belongs to `owner` and `group`
    afterwards. That needs no capability if the caller has their file-system ids. `temporary` is its name in the same
    folder until it is whole. Raises nothing that a job, its user or a full disk can cause.

    What the startd puts there meanwhile is not lost: the attempt is repeated with that. On a file system that can't
    exchange two names it is lost, until the startd writes again.
    """
    try:
        there = _present(directory, NAME, owner)
        expected = there.status
        for _ in range(1 + _ATTEMPTS):
            ours, newer = _write(directory, owner, group, text, there, expected, temporary)
            if newer is None:
                break
            there, expected = newer, ours
        result = WriteResult.BUSY if ours is None else WriteResult.DONE
        return Written(result, version_of(ours), version_of(there.status))
    except OSError as error:
        return Written(_OUTCOMES.get(error.errno or 0, WriteResult.FAILED))


def version(directory: int) -> Version:
    """Changes once the startd has put its own file over ours, or the owner has changed ours."""
    try:
        return version_of(status_in(directory, NAME))
    except OSError:
        return None


def version_of(status: os.stat_result | None) -> Version:
    """The version of the file whose status that is."""
    return None if status is None else (status.st_ino, status.st_ctime_ns)


def remove_small(directory: int, name: str) -> None:
    """Deletes a file that a job's user may have put there, if that takes no time. Raises OSError."""
    if is_quickly_deleted(status_in(directory, name)):
        os.unlink(name, dir_fd=directory)


def is_quickly_deleted(status: os.stat_result) -> bool:
    """Whether a file of this size, and of so many blocks, is gone at once when its last name is."""
    return max(status.st_size, status.st_blocks * 512) <= MOST_DELETED


def with_attribute(content: bytes, text: str) -> bytes:
    """The ad `content` with `JobLensUsage = text` in place of every line of that name."""
    kept = _TAKEN_OUT.sub(b"", content)
    # a missing newline at the end would join two lines
    end = b"" if not kept or kept.endswith(b"\n") else b"\n"
    return b"%b%b%b = %b\n" % (kept, end, ATTRIBUTE.encode(), text.encode())


def _present(directory: int, name: str, owner: int) -> _Present:
    try:
        file = open_in(directory, name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.EACCES):
            return _Present()
        raise
    try:
        status = os.fstat(file)
        if not is_quickly_deleted(status):
            raise OSError(errno.EFBIG, "too large to be deleted")
        # another's file, which a user may have linked here, must not be shown to him as his own
        if not stat.S_ISREG(status.st_mode) or status.st_uid != owner or status.st_size > GREATEST:
            return _Present(status=status)
        return _Present(os.read(file, status.st_size), stat.S_IMODE(status.st_mode) & 0o666, status)
    finally:
        os.close(file)


def _write(
    directory: int,
    owner: int,
    group: int,
    text: str,
    there: _Present,
    expected: os.stat_result | None,
    temporary: str,
) -> tuple[os.stat_result | None, _Present | None]:
    """Puts what was `there`, with the attribute, in the place of the file `expected`.

    Returns the status of the new file, or None while another has the temporary name. And what was in that place, if
    that was another file by then.
    """
    content = with_attribute(there.content, text)
    file, is_named = _create(directory, there.mode, temporary)
    if file is None:
        return None, None
    try:
        status = os.fstat(file)
        if (status.st_uid, status.st_gid) != (owner, group):
            os.fchown(file, owner, group)
        if stat.S_IMODE(status.st_mode) != there.mode:
            os.fchmod(file, there.mode)
        if os.write(file, content) < len(content):
            raise OSError(errno.ENOSPC, "short write")
        is_named = is_named or _name(file, directory, temporary)
        if not is_named:
            return None, None
        newer = _put(directory, owner, expected, temporary)
        return os.fstat(file), newer
    except OSError:
        if is_named:
            _remove(directory, temporary)
        raise
    finally:
        os.close(file)


def _create(directory: int, mode: int, temporary: str) -> tuple[int | None, bool]:
    """A new file, and whether it has the temporary name already. No file where it can't while another has the name.

    It gets its name when it is whole, if the file system can do that. The startd looks for nobody: it would open a file
    of its own temporary name, and the two writers would be mixed.
    """
    try:
        return os.open(".", os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, mode, dir_fd=directory), False
    except OSError as error:
        # there are no unnamed files on this file system, or the folder is gone: the next call says so
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.EPERM):
            raise
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return _alone(lambda: os.open(temporary, flags, mode, dir_fd=directory), directory, temporary), True


def _name(file: int, directory: int, temporary: str) -> bool:
    """Gives the open file its name; False while another has it."""

    def link() -> bool:
        os.link(f"/proc/self/fd/{file}", temporary, dst_dir_fd=directory)
        return True

    return bool(_alone(link, directory, temporary))


def _alone(make: Callable[[], T], directory: int, temporary: str) -> T | None:
    """What `make` makes of that name, as soon as nobody else has it; None where that takes too long."""
    for _ in range(_ATTEMPTS):
        try:
            return make()
        except FileExistsError:
            if _is_abandoned(directory, temporary):
                _remove(directory, temporary)
            else:
                time.sleep(_PAUSE)
    return None


def _put(directory: int, owner: int, expected: os.stat_result | None, temporary: str) -> _Present | None:
    """The temporary file becomes `.update.ad`, which is whole at any moment. Returns what was there, if unexpected.

    It exchanges the two names, if the file system can, rather than rename over the old one. A rename would make
    ext4 write the new file to the disk at once, which took two thirds of the time.
    """
    names = (directory, temporary.encode(), directory, NAME.encode())
    for how in (_RENAME_EXCHANGE, _RENAME_NOREPLACE, _RENAME_EXCHANGE):  # the startd's first file comes at any moment
        if _libc.renameat2(*names, how) == 0:
            return None if how == _RENAME_NOREPLACE else _displaced(directory, owner, expected, temporary)
    os.rename(temporary, NAME, src_dir_fd=directory, dst_dir_fd=directory)
    return None


def _displaced(directory: int, owner: int, expected: os.stat_result | None, temporary: str) -> _Present | None:
    """Removes what now has the temporary name. Returns it if it is not the file `expected`."""
    newer = None
    with contextlib.suppress(OSError):  # it is gone, too large or a directory: not the startd's
        status = status_in(directory, temporary)
        if expected is None or (status.st_ino, status.st_mtime_ns) != (expected.st_ino, expected.st_mtime_ns):
            newer = _present(directory, temporary, owner)
        if is_quickly_deleted(status):
            os.unlink(temporary, dir_fd=directory)
    return newer


def _is_abandoned(directory: int, temporary: str) -> bool:
    try:
        status = status_in(directory, temporary)
    except FileNotFoundError:
        return False
    # something other than a file is nobody's work in progress; a time to come is a user's trick
    return not stat.S_ISREG(status.st_mode) or not 0 <= time.time() - status.st_mtime < ABANDONED


def _remove(directory: int, temporary: str) -> None:
    # where it fails it is gone, or a directory that a user put there: the next attempt says so
    with contextlib.suppress(OSError):
        remove_small(directory, temporary)
