"""The control socket within joblensd's loop. One slow or hostile client delays nobody.

Who asks is known from SO_PEERCRED alone; what the request says is claims. Everybody on the machine can connect, so
everything is bounded, and each user has a share of the time. A request is whole within `PATIENCE` seconds, or its
connection is closed. If there are too many connections, the oldest is closed. Whoever does not read a stream loses it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import selectors
import socket
import struct
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from condor_joblens.common import descriptors
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.control import frames
from condor_joblens.control.frames import Assembler, FrameError, Words
from condor_joblens.control.stream import Stream
from condor_joblens.control.user_turns import Share, Unlimited, UserTurns
from condor_joblens.control.verbs import REFUSED, VERBS, Refused, Request, WithFile, understand

MAX_CONNECTIONS = 256
"""Connections whose request has not been answered."""

MAX_STREAMS = 128
MAX_STREAMS_OF_A_USER = 8

MAX_UNFINISHED_OF_A_USER = 4
"""Requests of which a part has come; each can hold frames.MAX_REQUEST bytes."""

PATIENCE = 1.0
"""Seconds from a connection to its whole request."""

BACKLOG = 1024
SERVED_A_TURN = 8
"""Connections that are accepted, or served after they had to wait, before joblensd looks for what is more urgent."""

_Result = TypeVar("_Result")


class Commands(Protocol):
    """Does what is asked for. Both raise Refused."""

    def answer(self, request: Request) -> Mapping[str, str]:
        """The fields after the word that grants."""

    def stream(self, request: Request, stream: Stream) -> None:
        """Begins to answer: now or later it calls `stream.send`, and at last `stream.end`."""


class ControlServer:
    """Serves requests from within a selectors loop, whose keys carry what is to be called."""

    def __init__(
        self,
        path: str,
        selector: selectors.BaseSelector,
        commands: Commands,
        log: Callable[[str], None],
        share_of_a_user: Callable[[], Share] = Unlimited,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Listens at `path`, for everybody on the machine. What a request takes is told by `clock`, in seconds.

        Raises JobLensError if another one listens there.
        """
        self._clock = clock
        self._path = path
        self._turns = UserTurns(share_of_a_user)
        self._selector = selector
        self._commands = commands
        self._log = log
        self._connections: OrderedDict[socket.socket, float] = OrderedDict()  # without an answer -> since when
        self._registered: set[socket.socket] = set()  # those of which the selector knows
        self._unfinished: dict[
            socket.socket, tuple[int, Assembler]
        ] = {}  # those of which a part has come; with the uid
        self._streams: set[Stream] = set()
        self._next_look = 0.0  # CLOCK_MONOTONIC at which streams are looked at for readers that take nothing
        if _somebody_listens(path):
            raise JobLensError(f"{path} is served already: another joblensd runs on this machine; stop one of the two")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            self._socket.bind(path)
            os.chmod(path, 0o666)
            descriptors.refuse(self._socket)
            self._socket.listen(BACKLOG)
        except OSError as error:
            raise JobLensError(f"{path} can't be made: {error.strerror}; jobs run unwatched") from None
        # it does not keep the socket open, as another process's copy of that would: it is readable, and no more
        self.callers = select.epoll()
        self.callers.register(self._socket, select.EPOLLIN)
        selector.register(self._socket, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        """Stops listening, ends all streams, and removes the socket."""
        for stream in list(self._streams):
            stream.refuse("joblensd stops")
            stream.close()
        for connection in list(self._connections):
            self._drop(connection)
        self._selector.unregister(self._socket)
        self.callers.close()
        self._socket.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def expire(self, now: float) -> None:
        """Closes the connections that have waited too long, on either side; `now` is time.monotonic()."""
        while self._connections:
            connection, since = next(iter(self._connections.items()))
            if now - since < PATIENCE and len(self._connections) <= MAX_CONNECTIONS:
                break
            self._drop(connection)
        if now >= self._next_look:
            self._next_look = now + 1.0
            for stream in list(self._streams):
                stream.expire(now)

    def resume(self, now: float) -> None:
        """Serves those whose users had had their share and have time again; `now` is time.monotonic()."""
        for connection, uid in itertools.islice(self._turns.due(now), SERVED_A_TURN):
            self._take(connection, uid, self._clock())

    def timeout(self, now: float) -> float:
        """Seconds until `resume` has something to do."""
        return self._turns.timeout(now)

    def _accept(self) -> None:
        now = time.monotonic()
        # a bounded number a turn: who floods us must not keep the loop from its other work
        for _ in range(SERVED_A_TURN):
            began = self._clock()
            try:
                connection, _ = self._socket.accept()
            except OSError:
                break
            connection.setblocking(False)
            self._connections[connection] = now
            self._take(connection, _peer(connection)[1], began)
        self.expire(now)

    def _take(self, connection: socket.socket, uid: int, began: float) -> None:
        """Serves the connection, now or when its user has time. All of it since `began` is his."""
        if not self._turns.must_wait(uid, connection, time.monotonic()) and not self._serve(connection):
            self._listen(connection)
        self._turns.spend(uid, began)

    def _listen(self, connection: socket.socket) -> None:
        if connection not in self._registered:
            self._selector.register(connection, selectors.EVENT_READ, lambda: self._serve_later(connection))
            self._registered.add(connection)

    def _serve_later(self, connection: socket.socket) -> None:
        if connection not in self._connections:
            return
        began, uid = self._clock(), _peer(connection)[1]
        if self._turns.must_wait(uid, connection, time.monotonic()):
            self._deafen(connection)
        else:
            self._serve(connection)
        self._turns.spend(uid, began)

    def _serve(self, connection: socket.socket) -> bool:
        """Takes one packet, and answers if the request is whole; False if more is to come."""
        try:
            packet = connection.recv(frames.MAX_PACKET + 1)
        except BlockingIOError:
            return False
        except OSError:
            packet = b""
        # who has hung up is gone, and its process id may be another's by now
        if not packet or _hung_up(connection):
            self._drop(connection)
            return True
        pid, uid = _peer(connection)
        version = 1
        try:
            version = frames.version_of(packet)
            words = frames.decode_packet(packet) if version == 1 else self._assemble(connection, packet, uid)
            if words is None:
                return False
            request = understand(words, pid, uid, version)
            if VERBS[request.verb].streams:
                self._stream(connection, request)
                return True
            self._finish(connection, version, VERBS[request.verb].granted, self._call(self._commands.answer, request))
        except (Refused, FrameError) as refusal:
            self._finish(connection, version, REFUSED, {"reason": printable(str(refusal), 200)})
        return True

    def _assemble(self, connection: socket.socket, packet: bytes, uid: int) -> Words | None:
        """The request that this packet completes; None if more packets are to come. Raises Refused, FrameError."""
        _, assembler = self._unfinished.get(connection) or (uid, Assembler(frames.REQUEST, frames.MAX_REQUEST))
        found = assembler.add(packet)
        if found is not None:
            return frames.decode_words(found[1])
        self._unfinished[connection] = uid, assembler
        if sum(user == uid for user, _ in self._unfinished.values()) > MAX_UNFINISHED_OF_A_USER:
            raise Refused(f"a user has at most {MAX_UNFINISHED_OF_A_USER} unfinished requests")
        return None

    def _stream(self, connection: socket.socket, request: Request) -> None:
        """Begins a stream, to which the connection belongs from then on. Raises Refused."""
        if len(self._streams) >= MAX_STREAMS:
            raise Refused(f"joblensd has at most {MAX_STREAMS} streams at a time")
        if sum(stream.uid == request.uid for stream in self._streams) >= MAX_STREAMS_OF_A_USER:
            raise Refused(f"a user has at most {MAX_STREAMS_OF_A_USER} streams at a time")
        self._release(connection)
        stream = Stream(connection, self._selector, VERBS[request.verb].granted, self._streams.discard)
        stream.uid = request.uid
        self._streams.add(stream)
        try:
            self._call(self._commands.stream, request, stream)
        except Refused as refusal:
            stream.refuse(str(refusal))

    def _call(self, command: Callable[..., _Result], *arguments: object) -> _Result:
        """Runs a command. Whatever it raises costs its request alone. Raises Refused."""
        try:
            return command(*arguments)
        except Refused:
            raise
        except Exception:
            self._log(f"a request failed and is refused: {traceback.format_exc()}")
            raise Refused("joblensd failed on this request: its log says how") from None

    def _finish(self, connection: socket.socket, version: int, word: str, fields: Mapping[str, str]) -> None:
        """Sends the end of an answer and closes."""
        values = {name: value.encode("utf-8", "replace") for name, value in fields.items()}
        if version == 1:
            packets = [frames.encode_packet(word, values, frames.MAX_ANSWER_1)]
        else:
            packets = list(frames.frames(frames.END, frames.encode_words(word, values)))
        with contextlib.suppress(OSError):
            for packet in packets:
                descriptors.send(connection, packet, [fields.descriptor] if isinstance(fields, WithFile) else [])
        self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        self._release(connection)
        connection.close()

    def _release(self, connection: socket.socket) -> None:
        """The connection is answered, or another's from here on."""
        self._connections.pop(connection, None)
        self._unfinished.pop(connection, None)
        self._turns.forget(connection)
        self._deafen(connection)

    def _deafen(self, connection: socket.socket) -> None:
        # most requests are there when their connection is, and their connection was never registered
        if connection in self._registered:
            self._registered.remove(connection)
            self._selector.unregister(connection)


def _peer(connection: socket.socket) -> tuple[int, int]:
    """Process and user id of who has connected, as the kernel tells them."""
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


def _hung_up(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, 0)
    return bool(poll.poll(0))


def _somebody_listens(path: str) -> bool:
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    try:
        probe.connect(path)
    except BlockingIOError:
        return True
    except OSError:
        return False
    else:
        return True
    finally:
        probe.close()
