"""Totals never go backwards, whatever the sources say; rates are those of what was seen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.jobs.run_state import HISTORY, OFFSETS, STATE
from condor_joblens.model.metrics import ABSENT, METRICS, MetricKind, empty_rows
from condor_joblens.sample.cpu_rates import RECENT_SECONDS, cores, remember
from condor_joblens.sample.totals import carry_on, merge, rebase

BYTES, SECONDS, PEAK, GAUGE = "io_call_read_bytes", "cpu_seconds", "memory_largest_process_peak_bytes", "process_live"
RUN = np.array([1])

READINGS = st.lists(st.one_of(st.just(float("nan")), st.integers(0, 2**40).map(float)), min_size=1, max_size=20)


def table() -> tuple[np.ndarray, np.ndarray]:
    return empty_rows(3), np.zeros(3, OFFSETS)


def test_the_columns_used_here_are_of_each_kind() -> None:
    kinds = {metric.column: metric.kind for metric in METRICS}
    assert kinds[BYTES] is kinds[SECONDS] is MetricKind.COUNTER
    assert (kinds[PEAK], kinds[GAUGE]) == (MetricKind.PEAK, MetricKind.GAUGE)


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=20), st.integers(0, 2**40))
def test_a_counter_never_goes_backwards(readings: list[int], offset: int) -> None:
    rows, offsets = table()
    offsets[BYTES][1] = offset
    seen = []
    for reading in readings:
        merge(rows, offsets, RUN, {BYTES: np.array([reading])})
        seen.append(int(rows[BYTES][1]))
    assert seen == sorted(seen)
    # -1 is "absent" and stays so until something real is measured
    assert seen[-1] == max(-1, *(reading + offset for reading in readings))
    assert rows[BYTES][0] == rows[BYTES][2] == -1


@given(READINGS)
def test_a_floating_counter_never_goes_backwards_and_absence_changes_nothing(readings: list[float]) -> None:
    rows, offsets = table()
    known = []
    for reading in readings:
        merge(rows, offsets, RUN, {SECONDS: np.array([reading])})
        known += [reading] if reading == reading else []
        if known:
            assert rows[SECONDS][1] == max(known)
        else:
            assert np.isnan(rows[SECONDS][1])


@given(st.lists(st.tuples(*[st.integers(-1, 2**40)] * 3, st.floats(0, 1e9) | st.just(float("nan"))), max_size=20))
def test_one_run_alone_has_what_it_has_among_others(readings: list[tuple[int, int, int, float]]) -> None:
    (alone, offsets), (among, _) = table(), table()
    offsets[BYTES][1], offsets[SECONDS][1] = 7, 0.5
    for reading in readings:
        columns = {name: np.array([value]) for name, value in zip((BYTES, PEAK, GAUGE, SECONDS), reading)}
        merge(alone, offsets, RUN, columns)
        merge(among, offsets, np.array([1, 0]), {name: np.repeat(value, 2) for name, value in columns.items()})
        assert alone[1].tobytes() == among[1].tobytes()


@given(st.lists(st.integers(-1, 2**40), min_size=1, max_size=20))
def test_a_peak_keeps_its_greatest(readings: list[int]) -> None:
    rows, offsets = table()
    for reading in readings:
        merge(rows, offsets, RUN, {PEAK: np.array([reading])})
    assert rows[PEAK][1] == max(readings)


def test_a_gauge_is_as_it_is() -> None:
    rows, offsets = table()
    for reading in (5, 2, -1):
        merge(rows, offsets, RUN, {GAUGE: np.array([reading])})
        assert rows[GAUGE][1] == reading


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2**40)), min_size=1, max_size=20))
def test_a_source_that_begins_anew_goes_on_from_where_the_run_was(story: list[tuple[bool, int]]) -> None:
    rows, offsets = table()
    total, last = 0, 0
    merge(rows, offsets, RUN, {BYTES: np.array([0])})
    for anew, amount in story:
        if anew:
            last = amount
            rebase(rows, offsets, 1, {BYTES: np.array([amount])})
        else:
            last += amount
            total += amount
            merge(rows, offsets, RUN, {BYTES: np.array([last])})
        assert rows[BYTES][1] == total


def test_a_run_that_had_nothing_begins_at_nothing() -> None:
    rows, offsets = table()
    five = np.array([5])
    rebase(rows, offsets, 1, {BYTES: np.array([700]), SECONDS: np.array([9.0]), PEAK: five, GAUGE: five})
    assert (rows[BYTES][1], rows[SECONDS][1]) == (0, 0.0)
    assert (rows[PEAK][1], rows[GAUGE][1]) == (-1, -1)
    merge(rows, offsets, RUN, {BYTES: np.array([750]), SECONDS: np.array([9.5])})
    assert (rows[BYTES][1], rows[SECONDS][1]) == (50, 0.5)


def test_what_can_not_be_measured_stays_absent() -> None:
    rows, offsets = table()
    rebase(rows, offsets, 1, {SECONDS: np.array([np.nan])})
    assert np.isnan(rows[SECONDS][1])


@given(before=st.integers(ABSENT, 1 << 40), now=st.integers(ABSENT, 1 << 40))
def test_totals_never_go_backwards_where_a_run_goes_on(before: int, now: int) -> None:
    last, rows = empty_rows(1), empty_rows(1)
    last[BYTES] = before
    rows[BYTES] = now
    offsets = np.zeros(1, [(BYTES, "i8"), (SECONDS, "f8")])
    carry_on(rows, offsets, 0, last[0], [BYTES, SECONDS])
    assert rows[BYTES][0] == (max(before, 0) + max(now, 0) if before != ABSENT else now)
    assert offsets[BYTES][0] == max(before, 0)
    assert np.isnan(rows[SECONDS][0])


def sampled(used: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    """The row and state after these readings of (time, CPU seconds); the run began at time 100."""
    rows, state = empty_rows(3), np.zeros(3, STATE)
    state["history_time"] = np.nan
    state["began"] = 100.0
    for now, seconds in used:
        rows["cpu_seconds"][1] = seconds
        cores(rows, state, RUN, now)
    return rows, state


def test_a_steady_job_has_its_cores() -> None:
    rows, _ = sampled([(100 + t, 2.5 * t) for t in range(60)])
    assert rows["cpu_recent_cores"][1] == pytest.approx(2.5)
    assert rows["cpu_average_cores"][1] == pytest.approx(2.5)


def test_recent_forgets_what_is_long_ago() -> None:
    rows, _ = sampled([(100 + t, min(t, 30)) for t in range(100)])
    assert rows["cpu_recent_cores"][1] == 0
    assert rows["cpu_average_cores"][1] == pytest.approx(30 / 99)


@pytest.mark.parametrize("period", [0.25, 0.5, 1, 2, 10, 30, 300])
def test_recent_is_right_at_any_period(period: float) -> None:
    rows, _ = sampled([(100 + n * period, 3 * n * period) for n in range(200)])
    assert rows["cpu_recent_cores"][1] == pytest.approx(3)


def test_recent_looks_back_as_far_as_it_says() -> None:
    # idle until 50, then one core: in the middle of the window half of it
    readings = [(100.0 + t, float(max(0, t - 50))) for t in range(58)]
    rows, _ = sampled(readings)
    assert rows["cpu_recent_cores"][1] == pytest.approx(7 / RECENT_SECONDS)


def test_one_reading_is_no_rate() -> None:
    rows, _ = sampled([(100.0, 5.0)])
    assert np.isnan(rows["cpu_recent_cores"][1]) and np.isnan(rows["cpu_average_cores"][1])


@given(st.lists(st.tuples(st.floats(0.01, 1000), st.floats(0, 64)), min_size=1, max_size=3 * HISTORY))
def test_rates_are_never_negative_and_never_above_what_was_used(steps: list[tuple[float, float]]) -> None:
    now, used, readings = 100.0, 0.0, []
    for wait, rate in steps:
        now, used = now + wait, used + wait * rate
        readings.append((now, used))
    rows, state = sampled([])
    for at, seconds in readings:
        rows["cpu_seconds"][1] = seconds
        cores(rows, state, RUN, at)
        for column in ("cpu_recent_cores", "cpu_average_cores"):
            value = rows[column][1]
            assert np.isnan(value) or -1e-9 <= value <= max(rate for _, rate in steps) * 1.01 + 1e-6


def test_remember_is_what_recent_begins_with() -> None:
    rows, state = sampled([])
    rows["cpu_seconds"][1] = 40
    remember(rows, state, RUN, 100.0)
    rows["cpu_seconds"][1] = 42
    cores(rows, state, RUN, 102.0)
    assert rows["cpu_recent_cores"][1] == pytest.approx(1.0)
