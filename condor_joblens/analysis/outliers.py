"""Jobs that differ from their siblings, by statistics that the outliers themselves do not bend.

The score is the modified z-score of Iglewicz and Hoaglin (How to Detect and Handle Outliers, 1993). It is the distance
from the median, in units of the median absolute deviation. Beyond 3.5 is an outlier. If more than half of the
values are equal, that deviation is 0; then the mean absolute deviation takes its place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from condor_joblens.analysis.job_summary import MEASURES, JobSummary, Measure, id_order

LIMIT = 3.5
FEWEST = 8
"""Siblings with a number, below which none is said to differ."""

LEAST_FACTOR = 1.5
"""A job that is this much worse than the median, at least, is worth a look."""

_OF_MEDIAN = 0.6745  # of a normal distribution: the 0.75 quantile
_OF_MEAN = 1.253314  # of a normal distribution: the square root of pi/2
_SAME = 1e-9  # of the mean: what lies so close together is equal but for rounding


@dataclass(frozen=True)
class Outlier:
    """One job that is worse than its siblings in one number."""

    job: JobSummary
    measure: Measure
    value: float
    median: float  # of the siblings that are compared, this job included
    count: int  # of these
    score: float


def outliers(jobs: Sequence[JobSummary]) -> list[Outlier]:
    """What differs within each cluster, worst first in each measure, in the measures' order.

    Compared are jobs of one cluster that ended on their own; a job still running has no whole numbers.
    """
    clusters: dict[str, list[JobSummary]] = defaultdict(list)
    for job in jobs:
        if job.ended:
            clusters[job.cluster].append(job)
    found = [one for members in clusters.values() for measure in MEASURES for one in _of(members, measure)]
    place = {measure.name: number for number, measure in enumerate(MEASURES)}
    return sorted(found, key=lambda one: (place[one.measure.name], -one.score, id_order(one.job.job)))


def _of(jobs: list[JobSummary], measure: Measure) -> list[Outlier]:
    known = [job for job in jobs if measure.name in job.numbers]
    if len(known) < FEWEST:
        return []
    values = np.array([job.numbers[measure.name] for job in known], "f8")
    median, scores = float(np.median(values)), modified_z_scores(values)
    worse = -scores if measure.small_is_bad else scores
    far = np.abs(values - median) >= measure.least_difference
    if measure.small_is_bad:
        far &= values * LEAST_FACTOR <= median
    else:
        far &= values >= median * LEAST_FACTOR
    return [
        Outlier(known[place], measure, float(values[place]), median, len(known), float(worse[place]))
        for place in np.flatnonzero(far & (worse > LIMIT))
    ]


def modified_z_scores(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The scores of `values` (shape (n,), n > 0); all 0 if the values are equal."""
    deviations: npt.NDArray[np.float64] = values - np.median(values)
    distances = np.abs(deviations)
    spread, mean = float(np.median(distances)), float(np.mean(distances))
    if spread > _SAME * mean:
        return _OF_MEDIAN * (deviations / spread)
    return deviations / mean / _OF_MEAN if mean > 0 else deviations
