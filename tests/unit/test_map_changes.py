"""Changes of maps that a thread makes, without a kernel."""

from __future__ import annotations

import os
import select
import threading

import pytest

from condor_joblens.tracer.map_changes import MOST_WAITING, MapChanges


def test_they_are_made_in_order() -> None:
    changes, made = MapChanges(), []
    for number in range(3 * MOST_WAITING):
        changes.add(lambda number=number: made.append(number))
    changes.finish()
    assert made == list(range(3 * MOST_WAITING))


def test_whoever_asks_does_not_wait_and_hears_when_there_is_room() -> None:
    changes, may_go_on = MapChanges(), threading.Event()
    for _ in range(MOST_WAITING + 1):  # one is being made
        assert not changes.is_full
        changes.add(lambda: may_go_on.wait(60))
    assert changes.is_full
    assert select.select([changes], [], [], 0)[0] == []
    may_go_on.set()
    assert select.select([changes], [], [], 60)[0] == [changes]
    changes.heard()
    assert not changes.is_full
    assert select.select([changes], [], [], 0)[0] == []


def test_what_is_given_up_is_not_made_and_what_is_being_made_is_waited_for() -> None:
    changes, made = MapChanges(), []
    begun, may_go_on = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        may_go_on.wait(60)
        made.append("slow")

    first, second = os.pipe()
    changes.add(slow, first)
    begun.wait(60)
    changes.add(lambda: made.append("never"), second)
    threading.Timer(0.05, may_go_on.set).start()
    changes.forget()
    assert made == ["slow"]
    for descriptor in (first, second):
        with pytest.raises(OSError):
            os.fstat(descriptor)


def test_one_that_fails_does_not_stop_those_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: told.set())
    changes, made = MapChanges(), []
    changes.add(lambda: 1 / 0)
    changes.add(lambda: made.append(1))
    changes.finish()
    assert made == [1]
    assert told.wait(60)
