"""Level profile: a program that looks, some times a second, at what each CPU is doing, and takes the stacks of jobs.

Another one takes the stacks of calls that have waited. Level io's program at the end of calls goes on with that one.

The tables by which it unwinds are made by another process, which reads what it takes; see profiling/. Nothing of this
is pinned: samples are for whoever reads them, and the next joblensd begins anew.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from condor_joblens.common import unsafe_kernels
from condor_joblens.common.errors import JobLensError
from condor_joblens.model.levels import CRASHES, SAMPLES, WAITS, Level
from condor_joblens.tracer import map_layout
from condor_joblens.tracer._bpf import ffi, lib
from condor_joblens.tracer.links import Link
from condor_joblens.tracer.loader import Loaded, Part
from condor_joblens.tracer.makers import MAPPINGS, ROWS
from condor_joblens.tracer.map_changes import MapChanges, Place
from condor_joblens.tracer.sensors.basic import Basic, CloserSensor

HZ = 99
"""Not a divisor of what programs do by the clock."""

RING_BYTES_A_CPU = 256 << 10
"""Some eight seconds of samples of one CPU with deep stacks."""

MOST_RING_BYTES = 16 << 20

AT_WAITS_END = "jl_at_waits_end"
"""The map of `basic` that says what runs when a call ends that has waited (lib/slots.bpf.h)."""

WAIT_STACKS = 200
"""Of waits, each CPU takes so many stacks a second, of all jobs together."""

_KEY_OF_FILE = struct.Struct("=I")

ONLINE = "/sys/devices/system/cpu/online"

PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
MOST_PARANOID = 2
"""Debian's and Ubuntu's kernels know more. CAP_PERFMON was not enough then, on Debian's 5.10 and 6.1."""


_BY_RULES, _GUESSING = "jl_sample_cpu", "jl_sample_old"
"""Programs that take samples. The second one, for kernels before 5.17, finds user stacks by frame pointers alone."""


