"""The collector of memory growth: whether a job's memory grows, how fast, and when it reaches its limit.

It has no source of its own: it keeps a ring of past readings of each run.
"""

from __future__ import annotations

import time

import numpy as np

from condor_joblens.model.metrics import ABSENT
from condor_joblens.sample import totals
from condor_joblens.sample.cgroup_memory import CgroupMemory
from condor_joblens.sample.collector import NO_RUNS, SampledNode, SourceFailed

PLACES_IN_WINDOW = 60
"""Readings that are looked at; the ring has a few places more, so that the window's are never overwritten."""

FEWEST = 12
"""Readings that make a trend: a fifth of the window."""

SIGMAS = 3.0
"""Standard errors that a slope must be away from nothing."""

GOES_ON = 0.25
"""The last third's least share of the growth from the first to the last third. A job that has taken its memory and
keeps it does not grow."""

MOST_DEPENDENT = 0.98
HOUR = 3600.0
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
    rising = known & (slope > SIGMAS * error) & goes_on(times, values, used) & (limit >= 0) & (held >= 0)
    left = np.maximum(limit - held, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        hours = np.where(rising, left / slope / HOUR, np.nan)
    return {
        "memory_growth_bytes_per_hour": _whole(np.maximum(slope, 0) * HOUR, known),
        "memory_growth_error_bytes_per_hour": _whole(error * HOUR, known),
        "memory_hours_to_limit": hours,
    }


def fit(times: np.ndarray, values: np.ndarray, used: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slope and its standard error by least squares over the readings that are `used`; all of shape (n, places).

    Readings lie in a ring: they are in their order up to one turn. Residuals that resemble their neighbours
    are worth less than as many independent ones: the error grows with their correlation. NaN if unknown.
    """
    count = used.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(used, times - _mean(times, used)[:, None], 0.0)
        y = np.where(used, values - _mean(values, used)[:, None], 0.0)
        spread = (t * t).sum(axis=1)
        slope = (t * y).sum(axis=1) / spread
        residuals = np.where(used, y - slope[:, None] * t, 0.0)
        squares = (residuals * residuals).sum(axis=1)
        both = used & np.roll(used, 1, axis=1)
        lagged = np.where(both, residuals * np.roll(residuals, 1, axis=1), 0.0).sum(axis=1)
        dependent = np.clip(np.where(squares > 0, lagged / squares, 0.0), 0.0, MOST_DEPENDENT)
        error = np.sqrt(squares / (count - 2) / spread * (1 + dependent) / (1 - dependent))
    enough = count > 2
    return np.where(enough, slope, np.nan), np.where(enough, error, np.nan)


def goes_on(times: np.ndarray, values: np.ndarray, used: np.ndarray) -> np.ndarray:
    """Whether each third of the readings' time has had its share of the growth, shape (n,)."""
    first = np.where(used, times, np.inf).min(axis=1)
    last = np.where(used, times, -np.inf).max(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        third = np.floor((times - first[:, None]) / (last - first)[:, None] * 2.999)
        means = [_mean(values, used & (third == number)) for number in range(3)]
    grown: np.ndarray = (means[1] > means[0]) & (means[2] - means[1] > GOES_ON * (means[2] - means[0]))
    return grown


def _mean(values: np.ndarray, used: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        mean: np.ndarray = np.where(used, values, 0.0).sum(axis=1) / used.sum(axis=1)
    return mean


def _whole(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    whole: np.ndarray = np.where(known, np.minimum(np.where(known, values, 0), GREATEST), ABSENT).astype("i8")
    return whole
