"""Whether a file may be handed to a process that serves others: a user can mount FUSE, and answer when he likes.

Whoever reads such a file, or only closes it, waits for its server, and no signal ends that. CVMFS is FUSE too, and
mounted by root. So is each virtiofs, whose server is the machine's own host. The kernel lets nobody else mount it, in
no user namespace either: its file_system_type lacks FS_USERNS_MOUNT.
"""

from __future__ import annotations

import ctypes
import os

_FUSE = 0x65735546  # FUSE_SUPER_MAGIC of include/uapi/linux/magic.h
_VIRTIOFS = "virtiofs"  # other FUSE is called fuse or fuseblk, with a dot and what its server likes behind
_STATFS_BYTES = 256  # struct statfs has 120

_libc = ctypes.CDLL(None, use_errno=True)


def is_users(file: int) -> bool:
    """Whether the open file is on FUSE that root has not mounted for the whole node. It can take as long as a read."""
    if not _is_fuse(file):
        return False
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
            return not is_roots(mounts.read(), os.fstat(file).st_dev)
    except OSError:
        return True


def is_roots(mountinfo: str, device: int) -> bool:
    """Whether this device is among the mounts of a process, as FUSE that root has mounted, or virtiofs."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mountinfo.split("\n"):  # a path may have any other end of a line in it: the kernel escapes this one
        before, _, after = line.partition(" - ")
        place, kind = before.split(" "), after.split(" ")
        if len(place) > 2 and place[2] == wanted and len(kind) > 2 and kind[0].startswith(("fuse", _VIRTIOFS)):
            return kind[0] == _VIRTIOFS or "user_id=0" in kind[2].split(",")
    return False


def _is_fuse(file: int) -> bool:
    found = (ctypes.c_long * (_STATFS_BYTES // ctypes.sizeof(ctypes.c_long)))()
    return _libc.fstatfs(file, found) != 0 or found[0] == _FUSE
