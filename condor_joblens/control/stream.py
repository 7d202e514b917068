"""An answer that goes on: any number of DATA messages, sent as its reader takes them, and one END."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from condor_joblens.common.errors import printable
from condor_joblens.control import frames
from condor_joblens.control.verbs import REFUSED, SEALED

MAX_QUEUED = 262144
"""Bytes that wait here for a slow reader, besides what the kernel holds of its connection (net.core.wmem_default)."""

MAX_A_TURN = 262144
"""Bytes after which a sender waits for the next turn of the loop, however quick its reader is."""

PATIENCE = 30.0
"""Seconds for which a reader can take nothing although something waits for it."""


class Seals(Protocol):
    """Makes messages that nobody can read or change who only carries them (sealed_answers.py)."""

    @property
    def header(self) -> bytes:
        """What is sent first."""

    def seal(self, message: bytes, *, is_last: bool = False) -> bytes:
        """The next message as it is sent."""


class Stream:
    """The server's end. It is over when `end` or `refuse` is called, when its reader leaves, or is too slow."""

    def __init__(
        self,
        connection: socket.socket,
        selector: selectors.BaseSelector,
        granted: str,
        on_close: Callable[[Stream], object],
    ) -> None:
        """Takes a connection over, which does not block. `on_close` is called once, when that is closed."""
        self.is_open = True
        self.uid = -1
        """In whose place it is, among the streams of the server."""
        self.on_room: Callable[[], object] = lambda: None
        """Called when there is room again."""
        self.on_close: Callable[[], object] = lambda: None
        """Called when the reader has left or was too slow: nothing that is sent arrives from then on."""
        self._connection, self._selector, self._granted, self._closed = connection, selector, granted, on_close
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._this_turn = 0  # bytes that the kernel has taken since there was room last
        self._waits = False  # for the loop to say that the connection can be written
        self._ends = False
        self._sealer: Seals | None = None
        self._stuck_since = 0.0  # CLOCK_MONOTONIC; meaningful while something waits
        self._selector.register(connection, selectors.EVENT_READ, self._ready)

    @property
    def has_room(self) -> bool:
        """Whether nothing waits for the reader. Who sends only then loses no stream to a slow reader."""
        return not self._waits

    def seal(self, sealer: Seals, granted: str) -> None:
        """From now on all is sealed, the end too: a byte for DATA or END, then the message. `granted` ends it well.

        What is sealed comes in DATA messages. The END that follows says nothing: whoever carries it could change it.
        """
        self._enqueue(frames.DATA, sealer.header)
        self._sealer, self._granted = sealer, granted

    def send(self, data: bytes) -> bool:
        """Sends a DATA message of 1 to frames.MAX_ANSWER bytes; whether there is room for another one."""
        if self.is_open and not self._ends:
            sealed = data if self._sealer is None else self._sealer.seal(frames.DATA + data)
            self._enqueue(frames.DATA, sealed)
        return self.is_open and self.has_room

    def end(self, fields: Mapping[str, str]) -> None:
        """Ends the stream: all was sent that was asked for."""
        self._end(self._granted, fields)

    def refuse(self, reason: str) -> None:
        """Ends the stream: this is why there is no more."""
        self._end(REFUSED, {"reason": printable(reason, 200)})

    def close(self) -> None:
        """Closes the connection at once, whatever waits."""
        if self.is_open:
            self.is_open = False
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self._connection)
            self._connection.close()
            self._queue.clear()
            self._queued = 0
            self._closed(self)
            if not self._ends:
                self.on_close()

    def expire(self, now: float) -> None:
        """Closes the stream of a reader that takes nothing; `now` is time.monotonic()."""
        if self._queue and now - self._stuck_since > PATIENCE:
            self.close()

    def _end(self, word: str, fields: Mapping[str, str]) -> None:
        if not self.is_open or self._ends:
            return
        values = {name: value.encode("utf-8", "replace") for name, value in fields.items()}
        message = frames.encode_words(word, values)
        if self._sealer is not None:
            self._enqueue(frames.DATA, self._sealer.seal(frames.END + message, is_last=True))
            message = frames.encode_words(SEALED, {})
        if self.is_open:
            self._ends = True
            self._enqueue(frames.END, message)

    def _enqueue(self, kind: bytes, message: bytes) -> None:
        for packet in frames.frames(kind, message):
            self._queue.append(packet)
            self._queued += len(packet)
        if not self._waits:
            self._stuck_since = time.monotonic()
            self._flush()
            if self.is_open and (self._queue or self._this_turn > MAX_A_TURN):
                self._waits = True
                self._selector.modify(self._connection, selectors.EVENT_READ | selectors.EVENT_WRITE, self._ready)
        if self._queued > MAX_QUEUED:
            self.close()

    def _flush(self) -> None:
        """Sends what the kernel takes; closes the connection after the END, or if the reader has left."""
        try:
            while self._queue:
                self._connection.send(self._queue[0])
                length = len(self._queue.popleft())
                self._queued -= length
                self._this_turn += length
                self._stuck_since = time.monotonic()
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if self._ends:
            self.close()

    def _ready(self) -> None:
        """The reader has left, has said something, which it must not, or has taken something."""
        if not self.is_open:
            return
        try:
            self._connection.recv(1)
            self.close()
            return
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        if self._waits:
            self._flush()
            if self.is_open and not self._queue:
                self._waits, self._this_turn = False, 0
                self._selector.modify(self._connection, selectors.EVENT_READ, self._ready)
                self.on_room()
