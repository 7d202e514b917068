"""The tracer of a node: which cgroups are counted, what has been counted, and what happened.

Programs are loaded once. Watching one more job is one entry in a map, and the counters of all jobs are one
array in memory that the kernel and the agent share.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from condor_joblens.common.errors import JobLensError
from condor_joblens.tracer import filesystems, io, loader, map_layout
from condor_joblens.tracer._bpf import ffi, lib
from condor_joblens.tracer.endpoint_table import ENDPOINTS_A_SLOT, Endpoints
from condor_joblens.tracer.process_ring import ProcessEvents

PINS = Path("/sys/fs/bpf/joblens")
EVENTS_AT_A_TIME = 1024
STAND_INS = ("jl_tcp_state", "jl_tcp_state_2")
"""What one of these misses the other counts (tcp.bpf.c)."""

TELLING = ("jl_signal",)
"""Programs that count nothing: what one of these misses is missing in what is told of an end."""

PROCESS_RING_BYTES = 4 << 20
"""A second of ten thousand programs that start and end."""

ALL_DEPTHS = (1 << 64) - 1


class Tracer:
    """Counts what happens in the cgroups below the bases it is given.

    Arrays indexed by slot index, views of memory that the kernel writes:
    `counters` (layout.COUNTERS), `living` and `connections` (layout.LIVING).
    `processes` is the ring of what starts and ends.
    `endpoints` is what the slots at level io did by remote endpoint.
    `missing` has the parts of level io that the kernel refused when it was needed, with the reason.
    """

    source = b"bpf"
    note = ""  # what a reader of all its numbers must know
    is_exact = True
    unknown: frozenset[str] = frozenset()  # columns of kernel.columns that it can't give

    def __init__(
        self,
        max_slots: int,
        pins: Path = PINS,
        max_slots_io: int = 64,
        process_ring_bytes: int = PROCESS_RING_BYTES,
        io_linger_seconds: float = 0.0,
    ) -> None:
        """Loads everything for up to `max_slots` jobs, or adopts what is pinned. Raises JobLensError.

        Up to `max_slots_io` of them can be at level io at a time; what that needs is loaded with the first, and
        taken out `io_linger_seconds` after the last: the next such job often comes at once, and loading takes a while.
        """
        self.max_slots = max_slots
        self.max_slots_io = max_slots_io
        self._pins = pins
        cpus = possible_cpus()
        sizes = {
            "jl_slot_index": 2 * max_slots,
            "jl_counters": max_slots,
            "jl_live_tasks": max_slots,
            "jl_open_tcp": max_slots,
            "jl_free_slots": max_slots,
            "jl_proc_events": process_ring_bytes,
            "jl_endpoints": ENDPOINTS_A_SLOT * max_slots,
        }
        sizes.update(io.sizes(max_slots_io, cpus))
        self._loaded = loader.load(pins, sizes, cpus)
        self.adopted = self._loaded.adopted
        self.replaced = self._loaded.replaced
        self.warnings = self._loaded.warnings
        self.counters = self._view("jl_counters", map_layout.COUNTERS, max_slots)
        self.living = self._view("jl_live_tasks", map_layout.LIVING, max_slots)
        self.connections = self._view("jl_open_tcp", map_layout.LIVING, max_slots)
        self.endpoints = Endpoints(self._loaded.maps["jl_endpoints"], sizes["jl_endpoints"])
        self._node = self._view("jl_node", map_layout.NODE, 1)
        self._retired: list[int] = []
        self._open_ring()
        self.processes = ProcessEvents(self._loaded.maps["jl_proc_events"])
        self._know_pid_namespace()
        self.missing: dict[str, str] = {}
        self._cpus = cpus
        self._io: io.IoSet | None = None
        self._loading: io.Loading | None = None
        self._loaded_aside: Callable[[], object] | None = None  # None: whoever needs level io waits for it
        self._io_lost = 0
        self._io_linger_seconds = io_linger_seconds
        self._io_used = time.monotonic()  # when a slot was at io for the last time, seen by `settle`
        self._types = filesystems.built_in()
        if not self.adopted:
            for slot in range(max_slots):
                self._release(slot)
        elif loader.has_io(self._loaded):
            self._take_io(self._load_io())

    def _view(self, name: str, dtype: np.dtype[Any], count: int) -> np.ndarray:
        size = -(-dtype.itemsize * count // mmap.PAGESIZE) * mmap.PAGESIZE
        memory = mmap.mmap(self._loaded.maps[name], size)
        view: np.ndarray = np.frombuffer(memory, dtype, count)
        return view

    def _open_ring(self) -> None:
        self._events = np.zeros(EVENTS_AT_A_TIME, map_layout.EVENT)
        self._ring = lib.map_ring(self._loaded.maps["jl_slot_events"])
        if self._ring == ffi.NULL:
            raise JobLensError(f"the kernel's ring of events can't be opened: {os.strerror(ffi.errno)}")

    def _know_pid_namespace(self) -> None:
        namespace = os.stat("/proc/self/ns/pid")
        self._node["pid_namespace_device"] = namespace.st_dev
        self._node["pid_namespace_inode"] = namespace.st_ino

    # -- which cgroups ------------------------------------------------------------------------------------

    def watch_below(self, bases: list[int], depths: list[int] | None) -> None:
        """From now on every cgroup that is made directly below one of `bases` (cgroup ids) is a slot.

        `depths` are those of the bases below the tree's real root; None where it can't be seen, as in a cgroup
        namespace: every depth is then looked at, which is right and a little slower.
        """
        ids = np.zeros(lib.BASES, "u8")
        ids[: len(bases)] = bases[: lib.BASES]
        mask = ALL_DEPTHS if depths is None else sum({1 << (depth + 1) for depth in depths})
        self._node["slot_depths"] = mask
        self._node["base"] = ids

    def take(self, cgroup_id: int, watched_level: int) -> int | None:
        """Counts an existing cgroup directly below a base from now on; its slot index, None where all are in use."""
        key, value = ffi.new("__u64 *", cgroup_id), ffi.new("__u32 *")
        if lib.bpf_map_lookup_elem(self._loaded.maps["jl_slot_index"], key, value) == 0:
            return int(value[0])
        if lib.bpf_map_lookup_and_delete_elem(self._loaded.maps["jl_free_slots"], ffi.NULL, value) != 0:
            return None
        slot = int(value[0])
        count = self.counters[slot]
        count["cgroup_id"] = cgroup_id
        count["born_ns"] = time.monotonic_ns()
        count["level"] = watched_level
        count["state"] = map_layout.LIVE
        if lib.bpf_map_update_elem(self._loaded.maps["jl_slot_index"], key, value, 1) != 0:  # BPF_NOEXIST
            self._release(slot)
            return self.take(cgroup_id, watched_level)
        return slot

    def slot_of(self, cgroup_id: int) -> int | None:
        """The slot index of a watched cgroup."""
        key, value = ffi.new("__u64 *", cgroup_id), ffi.new("__u32 *")
        if lib.bpf_map_lookup_elem(self._loaded.maps["jl_slot_index"], key, value) != 0:
            return None
        return int(value[0])

    def begin_at_next_exec(self, slot: int) -> None:
        """The next program that is started in the slot is the job: what came before does not count."""
        self.counters["awaits_exec"][slot] = 1
        if self.stop_io(slot) is not None:
            self.start_io(slot)

    def stop(self, slot: int) -> None:
        """Stops counting for a slot; its index is used again after the next `settle`."""
        self.stop_io(slot)
        key = ffi.new("__u64 *", int(self.counters["cgroup_id"][slot]))
        lib.bpf_map_delete_elem(self._loaded.maps["jl_slot_index"], key)
        self._retired.append(slot)

    def settle(self) -> None:
        """Makes the indices of slots stopped before free. A program that had looked one up is long done by now."""
        by_endpoint = any(self.counters["by_endpoint"][slot] for slot in self._retired)
        for slot in self._retired:
            self._release(slot)
        self._retired.clear()
        if by_endpoint:
            self._sweep_endpoints()
        loaded = self._loaded_io()
        if loaded is not None:
            now = time.monotonic()
            if len(loaded.keys()):
                self._io_used = now
                loaded.refresh(self._types)
            elif loaded.usable and now - self._io_used >= self._io_linger_seconds:
                self._unload_io()

    def _sweep_endpoints(self) -> None:
        """Takes the entries of cgroups that no slot counts any more out of the table."""
        keys, _ = self.endpoints.read()
        counted = np.sort(self.counters["cgroup_id"])
        place = np.searchsorted(counted, keys["cgroup_id"]) % len(counted)
        self.endpoints.drop(keys[counted[place] != keys["cgroup_id"]])

    def _release(self, slot: int) -> None:
        self.counters[slot : slot + 1].view("u1")[:] = 0
        lib.bpf_map_update_elem(self._loaded.maps["jl_free_slots"], ffi.NULL, ffi.new("__u32 *", slot), 0)

    # -- level io -----------------------------------------------------------------------------------------

    def load_aside(self, done: Callable[[], object]) -> None:
        """From now on a thread loads level io, and calls `done`. Until then no slot can be started at it."""
        self._loaded_aside = done

    def start_io(self, slot: int) -> bool:
        """Counts the slot at level io too, from nothing on; false where that can't be, or not yet: see `why_no_io`."""
        self._io_used = time.monotonic()
        if self.max_slots_io == 0:
            return False
        loaded = self._loaded_io()
        if loaded is None and self._loading is None:
            self._begin_io()
            loaded = self._loaded_io()
        return loaded is not None and loaded.start(slot)

    def why_no_io(self) -> str:
        """Why a slot could not be started at level io."""
        if self._loading is not None:
            return "its programs are still being loaded into the kernel"
        if self._io is not None and not self._io.usable:
            return "the kernel refuses what it needs, see JobLensdLog"
        return f"no more than JOBLENS_MAX_JOBS_IO = {self.max_slots_io} jobs can be watched at it"

    def stop_io(self, slot: int) -> np.ndarray | None:
        """Counts the slot at level io no longer; what was counted to the last (layout.IO_COUNTERS, shape (1,))."""
        if self._io is None or not self.counters["io_key"][slot]:
            return None
        return self._io.stop(slot)

    def io_counters(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which of `slots` (n,) are at level io, shape (n,) of bool, and what was counted for those (IO_COUNTERS)."""
        keys = self.counters["io_key"][slots]
        at_io = keys > 0
        if self._io is None or not at_io.any():
            return np.zeros(len(slots), "?"), np.empty(0, map_layout.IO_COUNTERS)
        return at_io, self._io.sums(keys[at_io])

    def classify_filesystems(self, types: dict[str, int]) -> None:
        """Types that a site adds to those that are known, and their classes: from the next round on."""
        self._types = {**filesystems.built_in(), **types}

    def _begin_io(self) -> None:
        if self._loaded_aside is None:
            self._take_io(self._load_io())
        else:
            self._loading = io.Loading(self._load_io, self._loaded_aside)

    def _load_io(self, is_wanted: Callable[[], bool] = lambda: True) -> loader.Loaded:
        return loader.load_io(self._loaded, io.sizes(self.max_slots_io, self._cpus), self._cpus, is_wanted)

    def _loaded_io(self) -> io.IoSet | None:
        """Level io, as soon as it is there."""
        if self._loading is not None and self._loading.is_over:
            loading, self._loading = self._loading, None
            self._take_io(loading.take())
        return self._io

    def _take_io(self, loaded: loader.Loaded) -> None:
        self._io = io.IoSet(loaded, self.counters, self.max_slots_io, self._cpus)
        self._io.refresh(self._types)
        self.missing = self._io.missing
        self._io_used = time.monotonic()

    def _unload_io(self) -> None:
        if self._io is not None:
            self._io_lost = self.lost_io()
            self._io.unload()
            self._io = None

    def attached(self) -> list[str]:
        """Names of the programs that are attached now."""
        io_programs = {} if self._io is None else self._io.programs()
        return sorted([*self._loaded.programs, *io_programs])

    def programs_cost(self) -> dict[str, tuple[float, int]]:
        """Seconds that each program has run, and how often, while kernel.bpf_stats_enabled was 1."""
        io_programs = {} if self._io is None else self._io.programs()
        found, runs = {}, ffi.new("uint64_t *")
        for name, descriptor in {**self._loaded.programs, **io_programs}.items():
            nanoseconds = lib.program_run_ns(descriptor, runs)
            if nanoseconds >= 0:
                found[name] = (nanoseconds * 1e-9, int(runs[0]))
        return found

    def lost_io(self) -> int:
        """Events that level io could not count since this tracer was made, on the whole node."""
        return self._io_lost + (0 if self._io is None else self._misses(self._io.programs().values()))

    # -- what was counted ----------------------------------------------------------------------------------

    def count_living(self) -> None:
        """Fills `living` for all slots: one walk over the machine's threads, in the kernel."""
        self._node["round"] += 1
        self.living.view("u1")[:] = 0
        self._iterate("jl_iter_task")

    def count_connections(self) -> None:
        """Fills `connections` for all slots: one walk over the open TCP connections of our network namespace."""
        self.connections.view("u1")[:] = 0
        self._node["connections_round"] += 1
        self._iterate("jl_iter_tcp")

    @property
    def connections_round(self) -> int:
        """Which walk over the connections was the last: entries of `endpoints` with it have open ones."""
        return int(self._node["connections_round"][0])

    def drop_endpoints(self, keys: np.ndarray) -> None:
        """Takes entries of slots (layout.ENDPOINT_KEY, shape (n,)) out of the table, so that these may have others."""
        for cgroup_id in set(keys["cgroup_id"].tolist()):
            own = keys[keys["cgroup_id"] == cgroup_id]
            dropped = self.endpoints.drop(own)
            if own["kind"][0] == map_layout.ENDPOINT_COUNTED:
                self.counters["endpoints_dropped"][self.counters["cgroup_id"] == cgroup_id] += dropped

    def _iterate(self, name: str) -> None:
        result = lib.run_iterator(self._loaded.iterators[name])
        if result < 0:
            raise JobLensError(f"the kernel's iterator {name} fails: {os.strerror(-result)}")

    def lost(self) -> int:
        """Events that could not be counted since the programs were loaded, from any cause, on the whole node."""
        programs = self._loaded.programs.items()
        misses = self._misses(program for name, program in programs if name not in (*STAND_INS, *TELLING))
        return int(misses + sum(self._node[cause][0] for cause in ("lost_slots", "lost_events", "lost_peaks")))

    def lost_process_events(self) -> dict[str, int]:
        """Process events that were lost since the programs were loaded, by kind. No number lacks them."""
        told = [program for name, program in self._loaded.programs.items() if name in TELLING]
        return {
            "exec": int(self._node["lost_execs"][0]),
            "exit": int(self._node["lost_exits"][0]),
            "signal": self._misses(told),
        }

    def new_process_losses(self) -> dict[str, int]:
        """The same since the last call, also where that was an earlier agent's; kinds of which none was lost apart."""
        found = {}
        for kind, count in self.lost_process_events().items():
            told = f"told_{kind}s"
            if count != int(self._node[told][0]):
                found[kind] = count - int(self._node[told][0])
                self._node[told] = count
        return found

    @staticmethod
    def _misses(programs: Iterable[int]) -> int:
        return sum(max(0, lib.recursion_misses(program)) for program in programs)

    # -- what happened ------------------------------------------------------------------------------------

    def fileno(self) -> int:
        """Readable when there are events."""
        return self._loaded.maps["jl_slot_events"]

    def events(self) -> np.ndarray:
        """What happened since the last call, at most EVENTS_AT_A_TIME of layout.EVENT, in order; a copy."""
        events = ffi.cast("struct event *", self._events.ctypes.data)
        count = lib.take_events(self._ring, events, EVENTS_AT_A_TIME)
        taken: np.ndarray = self._events[:count].copy()
        return taken

    # -- the end -------------------------------------------------------------------------------------------

    def pins(self) -> Path | None:
        """The folder of bpffs that holds what outlives this process, if any."""
        return self._loaded.folder

    def close(self) -> None:
        """An orderly stop: nothing of ours stays in the kernel."""
        if self._loading is not None:
            self._loading.give_up()
        self._unload_io()
        lib.unmap_ring(self._ring)
        self.processes.close()
        self._loaded.unload()
        with contextlib.suppress(OSError):
            self._pins.rmdir()


def possible_cpus() -> int:
    """One more than the greatest CPU number that this machine can have."""
    with open("/sys/devices/system/cpu/possible", encoding="ascii") as file:
        return int(file.read().strip().replace(",", "-").split("-")[-1]) + 1
