"""What people tell a running job (`joblens notify`): lines in a file of its scratch folder.

HTCondor brings files of that folder home, and no folders: so the file is in a folder of its own, which is never
output. Both are the job's, which may put anything in their place at any moment. No link is followed, and nothing but a
regular file of the job's, with one name, gets a line.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import stat

from condor_joblens.common.same_mount import is_plain, open_in

FOLDER, NAME = ".joblens", "notices"
"""Below the job's scratch folder."""

MOST_BYTES = 8192
"""Of one line: of a text of verbs.MOST_NOTICE bytes each can become `\\udcff`, and who says it stands before."""

MOST_FILE_BYTES = 64 << 10


class NoticeResult(enum.Enum):
    """What became of a line."""

    DONE = "written"
    TAKEN = f"the job has something else at {FOLDER}/{NAME}"
    FULL = f"{FOLDER}/{NAME} has {MOST_FILE_BYTES >> 10} KiB: the job has to remove it first"
    FAILED = "the job's folder can't be written"


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OTHERS = (errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EISDIR, errno.EACCES, errno.EWOULDBLOCK,
           errno.EXDEV)  # fmt: skip


def add(scratch: int, owner: int, line: bytes) -> NoticeResult:
    """Appends `line`, with its end, in the open folder `scratch`. The caller has the file-system ids of `owner`.

    Raises nothing that a job, its user or a full disk can cause.
    """
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(FOLDER, 0o755, dir_fd=scratch)
        folder = open_in(scratch, FOLDER, _FOLDER)
        try:
            return _add(folder, owner, line)
        finally:
            os.close(folder)
    except OSError as error:
        return NoticeResult.TAKEN if error.errno in _OTHERS else NoticeResult.FAILED


def _add(folder: int, owner: int, line: bytes) -> NoticeResult:
    """Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        if not is_plain(folder, NAME):
            return NoticeResult.TAKEN
    file = open_in(folder, NAME, _APPEND, 0o644)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != owner or status.st_nlink != 1:
            return NoticeResult.TAKEN
        if status.st_size + len(line) > MOST_FILE_BYTES:
            return NoticeResult.FULL
        return NoticeResult.DONE if os.write(file, line) == len(line) else NoticeResult.FAILED
    finally:
        os.close(file)
