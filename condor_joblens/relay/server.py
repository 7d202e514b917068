"""The relay server: each node and each access point keeps one WebSocket open to it. It believes nobody, and has no say.

Who somebody is, his token says: the server has the SHA-256 of each. A peer's messages reach only those commands that
are its own. TLS is the affair of the site's proxy before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from condor_joblens.common import tokens as known_tokens
from condor_joblens.common.errors import printable
from condor_joblens.common.tokens import Who
from condor_joblens.control.frames import FrameError
from condor_joblens.relay import messages
from condor_joblens.relay.messages import CANCEL, CARRY, DATA, END, MORE, WINDOW, Message

HEARTBEAT = 45.0
"""Seconds between two pings: proxies close what is silent for 60."""

MOST_QUEUED = 2048
"""Messages that wait for a peer. One that reads so little is sent away."""

OF_A_NODE, OF_AN_ACCESS_POINT = 32, 64
"""Commands that go on at a time."""


@dataclass(eq=False)
class _Peer:
    who: Who
    digest: str  # of its token
    connection: ServerConnection
    queue: asyncio.Queue[Message] = field(default_factory=lambda: asyncio.Queue(MOST_QUEUED))
    asked: dict[int, tuple[_Peer, int]] = field(default_factory=dict)  # as an access point: its number -> the node's
    done: dict[int, tuple[_Peer, int]] = field(default_factory=dict)  # as a node: its number -> the access point's
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    queued: Counter[int] = field(default_factory=Counter)  # parts of answers in the queue, by this peer's number

    def send(self, message: Message) -> None:
        """Sends it when the peer takes it; one that takes nothing is sent away."""
        try:
            self.queue.put_nowait(message)
        except asyncio.QueueFull:
            self.connection.transport.abort()
            return
        if message.word == DATA:
            self.queued[message.number] += 1

    async def next(self) -> Message:
        """What is to be sent now."""
        message = await self.queue.get()
        if message.word == DATA:
            self.queued[message.number] -= 1
            if not self.queued[message.number]:
                del self.queued[message.number]
        return message


class RelayServer:
    """All that are connected, and the commands between them."""

    def __init__(self, tokens: Mapping[str, Who], log: Callable[[str], None]) -> None:
        self._tokens, self._log = tokens, log
        self._peers: set[_Peer] = set()
        self._nodes: dict[str, _Peer] = {}

    def know(self, tokens: Mapping[str, Who]) -> None:
        """From now on these tokens count, and no others: whoever has come with another one is sent away."""
        self._tokens = tokens
        for peer in self._peers:
            if tokens.get(peer.digest) != peer.who:
                peer.connection.transport.abort()

    def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> Any:
        """A context manager, in which it serves at this address."""
        return serve(
            self._serve, host, port, ssl=tls, process_request=self._admit, max_size=messages.MAX_BYTES,
            compression=None, ping_interval=HEARTBEAT, ping_timeout=HEARTBEAT, max_queue=8, server_header=None,
        )  # fmt: skip

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        digest = known_tokens.digest(token)
        who = self._tokens.get(digest) if scheme == "Bearer" else None
        if who is None:
            return connection.respond(HTTPStatus.UNAUTHORIZED, "no token that is known here\n")
        connection.who, connection.digest = who, digest
        return None

    async def _serve(self, connection: ServerConnection) -> None:
        peer = _Peer(connection.who, connection.digest, connection)
        self._peers.add(peer)
        if peer.who.is_node:
            before = self._nodes.get(peer.who.name)
            self._nodes[peer.who.name] = peer
            if before is not None:  # a connection of which only one side knows that it is over, or a second machine
                before.connection.transport.abort()
        sender = asyncio.create_task(_send(peer))
        self._log(f"{peer.who.role} {peer.who.name} is here, from {_address(connection)}")
        try:
            async for data in connection:
                self._take(peer, messages.decoded(data))
        except FrameError as error:
            self._log(f"{peer.who.role} {peer.who.name} is sent away: {error}")
        except ConnectionClosed:
            pass
        finally:
            sender.cancel()
            self._leave(peer)

    def _take(self, peer: _Peer, message: Message) -> None:
        """What a peer says. Raises FrameError for what it may not say."""
        of_access_point, of_node = peer.who.is_access_point, peer.who.is_node
        if message.word == CARRY and of_access_point:
            self._carry(peer, message)
        elif message.word == CANCEL and of_access_point:
            self._cancel(peer, message.number)
        elif message.word == MORE and of_access_point:
            node, number = peer.asked.get(message.number, (None, 0))
            if node is not None:
                node.send(Message(MORE, number))
        elif message.word == DATA and of_node:
            self._pass_on(peer, message)
        elif message.word == END and of_node:
            self._end(peer, message.number, message)
        else:
            raise FrameError(f"a {peer.who.role} does not say {message.word}")

    def _carry(self, peer: _Peer, message: Message) -> None:
        host = message.text("Node")
        node = self._nodes.get(host)
        reason = ""
        if message.number in peer.asked:
            reason = "this number is in use"
        elif len(peer.asked) >= OF_AN_ACCESS_POINT:
            reason = f"{OF_AN_ACCESS_POINT} commands of this access point go on: try again"
        elif node is None:
            reason = f"no relay of {printable(host, 100)} is connected"
        elif len(node.done) >= OF_A_NODE:
            reason = f"{OF_A_NODE} commands go on on {printable(host, 100)}: try again"
        self._log(f"{peer.who.name} to {printable(host, 100)}: {reason or 'carried'}")
        if node is None or reason:
            peer.send(messages.end(message.number, reason))
            return
        number = next(node.numbers) & 0xFFFFFFFF
        node.done[number], peer.asked[message.number] = (peer, message.number), (node, number)
        node.send(Message(CARRY, number, {name: message.fields.get(name, b"") for name in ("Job", "Packet")}))

    def _pass_on(self, node: _Peer, message: Message) -> None:
        other, number = node.done.get(message.number, (None, 0))
        if other is None:
            return
        if other.queued[number] < WINDOW:
            other.send(Message(DATA, number, {"Data": message.fields.get("Data", b"")}))
        else:
            self._cancel(other, number)
            other.send(messages.end(number, "the node sends more than it was asked for"))

    def _cancel(self, access_point: _Peer, number: int) -> None:
        """The command is over for both; the node is told so."""
        node, others_number = access_point.asked.pop(number, (None, 0))
        if node is not None:
            node.done.pop(others_number, None)
            node.send(Message(CANCEL, others_number))

    def _end(self, node: _Peer, number: int, message: Message) -> None:
        """The same; the access point is told so by `message`."""
        access_point, others_number = node.done.pop(number, (None, 0))
        if access_point is not None:
            access_point.asked.pop(others_number, None)
            access_point.send(Message(END, others_number, message.fields))

    def _leave(self, peer: _Peer) -> None:
        for number in list(peer.asked):
            self._cancel(peer, number)
        for number in list(peer.done):
            self._end(peer, number, messages.end(0, "the node's relay has left"))
        if self._nodes.get(peer.who.name) is peer:
            del self._nodes[peer.who.name]
        self._peers.discard(peer)
        self._log(f"{peer.who.role} {peer.who.name} is gone")


async def _send(peer: _Peer) -> None:
    """What is queued for it, in turn, until it leaves."""
    with contextlib.suppress(ConnectionClosed):
        while True:
            await peer.connection.send((await peer.next()).encoded())


def _address(connection: ServerConnection) -> str:
    """Where it comes from: behind a proxy, that is the proxy."""
    address = connection.remote_address
    return printable(str(address[0]), 60) if address else "somewhere"
