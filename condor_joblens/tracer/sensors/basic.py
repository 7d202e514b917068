"""Level basic: starts and ends of slots, processes and TCP connections, for every slot and as long as joblensd runs.

Its table of slots is what all other sensors stand on: a slot's index in it is the slot's index everywhere.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from condor_joblens.common.errors import JobLensError
from condor_joblens.model.failures import Failures
from condor_joblens.model.levels import Level
from condor_joblens.tracer import cgroup_uses, failed_connections, filesystems, map_layout
from condor_joblens.tracer._bpf import ffi, lib
from condor_joblens.tracer.backend_protocol import EVENTS_AT_A_TIME
from condor_joblens.tracer.loader import Part
from condor_joblens.tracer.loader_client import NotLoaded
from condor_joblens.tracer.map_table import MapTable
from condor_joblens.tracer.process_ring import ProcessEvents
from condor_joblens.tracer.sensor import Sensor, misses

STAND_INS = ("jl_tcp_state", "jl_tcp_state_2")
"""What one of these misses the other counts (tcp.bpf.c)."""

REPORTERS = ("jl_signal",)
"""Programs that count nothing: what one of these misses is missing in the report of a job's end."""

LOST = ("lost_slots", "lost_events", "lost_peaks")
"""Columns of map_layout.NODE: what the programs could not count for want of room."""

BPF_ANY, BPF_NOEXIST = 0, 1

LOAD_SECONDS = 20.0
"""For so long joblensd waits for what loads a sensor of all slots, with all else."""

ENDPOINTS_A_SLOT = 16
"""For each slot that there can be; those at level io share them, and one can have map_layout.MAX_ENDPOINTS."""

SERVERS_A_SLOT = 8
"""The same of file servers, for slots at any level; one can have map_layout.MAX_SERVERS."""


