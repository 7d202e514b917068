"""Strangers who keep joblensd busy get a share of its time, and can't keep it waiting."""

from __future__ import annotations

import selectors
import signal
import socket
import time
from collections.abc import Iterator

import pytest
from sent_descriptors import lingering

from condor_joblens.agent import throttle
from condor_joblens.agent.throttle import Throttle


class Clock:
    """Time that goes on only where it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._waited = 0.0

    def monotonic(self) -> float:
        return self.now

    def working(self) -> float:
        return self.now - self._waited

    def wait_for_a_core(self, seconds: float) -> None:
        self.now += seconds
        self._waited += seconds

    def work(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(throttle, "time", clock)
    monkeypatch.setattr(throttle, "working_time", clock.working)
    return clock


def test_a_flood_gets_its_share_and_others_are_served(clock: Clock) -> None:
    outer = selectors.DefaultSelector()
    paced = Throttle(outer)
    flooded, flooding = socket.socketpair()
    flooding.send(b"never read: always readable")
    worked = []

    def serve() -> None:
        worked.append(1)
        clock.work(0.02)

    paced.selector.register(flooded, selectors.EVENT_READ, serve)
    began = clock.now
    while clock.now < began + 60:
        for key, _ in outer.select(0):
            key.data()
        paced.resume(clock.now)
        clock.work(0.001)
    spent = 0.02 * len(worked)
    assert 0.08 * 60 < spent < throttle.BURST_SECONDS + throttle.SHARE * 60 + 0.02


def test_the_wait_for_a_core_is_put_down_to_nobody(clock: Clock) -> None:
    share = throttle.TimeShare(most=0.25, share=0.04)
    for _ in range(600):
        began = clock.working()
        clock.work(0.001)
        clock.wait_for_a_core(0.35)
        share.spend(began)
        assert share.pause(clock.now) == 0
        clock.work(0.05)


def test_a_turn_is_short_and_all_have_their_turns(clock: Clock) -> None:
    paced = Throttle(selectors.DefaultSelector())
    pairs = [socket.socketpair() for _ in range(3)]
    worked: list[int] = []

    def serve(number: int) -> None:
        worked.append(number)
        clock.work(0.75 * throttle.TURN_SECONDS)

    for number, (flooded, flooding) in enumerate(pairs):
        flooding.send(b"never read")
        paced.selector.register(flooded, selectors.EVENT_READ, lambda number=number: serve(number))
    for _ in range(3):
        before = len(worked)
        paced._serve()
        assert len(worked) == before + 2
    assert [worked.count(number) for number in range(3)] == [2, 2, 2]


def test_what_comes_now_and_then_never_waits(clock: Clock) -> None:
    paced = Throttle(selectors.DefaultSelector())
    for _ in range(1000):
        paced.run(lambda: clock.work(0.01))
        assert paced.timeout(clock.now) > 60
        clock.work(0.2)


def test_the_loop_is_told_when_the_rest_is_over(clock: Clock) -> None:
    outer = selectors.DefaultSelector()
    paced = Throttle(outer)
    paced.run(lambda: clock.work(2 * throttle.BURST_SECONDS))
    assert not outer.get_map()
    clock.work(paced.timeout(clock.now) - 0.001)
    paced.resume(clock.now)
    assert not outer.get_map()
    clock.work(0.002)
    assert paced.timeout(clock.now) == 0
    paced.resume(clock.now)
    assert len(outer.get_map()) == 1


def test_a_close_that_would_wait_is_interrupted() -> None:
    connections = [lingering() for _ in range(3)]
    began = time.monotonic()
    for connection, _ in connections:
        Throttle(selectors.DefaultSelector()).run(connection.close)
    assert time.monotonic() - began < 300  # of half an hour
