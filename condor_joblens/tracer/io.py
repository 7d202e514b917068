"""Level io: its programs, in the kernel only while a job needs them, and the wide counters of those jobs.

A job at io has a row for each CPU. Its key says which: one more than the row's number, and in the upper half a number
that is never used twice. All of what is known about that lies in memory that the kernel shares, and outlives an agent.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from condor_joblens.tracer import filesystems, loader, map_layout
from condor_joblens.tracer._bpf import ffi, lib

THREADS, THREADS_A_JOB = 16384, 64
"""Room for threads that wait, together for all jobs: at least so many, and so many for each job there can be."""

KIND, CLASS = 0xFF, 8
"""Of io_waiting.kind: what kind of wait it is, and by how many bits the class lies above that."""


def sizes(max_jobs: int, cpus: int) -> dict[str, int]:
    """Entries of the maps of level io, for so many jobs at a time."""
    max_jobs = max(1, max_jobs)
    return {
        "jl_io_counters": max_jobs * cpus,
        "jl_io_uring": max_jobs,
        "jl_io_running": cpus,
        "jl_io_waiting": 1 << (max(THREADS, max_jobs * THREADS_A_JOB) - 1).bit_length(),
        "jl_io_cgroups": cpus,
        "jl_io_supers": cpus,
        "jl_io_scratch": 3 * cpus,
        "jl_fs_types": 256,
        "jl_mounts": 4096,
    }


class IoSet:
    """What is in the kernel while jobs are at level io.

    `missing` names the parts that the kernel refused, with the reason. With a part missing that all others need,
    nothing is there and `usable` is false.
    """

    def __init__(self, loaded: loader.Loaded, counters: np.ndarray, max_jobs: int, cpus: int) -> None:
        """What loader.load_io has `loaded`. `counters` are those of the slots (layout.COUNTERS)."""
        entries = sizes(max_jobs, cpus)
        self._loaded = loaded
        self._slots = counters
        self.max_jobs = max_jobs
        self.missing = self._loaded.missing
        self.warnings = self._loaded.warnings
        self.adopted = self._loaded.adopted
        self.usable = bool(self._loaded.programs)
        self._types: dict[str, int] = {}
        self._prefixes: dict[bytes, int] = {}
        self._clock_offset = 0
        self._rounds = 0
        self._mounts = filesystems.Mounts()
        if not self.usable:
            return
        self._counts = self._view("jl_io_counters", map_layout.IO_COUNTERS, max_jobs * cpus).reshape(max_jobs, cpus)
        self._uring = None
        if "jl_io_uring" in self._loaded.maps:
            self._uring = self._view("jl_io_uring", map_layout.IO_URING, max_jobs)
        self._running = self._view("jl_io_running", map_layout.IO_RUNNING, cpus)
        self._waiting = self._view("jl_io_waiting", map_layout.IO_WAITING, entries["jl_io_waiting"])
        self._superblocks = self._view("jl_io_supers", map_layout.IO_SUPERBLOCKS, cpus)
        self._node = self._view("jl_io_node", map_layout.IO_NODE, 1)
        self._node["waiting_mask"] = entries["jl_io_waiting"] - 1
        if self.adopted:
            # what is in the tables is replaced with the first round: until then it is right enough
            self._types = dict.fromkeys((_type_of(key) for key in self._keys("jl_fs_types", 40)), -1)
            self._prefixes = dict.fromkeys((_prefix_of(key) for key in self._keys("jl_mounts", 252)), -1)
        else:
            counters["io_key"] = 0
            # of keys that an earlier set gave nothing is left, but numbers must not come again
            self._node["keys"] = time.time_ns() // 1_000_000_000 & 0x7FFFFFFF
            self._node["generation"] = 1

    def _view(self, name: str, dtype: np.dtype[Any], count: int) -> np.ndarray:
        size = -(-dtype.itemsize * count // mmap.PAGESIZE) * mmap.PAGESIZE
        memory = mmap.mmap(self._loaded.maps[name], size)
        view: np.ndarray = np.frombuffer(memory, dtype, count)
        return view

    # -- whose calls are counted --------------------------------------------------------------------------

    def keys(self) -> np.ndarray:
        """The keys in use, shape (n,)."""
        keys: np.ndarray = self._slots["io_key"][self._slots["io_key"] > 0]
        return keys

    def start(self, slot: int) -> bool:
        """Counts the slot at io, from nothing on; false where all rows are in use, or nothing can be counted."""
        if not self.usable:
            return False
        if self._slots["io_key"][slot]:
            return True
        taken = {int(key) & 0xFFFFFFFF for key in self.keys()}
        row = next((row for row in range(self.max_jobs) if row + 1 not in taken), None)
        if row is None:
            return False
        self._counts[row].view("u1")[:] = 0
        if self._uring is not None:
            self._uring[row : row + 1].view("u1")[:] = 0
        self._node["keys"] += 1
        self._slots["io_key"][slot] = int(self._node["keys"][0]) << 32 | row + 1
        self._look_again()
        return True

    def stop(self, slot: int) -> np.ndarray:
        """Counts the slot no longer; what was counted to the last moment, one of layout.IO_COUNTERS, shape (1,)."""
        key = self._slots["io_key"][slot : slot + 1].copy()
        self._slots["io_key"][slot] = 0
        self._look_again()
        counted = self.sums(key)
        self._waiting[self._waiting["key"] == key] = 0
        return counted

    def _look_again(self) -> None:
        """Makes every CPU look anew at whose thread it runs: by a switch to this one, which goes round."""
        self._node["generation"] += 1
        before = os.sched_getaffinity(0)
        try:
            for cpu in before:
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(0, {cpu})
        finally:
            os.sched_setaffinity(0, before)

    # -- what was counted ---------------------------------------------------------------------------------

    def sums(self, keys: np.ndarray) -> np.ndarray:
        """What was counted for the jobs of these keys (n,) on all CPUs: layout.IO_COUNTERS, shape (n,).

        With the waits that still go on. They move from `_waiting` to `_running` to the counters; these are read the
        other way round, so that none is met twice.
        """
        rows = (keys & 0xFFFFFFFF).astype("i8") - 1
        words: np.ndarray = self._counts.view("u8").reshape(*self._counts.shape, -1)
        summed = words[rows, 0]
        for cpu in range(1, words.shape[1]):
            summed += words[rows, cpu]
        total: np.ndarray = summed.view(map_layout.IO_COUNTERS).reshape(len(rows))
        if self._uring is not None:
            total["files"] += self._uring["files"][rows]
            total["uncounted"][:, lib.UNCOUNTED_URING] += self._uring["others"][rows]
        place_of = np.full(self.max_jobs, -1)
        place_of[rows] = np.arange(len(rows))
        running = self._running.copy()
        # by the scheduler's clock, which all CPUs share but for microseconds
        offsets = running["clock_offset"][running["clock_offset"] != 0].astype("i8")
        if len(offsets):
            self._clock_offset = int(np.median(offsets))
        now = time.monotonic_ns() - self._clock_offset
        waiting = self._waiting[self._waiting["since_ns"] > 0]
        for threads, lengths, kinds in (
            (running, _since(running, now), np.full(len(running), lib.WAIT_RUNNING, "u4")),
            (running, running["waited_ns"], running["kind"]),
            (waiting, _since(waiting, now), waiting["kind"]),
        ):
            row = (threads["key"] & 0xFFFFFFFF).astype("i8") - 1
            known = (row >= 0) & (row < self.max_jobs)
            place = np.where(known, place_of[np.where(known, row, 0)], -1)
            known &= (place >= 0) & (keys[place] == threads["key"])
            _add_waits(total, place[known], lengths[known], kinds[known])
        return total

    # -- file systems -------------------------------------------------------------------------------------

    def refresh(self, types: dict[str, int]) -> None:
        """Once a round: classes by type (`types`), and the mounts if they have changed."""
        if not self.usable:
            return
        self._superblocks["address"] = 0
        # one CPU each time looks again how far apart the clocks are
        self._rounds += 1
        self._running["clock_offset"][self._rounds % len(self._running)] = 0
        changed = self._mounts.changed()
        if types != self._types:
            self._replace("jl_fs_types", _type_key, self._types, types)
            self._types, changed = dict(types), True
        if changed:
            prefixes = filesystems.mount_prefixes(self._mounts.read(), types)
            self._replace("jl_mounts", _prefix_key, self._prefixes, prefixes)
            self._prefixes = prefixes

    def _replace(self, name: str, key_of: Any, before: dict[Any, int], after: dict[Any, int]) -> None:
        descriptor = self._loaded.maps[name]
        for key in before.keys() - after.keys():
            lib.bpf_map_delete_elem(descriptor, key_of(key))
        for key, value in after.items():
            if before.get(key) != value:
                number = value | OF_THE_ROOT if key == b"/" else value
                lib.bpf_map_update_elem(descriptor, key_of(key), ffi.new("__u32 *", number), 0)

    def _keys(self, name: str, size: int) -> list[bytes]:
        """The keys that a map has."""
        descriptor, found = self._loaded.maps[name], []
        last, key = ffi.NULL, ffi.new("char[]", size)
        while lib.bpf_map_get_next_key(descriptor, last, key) == 0:
            found.append(bytes(ffi.buffer(key)))
            last, key = key, ffi.new("char[]", size)
        return found

    # -- the set itself -----------------------------------------------------------------------------------

    def programs(self) -> dict[str, int]:
        """Descriptors of the programs, by name."""
        return self._loaded.programs

    def unload(self) -> None:
        """Nothing of it stays in the kernel."""
        self._slots["io_key"] = 0
        self._mounts.close()
        for name in ("_counts", "_uring", "_running", "_waiting", "_superblocks", "_node"):
            self.__dict__.pop(name, None)
        self._loaded.unload()


class Loading:
    """Loads in a thread: others go on while the kernel checks the programs, which takes it 0.1 s and more.

    The thread does no more than that. It has not the priority of the one that it works for, which would wait for it
    wherever it holds Python's lock.
    """

    def __init__(self, load: Callable[[Callable[[], bool]], loader.Loaded], done: Callable[[], object]) -> None:
        """`load` is given a question to ask now and then: whether it is still wanted. The thread calls `done`."""
        self._load, self._done = load, done
        self._is_wanted = True
        self._loaded: loader.Loaded | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="level io", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # the kernel gives up checking a program for which a signal waits
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._loaded = self._load(lambda: self._is_wanted)
        except Exception as error:  # for whoever takes it
            self._error = error
        self._done()

    @property
    def is_over(self) -> bool:
        """Whether there is something to take."""
        return self._loaded is not None or self._error is not None

    def take(self) -> loader.Loaded:
        """What is loaded; it is waited for. Raises what loading raised."""
        self._thread.join()
        if self._loaded is None:
            raise self._error or RuntimeError("nothing was loaded")
        return self._loaded

    def give_up(self) -> None:
        """Nothing of it stays in the kernel."""
        self._is_wanted = False
        self._thread.join()
        if self._loaded is not None:
            self._loaded.unload()


class WithoutIo:
    """What a source without programs in the kernel answers."""

    missing: ClassVar[dict[str, str]] = {"anything": "numbers come from /proc here"}

    def load_aside(self, done: Callable[[], object]) -> None:
        """There is nothing to load."""

    def start_io(self, slot: int) -> bool:
        """It can't."""
        return False

    def why_no_io(self) -> str:
        """Why it can't."""
        return "numbers come from /proc here"

    def stop_io(self, slot: int) -> np.ndarray | None:
        """Nothing was counted."""
        return None

    def io_counters(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """No slot of them is at level io."""
        return np.zeros(len(slots), "?"), np.empty(0, map_layout.IO_COUNTERS)

    def classify_filesystems(self, types: dict[str, int]) -> None:
        """Nobody asks for them."""

    def lost_io(self) -> int:
        """Nothing is counted that could be lost."""
        return 0


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


def _since(threads: np.ndarray, now: int) -> np.ndarray:
    lengths: np.ndarray = np.maximum(now - threads["since_ns"].astype("i8"), 0).astype("u8")
    return lengths


def _add_waits(total: np.ndarray, place: np.ndarray, lengths: np.ndarray, kinds: np.ndarray) -> None:
    """Adds waits (n,) of these `kinds` (io_waiting.kind) to the jobs at `place`."""
    np.add.at(total["waits"], (place, (kinds & KIND).astype("i8") % lib.WAITS), lengths)
    of_file = kinds >> CLASS > 0
    field = ((kinds >> CLASS).astype("i8") - 1) * lib.FILE_FIELDS + lib.FILE_BLOCKED_NS
    np.add.at(total["files"], (place[of_file], field[of_file]), lengths[of_file])
