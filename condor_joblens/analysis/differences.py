"""Where one job differs from another, or from its siblings, worst first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from condor_joblens.analysis.job_summary import MEASURES, JobSummary, Measure

LEAST_FACTOR = 1.2
LEAST_SHARE = 0.05
"""Of a job's time: a wait that differs by less is no news."""


@dataclass(frozen=True)
class Difference:
    """One number of a job beside the other's."""

    measure: Measure
    value: float
    other: float

    @property
    def factor(self) -> float:
        """How many times the greater is the smaller; infinite beside 0."""
        small, great = sorted((abs(self.value), abs(self.other)))
        return great / small if small else float("inf")


@dataclass(frozen=True)
class WaitDifference:
    """What a job's threads spent their time on: shares of 1."""

    name: str
    share: float
    other: float


def differences(job: JobSummary, other: JobSummary) -> list[Difference]:
    """Numbers that differ by enough to matter, the greatest factor first."""
    found = [
        Difference(measure, job.numbers[measure.name], other.numbers[measure.name])
        for measure in MEASURES
        if measure.name in job.numbers and measure.name in other.numbers
    ]
    matter = [
        one
        for one in found
        if abs(one.value - one.other) >= one.measure.least_difference and one.factor >= LEAST_FACTOR
    ]
    return sorted(matter, key=lambda one: -one.factor)


def wait_differences(job: JobSummary, other: JobSummary) -> list[WaitDifference]:
    """Where the time of the threads went otherwise, greatest difference first; nothing if one is not known."""
    mine, theirs = shares(job), shares(other)
    if not mine or not theirs:
        return []
    names = dict.fromkeys([*mine, *theirs])
    found = [WaitDifference(name, mine.get(name, 0.0), theirs.get(name, 0.0)) for name in names]
    matter = [one for one in found if abs(one.share - one.other) >= LEAST_SHARE]
    return sorted(matter, key=lambda one: -abs(one.share - one.other))


def shares(job: JobSummary) -> dict[str, float]:
    """What the threads' time went to, shares of 1; nothing below level io."""
    total = sum(job.waits.values())
    return {name: seconds / total for name, seconds in job.waits.items()} if total > 0 else {}


def typical(jobs: Sequence[JobSummary]) -> JobSummary:
    """A job of the medians of others: each number of those that have it. `jobs` has one at least."""
    numbers = {}
    for measure in MEASURES:
        known = [job.numbers[measure.name] for job in jobs if measure.name in job.numbers]
        if known:
            numbers[measure.name] = float(np.median(known))
    per_job = [found for found in map(shares, jobs) if found]
    names = dict.fromkeys(name for found in per_job for name in found)
    waits = {name: float(np.median([found.get(name, 0.0) for found in per_job])) for name in names}
    return JobSummary(f"{len(jobs)} siblings", jobs[0].state, numbers=numbers, waits=waits)
