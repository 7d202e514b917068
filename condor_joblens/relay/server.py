"""The relay server: each node and each access point keeps one WebSocket open to it. It believes nobody, and has no say.

Who somebody is, his token says: the server has the SHA-256 of each. Or his certificate says it, by the word of the
site's TLS proxy. That is believed on a unix socket of its own, and nowhere else. A peer's messages reach only those
commands that are its own. TLS is the affair of the site's proxy before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import socket
import ssl
import struct
from asyncio import sslproto
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from websockets.asyncio.server import ServerConnection, serve, unix_serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from condor_joblens.common import tokens as known_tokens
from condor_joblens.common.errors import printable
from condor_joblens.common.pace import Pace
from condor_joblens.common.tokens import Who
from condor_joblens.control import frames
from condor_joblens.control.frames import FrameError
from condor_joblens.relay import messages
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
from condor_joblens.relay.paced_log import PacedLog, tell_sums

MOST_QUEUED = 2048
"""Messages that wait for a peer. One that reads so little is sent away."""

MOST_REASONS = 20
"""Nodes that are named because they do not take entries."""

OF_A_NODE, OF_AN_ACCESS_POINT = 32, 64
"""Commands that go on at a time."""

OF_BOTH = 24
"""Of one access point on one node: no access point takes all places of a node."""

OF_A_REMOTE, OF_REMOTES = 4, 8
"""Commands of one who asks from elsewhere, and of all of them on one node, or at one access point's door."""

IN_A_ROW, A_SECOND = 30, 1.0
"""Requests to doors that one of them may have after a pause, and from then on; a command is two of these. A door takes
twice as many from afar (accesspoint/from_afar.py), so no one of them keeps all others waiting. And so many warrants."""

CONNECTIONS = 4
"""Of an access point, or of who asks from elsewhere: of more, the oldest is closed."""

STRANGERS, MOST_STRANGERS = 256, 2048
"""Connections that have not shown a token yet. Of more than the first, the oldest is closed if it has been one for
PATIENCE; of more than the second, in any case. A rush of peers is served, though none was read when the next one came.
"""

PATIENCE = 5.0
"""Seconds. None has more than OPEN_SECONDS."""

OPEN_SECONDS = 10.0
"""For the TLS handshake, and for the head of the request."""


_READ_BYTES = 32 << 10
_LOOK_SECONDS = 0.05
"""Of one read from TLS. For the 256 KiB that asyncio has, each connection would have that memory from its beginning."""

_REMOTE = "remote "
"""How the source of a peer begins that is no machine of the site."""

VERIFIED, SUBJECT = "X-Client-Verify", "X-Client-Subject"
"""Headers of the site's proxy: what nginx calls $ssl_client_verify and $ssl_client_s_dn."""


@dataclass
class _Asked:
    """A command, as who asks knows it."""

    node: _Peer  # or an access point, at its door
    number: int  # the node's
    parts: int = 0  # of the answer, for which the access point has not asked for more


@dataclass(eq=False)
class _Peer:
    who: Who
    digest: str  # of its token; empty: it has a certificate
    connection: ServerConnection
    queue: asyncio.Queue[Message] = field(default_factory=lambda: asyncio.Queue(MOST_QUEUED))
    asked: dict[int, _Asked] = field(default_factory=dict)  # as an access point, by its number
    done: dict[int, tuple[_Peer, int]] = field(default_factory=dict)  # as a node: its number -> the access point's
    left: dict[int, str] = field(
        default_factory=dict
    )  # as a node: of what it is yet to hear that nobody waits, for whom
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    counting: tuple[int, asyncio.Future[bytes]] | None = None  # the number of a question, and its answer
    telling: int | None = None  # the number of the list of entries that is on its way to it
    is_behind: bool = False  # there is a later list than the one that is on its way
    refusal: str | None = None  # why it did not take the last one; empty: it has; None: it has not answered yet
    was_asked: bool = False  # as an access point, for somebody who is elsewhere
    queued: Counter[int] = field(default_factory=Counter)  # parts of answers in the queue, by this peer's number

    @property
    def source(self) -> str:
        """What tells it from others: its token, or the name in its certificate. Of remotes it begins with _REMOTE."""
        if self.who.is_remote:
            return f"{_REMOTE}{self.digest}"
        return self.digest or f"{self.who.role} {self.who.name}"

    def places(self, source: str = "") -> int:
        """Places of this node that are taken; by the access point with this source, if one is given."""
        return self._taken.count(source) if source else len(self._taken)

    @property
    def remotes_places(self) -> int:
        """Places that people elsewhere have."""
        return sum(source.startswith(_REMOTE) for source in self._taken)

    @property
    def _taken(self) -> list[str]:
        """By whom."""
        return [*(other.source for other, _ in self.done.values()), *self.left.values()]

    @property
    def may_be_told_again(self) -> bool:
        """Whether it has answered, and has not taken the last list."""
        return self.telling is None and self.refusal != ""

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
        elif message.word == CANCEL:
            self.left.pop(message.number, None)
        return message


