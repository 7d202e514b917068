"""A job that begins anew all the time has a share of joblensd's time, and says what it costs it."""

from __future__ import annotations

import pytest

from condor_joblens.agent.lifecycle import restarts
from condor_joblens.agent.lifecycle.restarts import Restarts, Tokens

STARTER, NEXT_STARTER = 700, 701


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def alive() -> set[int]:
    return {STARTER}


@pytest.fixture
def shares(clock: Clock, alive: set[int]) -> Restarts:
    return Restarts(clock, alive.__contains__)


def begin_again(shares: Restarts, times: int, name: str = "slot1", starter: int = STARTER) -> list[bool]:
    """The job ends and begins anew so often; whether it was watched, and whether it said it may not be, each time."""
    found = []
    for _ in range(times):
        shares.ended(name, starter)
        found.append(shares.may_begin(name))
    return found


def test_tokens_are_saved_up_to_a_bound_and_come_back_with_the_time() -> None:
    tokens = Tokens(3, 2.0, 10.0)
    assert [tokens.take(10.0) for _ in range(4)] == [True, True, True, False]
    assert tokens.take(10.5) and not tokens.take(10.5)
    assert tokens.left(100.0) == 3


def test_a_job_that_goes_on_from_its_checkpoint_now_and_then_is_always_watched(shares: Restarts, clock: Clock) -> None:
    for _ in range(1000):
        clock.now += 1 / restarts.PER_SECOND
        assert begin_again(shares, 1) == [True] and not shares.may_miss("slot1")


def test_beyond_its_share_it_is_not_watched_until_there_is_time(shares: Restarts, clock: Clock) -> None:
    found = begin_again(shares, 100)
    assert found == [True] * int(restarts.SAVED) + [False] * (100 - int(restarts.SAVED))
    clock.now += 1 / restarts.PER_SECOND
    assert begin_again(shares, 2) == [True, False]


def test_it_says_so_before_the_first_begin_is_missed_and_ever_after(shares: Restarts, clock: Clock) -> None:
    said = []
    for _ in range(int(restarts.SAVED)):
        assert begin_again(shares, 1) == [True]
        said.append(shares.may_miss("slot1"))
    assert not said[0] and said[-1]
    assert begin_again(shares, 1) == [False]
    clock.now += 1e6
    assert begin_again(shares, 1) == [True] and shares.may_miss("slot1")


def test_another_job_in_the_slot_has_a_share_of_its_own(shares: Restarts, alive: set[int]) -> None:
    begin_again(shares, 100)
    alive.clear()
    assert shares.may_begin("slot1") and not shares.may_miss("slot1")
    alive.add(NEXT_STARTER)
    assert all(begin_again(shares, int(restarts.SAVED), starter=NEXT_STARTER))
    assert not any(begin_again(shares, 10, starter=NEXT_STARTER))


def test_many_such_jobs_together_have_a_bound_and_modest_ones_do_not_feel_it(shares: Restarts, clock: Clock) -> None:
    names = [f"slot{number}" for number in range(200)]
    for name in names:
        begin_again(shares, 50, name)
    watched = 0
    for _ in range(600):  # a minute
        clock.now += 0.1
        for name in names:
            watched += sum(begin_again(shares, 1, name))
    # beyond the first half of its share, a begin needs one of all starters' too
    assert watched <= 60 * restarts.PER_SECOND_OF_ALL + restarts.SAVED_OF_ALL
    assert begin_again(shares, 5, "modest") == [True] * 5


def test_an_unknown_starter_is_no_reason_to_watch_less(shares: Restarts) -> None:
    assert begin_again(shares, 100, starter=0) == [True] * 100


def test_what_is_remembered_is_bounded(shares: Restarts) -> None:
    for number in range(restarts.MAX_STARTERS + 10):
        shares.ended(f"slot{number}", STARTER)
    assert len(shares._starters) == restarts.MAX_STARTERS
