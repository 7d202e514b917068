"""Changes of maps that a thread makes, without a kernel: what it would be asked for is written down."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from condor_joblens.common import readiness
from condor_joblens.tracer import map_changes
from condor_joblens.tracer.map_changes import AT_A_TIME, MOST_WAITING, MapChanges, Place

Call = tuple[int, list[bytes], bool]
"""Of a map: keys, and whether something is put under them."""

ROWS, MAPPINGS = 1, 2
"""Two maps, as the sensor has them: what is in the second one names keys of the first one."""


class Kernel:
    """Takes what it is asked for, each call as soon as it may."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.may_go_on, self.is_asked = threading.Event(), threading.Event()
        self.may_go_on.set()

    def change(self, outer: int, keys: list[bytes], inner: list[int] | None) -> None:
        self.is_asked.set()
        self.may_go_on.wait(60)
        self.calls.append((outer, keys, inner is not None))


class LateKernel:
    """Each call has its effect after a moment, and ends after another one: several are under way at a time."""

    def __init__(self) -> None:
        self.there: set[Place] = set()
        self.told: list[tuple[str, Place]] = []  # "made" or "ended", in this order
        self._changing = threading.Lock()

    def change(self, outer: int, keys: list[bytes], inner: list[int] | None) -> None:
        time.sleep(0.0005 * (len(self.told) % 3))
        for place in [Place(outer, each) for each in keys]:
            with self._changing:
                self.told.append(("made", place))
                (self.there.discard if inner is None else self.there.add)(place)
        time.sleep(0.0005 * (len(self.told) % 4))
        with self._changing:
            self.told.extend(("ended", Place(outer, each)) for each in keys)

    def nth(self, what: str, place: Place, count: int) -> int:
        """When that was told for the so manieth time, counted from 0, of a place."""
        return [at for at, told in enumerate(self.told) if told == (what, place)][count]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """One call at a time."""
    made = Kernel()
    monkeypatch.setattr(map_changes, "_change", made.change)
    monkeypatch.setattr(map_changes, "CALLS_AT_A_TIME", 1)
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


def test_those_that_are_dropped_are_in_another_call_than_those_that_are_put(kernel: Kernel) -> None:
    changes = MapChanges()
    held(kernel, changes)
    for number in range(6):
        if number % 2:
            changes.put(1, key(number), descriptor())
        else:
            changes.drop(1, key(number))
    kernel.may_go_on.set()
    changes.finish()
    assert kernel.calls[1:] == [(1, [key(0), key(2), key(4)], False), (1, [key(1), key(3), key(5)], True)]


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


@st.composite
def asked_of_two_maps(draw: st.DrawFn) -> list[tuple[Place, bool, list[int]]]:
    """Places, whether something is put there, and of mappings whose rows they name.

    As the sensor does it, rows are put where nothing is, and dropped where something is.
    """
    asked: list[tuple[Place, bool, list[int]]] = []
    have_rows: set[int] = set()
    for number, is_of_file, is_put, named in draw(
        st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.booleans(), st.lists(st.integers(0, 4), max_size=4)))
    ):
        if is_of_file:
            have_rows ^= {number}
            asked.append((Place(ROWS, key(number)), number in have_rows, []))
        else:
            asked.append((Place(MAPPINGS, key(number)), is_put, named if is_put else []))
    return asked


@given(asked_of_two_maps())
@settings(max_examples=30, deadline=None)
def test_mappings_come_after_rows_that_they_name_and_rows_go_after_mappings(
    asked: list[tuple[Place, bool, list[int]]],
) -> None:
    kernel = LateKernel()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(map_changes, "_change", kernel.change)
        patch.setattr(map_changes, "_is_there", lambda place: place in kernel.there)
        changes = MapChanges()
        for place, is_put, files in asked:
            if is_put:
                changes.put(*place, descriptor(), [Place(ROWS, key(file)) for file in files])
            else:
                changes.drop(*place, MAPPINGS if place.outer == ROWS else -1)
        changes.finish()
    places = [place for place, _, _ in asked]
    made, ended = [
        [kernel.nth(what, place, places[:at].count(place)) for at, place in enumerate(places)]
        for what in ("made", "ended")
    ]
    for at, (place, is_put, files) in enumerate(asked):
        before = range(at)
        assert all(ended[each] < made[at] for each in before if places[each] == place)
        if is_put:
            named = [Place(ROWS, key(file)) for file in files]
            assert all(made[each] < made[at] for each in before if places[each] in named)
        elif place.outer == ROWS:
            assert all(ended[each] < made[at] for each in before if places[each].outer == MAPPINGS)


class HeldKernel:
    """Waits in each call for rows, before or after its effect, until it may go on."""

    def __init__(self, *, is_effective: bool) -> None:
        self.is_effective = is_effective
        self.may_go_on, self.is_asked, self.has_mappings = threading.Event(), threading.Event(), threading.Event()

    def change(self, outer: int, _keys: list[bytes], _inner: list[int] | None) -> None:
        if outer == MAPPINGS:
            self.has_mappings.set()
            return
        self.is_asked.set()
        self.may_go_on.wait(60)
        self.is_effective = True


@pytest.mark.parametrize("is_effective", [False, True])
def test_mappings_wait_until_their_rows_are_there_and_no_longer(
    monkeypatch: pytest.MonkeyPatch, is_effective: bool
) -> None:
    kernel = HeldKernel(is_effective=is_effective)
    monkeypatch.setattr(map_changes, "_change", kernel.change)
    monkeypatch.setattr(map_changes, "_is_there", lambda _place: kernel.is_effective)
    changes = MapChanges()
    changes.put(ROWS, key(1), descriptor())
    assert kernel.is_asked.wait(60)
    changes.put(MAPPINGS, key(1), descriptor(), [Place(ROWS, key(1))])
    if not is_effective:
        with changes._ready:
            assert changes._take() == []
        assert not kernel.has_mappings.is_set()
        kernel.may_go_on.set()
    assert kernel.has_mappings.wait(60)
    kernel.may_go_on.set()
    changes.finish()


def test_no_call_waits_for_the_end_of_another_one_that_it_has_nothing_to_do_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = HeldKernel(is_effective=True)
    monkeypatch.setattr(map_changes, "_change", kernel.change)
    changes = MapChanges()
    changes.put(ROWS, key(1), descriptor())
    assert kernel.is_asked.wait(60)
    kernel.is_asked.clear()
    changes.put(ROWS, key(2), descriptor())
    assert kernel.is_asked.wait(60)
    changes.put(MAPPINGS, key(1), descriptor())
    assert kernel.has_mappings.wait(60)
    kernel.may_go_on.set()
    changes.finish()


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
