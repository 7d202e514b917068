"""CPU time and charged memory of a job on a machine with cgroups of version 1 alone.

A job is in a cgroup of the same name in each controller's tree. Pressure is not measured there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence

import numpy as np

USAGE, TIMES = "cpuacct.usage", "cpuacct.stat"
MEMORY = {
    "memory.usage_in_bytes": "memory_cgroup_bytes",
    "memory.max_usage_in_bytes": "memory_cgroup_peak_bytes",
    "memory.kmem.usage_in_bytes": "memory_cgroup_kernel_bytes",
    "memory.limit_in_bytes": "memory_limit_bytes",
}
MEMORY_STAT = "memory.stat"
STAT = {
    "total_rss": "memory_cgroup_anon_bytes",
    "total_cache": "memory_cgroup_file_bytes",
    "total_swap": "memory_cgroup_swap_bytes",
}
NO_LIMIT = 1 << 62
"""From here on a number is how the kernel says that there is no limit."""

NANO = 1e-9
TICK = 1 / os.sysconf("SC_CLK_TCK")

Descriptors = Mapping[str, int]
"""Name of a file -> its descriptor; -1 if there is no such file."""


def open_files(directory: int, mounts: str = "/proc/self/mounts") -> dict[str, int]:
    """Opens the files of the cgroup whose folder in the tree of cpuacct is `directory`; none in another tree."""
    usage = open_file(USAGE, directory)
    if usage < 0:
        return {}
    found = {USAGE: usage, TIMES: open_file(TIMES, directory)}
    folder = os.readlink(f"/proc/self/fd/{directory}")
    with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
        trees = [line.split() for line in file]
    points = {controller: line[1] for line in trees if line[2] == "cgroup" for controller in line[3].split(",")}
    if "memory" in points and "cpuacct" in points:
        same = os.path.join(points["memory"], os.path.relpath(folder, points["cpuacct"]))
        found.update({name: open_file(os.path.join(same, name)) for name in (*MEMORY, MEMORY_STAT)})
    return found


def open_file(path: str, directory: int | None = None) -> int:
    """A descriptor of a file of a cgroup, whose folder may be given by a descriptor; -1 if it can't be read."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return -1


def read_cpu(files: Sequence[Descriptors]) -> dict[str, np.ndarray]:
    """CPU seconds by column, each of shape (n,); NaN if a cgroup is gone."""
    columns = {name: np.full(len(files), np.nan) for name in ("cpu_seconds", "cpu_user_seconds", "cpu_system_seconds")}
    for position, descriptors in enumerate(files):
        with contextlib.suppress(OSError, ValueError, KeyError):
            columns["cpu_seconds"][position] = int(_read(descriptors[USAGE])) * NANO
            told = dict(line.split() for line in _read(descriptors[TIMES]).splitlines())
            columns["cpu_user_seconds"][position] = int(told["user"]) * TICK
            columns["cpu_system_seconds"][position] = int(told["system"]) * TICK
    return columns


def read_memory(files: Sequence[Descriptors]) -> dict[str, np.ndarray]:
    """Charged memory and its limit by column, each of shape (n,); -1 if unknown."""
    names = (*MEMORY.values(), *STAT.values())
    columns: dict[str, np.ndarray] = {column: np.full(len(files), -1, "i8") for column in names}
    for position, descriptors in enumerate(files):
        for name, column in MEMORY.items():
            with contextlib.suppress(OSError, ValueError, KeyError):
                value = int(_read(descriptors[name]))
                columns[column][position] = value if value < NO_LIMIT else -1
        with contextlib.suppress(OSError, ValueError, KeyError):
            told = dict(line.split() for line in _read(descriptors[MEMORY_STAT]).splitlines())
            for name, column in STAT.items():
                columns[column][position] = int(told.get(name, -1))
    return columns


def _read(descriptor: int) -> str:
    return os.pread(descriptor, 4096, 0).decode("ascii", "replace")
