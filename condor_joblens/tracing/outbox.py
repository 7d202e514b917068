"""What a trace tells joblensd: messages that wait for a slow reader, within bounds."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from condor_joblens.common import readiness
from condor_joblens.control.child_output import CONTENT, MOST, NOTICE

MOST_QUEUED = 4 << 20
"""Bytes that wait; what is told one by one and is beyond that is counted, and not told."""

ROWS_IN_A_MESSAGE = 100
PAUSE_SECONDS = 0.05


class Outbox:
    """The messages on a socket, in order."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.untold = 0
        """Rows for which there was no room."""
        self.hear: Callable[[socket.socket], bool] = _hear_nothing
        """Takes what joblensd says on its socket; False if it is gone."""
        self._queue: deque[bytes] = deque()
        self._queued = 0

    @property
    def is_open(self) -> bool:
        """Whether joblensd is there, as far as is known."""
        return self.channel.fileno() >= 0

    @property
    def is_full(self) -> bool:
        """Whether so much waits that what is told one by one is not told."""
        return self._queued > MOST_QUEUED

    @property
    def is_empty(self) -> bool:
        """Whether all was sent."""
        return not self._queue

    def notice(self, text: str) -> None:
        """A sentence for people."""
        self.put(NOTICE + text.encode("utf-8", "replace")[: MOST - 1])

    def tell_each(self, name: str, rows: list[list[Any]]) -> None:
        """Rows, as far as there is room."""
        for at in range(0, len(rows), ROWS_IN_A_MESSAGE):
            part = rows[at : at + ROWS_IN_A_MESSAGE]
            if self.is_full or not self.say({name: part}):
                self.untold += len(part)

    def say(self, told: dict[str, list[Any]]) -> bool:
        """A list of one name, in several messages if it is long; False for a single value that is too long."""
        message = CONTENT + json.dumps(told, separators=(",", ":")).encode()
        if len(message) <= MOST:
            self.put(message)
            return True
        ((name, values),) = told.items()
        if len(values) < 2:
            return False
        middle = len(values) // 2
        first = self.say({name: values[:middle]})
        return self.say({name: values[middle:]}) and first

    def put(self, message: bytes) -> None:
        """Any message."""
        self._queue.append(message)
        self._queued += len(message)

    def flush(self) -> bool:
        """Sends what is taken at once; False if nobody listens any more."""
        try:
            while self._queue:
                self.channel.send(self._queue[0], socket.MSG_DONTWAIT)
                self._queued -= len(self._queue.popleft())
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True

    def send_all(self, seconds: float, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Sends the rest, for so long at most."""
        until = time.monotonic() + seconds
        while self._queue and self.flush() and time.monotonic() < until:
            meanwhile()
            if self._queue:
                readiness.writable([self.channel], PAUSE_SECONDS)

    def wait(self, others: list[readiness.Waitable], seconds: float) -> None:
        """Until one of these can be read, joblensd is gone, or for so long."""
        both: list[readiness.Waitable] = [self.channel, *others]
        ready = readiness.readable(both, seconds)
        if self.channel in ready:
            with contextlib.suppress(OSError):
                if not self.hear(self.channel):
                    self.channel.close()


def _hear_nothing(channel: socket.socket) -> bool:
    return bool(channel.recv(1, socket.MSG_DONTWAIT))
