"""Whether this kernel lets a process use maps and programs that it was handed, without CAP_BPF and CAP_PERFMON.

Linux 5.19 and later do: only to make them takes a right ("bpf: refine kernel.unprivileged_bpf_disabled behaviour").
Some distributions brought that to older kernels. Elsewhere each call of bpf(2) needs CAP_BPF, as long as
kernel.unprivileged_bpf_disabled is not 0.
"""

from __future__ import annotations

import os
from pathlib import Path

from condor_joblens.common import privilege
from condor_joblens.tracer._bpf import ffi, lib
from condor_joblens.tracer.makers import ROWS, OwnMaker

FREE_SINCE = (5, 19)
DISABLED = Path("/proc/sys/kernel/unprivileged_bpf_disabled")


def are_free() -> bool | None:
    """It is tried, by a thread that has CAP_BPF. None if no map can be made here, so that none is looked into."""
    made = OwnMaker().array(ROWS, 1)
    if made < 0:
        return None
    try:
        with privilege.without_capabilities():
            found = lib.bpf_map_lookup_elem(made, ffi.new("__u32 *"), ffi.new("__u64 *")) == 0
    except OSError:
        return False
    finally:
        os.close(made)
    return found and (_is_limited() or kernel_version() >= FREE_SINCE)


def _is_limited() -> bool:
    """Whether the trial tells anything: with 0 there, which can change, every kernel lets everybody."""
    try:
        return DISABLED.read_text(encoding="ascii").strip() != "0"
    except OSError:
        return False


def kernel_version() -> tuple[int, int]:
    """Of the kernel that runs, e.g. (6, 12)."""
    major, minor, *_ = os.uname().release.replace("-", ".").split(".")
    return int(major), int(minor)
