"""The collector of memory growth: whether a job's memory grows, how fast, and when it reaches its limit.

It has no source of its own: it keeps a ring of past readings of each run. What a leak is, says analysis/leaks.py.
"""

from __future__ import annotations

import time

import numpy as np

from condor_joblens.analysis.leaks import FEWEST, HOUR, SIGMAS, fit, leaks
from condor_joblens.model.metrics import ABSENT
from condor_joblens.sample import totals
from condor_joblens.sample.cgroup_memory import CgroupMemory
from condor_joblens.sample.collector import NO_RUNS, SampledNode, SourceFailed

PLACES_IN_WINDOW = 60
"""Readings that are looked at; the ring has a few places more, so that the window's are never overwritten."""

GREATEST = float(1 << 62)


class MemoryGrowth:
    """How fast the memory of runs grows, after each reading of their cgroups' memory."""

    name = "memory growth"
    columns = ("memory_growth_bytes_per_hour", "memory_growth_error_bytes_per_hour", "memory_hours_to_limit")

    def __init__(self, node: SampledNode, memory: CgroupMemory) -> None:
        self.runs = NO_RUNS
        self._node = node
        self._memory = memory

    def prepare(self, runs: np.ndarray, at_end: bool) -> None:
        """Nothing."""

    def read(self, runs: np.ndarray, at_end: bool) -> None:
        """By the memory of their cgroups, or that of their processes if there is no memory controller.

        Memory that a job gives back at its end is no part of its growth.
        """
        self.runs = runs = NO_RUNS if at_end else self._memory.runs
        if not len(runs):
            return
        if not self._memory.was_read:
            raise SourceFailed("the cgroup's memory was not read")
        rows, state, now = self._node.runs.rows, self._node.runs.state, time.monotonic()
        window = self._node.config.memory_trend_seconds
        charged, summed = rows["memory_cgroup_anon_bytes"][runs], rows["memory_anon_bytes"][runs]
        anon = np.where(charged >= 0, charged, summed)
        limit, requested = rows["memory_limit_bytes"][runs], rows["request_memory_bytes"][runs]
        remember(state, runs, anon, now, window)
        held = anon + np.maximum(rows["memory_cgroup_kernel_bytes"][runs], 0)
        found = columns(state, runs, held, np.where(limit >= 0, limit, requested), now, window)
        totals.merge(rows, state["offset"], runs, found)

    def rebase(self, run: int) -> None:
        """Its cgroup is the same as before."""

    def reset(self, run: int) -> None:
        """The readings so far are not the job's."""
        self._node.runs.state["growth_time"][run] = 0

    def forget(self, run: int) -> None:
        """Nothing is kept beside the state."""


def remember(state: np.ndarray, runs: np.ndarray, anon: np.ndarray, now: float, window: float) -> None:
    """Keeps the anonymous memory `anon` (bytes, shape (n,), below 0 if absent) of `runs` (n,) as it is at `now`.

    One reading for each of the window's PLACES_IN_WINDOW; `now` is CLOCK_MONOTONIC, `window` seconds.
    """
    known = anon >= 0
    runs, anon = runs[known], anon[known]
    place = int(now / window * PLACES_IN_WINDOW) % state["growth_time"].shape[1]
    fresh = now - state["growth_time"][runs, place] > window / PLACES_IN_WINDOW
    state["growth_time"][runs[fresh], place] = now
    state["growth_bytes"][runs[fresh], place] = anon[fresh]


def columns(
    state: np.ndarray, runs: np.ndarray, held: np.ndarray, limit: np.ndarray, now: float, window: float
) -> dict[str, np.ndarray]:
    """Growth, its uncertainty and the hours to the limit of `runs` (n,), each of shape (n,).

    `held` and `limit` in bytes, shape (n,), below 0 if unknown.
    """
    times, values = state["growth_time"][runs], state["growth_bytes"][runs]
    used = (times > 0) & (times >= now - window)
    slope, error = fit(np.where(used, times - now, 0.0), values, used)
    known = (used.sum(axis=1) >= FEWEST) & np.isfinite(slope)
    left = np.maximum(limit - held, 0)
    rising = known & (slope > SIGMAS * error) & (limit >= 0) & (held >= 0)  # most runs are not, and are not asked again
    rising[rising] = leaks(times[rising], values[rising], used[rising], left[rising])
    with np.errstate(divide="ignore", invalid="ignore"):
        hours = np.where(rising, left / slope / HOUR, np.nan)
    return {
        "memory_growth_bytes_per_hour": _whole(np.maximum(slope, 0) * HOUR, known),
        "memory_growth_error_bytes_per_hour": _whole(error * HOUR, known),
        "memory_hours_to_limit": hours,
    }


def _whole(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    whole: np.ndarray = np.where(known, np.minimum(np.where(known, values, 0), GREATEST), ABSENT).astype("i8")
    return whole
