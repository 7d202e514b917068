"""The socket of an access point's relay, on which its users hand over a warrant, and get what comes back.

In frames of joblens/2. The request is `warrant` with packet, job and node; the answer is DATA, and an END. Everybody on
the access point can connect, so each user has a few commands at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import Counter
from collections.abc import Callable

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.control import frames
from condor_joblens.control.frames import FrameError
from condor_joblens.control.verbs import MOST_PACKET, REFUSED, SEALED
from condor_joblens.relay.relay import Relay, Waiting

OF_A_USER, AT_ONCE = 4, 64
"""Commands that go on."""

PATIENCE = 5.0
"""Seconds from a connection to its whole request."""

_MOST_NAME = 512


class Local:
    """Serves the users of an access point."""

    def __init__(self, listener: socket.socket, relay: Relay, log: Callable[[str], None]) -> None:
        listener.setblocking(False)
        self._listener, self._relay, self._log = listener, relay, log
        self._users: Counter[int] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """For ever."""
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(self._listener)
            task = loop.create_task(self._serve(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: socket.socket) -> None:
        _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        self._users[uid] += 1
        try:
            with connection, contextlib.suppress(OSError, asyncio.TimeoutError):
                words = await asyncio.wait_for(_request(connection), PATIENCE)
                try:
                    if self._users[uid] > OF_A_USER or sum(self._users.values()) > AT_ONCE:
                        raise JobLensError("too many commands go on: wait, or end one")
                    await self._carry(connection, words, uid)
                except (JobLensError, FrameError) as error:
                    await _end(connection, str(error))
        finally:
            self._users[uid] -= 1
            if not self._users[uid]:
                del self._users[uid]

    async def _carry(self, connection: socket.socket, words: frames.Words, uid: int) -> None:
        """Raises JobLensError, FrameError, OSError."""
        names = [words.fields.get(name, b"").decode("utf-8", "replace") for name in ("job", "node")]
        packet = words.fields.get("packet", b"")
        if (
            words.word != "warrant"
            or not 0 < len(packet) <= MOST_PACKET
            or not all(0 < len(n) <= _MOST_NAME for n in names)
        ):
            raise FrameError("only warrants are carried, each with its job and node")
        job, node = names
        self._log(f"user {uid}: a warrant of {len(packet)} bytes to {printable(node, 100)}")
        number, waiting = await self._relay.carry(node.rpartition("@")[2], job, packet)
        try:
            await _pass_on(connection, waiting)
        finally:
            await self._relay.cancel(number)
        await _end(connection, waiting.reason)


async def _request(connection: socket.socket) -> frames.Words:
    """Raises OSError, FrameError."""
    assembler, loop = frames.Assembler(frames.REQUEST, frames.MAX_REQUEST), asyncio.get_running_loop()
    while data := await loop.sock_recv(connection, frames.MAX_PACKET + 1):
        if (found := assembler.add(data)) is not None:
            return frames.decode_words(found[1])
    raise OSError(0, "no request")


async def _pass_on(connection: socket.socket, waiting: Waiting) -> None:
    """Until the end comes, or nobody reads any more. Raises OSError."""
    loop = asyncio.get_running_loop()
    gone = loop.create_task(loop.sock_recv(connection, 1))
    try:
        while True:
            part = loop.create_task(waiting.parts.get())
            done, _ = await asyncio.wait({part, gone}, return_when=asyncio.FIRST_COMPLETED)
            if part not in done:
                part.cancel()
                raise OSError(0, "nobody reads any more")
            data = part.result()
            if data is None:
                return
            for frame in frames.frames(frames.DATA, data):
                await loop.sock_sendall(connection, frame)
    finally:
        gone.cancel()
        with contextlib.suppress(asyncio.CancelledError, OSError):
            await gone


async def _end(connection: socket.socket, reason: str) -> None:
    loop = asyncio.get_running_loop()
    word, fields = (REFUSED, {"reason": printable(reason, 300).encode()}) if reason else (SEALED, {})
    for frame in frames.frames(frames.END, frames.encode_words(word, fields)):
        await loop.sock_sendall(connection, frame)
