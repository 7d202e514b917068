"""The way of a command from afar: relays and their server carry it, lose it at worst, and change nothing unnoticed."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from control_socket import Server
from test_remote_commands import ACCESS_POINT, ASKED, ASKER, NODE, Far, FarSite, public
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from condor_joblens.commands.dispatch import Dispatcher
from condor_joblens.common.errors import JobLensError
from condor_joblens.control import client, sealed_client, warrants
from condor_joblens.control.sealed_answers import Opener
from condor_joblens.relay import messages
from condor_joblens.relay.local import Local
from condor_joblens.relay.messages import Message
from condor_joblens.relay.relay import Relay
from condor_joblens.relay.server import RelayServer, Who, read_tokens

TOKENS = {"n": Who("node", "node"), "a": Who("access-point", "ap"), "b": Who("access-point", "other")}
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

    async def ask(self, packet: bytes, node: str = "node") -> tuple[list[bytes], str]:
        """The parts of what came back, and why it ended."""
        _, waiting = await self.access_point.carry(node, "12.0", packet)
        parts: list[bytes] = []
        while (part := await waiting.parts.get()) is not None:
            parts.append(part)
        return parts, waiting.reason


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
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


@pytest.mark.parametrize("verb", ["ps", "tail", "kill"])
def test_a_command_arrives_and_so_does_its_answer(verb: str, site: Site) -> None:
    async def course() -> None:
        packet = warrants.sign(site.far.warrant(verb, **ASKED[verb]), ACCESS_POINT)
        parts, reason = await site.ask(packet)
        assert reason == "" and opened(packet, parts, verb) == [b"=hello"]
        assert len(site.far.site.done) == 1
        parts, reason = await site.ask(packet)
        assert parts == [] and reason == "this has been taken before"

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


@pytest.mark.parametrize(
    "token, said",
    [
        ("n", Message("carry", 1, {"Node": b"node"})),
        ("a", Message("data", 1, {"Data": b"invented"})),
        ("a", Message("end", 1)),
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
            return list(client.stream(str(tmp_path / "relay.sock"), "warrant", fields))

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