class Profile(CloserSensor):
    """Samples of the slots that are described to it, on the CPU and off it. `hz` is set before it is attached."""

    name = "profile"
    level = Level.PROFILE
    parts: ClassVar = (
        Part(SAMPLES, ("sample", "sample_old"), ((_BY_RULES,), (_GUESSING,)), True, ("jl_iter_names",)),
        Part(WAITS, ("waits", "waits_old"), (("jl_wait_ended",), ("jl_wait_old",))),
        Part(CRASHES, ("crash", "crash_old"), (("jl_crash",), ("jl_crash_old",))),
    )

    def __init__(self, basic: Basic, max_jobs: int) -> None:
        """For at most `max_jobs` of the slots of `basic` at a time."""
        super().__init__(basic, max_jobs)
        self.hz = HZ
        self.changes = MapChanges()
        """Of what programs, processes and files are known to it, as the kernel makes them."""
        self._described: dict[int, tuple[int, int]] = {}
        self._clocks: set[int] = set()  # CPUs that have one
        self._links: list[Link] = []

    def describe(self, slot: int, run: int, uid: int) -> None:
        """What is sampled of a slot when it is started: the run's number, and the user id of the job's owner."""
        self._described[slot] = run, uid

    def sizes(self) -> dict[str, int]:
        """Entries of its maps."""
        slots = self._basic.max_slots
        return {
            "jl_profiled": slots,
            "jl_sampled": slots,
            "jl_wait_shares": slots,
            "jl_samples": self.ring_bytes,
        }

    @property
    def slots(self) -> int:
        """How many there can be."""
        return self._basic.max_slots

    @property
    def ring_bytes(self) -> int:
        """Of the ring of samples: a power of two."""
        return int(min(MOST_RING_BYTES, 1 << (max(4, self._basic.cpus) * RING_BYTES_A_CPU - 1).bit_length()))

    def load(self, shared: Mapping[str, int], is_wanted: Any = lambda: True) -> Loaded:
        """As every sensor; raises JobLensError by name for a kernel that it could lock up."""
        kernel = os.uname()
        refused = unsafe_kernels.why_refused(kernel.release, kernel.version)
        if refused:
            raise JobLensError(refused)
        return super().load(shared, is_wanted)

    def adopt(self, folder: Path, shared: Mapping[str, int]) -> bool:
        """Never: nothing of it is pinned, and what an earlier agent has left at the end of waits goes."""
        lib.bpf_map_delete_elem(self._basic.maps[AT_WAITS_END], ffi.new("__u32 *", 0))
        return False

    def opened(self) -> None:
        """Views of its maps."""
        self._profiled = self.view("jl_profiled", map_layout.PROFILED, self._basic.max_slots)
        self._sampled = self.view("jl_sampled", map_layout.SAMPLED, self._basic.max_slots)
        self._sampling = self.view("jl_sampling", np.dtype("u8"), 1)
        self._sampling[0] = 1  # memory of the kernel's is 0 at first, and no cgroup's

    def closed(self) -> None:
        """No slot is sampled any more."""
        self.changes.forget()
        for name in ("_profiled", "_sampled", "_sampling"):
            self.__dict__.pop(name, None)

    def attach(self, folder: Path | None) -> None:
        """Opens a clock on each CPU, and is told of waits and of signals that kill. Raises JobLensError."""
        assert self.loaded is not None
        self.attaching()
        self._open_clocks()
        at_waits_end = self._loaded_of("jl_wait_ended", "jl_wait_old")
        if at_waits_end:
            program = self.loaded.programs[at_waits_end]
            failed = self._put(self._basic.maps[AT_WAITS_END], ffi.new("__u32 *", 0), program)
            if failed:
                self.missing = {**self.missing, WAITS: os.strerror(-failed)}
        self._see_crashes()
        self.is_attached = True

    def detach(self) -> None:
        """Closes them: an idle machine is not disturbed."""
        for link in self._links:
            link.close()
        self._links.clear()
        self._clocks.clear()
        lib.bpf_map_delete_elem(self._basic.maps[AT_WAITS_END], ffi.new("__u32 *", 0))
        self._profiled["run"] = 0
        super().detach()

    def unload(self) -> None:
        """Nothing of it stays in the kernel."""
        if self.loaded is not None and self._clocks:
            self.detach()
        super().unload()

    def refresh(self) -> None:
        """CPUs that have come since."""
        with contextlib.suppress(JobLensError):
            self._open_clocks()

    def _open_clocks(self) -> None:
        assert self.loaded is not None
        for cpu in online_cpus():
            if cpu in self._clocks:
                continue
            event = self.maker.clock(cpu, self.hz)
            number = -event
            if event >= 0:
                try:
                    program = _GUESSING if self.is_guessing else _BY_RULES
                    self._links.append(self.loaded.attached_to_clock(program, event))
                    self._clocks.add(cpu)
                    continue
                except OSError as error:
                    os.close(event)
                    number = error.errno or 0
            raise JobLensError(clock_refused(cpu, number))

    def _loaded_of(self, *programs: str) -> str:
        """The one of these that the kernel has taken; empty if there is none."""
        assert self.loaded is not None
        return next((name for name in programs if name in self.loaded.programs), "")

    def _see_crashes(self) -> None:
        assert self.loaded is not None
        at_crashes = self._loaded_of("jl_crash", "jl_crash_old")
        if not at_crashes:
            return
        try:
            self._links.append(self.loaded.attached(at_crashes))
        except JobLensError as error:
            self.missing[CRASHES] = str(error)

    # -- slots ----------------------------------------------------------------------------------------------

    def start(self, slot: int) -> bool:
        """Samples a slot that was described; false if it was not, or `max_jobs` slots are sampled already."""
        if slot not in self._described:
            return False
        if self._profiled["run"][slot]:
            return True
        if np.count_nonzero(self._profiled["run"]) >= self.max_jobs:
            return False
        run, uid = self._described[slot]
        self._sampled[slot] = np.zeros((), map_layout.SAMPLED)
        self._sampled["run"][slot] = run
        self._profiled["uid"][slot] = uid
        self._profiled["began_ns"][slot] = time.monotonic_ns()
        lib.full_barrier()
        self._profiled["run"][slot] = run
        lib.full_barrier()
        self._sampling[0] += 1  # what CPUs remember of cgroups was read before
        self._share()
        return True

    def _share(self) -> None:
        """Slots have equal shares of the stacks of waits."""
        sampled = int(np.count_nonzero(self._profiled["run"]))
        self._profiled["wait_stacks"] = max(1, WAIT_STACKS // max(1, sampled))

    def stop(self, slot: int) -> np.ndarray | None:
        """Samples it no longer; its element of map_layout.SAMPLED, shape (1,). None if it was not sampled."""
        if not self._profiled["run"][slot]:
            return None
        self._profiled["run"][slot] = 0
        self._share()
        counted: np.ndarray = self._sampled[slot : slot + 1].copy()
        return counted

    def counters(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How many samples have hit each slot, and what became of them: map_layout.SAMPLED."""
        if self.loaded is None:
            return np.zeros(len(slots), "?"), np.zeros(0, map_layout.SAMPLED)
        counted = self._profiled["run"][slots] > 0
        return counted, self._sampled[slots[counted]]

    def counted(self, slot: int) -> bytes:
        """What the kernel has counted of a slot, as struct sampled; zeros if it does not sample any more."""
        return bytes(map_layout.SAMPLED.itemsize) if self.loaded is None else self._sampled[slot].tobytes()

    def in_use(self) -> bool:
        """Whether any slot is sampled."""
        return bool(self._profiled["run"].any())

    @property
    def is_guessing(self) -> bool:
        """Whether all user stacks are guessed by frame pointers, as this kernel takes no other program."""
        return self.loaded is not None and _GUESSING in self.loaded.programs

    # -- for the reader of samples, who may not know yet that all of this has been unloaded ------------------

    def reader_maps(self) -> tuple[int, int, int]:
        """Descriptors of what the reader has: the ring, what was counted of slots, addresses whose names are wanted."""
        return self.maps["jl_samples"], self.maps["jl_sampled"], self.maps["jl_addresses"]

    def names_of_addresses(self) -> int:
        """A descriptor to read the kernel's own names of the addresses in jl_addresses from, a line each.

        Raises JobLensError.
        """
        if self.loaded is None:
            raise JobLensError("no slot is sampled any more")
        descriptor = lib.bpf_iter_create(self.loaded.iterators["jl_iter_names"])
        if descriptor < 0:
            raise JobLensError(f"the kernel's iterator jl_iter_names fails: {os.strerror(ffi.errno)}")
        return int(descriptor)

    def new_rows(self, rows: int) -> int:
        """A descriptor of a new table for so many rows of a file, to be mapped; -errno."""
        if self.is_guessing:
            return -errno.EOPNOTSUPP
        return self.maker.array(ROWS, rows + 1)

    def put_rows(self, file: int, descriptor: int) -> None:
        """Soon these are the rows of a file. The descriptor is closed then."""
        if self.loaded is None:
            os.close(descriptor)
            return
        self.changes.put(self.maps["jl_unwind_rows"], _KEY_OF_FILE.pack(file), descriptor)

    def drop_rows(self, file: int) -> None:
        """Soon the file has no rows any more."""
        if self.loaded is not None:
            # a mapping that names it goes first
            self.changes.drop(self.maps["jl_unwind_rows"], _KEY_OF_FILE.pack(file), self.maps["jl_mappings"])

    def put_file(self, file: bytes, number: int) -> None:
        """The number of a file (struct open_file); 0: nobody has it open any more."""
        if self.loaded is None or self.is_guessing:
            return
        key = ffi.from_buffer(file)
        if number:
            lib.bpf_map_update_elem(self.maps["jl_files"], key, ffi.new("__u32 *", number), 0)
        else:
            lib.bpf_map_delete_elem(self.maps["jl_files"], key)

    def drop_all_files(self) -> None:
        """No file is known any more."""
        if self.loaded is not None and not self.is_guessing:
            for file in self.keys("jl_files", ffi.sizeof("struct open_file")):
                self.put_file(file, 0)

    def put_mappings(self, process: bytes, mappings: bytes) -> None:
        """Soon these are the mappings (struct code_mapping, in order) of a process (struct process_key).

        Rows of files that they name, which were put before, are in their places by then.
        """
        if self.loaded is None:
            return
        count = len(mappings) // map_layout.CODE_MAPPING.itemsize
        head = ffi.new("struct code_mapping *", {"start": count})
        descriptor = self.maker.array(MAPPINGS, count + 1)
        if descriptor < 0:
            return
        if lib.fill_array(descriptor, bytes(ffi.buffer(head)) + mappings, count + 1) == 0:
            self.changes.put(self.maps["jl_mappings"], process, descriptor, self._rows_of(mappings))
        else:
            os.close(descriptor)

    def _rows_of(self, mappings: bytes) -> list[Place]:
        """Where rows of the files are that mappings name."""
        if self.is_guessing:
            return []
        files = np.unique(np.frombuffer(mappings, map_layout.CODE_MAPPING)["file"]).tolist()
        return [Place(self.maps["jl_unwind_rows"], _KEY_OF_FILE.pack(file)) for file in files]

    def put_python(self, process: bytes, described: bytes) -> None:
        """Where the Python of a process (struct process_key) keeps what it runs (struct python_process)."""
        if self.loaded is None or self.is_guessing:
            return
        key, value = ffi.from_buffer(process), ffi.from_buffer(described)
        lib.bpf_map_update_elem(self.maps["jl_pythons"], key, value, 0)

    def drop_all_mappings(self) -> None:
        """Soon no process is known any more."""
        for process in [] if self.loaded is None else self.keys("jl_mappings", ffi.sizeof("struct process_key")):
            self.drop_mappings(process)

    def drop_mappings(self, process: bytes) -> None:
        """Soon the process is unknown."""
        if self.loaded is None:
            return
        self.changes.drop(self.maps["jl_mappings"], process)
        if not self.is_guessing:
            lib.bpf_map_delete_elem(self.maps["jl_pythons"], ffi.from_buffer(process))

    def _put(self, into: int, key: Any, descriptor: int) -> int:
        failed = lib.bpf_map_update_elem(into, key, ffi.new("__u32 *", descriptor), 0)
        return -int(ffi.errno) if failed else 0


def clock_refused(cpu: int, number: int) -> str:
    """What a job's note says of a CPU for which there is no clock, with the remedy if it is known; `number`: errno."""
    said = f"the kernel refuses a clock on CPU {cpu}: {os.strerror(number)}"
    try:
        paranoid = int(PARANOID.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return said
    if number != errno.EACCES or paranoid <= MOST_PARANOID:
        return said
    return f"{said}. kernel.perf_event_paranoid is {paranoid}: set it to {MOST_PARANOID} or less (sysctl)"


def online_cpus(path: str = ONLINE) -> list[int]:
    """Numbers of the CPUs that run now."""
    found: list[int] = []
    with open(path, encoding="ascii") as file:
        for part in file.read().strip().split(","):
            first, _, last = part.partition("-")
            found.extend(range(int(first), int(last or first) + 1))
    return found
