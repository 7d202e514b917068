"""Memory that grows: the slope, its uncertainty, and the hours to the limit only where there is a trend."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.analysis import leaks
from condor_joblens.jobs.run_state import STATE
from condor_joblens.sample import memory_growth

MIB, GIB = float(1 << 20), float(1 << 30)
WINDOW = 600.0
STEP = WINDOW / memory_growth.PLACES_IN_WINDOW
HELD = "memory_hours_to_limit"
SLOPE = "memory_growth_bytes_per_hour"
ERROR = "memory_growth_error_bytes_per_hour"


def after(readings: np.ndarray, limit: float = 4 * GIB, start: float = 1000.0) -> dict[str, np.ndarray]:
    """What is said of runs whose memory was `readings` (n, times), one each STEP seconds."""
    count, times = readings.shape
    state: np.ndarray = np.zeros(count + 2, STATE)
    runs = np.arange(count) + 1
    now = start
    for time in range(times):
        now = start + time * STEP
        memory_growth.remember(state, runs, readings[:, time], now, WINDOW)
    assert not state["growth_time"][0].any() and not state["growth_time"][-1].any()
    held = readings[:, -1]
    return memory_growth.columns(state, runs, held, np.full(count, limit), now, WINDOW)


def line(times: int, per_hour: float, begin: float = GIB) -> np.ndarray:
    readings: np.ndarray = begin + per_hour / 3600 * STEP * np.arange(times, dtype="f8")[None, :]
    return readings


@given(st.floats(1 * MIB, 50 * GIB), st.integers(15, 300), st.floats(1, 1e7))
def test_a_steady_leak_is_told_exactly(per_hour: float, times: int, start: float) -> None:
    readings = line(times, per_hour)
    found = after(readings, limit=readings[0, -1] + 2 * per_hour, start=start)
    assert found[SLOPE][0] == pytest.approx(per_hour, rel=1e-3)
    assert found[HELD][0] == pytest.approx(2.0, rel=1e-3)
    assert found[ERROR][0] <= per_hour / 100


def test_noise_about_a_constant_is_no_trend() -> None:
    noise = np.random.default_rng(1).normal(0, 20 * MIB, (500, 60))
    found = after(GIB + noise)
    assert np.isfinite(found[HELD]).mean() < 0.01
    # and the error says how far off the slope can be
    off = np.abs(found[SLOPE]) / found[ERROR]
    assert (off < 3).mean() > 0.98


def test_a_leak_in_noise_is_a_trend_with_its_uncertainty() -> None:
    noise = np.random.default_rng(2).normal(0, 5 * MIB, (200, 60))
    found = after(line(60, 600 * MIB) + noise)
    assert np.isfinite(found[HELD]).mean() > 0.95  # its second half may seem slower: in a hundredth by chance
    off = np.abs(found[SLOPE] - 600 * MIB) / found[ERROR]
    assert (off < 3).mean() > 0.95


def test_what_has_taken_its_memory_and_keeps_it_does_not_grow() -> None:
    readings = np.minimum(line(60, 100 * GIB), 2 * GIB)
    assert readings[0, 5] == 2 * GIB
    assert np.isnan(after(readings)[HELD][0])


def test_memory_that_comes_and_goes_is_no_trend() -> None:
    waves = GIB + 200 * MIB * np.sin(np.arange(60) / 60 * 2 * np.pi * 5)[None, :]
    assert np.isnan(after(waves)[HELD][0])


def test_what_shrinks_grows_by_nothing() -> None:
    found = after(line(60, -600 * MIB))
    assert found[SLOPE][0] == 0 and found[ERROR][0] >= 0 and np.isnan(found[HELD][0])


def test_few_readings_say_nothing() -> None:
    found = after(line(leaks.FEWEST - 1, GIB))
    assert found[SLOPE][0] == found[ERROR][0] == -1 and np.isnan(found[HELD][0])


def test_without_a_limit_there_is_no_time_to_it() -> None:
    found = after(line(60, GIB), limit=-1)
    assert found[SLOPE][0] > 0 and np.isnan(found[HELD][0])


def test_over_the_limit_there_is_no_time_left() -> None:
    assert after(line(60, GIB), limit=MIB)[HELD][0] == 0


def test_unknown_memory_is_no_reading() -> None:
    found = after(np.full((1, 60), -1.0))
    assert found[SLOPE][0] == -1 and np.isnan(found[HELD][0])


def test_what_lies_before_the_window_is_forgotten() -> None:
    readings = np.concatenate([line(200, 10 * GIB), np.full((1, 70), 30 * GIB)], axis=1)
    found = after(readings, limit=100 * GIB)
    assert found[SLOPE][0] == 0 and np.isnan(found[HELD][0])


def test_no_runs() -> None:
    state: np.ndarray = np.zeros(1, STATE)
    nothing = np.zeros(0)
    found = memory_growth.columns(state, np.zeros(0, "i8"), nothing, nothing, 1.0, WINDOW)
    assert [values.shape for values in found.values()] == [(0,)] * 3
