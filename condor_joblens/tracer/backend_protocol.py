"""What joblensd needs of whatever counts: programs in the kernel (bpf.py), or a look at /proc (procfs.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np

from condor_joblens.common.process_starter import ProcessStarter
from condor_joblens.model.failures import Failures
from condor_joblens.model.levels import Level

EVENTS_AT_A_TIME = 1024
"""What `Backend.events` takes at most: with so many there may be more."""


class SlotSensor(Protocol):
    """Something that is counted for chosen slots beside what is counted for all; it comes and goes with them."""

    @property
    def name(self) -> str:
        """As in the table of tracer/sensors/__init__.py."""

    @property
    def level(self) -> Level:
        """The lowest level at which a job needs it."""

    @property
    def missing(self) -> Mapping[str, str]:
        """Parts of it that can't be counted here -> why."""

    def start(self, slot: int) -> bool:
        """Counts the slot from nothing on; false if that can't be, or not yet: `why_not` says why."""

    def why_not(self) -> str:
        """Why a slot could not be started."""

    def stop(self, slot: int) -> np.ndarray | None:
        """Counts the slot no longer; what was counted to the last moment, shape (1,). None if it was not counted."""

    def discard(self, slot: int) -> None:
        """Stops counting the slot, and drops its numbers. The sensor is detached soon if no other slot needs it."""

    def counters(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which of `slots` (n,) are counted, shape (n,) of bool, and what was counted for those, one element each."""

    def lost(self) -> int:
        """Events that could not be counted since this backend was made, on the whole node."""


class EntryTable(Protocol):
    """By remote endpoint or file server: map_layout.ENDPOINT_KEY and ENDPOINT, or SERVER_KEY and SERVER."""

    room: int

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """All keys and values, of shape (n,) both; copies."""

    def put(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Writes entries of the agent's own; shape (n,) both. One for which there is no room is left out."""

    def drop(self, keys: np.ndarray) -> int:
        """Takes entries out of the table; how many of them were there."""


class ProcessRing(Protocol):
    """Process events, in order."""

    def fileno(self) -> int:
        """Readable if there are events."""

    def take(self) -> np.ndarray:
        """What happened since the last call, of map_layout.PROCESS_EVENT; good until the next call."""

    def close(self) -> None:
        """Gives its descriptors back."""


class Backend(Protocol):
    """Counts what happens in the cgroups directly below its bases; each is a slot, an index below `max_slots`.

    Its arrays are indexed by slot. `counters` (map_layout.COUNTERS) has the totals of what has ended. `living` and
    `connections` (map_layout.LIVING) have what lives, as of the last count_living and count_connections.
    """

    source: bytes  # as rows name it
    note: str  # what a reader of all its numbers must know
    is_exact: bool
    unknown: frozenset[str]  # columns of model.metrics that it can't give
    max_slots: int
    adopted: bool  # it goes on with what an earlier one left
    replaced: bool  # it has removed what one of another version left
    warnings: list[str]
    counters: np.ndarray
    living: np.ndarray
    connections: np.ndarray

    @property
    def sensors(self) -> Mapping[str, SlotSensor]:
        """What can be counted for chosen slots, by name."""

    @property
    def endpoints(self) -> EntryTable:
        """The table of remote endpoints."""

    @property
    def servers(self) -> EntryTable:
        """The table of file servers; of cgroup 0 is what was asked for nobody who is counted."""

    @property
    def processes(self) -> ProcessRing:
        """What starts and ends in slots."""

    @property
    def missing(self) -> Mapping[str, str]:
        """Parts of all sensors that can't be counted here -> why."""

    @property
    def connections_round(self) -> int:
        """Number of the last count_connections: entries of `endpoints` with it have open connections."""

    def take(self, cgroup_id: int, watched_level: int) -> int | None:
        """Counts an existing cgroup directly below a base; its slot, None if there is no room for it."""

    def slot_of(self, cgroup_id: int) -> int | None:
        """The slot of a cgroup that is counted; None also if another job is in it by now (cgroup_uses.py)."""

    def counted_id(self, inode: int) -> int | None:
        """The id under which the cgroup with this inode is counted now; None if it is not."""

    def next_use(self, cgroup_id: int) -> int:
        """The id of the same cgroup for the next job in it."""

    def begin_at_next_exec(self, slot: int) -> bool:
        """The next program that is started in the slot is the job: what came before does not count.

        If it was more than a wrapper does, it counts all the same, and `kept_early` of the slot says so. False: it was
        started meanwhile, and sensors of closer levels may lack its first calls.
        """

    def stop(self, slot: int) -> None:
        """Stops counting for a slot, all sensors included; its index is used again after the next `settle`."""

    def settle(self) -> None:
        """Once a round: makes the indices of stopped slots free, and takes out what no slot needs any more."""

    def load_by(self, starter: ProcessStarter) -> int:
        """From now on another process loads what goes into the kernel, and this one needs no right for it.

        The id of the process for whose answers this one will wait; 0: none.
        """

    def load_aside(self, done: Callable[[], object]) -> None:
        """From now on sensors are loaded by a thread, which calls `done`; until then no slot can be started."""

    def classify_filesystems(self, types: Mapping[str, int]) -> None:
        """Types of file systems that a site adds to those that are known, and their classes."""

    def attached(self) -> list[str]:
        """Names of the programs that are attached now."""

    def levels_of_programs(self) -> dict[str, str]:
        """Name of each program that there can be -> the level that it counts for."""

    def programs_cost(self) -> dict[str, tuple[float, int]]:
        """Seconds that each program has run, and how often, while kernel.bpf_stats_enabled was 1."""

    def count_living(self) -> None:
        """Fills `living`."""

    def count_connections(self) -> None:
        """Fills `connections`."""

    def drop_endpoints(self, keys: np.ndarray) -> None:
        """Takes entries of slots out of `endpoints`, so that these may have others."""

    def drop_servers(self, keys: np.ndarray) -> None:
        """Takes entries out of `servers`, so that their owners may have others."""

    def unattributed(self) -> np.ndarray:
        """What reached servers for nobody who is counted: u8 of shape (SERVER_CLASSES, SERVER_NUMBERS)."""

    def uncounted_servers(self) -> frozenset[str]:
        """Classes of servers, in lower case, whose requests this kernel does not let count."""

    def fuse_mounts(self) -> dict[int, tuple[int, str]]:
        """Device number of each mount of FUSE that had requests -> its server_key's began_ms, and its type."""

    def lost(self) -> int:
        """Events that could not be counted for all slots, from any cause, on the whole node; sensors count theirs."""

    def limit_process_events(self, a_second: int) -> None:
        """A slot may have so many process events a second, and save up those of a second. `counters` has the rest."""

    def know_init(self, device: int, inode: int) -> None:
        """HTCondor's first process of a pid namespace runs this file; 0, 0: none. The device is the kernel's own."""

    def wake_for_process_events(self, at_once: bool) -> None:
        """Whether `processes` is readable as soon as there are events, or only when its ring is a quarter full."""

    def new_process_losses(self) -> dict[str, int]:
        """Process events that were lost since the last call, by kind; kinds of which none was lost are left out."""

    def fileno(self) -> int:
        """Readable if there are events of slots."""

    def urgent_fileno(self) -> int | None:
        """A BPF ring, for another process, in which something comes when a job starts or ends; None: there is none."""

    def failures(self, slot: int, tgid: int) -> Failures:
        """What has failed lately for a process of the slot that has ended, once.

        `tgid` is in the kernel's own pid namespace.
        """

    def open_threads(self, slot: int, uid: int) -> int:
        """A descriptor that tells what each thread in the slot waits for, as this user may know it.

        Raises JobLensError if that can't be had here.
        """

    def events(self) -> np.ndarray:
        """Births and ends of slots since the last call, at most EVENTS_AT_A_TIME of map_layout.EVENT, in order."""

    def pins(self) -> Path | None:
        """The folder of bpffs that holds what outlives this process, if any."""

    def close(self) -> None:
        """An orderly stop: nothing of it stays."""
