"""Changes of maps whose elements are maps, made by a thread while joblensd goes on with its work.

Each takes the kernel 8 to 16 ms: it waits until no program works on the inner map that was there before. That is
maybe_wait_bpf_programs in kernel/bpf/syscall.c. Meanwhile ends of jobs are to be served.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable

MOST_WAITING = 128
"""Changes that have not been made: whoever asks for more, because somebody else does, makes that one wait."""

Change = Callable[[], object]


class MapChanges:
    """Changes in the order in which they were asked for, one at a time."""

    def __init__(self) -> None:
        """The thread begins with the first change."""
        self._ready = threading.Condition()
        self._waiting: deque[tuple[Change, int]] = deque()
        self._is_at_work = self._is_full = False
        self._has_begun = False
        self._room, self._has_room = socket.socketpair()
        self._room.setblocking(False)
        self._has_room.setblocking(False)

    def add(self, change: Change, descriptor: int = -1) -> None:
        """Makes the change after those before it. `descriptor` is closed then, or if it is not made at all."""
        with self._ready:
            self._waiting.append((change, descriptor))
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
            for _, descriptor in self._waiting:
                _close(descriptor)
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
                change, descriptor = self._waiting.popleft()
                self._is_at_work = True
            try:
                self._make(change, descriptor)
            except BaseException:  # is logged with this thread's end; another one goes on
                self._begin()
                raise

    def _make(self, change: Change, descriptor: int) -> None:
        try:
            change()
        finally:
            _close(descriptor)
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


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)
