"""Which process is looked at next, if more ask than can be looked at."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.profiling.sample_counts import Process
from condor_joblens.profiling.waiting_processes import WaitingProcesses


def process(pid: int) -> Process:
    return Process(struct.pack("<IIQ", pid, 1, 7), pid)


def test_one_that_asks_again_comes_before_all_that_have_asked_once() -> None:
    """In a storm of forks these are gone by then."""
    waiting = WaitingProcesses(10)
    waiting.add(process(1))
    for pid in range(2, 9):
        waiting.add(process(pid))
    waiting.add(process(1))
    waiting.add(process(9))
    assert [waiting.take().pid for _ in range(3)] == [1, 9, 8]


def test_one_is_looked_at_however_many_ask_once_as_long_as_it_asks_again() -> None:
    """Ten ask for each that is looked at. The one that lives on asks with each fiftieth."""
    waiting, looked_at = WaitingProcesses(500), set[int]()
    for pid in range(10, 10_000):
        if pid % 50 == 0:
            waiting.add(process(1))
        waiting.add(process(pid))
        if pid % 10 == 0:
            looked_at.add(waiting.take().pid)
    assert 1 in looked_at and len(waiting) <= 501


@given(st.lists(st.one_of(st.integers(1, 12), st.none())), st.integers(1, 4))
def test_they_are_bounded_and_each_waits_once(asked: list[int | None], most: int) -> None:
    """None: one is taken."""
    waiting, expected = WaitingProcesses(most), set[int]()
    for pid in asked:
        if pid is not None:
            waiting.add(process(pid))
            expected.add(pid)
        elif len(waiting):
            taken = waiting.take().pid
            assert taken in expected
            expected.discard(taken)
        assert len(waiting) <= 2 * most
    left = [waiting.take().pid for _ in range(len(waiting))]
    assert len(left) == len(set(left)) and set(left) <= expected
    with pytest.raises(KeyError):
        waiting.take()
