"""Hits of traced functions out of the memory that the kernel's program writes them to."""

from __future__ import annotations

from typing import Any

import pytest
from condor_joblens.tracer._bpf import ffi, lib

HEAD = ffi.offsetof("struct traced_record", "told")
SHORT, LONG = HEAD + lib.TRACED_SHORT_BYTES, HEAD + ffi.sizeof("struct traced_hit")
TEXTS = ffi.sizeof("struct traced_record")
ROOM = 8


class Ring:
    """The ring, and what the kernel does with it."""

    def __init__(self, at: int = 0) -> None:
        self.memory: Any = ffi.new("struct traced_ring *", {"given": at, "taken": at})
        self._hits = ffi.new("struct traced_texts[]", ROOM)

    def begin(self, size: int) -> Any:
        """A record whose place is taken, and nothing more."""
        at = self.memory.given & (lib.TRACED_RING_BYTES - 1)
        self.memory.given += size
        return ffi.cast("struct traced_record *", self.memory.records + at)

    def tell(self, size: int, number: int) -> None:
        """A whole record: so large that what is behind it must stay as it is."""
        record = self.begin(size)
        ffi.memmove(ffi.addressof(record.told), b"\xff" * (size - HEAD), size - HEAD)
        record.told.hit.thread = number
        record.bytes = size

    def take(self) -> list[int]:
        """The numbers of those that are there."""
        self.hits = [self._hits[at] for at in range(lib.take_hits(self.memory, self._hits, ROOM))]
        return [each.hit.thread for each in self.hits]


def test_each_is_taken_once_and_in_order() -> None:
    ring = Ring()
    for number, size in enumerate((SHORT, LONG, TEXTS, SHORT)):
        ring.tell(size, number)
    assert ring.take() == [0, 1, 2, 3]
    assert ring.take() == []
    assert ring.memory.taken == ring.memory.given


def test_what_one_does_not_have_is_0() -> None:
    ring = Ring()
    ring.tell(TEXTS, 0)
    ring.tell(SHORT, 1)
    ring.take()
    assert list(ring.hits[0].hit.values) == [(1 << 64) - 1] * 6 and ring.hits[0].text[1][63] == b"\xff"
    assert list(ring.hits[1].hit.values) == [(1 << 64) - 1] + 5 * [0] and ring.hits[1].text[0][0] == b"\0"


def test_one_that_is_being_written_holds_up_those_behind_it() -> None:
    ring = Ring()
    ring.tell(SHORT, 0)
    late = ring.begin(LONG)
    ring.tell(SHORT, 2)
    assert ring.take() == [0]
    late.told.hit.thread, late.bytes = 1, LONG
    assert ring.take() == [1, 2]


def test_no_more_than_there_is_room_for() -> None:
    ring = Ring()
    for number in range(ROOM + 2):
        ring.tell(SHORT, number)
    assert ring.take() == list(range(ROOM))
    assert ring.take() == [ROOM, ROOM + 1]


@pytest.mark.parametrize("before", [8, TEXTS - 8])
def test_the_last_one_goes_beyond_the_end(before: int) -> None:
    ring = Ring(lib.TRACED_RING_BYTES - before)
    ring.tell(TEXTS, 0)
    ring.tell(LONG, 1)
    assert ring.take() == [0, 1]


def test_what_was_taken_is_0_again() -> None:
    """Else a later record would seem to be whole before it is."""
    ring = Ring(lib.TRACED_RING_BYTES - 8)
    for size in (TEXTS, SHORT, LONG):
        ring.tell(size, 0)
        ring.take()
    assert not any(bytes(ffi.buffer(ring.memory.records)))
