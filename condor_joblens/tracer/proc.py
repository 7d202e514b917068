"""What /proc tells of a process, where the kernel may not count for us.

Of a process that ends between two looks only what was seen last is known; the processor time of all of them is
exact none the less, from the cgroup. Numbers of other users' processes are read as their owner: that takes
CAP_SETUID, and not CAP_SYS_PTRACE, with which more than numbers could be read.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator

import numpy as np
import psutil

from condor_joblens.privilege import as_owner
from condor_joblens.tracer import layout

MOST_CGROUPS = 100
"""In how many of a slot's cgroups processes are looked for: a job can make as many as it likes."""

MOST_PROCESSES = 1000
"""How many of a slot's processes are looked at."""

PAGE = os.sysconf("SC_PAGE_SIZE")
_PAGES_A_KILOBYTE = 1024 / PAGE

_IO = {
    "call_read_bytes": "read_chars",
    "call_write_bytes": "write_chars",
    "read_calls": "read_count",
    "write_calls": "write_count",
    "storage_read_bytes": "read_bytes",
    "storage_write_bytes": "write_bytes",
}
TOTALS = (*_IO, "minor_faults", "major_faults")
"""Fields of layout.LIVING that grow as long as a process lives, and stay when it has ended."""


class Processes:
    """The processes of a machine whose /proc is below `root`."""

    def __init__(self, root: str = "/") -> None:
        self._proc = os.path.join(root, "proc")
        psutil.PROCFS_PATH = self._proc

    def begun(self, pid: int) -> float | None:
        """When the process began (epoch seconds), by which it is told from another one of its number."""
        try:
            return float(psutil.Process(pid).create_time())
        except psutil.Error:
            return None

    def look(self, pid: int) -> tuple[float, np.ndarray] | None:
        """When it began, and its numbers as a layout.LIVING of shape (); None where it has gone.

        What may not be read is 0. Of a zombie only the faults are known.
        """
        numbers: np.ndarray = np.zeros((), layout.LIVING)
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                begun, status = process.create_time(), process.status()
                numbers["threads"] = process.num_threads()
        except psutil.Error:
            return None
        numbers["processes"] = status != psutil.STATUS_ZOMBIE
        numbers["threads"] *= numbers["processes"]
        numbers["runnable"] = status == psutil.STATUS_RUNNING
        numbers["uninterruptible"] = status == psutil.STATUS_DISK_SLEEP
        with contextlib.suppress(OSError, ValueError, IndexError):
            self._faults(pid, numbers)
            self._memory(pid, numbers)
        with contextlib.suppress(OSError, psutil.Error):
            owner = os.stat(os.path.join(self._proc, str(pid)))
            with as_owner(owner.st_uid, owner.st_gid):
                counters = process.io_counters()
            for field, name in _IO.items():
                numbers[field] = getattr(counters, name)
        return begun, numbers

    def _read(self, pid: int, name: str) -> str:
        with open(os.path.join(self._proc, str(pid), name), encoding="utf-8", errors="replace") as file:
            return file.read()

    def _faults(self, pid: int, numbers: np.ndarray) -> None:
        # the name in parentheses may hold anything, also parentheses
        fields = self._read(pid, "stat").rpartition(")")[2].split()
        numbers["minor_faults"], numbers["major_faults"] = int(fields[7]), int(fields[9])

    def _memory(self, pid: int, numbers: np.ndarray) -> None:
        pages = {}
        for line in self._read(pid, "status").splitlines():
            name, _, value = line.partition(":")
            if value.endswith(" kB"):
                pages[name] = int(int(value[:-3]) * _PAGES_A_KILOBYTE)
        numbers["anon_pages"] = pages.get("RssAnon", 0)
        numbers["file_pages"] = pages.get("RssFile", 0) + pages.get("RssShmem", 0)
        numbers["swap_pages"] = pages.get("VmSwap", 0)
        numbers["peak_pages"] = pages.get("VmHWM", 0)


def in_cgroup(path: str) -> Iterator[int]:
    """The processes in the cgroup at `path` and in those below it, at most MOST_PROCESSES of them."""
    return itertools.islice(_all_in_cgroup(path), MOST_PROCESSES)


def _all_in_cgroup(path: str) -> Iterator[int]:
    for folder, _, files in itertools.islice(os.walk(path), MOST_CGROUPS):
        if "cgroup.procs" in files:
            with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, "cgroup.procs")) as procs:
                yield from map(int, procs)
