"""A job beside the others of its cluster: how they are spread, and which stand out.

What stands out has several times the median of a narrow cluster. In such a cluster, nine in ten jobs have at most half
as much again as the median, and jobs below it are as near. In a wide cluster, or one with heavy tails, nothing does:
there a job that has much more is what such clusters have. A small cluster may look narrow by chance, so it has to be
narrower. All numbers are counted from a floor a measure, of which nobody cares. That was tried on
generated clusters (benchmarks/bench_false_alarms.py). Nobody is mailed: it is a place to look.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FEWEST = 10
"""Siblings with a number, below which nothing is said of it."""

FACTOR = 4.5
"""Times the median of the others is what stands out: so that five times is always told."""

NARROW = 1.5
"""What nine in ten of the others have at most, in medians. In a wider cluster nothing stands out."""

FEW = 0.1
"""Of a cluster, at most, can stand out: more of them are another kind of jobs."""

WIDTH, DOUBT = 0.31, 1.7
"""What the others' distances from the median are at most, on both sides: the root of the mean of squared logarithms.
To it is added so many times itself, divided by their number. A few jobs of a wide cluster may lie close together by
chance."""

FAR, MOST_FAR, FEWEST_OF_TAILS = 3.0, 0.002, 35
"""Tails are heavy if more than this share of the others is so many times as far from the median as nine in ten are.
Fewer jobs than that tell nothing of tails."""

NEAR = 1.25
"""Times the median, or a part of it, is never far from it."""

SELDOM = 8.0
"""Times the floor, at least, is what stands out where most siblings are below it."""


@dataclass(frozen=True)
class Measure:
    """A number by which siblings are compared; more of it stands out."""

    name: str
    column: str
    unit: str  # bytes, seconds or share
    floor: float  # in the unit: what nobody cares about


MEASURES = (
    Measure("Memory, greatest", "PeakBytes", "bytes", 64 << 20),
    Measure("Time", "Seconds", "seconds", 60.0),
    Measure("CPU time", "CpuSeconds", "seconds", 60.0),
    Measure("Read", "ReadBytes", "bytes", 64 << 20),
    Measure("Written", "WriteBytes", "bytes", 64 << 20),
)


@dataclass(frozen=True)
class Spread:
    """Of one measure within a cluster."""

    measure: Measure
    count: int
    low: float  # a tenth is below
    median: float
    high: float  # a tenth is above
    limit: float | None  # beyond it stands out; None: nothing does

    def stands_out(self, value: float | None) -> bool:
        """Whether that is far above the others."""
        return value is not None and self.limit is not None and value > self.limit


def spread(measure: Measure, values: Sequence[float | None]) -> Spread | None:
    """None: there are too few. values: those of the cluster's jobs."""
    known: npt.NDArray[np.float64] = np.array([value for value in values if value is not None and value >= 0], "f8")
    if len(known) < FEWEST:
        return None
    low, median, high = (float(value) for value in np.quantile(known, (0.1, 0.5, 0.9)))
    return Spread(measure, len(known), low, median, high, _limit(measure, known))


def _limit(measure: Measure, known: np.ndarray) -> float | None:
    """Beyond which a job stands out; None: there is nothing to compare it with."""
    amounts = np.sort(known + measure.floor)
    most = max(1, int(FEW * len(amounts)))  # so many may stand out, and bend no measure of the others
    others = amounts[amounts <= FACTOR * np.median(amounts[:-most])]
    middle, upper = (float(value) for value in np.quantile(others, (0.5, 0.9)))
    limit = FACTOR * middle
    if (amounts > limit).sum() > most or upper > NARROW * middle:
        return None
    distances = np.abs(np.log(others / middle))
    width = float(np.sqrt(np.mean(distances**2)))
    if width * (1 + DOUBT / len(others)) > WIDTH:
        return None
    far = int((distances > max(FAR * math.log(upper / middle), math.log(NEAR))).sum())
    if len(known) >= FEWEST_OF_TAILS and far > MOST_FAR * len(others):
        return None
    limit -= measure.floor
    # most have next to none of it: what some have is no measure of the others
    return max(limit, SELDOM * measure.floor) if middle < 2 * measure.floor else limit
