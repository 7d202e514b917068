"""What a leak is, on fixed generated worlds: false alarms first, then how many leaks are found and how soon."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from generated_worlds import GIB, INNOCENT, LEAK_NOISE, leak

from condor_joblens.analysis.leaks import FEWEST, HOUR, leaks
from condor_joblens.hub.store.schema import READING_SECONDS
from condor_joblens.hub.web.leaking import LOOKED_AT, WINDOW, judged

JOBS = 400
EVERY = READING_SECONDS // 60


def called(world: np.ndarray, until: float) -> np.ndarray:
    """Which jobs the hub calls, `until` seconds after they began."""
    readings = GIB * world[:, ::EVERY]
    times = READING_SECONDS * np.arange(readings.shape[1])
    seen = (times <= until) & (times > until - LOOKED_AT)
    rows = [
        {"Run": number, "Times": times[seen], "Sizes": row[seen], "Held": row[seen][-1], "Limit": None}
        for number, row in enumerate(readings)
    ]
    found = np.zeros(len(rows), bool)
    found[[one["Run"] for one in judged(rows)]] = True
    return found


@pytest.mark.parametrize("kind", INNOCENT)
def test_innocent_jobs_are_left_alone(kind: str) -> None:
    """At most 3 % of them are on a page, whenever it is looked at."""
    world = INNOCENT[kind](np.random.default_rng(11), JOBS)
    for hours in (3.0, 4.0, 5.0, 5.95):
        assert called(world, hours * HOUR).mean() <= 0.03, hours


@pytest.mark.parametrize("an_hour", [0.1, 0.2])
@pytest.mark.parametrize("kind", [kind for kind in LEAK_NOISE if "wide" not in kind])
def test_leaks_are_found_after_two_windows_and_within_six_hours(kind: str, an_hour: float) -> None:
    world = leak(np.random.default_rng(12), JOBS, an_hour, kind)
    soon = called(world, 2 * WINDOW)
    assert soon.mean() >= 0.6
    later = soon | called(world, 4.5 * HOUR) | called(world, 5.95 * HOUR)
    assert later.mean() >= 0.9


def test_a_leak_in_much_noise_is_found_within_six_hours() -> None:
    assert called(leak(np.random.default_rng(13), JOBS, 0.2, "0.9, wide"), 5.95 * HOUR).mean() >= 0.9


def asked(values: Any, room: float = np.inf, hours: float = 3.0) -> bool:
    """Of one job, with readings in equal distances."""
    row = np.array([values], "f8")
    times = np.linspace(0, hours * HOUR, row.shape[1])[None, :]
    return bool(leaks(times, row, np.isfinite(row), np.array([room]))[0])


def test_what_nobody_needs_to_know_of_is_no_leak() -> None:
    """It would take a week to double; unless it is nearly at its limit."""
    slow = np.linspace(GIB, 1.02 * GIB, 60)
    assert not asked(slow) and asked(slow, room=0.1 * GIB)


def test_memory_that_is_taken_once_is_no_leak() -> None:
    assert not asked(np.minimum(np.linspace(GIB, 9 * GIB, 60), 2 * GIB))
    assert not asked(np.where(np.arange(60) < 30, GIB, 2 * GIB))
    assert not asked(np.full(60, GIB)) and not asked(np.linspace(2 * GIB, GIB, 60))


def test_too_few_readings_say_nothing() -> None:
    assert asked(np.linspace(GIB, 2 * GIB, FEWEST)) and not asked(np.linspace(GIB, 2 * GIB, FEWEST - 1))
    assert not asked([np.nan] * 60)
    assert leaks(*(np.zeros((0, 5)) for _ in range(2)), np.zeros((0, 5), bool), np.zeros(0)).shape == (0,)


def test_readings_lie_in_a_ring() -> None:
    values, times = np.linspace(GIB, 2 * GIB, 60)[None, :], np.linspace(0, 600, 60)[None, :]
    for turn in (0, 1, 17, 59):
        turned = [np.roll(each, turn, axis=1) for each in (times, values)]
        assert leaks(*turned, np.ones((1, 60), bool), np.array([np.inf]))[0]


def test_growth_and_hours_to_the_limit_are_told() -> None:
    row = {"Times": np.arange(60) * 180.0, "Sizes": np.linspace(GIB, 2 * GIB, 60)}
    first, second = {"Run": "a", "Held": 2 * GIB, "Limit": 3 * GIB}, {"Run": "b", "Held": 0, "Limit": None}
    found = judged([{**row, **first}, {**row, **second}])
    assert [one["Run"] for one in found] == ["a", "b"]
    hours = 59 * 180 / HOUR
    assert found[0]["bytes_per_hour"] == pytest.approx(GIB / hours)
    assert found[0]["share"] == pytest.approx(1 / 1.5 / hours)
    assert found[0]["hours"] == pytest.approx(hours) and found[1]["hours"] is None
    over = judged([{**row, "Run": "a", "Held": 4 * GIB, "Limit": 3 * GIB}])
    assert over[0]["hours"] == 0.0
