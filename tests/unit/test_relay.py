"""The way of a command from afar: relays and their server carry it, lose it at worst, and change nothing unnoticed."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import os
import random
import socket
import ssl
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from control_socket import Server
from hypothesis import given
from hypothesis import strategies as st
from test_remote_commands import ACCESS_POINT, ASKED, ASKER, NODE, Far, FarSite, Older, public
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed, InvalidStatus

from condor_joblens.cli import afar
from condor_joblens.cli.main import main
from condor_joblens.commands.dispatch import Dispatcher
from condor_joblens.common.errors import JobLensError, UsageError, printable
from condor_joblens.common.open_socket import listening_at
from condor_joblens.common.tokens import Who, read_tokens
from condor_joblens.control import audit, client, door, sealed_client, warrants
from condor_joblens.control.sealed_answers import Opener
from condor_joblens.control.verbs import Payer
from condor_joblens.relay import hub, messages, paced_log, server
from condor_joblens.relay import relay as relay_module
from condor_joblens.relay.__main__ import tls_for, token_in
from condor_joblens.relay.local import Local
from condor_joblens.relay.messages import Message
from condor_joblens.relay.relay import MOST_AT_ONCE, Relay
from condor_joblens.relay.server import RelayServer

TOKENS = {
    "n": Who("node", "node"),
    "a": Who("access-point", "ap"),
    "b": Who("access-point", "other"),
    "c": Who("both", "small"),
}
KNOWN = {hashlib.sha256(token.encode()).hexdigest(): who for token, who in TOKENS.items()}


class Site:
    """A relay server, a node with its relay, and the relay of an access point: all real, on the loopback."""

    def __init__(self, far: Far) -> None:
        self.far, self.lines = far, list[str]()
        self.server = RelayServer(KNOWN, self.lines.append)

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        async with self.server.start("127.0.0.1", 0) as listening:
            self.url = f"ws://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
            self.node = Relay(self.url, "n", self.far.path, self.lines.append)
            self.access_point = Relay(self.url, "a", "", self.lines.append)
            tasks = [asyncio.create_task(each.run()) for each in (self.node, self.access_point)]
            try:
                await self.until(lambda: "node" in self.server._nodes and self.access_point._connection is not None)
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            await asyncio.sleep(0.01)

    async def ask(self, packet: bytes, node: str = "node", by: Relay | None = None) -> tuple[list[bytes], str]:
        """The parts of what came back, and why it ended."""
        _, waiting = await (by or self.access_point).carry(node, "12.0", packet)
        parts: list[bytes] = []
        while (part := await waiting.parts.get()) is not None:
            parts.append(part)
        return parts, waiting.reason


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(warrants, "Acceptance", Older)
    made, path = FarSite(), str(tmp_path / "activate.sock")
    joblensd = Server(path, Dispatcher(made).stream)
    yield Site(Far(path, made))
    joblensd.stop()


def runs(site: Site, course: Callable[[], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        async with site.serve():
            await course()

    asyncio.run(asyncio.wait_for(all_of_it(), 120))


def opened(packet: bytes, parts: list[bytes], verb: str) -> list[bytes]:
    return list(sealed_client.opened(parts, Opener(packet, ASKER, public(NODE)), verb))


@pytest.mark.parametrize("verb", ["ps", "tail", "head", "cat", "log", "get", "env", "peek", "node", "ls", "kill"])
def test_a_command_arrives_and_so_does_its_answer(verb: str, site: Site) -> None:
    async def course() -> None:
        packet = warrants.sign(site.far.warrant(verb, **ASKED[verb]), ACCESS_POINT)
        parts, reason = await site.ask(packet)
        assert reason == "" and opened(packet, parts, verb) == [b"=hello"]
        assert len(site.far.site.done) == 1
        parts, reason = await site.ask(packet)
        assert parts == [] and reason == "this has been taken before"

    runs(site, course)


def test_a_machine_that_is_both_asks_and_is_asked_also_by_itself(site: Site) -> None:
    async def course() -> None:
        both = Relay(site.url, "c", site.far.path, site.lines.append)
        task = asyncio.create_task(both.run())
        await site.until(lambda: "small" in site.server._nodes and both.is_connected)
        # its first command as an access point and its first one as a node have the same number
        for node, by in (("node", both), ("small", site.access_point), ("small", both), ("node", both)):
            packet = warrants.sign(site.far.warrant("ps"), ACCESS_POINT)
            parts, reason = await site.ask(packet, node, by)
            assert reason == "" and opened(packet, parts, "ps") == [b"=hello"]
        going = [await each.carry("small", "12.0", b"x") for each in (both, site.access_point)]
        for _, waiting in going:
            assert await waiting.parts.get() is None and "no warrant of a version" in waiting.reason
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await site.until(lambda: "small" not in site.server._nodes)
        assert await site.ask(b"packet", "small") == ([], "no relay of small is connected")

    runs(site, course)


def test_a_node_that_is_not_there_is_said(site: Site) -> None:
    async def course() -> None:
        assert await site.ask(b"packet", "elsewhere") == ([], "no relay of elsewhere is connected")

    runs(site, course)


def test_without_a_token_nobody_is_admitted(site: Site) -> None:
    async def course() -> None:
        for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": "Basic n"}):
            with pytest.raises(InvalidStatus):
                async with connect(site.url, additional_headers=headers):
                    pass

    runs(site, course)


@pytest.mark.parametrize("bound", ["MOST_STRANGERS", "PATIENCE"])
def test_strangers_keep_nobody_out_who_has_a_token(site: Site, monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    monkeypatch.setattr(server, "STRANGERS", 20)
    monkeypatch.setattr(server, bound, 20 if bound == "MOST_STRANGERS" else 0.0)

    async def course() -> None:
        port = int(site.url.rpartition(":")[2].rstrip("/"))
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3 * server.STRANGERS)]
        async with connect(site.url, additional_headers={"Authorization": "Bearer b"}) as late:
            await late.send(Message("carry", 1, {"Node": b"nowhere"}).encoded())
            assert "no relay of nowhere" in messages.decoded(await late.recv()).text("reason")
        assert await asyncio.gather(*(reader.read() for reader, _ in silent[:20])) == [b""] * 20
        assert len(site.server._strangers) <= server.STRANGERS
        for _, writer in silent:
            writer.close()
        await site.until(lambda: not site.server._strangers)

    runs(site, course)


def test_a_rush_of_peers_whose_requests_nobody_has_read_is_served(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STRANGERS", 4)
    monkeypatch.setattr(server, "PATIENCE", 300.0)

    async def course() -> None:
        port = int(site.url.rpartition(":")[2].rstrip("/"))
        head = "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        head += "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nAuthorization: Bearer n\r\n\r\n"
        rush = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
        for one in rush:
            one.sendall(head.encode())
            one.setblocking(False)
        loop = asyncio.get_running_loop()
        answers = await asyncio.gather(*(loop.sock_recv(one, 12) for one in rush), return_exceptions=True)
        assert answers == [b"HTTP/1.1 101"] * 50
        for one in rush:
            one.close()

    runs(site, course)


def test_a_flood_of_commands_fills_no_log(site: Site) -> None:
    async def course() -> None:
        async with connect(site.url, additional_headers={"Authorization": "Bearer b"}) as flood:
            for number in range(300):
                await flood.send(Message("carry", number, {"Node": b"nowhere"}).encoded())
            for _ in range(300):
                await flood.recv()

    runs(site, course)
    assert sum("no relay of nowhere" in line for line in site.lines) == paced_log.REFUSALS
    site.server.close_log()
    assert f"access-point other: {300 - paced_log.REFUSALS} more lines in a minute" in site.lines


@pytest.mark.parametrize(
    "token, said",
    [
        ("n", Message("carry", 1, {"Node": b"node"})),
        ("a", Message("data", 1, {"Data": b"invented"})),
        ("a", Message("end", 1)),
        ("n", Message("more", 1)),
        ("n", Message("cancel", 1)),
    ],
)
def test_who_says_what_is_not_his_to_say_is_sent_away(token: str, said: Message, site: Site) -> None:
    async def course() -> None:
        async with connect(site.url, additional_headers={"Authorization": f"Bearer {token}"}) as peer:
            await peer.send(said.encoded())
            with pytest.raises(ConnectionClosed):
                await peer.recv()

    runs(site, course)


def test_nobody_reaches_the_command_of_another(site: Site) -> None:
    async def course() -> None:
        async with connect(site.url, additional_headers={"Authorization": "Bearer b"}) as other:
            _, waiting = await site.access_point.carry("node", "12.0", b"no warrant")
            await other.send(Message("cancel", 1).encoded())
            while await waiting.parts.get() is not None:
                pass
            assert "no warrant of a version" in waiting.reason

    runs(site, course)


def test_a_node_that_leaves_ends_its_commands(site: Site) -> None:
    async def course() -> None:
        async with connect(site.url, additional_headers={"Authorization": "Bearer n"}) as node:
            await site.until(lambda: site.server._nodes["node"].connection.remote_address == node.local_address)
            _, waiting = await site.access_point.carry("node", "12.0", b"x")
            await node.recv()
        while await waiting.parts.get() is not None:
            pass
        assert waiting.reason == "the node's relay has left"

    runs(site, course)


def test_tokens_are_lines_of_role_name_and_digest() -> None:
    digest = "0" * 64
    text = f"# the site's\nnode ep1 {digest}\n\naccess-point ap1 {'1' * 64} # ours\n"
    assert read_tokens(text) == {digest: Who("node", "ep1"), "1" * 64: Who("access-point", "ap1")}
    for wrong in ("node ep1", f"root ep1 {digest}", "node ep1 secret"):
        with pytest.raises(JobLensError, match="line 1"):
            read_tokens(wrong)


def test_messages_are_read_as_they_were_written() -> None:
    for message in (
        Message("carry", 7, {"Job": b"12.0", "Packet": b"\0\xff"}),
        messages.end(0, "no"),
        Message("cancel", 1),
    ):
        assert messages.decoded(message.encoded()) == message
    for wrong in (b"", "text", b"x" * 10, Message("reboot", 1).encoded(), b"\0" * (messages.MAX_BYTES + 1)):
        with pytest.raises(messages.FrameError):
            messages.decoded(wrong)


# -- the socket of an access point ----------------------------------------------------------------------------


def test_a_users_command_goes_by_the_socket_of_his_access_point(site: Site, tmp_path: Path) -> None:
    async def course() -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(str(tmp_path / "relay.sock"))
        listener.listen()
        served = asyncio.create_task(Local(listener, site.access_point, site.lines.append).run())
        packet = warrants.sign(site.far.warrant("ps"), ACCESS_POINT)

        def asked(node: str) -> list[bytes]:
            fields: dict[str, client.Value] = {"job": "12.0", "node": node, "packet": packet}
            return list(client.stream(str(tmp_path / "relay.sock"), "warrant", fields, server=client.RELAY))

        parts = await asyncio.to_thread(asked, "slot1_1@node")
        assert opened(packet, parts, "ps") == [b"=hello"]
        with pytest.raises(JobLensError, match="no relay of elsewhere is connected"):
            await asyncio.to_thread(asked, "slot1_1@elsewhere")
        served.cancel()

    runs(site, course)


def test_a_server_that_swaps_or_invents_is_caught(site: Site) -> None:
    async def course() -> None:
        first, second = (warrants.sign(site.far.warrant("ps"), ACCESS_POINT) for _ in range(2))
        (parts, _), (others, _) = await site.ask(first), await site.ask(second)
        for wrong in (others, [parts[0], *others[1:]], [parts[0], parts[2], parts[1]], [b"D=invented"], parts[:-1]):
            with pytest.raises(JobLensError, match=r"not believed|cut off"):
                opened(first, wrong, "ps")
        assert opened(first, parts, "ps") == [b"=hello"]

    runs(site, course)


# -- what goes wrong ------------------------------------------------------------------------------------------


class Flood(FarSite):
    """Its jobs have more to say than fits into what is under way at a time."""

    def do_as_owner(self, run: int, whose: Payer, request: Mapping[str, object], stream: Any) -> None:
        self.parts = iter(b"=%d" % number + b"x" * 50_000 for number in range(60))
        stream.on_room = lambda: self.send(stream)
        self.send(stream)

    def send(self, stream: Any) -> None:
        while stream.is_open and stream.has_room:
            part = next(self.parts, None)
            if part is None:
                stream.end({})
                return
            stream.send(part)


def test_nothing_is_lost_of_what_is_read_slowly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warrants, "Acceptance", Older)
    made, path = Flood(), str(tmp_path / "activate.sock")
    joblensd = Server(path, Dispatcher(made).stream)
    site = Site(Far(path, made))

    async def course() -> None:
        packet = warrants.sign(site.far.warrant("ps"), ACCESS_POINT)
        number, waiting = await site.access_point.carry("node", "12.0", packet)
        # as much as can be under way is there, and no more comes before it is read
        await site.until(lambda: waiting.parts.qsize() == messages.WINDOW)
        parts: list[bytes] = []
        while (part := await waiting.parts.get()) is not None:
            assert waiting.parts.qsize() <= messages.WINDOW
            parts.append(part)
            await site.access_point.taken(number)
        assert waiting.reason == ""
        found = opened(packet, parts, "ps")
        assert [part[:4].rstrip(b"x") for part in found] == [b"=%d" % number for number in range(60)]

    try:
        runs(site, course)
    finally:
        joblensd.stop()


def test_a_node_that_sends_more_than_it_may_loses_the_command_and_nobody_elses(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "AGAIN_SECONDS", (600.0, 600.0))  # the node's own relay does not come back

    async def course() -> None:
        async with connect(site.url, additional_headers={"Authorization": "Bearer n"}) as node:
            await site.until(lambda: site.server._nodes["node"].connection.remote_address == node.local_address)
            peer = next(each for each in site.server._peers if each.who.name == "ap")
            site.access_point._take = lambda message: asyncio.sleep(0)  # type: ignore[method-assign]  # its answers wait
            stuck = asyncio.Event()
            monkeypatched = peer.connection.send

            async def slow(data: bytes) -> None:
                await stuck.wait()
                await monkeypatched(data)

            peer.connection.send = slow
            await site.access_point.carry("node", "12.0", b"x")
            number = messages.decoded(await node.recv()).number
            for _ in range(messages.WINDOW + 3):
                await node.send(Message("data", number, {"Data": b"x"}).encoded())
            assert messages.decoded(await node.recv()) == Message("cancel", number)
            assert peer.queued[1] <= messages.WINDOW
            stuck.set()

    runs(site, course)


@pytest.mark.parametrize("flood", [["more"], ["carry", "cancel"]], ids="-".join)
def test_an_access_point_that_floods_a_node_drives_nobody_away(
    flood: list[str], site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "AGAIN_SECONDS", (600.0, 600.0))  # the node's own relay does not come back

    async def course() -> None:
        floods = connect(site.url, additional_headers={"Authorization": "Bearer b"}, ping_interval=None)
        async with connect(site.url, additional_headers={"Authorization": "Bearer n"}) as node, floods as hostile:
            await site.until(lambda: site.server._nodes["node"].connection.remote_address == node.local_address)
            peer = site.server._nodes["node"]
            sent, may_send = peer.connection.send, asyncio.Event()

            async def slow(data: bytes) -> None:
                await may_send.wait()
                await sent(data)

            peer.connection.send = slow

            async def answers() -> None:  # a peer that takes none is sent away itself
                while messages.decoded(await hostile.recv()).number != 99_999:
                    pass

            answered = asyncio.create_task(answers())
            fields = {"Node": b"node", "Job": b"1.0", "Packet": b"x"}
            await hostile.send(Message("carry", 0, fields).encoded())
            for number in range(2 * server.MOST_QUEUED):
                for word in flood:
                    which = Message(word, 0) if word == "more" else Message(word, number + 1, fields)
                    await hostile.send(which.encoded())
            await hostile.send(
                Message("carry", 99_999, {"Node": b"nowhere"}).encoded()
            )  # it is answered after all else
            await answered
            assert peer.places() <= server.OF_BOTH and peer.queue.qsize() <= 2 * server.OF_BOTH
            _, waiting = await site.access_point.carry("node", "12.0", b"of another")
            await site.until(lambda: peer.places() > peer.places(peer_digest("b")))
            may_send.set()
            while (message := messages.decoded(await node.recv())).fields.get("Packet") != b"of another":
                pass
            await node.send(Message("end", message.number).encoded())
            assert await waiting.parts.get() is None and waiting.reason == ""

    runs(site, course)


def peer_digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def test_of_an_access_point_that_comes_again_and_again_the_last_connections_stay(site: Site) -> None:
    async def course() -> None:
        headers = {"Authorization": "Bearer b"}
        many = [await connect(site.url, additional_headers=headers) for _ in range(server.CONNECTIONS + 2)]
        await asyncio.gather(*(each.wait_closed() for each in many[:2]))
        await many[-1].send(Message("carry", 1, {"Node": b"nowhere"}).encoded())
        assert "no relay of nowhere" in messages.decoded(await many[-1].recv()).text("reason")
        for each in many:
            await each.close()
        await site.until(lambda: all(peer.digest != peer_digest("b") for peer in site.server._peers))
        assert not any(peer_digest("b") in source for source in site.server._alike)

    runs(site, course)


def test_a_server_that_takes_no_answers_fills_no_memory() -> None:
    class Stuck:
        async def send(self, data: bytes) -> None:
            await asyncio.Event().wait()

    async def course() -> None:
        relay = Relay("ws://127.0.0.1:1/", "n", "/nowhere", print)
        relay._connection = Stuck()  # type: ignore[assignment]

        async def reads() -> None:
            for number in range(20 * MOST_AT_ONCE):
                await relay._take(Message("carry", number, {"Job": b"12.0", "Packet": b"x"}))

        reading = asyncio.create_task(reads())
        for _ in range(50 * MOST_AT_ONCE):
            await asyncio.sleep(0)
        assert not reading.done() and len(relay._going) == MOST_AT_ONCE
        tasks = [reading, *(going.task for going in relay._going.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(asyncio.wait_for(course(), 120))


def test_a_relay_lives_through_whatever_a_server_says(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("condor_joblens.relay.relay.AGAIN_SECONDS", (0.0, 0.01))
    packet = warrants.sign(site.far.warrant("ps"), ACCESS_POINT)
    nonsense = [
        *(Message(word, 7).encoded() for word in ("data", "end", "more", "cancel", "carry")),
        *[Message("carry", 1, {"Job": b"12.0", "Packet": b"\0"}).encoded()] * 100,
        *[Message("more", 1).encoded()] * 100,
        *(Message("carry", n, {"Job": b"\xff" * 9000, "Packet": b"x" * 60_000}).encoded() for n in range(40)),
    ]
    wrong = [b"", b"\0" * 9, os.urandom(2000), Message("reboot", 1).encoded(), "text", b"\0" * (messages.MAX_BYTES + 1)]
    connections, answer = itertools.count(), asyncio.Queue[bytes]()

    async def hostile(connection: Any) -> None:
        which = next(connections)
        with contextlib.suppress(ConnectionClosed):
            for each in nonsense:
                await connection.send(each)
            if which < len(wrong):
                await connection.send(wrong[which])
                while True:  # until the relay has had enough
                    await connection.recv()
            for number in itertools.count(1000):  # until what came before has been refused
                await connection.send(Message("carry", number, {"Job": b"12.0", "Packet": packet}).encoded())
                message = Message("more", 0)
                while (message.word, message.number) != ("end", number):
                    message = messages.decoded(await connection.recv())
                    if message.word == "data":
                        answer.put_nowait(message.fields["Data"])

    async def course() -> None:
        async with serve(hostile, "127.0.0.1", 0) as listening:
            url = f"ws://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
            task = asyncio.create_task(Relay(url, "n", site.far.path, site.lines.append).run())
            parts = [await answer.get() for _ in range(3)]
            assert opened(packet, parts, "ps") == [b"=hello"] and not task.done()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(course(), 120))


FLOOD_PARTS = 1000


def test_a_server_that_floods_a_user_with_an_answer_costs_his_command_and_no_memory(site: Site, tmp_path: Path) -> None:
    """What would be ten gigabytes ends when more has come than was asked for; commands of others go on."""
    part, sent = os.urandom(messages.MAX_BYTES - 4096), 0
    seen = list[int]()

    async def hostile(connection: Any) -> None:
        nonlocal sent
        with contextlib.suppress(ConnectionClosed):
            async for data in connection:
                message = messages.decoded(data)
                if message.word == "carry" and message.text("Node") == "node":
                    for _ in range(FLOOD_PARTS):
                        await connection.send(Message("data", message.number, {"Data": part}).encoded())
                        await connection.send(Message("data", 4_000_000_000, {"Data": part}).encoded())
                        sent += len(part)
                        seen.append(rss())
                elif message.word == "carry":
                    await connection.send(messages.end(message.number, "this one is answered").encoded())

    def rss() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    async def course() -> None:
        path = str(tmp_path / "users.sock")
        async with serve(hostile, "127.0.0.1", 0) as listening:
            url = f"ws://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
            relay = Relay(url, "a", "", site.lines.append)
            users = Local(listening_at(path), relay, site.lines.append)
            tasks = [asyncio.create_task(each) for each in (relay.run(), users.run())]
            await site.until(lambda: relay.is_connected)
            before = rss()

            def asks(node: str) -> str:
                fields = {"job": b"12.0", "node": node.encode(), "packet": b"x"}
                with pytest.raises(JobLensError) as refused:
                    list(client.stream(path, "warrant", fields, 60.0, client.RELAY, 60.0))
                return str(refused.value)

            flooded = asyncio.create_task(asyncio.to_thread(asks, "node"))
            await site.until(lambda: sent > 0)
            assert "this one is answered" in await asyncio.to_thread(asks, "other")
            assert "more came than was asked for" in await flooded
            await site.until(lambda: sent == FLOOD_PARTS * len(part))
            # twice as much was sent, and the server that sends it is in this process, too
            assert sent > 100_000_000 and max(seen) < before + sent
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(asyncio.wait_for(course(), 120))


def test_with_two_servers_each_knows_its_own_machines_and_a_command_is_done_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("condor_joblens.relay.relay.AGAIN_SECONDS", (0.0, 0.01))
    other = RelayServer(KNOWN, site.lines.append)

    async def course() -> None:
        packet = warrants.sign(site.far.warrant("ps"), ACCESS_POINT)
        async with other.start("127.0.0.1", 0) as listening:
            url = f"ws://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
            access_point = Relay(url, "b", "", site.lines.append)
            tasks = [asyncio.create_task(access_point.run())]
            await site.until(lambda: access_point.is_connected)
            assert await site.ask(packet, by=access_point) == ([], "no relay of node is connected")
            assert opened(packet, (await site.ask(packet))[0], "ps") == [b"=hello"]
            tasks.append(asyncio.create_task(Relay(url, "n", site.far.path, site.lines.append).run()))
            await site.until(lambda: "node" in other._nodes)
            assert "taken before" in (await site.ask(packet, by=access_point))[1]
            again = warrants.sign(site.far.warrant("ps"), ACCESS_POINT)
            assert opened(again, (await site.ask(again, by=access_point))[0], "ps") == [b"=hello"]
            assert "taken before" in (await site.ask(again))[1]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    runs(site, course)


@given(st.binary(max_size=400) | st.text(max_size=20))
def test_bytes_are_a_message_or_none(data: bytes | str) -> None:
    with contextlib.suppress(messages.FrameError):
        assert messages.decoded(data).number < 1 << 32


@pytest.mark.parametrize("count", [50_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_damaged_messages_are_refused_or_read_as_they_would_be_sent(count: int) -> None:
    whole = [
        Message("carry", 7, {"Node": b"node", "Packet": b"x" * 40}).encoded(),
        Message("data", 9, {"Data": b"d" * 20}).encoded(),
        Message("more", 3).encoded(),
        messages.end(5, "over").encoded(),
    ]
    chance, refused = random.Random(1), 0
    for which in range(count):
        damaged = bytearray(whole[which % len(whole)])
        for _ in range(1 + which % 3):
            damaged[int(chance.random() * len(damaged))] = int(chance.random() * 256)
        if which % 7 == 0:
            del damaged[int(chance.random() * len(damaged)) :]
        try:
            message = messages.decoded(bytes(damaged))
        except messages.FrameError:
            refused += 1
        else:
            assert messages.decoded(message.encoded()) == message
    assert 0 < refused < count


def test_a_machine_whose_token_is_taken_away_is_sent_away(site: Site) -> None:
    async def course() -> None:
        site.server.know({digest: who for digest, who in KNOWN.items() if who.role != "node"})
        await site.until(lambda: not site.server._nodes)
        assert await site.ask(b"packet") == ([], "no relay of node is connected")

    runs(site, course)


def test_a_users_fifth_command_waits_for_another_to_end(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("condor_joblens.relay.local.PATIENCE", 600.0)
    path = str(tmp_path / "relay.sock")

    async def course() -> None:
        listener = listening_at(path)
        assert listener is not None
        local = Local(listener, site.access_point, site.lines.append)
        served = asyncio.create_task(local.run())
        held = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(4)]
        for connection in held:
            connection.connect(path)
        await site.until(lambda: local._users[os.getuid()] == 4)
        fields: dict[str, client.Value] = {"job": "12.0", "node": "slot1_1@node", "packet": b"x"}
        with pytest.raises(JobLensError, match="too many commands go on"):
            await asyncio.to_thread(lambda: list(client.stream(path, "warrant", fields, 30, client.RELAY)))
        for connection in held:
            connection.close()
        await site.until(lambda: not local._users)
        with pytest.raises(JobLensError, match="nobody has signed it: this is no warrant"):
            await asyncio.to_thread(lambda: list(client.stream(path, "warrant", fields, 30, client.RELAY)))
        served.cancel()

    runs(site, course)


def test_a_flood_at_a_relay_has_its_sum_without_another_word(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the socket of an access point, and at the relay server."""
    monkeypatch.setattr(paced_log, "LOOK_SECONDS", 0.01)

    async def course() -> None:
        listener = listening_at(str(tmp_path / "relay.sock"))
        assert listener is not None
        local = Local(listener, site.access_point, site.lines.append)
        tasks = [asyncio.create_task(each) for each in (local.run(), site.server.tell_sums())]
        for _ in range(audit.REFUSALS + 3):
            local._audit.refused(7, "not carried")
        for _ in range(paced_log.REFUSALS + 4):
            site.server._paced.tell("node x", "no", is_refusal=True)
        assert not any("more" in line for line in site.lines)
        monkeypatch.setattr(audit, "REFUSALS_SECONDS", 0.0)
        monkeypatch.setattr(paced_log, "SECONDS", 0.0)
        local._audit._due = 0.0
        await site.until(lambda: "user 7: 3 more commands were refused in a minute" in site.lines)
        await site.until(lambda: "node x: 4 more lines in a minute" in site.lines)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    runs(site, course)


