"""Where the kernel keeps BPF objects under a name: what is pinned there outlives joblensd."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection

BPFFS = "/sys/fs/bpf"

PINS = f"{BPFFS}/joblens"
"""Ours."""

BPFFS_OPTIONS = "mode=700"
"""Without this everybody may write there, and make the folder of our pins before we do."""

MOUNT_BPFFS = f"mount -t bpf -o {BPFFS_OPTIONS} bpf {BPFFS}"
REMOUNT_BPFFS = f"mount -o remount,{BPFFS_OPTIONS} {BPFFS}"
FSTAB_LINE = f"bpf {BPFFS} bpf {BPFFS_OPTIONS} 0 0"


def is_mounted(mounts: str = "/proc/self/mounts") -> bool:
    """Whether a bpffs is there."""
    with open(mounts, encoding="utf-8", errors="replace") as file:
        return any(line.split()[1:3] == [BPFFS, "bpf"] for line in file)


def has_room_for(owners: Collection[int]) -> bool:
    """Whether nobody but `owners` (user ids) can change what is pinned in PINS, which may not be there yet.

    As changeable_by (trusted_folder.py) has it: what is another's in a folder with the sticky bit nobody can move.
    """
    status = os.stat(BPFFS)
    open_to_all = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if status.st_uid != 0 or (open_to_all and not status.st_mode & stat.S_ISVTX):
        return False
    try:
        pins = os.lstat(PINS)
    except FileNotFoundError:
        return True
    return stat.S_ISDIR(pins.st_mode) and pins.st_uid in owners


def let_through(gid: int) -> None:
    """The members of the group `gid` can go through BPFFS to what is theirs, and see nothing there.

    Raises OSError if it is already for another group than root's.
    """
    status = os.stat(BPFFS)
    mode = stat.S_IMODE(status.st_mode)
    if mode & stat.S_IXOTH or (status.st_gid == gid and mode & stat.S_IXGRP):
        return
    if status.st_gid not in (0, gid):
        raise OSError(errno.EPERM, f"it belongs to the group {status.st_gid}", BPFFS)
    os.chmod(BPFFS, mode & ~stat.S_IRWXG)
    os.chown(BPFFS, -1, gid)
    os.chmod(BPFFS, mode & ~stat.S_IRWXG | stat.S_IXGRP)


def let_no_longer_through(gid: int) -> None:
    """Takes that back. Raises OSError."""
    status = os.stat(BPFFS)
    if gid and status.st_gid == gid:
        os.chown(BPFFS, -1, 0)
        os.chmod(BPFFS, stat.S_IMODE(status.st_mode) & ~stat.S_IRWXG)
