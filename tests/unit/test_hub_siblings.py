"""Which jobs stand out among their siblings: fixed worlds, false alarms first."""

from __future__ import annotations

import numpy as np
import pytest

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


@pytest.mark.parametrize("count", [20, 100])
@pytest.mark.parametrize("kind", ["lognormal", "bimodal", "mostly 0"])
def test_innocent_clusters_are_left_alone(kind: str, count: int) -> None:
    """At most 1 % of them have a job that stands out."""
    world, alarms = np.random.default_rng(7), 0
    for _ in range(300):
        if kind == "lognormal":
            values = GIB * world.lognormal(0, 0.5, count)
        elif kind == "bimodal":
            values = GIB * np.where(
                world.random(count) < 0.3, world.normal(4, 0.2, count), world.normal(1, 0.05, count)
            )
        else:
            values = np.where(world.random(count) < 0.9, 0.0, world.exponential(20e6, count))
        found = spread(MEMORY, [float(value) for value in values])
        assert found
        alarms += any(found.stands_out(float(value)) for value in values)
    assert alarms <= 3
