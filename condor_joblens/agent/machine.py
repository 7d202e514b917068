"""What joblensd asks of the machine while it is still root with all capabilities."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
from collections.abc import Callable

from condor_joblens.agent import priority
from condor_joblens.common import allocator
from condor_joblens.common.bpffs import BPFFS, BPFFS_OPTIONS, is_mounted

LARGE = 128 << 10
"""Bytes from which a piece of memory is the kernel's again as soon as it is free."""


def prepare(log: Callable[[str], None]) -> None:
    """Room for descriptors and maps, a small heap, and bpffs."""
    # columns of all jobs are made and freed once a round: glibc would keep as much as there has been at most
    allocator.tune({allocator.MMAP_THRESHOLD: LARGE})
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = max(hard, 65536) if os.geteuid() == 0 else hard
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
    with contextlib.suppress(OSError, ValueError):
        # kernels before 5.11 charge maps to it
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    priority.bound_real_time()
    _mount_bpffs(log)


def _mount_bpffs(log: Callable[[str], None]) -> None:
    if is_mounted():
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if os.path.isdir(BPFFS) and libc.mount(b"bpf", BPFFS.encode(), b"bpf", 0, BPFFS_OPTIONS.encode()) == 0:
        log(f"mounted bpffs at {BPFFS}")
