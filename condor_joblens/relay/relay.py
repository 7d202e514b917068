"""A relay's end of its one WebSocket to the site's relay server. No relay listens for a network.

If it is down, commands from afar fail, and nothing else does. It connects again after a random time, so that a
thousand relays do not come at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from condor_joblens.common.errors import JobLensError
from condor_joblens.control.frames import FrameError
from condor_joblens.relay import carried, messages
from condor_joblens.relay.messages import CANCEL, CARRY, DATA, END, Message

HEARTBEAT = 45.0
AGAIN_SECONDS = 1.0, 30.0
"""The shortest and the longest time to the next attempt."""

MOST_AT_ONCE = 4
"""Commands on a node that go on."""


@dataclass
class Waiting:
    """A command of a user of this access point."""

    parts: asyncio.Queue[bytes | None] = field(default_factory=lambda: asyncio.Queue(64))  # None: the end
    reason: str = "the connection to the relay server was lost"


class Relay:
    """A relay's end of the connection."""

    def __init__(self, url: str, token: str, joblensd: str, log: Callable[[str], None]) -> None:
        """`joblensd` is the path of the control socket; empty on an access point without one."""
        self._url, self._token, self._joblensd, self._log = url, token, joblensd, log
        self._connection: ClientConnection | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._waiting: dict[int, Waiting] = {}
        self._numbers = itertools.count(1)

    async def run(self) -> None:
        """For ever."""
        said = ""
        while True:
            why = "the server has ended the connection"
            try:
                await self._connected()
                said = ""
            except (OSError, WebSocketException, FrameError, TimeoutError) as error:
                why = str(error) or type(error).__name__
            if why != said:
                self._log(f"no connection to {self._url} ({why}): tried again within {AGAIN_SECONDS[1]:.0f} s")
                said = why
            await asyncio.sleep(random.uniform(*AGAIN_SECONDS))

    async def _connected(self) -> None:
        headers = {"Authorization": f"Bearer {self._token}"}
        async with connect(
            self._url, additional_headers=headers, compression=None, max_size=messages.MAX_BYTES,
            ping_interval=HEARTBEAT, ping_timeout=HEARTBEAT, user_agent_header=None,
        ) as connection:  # fmt: skip
            self._connection = connection
            self._log(f"connected to {self._url}")
            try:
                async for data in connection:
                    self._take(messages.decoded(data))
            finally:
                self._connection = None
                for task in self._tasks.values():
                    task.cancel()
                for waiting in self._waiting.values():
                    _put(waiting, None)
                self._waiting.clear()

    def _take(self, message: Message) -> None:
        if message.word == CARRY:
            self._begin(message)
        elif message.word == CANCEL and message.number in self._tasks:
            self._tasks[message.number].cancel()
        elif message.word in (DATA, END) and (waiting := self._waiting.get(message.number)) is not None:
            if message.word == END:
                waiting.reason = message.text("reason")
            _put(waiting, message.fields.get("Data", b"") if message.word == DATA else None)

    # -- on a node --------------------------------------------------------------------------------------------

    def _begin(self, message: Message) -> None:
        task = asyncio.get_running_loop().create_task(self._carry(message))
        self._tasks[message.number] = task
        task.add_done_callback(lambda _: self._tasks.pop(message.number, None))

    async def _carry(self, message: Message) -> None:
        reason = ""
        try:
            if not self._joblensd or len(self._tasks) > MOST_AT_ONCE:
                raise JobLensError("too many commands go on here" if self._joblensd else "this is no node")
            async for part in carried.answers(
                self._joblensd, message.fields.get("Job", b""), message.fields.get("Packet", b"")
            ):
                await self._say(Message(DATA, message.number, {"Data": part}))
        except JobLensError as error:
            reason = str(error)
        await self._say(messages.end(message.number, reason))

    async def _say(self, message: Message) -> None:
        if self._connection is not None:
            with contextlib.suppress(WebSocketException):
                await self._connection.send(message.encoded())

    # -- on an access point -----------------------------------------------------------------------------------

    async def carry(self, node: str, job: str, packet: bytes) -> tuple[int, Waiting]:
        """Hands a warrant over; its answer comes as `parts`. Raises JobLensError."""
        if self._connection is None:
            raise JobLensError("this access point has no connection to its relay server: JobLensRelayLog says why")
        number = next(self._numbers) & 0xFFFFFFFF
        waiting = self._waiting[number] = Waiting()
        fields = {"Node": node.encode(), "Job": job.encode(), "Packet": packet}
        await self._say(Message(CARRY, number, fields))
        return number, waiting

    async def cancel(self, number: int) -> None:
        """Nobody waits for it any more."""
        if self._waiting.pop(number, None) is not None:
            await self._say(Message(CANCEL, number))


def _put(waiting: Waiting, part: bytes | None) -> None:
    try:
        waiting.parts.put_nowait(part)
    except asyncio.QueueFull:  # who reads too slowly gets the end at once, and knows by the seals that it is none
        waiting.parts.get_nowait()
        waiting.reason = "it is not read as fast as it comes"
        waiting.parts.put_nowait(None)
