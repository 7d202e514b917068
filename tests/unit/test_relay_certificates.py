"""Machines that are known by their certificates: by the word of the site's proxy, on its socket, and nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.client import connect, unix_connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from condor_joblens.common.errors import JobLensError
from condor_joblens.common.open_socket import streams_at
from condor_joblens.common.tokens import Who, by_certificate, name_in, read_tokens
from condor_joblens.relay import hub
from condor_joblens.relay.__main__ import show_certificate, tls_for
from condor_joblens.relay.relay import Relay
from condor_joblens.relay.server import SUBJECT, VERIFIED, RelayServer

ME = os.getuid()
TOKEN = hashlib.sha256(b"t").hexdigest()
LINES = f"node node01.example.org certificate\naccess-point submit01 certificate\nnode tokened {TOKEN}\n"
NODE01 = {VERIFIED: "SUCCESS", SUBJECT: "CN=node01.example.org,OU=hosts,O=Site"}


# -- names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "subject, name",
    [
        ("CN=node01", "node01"),
        ("CN=node01.example.org,OU=hosts,O=A Site,C=DE", "node01.example.org"),
        ("O=Site, CN=node01", "node01"),
        ("cn=node01", "node01"),
        ("O=Site", ""),
        ("", ""),
        ("CN=", ""),
        ("CN=*", ""),
        ("CN=node01,CN=node02", ""),  # which of both?
        ("CN=node01,cn=node02", ""),
        (r"O=evil\,CN=node01,CN=other", ""),  # a comma in a part of the subject
        (r"O=x\,CN=node01", ""),
        ('O="x,CN=node01",CN=other', ""),
        ("O=x+CN=node01,CN=other", ""),  # a part of two
        ("O=x;CN=node01", ""),
        (r"CN=\6eode01", ""),
        ("CN=#0c016e", ""),
        ("CN=node 01", ""),
        ("CN=node01\n", ""),
        ("CN=node01/CN=x", ""),
        ("/O=Site/CN=node01", ""),  # the old form, which is not taken
        ("CN=n\u00f6de", ""),
        ("CN=" + "n" * 3000, ""),
    ],
)
def test_a_subject_names_one_host_or_none(subject: str, name: str) -> None:
    assert name_in(subject) == name


@given(st.text(max_size=40))
def test_whatever_is_in_another_part_of_a_subject_the_name_is_the_authority_s(text: str) -> None:
    escaped = "".join(f"\\{each}" if each in '\\"+,;<>=#' else each for each in text)
    assert name_in(f"O={escaped},CN=node01") in ("", "node01")


def test_a_line_names_a_machine_by_its_certificate_and_a_star_is_any_node() -> None:
    known = read_tokens(LINES)
    assert by_certificate(known, "node01.example.org") == Who("node", "node01.example.org")
    assert by_certificate(known, "submit01") == Who("access-point", "submit01")
    assert by_certificate(known, "other") is by_certificate(known, "tokened") is by_certificate(known, "*") is None
    known = read_tokens(f"node * certificate\n{LINES}")
    assert by_certificate(known, "other") == Who("node", "other")
    assert by_certificate(known, "submit01") == Who("access-point", "submit01")
    for wrong in ("access-point * certificate", "both * certificate", "root x certificate"):
        with pytest.raises(JobLensError, match="line 1"):
            read_tokens(wrong)


# -- the server -----------------------------------------------------------------------------------------------


class Site:
    """A relay server with a socket for the site's proxy, which is this process, and a port for others."""

    def __init__(self, folder: Path) -> None:
        self.path, self.lines = str(folder / "proxy.sock"), list[str]()
        self.server = RelayServer(read_tokens(LINES), self.lines.append)

    @contextlib.asynccontextmanager
    async def serve(self, proxy: int = ME) -> AsyncIterator[None]:
        async with self.server.start("127.0.0.1", 0) as listening:
            self.url = f"ws://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
            async with self.server.start_for_proxy(streams_at(self.path), proxy):
                yield

    async def comes(self, headers: dict[str, str] | list[tuple[str, str]]) -> str:
        """Who it is that comes by the proxy with these headers; `401` if nobody is."""
        return await self._who(unix_connect(self.path, "ws://localhost/", additional_headers=headers))

    async def comes_by_the_port(self, headers: dict[str, str]) -> str:
        return await self._who(connect(self.url, additional_headers=headers))

    async def _who(self, connecting: connect) -> str:
        try:
            async with connecting:
                while not self.server._peers:
                    await asyncio.sleep(0.01)
                (peer,) = self.server._peers
                found = f"{peer.who.role} {peer.who.name}"
        except InvalidStatus as error:
            return str(error.response.status_code)
        while self.server._peers:
            await asyncio.sleep(0.01)
        return found


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def runs(course: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(course(), 300))


