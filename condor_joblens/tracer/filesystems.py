"""Which class a file system belongs to: by the type that /proc/self/mountinfo shows, and for paths by mount point."""

from __future__ import annotations

import os
import re
import select

from condor_joblens.common.filesystem_classes import CLASSES

KNOWN: dict[str, str] = {
    "Cvmfs": "fuse.cvmfs2 cvmfs2",
    "Eos": "fuse.eosxd fuse.eosd fuse.eos",
    "Xrootdfs": "fuse.xrootdfs fuse.xrootd",
    "Fuse": "fuse fuseblk",
    "Nfs": "nfs nfs4",
    "Lustre": "lustre",
    "Gpfs": "gpfs mmfs",
    "Beegfs": "beegfs beegfs_nodev",
    "Ceph": "ceph fuse.ceph fuse.ceph-fuse",
    "Local": "ext2 ext3 ext4 xfs btrfs zfs bcachefs f2fs jfs vfat exfat ntfs3 iso9660 udf squashfs erofs virtiofs 9p",
    "Overlay": "overlay fuse.fuse-overlayfs aufs",
    "Tmpfs": "tmpfs ramfs devtmpfs hugetlbfs rootfs",
}
"""Class -> types. A type of FUSE that is not here is Fuse; any other is Local on a block device, else Other."""

MOST_MOUNTS = 4000
"""Mount points that the kernel's table has room for; automounters can have thousands."""

LONGEST_PATH = 247


def built_in() -> dict[str, int]:
    """Type of a file system -> number of its class."""
    return {name: CLASSES.index(known) for known, names in KNOWN.items() for name in names.split()}


def class_of(filesystem: str, has_device: bool, known: dict[str, int]) -> int:
    """The class of a mounted file system, as the kernel's programs find it."""
    for name in (filesystem, filesystem.partition(".")[0]):
        if name in known:
            return known[name]
    return CLASSES.index("Local" if has_device else "Other")


def mount_prefixes(mountinfo: str, known: dict[str, int]) -> dict[bytes, int]:
    """Mount point, ending with a slash -> class. Of several mounts on one point the last counts."""
    found: dict[bytes, int] = {}
    for line in mountinfo.split("\n"):  # a path may have any other end of a line in it: the kernel escapes this one
        before, separator, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if not separator or len(fields) < 5 or not kinds[0]:
            continue
        path = _unescaped(fields[4]).rstrip(b"/") + b"/"
        if len(path) <= LONGEST_PATH:
            found[path] = class_of(kinds[0], not fields[2].startswith("0:"), known)
    shortest_first = sorted(found, key=len)[:MOST_MOUNTS]
    return {path: found[path] for path in shortest_first}


def _unescaped(path: str) -> bytes:
    raw = path.encode("utf-8", "surrogateescape")
    return re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal.group(1), 8) & 0xFF]), raw)


class Mounts:
    """This process's mounts: what they are, and whether they have changed."""

    def __init__(self) -> None:
        self._descriptor = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLPRI)

    def changed(self) -> bool:
        """Since the last call."""
        return bool(self._poll.poll(0))

    def read(self) -> str:
        """/proc/self/mountinfo as it is now."""
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        parts = []
        while part := os.read(self._descriptor, 1 << 16):
            parts.append(part)
        return b"".join(parts).decode("utf-8", "surrogateescape")

    def close(self) -> None:
        """Forgets them."""
        os.close(self._descriptor)
