"""What the C library keeps of memory that is free: as little as a process of ours wants, where it is glibc."""

from __future__ import annotations

import ctypes

# malloc.h
TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8


def tune(options: dict[int, int]) -> None:
    """Sets these options, from which on glibc leaves them alone. Other C libraries have none, and keep less."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        for option, value in options.items():
            libc.mallopt(option, value)
