"""Changes of maps whose elements are maps, made by a thread while joblensd goes on with its work.

Each takes the kernel 8 to 16 ms: it waits until no program works on the inner map that was there before. That is
maybe_wait_bpf_programs in kernel/bpf/syscall.c. Meanwhile ends of jobs are to be served. It waits once for many changes
of one map that come in one call. So a job that starts and ends processes all the time does not keep others waiting.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, Optional

from condor_joblens.tracer._bpf import ffi, lib

MOST_WAITING = 256
"""Changes that have not been made: whoever asks for more, because somebody else does, makes that one wait."""

AT_A_TIME = 64
"""Changes that are made in one call."""


class Change(NamedTuple):
    """What is under a key of a map of maps from now on: the map with this descriptor, which is ours; None: nothing."""

    outer: int
    key: bytes
    inner: Optional[int]


class MapChanges:
    """Changes in the order in which they were asked for; those of one map that do not concern each other at once."""

    def __init__(self) -> None:
        """The thread begins with the first change."""
        self._ready = threading.Condition()
        self._waiting: deque[Change] = deque()
        self._is_at_work = self._is_full = self._has_begun = False
        self._room, self._has_room = socket.socketpair()
        self._room.setblocking(False)
        self._has_room.setblocking(False)

    def put(self, outer: int, key: bytes, inner: int) -> None:
        """Soon the map with the descriptor `inner` is under the key. That is closed then, or if it can't be."""
        self._add(Change(outer, key, inner))

    def drop(self, outer: int, key: bytes) -> None:
        """Soon nothing is under the key."""
        self._add(Change(outer, key, None))

    def _add(self, change: Change) -> None:
        with self._ready:
            self._waiting.append(change)
            self._is_full = self._is_full or len(self._waiting) >= MOST_WAITING
            self._ready.notify_all()
        if not self._has_begun:
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
            self._ready.wait_for(lambda: not self._is_at_work)

    def finish(self) -> None:
        """Waits until all have been made."""
        with self._ready:
            self._ready.wait_for(lambda: not self._waiting and not self._is_at_work)

    def _begin(self) -> None:
        self._has_begun = True
        threading.Thread(target=self._run, name="map changes", daemon=True).start()

    def _run(self) -> None:
        # signals are for the one who serves jobs
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            with self._ready:
                self._ready.wait_for(lambda: bool(self._waiting))
                together = self._take()
                self._is_at_work = True
            try:
                self._make(together)
            except BaseException:  # is logged with this thread's end; another one goes on
                self._begin()
                raise

    def _take(self) -> dict[bytes, Change]:
        """The first ones, of one map, no two of them under one key: their order does not matter."""
        found: dict[bytes, Change] = {}
        outer = self._waiting[0].outer
        while self._waiting and len(found) < AT_A_TIME:
            first = self._waiting[0]
            if first.outer != outer or first.key in found:
                break
            found[first.key] = self._waiting.popleft()
        return found

    def _make(self, together: dict[bytes, Change]) -> None:
        try:
            outer = next(iter(together.values())).outer
            dropped = [key for key, change in together.items() if change.inner is None]
            inner = {key: change.inner for key, change in together.items() if change.inner is not None}
            _change(outer, dropped, None)
            _change(outer, list(inner), list(inner.values()))
        finally:
            _close(together.values())
            with self._ready:
                self._is_at_work = False
                if len(self._waiting) <= MOST_WAITING // 2:
                    self._tell_of_room()
                self._ready.notify_all()

    def _tell_of_room(self) -> None:
        if self._is_full:
            self._is_full = False
            with contextlib.suppress(BlockingIOError):
                self._has_room.send(b".")


def _change(outer: int, keys: list[bytes], inner: list[int] | None) -> None:
    if keys:
        given = ffi.NULL if inner is None else ffi.new("uint32_t[]", inner)
        lib.change_inner_maps(outer, b"".join(keys), len(keys[0]), given, len(keys))


def _close(changes: Iterable[Change]) -> None:
    for change in changes:
        if change.inner is not None:
            os.close(change.inner)