def test_the_proxy_says_whose_certificate_it_has_verified(site: Site) -> None:
    async def course() -> None:
        async with site.serve():
            assert await site.comes(NODE01) == "node node01.example.org"
            assert await site.comes({**NODE01, SUBJECT: "CN=submit01"}) == "access-point submit01"
            assert await site.comes({"Authorization": "Bearer t"}) == "node tokened"  # it passes tokens on, too

    runs(course)


def test_nobody_else_is_believed_about_certificates(site: Site) -> None:
    async def course() -> None:
        async with site.serve():
            assert await site.comes_by_the_port(NODE01) == "401"
            assert await site.comes_by_the_port({**NODE01, "Authorization": "Bearer t"}) == "node tokened"
        async with site.serve(proxy=ME + 1):
            assert await site.comes(NODE01) == "401"
            assert await site.comes({"Authorization": "Bearer t"}) == "node tokened"

    runs(course)


def test_what_the_proxy_has_not_verified_or_says_in_two_ways_is_nobody(site: Site) -> None:
    odd: list[list[tuple[str, str]]] = [
        [],
        [(SUBJECT, NODE01[SUBJECT])],
        [(VERIFIED, "NONE"), (SUBJECT, NODE01[SUBJECT])],
        [(VERIFIED, "FAILED:self-signed"), (SUBJECT, NODE01[SUBJECT])],
        [(VERIFIED, "success"), (SUBJECT, NODE01[SUBJECT])],
        [(VERIFIED, "SUCCESS")],
        [(VERIFIED, "SUCCESS"), (SUBJECT, "CN=nobody01")],
        [(VERIFIED, "SUCCESS"), (SUBJECT, NODE01[SUBJECT]), (SUBJECT, "CN=submit01")],
        [(VERIFIED, "FAILED"), (VERIFIED, "SUCCESS"), (SUBJECT, NODE01[SUBJECT])],
        [(VERIFIED, "SUCCESS"), (SUBJECT, NODE01[SUBJECT]), ("Authorization", "Bearer wrong")],
        [(VERIFIED, "SUCCESS"), (SUBJECT, NODE01[SUBJECT]), ("Authorization", "Basic t")],
    ]

    async def course() -> None:
        async with site.serve():
            for headers in odd:
                assert await site.comes(headers) == "401", headers

    runs(course)


def test_whose_line_is_taken_away_is_sent_away(site: Site) -> None:
    async def course() -> None:
        async with site.serve(), unix_connect(site.path, "ws://localhost/", additional_headers=NODE01) as node:
            while not site.server._peers:
                await asyncio.sleep(0.01)
            site.server.know(read_tokens(LINES))  # the same once more
            await (await node.ping())
            site.server.know(read_tokens(LINES.partition("\n")[2]))
            with pytest.raises(ConnectionClosed):
                await node.recv()

    runs(course)


