"""Whether the memory of jobs leaks: one definition, for nodes and for the hub.

A leak is growth that goes on. Much else grows: a job that warms up, one that takes a step, noise whose values resemble
their neighbours. So the two halves of the readings are asked apart, and each has to grow. The second half must not be
slower than the first. Growth that came in one step is none. What that finds and whom it accuses is reported by
benchmarks/bench_false_alarms.py.
"""

from __future__ import annotations

import numpy as np

FEWEST = 12
"""Readings, below which nothing is said."""

SIGMAS, SIGMAS_OF_HALF = 3.0, 2.0
"""Standard errors that a slope must be away from nothing."""

GOES_ON = 0.2
"""The last third's least share of the growth from the first to the last third. A job that has taken its memory and
keeps it does not grow."""

SLOWER = 2.5
"""Standard errors by which the second half may be slower than the first one."""

SLOWEST = 0.5
"""And what it has to be of the first one's slope, whatever the errors."""

PARTS, MOST_OF_A_PART = 6, 0.35
"""Equal parts of the time, and the most that a step from one to the next may have of the growth. An even leak has a
fifth in each."""

MATTERS_HOURS = 20.0
"""In this time it would double, or reach its limit: growth that takes longer is no news."""

MOST_DEPENDENT = 0.98
HOUR = 3600.0


def leaks(times: np.ndarray, values: np.ndarray, used: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Which rows leak, shape (n,). All else is of shape (n, places), but for `room`.

    times: seconds, in order up to one turn; values: bytes; used: which of the readings are there.

    room: bytes to the limit, shape (n,), infinite if there is none.
    """
    found: np.ndarray = used.sum(axis=1) >= FEWEST
    rows = np.flatnonzero(found)
    times, values, used = times[rows], values[rows], used[rows]
    first, last = _bounds(times, used)
    in_first = times - first[:, None] < (last - first)[:, None] / 2
    slope, grows = _growth(times, values, used, SIGMAS)
    before, grew_before = _growth(times, values, used & in_first, SIGMAS_OF_HALF)
    after, grew_after = _growth(times, values, used & ~in_first, SIGMAS_OF_HALF)
    slowed = before[0] - after[0] > SLOWER * np.hypot(before[1], after[1])
    is_slower = (after[0] < SLOWEST * before[0]) | (slowed & (after[0] < 0.95 * before[0]))  # 0.95: rounding
    level = np.minimum(mean(values, used), room[rows])
    matters = slope[0] * HOUR * MATTERS_HOURS >= level
    found[rows] = grows & grew_before & grew_after & ~is_slower & matters & _is_even(times, values, used)
    return found


def fit(times: np.ndarray, values: np.ndarray, used: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slope and its standard error by least squares over the readings that are `used`; all of shape (n, places).

    Readings lie in a ring: they are in their order up to one turn. Residuals that resemble their neighbours
    are worth less than as many independent ones: the error grows with their correlation. NaN if unknown.
    """
    count = used.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(used, times - mean(times, used)[:, None], 0.0)
        y = np.where(used, values - mean(values, used)[:, None], 0.0)
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


def mean(values: np.ndarray, used: np.ndarray) -> np.ndarray:
    """Of each row's readings that are `used`; NaN if there are none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found: np.ndarray = np.where(used, values, 0.0).sum(axis=1) / used.sum(axis=1)
    return found


def _growth(
    times: np.ndarray, values: np.ndarray, used: np.ndarray, sigmas: float
) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """The slope and its error; and whether it is growth, in each third of the time."""
    slope, error = fit(times, values, used)
    with np.errstate(invalid="ignore"):
        means = _parts(times, values, used, 3)
        grown = means[2] - means[0]
        goes_on = (means[1] > means[0]) & (means[2] - means[1] > GOES_ON * grown)
        return (slope, error), (slope > sigmas * error) & goes_on


def _is_even(times: np.ndarray, values: np.ndarray, used: np.ndarray) -> np.ndarray:
    """Whether no step from one part of the time to the next has most of the growth; false if a part has no reading."""
    steps = np.diff(_parts(times, values, used, PARTS), axis=0)
    with np.errstate(invalid="ignore"):
        even: np.ndarray = steps.max(axis=0) <= MOST_OF_A_PART * steps.sum(axis=0)
    return even


def _parts(times: np.ndarray, values: np.ndarray, used: np.ndarray, count: int) -> np.ndarray:
    """The means of equal parts of the time, shape (count, n)."""
    first, last = _bounds(times, used)
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.floor((times - first[:, None]) / (last - first)[:, None] * (count - 0.001))
    found: np.ndarray = np.stack([mean(values, used & (part == number)) for number in range(count)])
    return found


def _bounds(times: np.ndarray, used: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last time of each row's readings."""
    return np.where(used, times, np.inf).min(axis=1), np.where(used, times, -np.inf).max(axis=1)
