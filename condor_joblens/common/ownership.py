"""Files get another owner: those of a folder that a less trusted user could change until now, so nothing is believed.

Each file is opened first (O_PATH), looked at by its descriptor, and given away by its descriptor. A link leads nowhere,
and a file with a second name, which may be anybody's, stays as it is.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection

_OPEN = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
DEEPEST = 8


def give(path: str, owners: Collection[int], uid: int) -> None:
    """`path` and all that is in it belongs to the user `uid` from now on, as far as one of `owners` has it now.

    What is missing is left out. Raises OSError.
    """
    with contextlib.suppress(FileNotFoundError):
        _give(os.open(path, _OPEN), frozenset(owners), uid, DEEPEST)


def _give(file: int, owners: frozenset[int], uid: int, depth: int) -> None:
    """The same for the descriptor `file`, which is closed."""
    try:
        status = os.fstat(file)
        is_folder = stat.S_ISDIR(status.st_mode)
        if status.st_uid not in owners or stat.S_ISLNK(status.st_mode):
            return
        if is_folder and depth:
            for name in os.listdir(_of(file)):
                with contextlib.suppress(FileNotFoundError):
                    _give(os.open(name, _OPEN, dir_fd=file), owners, uid, depth - 1)
        if status.st_uid != uid and (is_folder or status.st_nlink == 1):
            os.chown(_of(file), uid, -1)
    finally:
        os.close(file)


def _of(file: int) -> str:
    """A path that leads to what the descriptor is of, whatever its name is by now."""
    return f"/proc/self/fd/{file}"
