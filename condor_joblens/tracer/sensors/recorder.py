"""The flight recorder of jobs at level trace: their last events, in rings in the kernel that are overwritten for ever.

Rings are pinned, so they outlive joblensd. It has no work with them until somebody asks what happened last.
"""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from condor_joblens.model.levels import Level
from condor_joblens.tracer import loader, map_layout
from condor_joblens.tracer._bpf import lib
from condor_joblens.tracer.loader import Part
from condor_joblens.tracer.makers import Wanted
from condor_joblens.tracer.sensors.basic import Basic, CloserSensor

NODE_BYTES = 64 << 20
"""Memory of the kernel for the rings of all jobs."""

RECORDER_BYTES = 1 << 20
"""Of them for one job, where nobody says."""

RARE_SHARE = 4
"""One place in so many is in the ring of rare events: they come seldom, and are what is asked for first."""

NEVER = 0, 0
"""Of `rare_since`: nothing was asked for before."""

_PLACES = struct.Struct("=II")


def _short(job: np.ndarray) -> int:
    """What records have of the key of a job."""
    return int(job["key"]) & 0xFFFFFFFF


@dataclass(frozen=True)
class Recording:
    """What the rings of one slot have, copied at one moment."""

    records: np.ndarray
    """map_layout.RECORDED, shape (n,), in the order of their time."""
    overwritten: int
    """Events that were in the rings and are not any more, of both kinds together."""
    not_ours: int
    """Events of tasks that are not the job owner's alone, of which nothing was kept."""
    lost: int
    """Events that were never kept, because another one was being written to their place."""
    uid: int
    """Of the job's owner, as it was described."""
    since: float
    """CLOCK_MONOTONIC at which recording began."""
    rare_since: float
    """CLOCK_MONOTONIC from which on the ring of rare events is complete."""
    frequent_since: float
    """The same of frequent ones."""


