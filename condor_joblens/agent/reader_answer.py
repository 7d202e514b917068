"""What a process answers that makes artifacts of recorded data (tracing/recorder_reader.py)."""

from __future__ import annotations

import socket

_PACKET = 1 << 16


class ReaderAnswer:
    """It comes in packets: first how many bytes there are, then all of them."""

    def __init__(self, channel: socket.socket, most: int) -> None:
        """`most` bytes are taken; the channel does not block."""
        self._channel, self._most = channel, most
        self._length, self._said = -1, b""

    def receive(self) -> bytes | None:
        """The whole answer, empty if it fails; None: there is more to come."""
        try:
            packet = self._channel.recv(_PACKET)
        except BlockingIOError:
            return None
        except OSError:
            packet = b""
        if packet and self._length < 0:
            self._length = int(packet) if len(packet) < 10 and packet.isdigit() else 0
        else:
            self._said += packet
        if packet and len(self._said) <= min(self._length, self._most):
            return None
        return self._said if len(self._said) == self._length else b""