def test_a_proxy_has_a_user_that_the_server_can_know(tmp_path: Path) -> None:
    options = hub.argparse.Namespace(proxy=str(tmp_path / "proxy.sock"), proxy_user=None)
    with pytest.raises(JobLensError, match="needs --proxy-user"):
        hub._proxy(options)
    options.proxy_user = "nobody"
    with pytest.raises(JobLensError, match="can be anybody"):
        hub._proxy(options)
    options.proxy_user = "root"
    found = hub._proxy(options)
    assert found is not None and found[1] == 0
    found[0].close()


# -- the whole way, with a proxy that speaks TLS --------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates, each its own authority: of the proxy, of a node, and of a stranger."""
    folder = tmp_path_factory.mktemp("certificates")
    for name, subject in (("proxy", "/CN=proxy"), ("node", "/CN=node01.example.org"), ("stranger", "/CN=submit01")):
        new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        new += ["-days", "2", "-subj", subject, "-addext", "subjectAltName=IP:127.0.0.1"]
        new += ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")]
        subprocess.run(new, check=True, capture_output=True)
        (folder / f"{name}.key").chmod(0o600)
    return folder


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
    target.close()


@contextlib.asynccontextmanager
async def proxy(folder: Path, path: str) -> AsyncIterator[str]:
    """As the site's, with ssl_verify_client on: it clears the two headers, and says who has come."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        subject = dict(pair for part in writer.get_extra_info("peercert")["subject"] for pair in part)["commonName"]
        head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[:-2]
        head = [line for line in head if not line.lower().startswith(b"x-client-")]
        said = [f"{VERIFIED}: SUCCESS".encode(), f"{SUBJECT}: CN={subject}".encode(), b"", b""]
        there, back = await asyncio.open_unix_connection(path)
        back.write(b"\r\n".join([*head, *said]))
        await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer))

    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "node.pem"))
    tls.load_cert_chain(folder / "proxy.pem", folder / "proxy.key")
    tls.verify_mode = ssl.CERT_REQUIRED
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"wss://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()


def test_a_relay_shows_its_certificate_and_needs_no_token(site: Site, folder: Path) -> None:
    async def course() -> None:
        async with site.serve(), proxy(folder, site.path) as url:
            tls = tls_for(url, str(folder / "proxy.pem"))
            show_certificate(tls, str(folder / "node.pem"), str(folder / "node.key"))
            task = asyncio.create_task(Relay(url, "", "/nowhere", site.lines.append, tls).run())
            while "node01.example.org" not in site.server._nodes:
                await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    runs(course)


def test_a_stranger_s_certificate_opens_nothing(site: Site, folder: Path) -> None:
    async def course() -> None:
        async with site.serve(), proxy(folder, site.path) as url:
            for name in ("stranger", ""):
                tls = tls_for(url, str(folder / "proxy.pem"))
                if name:
                    show_certificate(tls, str(folder / f"{name}.pem"), str(folder / f"{name}.key"))
                with pytest.raises((OSError, WebSocketException)):
                    async with connect(url, ssl=tls, additional_headers=NODE01) as connection:
                        await connection.recv()
            assert not site.server._peers

    runs(course)


def test_a_certificate_is_shown_over_tls_alone_and_its_key_is_its_owner_s(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(JobLensError, match="needs TLS"):
        show_certificate(None, str(folder / "node.pem"), str(folder / "node.key"))
    tls = tls_for("wss://relay.example.org/", "")
    key = tmp_path / "node.key"
    key.write_bytes((folder / "node.key").read_bytes())
    key.chmod(0o640)
    with pytest.raises(JobLensError, match="is not its owner's alone"):
        show_certificate(tls, str(folder / "node.pem"), str(key))
    for certificate, other in (("none.pem", "node.key"), ("node.pem", "proxy.key")):
        with pytest.raises(JobLensError, match="JOBLENS_RELAY_CERTIFICATE_FILE"):
            show_certificate(tls, str(folder / certificate), str(folder / other))
