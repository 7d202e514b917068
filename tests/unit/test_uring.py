"""What waits in a ring of io_uring, by the kernel's list."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.profiling import calls, uring

FDINFO = """SqMask:\t0x3
SqHead:\t1
CQEs:\t0
UserFiles:\t0
PollList:
  op={}, task_works=0
  op={}, task_works=0
CqOverflowList:
NAPI:\tdisabled
"""


@pytest.mark.parametrize(
    ("operations", "is_for_clients", "is_for_connections"),
    [((27, 27), False, True), ((13, 13), True, False), ((13, 27), False, False), ((22, 27), False, False)],
)
def test_what_waits(operations: tuple[int, int], is_for_clients: bool, is_for_connections: bool) -> None:
    waiting = uring.listed(FDINFO.format(*operations))
    assert waiting == set(operations)
    assert (uring.is_for_clients(waiting), uring.is_for_connections(waiting)) == (is_for_clients, is_for_connections)


def test_a_ring_in_which_nothing_waits() -> None:
    for fdinfo in ("", "PollList:\nCqOverflowList:\n  op=27\n"):
        waiting = uring.listed(fdinfo)
        assert not (waiting or uring.is_for_clients(waiting) or uring.is_for_connections(waiting))


@given(st.text(st.sampled_from("PollList:\n op=27,")))
def test_whatever_is_listed_it_is_read(fdinfo: str) -> None:
    assert uring.listed(fdinfo) <= set(map(int, re.findall(r"[0-9]+", fdinfo)))


def test_what_waits_until_a_time() -> None:
    assert not calls.has_deadline("io_uring_enter", (3, 1, 1, 1, 0, 0))
    assert calls.has_deadline("io_uring_enter", (3, 1, 1, 1 | 8, 0x7000, 24))
