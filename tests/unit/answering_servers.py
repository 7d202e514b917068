"""Servers that answer whatever a test says, right or wrong."""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

Answer = Callable[[], Iterator[bytes]]
"""The pieces of an answer; it may have no end."""

Talk = Callable[[socket.socket], None]
"""All that a server says on one connection; the connection is closed after that."""


@contextlib.contextmanager
def answering_servers() -> Iterator[Callable[[Answer], str]]:
    """Gives a function that starts a server which answers so to what comes first; it returns HOST:PORT."""
    with talking_servers() as start:
        yield lambda answer: start(functools.partial(_answer, answer))


@contextlib.contextmanager
def talking_servers() -> Iterator[Callable[[Talk], str]]:
    """Gives a function that starts a server which talks so on each connection; it returns HOST:PORT."""
    listening: list[socket.socket] = []

    def start(talk: Talk) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        listening.append(server)
        threading.Thread(target=_accept, args=(server, talk), daemon=True).start()
        return f"127.0.0.1:{server.getsockname()[1]}"

    yield start
    for server in listening:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def with_peak(work: Callable[[], T]) -> tuple[T, int]:
    """What `work` returns, and how many bytes Python's objects took at most meanwhile."""
    tracemalloc.start()
    try:
        return work(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _accept(server: socket.socket, talk: Talk) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=_talk, args=(connection, talk), daemon=True).start()


def _talk(connection: socket.socket, talk: Talk) -> None:
    with connection, contextlib.suppress(OSError):
        talk(connection)


def _answer(answer: Answer, connection: socket.socket) -> None:
    connection.recv(1 << 16)
    for piece in answer():
        connection.sendall(piece)
    connection.shutdown(socket.SHUT_WR)
    while connection.recv(1 << 16):  # closed with something unread, the answer could be lost
        pass
