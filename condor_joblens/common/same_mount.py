"""Opens what is in a job's folder, and nothing that is mounted there.

Its owner may mount FUSE in the folder, if the site allows it, and answer when he likes. The kernel refuses to go there
before it asks that server. Before Linux 5.6 it can't be told to, and what is mounted there is opened like any file.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct

from condor_joblens.common.system_calls import numbers

_NO_OTHER_MOUNT, _NO_LINKS = 0x01, 0x04  # RESOLVE_NO_XDEV and RESOLVE_NO_SYMLINKS of linux/openat2.h

_NUMBER, _STATX = numbers().get("openat2", -1), numbers().get("statx", -1)

_PLACE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_EMPTY_PATH, _DONT_SYNC = 0x1000, 0x4000  # AT_EMPTY_PATH and AT_STATX_DONT_SYNC of linux/fcntl.h
_STATX_BYTES, _MAJOR_AT, _MAJOR = 256, 136, struct.Struct("=I")  # struct statx of linux/stat.h, and its stx_dev_major

_libc = ctypes.CDLL(None, use_errno=True)


class _How(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("flags", "mode", "resolve")]  # struct open_how


def open_in(folder: int, name: str, flags: int, mode: int = 0) -> int:
    """The file `name` of the open `folder`. Raises OSError: EXDEV if something is mounted there, ELOOP for a link."""
    how = _How(flags, mode, _NO_OTHER_MOUNT | _NO_LINKS)
    file = int(_libc.syscall(_NUMBER, folder, name.encode(), ctypes.byref(how), ctypes.sizeof(how)))
    if file >= 0:
        return file
    number = ctypes.get_errno()
    if number == errno.ENOSYS:
        return os.open(name, flags | os.O_NOFOLLOW, mode, dir_fd=folder)
    raise OSError(number, os.strerror(number), name)


def folder_in(folder: int, name: str) -> int:
    """Where the folder `name` of the open `folder` is (O_PATH): with a disk that is mounted there, as root alone can.

    HTCondor may give each job a volume. Raises OSError as open_in.
    """
    try:
        return open_in(folder, name, _PLACE)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        place = os.open(name, _PLACE, dir_fd=folder)  # nobody is asked by that
        if _is_on_disk(place):
            return place
        os.close(place)
        raise


def _is_on_disk(place: int) -> bool:
    """Whether its file system has a block device, as none of a user's FUSE has. No server is asked."""
    status = ctypes.create_string_buffer(_STATX_BYTES)
    if _libc.syscall(_STATX, place, b"", _EMPTY_PATH | _DONT_SYNC, 0, status) != 0:
        return False
    return int(_MAJOR.unpack_from(status, _MAJOR_AT)[0]) != 0


def status_in(folder: int, name: str) -> os.stat_result:
    """Of what has this name in the open `folder`, a link itself included. Raises OSError as open_in."""
    place = open_in(folder, name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.fstat(place)
    finally:
        os.close(place)


def is_plain(folder: int, name: str) -> bool:
    """Whether it is a regular file. It is not opened: to open a pipe wakes its other end. Raises OSError."""
    return stat.S_ISREG(status_in(folder, name).st_mode)
