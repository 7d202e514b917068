"""Changes of maps that a thread makes, without a kernel: what it would be asked for is written down."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.common import readiness
from condor_joblens.tracer import map_changes
from condor_joblens.tracer.map_changes import AT_A_TIME, MOST_WAITING, MapChanges

Call = tuple[int, list[bytes], bool]
"""Of a map: keys, and whether something is put under them."""


class Kernel:
    """Takes what it is asked for, each call as soon as it may."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.may_go_on, self.is_asked = threading.Event(), threading.Event()
        self.may_go_on.set()

    def change(self, outer: int, keys: list[bytes], inner: list[int] | None) -> None:
        if keys:
            self.is_asked.set()
            self.may_go_on.wait(60)
            self.calls.append((outer, keys, inner is not None))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel()
    monkeypatch.setattr(map_changes, "_change", made.change)
    return made


def descriptor() -> int:
    return os.open("/dev/null", os.O_RDONLY)


def key(number: int) -> bytes:
    return number.to_bytes(4, "little")


def held(kernel: Kernel, changes: MapChanges) -> None:
    """The first change is being made, and those that follow wait."""
    kernel.may_go_on.clear()
    changes.drop(9, key(0))
    assert kernel.is_asked.wait(60)


def test_those_of_one_map_are_made_at_once_and_none_overtakes_another_of_its_key(kernel: Kernel) -> None:
    changes = MapChanges()
    held(kernel, changes)
    for number in range(AT_A_TIME):
        changes.drop(1, key(number))
    changes.put(1, key(0), descriptor())
    changes.drop(1, key(0))
    changes.put(2, key(0), descriptor())
    kernel.may_go_on.set()
    changes.finish()
    together = [key(number) for number in range(AT_A_TIME)]
    assert kernel.calls[1:] == [
        (1, together, False), (1, [key(0)], True), (1, [key(0)], False), (2, [key(0)], True)
    ]  # fmt: skip


@given(st.lists(st.tuples(st.integers(1, 2), st.integers(0, 5), st.booleans()), max_size=200))
def test_in_the_end_each_key_has_what_was_asked_for_last(asked: list[tuple[int, int, bool]]) -> None:
    kernel = Kernel()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(map_changes, "_change", kernel.change)
        changes = MapChanges()
        for outer, number, is_put in asked:
            if is_put:
                changes.put(outer, key(number), descriptor())
            else:
                changes.drop(outer, key(number))
        changes.finish()
    found = {(outer, one): is_put for outer, keys, is_put in kernel.calls for one in keys}
    assert found == {(outer, key(number)): is_put for outer, number, is_put in asked}


def test_whoever_asks_does_not_wait_and_hears_when_there_is_room(kernel: Kernel) -> None:
    changes = MapChanges()
    held(kernel, changes)
    for number in range(MOST_WAITING):
        assert not changes.is_full
        changes.drop(1, key(number))
    assert changes.is_full
    assert readiness.readable([changes], 0) == []
    kernel.may_go_on.set()
    assert readiness.readable([changes], 60) == [changes]
    changes.heard()
    assert not changes.is_full
    assert readiness.readable([changes], 0) == []
    changes.finish()


def test_what_is_given_up_is_not_made_and_what_is_being_made_is_waited_for(kernel: Kernel) -> None:
    changes, inner = MapChanges(), descriptor()
    held(kernel, changes)
    changes.put(1, key(1), inner)

    def go_on_as_soon_as_given_up() -> None:
        while changes._waiting:
            time.sleep(0.001)
        kernel.may_go_on.set()

    threading.Thread(target=go_on_as_soon_as_given_up, daemon=True).start()
    changes.forget()
    assert kernel.calls == [(9, [key(0)], False)]
    assert_closed(inner)


def test_descriptors_are_closed_when_they_are_in_their_place(kernel: Kernel) -> None:
    changes, inner = MapChanges(), descriptor()
    changes.put(1, key(1), inner)
    changes.finish()
    assert kernel.calls == [(1, [key(1)], True)]
    assert_closed(inner)


def assert_closed(number: int) -> None:
    with pytest.raises(OSError):
        os.fstat(number)


def test_one_that_fails_does_not_stop_those_after_it(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    told = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: told.set())
    change: Callable[[int, list[bytes], list[int] | None], None] = kernel.change

    def failing(outer: int, keys: list[bytes], inner: list[int] | None) -> None:
        if outer == 1:
            raise OSError
        change(outer, keys, inner)

    monkeypatch.setattr(map_changes, "_change", failing)
    changes = MapChanges()
    changes.drop(1, key(1))
    changes.drop(2, key(2))
    changes.finish()
    assert kernel.calls == [(2, [key(2)], False)]
    assert told.wait(60)
