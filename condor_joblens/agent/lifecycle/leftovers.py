"""Empty cgroups that HTCondor could not remove: no job is in them, and the slot's next one may come into them.

A joblensd that starts can find such cgroups, of whose jobs it knows nothing. None is a run. The kernel is told that the
job in it has ended. So it tells of the next one, and counts that from its first instruction (jl_slot_entered).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from condor_joblens.agent.node import Node, open_files
from condor_joblens.common.cgroup_processes import processes_in
from condor_joblens.sample import cgroup_files
from condor_joblens.sample.cgroup_files import CgroupFiles
from condor_joblens.tracer.cgroup_uses import inode_of

FILES = (*cgroup_files.CPU_COLUMNS, *cgroup_files.PRESSURES.values())
"""Totals that the files of a cgroup have, of all jobs in it."""


@dataclass(frozen=True)
class Earlier:
    """What is known of a cgroup from the job before."""

    used: dict[str, float]  # column of FILES -> what the cgroup's file said last
    has_ended: bool  # all of the job, before the next one came


@dataclass
class Leftovers:
    """Those that are known, by inode."""

    _used: dict[int, dict[str, float]] = field(default_factory=dict)  # as in Earlier
    _slots: dict[int, int] = field(default_factory=dict)  # by which the kernel waits for the next job

    def set_aside(self, node: Node, cgroup_id: int, path: str) -> bool:
        """Whether the cgroup at `path`, which has no run, is such a one.

        One that the kernel has seen being made is not: its job is about to come.
        """
        inode, tracer = inode_of(cgroup_id), node.tracer
        slot = tracer.slot_of(cgroup_id)
        if not tracer.is_exact or not _is_empty(path) or (slot is not None and not _has_lost_its_job(node, slot)):
            return False
        files = open_files(path, cgroup_id)
        used = read_totals(files)
        files.close()
        if slot is None:
            slot = tracer.take(cgroup_id, int(node.config.default_level))
        if slot is None:
            return False
        tracer.counters["main_exits"][slot] = 1
        if not _is_empty(path) and tracer.slot_of(cgroup_id) == slot:  # a job came, and the kernel did not know yet
            tracer.stop(slot)
            return False
        self._used[inode], self._slots[inode] = used, slot
        return True

    def entered(self, node: Node, inode: int) -> Earlier | None:
        """The next job is in it; None if it is not known to have been empty."""
        used = self._used.get(inode)
        self.gone(node, inode)
        return None if used is None else Earlier(used, True)

    def gone(self, node: Node, inode: int) -> None:
        """It is none any more, or has been removed."""
        if self._used.pop(inode, None) is not None:
            node.tracer.stop(self._slots.pop(inode))

    def keep_only(self, node: Node, inodes: Collection[int]) -> None:
        """All others have been removed."""
        for inode in [known for known in self._used if known not in inodes]:
            self.gone(node, inode)

    def __contains__(self, inode: object) -> bool:
        return inode in self._used


def read_totals(files: CgroupFiles) -> dict[str, float]:
    """What the cgroup's files say of FILES now, as far as there are such files."""
    found = {**cgroup_files.read_cpu([files]), **cgroup_files.read_slow([files])}
    return {column: float(found[column][0]) for column in FILES if column in found and found[column][0] >= 0}


def _is_empty(path: str) -> bool:
    return next(processes_in(path), None) is None


def _has_lost_its_job(node: Node, slot: int) -> bool:
    """Whether an earlier joblensd has set it aside: nothing was ever started in it, and yet its job has ended."""
    count = node.tracer.counters[slot]
    return bool(count["main_exits"]) and not count["executed"]
