"""Level io: its programs, in the kernel only while a job needs them, and the wide counters of those jobs.

A job at io has a row for each CPU. Its key says which: one more than the row's number, and in the upper half a number
that is never used twice. All of that lies in memory that the kernel shares, and outlives an agent.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from condor_joblens.common.errors import JobLensError
from condor_joblens.model.failures import Failures
from condor_joblens.model.levels import Level
from condor_joblens.tracer import failed_calls, filesystems, map_layout
from condor_joblens.tracer._bpf import ffi, lib
from condor_joblens.tracer.loader import Part
from condor_joblens.tracer.makers import CALL_WAITS
from condor_joblens.tracer.sensors.basic import Basic, CloserSensor

THREADS, THREADS_A_JOB = 16384, 64
"""Room for threads that wait, together for all jobs: at least so many, and so many for each job there can be."""


class Io(CloserSensor):
    """System calls, file systems, waits, io_uring and UDP of the slots at level io."""

    name = "io"
    level = Level.IO
    # in the order in which they are attached: no call is counted before it is known who makes it
    parts: ClassVar = (
        Part(
            "context switches",
            ("switch", "switch", "switch_reads", "switch_reads"),
            (
                ("jl_switch", "jl_io_exec"),
                ("jl_switch_5_17", "jl_io_exec"),
                ("jl_switch_rd", "jl_io_exec"),
                ("jl_switch_rd517", "jl_io_exec"),
            ),
            needed=True,
            iterators=("jl_io_asleep",),
        ),
        Part(
            "system calls",
            ("syscalls", "syscalls_reads"),
            (("jl_sys_exit", "jl_io_exit"), ("jl_sys_exit_rd", "jl_io_exit")),
        ),
        Part(
            "io_uring",
            ("uring",),
            (
                ("jl_uring", "jl_uring_submit", "jl_uring_full"),
                ("jl_uring_6_14", "jl_uring_submit", "jl_uring_full"),
                ("jl_uring_6_14", "jl_uring_sqe", "jl_uring_full"),
            ),
        ),
        Part("UDP", ("udp",), (("jl_udp_send", "jl_udp_recv"), ("jl_udp_sys_exit",))),
    )

    def __init__(self, basic: Basic, max_jobs: int) -> None:
        """For at most `max_jobs` of the slots of `basic` at a time."""
        super().__init__(basic, max_jobs)
        self._types: dict[str, int] = {}
        self._prefixes: dict[bytes, int] = {}
        self._rounds = 0
        self._mounts: filesystems.Mounts | None = None
        self._call_waits: dict[int, CallWaits] = {}  # by row

    def sizes(self) -> dict[str, int]:
        """Entries of its maps."""
        max_jobs, cpus = max(1, self.max_jobs), self._basic.cpus
        return {
            "jl_io_counters": max_jobs * cpus,
            "jl_call_waits": max_jobs,
            "jl_io_uring": max_jobs,
            "jl_io_failing": max_jobs,
            "jl_io_failed": max_jobs * lib.FAILING,
            "jl_io_running": cpus,
            "jl_io_waiting": 1 << (max(THREADS, max_jobs * THREADS_A_JOB) - 1).bit_length(),
            "jl_io_cgroups": cpus,
            "jl_io_supers": cpus,
            "jl_io_scratch": 4 * cpus,
            "jl_fs_types": 256,
            "jl_mounts": 4096,
        }

    def constants(self) -> bytes:
        """struct io_constants: the number of CPUs comes first."""
        return self._basic.cpus.to_bytes(4, sys.byteorder)

    def opened(self) -> None:
        """Views of its maps."""
        max_jobs, cpus = self.max_jobs, self._basic.cpus
        waiting = self.sizes()["jl_io_waiting"]
        self._counts = self.view("jl_io_counters", map_layout.IO_COUNTERS, max_jobs * cpus).reshape(max_jobs, cpus)
        self._failing, self._failed = None, None
        if "jl_io_failing" in self.maps:
            self._failing = self.view("jl_io_failing", map_layout.IO_FAILING, max_jobs)
            failed = self.view("jl_io_failed", map_layout.IO_FAILURES, max_jobs * lib.FAILING)
            self._failed = failed.reshape(max_jobs, lib.FAILING)
        self._uring = None
        if "jl_io_uring" in self.maps:
            self._uring = self.view("jl_io_uring", map_layout.IO_URING, max_jobs)
        self._running = self.view("jl_io_running", map_layout.IO_RUNNING, cpus)
        self._waiting = self.view("jl_io_waiting", map_layout.IO_WAITING, waiting)
        self._tables = self._io_tables()
        self._superblocks = self.view("jl_io_supers", map_layout.IO_SUPERBLOCKS, cpus)
        self._node = self.view("jl_io_node", map_layout.IO_NODE, 1)
        self._node["waiting_mask"] = waiting - 1
        self._mounts = filesystems.Mounts()
        self._types, self._prefixes = {}, {}
        if self.is_attached:  # adopted
            # what is in the tables is replaced with the first round: until then it is right enough
            self._types = dict.fromkeys((_type_of(key) for key in self.keys("jl_fs_types", 40)), -1)
            self._prefixes = dict.fromkeys((_prefix_of(key) for key in self.keys("jl_mounts", 252)), -1)
        else:
            self._slots["io_key"] = 0
            # of keys that earlier programs gave nothing is left, but numbers must not come again
            self._node["keys"] = time.time_ns() // 1_000_000_000 & 0x7FFFFFFF
            self._node["generation"] = 1
        for row in range(max_jobs if "jl_call_waits" in self.maps else 0):  # an earlier agent's
            lib.bpf_map_delete_elem(self.maps["jl_call_waits"], ffi.new("__u32 *", row))
        self.refresh()

    def _io_tables(self) -> Any:
        """struct io_tables: what `_sums` reads."""
        tables = ffi.new("struct io_tables *")
        tables.counts = ffi.from_buffer("struct io_counters[]", self._counts.reshape(-1))
        tables.uring = ffi.NULL
        if self._uring is not None:
            tables.uring = ffi.from_buffer("struct io_uring_counters[]", self._uring)
        tables.running = ffi.from_buffer("struct io_running[]", self._running)
        tables.waiting = ffi.from_buffer("struct io_waiting[]", self._waiting)
        tables.max_jobs, tables.cpus, tables.threads = self.max_jobs, self._basic.cpus, len(self._waiting)
        return tables

    def closed(self) -> None:
        """No slot has a key any more."""
        self._slots["io_key"] = 0
        self._call_waits.clear()
        if self._mounts is not None:
            self._mounts.close()
            self._mounts = None
        for name in (
            "_counts",
            "_failing",
            "_failed",
            "_uring",
            "_running",
            "_waiting",
            "_tables",
            "_superblocks",
            "_node",
        ):
            self.__dict__.pop(name, None)

    def attaching(self) -> None:
        """What CPUs and threads did when it was attached before is no longer so."""
        self._running.view("u1")[:] = 0
        self._waiting.view("u1")[:] = 0
        self.refresh()

    def detach(self) -> None:
        """As every sensor; no slot has a key any more."""
        super().detach()
        self._slots["io_key"] = 0
        for row in list(self._call_waits):
            self._keep_no_waits(row)

    @property
    def _slots(self) -> np.ndarray:
        return self._basic.slots

    # -- whose calls are counted --------------------------------------------------------------------------

    def in_use(self) -> bool:
        """Whether any slot has a key."""
        return bool(self._slots["io_key"].any())

    def start(self, slot: int) -> bool:
        """Counts the slot at io, from nothing on; false if all rows are in use."""
        keys = self._slots["io_key"]
        if keys[slot]:
            return True
        taken = {int(key) & 0xFFFFFFFF for key in keys[keys > 0]}
        row = next((row for row in range(self.max_jobs) if row + 1 not in taken), None)
        if row is None:
            return False
        self._counts[row].view("u1")[:] = 0
        if self._failing is not None:
            self._failing[row : row + 1].view("u1")[:] = 0
        if self._uring is not None:
            self._uring[row : row + 1].view("u1")[:] = 0
        self._node["keys"] += 1
        self._slots["io_key"][slot] = int(self._node["keys"][0]) << 32 | row + 1
        self._forget_keys()
        if not self._slots["awaits_exec"][slot]:  # else nothing counts before its exec, which finds the key
            self._look_again(os.sched_getaffinity(0))
            self._find_asleep(row)
        return True

    def _find_asleep(self, row: int) -> None:
        """Threads that sleep already wait from now on. A job that has not begun has none."""
        try:
            self._iterate("jl_io_asleep")
        except JobLensError:
            self._counts["uncounted"][row, 0, lib.UNCOUNTED_WAITS] += 1

    def stop(self, slot: int) -> np.ndarray | None:
        """Counts the slot no longer; what was counted to the last moment (map_layout.IO_COUNTERS), shape (1,)."""
        key = self._slots["io_key"][slot : slot + 1].copy()
        if not key[0]:
            return None
        self._slots["io_key"][slot] = 0
        self._keep_no_waits(int(key[0] & 0xFFFFFFFF) - 1)
        self._forget_keys()
        self._look_again(np.flatnonzero(self._running["key"] == key).tolist())
        counted = self._sums(key)
        self._waiting[self._waiting["key"] == key] = 0
        return counted

    def counters(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which of `slots` (n,) are at level io, shape (n,) of bool, and map_layout.IO_COUNTERS for each of those."""
        keys = self._slots["io_key"][slots]
        at_io = keys > 0
        if not self.is_attached or not at_io.any():
            return np.zeros(len(slots), "?"), np.empty(0, map_layout.IO_COUNTERS)
        return at_io, self._sums(keys[at_io])

    def failures(self, slot: int, tgid: int) -> Failures | None:
        """What has failed lately for a process of the slot that has ended, once; None if nothing is known."""
        key = int(self._slots["io_key"][slot])
        if not key or not self.is_attached or self._failing is None or self._failed is None:
            return None
        row = (key & 0xFFFFFFFF) - 1
        places = np.flatnonzero(self._failing["tgid"][row] == tgid)
        if not tgid or not len(places):
            return None
        found = failed_calls.read(self._failed[row, places[0] : places[0] + 1].copy())
        self._failing["tgid"][row, places[0]] = 0
        self._failing["last_ns"][row, places[0]] = 0
        return found

    # -- how long calls have waited -----------------------------------------------------------------------

    def keep_waits(self, slot: int) -> CallWaits | None:
        """From now on what calls of a slot at io wait is kept by class and length; None if it can't be."""
        key, array = int(self._slots["io_key"][slot]), -1
        if key and self.is_attached and "jl_call_waits" in self.maps:
            array = self.maker.array(CALL_WAITS, 1)
        if array < 0:
            return None
        row = (key & 0xFFFFFFFF) - 1
        found = self._call_waits[row] = CallWaits(array, self._basic.cpus)
        if lib.bpf_map_update_elem(self.maps["jl_call_waits"], ffi.new("__u32 *", row), ffi.new("__u32 *", array), 0):
            self.keep_no_waits(found)
            return None
        return found

    def keep_no_waits(self, waits: CallWaits) -> None:
        """They are kept no longer, and what was is gone."""
        for row in [row for row, known in self._call_waits.items() if known is waits]:
            self._keep_no_waits(row)
        waits.close()

    def _keep_no_waits(self, row: int) -> None:
        if self._call_waits.pop(row, None) is not None:
            lib.bpf_map_delete_elem(self.maps["jl_call_waits"], ffi.new("__u32 *", row))

    def _forget_keys(self) -> None:
        """What CPUs remember of cgroups' keys is old from now on.

        A CPU remembers a cgroup's key with the generation in which it read it. So the key has to be there before the
        generation: an old key with the new generation would stay. The programs have no barrier between the two loads
        on kernels before 5.12. None is needed: between the two stores is far more than a CPU reorders. As much lies
        between the generation and what `_running` says afterwards.
        """
        lib.full_barrier()
        self._node["generation"] += 1
        lib.full_barrier()

    def _look_again(self, cpus: Iterable[int]) -> None:
        """Makes these CPUs look anew at whose thread they run: by a switch to this one, which goes round."""
        before = os.sched_getaffinity(0)
        for cpu in cpus:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, {cpu})
        if os.sched_getaffinity(0) != before:
            os.sched_setaffinity(0, before)

    # -- what was counted ---------------------------------------------------------------------------------

    def _sums(self, keys: np.ndarray) -> np.ndarray:
        """What was counted for the jobs of these keys (n,) on all CPUs: map_layout.IO_COUNTERS, shape (n,).

        With the waits that still go on. They move from `_waiting` to `_running` to the counters; these are read the
        other way round, so that none is met twice.
        """
        total: np.ndarray = np.empty(len(keys), map_layout.IO_COUNTERS)
        keys = np.ascontiguousarray(keys)
        to = ffi.from_buffer("struct io_counters[]", total, require_writable=True)
        if lib.sum_io(self._tables, ffi.from_buffer("uint64_t[]", keys), len(keys), to) != 0:
            raise JobLensError("what level io has counted can't be added up")
        return total

    # -- file systems -------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Once a round: classes by type, and the mounts if they have changed."""
        if self._mounts is None:
            return
        self._node["unseen_mapped"] = sum(1 << place for place in self._basic.unseen_mapped)
        self._superblocks["address"] = 0
        # one CPU each time looks again how far apart the clocks are
        self._rounds += 1
        self._running["clock_looks"][self._rounds % len(self._running)] = 0
        changed, types = self._mounts.changed(), self._basic.filesystem_types
        if types != self._types:
            self._replace("jl_fs_types", _type_key, self._types, types)
            self._types, changed = dict(types), True
        if changed:
            prefixes = filesystems.mount_prefixes(self._mounts.read(), self._types)
            self._replace("jl_mounts", _prefix_key, self._prefixes, prefixes)
            self._prefixes = prefixes

    def _replace(self, name: str, key_of: Any, before: Mapping[Any, int], after: Mapping[Any, int]) -> None:
        descriptor = self.maps[name]
        for key in before.keys() - after.keys():
            lib.bpf_map_delete_elem(descriptor, key_of(key))
        for key, value in after.items():
            if before.get(key) != value:
                number = value | OF_THE_ROOT if key == b"/" else value
                lib.bpf_map_update_elem(descriptor, key_of(key), ffi.new("__u32 *", number), 0)


