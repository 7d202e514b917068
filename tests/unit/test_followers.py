"""Who follows a trace that stands: he is told what ends from then on, and the sums; one who does not read is let go."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from condor_joblens.common import descriptors
from condor_joblens.control.child_output import CONTENT, FAILED, NOTICE, WHOLE
from condor_joblens.tracing import followers, outbox
from condor_joblens.tracing.followers import MOST, Followers

ROW = [1.0, 2, 3, "fit(int)", None, "returned", 0.5, None, 0]


class Trace:
    """One that is followed, and both ends of joblensd's socket to it."""

    def __init__(self) -> None:
        self.joblensd, self.channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.all = Followers(lambda untold: [{"NotShown": untold}])
        self.ours: list[socket.socket] = []

    def follow(self, seconds: float = 100.0) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            descriptors.send(self.joblensd, followers.request(seconds), [theirs.fileno()])
        assert self.all.hear(self.channel)
        self.ours.append(ours)
        return ours

    def close(self) -> None:
        for each in (self.joblensd, self.channel, *self.ours):
            each.close()


@pytest.fixture
def trace() -> Iterator[Trace]:
    found = Trace()
    yield found
    found.close()


def said(follower: socket.socket) -> list[tuple[bytes, Any]]:
    """What has come; JSON as what it means."""
    found: list[tuple[bytes, Any]] = []
    while True:
        try:
            message = follower.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return found
        if not message:
            return [*found, (b"", None)]
        found.append((message[:1], json.loads(message[1:]) if message[:1] == CONTENT else message[1:]))


def test_calls_that_end_later_are_told_and_the_sums_when_the_time_is_over(
    trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace.all.tell([ROW])
    follower = trace.follow()
    trace.all.tell([ROW, ROW])
    trace.all.notice("it is switched off")
    trace.all.flush()
    (first, about), *others = said(follower)
    assert first == NOTICE and b"from now on" in about
    assert others == [(CONTENT, {"calls": [ROW, ROW]}), (NOTICE, b"it is switched off")]
    monkeypatch.setattr(followers.time, "monotonic", lambda: 1e9)
    trace.all.flush()
    trace.all.tell([ROW])
    assert said(follower) == [(CONTENT, {"summary": [{"NotShown": 0}]}), (WHOLE, b""), (b"", None)]


def test_the_end_of_the_trace_is_told(trace: Trace) -> None:
    follower = trace.follow()
    trace.all.end()
    assert [kind for kind, _ in said(follower)] == [NOTICE, CONTENT, WHOLE, b""]


def test_who_does_not_read_is_told_how_much_he_missed(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MOST_QUEUED", 10_000)
    follower = trace.follow()
    for _ in range(20):
        trace.all.tell([ROW] * 100)
    monkeypatch.setattr(followers, "END_SECONDS", 0.0)
    got = said(follower)
    trace.all.end()
    got += said(follower)
    told = sum(len(each["calls"]) for kind, each in got if kind == CONTENT and "calls" in each)
    (missed,) = [each["summary"][0]["NotShown"] for kind, each in got if kind == CONTENT and "summary" in each]
    assert missed > 0 and told + missed == 2000


def test_one_who_takes_nothing_holds_up_nobody(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followers, "END_SECONDS", 0.0)
    follower = trace.follow()
    for _ in range(1000):
        trace.all.tell([ROW] * 100)
    trace.all.end()
    assert said(follower)[-1] == (b"", None)


def test_at_most_so_many_follow_and_one_who_left_makes_room(trace: Trace) -> None:
    for _ in range(MOST):
        trace.follow()
    assert [kind for kind, _ in said(trace.follow())] == [FAILED, b""]
    trace.ours[0].close()
    trace.all.tell([ROW])
    trace.all.flush()
    follower = trace.follow()
    trace.all.tell([ROW])
    trace.all.flush()
    assert [kind for kind, _ in said(follower)] == [NOTICE, CONTENT]


def test_the_end_of_joblensd_is_seen(trace: Trace) -> None:
    trace.joblensd.close()
    assert not trace.all.hear(trace.channel)
