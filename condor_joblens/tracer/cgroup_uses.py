"""The id of a cgroup: its inode, and how many jobs have been in it before.

HTCondor can fail to remove a job's cgroup, and the next job of the slot comes into it. Whatever is kept by this id is
one job's, in the kernel (lib/joblens.h) as here.
"""

from __future__ import annotations

from condor_joblens.tracer._bpf import lib

SHIFT, USES = int(lib.CGROUP_USES_SHIFT), int(lib.CGROUP_USES)


def inode_of(cgroup_id: int) -> int:
    """The inode of the cgroup's folder."""
    return cgroup_id & ((1 << SHIFT) - 1)


def jobs_before(cgroup_id: int) -> int:
    """How many jobs were in the cgroup before this one; it begins anew at USES."""
    return cgroup_id >> SHIFT


def next_use(cgroup_id: int) -> int:
    """The id of the same cgroup for the next job in it."""
    return inode_of(cgroup_id) | (jobs_before(cgroup_id) + 1) % USES << SHIFT
