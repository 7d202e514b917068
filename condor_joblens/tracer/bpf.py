"""The tracer of a node: which cgroups are counted, and the sensors that count them in the kernel.

Programs are loaded once. Watching one more job is one entry in a map. The counters of all jobs are one array in memory
that the kernel and the agent share.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from condor_joblens.common import bpffs
from condor_joblens.common.process_starter import ProcessStarter
from condor_joblens.common.trusted_folder import changeable_by
from condor_joblens.model.classes import SERVERS
from condor_joblens.model.failures import Failures, all_failures
from condor_joblens.tracer import cgroup_uses, filesystems, loader, map_layout
from condor_joblens.tracer._bpf import ffi, lib
from condor_joblens.tracer.cpus import possible_cpus
from condor_joblens.tracer.loader_client import LoaderProcess
from condor_joblens.tracer.map_table import MapTable
from condor_joblens.tracer.on_demand import OnDemand
from condor_joblens.tracer.sensor import Sensor
from condor_joblens.tracer.sensors import (
    REQUEST_SENSORS,
    SENSORS,
    Basic,
    CloserSensor,
    Failing,
    FuseRequests,
    NodeSensor,
    Profile,
    Recorder,
)
from condor_joblens.tracer.sensors.profile import HZ
from condor_joblens.tracer.sensors.recorder import RECORDER_BYTES
from condor_joblens.tracer.sensors.servers import unseen_filesystems

PINS = Path(bpffs.PINS)

PROCESS_RING_BYTES = 4 << 20
"""A second of ten thousand programs that start and end."""

SECOND_NS = 1_000_000_000

MAX_JOBS = 64
"""Slots that a sensor may count at a time, where nobody says."""

ALL_DEPTHS = (1 << 64) - 1


class Tracer:
    """Counts what happens in the cgroups below the bases it is given: a Backend (backend_protocol.py).

    `basic` counts every slot; `sensors`, by name, those slots for which they are started.
    """

    source = b"bpf"
    note = ""
    is_exact = True
    unknown: frozenset[str] = frozenset()

    def __init__(
        self,
        max_slots: int,
        pins: Path = PINS,
        max_jobs: Mapping[str, int] | None = None,
        process_ring_bytes: int = PROCESS_RING_BYTES,
        linger_seconds: float = 0.0,
        keep_loaded: Collection[str] = (),
        sensors: Sequence[type[CloserSensor]] = SENSORS,
        profile_hz: int = HZ,
        recorder_bytes: int = RECORDER_BYTES,
    ) -> None:
        """Loads `basic` for up to `max_slots` slots, or adopts what is pinned. Raises JobLensError.

        `max_jobs` says, by a sensor's name, how many slots it may count at a time. A sensor is loaded with the first
        slot that needs it, and taken out `linger_seconds` after the last. The next such job often comes at once, and
        loading takes a while. Those of `keep_loaded` are then only detached.
        """
        self.max_slots = max_slots
        self._loader: LoaderProcess | None = None
        self._pins = pins
        cpus = possible_cpus()
        self.basic = Basic(max_slots, cpus, process_ring_bytes)
        closer = [kind(self.basic, (max_jobs or {}).get(kind.name, MAX_JOBS)) for kind in sensors]
        for sensor in closer:
            if isinstance(sensor, Profile):
                sensor.hz = profile_hz
            if isinstance(sensor, Recorder):
                sensor.bytes_a_job = recorder_bytes
        self.requests = [kind(self.basic) for kind in REQUEST_SENSORS]
        self.failing = Failing(self.basic)
        self._folder, self.replaced = self._load_basic([*closer, *self._of_node()], cpus)
        assert self.basic.loaded is not None
        self.adopted, self.warnings = self.basic.loaded.adopted, self.basic.loaded.warnings
        self.counters, self.living, self.connections = self.basic.slots, self.basic.living, self.basic.connections
        self.endpoints, self.processes = self.basic.endpoints, self.basic.processes
        self.servers = self.basic.servers
        self.sensors: dict[str, OnDemand] = {}
        for sensor in closer:
            folder = None if self._folder is None else self._folder / sensor.name
            keep = sensor.name in keep_loaded
            self.sensors[sensor.name] = OnDemand(sensor, folder, self.basic.maps, linger_seconds, keep)
        self._retired: list[int] = []
        self._begin_requests()
        if self.adopted:
            for name in self.sensors:
                self.sensors[name].adopt()
        else:
            for slot in range(max_slots):
                self._release(slot)

    def _load_basic(self, others: Sequence[Sensor], cpus: int) -> tuple[Path | None, bool]:
        """Basic in the kernel; the folder of all pins (None: nothing can be pinned), and whether others' were there."""
        every = [self.basic, *others]
        sizes = {name: size for sensor in every if not sensor.has_own_pins for name, size in sensor.sizes().items()}
        own = loader.identity([part for sensor in every for part in sensor.parts], sizes, cpus)
        folder = self._pins / own
        is_ours = not changeable_by(str(folder))  # else somebody else could have pinned what we would adopt
        if is_ours and self.basic.adopt(folder / self.basic.name, {}):
            return folder, False
        self.basic.take(self.basic.load({}))
        assert self.basic.loaded is not None
        replaced = loader.remove_others(self._pins, own)
        self.basic.attach(folder / self.basic.name)
        return None if self.basic.loaded.folder is None else folder, replaced

    # -- which cgroups ------------------------------------------------------------------------------------

    def watch_below(self, bases: list[int], depths: list[int] | None) -> None:
        """From now on every cgroup that is made directly below one of `bases` (cgroup ids) is a slot.

        `depths` are those of the bases below the tree's real root. They are None if it can't be seen, as in a cgroup
        namespace. Every depth is then looked at, which is right and a little slower.
        """
        ids = np.zeros(lib.BASES, "u8")
        ids[: len(bases)] = bases[: lib.BASES]
        mask = ALL_DEPTHS if depths is None else sum({1 << (depth + 1) for depth in depths})
        self.basic.node["slot_depths"] = mask
        self.basic.node["base"] = ids

    def take(self, cgroup_id: int, watched_level: int) -> int | None:
        """Counts an existing cgroup directly below a base from now on; its slot index, None if all are in use."""
        known = self.slot_of(cgroup_id)
        if known is not None:
            return known
        value = ffi.new("__u32 *")
        if lib.bpf_map_lookup_and_delete_elem(self.basic.maps["jl_free_slots"], ffi.NULL, value) != 0:
            return None
        slot = int(value[0])
        count = self.counters[slot]
        count["cgroup_id"] = cgroup_id
        count["born_ns"] = time.monotonic_ns()
        count["level"] = watched_level
        count["state"] = map_layout.LIVE
        if self.basic.start(slot):
            return slot
        now = self.counted_id(cgroup_uses.inode_of(cgroup_id))
        if now is not None and cgroup_uses.next_use(now) == cgroup_id:
            self.basic.start(slot, instead=True)
            return slot
        self._release(slot)
        return None if now not in (None, cgroup_id) else self.take(cgroup_id, watched_level)

    def slot_of(self, cgroup_id: int) -> int | None:
        """The slot index of a cgroup that is counted; None also if another job is in it by now."""
        slot = self.basic.slot_of(cgroup_uses.inode_of(cgroup_id))
        return slot if slot is not None and int(self.counters["cgroup_id"][slot]) == cgroup_id else None

    def counted_id(self, inode: int) -> int | None:
        """The id under which the cgroup with this inode is counted now; None if it is not."""
        slot = self.basic.slot_of(inode)
        return None if slot is None else int(self.counters["cgroup_id"][slot])

    def next_use(self, cgroup_id: int) -> int:
        """The id of the same cgroup for the next job in it."""
        return cgroup_uses.next_use(cgroup_id)

    def begin_at_next_exec(self, slot: int) -> bool:
        """The next program that is started in the slot is the job: what came before does not count.

        If it was more than a wrapper does, it counts all the same, and `kept_early` of the slot says so. False: it was
        started while sensors were being set to zero, so they may lack its first calls.
        """
        self.counters["awaits_exec"][slot] = map_layout.AWAITS_JOB
        for sensor in self.sensors.values():
            if sensor.stop(slot) is not None:
                sensor.start(slot)
        return bool(self.counters["awaits_exec"][slot] == map_layout.AWAITS_JOB)

    def stop(self, slot: int) -> None:
        """Stops counting for a slot, by every sensor; its index is used again after the next `settle`."""
        for sensor in self.sensors.values():
            sensor.stop(slot)
        self.basic.stop(slot)
        self._retired.append(slot)

    def settle(self) -> None:
        """Makes the indices of slots stopped before free. A program that had looked one up is long done by now."""
        by_endpoint = any(self.counters["by_endpoint"][slot] for slot in self._retired)
        by_server = any(self.counters["servers_made"][slot] for slot in self._retired)
        for slot in self._retired:
            self._release(slot)
        self._retired.clear()
        if by_endpoint:
            self._sweep(self.endpoints)
        if by_server:
            self._sweep(self.servers)
        for sensor in self.sensors.values():
            sensor.settle()
        self._begin_requests()

    def _begin_requests(self) -> None:
        """Counts requests of the modules that are there by now."""
        for sensor in self._of_node():
            sensor.begin(None if self._folder is None else self._folder / sensor.name, self.basic.maps)
            sensor.refresh()
        self.basic.unseen_mapped = unseen_filesystems(self.uncounted_servers())

    def _sweep(self, table: MapTable) -> None:
        """Takes the entries of cgroups that no slot counts any more out of a table."""
        keys, _ = table.read()
        counted = np.sort(self.counters["cgroup_id"])
        place = np.searchsorted(counted, keys["cgroup_id"]) % len(counted)
        table.drop(keys[(counted[place] != keys["cgroup_id"]) & (keys["cgroup_id"] > 0)])

    def _release(self, slot: int) -> None:
        if self.counters["connect_failed"][slot]:
            self.basic.forget_failures(slot)
        self.failing.forget_failures(slot)
        self.counters[slot : slot + 1].view("u1")[:] = 0
        free = self.basic.maps["jl_free_slots"]
        lib.bpf_map_update_elem(free, ffi.NULL, ffi.new("__u32 *", slot), 0)

    # -- sensors ------------------------------------------------------------------------------------------

    @property
    def missing(self) -> dict[str, str]:
        """Parts of all sensors that the kernel refused when they were needed -> why."""
        every = [*(sensor.missing for sensor in self.sensors.values()), *(sensor.missing for sensor in self.requests)]
        return {part: why for missing in every for part, why in missing.items()}

    def load_by(self, starter: ProcessStarter) -> int:
        """From now on another process loads what comes (loader_process.py), and this one needs no right for it.

        The id of the process for whose answers this one will wait; 0: there is none yet.
        """
        maker = self._loader = LoaderProcess(starter, self.max_slots)
        for sensor in self._sensors():
            sensor.maker = maker
        return maker.begin()

    def load_aside(self, done: Callable[[], object]) -> None:
        """From now on a thread loads sensors, and calls `done`. Until then no slot can be started at them."""
        for sensor in self.sensors.values():
            sensor.load_aside(done)

    def classify_filesystems(self, types: Mapping[str, int]) -> None:
        """Types that a site adds to those that are known, and their classes: from the next round on."""
        self.basic.filesystem_types = {**filesystems.built_in(), **types}

    def _of_node(self) -> list[NodeSensor]:
        """Those beside basic that count for all slots as well."""
        return [*self.requests, self.failing]

    def _sensors(self) -> list[Sensor]:
        return [self.basic, *self._of_node(), *(sensor.sensor for sensor in self.sensors.values())]

    def _programs(self) -> dict[str, int]:
        every = self._sensors()
        return {name: program for each in every if each.is_attached for name, program in each.programs().items()}

    def attached(self) -> list[str]:
        """Names of the programs that are attached now."""
        return sorted(self._programs())

    def levels_of_programs(self) -> dict[str, str]:
        """Name of each program that there can be -> the level that it counts for."""
        return {
            program: sensor.level.word
            for sensor in self._sensors()
            for part in sensor.parts
            for variant in part.variants
            for program in variant
        }

    def programs_cost(self) -> dict[str, tuple[float, int]]:
        """Seconds that each program has run, and how often, while kernel.bpf_stats_enabled was 1."""
        found, runs = {}, ffi.new("uint64_t *")
        for name, descriptor in self._programs().items():
            nanoseconds = lib.program_run_ns(descriptor, runs)
            if nanoseconds >= 0:
                found[name] = (nanoseconds * 1e-9, int(runs[0]))
        return found

    def failures(self, slot: int, tgid: int) -> Failures:
        """What all sensors know of what has failed lately for a process of the slot that has ended, once."""
        own = [self.basic.failures(slot, tgid), self.failing.failures(slot, tgid)]
        every = [*own, *(each.failures(slot, tgid) for each in self.sensors.values())]
        return all_failures(known for known in every if known is not None)

    # -- what was counted for all slots ---------------------------------------------------------------------

    def count_living(self) -> None:
        """Fills `living` for all slots: one walk over the machine's threads, in the kernel."""
        self.basic.count_living()

    def count_connections(self) -> None:
        """Fills `connections` for all slots: one walk over the open TCP connections of our network namespace."""
        self.basic.count_connections()

    @property
    def connections_round(self) -> int:
        """Which walk over the connections was the last: entries of `endpoints` with it have open ones."""
        return int(self.basic.node["connections_round"][0])

    def drop_endpoints(self, keys: np.ndarray) -> None:
        """Takes entries of slots (map_layout.ENDPOINT_KEY, shape (n,)) out of the table: others find room."""
        for cgroup_id in set(keys["cgroup_id"].tolist()):
            own = keys[keys["cgroup_id"] == cgroup_id]
            dropped = self.endpoints.drop(own)
            if own["kind"][0] == map_layout.ENDPOINT_COUNTED:
                self.counters["endpoints_dropped"][self.counters["cgroup_id"] == cgroup_id] += dropped

    def drop_servers(self, keys: np.ndarray) -> None:
        """Takes entries of slots or of nobody (map_layout.SERVER_KEY, shape (n,)) out of the table."""
        for cgroup_id in set(keys["cgroup_id"].tolist()):
            dropped = self.servers.drop(keys[keys["cgroup_id"] == cgroup_id])
            if cgroup_id:
                self.counters["servers_dropped"][self.counters["cgroup_id"] == cgroup_id] += dropped
            else:
                self.basic.node["unattributed_dropped"] += dropped

    def unattributed(self) -> np.ndarray:
        """What reached servers for nobody who is counted: u8 of shape (SERVER_CLASSES, SERVER_NUMBERS), a copy."""
        shape = map_layout.SERVER_CLASSES, map_layout.SERVER_NUMBERS
        found: np.ndarray = self.basic.node["unattributed"][0].copy().reshape(shape)
        return found

    def uncounted_servers(self) -> frozenset[str]:
        """Classes of servers, in lower case, whose requests this kernel does not let count."""
        counted = frozenset[str]().union(*(sensor.classes for sensor in self.requests if not sensor.missing))
        return frozenset(name.lower() for name in SERVERS) - counted

    def fuse_mounts(self) -> dict[int, tuple[int, str]]:
        """Mounts of FUSE that had requests: see FuseRequests.mounts."""
        found: dict[int, tuple[int, str]] = {}
        for sensor in self.requests:
            if isinstance(sensor, FuseRequests):
                found = sensor.mounts()
        return found

    def lost(self) -> int:
        """Events that could not be counted for all slots since the programs were loaded, on the whole node."""
        return self.basic.lost() + sum(sensor.lost() for sensor in self.requests)

    def limit_process_events(self, a_second: int) -> None:
        """A slot may have so many process events a second, and save up those of a second. `counters` has the rest."""
        self.basic.node["event_interval_ns"] = SECOND_NS // a_second
        self.basic.node["event_burst_ns"] = SECOND_NS

    def know_init(self, device: int, inode: int) -> None:
        """HTCondor's first process of a pid namespace runs this file; 0, 0: none. The device is the kernel's own."""
        self.basic.node["init_inode"] = 0
        self.basic.node["init_device"] = device
        self.basic.node["init_inode"] = inode

    def wake_for_process_events(self, at_once: bool) -> None:
        """Whether `processes` wakes its reader as soon as there are events, or only when its ring is a quarter full."""
        self.basic.wake_for_process_events(at_once)

    def lost_process_events(self) -> dict[str, int]:
        """Process events that were lost since the programs were loaded, by kind. No number lacks them."""
        return self.basic.lost_process_events()

    def new_process_losses(self) -> dict[str, int]:
        """The same since the last call, also if that was an earlier agent's; kinds of which none was lost apart."""
        found, node = {}, self.basic.node
        for kind, count in self.lost_process_events().items():
            told = f"told_{kind}s"
            if count != int(node[told][0]):
                found[kind] = count - int(node[told][0])
                node[told] = count
        return found

    def open_threads(self, slot: int, uid: int) -> int:
        """A descriptor that tells what each thread in the slot waits for (Basic.open_threads). Raises JobLensError."""
        return self.basic.open_threads(slot, uid)

    # -- what happened ------------------------------------------------------------------------------------

    def fileno(self) -> int:
        """Readable if there are events."""
        return self.basic.maps["jl_slot_events"]

    def urgent_fileno(self) -> int | None:
        """Another ring, readable when a job starts or ends: for the process that lends priority."""
        return self.basic.maps["jl_urgent"]

    def events(self) -> np.ndarray:
        """Births and ends of slots since the last call, of map_layout.EVENT, in order; a copy."""
        return self.basic.events()

    # -- the end -------------------------------------------------------------------------------------------

    def pins(self) -> Path | None:
        """The folder of bpffs that holds what outlives this process, if any."""
        return self._folder

    def close(self) -> None:
        """An orderly stop: nothing of ours stays in the kernel."""
        for sensor in self.sensors.values():
            sensor.close()
        for other in self._of_node():
            other.unload()
        self.basic.unload()
        with contextlib.suppress(OSError):
            if self._folder is not None:
                self._folder.rmdir()
            self._pins.rmdir()
