"""The socket over which a job's wrapper tells that the job is about to start, and people change a job's level.

Unix SOCK_SEQPACKET; a request is one packet of NUL-terminated fields, and so is its answer:

    joblens/1 NUL activate NUL slot=slot1_1 NUL scratch=/var/lib/condor/execute/dir_123/scratch NUL
    joblens/1 NUL traced NUL level=basic NUL       or       joblens/1 NUL refused NUL reason=... NUL

    joblens/1 NUL level NUL job=12.0 NUL level=io NUL for=600 NUL       (or clear=1; with neither it only asks)
    joblens/1 NUL done NUL job=12.0 NUL level=io NUL policy=by hand NUL reason=by alice until 14:05 NUL

Who asks is known from SO_PEERCRED alone; what the packet says beyond the verb are claims. Everybody on the
machine can connect, so a connection gets one answer within `PATIENCE` seconds or is closed, and the oldest is closed
when there are too many.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import socket
import struct
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from condor_joblens.common.errors import JobLensError, printable

PROTOCOL = b"joblens/1"
MAX_REQUEST_BYTES = 4096
MAX_ANSWER_BYTES = 512
MAX_CONNECTIONS = 256
PATIENCE = 1.0
BACKLOG = 1024
_SO_PASSRIGHTS = 83  # include/uapi/asm-generic/socket.h

VERBS = {"activate": "traced", "level": "done"}
"""What can be asked, and the word with which it is granted."""


@dataclass(frozen=True)
class Request:
    """What a process said, and who it is."""

    verb: str
    claims: dict[str, str]
    pid: int
    uid: int


class Refused(Exception):
    """Why a request is not granted, in words for its sender."""


Handler = Callable[[Request], dict[str, str]]
"""Answers a request, whose verb is one of VERBS, with the fields after the word that grants it, or raises Refused."""


class ActivationSocket:
    """Serves requests from within a selectors loop; one slow or hostile client delays nobody."""

    def __init__(self, path: str, selector: selectors.BaseSelector, handler: Handler) -> None:
        """Listens at `path`, for everybody on the machine. Raises JobLensError where another one does."""
        self._path = path
        self._selector = selector
        self._handler = handler
        self._connections: OrderedDict[socket.socket, float] = OrderedDict()
        if _somebody_listens(path):
            raise JobLensError(f"{path} is served already: another joblensd runs on this machine; stop one of the two")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            self._socket.bind(path)
            os.chmod(path, 0o666)
            # Whoever sends a descriptor decides how long its close takes us. Before Linux 6.16 it can't be refused.
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)
            self._socket.listen(BACKLOG)
        except OSError as error:
            raise JobLensError(f"{path} can't be made: {error.strerror}; jobs run unwatched") from None
        selector.register(self._socket, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        """Stops listening and removes the socket."""
        for connection in list(self._connections):
            self._drop(connection)
        self._selector.unregister(self._socket)
        self._socket.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def expire(self, now: float) -> None:
        """Closes the connections that have said nothing for PATIENCE seconds; `now` is time.monotonic()."""
        while self._connections:
            connection, since = next(iter(self._connections.items()))
            if now - since < PATIENCE and len(self._connections) <= MAX_CONNECTIONS:
                break
            self._drop(connection)

    def _accept(self) -> None:
        now = time.monotonic()
        # a bounded number a turn: who floods us must not keep the loop from its other work
        for _ in range(64):
            try:
                connection, _ = self._socket.accept()
            except OSError:
                break
            connection.setblocking(False)
            self._connections[connection] = now
            if not self._serve(connection):
                self._selector.register(connection, selectors.EVENT_READ, lambda it=connection: self._serve_later(it))
        self.expire(now)

    def _serve_later(self, connection: socket.socket) -> None:
        if connection in self._connections:
            self._serve(connection)

    def _serve(self, connection: socket.socket) -> bool:
        """Answers what has come; False where nothing has yet."""
        try:
            packet = connection.recv(MAX_REQUEST_BYTES + 1)
        except BlockingIOError:
            return False
        except OSError:
            self._drop(connection)
            return True
        # who has hung up is gone, and its process id may be another's by now
        if packet and not _hung_up(connection):
            answer = self._answer(connection, packet)
            with contextlib.suppress(OSError):
                connection.send(answer)
        self._drop(connection)
        return True

    def _answer(self, connection: socket.socket, packet: bytes) -> bytes:
        try:
            pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            request = parse(packet, pid, uid)
            if request.verb not in VERBS:
                raise Refused(f"no such verb: {request.verb[:20]}")
            return pack(VERBS[request.verb], self._handler(request))
        except Refused as refusal:
            return pack("refused", {"reason": printable(str(refusal), 200)})

    def _drop(self, connection: socket.socket) -> None:
        self._connections.pop(connection, None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection)
        connection.close()


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


def parse(packet: bytes, pid: int, uid: int) -> Request:
    """The request in a packet. Raises Refused with what is wrong with it."""
    if len(packet) > MAX_REQUEST_BYTES:
        raise Refused(f"a request has at most {MAX_REQUEST_BYTES} bytes")
    if not packet.endswith(b"\0"):
        raise Refused("a request is NUL-terminated fields")
    fields = packet[:-1].split(b"\0")
    if fields[0] != PROTOCOL:
        raise Refused(f"the protocol is {PROTOCOL.decode()}")
    if len(fields) < 2:
        raise Refused("a request has a verb")
    claims = {}
    for field in fields[2:]:
        name, equals, value = field.partition(b"=")
        if equals:
            claims[name.decode("utf-8", "replace")] = value.decode("utf-8", "surrogateescape")
    return Request(fields[1].decode("utf-8", "replace"), claims, pid, uid)


def pack(verb: str, fields: dict[str, str]) -> bytes:
    """An answer as its packet; what would be too long is cut."""
    parts = [PROTOCOL.decode(), verb, *(f"{name}={value}" for name, value in fields.items())]
    packet = b"".join(part.replace("\0", "").encode("utf-8", "replace") + b"\0" for part in parts)
    return packet if len(packet) <= MAX_ANSWER_BYTES else packet[: MAX_ANSWER_BYTES - 1] + b"\0"
