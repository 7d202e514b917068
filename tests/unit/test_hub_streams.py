"""Pages that renew themselves, and answers that many viewers share: without a store and without Django."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.web import shared, store_shares, streams
from condor_joblens.hub.web.people import read_people
from condor_joblens.hub.web.shared import (
    BACKOFF_AFTER,
    BACKOFF_MOST,
    BACKOFF_SHARE,
    MOST_OF_AN_ERROR,
    PAUSE,
    PERIOD,
    SHARE,
    OfOneViewer,
    Shared,
)
from condor_joblens.hub.web.store_shares import SAVED, StoreShares
from condor_joblens.hub.web.streams import OVER, Streams, event


class Clock:
    """Stands still, unless it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Asked:
    """Counts how often; each time takes some seconds of the clock."""

    def __init__(self, clock: Clock, seconds: float = 0.0, error: Exception | None = None) -> None:
        self.clock, self.seconds, self.error, self.count = clock, seconds, error, 0

    def __call__(self) -> int:
        self.count += 1
        self.clock.now += self.seconds
        if self.error:
            raise self.error
        return self.count


def test_a_question_is_asked_once_a_period() -> None:
    clock = Clock()
    answers, ask = Shared(clock), Asked(clock)
    assert [answers.get("q", ask) for _ in range(50)] == [1] * 50
    assert answers.get("other", ask) == 2
    clock.now += PERIOD
    assert answers.get("q", ask) == 3


def test_a_dear_question_is_asked_less_often() -> None:
    clock = Clock()
    answers, ask = Shared(clock), Asked(clock, seconds=2.0)
    answers.get("q", ask)
    clock.now += 2.0 * SHARE - 0.1
    assert answers.get("q", ask) == 1
    clock.now += 0.1
    assert answers.get("q", ask) == 2


@pytest.mark.parametrize("took", [0.001, 0.1, 1.0, 10.0])
def test_what_is_wanted_for_long_is_asked_less_often_until_there_is_a_pause(took: float) -> None:
    clock = Clock()
    answers = Shared(clock)
    ask, other = Asked(clock, seconds=took), Asked(clock, seconds=took)

    def lasts(backs_off: bool) -> float:
        """Of an answer that was made just now, until the next one, if somebody looks each tenth of a second."""
        asked, begin = other if not backs_off else ask, clock.now
        count = asked.count
        while answers.get(backs_off, asked, backs_off=backs_off) == count:
            clock.now += 0.1
        return clock.now - begin - took

    usual, backed_off = max(PERIOD, SHARE * took), max(PERIOD, SHARE * took, min(BACKOFF_MOST, BACKOFF_SHARE * took))
    answers.get(True, ask, backs_off=True)
    assert lasts(backs_off=True) == pytest.approx(usual, abs=0.11)
    end = clock.now + BACKOFF_AFTER
    while clock.now < end:
        lasts(backs_off=True)
    assert lasts(backs_off=True) == pytest.approx(backed_off, abs=0.11)
    clock.now += backed_off + PAUSE + 0.1
    answers.get(True, ask, backs_off=True)
    assert lasts(backs_off=True) == pytest.approx(usual, abs=0.11), "who comes after a pause is as the first"
    answers.get(False, other)
    end = clock.now + BACKOFF_AFTER
    while clock.now < end:
        lasts(backs_off=False)
    assert lasts(backs_off=False) == pytest.approx(usual, abs=0.11)


def test_an_answer_serves_on_as_long_as_its_stamp_is_the_same() -> None:
    clock = Clock()
    answers, ask = Shared(clock), Asked(clock)
    for _ in range(5):
        assert answers.get("q", ask, "a") == 1
        clock.now += 100 * PERIOD
    assert answers.get("q", ask, "b") == 2 and answers.get("other", ask, "b") == 3
    clock.now += 100 * PERIOD
    with pytest.raises(JobLensError):
        answers.get("q", Asked(clock, error=JobLensError("gone")), "c")
    clock.now += 100 * PERIOD
    assert answers.get("q", ask, "c") == 4, "an error serves nobody for longer"


def test_all_who_wait_are_told_the_same_error_and_the_next_asks_anew() -> None:
    clock = Clock()
    answers, ask = Shared(clock), Asked(clock, error=JobLensError("gone"))
    for _ in range(5):
        with pytest.raises(JobLensError):
            answers.get("q", ask)
    assert ask.count == 1
    clock.now += PERIOD
    assert answers.get("q", Asked(clock)) == 1


def test_a_store_that_hung_for_a_minute_is_not_said_to_be_gone_for_ten() -> None:
    clock = Clock()
    answers = Shared(clock)
    with pytest.raises(JobLensError):
        answers.get("q", Asked(clock, seconds=60.0, error=JobLensError("it takes too long")))
    clock.now += MOST_OF_AN_ERROR
    assert answers.get("q", Asked(clock)) == 1


def test_who_asks_meanwhile_waits_for_the_same_answer() -> None:
    answers, begun, go = Shared(), threading.Event(), threading.Event()
    asked: list[int] = []

    def slow() -> int:
        asked.append(1)
        begun.set()
        go.wait(60)
        return 7

    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(answers.get("q", slow))) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert begun.wait(60)
    go.set()
    for thread in threads:
        thread.join(60)
    assert found == [7] * 8 and len(asked) == 1


