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
from condor_joblens.control.audit import Audit
from condor_joblens.control.frames import FrameError
from condor_joblens.control.verbs import MOST_PACKET, REFUSED, SEALED, Refused
from condor_joblens.relay.paced_log import tell_sums
from condor_joblens.relay.relay import Relay, Waiting

OF_A_USER, AT_ONCE = 4, 64
"""Commands that go on. Of more connections than twice that nothing is read."""

PATIENCE = 5.0
"""Seconds from a connection to its whole request."""

_MOST_NAME = 512


class Local:
    """Serves the users of an access point."""

    def __init__(self, listener: socket.socket, relay: Relay, log: Callable[[str], None]) -> None:
        listener.setblocking(False)
        self._listener, self._relay = listener, relay
        self._audit = Audit(log)
        self._users: Counter[int] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """For ever."""
        try:
            await asyncio.gather(self._listen(), tell_sums(self._audit))
        finally:
            self._audit.sums(at_once=True)

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError:  # who came is gone, or there is no descriptor left for a moment
                await asyncio.sleep(0.1)
                continue
            uid = peer_of(connection)
            if self._users[uid] >= 2 * OF_A_USER or len(self._tasks) >= 2 * AT_ONCE:
                connection.close()
                continue
            self._users[uid] += 1
            task = loop.create_task(self._serve(connection, uid))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: socket.socket, uid: int) -> None:
        try:
            with connection, contextlib.suppress(OSError, asyncio.TimeoutError):
                try:
                    words = await asyncio.wait_for(request_on(connection), PATIENCE)
                    self._audit.pace(uid)
                    if self._users[uid] > OF_A_USER or len(self._tasks) > AT_ONCE:
                        raise JobLensError("too many commands go on: wait, or end one")
                    await self._carry(connection, words, uid)
                except (JobLensError, FrameError, Refused) as error:
                    self._audit.refused(uid, f"user {uid}: not carried: {error}")
                    await asyncio.wait_for(_end(connection, str(error)), PATIENCE)
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
        self._audit.granted(f"user {uid}: a warrant of {len(packet)} bytes to {printable(node, 100)}")
        number, waiting = await self._relay.carry(node.rpartition("@")[2], job, packet)
        try:
            await self._pass_on(connection, number, waiting)
        finally:
            await self._relay.cancel(number)
        await _end(connection, waiting.reason)

    async def _pass_on(self, connection: socket.socket, number: int, waiting: Waiting) -> None:
        """Until the end comes, or nobody reads any more. Raises OSError."""
        loop = asyncio.get_running_loop()
        passing = loop.create_task(self._parts(connection, number, waiting))
        gone = loop.create_task(loop.sock_recv(connection, 1))  # whoever says more has nothing to say
        try:
            await asyncio.wait({passing, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not passing.done():
                raise OSError(0, "nobody reads any more")
            passing.result()
        finally:
            for task in (passing, gone):
                task.cancel()
            await asyncio.gather(passing, gone, return_exceptions=True)

    async def _parts(self, connection: socket.socket, number: int, waiting: Waiting) -> None:
        """Hands each over as its reader takes it. Raises OSError."""
        while (part := await waiting.parts.get()) is not None:
            for frame in frames.frames(frames.DATA, part):
                await asyncio.get_running_loop().sock_sendall(connection, frame)
            await self._relay.taken(number)


def peer_of(connection: socket.socket) -> int:
    """User id of who has connected, as the kernel tells it."""
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(uid)


async def request_on(connection: socket.socket) -> frames.Words:
    """The whole request of who has connected. Raises OSError, FrameError."""
    return frames.decode_words(await message_on(connection))


async def message_on(connection: socket.socket) -> bytes:
    """The same as it has come. Raises OSError, FrameError."""
    assembler, loop = frames.Assembler(frames.REQUEST, frames.MAX_REQUEST), asyncio.get_running_loop()
    while data := await loop.sock_recv(connection, frames.MAX_PACKET + 1):
        if (found := assembler.add(data)) is not None:
            return found[1]
    raise OSError(0, "no request")


async def send_end(connection: socket.socket, message: bytes) -> None:
    """An answer's end. Raises OSError."""
    for frame in frames.frames(frames.END, message):
        await asyncio.get_running_loop().sock_sendall(connection, frame)


async def _end(connection: socket.socket, reason: str) -> None:
    await send_end(connection, refusal(reason) if reason else frames.encode_words(SEALED, {}))


def refusal(reason: str) -> bytes:
    """The message of an end that refuses."""
    return frames.encode_words(REFUSED, {"reason": printable(reason, 300).encode()})
