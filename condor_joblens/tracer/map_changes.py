"""Changes of maps whose elements are maps, made by threads while joblensd goes on with its work.

A change is effective at once, but the call that makes it ends 8 to 16 ms later. The kernel waits until no program works
on the inner map that was there before: maybe_wait_bpf_programs in kernel/bpf/syscall.c. Meanwhile ends of jobs are to
be served. It waits once for many changes of one map that come in one call. So a job that starts and ends processes all
the time does not keep others waiting. And other changes do not wait for the end of a call: a few are made at a time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Optional

from condor_joblens.tracer._bpf import ffi, lib

MOST_WAITING = 256
"""Changes that have not been made: whoever asks for more, because somebody else does, makes that one wait."""

AT_A_TIME = 64
"""Changes that are made in one call."""

CALLS_AT_A_TIME = 4
"""Calls that wait in the kernel at the same time: each has a thread."""

LOOK_AGAIN = 0.001
"""Seconds until it is looked again whether a change is effective whose call has begun."""


class Place(NamedTuple):
    """A key of a map of maps; `outer` is the map's descriptor."""

    outer: int
    key: bytes


class Change(NamedTuple):
    """What is under a key of a map of maps from now on: the map with this descriptor, which is ours; None: nothing."""

    place: Place
    inner: Optional[int]
    needs: frozenset[Place] = frozenset()
    """What was asked for before under these has to be effective first."""

    follows: int = -1
    """Calls for what was asked for before in the map with this descriptor have to have ended; negative: in none."""

    def is_like(self, other: Change) -> bool:
        """Whether one call can make both."""
        return self.place.outer == other.place.outer and (self.inner is None) == (other.inner is None)


class MapChanges:
    """Each key's changes are made in the order in which they were asked for; those of several keys in any order.

    Unless a change says what has to be there, or gone, before it.
    """

    def __init__(self) -> None:
        """A thread begins with the first change, and further ones as soon as they are needed."""
        self._ready = threading.Condition()
        self._waiting: deque[Change] = deque()
        self._in_work: dict[Place, Change] = {}
        self._is_full = False
        self._threads = self._idle = 0
        self._room, self._has_room = socket.socketpair()
        self._room.setblocking(False)
        self._has_room.setblocking(False)

    def put(self, outer: int, key: bytes, inner: int, needs: Iterable[Place] = ()) -> None:
        """Soon the map with the descriptor `inner` is under the key. That is closed then, or if it can't be.

        What was put under those that it `needs` is there before, unless the kernel has refused it.
        """
        self._add(Change(Place(outer, key), inner, needs=frozenset(needs)))

    def drop(self, outer: int, key: bytes, follows: int = -1) -> None:
        """Soon nothing is under the key; not before all changes of the map `follows` that were asked for till now."""
        self._add(Change(Place(outer, key), None, follows=follows))

    def _add(self, change: Change) -> None:
        with self._ready:
            self._waiting.append(change)
            self._is_full = self._is_full or len(self._waiting) >= MOST_WAITING
            self._ready.notify_all()
            if not self._idle and self._threads < CALLS_AT_A_TIME:
                self._begin()

    @property
    def is_full(self) -> bool:
        """Whether so many wait that no further ones should be asked for, until `fileno` is readable."""
        return self._is_full

    def fileno(self) -> int:
        """Readable as soon as there is room again; `heard` makes it unreadable."""
        return self._room.fileno()

    def heard(self) -> None:
        """That there is room is known."""
        with contextlib.suppress(BlockingIOError):
            self._room.recv(64)

    def forget(self) -> None:
        """Gives up all that wait. When it returns none is being made: the maps may go."""
        with self._ready:
            _close(self._waiting)
            self._waiting.clear()
            self._tell_of_room()
            self._ready.wait_for(lambda: not self._in_work)

    def finish(self) -> None:
        """Waits until all have been made."""
        with self._ready:
            self._ready.wait_for(lambda: not self._waiting and not self._in_work)

    def _begin(self) -> None:
        self._threads += 1
        threading.Thread(target=self._run, name="map changes", daemon=True).start()

    def _run(self) -> None:
        # signals are for the one who serves jobs
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            together = self._next()
            try:
                self._make(together)
            except BaseException:  # is logged with this thread's end; another one goes on
                with self._ready:
                    self._threads -= 1
                    self._begin()
                raise

    def _next(self) -> Sequence[Change]:
        """Waits for what may be made together, which is in work then."""
        with self._ready:
            self._idle += 1
            while not (found := self._take()):
                is_near = any(change.needs & self._in_work.keys() for change in self._waiting)
                self._ready.wait(LOOK_AGAIN if is_near else None)
            self._idle -= 1
            if self._waiting and not self._idle and self._threads < CALLS_AT_A_TIME:
                self._begin()
            return found

    def _take(self) -> list[Change]:
        """The first one that may be made, and with it others of its kind and map. No two of them are under one key."""
        found: list[Change] = []
        left: deque[Change] = deque()
        asked_before: set[Place] = set()
        is_there: dict[Place, bool] = {}  # of what is in work: asked for once, however many need it
        for change in self._waiting:
            is_one = not found or (found[0].is_like(change) and len(found) < AT_A_TIME)
            if is_one and self._may(change, asked_before, is_there):
                found.append(change)
            else:
                left.append(change)
            asked_before.add(change.place)
        self._waiting = left
        self._in_work.update((change.place, change) for change in found)
        return found

    def _may(self, change: Change, asked_before: set[Place], is_there: dict[Place, bool]) -> bool:
        """Whether it may be made now. What waits and was asked for before it is under the places `asked_before`."""
        if change.place in asked_before or change.place in self._in_work:
            return False
        if not change.needs.isdisjoint(asked_before):
            return False
        if change.follows >= 0 and any(place.outer == change.follows for place in (*asked_before, *self._in_work)):
            return False
        for place in change.needs:
            if place in self._in_work and place not in is_there:
                is_there[place] = _is_effective(self._in_work[place])
        return all(is_there.get(place, True) for place in change.needs)

    def _make(self, together: Sequence[Change]) -> None:
        try:
            inner = [change.inner for change in together if change.inner is not None]
            _change(together[0].place.outer, [change.place.key for change in together], inner or None)
        finally:
            _close(together)
            with self._ready:
                for change in together:
                    del self._in_work[change.place]
                if len(self._waiting) <= MOST_WAITING // 2:
                    self._tell_of_room()
                self._ready.notify_all()

    def _tell_of_room(self) -> None:
        if self._is_full:
            self._is_full = False
            with contextlib.suppress(BlockingIOError):
                self._has_room.send(b".")


def _change(outer: int, keys: list[bytes], inner: list[int] | None) -> None:
    given = ffi.NULL if inner is None else ffi.new("uint32_t[]", inner)
    lib.change_inner_maps(outer, b"".join(keys), len(keys[0]), given, len(keys))


def _is_effective(change: Change) -> bool:
    """Of one whose call has begun. Whoever puts something drops first what was there."""
    return (change.inner is not None) == _is_there(change.place)


def _is_there(place: Place) -> bool:
    """Whether the kernel has something under a key."""
    return bool(lib.bpf_map_lookup_elem(place.outer, place.key, ffi.new("__u32 *")) == 0)


def _close(changes: Iterable[Change]) -> None:
    for change in changes:
        if change.inner is not None:
            os.close(change.inner)
