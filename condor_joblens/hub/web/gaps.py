"""Holes in a run's samples. A run numbers its samples, so a number that never came is known."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Gap:
    """Between two samples that are there."""

    after: int  # the place of the sample before it
    begin: float  # epoch seconds
    end: float
    missing: int  # samples, at the run's usual distance
    is_declared: bool  # whether its node said that records were lost then


def gaps(numbers: Sequence[int], times: Sequence[float], losses: Sequence[float]) -> list[Gap]:
    """Where numbers jump by more than is usual in this run: a sink that takes every third sample makes no gaps.

    numbers, times: Sequence and Time of its samples, in order; losses: when its node declared losses.
    """
    steps = [after - before for before, after in zip(numbers, numbers[1:])]
    if not steps:
        return []
    usual = max(1.0, statistics.median_low(steps))
    found = []
    for place, step in enumerate(steps):
        if step > 1.5 * usual:
            begin, end = times[place], times[place + 1]
            # a loss is declared when the sink takes records again
            is_declared = any(begin <= time <= end + 600 for time in losses)
            found.append(Gap(place, begin, end, round(step / usual) - 1, is_declared))
    return found
