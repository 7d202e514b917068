"""The ring of events: one writer, and any number of readers who know exactly what they missed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from condor_joblens.model.events import EVENT
from condor_joblens.shm import layout
from condor_joblens.shm._shm import ffi, lib
from condor_joblens.shm.mapped import Mapped, new_file, new_identity, predecessor

EVENT_HASH = int.from_bytes(hashlib.sha256(repr(EVENT.descr).encode()).digest()[:8], "little")
"""Tells a reader of another version that its idea of an event is not the writer's."""

LEAST = 1024
"""Events that the smallest ring holds."""


@dataclass(frozen=True)
class Position:
    """Where a reader stands: behind event `sequence` of the numbering `identity`, which ends with the machine's run."""

    identity: int
    sequence: int


class EventWriter:
    """Appends events to the ring at `path`; never waits for a reader. Numbers go on from those of its predecessor."""

    def __init__(self, path: str, size: int, group: int) -> None:
        """Makes the file anew (mode 0640, group id `group`), of `size` bytes or what LEAST events take.

        What a predecessor's readers have not seen yet is taken over. Raises OSError where the file can't be made.
        """
        plan = _plan(size)
        before = predecessor(lambda: _mapped(path, None))
        carried = np.empty(0, EVENT) if before is None else _left_in(before)
        first, identity, generation = 1, new_identity(), 1
        if before is not None:
            identity, generation = int(before.header["identity"]), int(before.header["generation"]) + 1
            first = int(carried["sequence"][0]) if len(carried) else int(before.header["head"]) + 1
        self.capacity = plan.capacity
        with new_file(path, plan, group) as memory:
            header = plan.header(identity, generation, first)
            memory[: len(header)] = header
            self._address = ffi.cast("struct joblens_header *", ffi.from_buffer(memory))
            self._memory = memory
            self.append(carried)
        if before is not None:
            before.wake()

    def append(self, events: np.ndarray) -> None:
        """Gives `events` (EVENT, shape (n,)) the next numbers, and wakes whoever waits for them."""
        if len(events):
            events = np.ascontiguousarray(events, EVENT)
            lib.append_events(self._address, ffi.from_buffer(events), len(events))
            self.wake()

    def wake(self) -> None:
        """Wakes the readers: there is something new here or in the rows."""
        lib.wake_readers(self._address)


class EventReader:
    """Reads events in order, and follows when a new writer replaces the file. For one thread at a time."""

    def __init__(self, path: str, since: Position | None = None) -> None:
        """Begins behind `since`; without it, or where it is of another numbering, with the oldest that there is.

        Raises JobLensError where there is nothing to read, and says why.
        """
        self._path = path
        self._file = _mapped(path, EVENT_HASH)
        self._last = ffi.new("uint64_t *")
        self._missed = ffi.new("uint64_t *")
        self._begin(since)

    def _begin(self, since: Position | None) -> None:
        header = self._file.header
        self.identity = int(header["identity"])
        if since is not None and since.identity == self.identity and since.sequence <= self.head:
            self._last[0] = since.sequence
        else:
            self._last[0] = max(0, int(header["first"]) - 1, self.head - self._file.capacity)

    @property
    def head(self) -> int:
        """The number of the newest event."""
        return int(lib.load_acquire(ffi.addressof(self._file.address, "head")))

    @property
    def position(self) -> Position:
        """Behind the last event that was read, or is known to be lost."""
        return Position(self.identity, int(self._last[0]))

    @property
    def missed(self) -> int:
        """Events so far that were overwritten before they were read: exactly the gaps in the numbers."""
        return int(self._missed[0])

    def read(self, limit: int = 4096) -> np.ndarray:
        """Up to `limit` further events, shape (n,); none where there is nothing new.

        Raises JobLensError where a new writer is of another version.
        """
        events: np.ndarray = np.empty(limit, EVENT)
        count = lib.joblens_read_events(self._file.address, self._last, ffi.from_buffer(events), limit, self._missed)
        if count == 0 and self._file.is_replaced():
            since = self.position
            self._file = _mapped(self._path, EVENT_HASH)
            self._begin(since)
            return self.read(limit)
        return events[:count]

    def wake_word(self) -> int:
        """To be taken before reading, and handed to `wait` after."""
        return self._file.wake_word()

    def wait(self, seen: int, seconds: float) -> None:
        """Sleeps until something has happened since the word was `seen`, for so long at most."""
        self._file.wait(seen, seconds)


def _plan(size: int) -> layout.FilePlan:
    empty = layout.FilePlan(layout.EVENTS_MAGIC, EVENT, EVENT_HASH, 0, 1).file_bytes
    capacity = max(LEAST, (size - empty) // EVENT.itemsize)
    return layout.FilePlan(layout.EVENTS_MAGIC, EVENT, EVENT_HASH, capacity, 1)


def _mapped(path: str, schema_hash: int | None) -> Mapped:
    """The file at `path`; any version's whose header can be understood, where no hash is wanted."""
    return Mapped(path, layout.EVENTS_MAGIC, EVENT, schema_hash)


def _left_in(before: Mapped) -> np.ndarray:
    """All that is whole there, numbered without a gap; nothing, where it is of another version.

    Its writer is dead, perhaps within a batch: what it had finished of that counts.
    """
    header = before.header
    if (header["schema_hash"], header["record_bytes"]) != (EVENT_HASH, EVENT.itemsize):
        nothing: np.ndarray = np.empty(0, EVENT)
        return nothing
    ring = before.records(EVENT)
    numbers: np.ndarray = ring["sequence"].astype("i8")
    whole = np.flatnonzero((numbers > 0) & (numbers % before.capacity == np.arange(before.capacity)))
    whole = whole[np.argsort(numbers[whole])]
    gaps = np.flatnonzero(np.diff(numbers[whole]) != 1)
    events: np.ndarray = ring[whole[gaps[-1] + 1 :] if len(gaps) else whole]
    return events
