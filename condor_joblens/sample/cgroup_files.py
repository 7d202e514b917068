"""The files of a job's cgroup, read by descriptors that stay open: CPU time, pressure and charged memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from condor_joblens.sample import cgroup_v1
from condor_joblens.sample._files import ffi, lib

MICRO = 1e-6

FAST = "cpu.stat"
CPU_COLUMNS = ("cpu_seconds", "cpu_user_seconds", "cpu_system_seconds")
PRESSURES = {
    "cpu.pressure": "cpu_pressure_some_seconds",
    "memory.pressure": "memory_pressure_some_seconds",
    "io.pressure": "io_pressure_some_seconds",
}
MEMORY = {
    "memory.current": "memory_cgroup_bytes",
    "memory.peak": "memory_cgroup_peak_bytes",
    "memory.swap.current": "memory_cgroup_swap_bytes",
}
MEMORY_STAT = "memory.stat"
STAT_COLUMNS = ("memory_cgroup_anon_bytes", "memory_cgroup_file_bytes", "memory_cgroup_kernel_bytes")
MEMORY_EVENTS, OOM_KILLS = "memory.events", "memory_oom_kills"
LIMIT, INNER_LIMIT = "memory.max", "*.scope/memory.max"
"""HTCondor makes a cgroup within the slot's, and may set the limit there as well: the lower one counts."""

LIMIT_COLUMN = "memory_limit_bytes"
SLOW_COLUMNS = (*PRESSURES.values(), *MEMORY.values(), *STAT_COLUMNS, LIMIT_COLUMN, OOM_KILLS)
"""Columns of `read_slow`."""

NAMES = (FAST, *PRESSURES, *MEMORY, MEMORY_STAT, MEMORY_EVENTS, LIMIT)


@dataclass
class CgroupFiles:
    """Descriptors of the files of one cgroup; -1 if this kernel has no such file."""

    descriptors: dict[str, int]

    @classmethod
    def open(cls, directory: int) -> CgroupFiles:
        """Opens what the cgroup with the directory descriptor `directory` has."""
        found = cgroup_v1.open_files(directory) or {name: cgroup_v1.open_file(name, directory) for name in NAMES}
        files = cls(found)
        files.look_inside(directory)
        return files

    def look_inside(self, directory: int) -> None:
        """Opens the limit of the cgroup within this one as soon as it exists; `directory` is this one's descriptor."""
        if self.descriptors.get(LIMIT, -1) < 0 or self.descriptors.get(INNER_LIMIT, -1) >= 0:
            return
        scopes = [name for name in os.listdir(directory) if name.endswith(".scope")]
        if scopes:
            self.descriptors[INNER_LIMIT] = cgroup_v1.open_file(os.path.join(scopes[0], LIMIT), directory)

    @property
    def is_version_1(self) -> bool:
        """Whether it is a cgroup of version 1; then all of the machine's are."""
        return cgroup_v1.USAGE in self.descriptors

    def close(self) -> None:
        """Gives the descriptors back."""
        for descriptor in self.descriptors.values():
            if descriptor >= 0:
                os.close(descriptor)
        self.descriptors.clear()


def read_cpu(files: list[CgroupFiles]) -> dict[str, np.ndarray]:
    """CPU seconds by column, each of shape (n,); NaN if a cgroup is gone."""
    if any(each.is_version_1 for each in files):
        return cgroup_v1.read_cpu([each.descriptors for each in files])
    descriptors = _descriptors(files, FAST)
    times: list[np.ndarray] = [np.empty(len(files), np.int64) for _ in CPU_COLUMNS]
    lib.read_cpu_stats(_pointer(descriptors), len(files), *map(_pointer, times))
    return dict(zip(CPU_COLUMNS, map(_seconds, times)))


def read_slow(files: list[CgroupFiles]) -> dict[str, np.ndarray]:
    """Pressure (seconds, NaN if absent) and charged memory (bytes, -1 if absent) by column, shape (n,)."""
    if any(each.is_version_1 for each in files):
        return cgroup_v1.read_memory([each.descriptors for each in files])
    columns: dict[str, np.ndarray] = {}
    value: np.ndarray = np.empty(len(files), np.int64)
    for name, column in PRESSURES.items():
        lib.read_pressures(_pointer(_descriptors(files, name)), len(files), _pointer(value))
        columns[column] = _seconds(value)
    for name, column in MEMORY.items():
        lib.read_numbers(_pointer(_descriptors(files, name)), len(files), _pointer(value))
        columns[column] = value.copy()
    stats: list[np.ndarray] = [np.empty(len(files), np.int64) for _ in STAT_COLUMNS]
    lib.read_memory_stats(_pointer(_descriptors(files, MEMORY_STAT)), len(files), *map(_pointer, stats))
    columns.update(zip(STAT_COLUMNS, stats))
    columns[LIMIT_COLUMN] = _limits(files)
    lib.read_oom_kills(_pointer(_descriptors(files, MEMORY_EVENTS)), len(files), _pointer(value))
    columns[OOM_KILLS] = value
    return columns


def _limits(files: list[CgroupFiles]) -> np.ndarray:
    limits = []
    for name in (LIMIT, INNER_LIMIT):
        value: np.ndarray = np.empty(len(files), np.int64)
        lib.read_numbers(_pointer(_descriptors(files, name)), len(files), _pointer(value))
        limits.append(value)
    outer, inner = limits
    lower: np.ndarray = np.where((inner >= 0) & ((outer < 0) | (inner < outer)), inner, outer)
    return lower


def _descriptors(files: list[CgroupFiles], name: str) -> np.ndarray:
    descriptors: np.ndarray = np.array([each.descriptors.get(name, -1) for each in files], np.int32)
    return descriptors


def _seconds(microseconds: np.ndarray) -> np.ndarray:
    seconds: np.ndarray = np.where(microseconds < 0, np.nan, microseconds * MICRO)
    return seconds


def _pointer(array: np.ndarray) -> Any:
    kind = "int *" if array.dtype == np.int32 else "int64_t *"
    return ffi.cast(kind, array.ctypes.data)