def test_what_a_relay_has_left_out_is_told_when_it_stops(site: Site, tmp_path: Path) -> None:
    async def course() -> None:
        listener = listening_at(str(tmp_path / "relay.sock"))
        assert listener is not None
        local = Local(listener, site.access_point, site.lines.append)
        served = asyncio.create_task(local.run())
        await asyncio.sleep(0)
        for _ in range(audit.REFUSALS + 1):
            local._audit.refused(7, "not carried")
        served.cancel()
        await asyncio.gather(served, return_exceptions=True)
        assert site.lines[-1] == "user 7: 1 more commands were refused in a minute"

    runs(site, course)


def test_who_gets_no_answer_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = listening_at(str(tmp_path / "relay.sock"))
    monkeypatch.setattr(afar, "RELAY", str(tmp_path / "relay.sock"))
    monkeypatch.setattr(afar, "DOOR", str(tmp_path / "relay.sock"))
    monkeypatch.setattr(afar, "PATIENCE", 0.2)
    monkeypatch.setattr(afar.door, "sign", lambda *_: door.Signed(b"packet", "job", "slot1@node", public(NODE)))
    with pytest.raises(JobLensError, match=r"no answer within 0\.2 s; is joblens-relay running"):
        list(afar.from_afar("ps", {"job": "12.0"}, JobLensError("not here")))
    assert silent is not None
    silent.close()