class CallWaits:
    """How long calls of a job have waited since a moment: an array of the kernel, which is there until it is closed."""

    def __init__(self, array: int, cpus: int) -> None:
        """`array` is its descriptor, with an element on each of so many CPUs."""
        self._array, self._cpus = array, cpus

    def close(self) -> None:
        """Nobody reads it any more."""
        os.close(self._array)

    def read(self) -> np.ndarray:
        """On all CPUs together, until now: map_layout.CALL_WAITS, shape (). Raises OSError."""
        each: np.ndarray = np.zeros(self._cpus, map_layout.CALL_WAITS)
        if lib.bpf_map_lookup_elem(self._array, ffi.new("__u32 *", 0), ffi.from_buffer(each.view("u1"))):
            raise OSError(ffi.errno, os.strerror(ffi.errno))
        total: np.ndarray = np.zeros((), map_layout.CALL_WAITS)
        for name in map_layout.CALL_WAITS.names or ():
            total[name] = each[name].sum(axis=0)
        return total


OF_THE_ROOT = 0x100


def _type_key(name: str) -> Any:
    return ffi.new("char[40]", name.encode())


def _type_of(key: bytes) -> str:
    return key.partition(b"\0")[0].decode("ascii", "replace")


def _prefix_of(key: bytes) -> bytes:
    return key[4 : 4 + int.from_bytes(key[:4], "little") // 8]


def _prefix_key(path: bytes) -> Any:
    key = ffi.new("char[252]", (8 * len(path)).to_bytes(4, "little") + path)
    return key
