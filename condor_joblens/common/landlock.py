"""Landlock: a process gives up all of the file system but some folders, whoever it is. From kernel 5.13 on.

Three system calls, of which glibc has none. include/uapi/linux/landlock.h has the bits and the structures.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import struct
from collections.abc import Mapping

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # on x86-64 and aarch64 alike
_VERSION, _PATH_BENEATH = 1, 1

EXECUTE, WRITE_FILE, READ_FILE, READ_FOLDER, REMOVE_FOLDER, REMOVE_FILE = (1 << bit for bit in range(6))
MAKE_FOLDER, MAKE_FILE, MAKE_SOCKET = 1 << 7, 1 << 8, 1 << 9
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE
"""What a rule about a file alone may have."""

_FILE_BITS = {1: 13, 2: 14, 3: 15}
"""Version of Landlock -> how many rights it knows; IOCTL_DEV of version 5 is left alone."""

CHANGE = (1 << 15) - 1 - EXECUTE - READ_FILE - READ_FOLDER
"""All rights but to read and to execute."""

EVERYTHING = (1 << 15) - 1
_NO_TCP = 0b11  # to bind and to connect, from version 4 on
_NO_SIGNALS = 0b10  # to processes that have not been started from here, from version 6 on
_NO_ABSTRACT_SOCKETS = 0b01

_libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """Which version of Landlock this kernel has; 0: none, or it is turned off."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)))


def allow_only(handled: int, rights: Mapping[str, int], *, tcp: bool = False) -> bool:
    """Of the rights `handled` this thread, and what it starts, keeps those below each path; no TCP, no signal.

    With `tcp` it keeps TCP.

    For good; call no_new_privileges before. Paths that are missing are left out. False if the kernel has no Landlock.
    Raises OSError.
    """
    known = version()
    if not known:
        return False
    handled &= (1 << _FILE_BITS.get(known, 15)) - 1
    network = _NO_TCP if known >= 4 and not tcp else 0
    scoped = _NO_SIGNALS | _NO_ABSTRACT_SOCKETS if known >= 6 else 0
    size = 8 if known < 4 else 16 if known < 6 else 24
    attributes = struct.pack("<QQQ", handled, network, scoped)[:size]
    ruleset = _call(_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0)
    try:
        for path, allowed in rights.items():
            with contextlib.suppress(FileNotFoundError):
                _allow_below(ruleset, path, handled & allowed)
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return True


def _allow_below(ruleset: int, path: str, allowed: int) -> None:
    folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(folder).st_mode):
            allowed &= _OF_FILES
        if allowed:
            _call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("<Qi", allowed, folder), 0)
    finally:
        os.close(folder)


def _call(number: int, *arguments: object) -> int:
    result = int(_libc.syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
    return result
