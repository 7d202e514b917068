"""A relay's end of its one WebSocket to the site's relay server. No relay listens for a network.

If it is down, commands from afar fail, and nothing else does. It connects again after a random time, so that a
thousand relays do not come at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.control.frames import FrameError
from condor_joblens.relay import carried, messages
from condor_joblens.relay.messages import (
    ASK,
    CANCEL,
    CARRY,
    DATA,
    END,
    ENTRIES,
    HEARTBEAT,
    MORE,
    MORE_PARTS,
    PREVIEW,
    WINDOW,
    Message,
)

AGAIN_SECONDS = 1.0, 30.0
"""The shortest and the longest time to the next attempt."""

MOST_AT_ONCE = 32
"""Commands on a node that go on."""


@dataclass
class Waiting:
    """A command of a user of this access point."""

    parts: asyncio.Queue[bytes | None] = field(default_factory=lambda: asyncio.Queue(WINDOW + 1))  # None: the end
    reason: str = "the connection to the relay server was lost"
    taken: int = 0  # parts of which the node has not heard yet that they were taken


@dataclass
class _Going:
    """A command on this node."""

    task: asyncio.Task[None]
    room: asyncio.Semaphore  # parts of its answer that may still be sent


class Relay:
    """A relay's end of the connection."""

    def __init__(
        self,
        url: str,
        token: str,
        joblensd: str,
        log: Callable[[str], None],
        tls: ssl.SSLContext | None = None,
        door: str = "",
    ) -> None:
        """`joblensd` is the path of the control socket, of a node; `door` the door's, of an access point.

        `tls` is for an `url` of wss. Without `token` the certificate that `tls` shows has to be enough.
        """
        self._url, self._token, self._joblensd, self._log, self._tls = url, token, joblensd, log, tls
        self._door = door
        self._connection: ClientConnection | None = None
        self._going: dict[int, _Going] = {}
        self._waiting: dict[int, Waiting] = {}
        self._numbers = itertools.count(1)

    @property
    def is_connected(self) -> bool:
        """Whether there is a server that has taken the token."""
        return self._connection is not None

    async def run(self) -> None:
        """For ever."""
        said = ""
        while True:
            why = "the server has ended the connection"
            try:
                await self.once()
                said = ""
            except (OSError, WebSocketException, FrameError, asyncio.TimeoutError) as error:
                why = printable(str(error) or type(error).__name__, 300)
            if why != said:
                self._log(f"no connection to {self._url} ({why}): tried again within {AGAIN_SECONDS[1]:.0f} s")
                said = why
            await asyncio.sleep(random.uniform(*AGAIN_SECONDS))

    async def once(self) -> None:
        """One connection, until the server ends it. Raises OSError, WebSocketException, FrameError, TimeoutError."""
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        async with connect(
            self._url, additional_headers=headers, compression=None, max_size=messages.MAX_BYTES, ssl=self._tls,
            ping_interval=HEARTBEAT, ping_timeout=HEARTBEAT, user_agent_header=None,
        ) as connection:  # fmt: skip
            self._connection = connection
            self._log(f"connected to {self._url}")
            try:
                async for data in connection:
                    await self._take(messages.decoded(data))
            finally:
                self._connection = None
                for going in self._going.values():
                    going.task.cancel()
                for waiting in self._waiting.values():
                    _put(waiting, None)
                self._waiting.clear()

    async def _take(self, message: Message) -> None:
        """What the server says. It can say anything: the worst is that a command fails."""
        going = self._going.get(message.number)
        if message.word == CARRY and going is None and len(self._going) >= MOST_AT_ONCE:
            # nothing more is read until the server has taken it: refusals that it leaves would pile up here
            await self._say(messages.end(message.number, "too many commands go on here"))
        elif message.word == CARRY and going is None:
            self._begin(message)
        elif message.word == CANCEL and going is not None:
            going.task.cancel()
        elif message.word == MORE and going is not None:
            for _ in range(MORE_PARTS):
                going.room.release()
        elif message.word in (DATA, END) and (waiting := self._waiting.get(message.number)) is not None:
            if message.word == END:
                waiting.reason = message.text("reason")
            _put(waiting, message.fields.get("Data", b"") if message.word == DATA else None)

    # -- on a node, and at the door of an access point ------------------------------------------------------------

    def _begin(self, message: Message) -> None:
        room = asyncio.Semaphore(WINDOW)
        task = asyncio.get_running_loop().create_task(self._carry(message, room))
        self._going[message.number] = _Going(task, room)
        task.add_done_callback(lambda _: self._going.pop(message.number, None))

    async def _carry(self, message: Message, room: asyncio.Semaphore) -> None:
        reason = ""
        try:
            async for part in self._answers(message):
                await room.acquire()
                await self._say(Message(DATA, message.number, {"Data": part}))
        except JobLensError as error:
            reason = str(error)
        await self._say(messages.end(message.number, reason))

    def _answers(self, message: Message) -> AsyncIterator[bytes]:
        """Of whom the server asks."""
        if message.text("Verb") == ASK:
            return carried.door_answer(self._door, message.fields.get("Packet", b""))
        return carried.answers(self._joblensd, *_asked(message))

    async def _say(self, message: Message) -> None:
        if self._connection is not None:
            with contextlib.suppress(WebSocketException):
                await self._connection.send(message.encoded())

    # -- of who asks: on an access point, or elsewhere ----------------------------------------------------------

    async def carry(self, node: str, job: str, packet: bytes) -> tuple[int, Waiting]:
        """Hands a warrant over; its answer comes as `parts`. Raises JobLensError."""
        return await self._hand_over(CARRY, {"Node": node.encode(), "Job": job.encode(), "Packet": packet})

    async def ask(self, access_point: str, request: bytes) -> bytes:
        """What the door of another machine answers to a request. Raises JobLensError."""
        number, waiting = await self._hand_over(ASK, {"AccessPoint": access_point.encode(), "Packet": request})
        try:
            answer = await waiting.parts.get()
            if answer is not None:
                return answer
        finally:
            await self.cancel(number)
        raise JobLensError(waiting.reason or "the access point has not answered")

    async def _hand_over(self, word: str, fields: Mapping[str, bytes]) -> tuple[int, Waiting]:
        if self._connection is None:
            raise JobLensError("this access point has no connection to its relay server: JobLensRelayLog says why")
        number = next(self._numbers) & 0xFFFFFFFF
        waiting = self._waiting[number] = Waiting()
        await self._say(Message(word, number, fields))
        return number, waiting

    async def taken(self, number: int) -> None:
        """A part of its answer has been read."""
        waiting = self._waiting.get(number)
        if waiting is not None:
            waiting.taken += 1
            if waiting.taken == MORE_PARTS:
                waiting.taken = 0
                await self._say(Message(MORE, number))

    async def cancel(self, number: int) -> None:
        """Nobody waits for it any more."""
        if self._waiting.pop(number, None) is not None:
            await self._say(Message(CANCEL, number))


def _asked(message: Message) -> tuple[str, dict[str, bytes]]:
    """What joblensd is asked for, on a node."""
    packet = {"packet": message.fields.get("Packet", b"")}
    if message.text("Verb") in (ENTRIES, PREVIEW):
        return message.text("Verb"), packet
    return "warrant", {"job": message.fields.get("Job", b""), **packet}


def _put(waiting: Waiting, part: bytes | None) -> None:
    try:
        waiting.parts.put_nowait(part)
    except asyncio.QueueFull:  # more than is under way at most: whoever reads it sees by the seals that a part is gone
        waiting.parts.get_nowait()
        waiting.reason = "more came than was asked for"
        waiting.parts.put_nowait(None)