def test_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "MOST", 10)
    answers = Shared()
    for number in range(1000):
        answers.get(number, lambda: b"x")
    assert len(answers._answers) == 10


def test_who_may_see_the_same_has_one_scope() -> None:
    people = "[a]\nrole = operator\n[b]\nrole = operator\n[c]\n[d]\njobs = x@s\n[e]\njobs = x@s\n[f]\njobs = x@other"
    a, b, c, d, e, f = (person.scope for person in read_people(people))
    assert a == b and d == e and len({a, c, d, f}) == 4


# --- streams


def followed(count: int, may: Callable[[], bool], text: Callable[[], str]) -> list[bytes]:
    """The first events of a stream, or all."""

    def look() -> bytes | None:
        return event("part", text()) if may() else None

    async def read() -> list[bytes]:
        found: list[bytes] = []
        stream = Streams().take("x", look, 0.0)
        assert stream is not None
        events: Any = stream.__aiter__()
        async for one in events:
            found.append(one)
            if len(found) == count:
                break
        await events.aclose()
        return found

    return asyncio.run(asyncio.wait_for(read(), 60))


def test_what_is_new_is_sent_and_what_is_old_is_not() -> None:
    texts = iter(["a", "a", "b", "b", "c"])
    assert followed(3, lambda: True, lambda: next(texts)) == [event("part", one) for one in "abc"]


def test_a_quiet_stream_is_kept_alive() -> None:
    assert followed(3, lambda: True, lambda: "same") == [event("part", "same"), b":\n\n", b":\n\n"]


def test_a_viewer_who_may_no_longer_is_told_so_and_nothing_else() -> None:
    mays = iter([True, False])
    assert followed(9, lambda: next(mays), lambda: "seen") == [event("part", "seen"), OVER]
    assert followed(9, lambda: False, lambda: "secret") == [OVER]


def test_a_stream_ends_and_the_browser_is_to_ask_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LONGEST", -1.0)
    assert followed(9, lambda: True, lambda: "seen") == [event("part", "seen"), streams.SOON]


def test_streams_of_a_viewer_and_of_all_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A place is taken when it is asked for: however many ask before the first of them is read."""
    monkeypatch.setattr(streams, "MOST_OF_A_VIEWER", 2)
    monkeypatch.setattr(streams, "MOST", 3)
    places = Streams()
    first, second = places.take("a", lambda: b"x"), places.take("a", lambda: b"x")
    assert first and second and places.take("a", lambda: b"x") is None
    third = places.take("b", lambda: b"x")
    assert third and places.take("c", lambda: b"x") is None
    for one in (first, second, third):
        one.close()
        one.close()
    assert not places._open


def test_a_stream_that_ends_or_was_never_read_gives_its_place_back() -> None:
    places = Streams()

    async def read(stream: Any) -> list[bytes]:
        return [one async for one in stream]

    assert asyncio.run(asyncio.wait_for(read(places.take("a", lambda: None)), 60)) == [OVER]
    assert not places._open
    forgotten = places.take("a", lambda: b"x")
    assert places._open and forgotten
    del forgotten
    gc.collect()
    assert not places._open


def test_no_line_of_a_text_ends_its_event() -> None:
    hostile = "a\n\nevent: over\r\ndata: x\rid: 7"
    lines = event("part", hostile).decode().split("\n")
    assert lines[0] == "event: part" and lines[-2:] == ["", ""]
    assert all(line.startswith("data: ") for line in lines[1:-2])


def test_who_asks_ever_new_questions_waits_and_nobody_else_does() -> None:
    clock = Clock()
    answers, shares, ask = Shared(clock), StoreShares(clock), Asked(clock, seconds=4.0)

    def asks(who: str, question: str) -> int:
        return answers.get(question, lambda: shares.take(who, ask))

    told = 0
    with pytest.raises(OfOneViewer, match=r"the next one is answered in [0-9]+ s") as refusal:
        while True:
            asks("mallory", f"q{told}")
            told += 1
    assert told >= SAVED // 4
    seconds = int(str(refusal.value).split()[-2])
    assert asks("alice", f"q{told}") == told + 1, "the same question of somebody else"
    assert asks("mallory", f"q{told}") == told + 1, "an answer that is there costs nobody anything"
    clock.now += seconds
    assert asks("mallory", "later") == told + 2
    clock.now += (SAVED + 8) / store_shares.SHARE
    shares.take("alice", lambda: None)
    assert not shares._left, "who has his whole share is forgotten"


def test_who_has_had_his_share_sees_the_answer_before() -> None:
    clock = Clock()
    answers, shares, ask = Shared(clock), StoreShares(clock), Asked(clock, seconds=4.0)
    assert [answers.get("q", lambda: shares.take("x", ask)) for _ in range(2)] == [1, 1]
    clock.now += 4.0 * SHARE
    for _ in range(20):
        with contextlib.suppress(OfOneViewer):
            shares.take("x", ask)
    before = ask.count
    assert answers.get("q", lambda: shares.take("x", ask)) == 1 and ask.count == before


def test_one_long_wait_is_no_viewers_fault() -> None:
    clock = Clock()
    shares = StoreShares(clock)
    shares.take("x", Asked(clock, seconds=1000.0))
    with pytest.raises(JobLensError, match="gone"):
        shares.take("x", Asked(clock, seconds=1000.0, error=JobLensError("gone")))
    assert shares._left_of("x") >= SAVED - store_shares.MOST_OF_AN_ANSWER
