"""A control server in a loop of its own, as in joblensd, with commands that a test gives it."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from condor_joblens.control import frames
from condor_joblens.control.server import ControlServer
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import Refused, Request

Begin = Callable[[Request, Stream], None]


class Server:
    """Answers "basic" to everything but level trace; streams are the test's."""

    def __init__(self, path: str, begin: Begin | None = None) -> None:
        self.asked: list[Request] = []
        self.log: list[str] = []
        self.streams: list[Stream] = []
        self._begin = begin
        self._selector = selectors.DefaultSelector()
        self._wake, self._wakes = socket.socketpair()
        self._selector.register(self._wakes, selectors.EVENT_READ, self._work)
        self._jobs: list[Callable[[], Any]] = []
        self._over = False
        self.server = ControlServer(path, self._selector, self, self.log.append)
        self._thread = threading.Thread(target=self._loop)
        self._thread.start()

    def answer(self, request: Request) -> dict[str, str]:
        self.asked.append(request)
        if request.arguments.get("job") == "bug":
            raise RuntimeError("a bug")
        if request.arguments.get("level") == 4:
            raise Refused("above the site's cap")
        return {"level": "basic"}

    def stream(self, request: Request, stream: Stream) -> None:
        self.asked.append(request)
        self.streams.append(stream)
        if self._begin is not None:
            self._begin(request, stream)

    def run(self, work: Callable[[], Any]) -> Any:
        """Runs `work` in the loop's thread; gives what it returns."""
        done = threading.Event()
        results: list[Any] = []
        self._jobs.append(lambda: (results.append(work()), done.set()))
        self._wake.send(b"!")
        assert done.wait(30)
        return results[0]

    def _work(self) -> None:
        self._wakes.recv(1)
        self._jobs.pop(0)()

    def _loop(self) -> None:
        while not self._over:
            for key, _ in self._selector.select(0.05):
                key.data()
            self.server.expire(time.monotonic())

    def connections(self) -> int:
        return len(self.server._connections)

    def stop(self) -> None:
        self._over = True
        self._thread.join()
        self.server.close()
        self._wake.close()
        self._wakes.close()


def client(path: str, seconds: float = 20) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(seconds)
    connection.connect(path)
    return connection


def ask(path: str, *packets: bytes) -> bytes:
    """The packet with which the server answers these."""
    with client(path) as connection:
        for packet in packets:
            connection.send(packet)
        return connection.recv(1 << 17)


def request(verb: str, **fields: bytes) -> list[bytes]:
    """A request of version 2 in its packets."""
    return list(frames.frames(frames.REQUEST, frames.encode_words(verb, fields)))


def end_of(packet: bytes) -> frames.Words:
    """The words in an END of one packet."""
    message = frames.Assembler(frames.END, frames.MAX_ANSWER).add(packet)
    assert message is not None
    return frames.decode_words(message[1])


@contextlib.contextmanager
def servers(path: str) -> Iterator[Callable[[Begin], Server]]:
    """Makes servers at `path` whose streams begin as the test says, and stops them."""
    made: list[Server] = []

    def make(begin: Begin) -> Server:
        made.append(Server(path, begin))
        return made[-1]

    try:
        yield make
    finally:
        for server in made:
            server.stop()