class Recorder(CloserSensor):
    """Rings of the slots that are described to it. `bytes_a_job` is set before anything else."""

    name = "recorder"
    level = Level.TRACE
    has_own_pins = True
    parts: ClassVar = (
        Part(
            "the last events before a job's end",
            ("recorder",),
            (("jl_rec_call", "jl_rec_exec", "jl_rec_exit", "jl_rec_signal"),),
            needed=True,
        ),
    )

    def __init__(self, basic: Basic, max_jobs: int) -> None:
        """For at most `max_jobs` of the slots of `basic` at a time; less if there is no memory for so many."""
        super().__init__(basic, max_jobs)
        self._described: dict[int, int] = {}
        self.bytes_a_job = RECORDER_BYTES

    @property
    def bytes_a_job(self) -> int:
        """Of both rings of a job together."""
        return sum(self.places) * map_layout.RECORDED.itemsize

    @bytes_a_job.setter
    def bytes_a_job(self, wanted: int) -> None:
        places = wanted // map_layout.RECORDED.itemsize
        self.places = (places // RARE_SHARE, places - places // RARE_SHARE)
        self.rows = min(self.max_jobs, NODE_BYTES // self.bytes_a_job) if self.places[0] else 0

    def describe(self, slot: int, uid: int) -> None:
        """Who owns the job of a slot: nothing is kept of tasks that are somebody else's."""
        self._described[slot] = uid

    def sizes(self) -> dict[str, int]:
        """Entries of its maps."""
        rows = max(1, self.rows)
        return {
            "jl_rec_jobs": self._basic.max_slots,
            "jl_rec_rows": rows,
            "jl_records": rows * max(1, sum(self.places)),
        }

    def wanted(self) -> Wanted:
        """As every sensor, and how large a job's rings are."""
        return Wanted(self.name, self.max_jobs, self.bytes_a_job)

    def constants(self) -> bytes:
        """struct recorder_constants: the places of each ring come first."""
        return _PLACES.pack(*self.places)

    def adopt(self, folder: Path, shared: Mapping[str, int]) -> bool:
        """As every sensor; rings of other sizes are given up."""
        own = self._own(folder)
        with contextlib.suppress(OSError):
            for other in folder.parent.glob(f"{folder.name}-*"):
                if other != own:
                    loader.remove(other)
        return super().adopt(own, shared)

    def attach(self, folder: Path | None) -> None:
        """As every sensor, pinned in a folder whose name has the sizes: others are no reason to lose all counters."""
        super().attach(None if folder is None else self._own(folder))

    def _own(self, folder: Path) -> Path:
        return folder.with_name(f"{folder.name}-{self.rows}x{self.places[0]}+{self.places[1]}")

    def opened(self) -> None:
        """Views of its maps. What an earlier agent recorded goes on, if it is adopted."""
        rows = max(1, self.rows)
        self._jobs = self.view("jl_rec_jobs", map_layout.RECORDED_JOB, self._basic.max_slots)
        self._heads = self.view("jl_rec_rows", map_layout.RECORDER_ROW, rows)
        self._records = self.view("jl_records", map_layout.RECORDED, rows * max(1, sum(self.places)))
        self._node = self.view("jl_recorder", map_layout.RECORDER_NODE, 1)
        if not self.is_attached:
            self._node["keys"] = time.time_ns() // 1_000_000_000 << 32

    def closed(self) -> None:
        """No slot is recorded any more."""
        for name in ("_jobs", "_heads", "_records", "_node"):
            self.__dict__.pop(name, None)

    def detach(self) -> None:
        """As every sensor; what was recorded is forgotten."""
        self._jobs["key"] = 0
        super().detach()

    # -- slots ----------------------------------------------------------------------------------------------

    def for_traces(self) -> list[int]:
        """Descriptors of its maps (map_layout.RECORDER_MAPS); none if it is not loaded."""
        loaded = self.loaded
        return [loaded.maps[name] for name in map_layout.RECORDER_MAPS] if loaded is not None and self.rows else []

    def start(self, slot: int) -> bool:
        """Records a slot that was described, from nothing on; false if it was not, or all rows are in use."""
        if slot not in self._described:
            return False
        job = self._jobs[slot : slot + 1]
        if job["key"][0]:
            return True
        taken = set(self._jobs["row"][self._jobs["key"] > 0].tolist())
        row = next((row for row in range(self.rows) if row not in taken), None)
        if row is None:
            return False
        self._node["keys"] += 1
        job["row"], job["uid"] = row, self._described[slot]
        job["not_ours"] = job["lost"] = 0
        job["since_ns"] = time.monotonic_ns()
        job["first_rare"], job["first_frequent"] = self._heads["heads"][row]
        lib.full_barrier()  # a program that sees the key sees all of this
        job["key"] = self._node["keys"]
        lib.full_barrier()
        self._node["generation"] += 1  # what CPUs remember of cgroups was read before
        return True

    def stop(self, slot: int) -> np.ndarray | None:
        """Records it no longer, and forgets what was recorded. map_layout.RECORDED_JOB, or None."""
        job = self._jobs[slot : slot + 1]
        if not job["key"][0]:
            return None
        before: np.ndarray = job.copy()
        job["key"] = 0
        return before

    def counters(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which of `slots` (n,) are recorded, shape (n,) of bool, and map_layout.RECORDED_JOB for each of those."""
        if self.loaded is None:
            return np.zeros(len(slots), "?"), np.zeros(0, map_layout.RECORDED_JOB)
        recorded = self._jobs["key"][slots] > 0
        return recorded, self._jobs[slots[recorded]]

    def in_use(self) -> bool:
        """Whether any slot is recorded."""
        return bool((self._jobs["key"] > 0).any())

    def rare_since(self, slot: int, last: tuple[int, int]) -> tuple[np.ndarray, tuple[int, int]]:
        """Rare events of the slot after the last one that was asked for (NEVER), and which one is the last now.

        map_layout.RECORDED, shape (n,), in their order, as far as they are there; none of before its recording began.
        """
        if self.loaded is None or not self.is_attached or not self._jobs["key"][slot]:
            return np.zeros(0, map_layout.RECORDED), last
        job = self._jobs[slot].copy()
        key, row, places = int(job["key"]), int(job["row"]), sum(self.places)
        number = last[1] if key == last[0] else 0  # recorded anew, it may have another row, which counts by itself
        if int(self._heads["heads"][row][0]) == number:
            return np.zeros(0, map_layout.RECORDED), (key, number)
        ring = self._records[row * places : row * places + self.places[0]]
        copied = ring.copy()
        whole = (copied["key"] == _short(job)) & (copied["begun"] == copied["ended"]) & (copied["begun"] > number)
        whole &= (ring["begun"] == copied["begun"]) & (ring["ended"] == copied["ended"])
        found = copied[whole]
        found = found[np.argsort(found["begun"])]
        return found, (key, int(found["begun"].max(initial=number)))

    def recording(self, slot: int) -> Recording | None:
        """A copy of what was recorded of the slot until now; None if it is not recorded."""
        if self.loaded is None or not self.is_attached or not self._jobs["key"][slot]:
            return None
        job = self._jobs[slot].copy()
        row, places = int(job["row"]), sum(self.places)
        heads = self._heads["heads"][row].tolist()
        copied = self._records[row * places : (row + 1) * places].copy()
        whole = (copied["key"] == _short(job)) & (copied["begun"] == copied["ended"])
        # who wrote while we copied has changed the first number by now, or the last one was not there yet
        again = self._records[row * places : (row + 1) * places]
        whole &= (again["begun"] == copied["begun"]) & (again["ended"] == copied["ended"])
        since = float(job["since_ns"]) * 1e-9
        rings = (slice(0, self.places[0]), slice(self.places[0], places))
        gone = [
            max(0, head - int(first) - size)
            for head, first, size in zip(heads, (job["first_rare"], job["first_frequent"]), self.places)
        ]
        complete = [
            since if not over else float(copied["time_ns"][ring][whole[ring]].min(initial=1 << 62)) * 1e-9
            for over, ring in zip(gone, rings)
        ]
        found = copied[whole]
        return Recording(
            found[np.argsort(found["time_ns"], kind="stable")],
            sum(gone),
            int(job["not_ours"]),
            int(job["lost"]),
            int(job["uid"]),
            since,
            *complete,
        )


def recorder_of(sensors: Mapping[str, object]) -> Recorder | None:
    """The recorder among a tracer's sensors that are loaded on demand; None: nothing is recorded on this node."""
    sensor = getattr(sensors.get(Recorder.name), "sensor", None)
    return sensor if isinstance(sensor, Recorder) else None
