"""Deadlines of a trace, which are longer on an emulated CPU."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from condor_joblens.tracing import answers


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    yield
    answers.be_patient(1.0)


def test_a_deadline_is_what_it_says_unless_the_machine_is_slower() -> None:
    assert answers.deadline(20.0) == 20.0
    answers.be_patient(10.0)
    assert answers.deadline(20.0) == 200.0


def test_what_is_not_answered_ends_and_what_cant_wait_is_done_meanwhile() -> None:
    ours, theirs = socket.socketpair()
    done: list[float] = []
    with ours, theirs:
        with pytest.raises(TimeoutError):
            answers.wait_for(ours, 0.02, lambda: done.append(time.monotonic()))
        assert done
        theirs.send(b"x")
        answers.wait_for(ours, 0.0, None)
