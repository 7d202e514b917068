"""What the process that lends priority decides: when, for how long, and how much in all. Its rights: tests/kernel."""

from __future__ import annotations

import pytest

from condor_joblens.common.lender import (
    AFTER_SECONDS,
    LOAN_SECONDS,
    SAVED_SECONDS,
    SHARE,
    WATCHED,
    WATCHED_SAVED_SECONDS,
    WATCHED_SHARE,
    Lender,
)


class Borrower:
    """Works all the time that it has a loan, and a third of the time without one."""

    def __init__(self) -> None:
        self.loans: list[tuple[float, float]] = []
        self.now, self._began = 1000.0, 0.0
        self._used, self.is_lent = 0.0, False
        self.lender = Lender(self._lend, lambda: self._used)

    def _lend(self, is_lent: bool) -> None:
        assert is_lent != self.is_lent
        self.is_lent = is_lent
        if is_lent:
            self._began = self.now
        else:
            self.loans.append((self._began, self.now))

    def passes(self, seconds: float) -> None:
        """Time passes, and the lender's clock rings when it is to."""
        until = self.now + seconds
        while self.now < until:
            rest = self.lender.timeout(self.now)
            step = until - self.now if rest is None else min(rest, until - self.now)
            self.now += step
            self._used += step if self.is_lent else step / 3
            self.lender.expire(self.now)

    @property
    def lent(self) -> float:
        return sum(until - began for began, until in self.loans)


@pytest.fixture
def borrower() -> Borrower:
    return Borrower()


def test_a_loan_ends_by_itself(borrower: Borrower) -> None:
    assert borrower.lender.timeout(borrower.now) is None
    borrower.lender.urgent(borrower.now)
    assert borrower.is_lent
    borrower.passes(1)
    assert not borrower.is_lent and borrower.lent == pytest.approx(LOAN_SECONDS)


def test_the_next_start_or_end_makes_it_longer(borrower: Borrower) -> None:
    for _ in range(4):
        borrower.lender.urgent(borrower.now)
        borrower.passes(LOAN_SECONDS / 2)
    borrower.passes(1)
    assert len(borrower.loans) == 1 and borrower.lent == pytest.approx(2.5 * LOAN_SECONDS)


def test_in_the_long_run_a_share_of_a_core_is_lent_whatever_jobs_do(borrower: Borrower) -> None:
    began = borrower.now
    while borrower.now < began + 60:
        borrower.lender.urgent(borrower.now)
        borrower.passes(0.001)
    borrower.passes(1)
    assert borrower.lent <= SAVED_SECONDS + LOAN_SECONDS + SHARE * (borrower.now - began)
    assert borrower.lent >= 0.9 * SHARE * 60, "and that much"


def test_what_is_used_without_a_loan_costs_nothing(borrower: Borrower) -> None:
    borrower.lender.urgent(borrower.now)
    borrower.passes(600)
    for _ in range(int(0.9 * SAVED_SECONDS / LOAN_SECONDS)):
        borrower.lender.urgent(borrower.now)
        borrower.passes(LOAN_SECONDS)
    borrower.passes(LOAN_SECONDS)
    assert borrower.lent >= 0.9 * SAVED_SECONDS


@pytest.fixture(params=range(WATCHED))
def which(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def test_soon_after_an_end_a_change_or_a_caller_lends_and_later_it_does_not(borrower: Borrower, which: int) -> None:
    lender = borrower.lender
    assert not lender.is_watching(which, borrower.now)
    lender.urgent(borrower.now)
    assert not lender.is_watching(which, borrower.now), "they have what they need"
    borrower.passes(AFTER_SECONDS / 2)
    assert not borrower.is_lent and lender.is_watching(which, borrower.now)
    lender.readable(which, borrower.now)
    assert borrower.is_lent
    borrower.passes(AFTER_SECONDS)
    assert len(borrower.loans) == 2 and not lender.is_watching(which, borrower.now)
    lender.readable(which, borrower.now)
    assert not borrower.is_lent


def test_a_storm_of_them_has_a_share_of_its_own_and_leaves_all_others(borrower: Borrower, which: int) -> None:
    """The first end of a job keeps it going, as a job does that begins and ends once a second."""
    began, lender = borrower.now, borrower.lender
    while borrower.now < began + 60:
        lender.urgent(borrower.now)
        second = borrower.now + 1
        while borrower.now < second:
            if lender.is_watching(which, borrower.now):
                lender.readable(which, borrower.now)
            borrower.passes(0.001)
    borrower.passes(1)
    ends = 60 * LOAN_SECONDS
    by_storm = WATCHED_SAVED_SECONDS + WATCHED_SHARE * (borrower.now - began)
    assert by_storm * 0.8 <= borrower.lent - ends <= by_storm + 60 * LOAN_SECONDS
    lender.urgent(borrower.now)
    assert borrower.is_lent
    borrower.passes(AFTER_SECONDS / 2)
    others = [other for other in range(WATCHED) if other != which]
    assert all(lender.is_watching(other, borrower.now) for other in others)