class Basic(Sensor):
    """`slots` (map_layout.COUNTERS), `living` and `connections` (map_layout.LIVING) are indexed by slot.

    They are views of memory that the kernel writes. `endpoints` and `servers` are the tables of remote endpoints and of
    file servers. `processes` is the ring of what starts and ends, and `node` one element of map_layout.NODE.
    """

    name = "basic"
    level = Level.BASIC
    parts: ClassVar = (
        Part("slots", ("slots",), (("jl_slot_born", "jl_slot_gone", "jl_slot_empty", "jl_slot_entered"),), needed=True),
        Part(
            "processes",
            ("process",),
            (("jl_fork", "jl_exec", "jl_signal", "jl_exit"),),
            needed=True,
            iterators=("jl_iter_task",),
        ),
        Part("TCP", ("tcp",), (("jl_tcp_state", "jl_tcp_state_2"),), needed=True, iterators=("jl_iter_tcp",)),
        Part("threads", ("threads",), ((),), iterators=("jl_iter_threads",)),
    )

    def __init__(self, max_slots: int, cpus: int, process_ring_bytes: int) -> None:
        """For `max_slots` slots on a machine with as many possible `cpus`."""
        super().__init__(max_slots)
        self.max_slots, self.cpus = max_slots, cpus
        self.filesystem_types: Mapping[str, int] = filesystems.built_in()  # a site can add some
        self.unseen_mapped: frozenset[int] = frozenset()
        """Classes of file systems whose servers nothing here sees: what is read of a mapped file is in no number."""
        self._process_ring_bytes = process_ring_bytes

    def sizes(self) -> dict[str, int]:
        """Entries of its maps."""
        return {
            "jl_slot_index": 2 * self.max_slots,
            "jl_counters": self.max_slots,
            "jl_live_tasks": self.max_slots,
            "jl_open_tcp": self.max_slots,
            "jl_free_slots": self.max_slots,
            "jl_proc_events": self._process_ring_bytes,
            "jl_endpoints": ENDPOINTS_A_SLOT * self.max_slots,
            "jl_servers": self._servers_room,
            "jl_unconnected": map_layout.FAILING_CONNECTORS * self.max_slots,
        }

    @property
    def _servers_room(self) -> int:
        return map_layout.MAX_SERVERS_UNATTRIBUTED + max(map_layout.MAX_SERVERS, SERVERS_A_SLOT * self.max_slots)

    def opened(self) -> None:
        """Views of its maps, its two rings, and the agent's pid namespace, by which programs name processes."""
        self.slots = self.view("jl_counters", map_layout.COUNTERS, self.max_slots)
        self.living = self.view("jl_live_tasks", map_layout.LIVING, self.max_slots)
        self.connections = self.view("jl_open_tcp", map_layout.LIVING, self.max_slots)
        self.node = self.view("jl_node", map_layout.NODE, 1)
        room = ENDPOINTS_A_SLOT * self.max_slots
        self.endpoints = MapTable(self.maps["jl_endpoints"], room, map_layout.ENDPOINT_KEY, map_layout.ENDPOINT)
        keys, values = map_layout.SERVER_KEY, map_layout.SERVER
        self.servers = MapTable(self.maps["jl_servers"], self._servers_room, keys, values)
        self.processes = ProcessEvents(self.maps["jl_proc_events"])
        self._question = None
        if "jl_question" in self.maps:
            self._question = self.view("jl_question", map_layout.EVIDENCE_QUESTION, 1)
        self._events = np.zeros(EVENTS_AT_A_TIME, map_layout.EVENT)
        self._ring = lib.map_ring(self.maps["jl_slot_events"])
        if self._ring == ffi.NULL:
            raise JobLensError(f"the kernel's ring of events can't be opened: {os.strerror(ffi.errno)}")
        namespace = os.stat("/proc/self/ns/pid")
        self.node["pid_namespace_device"] = namespace.st_dev
        self.node["pid_namespace_inode"] = namespace.st_ino

    def closed(self) -> None:
        """Gives the rings back. The views stay for whoever has them: the kernel keeps that memory as long."""
        lib.unmap_ring(self._ring)
        self.processes.close()

    # -- slots ----------------------------------------------------------------------------------------------

    def start(self, slot: int, instead: bool = False) -> bool:
        """Counts the cgroup that the table names for the slot; false if that cgroup has another slot already.

        `instead` of that one if it has.
        """
        key, value = self._inode(slot), ffi.new("__u32 *", slot)
        how = BPF_ANY if instead else BPF_NOEXIST
        return bool(lib.bpf_map_update_elem(self.maps["jl_slot_index"], key, value, how) == 0)

    def stop(self, slot: int) -> np.ndarray | None:
        """The slot's cgroup is nobody's from now on, unless the next job is in it and has a slot of its own."""
        key = self._inode(slot)
        if self.slot_of(int(key[0])) != slot or lib.bpf_map_delete_elem(self.maps["jl_slot_index"], key) != 0:
            return None
        counted: np.ndarray = self.slots[slot : slot + 1].copy()
        return counted

    def _inode(self, slot: int) -> Any:
        return ffi.new("__u64 *", cgroup_uses.inode_of(int(self.slots["cgroup_id"][slot])))

    def slot_of(self, inode: int) -> int | None:
        """The slot of the cgroup with this inode, whichever job is in it."""
        key, value = ffi.new("__u64 *", inode), ffi.new("__u32 *")
        if lib.bpf_map_lookup_elem(self.maps["jl_slot_index"], key, value) != 0:
            return None
        return int(value[0])

    def counters(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Totals of what has ended in the slots that are not free (map_layout.COUNTERS)."""
        counted = self.slots["state"][slots] != map_layout.FREE
        return counted, self.slots[slots[counted]]

    def failures(self, slot: int, tgid: int) -> Failures | None:
        """Connections that did not come about for a process of the slot, if none did after them; once."""
        key, value = self._connector(slot, tgid), np.zeros(1, map_layout.FAILED_CONNECTIONS)
        if lib.bpf_map_lookup_elem(self.maps["jl_unconnected"], key, ffi.from_buffer(value)) != 0:
            return None
        if not tgid or int(value["tgid"][0]) != tgid:
            return None
        lib.bpf_map_delete_elem(self.maps["jl_unconnected"], key)
        return failed_connections.read(value)

    def forget_failures(self, slot: int) -> None:
        """The slot is nobody's from now on."""
        for place in range(map_layout.FAILING_CONNECTORS):
            lib.bpf_map_delete_elem(self.maps["jl_unconnected"], self._connector(slot, place))

    @staticmethod
    def _connector(slot: int, tgid: int) -> Any:
        many = map_layout.FAILING_CONNECTORS
        return ffi.new("__u32 *", slot * many + tgid % many)

    def in_use(self) -> bool:
        """Whether any slot is taken."""
        return bool(self.slots["cgroup_id"].any())

    # -- what lives -----------------------------------------------------------------------------------------

    def count_living(self) -> None:
        """Fills `living` for all slots: one walk over the machine's threads, in the kernel."""
        self.living.view("u1")[:] = 0
        self._iterate("jl_iter_task")

    def count_connections(self) -> None:
        """Fills `connections` for all slots: one walk over the open TCP connections of our network namespace."""
        self.connections.view("u1")[:] = 0
        self.node["connections_round"] += 1
        self._iterate("jl_iter_tcp")

    def open_threads(self, slot: int, uid: int) -> int:
        """A descriptor that tells, as it is read, what each thread in the slot waits for (struct thread_report).

        It is the caller's to close, and to be read to its end before the next one is opened. Of threads that are not
        all this user's it tells no more than their names. Raises JobLensError if this kernel can't.
        """
        if self.loaded is None or self._question is None or "jl_iter_threads" not in self.loaded.iterators:
            raise JobLensError(f"this kernel does not tell what threads wait for: {self.missing.get('threads', '?')}")
        self._question["slot"], self._question["uid"] = slot, uid
        descriptor = lib.bpf_iter_create(self.loaded.iterators["jl_iter_threads"])
        if descriptor < 0:
            raise JobLensError(f"the kernel's iterator jl_iter_threads fails: {os.strerror(ffi.errno)}")
        return int(descriptor)

    # -- what happened --------------------------------------------------------------------------------------

    def events(self) -> np.ndarray:
        """What happened to slots since the last call, at most EVENTS_AT_A_TIME of map_layout.EVENT; a copy."""
        events = ffi.cast("struct event *", self._events.ctypes.data)
        count = lib.take_events(self._ring, events, EVENTS_AT_A_TIME)
        taken: np.ndarray = self._events[:count].copy()
        return taken

    def wake_for_process_events(self, at_once: bool) -> None:
        """Whether the ring's reader is woken as soon as there are events, or only when it is a quarter full."""
        self.node["wake_at_bytes"] = 0 if at_once else self._process_ring_bytes // 4

    def lost(self) -> int:
        """Events that could not be counted since the programs were loaded, from any cause, on the whole node."""
        missed = misses(program for name, program in self.programs().items() if name not in (*STAND_INS, *REPORTERS))
        return int(missed + sum(self.node[cause][0] for cause in LOST))

    def lost_process_events(self) -> dict[str, int]:
        """Process events that were lost since the programs were loaded, by kind. No number lacks them."""
        reporters = [program for name, program in self.programs().items() if name in REPORTERS]
        return {
            "exec": int(self.node["lost_execs"][0]),
            "exit": int(self.node["lost_exits"][0]),
            "signal": misses(reporters),
        }


class CloserSensor(Sensor):
    """A sensor beside basic: it counts chosen slots, whose indices and table are those of basic."""

    def __init__(self, basic: Basic, max_jobs: int) -> None:
        """For at most `max_jobs` of the slots of `basic` at a time."""
        super().__init__(max_jobs)
        self._basic = basic


class NodeSensor(CloserSensor):
    """A sensor for all slots at level basic, which a kernel may not have; there is nothing to start for one."""

    level = Level.BASIC

    def __init__(self, basic: Basic) -> None:
        """Beside `basic`."""
        super().__init__(basic, basic.max_jobs)

    def is_there(self) -> bool:
        """Whether what it counts is there already."""
        return True

    def begin(self, folder: Path | None, shared: Mapping[str, int]) -> None:
        """Goes on with what is pinned in `folder`, or loads and attaches it, if what it counts is there.

        `missing` says if the kernel refuses it: that is not tried again.
        """
        if self.loaded is not None or self.missing or not self.is_there():
            return
        try:
            if folder is None or not self.adopt(folder, shared):
                until = time.monotonic() + LOAD_SECONDS
                loaded = self.load(shared, lambda: time.monotonic() < until)
                self.missing = loaded.missing
                if loaded.programs:  # else it has no maps
                    self.take(loaded)
                    self.attach(folder)
        except NotLoaded:  # again with the next round
            return
        except JobLensError as error:
            self.unload()
            self.missing = {part.name: str(error) for part in self.parts}

    def sizes(self) -> dict[str, int]:
        """Those that C gives."""
        return {}

    def opened(self) -> None:
        """All that it fills are basic's tables."""

    def closed(self) -> None:
        """Nothing is kept of it."""

    def start(self, slot: int) -> bool:
        """It counts all slots."""
        return True

    def stop(self, slot: int) -> np.ndarray | None:
        """It goes on as long as basic does."""
        return None

    def counters(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Basic has them."""
        return np.zeros(len(slots), "?"), np.zeros(0, map_layout.COUNTERS)

    def in_use(self) -> bool:
        """Always."""
        return True
