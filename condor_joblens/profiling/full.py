"""Files that a job writes to a file system that is full: a program that retries sleeps, and says no word of it."""

from __future__ import annotations

import os
from collections.abc import Iterable

from condor_joblens.profiling.process import Descriptor, Process

LEAST_BYTES = 64 << 10
"""Of room; with less, programs are refused even a small piece."""

_MOST_LOOKED_AT = 256
_LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs"})
"""No server stands behind them, so they answer at once. What an overlay is made of is not known."""


def in_words(processes: Iterable[Process]) -> str:
    """`/out/a.root is open for writing, and its file system (ext4 at /out) has 0 bytes left`; empty if none is full."""
    left = _MOST_LOOKED_AT
    for process in processes:
        for number, target in process.targets():
            if left and target.startswith("/") and not target.startswith(("/dev/", "/proc/")):
                left -= 1
                descriptor = process.descriptor(number)
                if descriptor is not None and (words := _of(process, descriptor)):
                    return words
    return ""


def _of(process: Process, descriptor: Descriptor) -> str:
    kind, mounted = process.filesystems.get(descriptor.mount, ("", ""))
    if kind not in _LOCAL or descriptor.flags & os.O_ACCMODE == os.O_RDONLY:
        return ""
    room = process.room(descriptor.number)
    if room is None or room >= LEAST_BYTES:
        return ""
    return f"{descriptor.target} is open for writing, and its file system ({kind} at {mounted}) has {room} bytes left"
