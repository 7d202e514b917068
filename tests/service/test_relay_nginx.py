"""The relay server behind a real nginx, which speaks TLS, with the lines of docs/admin.md."""

from __future__ import annotations

import asyncio
import contextlib
import pwd
import re
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from servers import Nginx, Server, free_port
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from condor_joblens.common.open_socket import streams_at
from condor_joblens.common.tokens import digest, read_tokens
from condor_joblens.relay.__main__ import show_certificate, tls_for
from condor_joblens.relay.relay import Relay
from condor_joblens.relay.server import RelayServer

PAGE = Path(__file__).resolve().parents[2] / "docs/admin.md"
NODE, TOKENED = "node01.example.org", "tokened.example.org"
LINES = f"node {NODE} certificate\nnode {TOKENED} {digest('t')}\naccess-point submit01 certificate\n"
FORGED = {"X-Client-Verify": "SUCCESS", "X-Client-Subject": "CN=submit01"}


def certificates(folder: Path) -> None:
    """An authority of hosts, certificates of a node and of the proxy by it, and a stranger's."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    by = ["-CA", str(folder / "hosts.pem"), "-CAkey", str(folder / "hosts.key")]
    for name, subject, more in (
        ("hosts", "/CN=hosts", []),
        ("proxy", "/CN=proxy", [*by, "-addext", "subjectAltName=IP:127.0.0.1"]),
        ("node", f"/O=site/CN={NODE}", by),
        ("stranger", "/CN=submit01", []),
    ):
        files = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")]
        new = ["openssl", "req", "-x509", *key, "-subj", subject, *more, *files]
        subprocess.run(new, check=True, capture_output=True)
        (folder / f"{name}.key").chmod(0o600)


def lines_of_the_page(folder: Path, port: int) -> str:
    """What docs/admin.md says, with this test's paths."""
    found = re.search(r"^server \{\n.*?^\}\n", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found
    text = found[0]
    for of_page, ours in (
        ("443 ssl", f"127.0.0.1:{port} ssl"),
        ("/etc/ssl/relay.pem", str(folder / "proxy.pem")),
        ("/etc/ssl/relay.key", str(folder / "proxy.key")),
        ("/etc/ssl/hosts-ca.pem", str(folder / "hosts.pem")),
        ("/run/joblens-relay-server/proxy.sock", str(folder / "proxy.sock")),
    ):
        assert text.count(of_page) == 1, of_page
        text = text.replace(of_page, ours)
    return text


class Site:
    """nginx, and the relay server behind it."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url, self.lines = folder, url, list[str]()
        self.server = RelayServer(read_tokens(LINES), self.lines.append)

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        (self.folder / "proxy.sock").unlink(missing_ok=True)
        uid = pwd.getpwnam(Nginx.USER).pw_uid
        async with self.server.start_for_proxy(streams_at(str(self.folder / "proxy.sock")), uid):
            yield

    async def comes(self, certificate: str = "", **headers: str) -> str:
        """Who it is that comes by nginx; a status if nobody is."""
        tls = tls_for(self.url, str(self.folder / "hosts.pem"))
        if certificate:
            show_certificate(tls, str(self.folder / f"{certificate}.pem"), str(self.folder / f"{certificate}.key"))
        try:
            async with connect(self.url, ssl=tls, additional_headers=headers):
                while not self.server._peers:
                    await asyncio.sleep(0.01)
                (peer,) = self.server._peers
                found = f"{peer.who.role} {peer.who.name}"
        except InvalidStatus as error:
            return str(error.response.status_code)
        while self.server._peers:
            await asyncio.sleep(0.01)
        return found


@pytest.fixture(scope="module")
def nginx(folder: Path, server: Callable[..., Server]) -> Iterator[tuple[Path, str]]:
    """It runs, with all that its lines name in this folder; its URL."""
    certificates(folder)
    port = free_port()
    with server(Nginx, folder / "nginx", port, lines_of_the_page(folder, port)):
        yield folder, f"wss://127.0.0.1:{port}/"


def runs(course: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(course(), 300))


def test_nginx_says_whose_certificate_it_has_verified_and_passes_tokens_on(nginx: tuple[Path, str]) -> None:
    site = Site(*nginx)

    async def course() -> None:
        async with site.serve():
            assert await site.comes("node") == f"node {NODE}"
            assert await site.comes("node", **FORGED) == f"node {NODE}", "what a client says of itself is not passed on"
            assert await site.comes(**FORGED) == "401"
            assert await site.comes("stranger", **FORGED) == "400"
            assert await site.comes(Authorization="Bearer t") == f"node {TOKENED}"
            assert await site.comes(Authorization="Bearer wrong", **FORGED) == "401"

    runs(course)


def test_a_relay_connects_by_its_certificate_and_is_asked(nginx: tuple[Path, str]) -> None:
    site = Site(*nginx)

    async def course() -> None:
        async with site.serve():
            tls = tls_for(site.url, str(site.folder / "hosts.pem"))
            show_certificate(tls, str(site.folder / "node.pem"), str(site.folder / "node.key"))
            task = asyncio.create_task(Relay(site.url, "", "/nowhere", site.lines.append, tls).run())
            while NODE not in site.server._nodes:
                await asyncio.sleep(0.01)
            (answer,) = await site.server.preview(b"x" * 60_000, 60.0)
            assert answer == b"", "it has no joblensd, and says so"
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    runs(course)
