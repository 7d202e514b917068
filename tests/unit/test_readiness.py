"""Waiting for descriptors, of any number."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator

import pytest

from condor_joblens.common import readiness

BEYOND = 2000
"""A number that select() refuses."""


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def test_only_what_can_be_read_is_told_in_the_order_of_the_question(pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    assert readiness.readable([one, other], 0) == []
    one.send(b"x")
    assert readiness.readable([one, other], 0) == [other]
    other.send(b"x")
    assert readiness.readable([other, one], 60) == [other, one]
    assert readiness.readable([one.fileno()]) == [one.fileno()]


def test_an_end_is_something_to_read(pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    other.close()
    assert readiness.readable([one], 60) == [one]


def test_what_takes_no_more_can_not_be_written_to(pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    one.setblocking(False)
    assert readiness.writable([one], 0) == [one]
    with pytest.raises(BlockingIOError):
        while True:
            one.send(b"x" * 4096)
    assert readiness.writable([one], 0) == []
    assert readiness.either([other], [one], 60) == ([other], [])
    assert readiness.either([one], [one], 0) == ([], [])
    other.close()
    assert readiness.either([one], [one], 60) == ([one], [one])


def test_a_pipe_that_nobody_reads_any_more_wakes_its_writer() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        assert readiness.writable([write_end], 60) == [write_end]
    finally:
        os.close(write_end)


def test_a_closed_descriptor_is_an_error_and_no_wait(pair: tuple[socket.socket, socket.socket]) -> None:
    number = os.dup(pair[0].fileno())
    os.close(number)
    with pytest.raises(OSError):
        readiness.readable([number], 60)


def test_less_than_no_time_is_no_time(pair: tuple[socket.socket, socket.socket]) -> None:
    assert readiness.readable([pair[0]], -1) == []


def test_numbers_are_as_high_as_a_process_may_have_them(pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > BEYOND
    os.dup2(one.fileno(), BEYOND)
    try:
        other.send(b"x")
        assert readiness.readable([BEYOND], 60) == [BEYOND]
    finally:
        os.close(BEYOND)
