"""Descriptors that a stranger sends along over a unix socket, to keep who closes them waiting."""

from __future__ import annotations

import os
import socket
import struct

import pytest


def lingering() -> tuple[socket.socket, socket.socket]:
    """A connection whose close would wait ten minutes for a peer that does not read, and the peer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = socket.create_connection(listener.getsockname())
        peer, _ = listener.accept()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 600))
    connection.setblocking(False)
    with pytest.raises(BlockingIOError):
        while True:
            connection.send(bytes(1 << 16))
    return connection, peer


def are_refused() -> bool:
    """Whether a socket can refuse descriptors: since Linux 6.16."""
    return tuple(int(part) for part in os.uname().release.split(".")[:2]) >= (6, 16)