def far_answer(monkeypatch: pytest.MonkeyPatch, messages: Iterator[bytes], fields: dict[str, str]) -> list[str]:
    """What comes from afar, whatever is asked; the verbs that were."""
    asked = list[str]()

    def answer(verb: str, arguments: Mapping[str, str], here: JobLensError) -> Iterator[bytes]:
        asked.append(verb)
        yield from messages
        return fields

    monkeypatch.setattr(afar, "from_afar", answer)
    return asked


def test_what_is_kept_whole_has_a_bound_if_it_comes_from_afar(monkeypatch: pytest.MonkeyPatch) -> None:
    far_answer(monkeypatch, iter([b"x" * 1000, b"y"]), {})
    assert list(afar.kept_whole("/nowhere", "artifacts", {"job": "12.0"})) == [b"x" * 1000, b"y"]
    far_answer(monkeypatch, itertools.repeat(b"x" * 65536), {})
    with pytest.raises(JobLensError, match="more than any answer to this has"):
        list(afar.kept_whole("/nowhere", "artifacts", {"job": "12.0"}))
    far_answer(monkeypatch, itertools.repeat(b""), {})
    monkeypatch.setattr(afar, "MOST_BYTES", 1000)
    with pytest.raises(JobLensError, match="more than any answer to this has"):
        list(afar.kept_whole("/nowhere", "evidence", {"job": "12.0"}))


