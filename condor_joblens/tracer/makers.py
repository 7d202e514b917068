"""Who makes programs, maps and clocks: this process, or another one that joblensd asks (loader_client.py).

To make them takes CAP_BPF and CAP_PERFMON. To use them takes neither, from Linux 5.19 on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from condor_joblens.tracer import loader
from condor_joblens.tracer._bpf import ffi, lib
from condor_joblens.tracer.loader import Given, Loaded, Part

ROWS, MAPPINGS, CALL_WAITS = 0, 1, 2
"""Kinds of arrays that are elements of maps: rows of unwind tables, mappings of a process, and how long calls waited.

The last one has an element on each CPU.
"""

_ARRAYS = {
    ROWS: (lib.BPF_MAP_TYPE_ARRAY, b"jl_rows", 8, lib.ROWS_FLAGS),
    MAPPINGS: (lib.BPF_MAP_TYPE_ARRAY, b"jl_mapped", ffi.sizeof("struct code_mapping"), lib.MAPPINGS_FLAGS),
    CALL_WAITS: (lib.BPF_MAP_TYPE_PERCPU_ARRAY, b"jl_job_waits", ffi.sizeof("struct call_waits"), 0),
}


class Wanted(NamedTuple):
    """Which sensor is to be loaded, and how large."""

    sensor: str
    jobs: int  # that it counts at a time
    job_bytes: int = 0  # of the kernel's memory for each of them, if that is not the same on every node


class Maker(Protocol):
    """Makes programs, maps and clocks."""

    def load(self, wanted: Wanted, parts: Iterable[Part], given: Given, is_wanted: Callable[[], bool]) -> Loaded:
        """The programs of this sensor, as loader.load does. Raises JobLensError."""

    def array(self, kind: int, entries: int) -> int:
        """A descriptor of a new array, of a kind as above, of so many entries; -errno."""

    def clock(self, cpu: int, hz: int) -> int:
        """A descriptor of a clock of a CPU; -errno."""


class OwnMaker:
    """This process."""

    def load(self, _wanted: Wanted, parts: Iterable[Part], given: Given, is_wanted: Callable[[], bool]) -> Loaded:
        """As a Maker does."""
        return loader.load(parts, given, is_wanted)

    def array(self, kind: int, entries: int) -> int:
        """As a Maker does."""
        map_type, name, value_bytes, flags = _ARRAYS[kind]
        return int(lib.new_array(map_type, name, value_bytes, entries, flags))

    def clock(self, cpu: int, hz: int) -> int:
        """As a Maker does."""
        return int(lib.open_cpu_clock(cpu, hz))
