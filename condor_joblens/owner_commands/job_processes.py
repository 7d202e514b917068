"""The processes in a job's cgroup, found by the descriptor of its folder: it stays that of this run, and of no other.

Ids of processes are used again. So a process is held first (pidfd_open, or its folder of /proc), and its id is looked
up in the cgroup then. As long as what is held has not ended, the id is its own.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from condor_joblens.common import cgroup_processes
from condor_joblens.common.cgroup_processes import processes_in

MOST = 1 << 22
"""As many process ids as a kernel has."""

MOST_CGROUPS = 4000
"""Cgroups of a job that are looked through, which takes a second; whoever looks says if there are more."""

SEEN = f"the job's first {MOST_CGROUPS} cgroups, {cgroup_processes.MOST_DEEP} deep"
"""Which these are, for people."""

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Stat:
    """What /proc/PID/stat says."""

    parent: int
    state: str  # a letter, as in ps(1)
    cpu: float  # seconds in user and kernel mode
    threads: int
    begun: float  # seconds since boot
    memory: int  # bytes that are resident


def pids(cgroup: int) -> set[int]:
    """All processes in the cgroup and below it, in MOST_CGROUPS; none if it has been removed."""
    return set(processes_in(f"/proc/self/fd/{cgroup}", MOST, MOST_CGROUPS))


def is_empty(cgroup: int) -> bool:
    """Whether there is no process in it."""
    return next(processes_in(f"/proc/self/fd/{cgroup}", 1, MOST_CGROUPS), None) is None


def has_more(cgroup: int) -> bool:
    """Whether there are processes or could be in others than SEEN."""
    return cgroup_processes.has_more(f"/proc/self/fd/{cgroup}", MOST_CGROUPS)


def stat_of(pid: int) -> Stat | None:
    """None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # the name in parentheses may hold anything, also parentheses
            words = file.read(4096).rpartition(b")")[2].split()
        return Stat(
            parent=int(words[1]),
            state=words[0].decode("ascii", "replace"),
            cpu=(int(words[11]) + int(words[12])) / _TICK,
            threads=int(words[17]),
            begun=int(words[19]) / _TICK,
            memory=int(words[21]) * _PAGE,
        )
    except (OSError, ValueError, IndexError):
        return None


def main_process(cgroup: int) -> int:
    """The job's first process: the one that has lived longest of those in its cgroup. 0 if there is none."""
    return next(iter(oldest_first(cgroup)), 0)


def oldest_first(cgroup: int) -> list[int]:
    """The processes in its cgroup that have not ended, by how long they have lived."""
    begun = {}
    for pid in pids(cgroup):
        stat = stat_of(pid)
        if stat is not None and stat.state != "Z":
            begun[pid] = stat.begun
    return sorted(begun, key=lambda pid: (begun[pid], pid))


def open_process(cgroup: int, pid: int) -> int | None:
    """The folder of /proc of a process of the job, which stays that process's; None if it is none of the job."""
    try:
        folder = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    if pid in pids(cgroup):
        return folder
    os.close(folder)
    return None


def open_target(cgroup: int, pid: int, descriptor: int) -> int | None:
    """What a descriptor of a process of the job is, as O_PATH; None if that can't be had."""
    folder = open_process(cgroup, pid)
    if folder is None:
        return None
    try:
        return os.open(f"fd/{descriptor}", os.O_PATH | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    finally:
        os.close(folder)
