"""From what the sources say to what is published: totals that never go backwards, and rates of CPU time."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from condor_joblens.model.metrics import METRICS, Kind

RECENT_SECONDS = 15.0
"""The time of which `RecentCores` is the mean."""

PLACES_A_SECOND = 2
"""Of the history of CPU readings: its 32 places reach back far enough at any period."""

SHORTEST = 0.05
"""Seconds below which a rate would be noise."""

KINDS = {metric.column: metric.kind for metric in METRICS}


def merge(rows: np.ndarray, offsets: np.ndarray, runs: np.ndarray, columns: dict[str, np.ndarray]) -> None:
    """Puts measured `columns`, each of shape (n,), into `rows` at the indices `runs` (n,).

    A counter gets its offset added and never goes backwards, a peak keeps its greatest, a gauge is as it is. A
    value that is absent in `columns` (-1 or NaN) leaves a counter and a peak as they were.
    """
    for column, measured in columns.items():
        kind = KINDS[column]
        if kind is Kind.GAUGE:
            rows[column][runs] = measured
            continue
        known = measured >= 0 if kind is Kind.PEAK else ~_absent(measured)
        total = measured + offsets[column][runs] if kind is Kind.COUNTER else measured
        before = rows[column][runs]
        # what is absent in the row is less than anything measured: -1, and NaN by fmax
        rows[column][runs] = np.where(known, np.fmax(before, total), before)


def merge_counters(
    rows: np.ndarray, offsets: np.ndarray, runs: np.ndarray, columns: tuple[str, ...], measured: np.ndarray
) -> None:
    """The same for counters that are neighbours in a row, all at once: `measured` has shape (n, columns)."""
    total = measured + _side_by_side(offsets, columns)[runs]
    its = _side_by_side(rows, columns)
    its[runs] = np.fmax(its[runs], total)


def _side_by_side(table: np.ndarray, columns: tuple[str, ...]) -> np.ndarray:
    first = table[columns[0]]
    its: np.ndarray = as_strided(first, (len(table), len(columns)), (*first.strides, first.itemsize))
    return its


def _absent(measured: np.ndarray) -> np.ndarray:
    # a whole number can be below 0 here: the kernel's sums begin there until the first thread is added
    return np.isnan(measured) if measured.dtype.kind == "f" else np.zeros(len(measured), "?")


def rebase(rows: np.ndarray, offsets: np.ndarray, run: int, columns: dict[str, np.ndarray]) -> None:
    """From now on the run's counters go on from where they are, whatever the sources say at this moment.

    `columns` have shape (1,). For a source that does not begin with the run: a cgroup that is older than the
    job, or a tracer that was loaded later.
    """
    for column, measured in columns.items():
        if KINDS[column] is Kind.COUNTER and not _absent(measured)[0]:
            if not rows[column][run] >= 0:
                rows[column][run] = 0
            offsets[column][run] = rows[column][run] - measured[0]


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
