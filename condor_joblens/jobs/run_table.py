"""The runs that this node knows: one table of those that live, which outlives the agent, and the last that ended.

A run is one start of a job: GlobalJobId and its number of shadow starts. A job that was evicted and comes back is
a new run; one that exits with its checkpoint code and goes on in its slot is the same run in a new cgroup.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from condor_joblens.common.errors import JobLensError
from condor_joblens.jobs.deaths import DEATH
from condor_joblens.model.metrics import METRICS, ROW, Kind, cut, empty_rows
from condor_joblens.shm.reader import Reader
from condor_joblens.shm.writer import Writer

HISTORY = 32
"""How many past CPU readings are kept a run: what RecentCores looks back on."""

GROWTH_PLACES = 64
"""How many past readings of anonymous memory are kept a run: what its growth is reckoned from."""

COUNTERS = tuple(metric for metric in METRICS if metric.kind is Kind.COUNTER)

OFFSETS: np.dtype[Any] = np.dtype([(metric.column, "f8" if metric.is_float else "i8") for metric in COUNTERS])

STATE: np.dtype[Any] = np.dtype(
    [
        ("used", "?"),
        ("named", "?"),  # the job is known: its identity has been decided
        ("activated", "?"),  # its wrapper has called
        ("made_here", "?"),  # the cgroup is ours, made because HTCondor makes none on this machine
        ("cgroup_id", "u8"),
        ("kernel_slot", "i4"),  # index in the tracer; -1: not counted
        ("starter", "i4"),  # process id
        ("began", "f8"),  # CLOCK_MONOTONIC of StartTime
        ("next_ad", "f8"),  # CLOCK_MONOTONIC
        ("next_slow", "f8"),  # CLOCK_MONOTONIC
        ("lost_before", "i8"),
        ("lost_io_before", "i8"),  # the same of what level io lost on the node
        ("death", DEATH),
        ("checkpoint_code", "i4"),  # the job's exit code that is no end; -1: it has none
        ("command", "S64"),  # the job's executable
        ("due", "?"),  # new numbers have been taken since it was published
        ("next_measure", "f8"),  # CLOCK_MONOTONIC
        ("idle_since", "f8"),  # CLOCK_MONOTONIC; the job has used no CPU to speak of since then, and was not suspended
        # who says what about its level: agent/levels/level_arbiter.py
        ("decided_level", "i1"),  # the policies
        ("decided_cap", "i1"),  # and what they allow its owner
        ("decided_priority", "f8"),
        ("decided_policy", "S64"),
        ("decided_reason", "S128"),
        ("period_wanted", "f8"),  # seconds; by the policies, else by the job; 0: by neither
        ("period_asked", "f8"),  # seconds, +JobLensPeriod; 0: nothing
        ("decided_at", "f8"),  # CLOCK_MONOTONIC of the last time that they changed it
        ("decided_until", "f8"),  # epoch seconds at which they are to be asked again; 0: with the others; -1: now
        ("hand_level", "i1"),  # by hand
        ("hand_until", "f8"),  # CLOCK_MONOTONIC; 0: nobody did
        ("hand_is_roots", "?"),
        ("hand_reason", "S128"),
        ("hand_changed", "f8"),  # CLOCK_MONOTONIC
        ("aimed", "i1"),  # the level that it was to have last: that it has another is told in its note
        ("by_hand", "?"),  # the level that it has is the one given by hand
        ("over", "i1"),  # the budget (budgets.Over) for which it is watched less closely than it was to be
        ("changed", "f8"),  # CLOCK_MONOTONIC of its level's last change
        ("offset", OFFSETS),  # what a source's number lacks to be the run's
        ("growth_time", "f8", (GROWTH_PLACES,)),  # CLOCK_MONOTONIC; 0: nothing
        ("growth_bytes", "f8", (GROWTH_PLACES,)),
        ("history_time", "f8", (HISTORY,)),
        ("history_cpu", "f8", (HISTORY,)),
    ],
    align=True,
)

_TAG = hashlib.sha256(repr((ROW.descr, STATE.descr)).encode()).digest()
_TAG_BYTES = 64


class Runs:
    """The table of living runs: `rows` (metrics.ROW) and, beside it, `state` (STATE), both of shape (capacity,).

    Both lie in a file that is mapped, so that an agent that is killed loses nothing: the next one finds the
    table as it was. A table of another version or size is not taken over.
    """

    def __init__(self, path: str, capacity: int) -> None:
        """Opens or makes the file, mode 0600. Raises JobLensError where that is impossible."""
        self.capacity = capacity
        size = _TAG_BYTES + capacity * (ROW.itemsize + STATE.itemsize)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                tag = os.read(descriptor, len(_TAG))
                fresh = tag != _TAG or os.fstat(descriptor).st_size != size
                if fresh:
                    os.ftruncate(descriptor, 0)
                os.posix_fallocate(descriptor, 0, size)
                memory = mmap.mmap(descriptor, size)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise JobLensError(f"{path} can't be made: {error.strerror}; make room or set JOBLENS_RUN_DIR") from None
        self.rows = np.frombuffer(memory, ROW, capacity, _TAG_BYTES)
        self.state = np.frombuffer(memory, STATE, capacity, _TAG_BYTES + capacity * ROW.itemsize)
        # beside the table, of which a place that was never used so takes up no memory of ours
        self._used: np.ndarray = np.zeros(capacity, "?")
        if fresh:
            memory[: len(_TAG)] = _TAG
        else:
            self._used[:] = self.state["used"]
        self.by_cgroup: dict[int, int] = {int(self.state["cgroup_id"][run]): int(run) for run in self.living()}

    def living(self) -> np.ndarray:
        """Indices of the runs in use, shape (n,)."""
        indices: np.ndarray = np.flatnonzero(self._used)
        return indices

    def add(self, cgroup_id: int) -> int | None:
        """A new run in this cgroup, every number absent; None where the table is full."""
        free = np.flatnonzero(~self._used)
        if not len(free):
            return None
        run = int(free[0])
        self.rows[run] = empty_rows(1)[0]
        self.state[run : run + 1].view("u1")[:] = 0
        self.state["kernel_slot"][run] = -1
        self.state["history_time"][run] = np.nan
        self.state["cgroup_id"][run] = cgroup_id
        self.state["used"][run] = self._used[run] = True
        self.by_cgroup[cgroup_id] = run
        return run

    def remove(self, run: int) -> None:
        """The run is over and its place is free."""
        self.by_cgroup.pop(int(self.state["cgroup_id"][run]), None)
        self.state["used"][run] = self._used[run] = False


class Ended:
    """The last runs that ended, newest last, published at once for whoever may read."""

    KEPT = 1000
    SPARE = 100  # places behind them, so that not all move with each that ends

    def __init__(self, path: str, group: int) -> None:
        """Takes over what an earlier agent left at `path`. Raises OSError where it can't be made."""
        left = _left_behind(path)[-self.KEPT :]
        self._table: np.ndarray = np.zeros(self.KEPT + self.SPARE, ROW)
        self._numbers: np.ndarray = np.zeros(len(self._table), "u8")  # of each row, rising: what a slow reader goes by
        self._hold(left, np.arange(len(left)))
        self._next = len(left)
        self._writer = Writer(path, self.KEPT, group, self.rows)
        self._changed = False

    @property
    def rows(self) -> np.ndarray:
        """The last rows of those runs, in their order."""
        kept: np.ndarray = self._table[self._first : self._end]
        return kept

    def _its_numbers(self) -> np.ndarray:
        numbers: np.ndarray = self._numbers[self._first : self._end]
        return numbers

    def _hold(self, rows: np.ndarray, numbers: np.ndarray) -> None:
        """These are kept, from the table's beginning on."""
        self._first, self._end = 0, len(rows)
        self._table[: len(rows)], self._numbers[: len(rows)] = rows, numbers

    def add(self, row: np.void) -> None:
        """Keeps a run's last row."""
        if self._end == len(self._table):
            self._hold(self.rows[1:], self._its_numbers()[1:])
        self._table[self._end] = row
        self._numbers[self._end] = self._next
        self._next += 1
        self._end += 1
        self._first = max(self._first, self._end - self.KEPT)
        self._changed = True

    def resume(self, run: str) -> np.void | None:
        """The last row of a run that goes on after all (it restarted from its checkpoint); it is no longer ended."""
        found = np.flatnonzero(self.rows["run"] == cut(run, "run"))
        if not len(found):
            return None
        row: np.void = self.rows[found[-1]].copy()
        self._hold(np.delete(self.rows, found[-1]), np.delete(self._its_numbers(), found[-1]))
        self._changed = True
        return row

    def publish(self, time: float) -> None:
        """Shows what has been added since the last call; `time` in epoch seconds."""
        if self._changed:
            self._writer.publish(self.rows, time, self._its_numbers())
            self._changed = False


def _left_behind(path: str) -> np.ndarray:
    with contextlib.suppress(JobLensError):
        return Reader(path).rows()[0]
    nothing: np.ndarray = np.empty(0, ROW)
    return nothing


def carry_on(rows: np.ndarray, state: np.ndarray, run: int, before: np.void, columns: Iterable[str]) -> None:
    """The run goes on from the row `before`: its totals are added to what is counted from now on."""
    for column in columns:
        value = before[column]
        if value >= 0:  # false for what was absent, NaN and -1 alike
            state["offset"][column][run] += value
            current = rows[column][run]
            rows[column][run] = value + (current if current >= 0 else 0)
