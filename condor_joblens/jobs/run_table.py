"""The runs that this node knows: one table of those that live, which outlives the agent, and the last that ended.

A run is one start of a job: GlobalJobId and its number of shadow starts. A job that was evicted and comes back is
a new run. One that exits with its checkpoint code and goes on in its slot is the same run in a new cgroup.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import numpy as np

from condor_joblens.common.errors import JobLensError
from condor_joblens.jobs import run_table_file
from condor_joblens.jobs.run_state import empty_state
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import ROW, empty_rows
from condor_joblens.shm.reader import Reader, rows_of_any_version
from condor_joblens.shm.writer import Writer

LEVELS = ("policy_level", "policy_cap", "override_level", "target_level")
"""Columns of the state that are levels."""


class Runs:
    """The table of living runs: `rows` (metrics.ROW) and, beside it, `state` (STATE), both of shape (capacity,).

    Both lie in a mapped file: if the agent is killed, the next one finds the table as it was. One of another version
    takes over what it knows: see run_table_file.py.
    """

    def __init__(self, path: str, capacity: int, log: Callable[[str], None] = lambda line: None) -> None:
        """Opens or makes the file, mode 0600, and logs what can't be taken over. Raises JobLensError if that fails."""
        self.capacity = capacity
        tables = run_table_file.open_file(path, _empty_tables, capacity, log)
        self.rows, self.state = tables.rows, tables.state
        # beside the table: a place that was never used then takes up no memory of ours
        self._used: np.ndarray = self.state["used"].view("u1") != 0
        self.by_cgroup: dict[int, int] = {}
        for run in self.living().tolist():
            self._admit(run, lambda line: log(f"{path}: {line}"))

    def _admit(self, run: int, log: Callable[[str], None]) -> None:
        """Keeps a run that the file has, unless it says what can't be."""
        row, state = self.rows[run], self.state[run]
        cgroup_id, levels = int(state["cgroup_id"]), [int(row["level_number"]), *(int(state[name]) for name in LEVELS)]
        is_sound = (
            all(Level.OFF <= level <= Level.TRACE for level in levels)
            and cgroup_id not in (0, *self.by_cgroup)
            and not any(b"\0" in bytes(row[name]) for name in ("cgroup", "execute"))
        )
        if is_sound:
            self.by_cgroup[cgroup_id] = run
        else:
            log(f"the run of cgroup {cgroup_id} has impossible numbers: its totals begin anew")
            self.state["used"][run] = self._used[run] = False

    def living(self) -> np.ndarray:
        """Indices of the runs in use, shape (n,)."""
        indices: np.ndarray = np.flatnonzero(self._used)
        return indices

    def by_number(self) -> dict[int, int]:
        """The same by their numbers: an index is another run's once its run is over."""
        living = self.living()
        return dict(zip(self.rows["run_number"][living].tolist(), living.tolist()))

    def add(self, cgroup_id: int) -> int | None:
        """A new run in this cgroup, every number absent; None where the table is full."""
        free = np.flatnonzero(~self._used)
        if not len(free):
            return None
        run = int(free[0])
        self.rows[run] = empty_rows(1)[0]
        self.state[run : run + 1].view("u1")[:] = empty_state(1).view("u1")
        self.state["cgroup_id"][run] = cgroup_id
        self.state["used"][run] = self._used[run] = True
        self.by_cgroup[cgroup_id] = run
        return run

    def remove(self, run: int) -> None:
        """The run is over and its place is free."""
        self.by_cgroup.pop(int(self.state["cgroup_id"][run]), None)
        self.state["used"][run] = self._used[run] = False


def _empty_tables(count: int) -> run_table_file.Tables:
    return run_table_file.Tables(empty_rows(count), empty_state(count))


SAME_RUN = ("run", "slot", "execute", "job_id", "owner")
"""Columns that a run keeps when it restarts from its checkpoint: its starter stays."""


class Ended:
    """The last runs that ended, newest last, published at once for whoever may read."""

    KEPT = 1000
    SPARE = 100  # places behind them, so that not all move with each that ends

    def __init__(self, path: str, group: int, log: Callable[[str], None] = lambda line: None) -> None:
        """Takes over what an earlier agent left at `path`, of whatever version. Raises OSError if it can't be made."""
        left = _left_behind(path, log)[-self.KEPT :]
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

    def correct(self, row: np.void) -> None:
        """Another last row of a run, in place of the one that is kept; nothing if that is no longer there."""
        found = np.flatnonzero(self.rows["run_number"] == row["run_number"])
        if len(found):
            self._hold(np.delete(self.rows, found), np.delete(self._its_numbers(), found))
            self.add(row)

    def resume(self, now: np.void) -> np.void | None:
        """The last row of the run that goes on in the row `now`, from its checkpoint; it is no longer ended.

        A name alone proves nothing: it must be the same job of the same owner in the same slot.
        """
        found = np.flatnonzero(np.logical_and.reduce([self.rows[name] == now[name] for name in SAME_RUN]))
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


def _left_behind(path: str, log: Callable[[str], None]) -> np.ndarray:
    if not os.path.lexists(path):
        return empty_rows(0)
    try:
        with contextlib.suppress(JobLensError):
            return Reader(path).rows()[0]
        return _of_another_version(rows_of_any_version(path))
    except JobLensError as error:
        log(f"{error}; the runs that have ended are no longer known")
        return empty_rows(0)


def _of_another_version(left: np.ndarray) -> np.ndarray:
    """Rows that have other columns than ours, in ours: what they do not have is absent."""
    rows = empty_rows(len(left))
    run_table_file.copy_columns(left, rows)
    return rows
