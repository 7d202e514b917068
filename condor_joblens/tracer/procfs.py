"""A tracer without BPF, for where the kernel or the privilege is missing: /proc and the files of cgroups.

It fills the same arrays as the tracer and tells of the same events, so that nobody who reads them needs to know.
What it can't give is named in `unknown`, and that all of it is less exact in `note`.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import psutil

from condor_joblens.common.cgroup_processes import processes_in
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.process_starter import ProcessStarter
from condor_joblens.model.classes import SERVERS
from condor_joblens.model.failures import Failures
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import METRICS, MetricKind
from condor_joblens.owner_files.operations import OwnerFiles
from condor_joblens.tracer import map_layout
from condor_joblens.tracer.cgroup_inotify import CgroupInotify
from condor_joblens.tracer.process_stat import FIELDS, PRESENT, TOTALS, Process
from condor_joblens.tracer.sensors import SENSORS

SHARE = 0.02
"""Of the time between two rounds that looking at processes may take, 0.1 ms each: the slots take turns where that is
not enough."""

LONGEST = 0.1
"""Seconds that one round of it may take."""

PATIENCE = 2.0
"""Seconds that a new cgroup may be without a process before it is told of: who made it is not known until then."""

FROM_PROC = "numbers come from /proc here"
"""Why there is nothing beyond basic."""

UNKNOWN = frozenset(
    metric.column
    for metric in METRICS
    if metric.group in ("Tcp", "Server")
    or (metric.group == "Process" and metric.kind is MetricKind.COUNTER)
    or metric.column in ("memory_oom_kills", "cpu_run_queue_seconds")
    or metric.level > Level.BASIC
)
"""Columns that only a counter in the kernel can give."""


_SUMS = len(TOTALS)  # of the first of FIELDS, which are totals
_NOW = slice(_SUMS, _SUMS + len(PRESENT))
_NOTHING: np.ndarray = np.zeros(len(FIELDS), "i8")


@dataclass
class _Seen:
    process: Process
    numbers: np.ndarray = field(default_factory=_NOTHING.copy)  # when it was last looked at, as FIELDS
    before: np.ndarray = field(default_factory=_NOTHING.copy)  # what of its totals does not count


@dataclass
class _Slot:
    index: int
    path: str
    processes: dict[int, _Seen] = field(default_factory=dict)
    main: int | None = None  # descriptor of the first process, readable when it has ended
    empty: bool = True


class ProcfsTracer:
    """Counts what can be seen of the cgroups directly below the folders it is given.

    Its arrays are those of the Tracer: `counters` has the totals of processes that are gone, `living` the rest.
    """

    source = b"procfs"
    is_exact = False
    adopted = replaced = False
    unknown: frozenset[str] = UNKNOWN
    connections_round = 0
    missing: ClassVar[dict[str, str]] = {"anything": FROM_PROC}

    def __init__(self, max_slots: int, bases: list[str], why: str, files: OwnerFiles, root: str = "/") -> None:
        """`bases` are folders of the cgroup tree, `why` says what stands in the way of counting in the kernel."""
        self._files = files
        self.note = f"numbers are from /proc, less exact; without Final the last ones are missing: {why}"
        self.warnings: list[str] = []
        self.max_slots = max_slots
        self.counters = np.zeros(max_slots, map_layout.COUNTERS)
        self.living = np.zeros(max_slots, map_layout.LIVING)
        self.connections = np.zeros(max_slots, map_layout.LIVING)
        self.endpoints = NoEntries(map_layout.ENDPOINT_KEY, map_layout.ENDPOINT)
        self.servers = NoEntries(map_layout.SERVER_KEY, map_layout.SERVER)
        self.sensors = {kind.name: NoSensor(kind.name, kind.level) for kind in SENSORS}
        psutil.PROCFS_PATH = os.path.join(root, "proc")
        self._live = root == "/"
        self._bases = bases
        self._slots: dict[int, _Slot] = {}  # by cgroup id
        self._free = list(range(max_slots))[::-1]
        self._retired: list[int] = []
        self._new: dict[str, float] = {}  # folders of cgroups without a process yet -> since when
        self._told: list[np.ndarray] = []
        self._turns: list[int] = []  # cgroup ids whose turn has not come yet
        self._looked = 0.0
        self._inotify = CgroupInotify()
        self._epoll = select.epoll()
        self._epoll.register(self._inotify.fileno(), select.EPOLLIN)
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._epoll.register(self._wake, select.EPOLLIN)
        self.processes = NoProcessEvents()
        self._mains: dict[int, int] = {}  # descriptor of a first process -> its slot's cgroup
        for base in bases:
            self._inotify.watch(base)

    # -- which cgroups ------------------------------------------------------------------------------------

    def take(self, cgroup_id: int, watched_level: int) -> int | None:
        """Counts an existing cgroup directly below a base; its slot index, None where there is no place for it."""
        if cgroup_id in self._slots:
            return self._slots[cgroup_id].index
        path = next((path for path in self._present() if _id(path) == cgroup_id), None)
        if path is None or not self._free:
            return None
        slot = self._slots[cgroup_id] = _Slot(self._free.pop(), path)
        count = self.counters[slot.index]
        count["cgroup_id"], count["born_ns"] = cgroup_id, time.monotonic_ns()
        count["level"], count["state"] = watched_level, map_layout.LIVE
        self._inotify.watch_population(path)
        self._look(slot)
        return slot.index

    def _present(self) -> list[str]:
        found = []
        for base in self._bases:
            with contextlib.suppress(OSError), os.scandir(base) as entries:
                found += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        return found

    def slot_of(self, cgroup_id: int) -> int | None:
        """The slot index of a watched cgroup."""
        slot = self._slots.get(cgroup_id)
        return None if slot is None else slot.index

    def counted_id(self, inode: int) -> int | None:
        """The inode itself: nothing tells of the next job in a cgroup but its wrapper."""
        return inode if inode in self._slots else None

    def next_use(self, cgroup_id: int) -> int:
        """The same: the run of the job before has ended by then."""
        return cgroup_id

    def begin_at_next_exec(self, slot: int) -> bool:
        """Counting begins now: of the processes that are there only what they do from here on counts."""
        found = self._slots[int(self.counters["cgroup_id"][slot])]
        self._look(found)
        for process in found.processes.values():
            process.before = process.numbers.copy()
        for name in TOTALS:
            self.counters[name][slot] = 0
        self.counters["ended_peak_pages"][slot] = 0
        self._sum(found)
        return True

    def stop(self, slot: int) -> None:
        """Stops counting for a slot; its index is used again after the next `settle`."""
        found = self._slots.pop(int(self.counters["cgroup_id"][slot]), None)
        if found is not None:
            self._forget_main(found)
            self._inotify.forget(found.path)
            self._retired.append(slot)

    def settle(self) -> None:
        """Makes the indices of slots stopped before free, and looks for what nobody tells of."""
        for slot in self._retired:
            for array in (self.counters, self.living, self.connections):
                array[slot : slot + 1].view("u1")[:] = 0
            self._free.append(slot)
        self._retired.clear()
        if self._new:
            self._wake_up()

    # -- what only the kernel can count --------------------------------------------------------------------

    def load_by(self, starter: ProcessStarter) -> int:
        """There is nothing to load."""
        return 0

    def load_aside(self, done: Callable[[], object]) -> None:
        """There is nothing to load."""

    def classify_filesystems(self, types: Mapping[str, int]) -> None:
        """Nobody asks for them."""

    def levels_of_programs(self) -> dict[str, str]:
        """No program."""
        return {}

    def attached(self) -> list[str]:
        """No program."""
        return []

    def programs_cost(self) -> dict[str, tuple[float, int]]:
        """No program costs anything."""
        return {}

    def count_connections(self) -> None:
        """Nothing: connections have no owner in /proc that could be read at an acceptable cost."""

    def drop_servers(self, keys: np.ndarray) -> None:
        """There are none."""

    def unattributed(self) -> np.ndarray:
        """Nothing is counted."""
        nothing: np.ndarray = np.zeros((map_layout.SERVER_CLASSES, map_layout.SERVER_NUMBERS), "u8")
        return nothing

    def uncounted_servers(self) -> frozenset[str]:
        """All classes."""
        return frozenset(name.lower() for name in SERVERS)

    def fuse_mounts(self) -> dict[int, tuple[int, str]]:
        """None is known."""
        return {}

    def drop_endpoints(self, keys: np.ndarray) -> None:
        """None is there."""

    def lost(self) -> int:
        """Nothing is lost that could have been counted: `note` says what this can't see."""
        return 0

    def limit_process_events(self, a_second: int) -> None:
        """There are none."""

    def know_init(self, device: int, inode: int) -> None:
        """No processes are counted."""

    def wake_for_process_events(self, at_once: bool) -> None:
        """There are none."""

    def new_process_losses(self) -> dict[str, int]:
        """None could be told."""
        return {}

    # -- what was counted ----------------------------------------------------------------------------------

    def count_living(self) -> None:
        """Looks at the processes of as many slots as there is time for, the others' turn comes next."""
        began = time.monotonic()
        end = began + min(LONGEST, SHARE * (began - self._looked))
        self._looked = began
        self._turns = self._turns or list(self._slots)
        while self._turns:
            slot = self._slots.get(self._turns.pop())
            if slot is not None:
                self._look(slot)
            if time.monotonic() >= end:
                break

    def _look(self, slot: _Slot) -> None:
        found: dict[int, _Seen] = {}
        # the next job's cgroup can be there by now, under the same name
        same = _id(slot.path) == int(self.counters["cgroup_id"][slot.index])
        for pid in processes_in(slot.path) if same else ():
            with contextlib.suppress(psutil.Error):
                known = slot.processes.get(pid)
                looked = None if known is None else known.process.look()
                if known is None or looked is None:
                    known = _Seen(Process(pid, self._files))
                    looked = known.process.look()
                numbers = np.array(looked or _NOTHING, "i8")
                np.maximum(numbers[:_SUMS], known.numbers[:_SUMS], out=numbers[:_SUMS])  # a zombie's are 0
                known.numbers = numbers
                found[pid] = known
        for pid, seen in slot.processes.items():
            if found.get(pid) is not seen:
                self._keep(slot, seen)
        slot.processes = found
        self._sum(slot)
        self._mind_its_end(slot)

    def _keep(self, slot: _Slot, ended: _Seen) -> None:
        """What a process had when it was last seen stays its slot's."""
        count = self.counters[slot.index]
        for name, number in zip(TOTALS, (ended.numbers - ended.before).tolist()):
            count[name] += number
        count["ended_peak_pages"] = max(int(count["ended_peak_pages"]), int(ended.numbers[-1]))

    def _sum(self, slot: _Slot) -> None:
        living = self.living[slot.index]
        seen = list(slot.processes.values())
        numbers = np.array([each.numbers for each in seen], "i8").reshape(-1, len(FIELDS))
        before = np.array([each.before for each in seen], "i8").reshape(-1, len(FIELDS))
        sums = (numbers[:, :_SUMS] - before[:, :_SUMS]).sum(axis=0).tolist() + numbers[:, _NOW].sum(axis=0).tolist()
        for name, number in zip(FIELDS, sums):
            living[name] = number
        living["peak_pages"] = numbers[:, -1].max(initial=0)

    def _mind_its_end(self, slot: _Slot) -> None:
        """Tells of the slot's last process, and has the kernel tell of its first one, where it can."""
        live = [pid for pid, process in slot.processes.items() if process.numbers[_SUMS]]
        if not live and not slot.empty:
            self._tell(map_layout.EMPTY, slot)
            self._wake_up()
        slot.empty = not live
        if live and slot.main is None and self._live and hasattr(os, "pidfd_open"):
            first = min(live, key=lambda pid: slot.processes[pid].process.begun)
            with contextlib.suppress(OSError):
                slot.main = os.pidfd_open(first)
                self._mains[slot.main] = int(self.counters["cgroup_id"][slot.index])
                self._epoll.register(slot.main, select.EPOLLIN)

    def _forget_main(self, slot: _Slot) -> None:
        if slot.main is not None:
            self._mains.pop(slot.main, None)
            os.close(slot.main)
            slot.main = None

    # -- what happened ------------------------------------------------------------------------------------

    def fileno(self) -> int:
        """Readable when there are events."""
        return self._epoll.fileno()

    def failures(self, slot: int, tgid: int) -> Failures:
        """Nothing is known."""
        return Failures()

    def open_threads(self, slot: int, uid: int) -> int:
        """Raises JobLensError: what threads wait for is told by a program in the kernel."""
        raise JobLensError(f"what threads wait for is not known here: {self.note}")

    def urgent_fileno(self) -> None:
        """There is no such ring: of starts and ends joblensd alone hears."""

    def events(self) -> np.ndarray:
        """What happened since the last call, as map_layout.EVENT in order."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)
        made, gone, changed = self._inotify.take()
        for path in made:
            self._new[path] = time.monotonic()
            self._inotify.watch_population(path)
        for path in changed:
            slot = next((slot for slot in self._slots.values() if slot.path == path), None)
            if slot is not None:
                self._look(slot)
        self._take_new_slots()
        for descriptor, _ in self._epoll.poll(0):
            self._main_ended(descriptor)
        for path in gone:
            self._gone(path)
        told = self._told
        self._told = []
        events: np.ndarray = np.concatenate([*told, np.zeros(0, map_layout.EVENT)])
        return events

    def _take_new_slots(self) -> None:
        """Cgroups that were made and have a process by now; it leads to the starter."""
        for path, since in list(self._new.items()):
            if not os.path.isdir(path):
                del self._new[path]
                continue
            first = next(processes_in(path), 0)
            if first or time.monotonic() - since > PATIENCE:
                del self._new[path]
                cgroup_id = _id(path)
                index = None if cgroup_id is None else self.take(cgroup_id, 0)
                if cgroup_id is not None:
                    self._tell_birth(cgroup_id, index, first, os.path.basename(path))

    def _main_ended(self, descriptor: int) -> None:
        slot = self._slots.get(self._mains.get(descriptor, 0))
        if slot is None:
            return
        self._look(slot)
        self._tell(map_layout.MAIN_EXITED, slot)
        # another one is not looked for: with the first process the job has ended
        self._epoll.unregister(descriptor)

    def _gone(self, path: str) -> None:
        for slot in list(self._slots.values()):
            if slot.path == path and _id(path) != int(self.counters["cgroup_id"][slot.index]):
                self._look(slot)
                self.counters["state"][slot.index] = map_layout.GONE
                self._tell(map_layout.CGROUP_GONE, slot)

    def _tell(self, kind: int, slot: _Slot) -> None:
        event = np.zeros(1, map_layout.EVENT)
        event["kind"], event["slot"], event["time_ns"] = kind, slot.index, time.monotonic_ns()
        event["cgroup_id"] = self.counters["cgroup_id"][slot.index]
        self._told.append(event)

    def _tell_birth(self, cgroup_id: int, index: int | None, first: int, name: str) -> None:
        event = np.zeros(1, map_layout.EVENT)
        event["kind"], event["cgroup_id"], event["time_ns"] = map_layout.BORN, cgroup_id, time.monotonic_ns()
        event["slot"] = map_layout.NO_SLOT if index is None else index
        event["pid"], event["name"] = first, os.fsencode(name)
        self._told.append(event)

    def _wake_up(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._waker, b"!")

    # -- the end -------------------------------------------------------------------------------------------

    def pins(self) -> Path | None:
        """None: nothing of this outlives the process."""
        return None

    def close(self) -> None:
        """Gives the descriptors back."""
        for slot in self._slots.values():
            self._forget_main(slot)
        self.processes.close()
        self._inotify.close()
        self._epoll.close()
        os.close(self._wake)
        os.close(self._waker)


class NoSensor:
    """A sensor that can't count: its numbers only programs in the kernel have."""

    missing: ClassVar[dict[str, str]] = {"anything": FROM_PROC}

    def __init__(self, name: str, level: Level) -> None:
        self.name, self.level = name, level

    def start(self, slot: int) -> bool:
        """It can't."""
        return False

    def why_not(self) -> str:
        """Why it can't."""
        return FROM_PROC

    def stop(self, slot: int) -> np.ndarray | None:
        """Nothing was counted."""
        return None

    def discard(self, slot: int) -> None:
        """Nothing was counted."""

    def counters(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """No slot of them is counted."""
        return np.zeros(len(slots), "?"), np.zeros(0, map_layout.IO_COUNTERS)

    def lost(self) -> int:
        """Nothing is counted that could be lost."""
        return 0


class NoEntries:
    """The table of remote endpoints or file servers, without any."""

    room = 0

    def __init__(self, key: np.dtype[Any], value: np.dtype[Any]) -> None:
        self._nothing = np.zeros(0, key), np.zeros(0, value)

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """No keys and no values."""
        return self._nothing

    def put(self, keys: np.ndarray, values: np.ndarray) -> None:
        """There is no room."""

    def drop(self, keys: np.ndarray) -> int:
        """None was there."""
        return 0


class NoProcessEvents:
    """The ring of process events, in which nothing ever is."""

    def __init__(self) -> None:
        self._ended_slots = os.pipe2(os.O_CLOEXEC)

    def fileno(self) -> int:
        """Never readable."""
        return self._ended_slots[0]

    def take(self) -> np.ndarray:
        """Nothing."""
        none: np.ndarray = np.zeros(0, map_layout.PROCESS_EVENT)
        return none

    def close(self) -> None:
        """Gives the descriptors back."""
        for descriptor in self._ended_slots:
            os.close(descriptor)


def _id(path: str) -> int | None:
    with contextlib.suppress(OSError):
        return os.stat(path).st_ino
    return None
