"""The collector of progress: how long a run has used next to no CPU and moved next to nothing.

It has no source of its own: it looks at what the other collectors have put into the rows. So its level is basic, and
what a closer level counts besides makes it surer. What still moves is looked at in windows. A run may use ALLOWED_CORES
and ALLOWED_BYTES in each of them, and makes progress with the first thing beyond.

A run that computes without end makes no progress either, where samples say so (agent/busy.py). What it moves is looked
at in windows of their own.
"""

from __future__ import annotations

import time

import numpy as np

from condor_joblens.sample.collector import NO_RUNS, SampledNode

ALLOWED_CORES = 0.001
"""A loop that looks once a second uses less: 20 µs of CPU in C, 100 µs in Python."""

ALLOWED_BYTES = 1000.0
"""A second: connections that are only kept alive move some tens."""

WINDOW = 60.0
"""Seconds; half of JOBLENS_HANG_MINUTES, if that is less."""

_CALLS_AND_STORAGE = (
    ("io_call_read_bytes", "io_storage_read_bytes"),
    ("io_call_write_bytes", "io_storage_write_bytes"),
)
_ALONE = ("tcp_sent_bytes", "tcp_received_bytes", "udp_sent_bytes", "udp_received_bytes")


class Progress:
    """Since when runs have stood still."""

    name = "progress"
    columns = ("hang_seconds", "hang_suspected")

    def __init__(self, node: SampledNode) -> None:
        self.runs = NO_RUNS
        self._node = node

    def prepare(self, runs: np.ndarray, at_end: bool) -> None:
        """Nothing."""

    def read(self, runs: np.ndarray, at_end: bool) -> None:
        """By the rows as they are; what a job does at its end is no part of it."""
        self.runs = runs = NO_RUNS if at_end else runs
        if not len(runs):
            return
        rows, state, now = self._node.runs.rows, self._node.runs.state, time.monotonic()
        threshold = 60.0 * self._node.config.hang_minutes
        measure(rows, state, runs, now, min(WINDOW, threshold / 2) if threshold else WINDOW)
        moves = ~(rows["hang_seconds"][runs] >= (threshold or np.inf))
        rows["hang_suspected"][runs] = np.where(moves, 0, np.maximum(rows["hang_suspected"][runs], 0))
        rows["hang_cause"][runs[moves & (rows["hang_cause"][runs] != b"")]] = b""

    def rebase(self, run: int) -> None:
        """A new tracer counts on from where the run's totals are."""

    def reset(self, run: int) -> None:
        """What has been until now was not the job's."""
        self._begin_anew(run)

    def forget(self, run: int) -> None:
        """Nothing is kept beside the state and the row."""
        self._begin_anew(run)
        self._node.runs.rows["hang_cause"][run] = b""

    def _begin_anew(self, run: int) -> None:
        state = self._node.runs.state
        state["progress_at"][run] = state["moved_at"][run] = 0


def measure(rows: np.ndarray, state: np.ndarray, runs: np.ndarray, now: float, window: float) -> None:
    """Puts Hang.Seconds of `runs` (n,) into their rows; `now` is CLOCK_MONOTONIC, `window` in seconds.

    A run whose CPU time is unknown makes progress.
    """
    _measure_bytes(rows, state, runs, now, window)
    cpu, moved, since = rows["cpu_seconds"][runs], moved_bytes(rows, runs), state["progress_at"][runs]
    within = (cpu - state["progress_cpu"][runs] <= ALLOWED_CORES * window) & (since > 0)
    within &= moved - state["progress_bytes"][runs] <= ALLOWED_BYTES * window
    anew = ~within | (now - since >= window)
    changed = runs[anew]
    state["progress_at"][changed] = now
    state["progress_cpu"][changed], state["progress_bytes"][changed] = cpu[anew], moved[anew]
    state["still_since"][runs[~within]] = now
    # also the time in which it was suspended is none (agent/levels/policy_input.py)
    still = now - np.maximum(state["still_since"][runs], state["idle_since"][runs])
    busy_since = state["busy_since"][runs]
    rows["hang_seconds"][runs] = np.maximum(np.where(busy_since > 0, now - busy_since, still), 0.0)


def _measure_bytes(rows: np.ndarray, state: np.ndarray, runs: np.ndarray, now: float, window: float) -> None:
    """The same for bytes alone: since when a run has moved next to none, whatever it computes."""
    moved, since = moved_bytes(rows, runs), state["moved_at"][runs]
    within = (moved - state["moved_before"][runs] <= ALLOWED_BYTES * window) & (since > 0)
    anew = ~within | (now - since >= window)
    state["moved_at"][runs[anew]], state["moved_before"][runs[anew]] = now, moved[anew]
    state["quiet_since"][runs[~within]] = now


def moved_bytes(rows: np.ndarray, runs: np.ndarray) -> np.ndarray:
    """What `runs` (n,) have moved so far, bytes; what two sources tell of counts once."""
    moved: np.ndarray = np.zeros(len(runs))
    for pair in _CALLS_AND_STORAGE:
        moved += np.maximum(np.maximum(rows[pair[0]][runs], rows[pair[1]][runs]), 0)
    for column in _ALONE:
        moved += np.maximum(rows[column][runs], 0)
    return moved
