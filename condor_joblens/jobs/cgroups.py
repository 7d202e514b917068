"""Where HTCondor puts jobs in the cgroup tree, and which slot a cgroup's name means."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from condor_joblens.common.errors import JobLensError

INITIAL_NAMESPACE = 0xEFFFFFFB
"""Inode of the machine's own cgroup namespace: PROC_CGROUP_INIT_INO, include/linux/proc_ns.h."""


VERSION_1 = "cpuacct"
"""The controller whose tree is looked at on a machine with cgroups of version 1 alone: jobs are in that of each."""


@dataclass(frozen=True)
class Slot:
    """A slot as its cgroup's name gives it away."""

    name: str  # slot1_3; local_7 for the seventh job of the local universe
    execute: str  # the EXECUTE folder of its startd; empty where no known one fits


@dataclass(frozen=True)
class Tree:
    """The cgroup v2 tree as this process sees it; of a machine that has version 1 alone, the tree of cpuacct."""

    mount: str  # /sys/fs/cgroup, or .../unified on a hybrid machine
    own: str  # this process's cgroup, from the mount point on, without leading slash
    hybrid: bool  # controllers are on v1: HTCondor then makes no cgroups at all
    version: int = 2

    @classmethod
    def find(cls, root: str = "/") -> Tree:
        """Reads it from /proc. Raises JobLensError where there is none."""
        mounts = os.path.join(root, "proc/self/mounts")
        mount = _mount_point(mounts, "cgroup2")
        with open(os.path.join(root, "proc/self/cgroup"), encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
        if mount is None:
            mount = _mount_point(mounts, "cgroup", VERSION_1)
            if mount is None:
                raise JobLensError("no cgroup tree is mounted: mount -t cgroup2 cgroup2 /sys/fs/cgroup")
            return cls(mount, _cgroup_in(lines, 1) or "", hybrid=False, version=1)
        own = next((line[3:] for line in lines if line.startswith("0::")), "/")
        # HTCondor's own test for "cgroup v2 is used" (proc_family_direct_cgroup_v2.cpp)
        hybrid = not os.path.exists(os.path.join(root, mount.lstrip("/"), "cgroup.procs")) or mount != "/sys/fs/cgroup"
        return cls(mount, own.strip("/"), hybrid)

    def base(self, name: str) -> str:
        """The cgroup below which the starter makes its slots' cgroups, for BASE_CGROUP = `name`.

        The starter takes the parent of its own cgroup from the *first* line of /proc/self/cgroup. It takes the root if
        that line isn't `0::`, as on a kernel that has v1 hierarchies as well.
        """
        with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            first = file.readline()
        parent = os.path.dirname(self.own) if first.startswith("0::") else ""
        return os.path.join(parent, name).strip("/")

    def path(self, cgroup: str) -> str:
        """The folder of a cgroup."""
        return os.path.join(self.mount, cgroup)

    def identity(self, cgroup: str) -> int | None:
        """The id of a cgroup: the inode of its folder; None where it is not there."""
        with contextlib.suppress(OSError):
            return os.stat(self.path(cgroup)).st_ino
        return None

    def cgroup_of(self, pid: int) -> str | None:
        """The cgroup of a process in this tree, without leading slash; None where it is gone."""
        try:
            with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as file:
                return _cgroup_in(file, self.version)
        except OSError:
            return None


def _mount_point(mounts: str, kind: str, controller: str = "") -> str | None:
    with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
        lines = [line.split() for line in file]
    points = [line[1] for line in lines if line[2] == kind and (not controller or controller in line[3].split(","))]
    return min(points, key=len, default=None)


def _cgroup_in(lines: Iterable[str], version: int) -> str | None:
    """The cgroup in the lines of a /proc/PID/cgroup: `0::/name` of version 2, `4:cpu,cpuacct:/name` of version 1."""
    for line in lines:
        _, controllers, cgroup = line.rstrip("\n").split(":", 2)
        if (not controllers) if version == 2 else VERSION_1 in controllers.split(","):
            return cgroup.strip("/")
    return None


def depths_of(cgroups: Iterable[str]) -> list[int] | None:
    """How deep the cgroups are below the tree's real root; None in a cgroup namespace, where that can't be seen."""
    if os.stat("/proc/self/ns/cgroup").st_ino != INITIAL_NAMESPACE:
        return None
    return [len([part for part in cgroup.split("/") if part]) for cgroup in cgroups]


def parse_slot(name: str, executes: Iterable[str]) -> Slot | None:
    """The slot that a cgroup of this name is for, or None where the name isn't one of HTCondor's.

    The starter joins EXECUTE and the slot's name by `_` and turns every `/` into one. 24.8 and later add
    `.slice`; earlier ones put `condor` in front.
    """
    stem = name[: -len(".slice")] if name.endswith(".slice") else name
    if stem.startswith("condor_"):
        stem = stem[len("condor") :]
    for execute in sorted(executes, key=len, reverse=True):
        prefix = execute.replace("/", "_") + "_"
        if stem.startswith(prefix):
            return Slot(_slot_name(stem[len(prefix) :], execute), execute)
    found = re.fullmatch(r"_.*_((?:slot|backfill)[0-9]+(?:_[0-9]+)?)(?:@.*)?", stem)
    return Slot(found.group(1), "") if found else None


def _slot_name(rest: str, execute: str) -> str:
    name = rest.partition("@")[0]
    # a job of the local universe has no slot: its starter uses a number of its own
    return f"local_{name}" if execute.endswith("local_univ_execute") and name.isdigit() else name


def slot_cgroup(cgroup: str, bases: Iterable[str]) -> str | None:
    """The outermost cgroup directly below one of `bases` that `cgroup` is in, or None."""
    for base in bases:
        if cgroup.startswith(base + "/"):
            return base + "/" + cgroup[len(base) + 1 :].partition("/")[0]
    return None