class RelayServer:
    """All that are connected, and the commands between them."""

    def __init__(self, tokens: Mapping[str, Who], log: Callable[[str], None]) -> None:
        self._tokens, self._log = tokens, log
        self._paced = PacedLog(log)
        self._pace = Pace(IN_A_ROW, A_SECOND)
        self._strangers: dict[ServerConnection, float] = {}  # in the order in which they came, and when
        self._peers: dict[_Peer, None] = {}  # in the order in which they came
        self._alike: dict[str, list[_Peer]] = {}  # those of one source, in the order in which they came
        self._nodes: dict[str, _Peer] = {}
        self.entries: Callable[[], bytes] | None = None
        """The list of entries, signed now; None: this server has none."""

    def know(self, tokens: Mapping[str, Who]) -> None:
        """From now on these tokens count, and no others: whoever has come with another one is sent away."""
        self._tokens = tokens
        for peer in self._peers:
            if self._who(peer.digest, peer.who.name) != peer.who:
                peer.connection.transport.abort()

    def _who(self, digest: str, name: str) -> Who | None:
        return self._tokens.get(digest) if digest else known_tokens.by_certificate(self._tokens, name)

    def start_for_proxy(self, listener: socket.socket, uid: int) -> Any:
        """A context manager, in which it serves the site's proxy, whose user id this is, at this unix socket."""
        connection: Any = functools.partial(_Connection, self._strangers)
        return unix_serve(
            self._serve, sock=listener, process_request=functools.partial(self._admit, proxy=uid),
            max_size=messages.MAX_BYTES, compression=None, ping_interval=HEARTBEAT, ping_timeout=HEARTBEAT,
            max_queue=8, server_header=None, open_timeout=OPEN_SECONDS, create_connection=connection,
        )  # fmt: skip

    def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> Any:
        """A context manager, in which it serves at this address."""
        connection: Any = functools.partial(_Connection, self._strangers)
        return serve(
            self._serve, host, port, ssl=tls, process_request=self._admit, max_size=messages.MAX_BYTES,
            compression=None, ping_interval=HEARTBEAT, ping_timeout=HEARTBEAT, max_queue=8, server_header=None,
            open_timeout=OPEN_SECONDS, create_connection=connection,
        )  # fmt: skip

    def _admit(self, connection: ServerConnection, request: Request, proxy: int | None = None) -> Response | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        digest, name = known_tokens.digest(token) if scheme else "", ""
        if not scheme and proxy is not None and _uid_of(connection) == proxy:
            name = _certified(request)
        who = self._who(digest, name) if scheme == "Bearer" or name else None
        if who is None:
            return connection.respond(HTTPStatus.UNAUTHORIZED, "no token or certificate that is known here\n")
        connection.who, connection.digest = who, digest
        self._strangers.pop(connection, None)
        return None

    async def _serve(self, connection: ServerConnection) -> None:
        peer = _Peer(connection.who, connection.digest, connection)
        self._come(peer)
        sender = asyncio.create_task(_send(peer))
        self._tell(peer, f"{peer.who.role} {peer.who.name} is here, from {_address(connection)}")
        if peer.who.is_node and self.entries is not None:
            _tell_entries(peer, self.entries())
        try:
            async for data in connection:
                self._take(peer, messages.decoded(data))
        except FrameError as error:
            self._tell(peer, f"{peer.who.role} {peer.who.name} is sent away: {error}")
        except ConnectionClosed:
            pass
        finally:
            sender.cancel()
            self._leave(peer)

    def _take(self, peer: _Peer, message: Message) -> None:
        """What a peer says. Raises FrameError for what it may not say."""
        asks, answers = peer.who.is_access_point or peer.who.is_remote, peer.who.is_node or peer.was_asked
        if message.word == CARRY and asks:
            self._carry(peer, message)
        elif message.word == ASK and peer.who.is_remote:
            self._ask(peer, message)
        elif message.word == CANCEL and asks:
            self._cancel(peer, message.number)
        elif message.word == MORE and asks:
            self._more(peer, message.number)
        elif message.word == DATA and answers:
            self._pass_on(peer, message)
        elif message.word == END and answers:
            self._end(peer, message.number, message)
        else:
            raise FrameError(f"a {peer.who.role} does not say {message.word}")

    def _carry(self, peer: _Peer, message: Message) -> None:
        host = message.text("Node")
        node = self._nodes.get(host)
        reason = self._why_not(peer, message)
        if not reason and node is None:
            reason = f"no relay of {printable(host, 100)} is connected"
        elif not reason and node is not None and _is_full(node, peer):
            reason = f"{node.places()} commands go on on {printable(host, 100)}: try again"
        fields = {name: message.fields.get(name, b"") for name in ("Job", "Packet")}
        self._hand_over(peer, message.number, host, node, reason, fields)

    def _ask(self, peer: _Peer, message: Message) -> None:
        """Somebody elsewhere asks the door of an access point."""
        host, packet = message.text("AccessPoint"), message.fields.get("Packet", b"")
        reason = self._why_not(peer, message)
        access_point = None if reason else self._access_point(host)
        if not reason and access_point is None:
            reason = f"no relay of the access point {printable(host, 100)} is connected"
        elif not reason and access_point is not None and _is_full(access_point, peer):
            reason = f"{access_point.remotes_places} requests wait at {printable(host, 100)}: try again"
        elif not reason and not 0 < len(packet) <= frames.MAX_REQUEST:
            reason = "this is no request"
        if access_point is not None and not reason:
            access_point.was_asked = True
        self._hand_over(peer, message.number, host, access_point, reason, {"Verb": ASK.encode(), "Packet": packet})

    def _access_point(self, host: str) -> _Peer | None:
        """The connection that has come last of those with this name."""
        known = (each for each in reversed(self._peers) if each.who.is_access_point and each.who.name == host)
        return next(known, None)

    def _why_not(self, peer: _Peer, message: Message) -> str:
        """Why nothing more is carried for this peer; empty if it is."""
        most = OF_A_REMOTE if peer.who.is_remote else OF_AN_ACCESS_POINT
        if message.number in peer.asked:
            return "this number is in use"
        if len(peer.asked) >= most:
            whose = "of yours" if peer.who.is_remote else "of this access point"
            return f"{most} commands {whose} go on: try again"
        if peer.who.is_remote and not self._pace.may(f"{message.word} {peer.source}"):
            return f"you have asked for {IN_A_ROW} things: from now on {A_SECOND:g} a second"
        return ""

    def _hand_over(
        self, peer: _Peer, number: int, host: str, other: _Peer | None, reason: str, fields: Mapping[str, bytes]
    ) -> None:
        """To the other, unless there is a reason why not."""
        self._tell(peer, f"{peer.who.name} to {printable(host, 100)}: {reason or 'carried'}", bool(reason))
        if other is None or reason:
            peer.send(messages.end(number, reason))
            return
        others_number = next(other.numbers) & 0xFFFFFFFF
        other.done[others_number], peer.asked[number] = (peer, number), _Asked(other, others_number)
        other.send(Message(CARRY, others_number, fields))

    def _more(self, access_point: _Peer, number: int) -> None:
        """Nobody can have taken parts that did not come: nothing is passed on then."""
        asked = access_point.asked.get(number)
        if asked is not None and asked.parts >= MORE_PARTS:
            asked.parts -= MORE_PARTS
            asked.node.send(Message(MORE, asked.number))

    def _pass_on(self, node: _Peer, message: Message) -> None:
        if node.counting is not None and node.counting[0] == message.number:
            _count(node, message.fields.get("Data", b""))
            return
        other, number = node.done.get(message.number, (None, 0))
        if other is None:
            return
        if other.queued[number] < WINDOW:
            other.asked[number].parts += 1
            other.send(Message(DATA, number, {"Data": message.fields.get("Data", b"")}))
        else:
            self._cancel(other, number)
            other.send(messages.end(number, "the node sends more than it was asked for"))

    def _cancel(self, access_point: _Peer, number: int) -> None:
        """The command is over for both; the node is told so, and its place is free from then on."""
        asked = access_point.asked.pop(number, None)
        if asked is not None:
            asked.node.done.pop(asked.number, None)
            asked.node.left[asked.number] = access_point.source
            asked.node.send(Message(CANCEL, asked.number))

    def _end(self, node: _Peer, number: int, message: Message) -> None:
        """The same; the access point is told so by `message`."""
        if node.counting is not None and node.counting[0] == number:
            _count(node, b"")
            return
        if number == node.telling:
            self._answered(node, message.text("reason"))
            return
        access_point, others_number = node.done.pop(number, (None, 0))
        if access_point is not None:
            access_point.asked.pop(others_number, None)
            access_point.send(Message(END, others_number, message.fields))

    # -- entries ----------------------------------------------------------------------------------------------

    def tell_entries(self, only_again: bool = False) -> None:
        """Tells all nodes which entries hold; `only_again` those that have not taken them."""
        nodes = [node for node in self._nodes.values() if not only_again or node.may_be_told_again]
        packet = self.entries() if nodes and self.entries is not None else b""
        for node in nodes if packet else ():
            _tell_entries(node, packet)

    def _answered(self, node: _Peer, reason: str) -> None:
        node.telling = None
        if node.is_behind and self.entries is not None:
            _tell_entries(node, self.entries())
        if reason and node.refusal != reason:
            self._tell(node, f"node {node.who.name} does not take entries: {printable(reason, 300)}")
        node.refusal = reason

    async def entries_are_taken(self, seconds: float) -> None:
        """Until all nodes have answered to the last list, and so many seconds at most."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while loop.time() < until and any(node.telling is not None for node in self._nodes.values()):
            await asyncio.sleep(_LOOK_SECONDS)

    async def preview(self, packet: bytes, seconds: float) -> list[bytes]:
        """What each node answers to a question about an entry; empty from one that refuses, or did not in time.

        One question is asked at a time: who asks another one has the first one ended.
        """
        answers = []
        for node in self._nodes.values():
            _count(node, b"")
            number, answer = next(node.numbers) & 0xFFFFFFFF, asyncio.get_running_loop().create_future()
            node.counting = number, answer
            answers.append(answer)
            node.send(Message(CARRY, number, {"Verb": PREVIEW.encode(), "Packet": packet}))
        if answers:
            await asyncio.wait(answers, timeout=seconds)
        return [answer.result() if answer.done() else b"" for answer in answers]

    def entries_taken(self) -> dict[str, Any]:
        """How many nodes are connected, how many have taken the last list, and why others have not."""
        done = {name: node.refusal or "" for name, node in self._nodes.items() if node.telling is None}
        refused = {name: reason for name, reason in done.items() if reason}
        first = {name: printable(reason, 200) for name, reason in sorted(refused.items())[:MOST_REASONS]}
        return {"Nodes": len(self._nodes), "Taken": len(done) - len(refused), "Refused": len(refused), "Reasons": first}

    def _come(self, peer: _Peer) -> None:
        self._peers[peer] = None
        alike = self._alike.setdefault(peer.source, [])
        alike.append(peer)
        for each in alike[:-CONNECTIONS]:  # what each may have in memory counts
            each.connection.transport.abort()
        if peer.who.is_node:
            before = self._nodes.get(peer.who.name)
            self._nodes[peer.who.name] = peer
            if before is not None:  # a connection of which only one side knows that it is over, or a second machine
                before.connection.transport.abort()

    def _leave(self, peer: _Peer) -> None:
        _count(peer, b"")
        for number in list(peer.asked):
            self._cancel(peer, number)
        for number in list(peer.done):
            self._end(peer, number, messages.end(0, "the node's relay has left"))
        if self._nodes.get(peer.who.name) is peer:
            del self._nodes[peer.who.name]
        self._peers.pop(peer, None)
        alike = self._alike[peer.source]
        alike.remove(peer)
        if not alike:
            del self._alike[peer.source]
        self._tell(peer, f"{peer.who.role} {peer.who.name} is gone")

    def _tell(self, peer: _Peer, line: str, is_refusal: bool = False) -> None:
        self._paced.tell(f"{peer.who.role} {peer.who.name}", line, is_refusal)

    async def tell_sums(self) -> None:
        """For ever: what is left out of the log has a sum when its minute is over."""
        await tell_sums(self._paced)

    def close_log(self) -> None:
        """What was left out of the log until now has its sums."""
        self._paced.sums(at_once=True)


class _Connection(ServerConnection):  # type: ignore[misc]
    """One that is known to be a stranger's until it has shown a token."""

    def __init__(self, strangers: dict[ServerConnection, float], *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._strangers = strangers

    def connection_made(self, transport: Any) -> None:
        """Once a connection. Who floods the port with others keeps out no peer: it shows its token at once."""
        super().connection_made(transport)
        now = self.loop.time()
        self._strangers[self] = now
        if len(self._strangers) > STRANGERS:
            oldest, since = next(iter(self._strangers.items()))
            if now - since >= PATIENCE or len(self._strangers) > MOST_STRANGERS:
                del self._strangers[oldest]
                oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Once a connection."""
        self._strangers.pop(self, None)
        super().connection_lost(exc)


def tls_by(certificate: str, key: str | None = None) -> ssl.SSLContext:
    """How a server shows by which certificate it is known; `key` is that file's own if None. Raises OSError."""
    found = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    found.load_cert_chain(certificate, key)
    # no relay takes a session up again, and to make tickets for that is a part of each handshake
    found.options |= ssl.OP_NO_TICKET
    found.num_tickets = 0
    sslproto.SSLProtocol.max_size = _READ_BYTES  # type: ignore[attr-defined]
    return found


def _is_full(other: _Peer, asker: _Peer) -> bool:
    """Whether this node, or access point, has no place for one more of who asks."""
    if asker.who.is_remote and other.remotes_places >= OF_REMOTES:
        return True
    return other.places() >= OF_A_NODE or other.places(asker.source) >= OF_BOTH


def _count(node: _Peer, answer: bytes) -> None:
    """The node's answer to the question that it was asked; empty: it gives none."""
    if node.counting is not None and not node.counting[1].done():
        node.counting[1].set_result(answer)


def _tell_entries(node: _Peer, packet: bytes) -> None:
    """One list at a time: a node that reads nothing fills no memory."""
    node.is_behind = node.telling is not None
    if node.is_behind:
        return
    node.telling = next(node.numbers) & 0xFFFFFFFF
    node.send(Message(CARRY, node.telling, {"Verb": ENTRIES.encode(), "Packet": packet}))


async def _send(peer: _Peer) -> None:
    """What is queued for it, in turn, until it leaves."""
    with contextlib.suppress(ConnectionClosed):
        while True:
            await peer.connection.send((await peer.next()).encoded())


def _uid_of(connection: ServerConnection) -> int:
    """Who is at the other end of a unix socket, by the kernel's word."""
    found = connection.transport.get_extra_info("socket")
    return int(struct.unpack("3i", found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1])


def _certified(request: Request) -> str:
    """The name in the certificate that the proxy has verified; empty if it says none, or says it twice."""
    verified, subjects = request.headers.get_all(VERIFIED), request.headers.get_all(SUBJECT)
    return known_tokens.name_in(subjects[0]) if verified == ["SUCCESS"] and len(subjects) == 1 else ""


def _address(connection: ServerConnection) -> str:
    """Where it comes from: behind a proxy, that is the proxy."""
    address = connection.remote_address
    return printable(str(address[0]), 60) if address else "somewhere"
