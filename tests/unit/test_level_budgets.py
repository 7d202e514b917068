"""Budgets of the node: who steps down, how far, and when they come back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.agent.levels.budgets import ROOM, JobLimits, Over, OwnCpu, Quotas, within, within_quotas
from condor_joblens.model.levels import Level

JOB = st.tuples(st.integers(0, 4), st.integers(-3, 3).map(float), st.floats(0, 1e6))
LIMITS = st.builds(JobLimits, st.integers(0, 8), st.integers(0, 8), st.integers(0, 8))
UNLIMITED = JobLimits(100, 100, 100)


def columns(jobs: list[tuple[int, float, float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    levels, priorities, began = zip(*jobs) if jobs else ((), (), ())
    return np.array(levels, "i1"), np.array(priorities, "f8"), np.array(began, "f8")


@given(st.lists(JOB, max_size=20), LIMITS, st.integers(0, 50))
def test_no_budget_is_exceeded_and_nobody_is_raised_or_put_below_basic(
    jobs: list[tuple[int, float, float]], limits: JobLimits, steps: int
) -> None:
    wanted, priority, began = columns(jobs)
    levels, over = within(wanted, priority, began, limits, steps)
    for level, limit in ((Level.IO, limits.io), (Level.PROFILE, limits.profile), (Level.TRACE, limits.trace)):
        assert np.count_nonzero(levels >= level) <= limit
    assert np.all(levels <= wanted)
    assert np.all(levels >= np.minimum(wanted, Level.BASIC))
    assert np.array_equal(over != Over.NONE, levels < wanted), "who gave way knows to what, and nobody else"


@given(st.lists(JOB, max_size=20), LIMITS, st.integers(0, 50))
def test_of_two_that_want_the_same_the_more_important_has_at_least_as_much(
    jobs: list[tuple[int, float, float]], limits: JobLimits, steps: int
) -> None:
    wanted, priority, began = columns(jobs)
    levels, _ = within(wanted, priority, began, limits, steps)
    for a in range(len(jobs)):
        for b in range(len(jobs)):
            if wanted[a] == wanted[b] and (priority[a], -began[a]) > (priority[b], -began[b]):
                assert levels[a] >= levels[b]


@given(st.lists(JOB, max_size=20), st.integers(0, 50))
def test_each_step_for_want_of_cpu_is_one_level_of_one_job_as_long_as_there_is_one(
    jobs: list[tuple[int, float, float]], steps: int
) -> None:
    wanted, priority, began = columns(jobs)
    levels, _ = within(wanted, priority, began, UNLIMITED, steps)
    most = int(np.maximum(wanted - Level.BASIC, 0).sum())
    assert int((wanted - levels).sum()) == min(steps, most)


@given(st.lists(JOB, max_size=20), st.integers(0, 50))
def test_for_want_of_cpu_no_job_loses_io_while_another_is_sampled_or_traced(
    jobs: list[tuple[int, float, float]], steps: int
) -> None:
    wanted, priority, began = columns(jobs)
    levels, over = within(wanted, priority, began, UNLIMITED, steps)
    if np.any(levels > Level.IO):
        lowered = over == Over.CPU
        assert np.all(wanted[lowered] > Level.IO) and np.all(levels[lowered] >= Level.IO)


def test_the_least_important_of_those_that_are_sampled_steps_down_first_and_then_the_least_important_of_all() -> None:
    wanted = np.array([Level.IO, Level.TRACE, Level.PROFILE, Level.IO])
    priority, began = np.array([0.0, 5.0, 9.0, 1.0]), np.zeros(4)
    stepped = [within(wanted, priority, began, UNLIMITED, steps)[0].tolist() for steps in range(1, 8)]
    io, profile, basic = int(Level.IO), int(Level.PROFILE), int(Level.BASIC)
    assert stepped == [
        [io, profile, profile, io],
        [io, profile, io, io],
        [io, io, io, io],
        [basic, io, io, io],
        [basic, io, io, basic],
        [basic, basic, io, basic],
        [basic, basic, basic, basic],
    ]


@given(st.lists(JOB, max_size=20), LIMITS)
def test_within_the_budgets_all_stays_as_it_is(jobs: list[tuple[int, float, float]], limits: JobLimits) -> None:
    wanted, priority, began = columns(jobs)
    once, _ = within(wanted, priority, began, limits, 0)
    again, over = within(once, priority, began, limits, 0)
    assert np.array_equal(once, again)
    assert not over.any()


def test_the_youngest_of_equals_gives_way_and_a_lower_priority_before_an_older_job() -> None:
    wanted = np.full(3, Level.IO)
    levels, over = within(wanted, np.zeros(3), np.array([10.0, 30.0, 20.0]), JobLimits(2, 9, 9), 0)
    assert levels.tolist() == [Level.IO, Level.BASIC, Level.IO]
    assert over.tolist() == [Over.NONE, Over.JOBS_IO, Over.NONE]
    levels, _ = within(wanted, np.array([-1.0, 0, 0]), np.array([10.0, 30.0, 20.0]), JobLimits(2, 9, 9), 0)
    assert levels.tolist() == [Level.BASIC, Level.IO, Level.IO]


def test_own_cpu_is_smoothed_and_a_burst_calls_for_nothing() -> None:
    own = OwnCpu()
    own.measure(10.0, 100.0)
    assert own.cores == 0, "what the start has taken lowers nobody's level"
    own.measure(10.5, 101.0)
    assert own.cores == pytest.approx(0.5 / 60, rel=0.02)
    for second in range(102, 702):
        own.measure(10.5 + 0.03 * (second - 101), float(second))
    assert own.cores == pytest.approx(0.03, rel=0.01)


def test_a_process_that_is_gone_takes_nothing_back() -> None:
    own = OwnCpu()
    own.measure(10.0, 100.0)
    own.measure(11.0, 160.0)
    before = own.cores
    own.measure(5.0, 160.001)
    assert own.cores == pytest.approx(before, rel=1e-3)
    own.measure(65.0, 220.001)
    assert own.cores > 0.5


def test_over_the_cpu_budget_steps_are_taken_until_it_fits_and_taken_back_one_by_one() -> None:
    own = OwnCpu()
    own.cores = 0.1
    own.adapt(0.05, 0, 10)
    assert own.steps == 5
    own.adapt(0.05, 0, 10)
    assert own.steps == 8
    own.cores = 0.05 * ROOM + 1e-6
    own.adapt(0.05, 0, 10)
    assert own.steps == 8, "between the two bounds all stays as it is"
    own.cores = 0.01
    own.adapt(0.05, 0, 10)
    assert own.steps == 7


@given(st.floats(0, 10), st.floats(0.001, 1), st.integers(0, 50), st.integers(0, 50), st.integers(0, 200))
def test_there_are_never_more_steps_than_can_be_taken(
    cores: float, budget: float, sampled: int, others: int, before: int
) -> None:
    own = OwnCpu()
    own.cores, own.steps = cores, before
    own.adapt(budget, sampled, sampled + others)
    assert 0 <= own.steps <= sampled + others


def test_however_much_cpu_is_used_samples_are_given_up_before_it_is_known_whether_that_is_enough() -> None:
    own = OwnCpu()
    own.cores = 50.0
    own.adapt(0.05, 4, 100)
    assert own.steps == 4
    own.adapt(0.05, 4, 100)
    assert own.steps == 100


# -- quotas ---------------------------------------------------------------------------------------------------

QUOTA = st.tuples(st.integers(0, 3), st.sampled_from([-1.0, 0.0, 1.0, 2.0]), st.sampled_from([-1.0, 0.0, 0.05, 0.5]))


@given(st.lists(st.tuples(JOB, st.integers(0, 3)), max_size=20), st.lists(QUOTA, min_size=4, max_size=4))
def test_no_quota_is_exceeded_and_who_gives_way_is_the_least_important_of_those_that_share_it(
    jobs: list[tuple[tuple[int, float, float], int]], says: list[tuple[int, float, float]]
) -> None:
    wanted, priority, began = columns([job for job, _ in jobs])
    key = np.array([number for _, number in jobs], "u8")
    number, share = (np.array([says[int(one)][place] for one in key], "f8") for place in (1, 2))
    quotas = Quotas(key, number, share)
    levels, over = within_quotas(wanted, priority, began, quotas)
    assert np.array_equal(over == Over.QUOTA, levels < wanted) and np.all(levels <= wanted)
    assert np.all(levels[levels < wanted] == Level.BASIC)
    for one in range(4):
        members, (_, jobs_allowed, share_allowed) = key == one, says[one]
        allowed = [jobs_allowed] if jobs_allowed >= 0 else []
        if share_allowed >= 0:
            allowed.append(max(int(share_allowed * len(key)), 1 if share_allowed else 0))
        before, closer = (int(np.count_nonzero(each[members] > Level.BASIC)) for each in (wanted, levels))
        assert closer == (min(before, int(min(allowed))) if one and allowed else before)
    for a in range(len(key)):
        for b in range(len(key)):
            is_closer = key[a] == key[b] and min(wanted[a], wanted[b]) > Level.BASIC
            if is_closer and (priority[a], -began[a]) > (priority[b], -began[b]):
                assert over[a] == Over.NONE or over[b] == Over.QUOTA
