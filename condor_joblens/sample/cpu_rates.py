"""How many cores a run uses, recently and on average: from past readings of its CPU time."""

from __future__ import annotations

import numpy as np

RECENT_SECONDS = 15.0
"""The time of which `RecentCores` is the mean."""

PLACES_A_SECOND = 2
"""Of the history of CPU readings: its 32 places reach back far enough at any period."""

SHORTEST = 0.05
"""Seconds below which a rate would be noise."""


def remember(rows: np.ndarray, state: np.ndarray, runs: np.ndarray, now: float) -> None:
    """Keeps the CPU seconds of `runs` (n,) as they are at `now` (CLOCK_MONOTONIC), for `cores`."""
    place = int(now * PLACES_A_SECOND) % state["history_time"].shape[1]
    state["history_time"][runs, place] = now
    state["history_cpu"][runs, place] = rows["cpu_seconds"][runs]


def cores(rows: np.ndarray, state: np.ndarray, runs: np.ndarray, now: float) -> None:
    """Recent and average cores of `runs` (n,) from their CPU seconds; `now` in CLOCK_MONOTONIC seconds.

    Recent: since the oldest reading of the last RECENT_SECONDS, or since the last one if the period is longer.
    """
    times, cpus = state["history_time"][runs], state["history_cpu"][runs]
    seconds = rows["cpu_seconds"][runs]
    recent = times >= now - RECENT_SECONDS
    oldest = np.where(recent, times, np.inf).argmin(axis=1)
    newest = np.where(np.isnan(times), -np.inf, times).argmax(axis=1)
    line = np.arange(len(runs))
    place = np.where(recent.any(axis=1), oldest, newest)
    rows["cpu_recent_cores"][runs] = _rate(seconds - cpus[line, place], now - times[line, place])
    rows["cpu_average_cores"][runs] = _rate(seconds, now - state["began"][runs])
    remember(rows, state, runs, now)


def _rate(amount: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    enough = seconds > SHORTEST  # false for NaN: there is no earlier reading
    rate: np.ndarray = np.where(enough, np.maximum(amount, 0) / np.where(enough, seconds, 1), np.nan)
    return rate


def clear(state: np.ndarray, run: int) -> None:
    """The run's readings so far are void."""
    state["history_time"][run] = np.nan
