"""The last hour of each run, a point a minute, for `joblens job`. What has ended stays until its hour is over."""

from __future__ import annotations

import contextlib
import time

import numpy as np

from condor_joblens.agent.node import Node
from condor_joblens.shm.history import MINUTES, RECORD, HistoryWriter

NAME = "history"
EVERY = 60.0
"""Seconds between two points."""

_TOTALS = (("cpu_seconds",), ("io_call_read_bytes", "io_call_write_bytes"), ("tcp_sent_bytes", "tcp_received_bytes"))
_PLACES = (0, 2, 3)
"""Of their rates among history.SERIES; memory is no total."""


class RunHistory:
    """Takes the points, and keeps them for as many runs as the node can have, and as many that have ended."""

    def __init__(self, node: Node, writer: HistoryWriter) -> None:
        self._node, self._writer = node, writer
        self._records = writer.before.copy()
        self._last = writer.time
        self._places: dict[bytes, int] = {}  # run -> its place in `_totals`
        self._totals: np.ndarray = np.zeros((0, len(_TOTALS)))  # at the last points
        self._due, self._is_unwritten = 0.0, False

    def take(self) -> None:
        """Takes a point of each run if it is time, and writes them in the round after. A failure costs the file only.

        A job's end waits for either: together they take 20 ms for a thousand runs, on a busy machine.
        """
        now = time.time()
        if self._is_unwritten:
            self._is_unwritten = False
            with contextlib.suppress(OSError):
                self._writer.write(self._records, self._last)
        if now < self._due:
            return
        self._due, self._is_unwritten = now + EVERY, True
        runs, rows = self._node.runs.living(), self._node.runs.rows
        runs = runs[(rows["level_number"][runs] > 0) & ~rows["final"][runs]]
        names = rows["run"][runs]
        points = self._points(runs, names, now)
        self._shift(round((now - self._last) / EVERY) if self._last else MINUTES)
        self._append(names, points)
        self._last = now

    def _points(self, runs: np.ndarray, names: np.ndarray, now: float) -> np.ndarray:
        """Of `runs` (n,): shape (n, len(SERIES))."""
        rows = self._node.runs.rows
        nothing = np.zeros(len(runs))
        totals = np.stack([sum((_known(rows[name][runs]) for name in group), nothing) for group in _TOTALS], 1)
        before, since = np.zeros_like(totals), rows["start_time"][runs].astype("f8")
        known = [self._places.get(name, -1) for name in names.tolist()]
        again = np.flatnonzero(np.array(known, "i8") >= 0)
        before[again], since[again] = self._totals[np.array(known, "i8")[again]], self._last
        points: np.ndarray = np.full((len(runs), RECORD["values"].shape[1]), np.nan, "f4")
        points[:, 1] = _known(rows["memory_resident_bytes"][runs])
        points[:, _PLACES] = np.maximum(totals - before, 0) / np.maximum(now - since, 1.0)[:, None]
        self._totals, self._places = totals, {name: place for place, name in enumerate(names.tolist())}
        return points

    def _shift(self, minutes: int) -> None:
        """Makes room for a point at the end, and drops the runs of which nothing is left."""
        minutes = max(1, min(minutes, MINUTES))
        values = self._records["values"]
        values[:, : MINUTES - minutes] = values[:, minutes:].copy()
        values[:, MINUTES - minutes :] = np.nan
        self._records = self._records[~np.isnan(values).all(axis=(1, 2))]

    def _append(self, runs: np.ndarray, points: np.ndarray) -> None:
        known = {run: position for position, run in enumerate(self._records["run"].tolist())}
        new = [position for position, run in enumerate(runs.tolist()) if run not in known]
        more: np.ndarray = np.zeros(len(new), RECORD)
        more["run"], more["values"] = runs[new], np.nan
        records = np.concatenate([self._records, more])
        places = {run: position for position, run in enumerate(records["run"].tolist())}
        at = [places[run] for run in runs.tolist()]
        records["values"][at, -1] = points
        # those that have ended go first, if there are too many
        keep: np.ndarray = np.zeros(len(records), bool)
        keep[at] = True
        ended = np.flatnonzero(~keep)
        keep[ended[max(0, len(ended) - self._node.runs.capacity) :]] = True
        self._records = records[keep]


def _known(column: np.ndarray) -> np.ndarray:
    """As float64, NaN for what is absent."""
    values: np.ndarray = column.astype("f8")
    values[values < 0] = np.nan
    return values
