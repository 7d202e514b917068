"""Symbols that a distribution has in a package of their own: the file below /usr/lib/debug that has the build-id.

Only files of this machine count, which root owns and alone may write. A container's own are its user's.
"""

from __future__ import annotations

import os
import stat

from condor_joblens.profiling.elf import Elf, ElfError

FOLDER = "/usr/lib/debug/.build-id"
_LEAST = 6
"""Characters of a build-id that tells files apart, and no name of a folder."""


def path_of(build_id: str) -> str:
    """Where the symbols of a file are if they are there; `build_id` is in hexadecimal. Empty for none."""
    return f"{FOLDER}/{build_id[:2]}/{build_id[2:]}.debug" if len(build_id) >= _LEAST else ""


def opened(file: int) -> int | None:
    """A descriptor of the file that has the symbols of an open one, for reading; None if there is none."""
    try:
        return opened_for(Elf.unmapped(file))
    except (ElfError, OSError):
        return None


def opened_for(elf: Elf) -> int | None:
    """The same of one that is read already."""
    try:
        path = path_of(elf.build_id)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK) if path else -1
    except (ElfError, OSError):
        return None
    if descriptor < 0:
        return None
    if is_trusted(descriptor):
        return descriptor
    os.close(descriptor)
    return None


def is_trusted(descriptor: int) -> bool:
    """Whether an open file is a plain one that root owns and alone may write. Raises OSError."""
    status = os.fstat(descriptor)
    is_roots = status.st_uid == 0 and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return is_roots and stat.S_ISREG(status.st_mode)