def test_an_answer_that_is_its_end_alone_has_nothing_before(monkeypatch: pytest.MonkeyPatch) -> None:
    far_answer(monkeypatch, iter([]), {"level": "io"})
    assert afar.told("/nowhere", "level", {"job": "12.0"}) == {"level": "io"}
    far_answer(monkeypatch, itertools.repeat(b"x"), {})
    with pytest.raises(JobLensError, match="more than level has"):
        afar.told("/nowhere", "level", {"job": "12.0"})


def test_a_joblensd_that_is_silent_may_do_it_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So what acts is not asked of another one too, and what looks is: the job may be elsewhere."""
    path, asked = str(tmp_path / "activate.sock"), far_answer(monkeypatch, iter([b"seen"]), {})
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.bind(path)
        silent.listen()
        for verb, arguments in (("kill", {"signal": "9"}), ("notify", {"text": "stop"}), ("trace", {"spec": "p:f"})):
            with pytest.raises(client.Silent, match=r"no answer within 0\.1 s"):
                list(afar.asked(path, verb, {"job": "12.0", **arguments}, 0.1))
        assert asked == []
        assert list(afar.asked(path, "ps", {"job": "12.0"}, 0.1)) == [b"seen"]
        monkeypatch.setattr(client.ask, "__defaults__", (0.1,))
        for verb in ("level", "last"):
            with pytest.raises(client.Silent):
                afar.told(path, verb, {"job": "12.0"})
    assert asked == ["ps"]


@pytest.mark.parametrize(
    "command, verb",
    [
        (["stacks", "12.0"], "evidence"),
        (["hang", "12.0"], "evidence"),
        (["hang", "12.0", "--kept"], "artifacts"),
        (["crash", "12.0"], "artifacts"),
        (["flame", "12.0"], "artifacts"),
        (["hot", "12.0"], "artifacts"),
        (["artifacts", "12.0"], "artifacts"),
        (["job", "12.0", "--before-death"], "artifacts"),
        (["last", "12.0"], "last"),
        (["trace", "12.0", "prog:main"], "trace"),
        (["level", "12.0"], "level"),
    ],
)
def test_commands_that_ask_from_afar_what_is_not_here(
    command: list[str], verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = far_answer(monkeypatch, iter([b"no sense"] * 3), {})
    code = main([*command, "--run-dir", str(tmp_path)])
    said = capsys.readouterr()
    assert asked[0] == verb and (said.err.startswith("joblens: ") if code else "this is not all" in said.out)


@pytest.mark.parametrize(
    "command", [["stacks", "--lines"], ["flame", "--lines"], ["hot", "--lines"], ["hot", "--follow"]]
)
def test_lines_are_read_where_the_job_runs(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = far_answer(monkeypatch, iter([]), {})
    assert main([command[0], "12.0", command[1], "--run-dir", str(tmp_path)]) == 1
    assert asked == [] and "is joblensd running on this node?" in capsys.readouterr().err


@pytest.mark.parametrize("job", ["slot1_1", "abc", "ap#12.0", "", "12.0.0", "1\u0662.0", "\x1b[2J"])
def test_what_no_access_point_knows_is_asked_of_this_node_alone(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(afar, "_sockets", lambda: ("/nowhere", "/nowhere"))
    with pytest.raises(JobLensError, match="not here") as raised:
        list(afar.from_afar("ps", {"job": job}, JobLensError("not here")))
    is_job_id = f"{printable(job)} is no job id, as 12.0," in str(raised.value)
    assert is_job_id == isinstance(raised.value, UsageError) == (job != "slot1_1")
    with pytest.raises(JobLensError, match="joblens-door"):
        list(afar.from_afar("ps", {"job": "12"}, JobLensError("not here")))


def test_a_job_is_also_named_by_its_whole_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[object]()

    def sign(*arguments: object) -> door.Signed:
        asked.append(arguments[2])
        return door.Signed(b"packet", "ap#12.0#1700000000", "slot1@node", public(NODE))

    monkeypatch.setattr(afar, "_sockets", lambda: ("/nowhere", "/nowhere"))
    monkeypatch.setattr(afar.door, "sign", sign)
    for job, why in (
        ("ap#12.0#1700000000", "is joblens-relay running"),
        ("ap#12.0#17", r"job 12\.0 of this access point is another one, ap#12\.0#1700000000"),
    ):
        with pytest.raises(JobLensError, match=why):
            list(afar.from_afar("ps", {"job": job}, JobLensError("not here")))
    assert asked == ["12.0", "12.0"]


def test_without_an_access_point_the_reason_is_this_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(afar, "DOOR", str(tmp_path / "none"))
    monkeypatch.setattr("condor_joblens.common.condor_config.read_macros", lambda _: {})
    with pytest.raises(JobLensError, match="not here"):
        list(afar.from_afar("ps", {"job": "12.0"}, JobLensError("not here")))


# -- tokens, and what a relay is allowed ----------------------------------------------------------------------


def test_a_server_makes_no_ticket_that_no_relay_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.sslproto.SSLProtocol, "max_size", 1 << 18, raising=False)  # it is as before then
    of = ["-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=x"]
    new = ["openssl", "req", "-x509", "-newkey", "ec", *of]
    both = tmp_path / "both.pem"
    subprocess.run([*new, "-keyout", both, "-out", tmp_path / "x.pem"], check=True, capture_output=True)
    both.write_text(both.read_text() + (tmp_path / "x.pem").read_text())
    tls = server.tls_by(str(both))
    assert tls.num_tickets == 0 and tls.options & ssl.OP_NO_TICKET
    with pytest.raises(OSError):
        server.tls_by(str(tmp_path / "nothing"))


def test_a_token_goes_over_tls_alone() -> None:
    assert tls_for("wss://relay.example.org/", "") is not None
    assert tls_for("ws://127.0.0.1:8765/", "") is tls_for("ws://localhost:8765/", "") is None
    for url in ("ws://relay.example.org/", "ws://192.0.2.1:80/", "https://relay.example.org/", "relay", "ws://"):
        with pytest.raises(JobLensError, match="write wss://HOST/"):
            tls_for(url, "")
    with pytest.raises(JobLensError, match="JOBLENS_RELAY_URL is not set"):
        tls_for("", "")
    with pytest.raises(JobLensError, match="JOBLENS_RELAY_CA_FILE: /none"):
        tls_for("wss://relay.example.org/", "/none")


def test_a_token_is_in_a_file_of_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "token"
    for text, mode, wrong in (("x", 0o644, "chmod 600"), ("\n", 0o600, "no token"), ("a\nb", 0o600, "no token")):
        path.write_text(text)
        path.chmod(mode)
        with pytest.raises(JobLensError, match=wrong):
            token_in(str(path))
    path.write_text("secret\n")
    assert token_in(str(path)) == "secret"
    with pytest.raises(JobLensError, match="put this machine's token there"):
        token_in(str(tmp_path / "none"))


def test_a_new_token_and_its_line_fit_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert hub.main(["token", "node", "ep1"]) == 0
    token, line = (said.split(": ")[1].strip() for said in capsys.readouterr().out.splitlines())
    assert read_tokens(line) == {hashlib.sha256(token.encode()).hexdigest(): Who("node", "ep1")}


def test_the_server_is_not_roots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert hub.main(["relay", "--tokens", str(tmp_path / "tokens")]) == 1
    assert "is not root's" in capsys.readouterr().err


CONFINED = """
    import os, socket, sys
    from condor_joblens.relay.confine import confine
    os.geteuid = lambda: 1  # it stays who it is
    server = socket.create_server(("127.0.0.1", 0))
    said = []
    confine(said.append)
    def refused(what):
        try:
            what()
        except PermissionError:
            return True
        return False
    def forks():
        if os.fork() == 0:
            os._exit(0)
    address = socket.getaddrinfo("localhost", server.getsockname()[1], socket.AF_INET)[0][4]
    socket.create_connection(address).close()
    socket.socket(socket.AF_UNIX).close()
    print(refused(lambda: socket.socket().listen()), refused(lambda: socket.socket(socket.AF_NETLINK)),
          refused(forks), refused(lambda: os.execv("/bin/true", ["true"])),
          refused(lambda: open("/dev/null", "w")), refused(lambda: os.kill(os.getppid(), 0)), said, flush=True)
    os._exit(0)
"""


def test_a_relay_can_connect_and_read_and_nothing_else() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CONFINED)], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("True True True True True True "), done.stdout + done.stderr
