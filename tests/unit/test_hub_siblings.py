"""Which jobs stand out among their siblings: fixed worlds, false alarms first."""

from __future__ import annotations

import numpy as np
import pytest
from generated_worlds import CLUSTERS, cluster

from condor_joblens.hub.web.siblings import FEWEST, MEASURES, spread

MEMORY = MEASURES[0]
GIB = float(1 << 30)


def test_too_few_siblings_are_no_spread() -> None:
    assert spread(MEMORY, [GIB] * (FEWEST - 1)) is None
    assert spread(MEMORY, [GIB] * (FEWEST - 1) + [None, -1.0]) is None
    found = spread(MEMORY, [GIB] * FEWEST)
    assert found and (found.count, found.low, found.median, found.high) == (FEWEST, GIB, GIB, GIB)


def test_five_times_a_tight_cluster_stands_out_and_what_nobody_cares_about_does_not() -> None:
    world = np.random.default_rng(1)
    found = spread(MEMORY, [*world.normal(GIB, 0.05 * GIB, 50), 5 * GIB])
    assert found and found.stands_out(5 * GIB) and not found.stands_out(1.2 * GIB) and not found.stands_out(None)
    small = spread(MEMORY, [*world.normal(1e6, 1e5, 50), 2e7])
    assert small and not small.stands_out(2e7), "20 MB of memory, twenty times the others"


@pytest.mark.parametrize("count", [10, 30, 100])
@pytest.mark.parametrize("kind", CLUSTERS)
def test_innocent_clusters_are_left_alone(kind: str, count: int) -> None:
    """At most 1 % of them have a job that stands out, with heavy tails, too (bench_false_alarms.py)."""
    dice, alarms = np.random.default_rng(7), 0
    for _ in range(300):
        values = cluster(dice, kind, count)
        found = spread(MEMORY, [float(value) for value in values])
        assert found
        alarms += any(found.stands_out(float(value)) for value in values)
    assert alarms <= 3


@pytest.mark.parametrize("count", [10, 20, 100])
@pytest.mark.parametrize("width", [0.05, 0.1])
def test_five_times_the_median_of_a_narrow_cluster_stands_out(count: int, width: float) -> None:
    dice, found = np.random.default_rng(8), 0
    for _ in range(200):
        values = GIB * np.exp(width * dice.normal(0, 1, count - 1))
        outlier = 5.0 * float(np.median(values))
        whole = spread(MEMORY, [*values.tolist(), outlier])
        found += whole is not None and whole.stands_out(outlier)
    assert found >= 0.95 * 200


def test_a_small_cluster_is_narrow_on_both_sides_of_its_median() -> None:
    """Jobs far below the median are as much of a heavy tail as jobs far above it."""
    values = [GIB] * 9 + [5 * GIB]
    whole = spread(MEMORY, values)
    assert whole and whole.stands_out(5 * GIB)
    wide = spread(MEMORY, [0.3 * GIB, 0.6 * GIB, *values[2:]])
    assert wide and wide.limit is None


def test_two_kinds_of_jobs_in_a_cluster_are_no_outliers() -> None:
    """A third of them has ten times as much: that is another kind of jobs. And a wide cluster has no outliers."""
    found = spread(MEMORY, [GIB] * 20 + [10 * GIB] * 10)
    assert found and found.limit is None and not found.stands_out(10 * GIB)
    wide = spread(MEMORY, [GIB * 1.2**number for number in range(20)] + [1000 * GIB])
    assert wide and wide.limit is None


def test_what_few_have_of_next_to_nothing_is_no_news() -> None:
    found = spread(MEMORY, [0.0] * 30 + [6 * MEMORY.floor])
    assert found and not found.stands_out(6 * MEMORY.floor) and found.stands_out(9 * MEMORY.floor)
