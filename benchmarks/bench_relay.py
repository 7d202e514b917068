#!/usr/bin/env python3
"""What a command from afar waits for between an access point and a node, and what relay server and relays cost.

Server and relays are the real ones, without TLS but for the registrations: the server is a process, and all nodes'
relays are another. Instead of joblensd somebody answers each node at once. So the door, the check of a warrant and the
child are not in these figures.

    bench_relay.py                  200 nodes, in three minutes
    bench_relay.py --nodes 3000     what is kept for docs/performance.md; larger ones are kept beside it
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import os
import random
import resource
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "benchmarks")]

from results import Section, verdict  # noqa: E402

from condor_joblens.cli import control as control_command  # noqa: E402
from condor_joblens.common.errors import JobLensError  # noqa: E402
from condor_joblens.common.open_socket import listening_at  # noqa: E402
from condor_joblens.control import frames  # noqa: E402
from condor_joblens.relay.control import Control, name_of  # noqa: E402
from condor_joblens.relay.entry_store import EntryStore  # noqa: E402
from condor_joblens.relay.messages import HEARTBEAT  # noqa: E402
from condor_joblens.relay.relay import AGAIN_SECONDS, Relay  # noqa: E402
from condor_joblens.relay.roles import read_roles  # noqa: E402
from condor_joblens.relay.server import RelayServer, Who, tls_by  # noqa: E402

KEPT_FROM = 3000
"""Nodes from which on the results are kept."""

COMMANDS = 500
IDLE_SECONDS = 2 * HEARTBEAT
"""So long is nobody asked anything. Each connection has two pings of both sides in that time, whenever it began."""

REGISTRATIONS, AT_ONCE = 2000, 64
"""Connections with TLS and a token that are made, and how many of them at a time."""

PACKET = b"x" * 400
"""As long as a warrant of `ps`."""

_PAGE = os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    """Measures all of it; exit code 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, default=200, metavar="N", help="that are connected (200)")
    nodes: int = parser.parse_args().nodes
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    if limit < nodes + 100:
        print(f"{nodes} nodes need {nodes + 100} open files, and {limit} are allowed: ulimit -n", file=sys.stderr)
        return 1
    about = (
        f"{nodes} nodes, {COMMANDS} commands one after the other, each to another node. Without TLS, but for the "
        f"registrations, which the server takes itself. Idle is {IDLE_SECONDS:.0f} s in which each connection has two "
        "pings of both sides."
    )
    section = Section(f"relay_{nodes}", f"Relay server with {nodes:,} nodes", about)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        with answering(f"{folder}/activate.sock"):
            carrying(section, nodes, folder)
        registrations(section, folder)
    if nodes >= KEPT_FROM:
        section.write()
    return verdict(section.missed)


# -- all nodes at one server ----------------------------------------------------------------------------------


def carrying(section: Section, nodes: int, folder: str) -> None:
    """The server with all nodes: idle, commands, entries, and a restart."""
    with contextlib.ExitStack() as servers:
        pid, port = servers.enter_context(server(nodes, folder))
        empty = memory(pid)
        with relays(nodes, port, f"{folder}/activate.sock"), joblens_relay(port, folder) as relay:
            asyncio.run(at_work(section, nodes, (pid, relay), port, empty))
            entries(section, nodes + 1, folder)
            servers.close()
            began = time.monotonic()
            servers.enter_context(server(nodes, folder, port))
            section.add(
                "all are back after the server was killed", asyncio.run(all_back(nodes, port, began)), "s", 60,
                f"each waits {AGAIN_SECONDS[0]:.0f} to {AGAIN_SECONDS[1]:.0f} s",
            )  # fmt: skip


async def at_work(section: Section, nodes: int, pids: tuple[int, int], port: int, empty: float) -> None:
    """The nodes come meanwhile; `pids` are the server's and that of one relay which is a process of its own."""
    pid, one = pids
    relay = Relay(url(port), "access-point", "", lambda message: None)
    task = asyncio.create_task(relay.run())
    began = time.monotonic()
    await all_answer(relay, nodes)
    section.add("until all nodes were there", time.monotonic() - began, "s", 60)
    used, began = (cpu(pid), cpu(one)), time.monotonic()
    await asyncio.sleep(IDLE_SECONDS)
    seconds = time.monotonic() - began
    section.add("the server while nobody asks", 100 * (cpu(pid) - used[0]) / seconds, "% of a core", 20)
    section.add("memory of the server for a connection", (memory(pid) - empty) / nodes / 1024, "KiB")
    section.add("memory of the server", memory(pid) / 1e6, "MB", 400)
    section.add("joblens-relay while nobody asks", 100 * (cpu(one) - used[1]) / seconds, "% of a core", 0.05)
    section.add("memory of joblens-relay", memory(one) / 1e6, "MB", 35)
    before, times = cpu(pid), []
    for number in range(COMMANDS):
        took, reason = await command(relay, random.randrange(nodes) if number >= nodes else number)
        assert not reason, reason
        times.append(1000 * took)
    cuts = statistics.quantiles(times, n=100)
    section.add("a command there and back, median", cuts[49], "ms", 100)
    section.add("a command there and back, 99th percentile", cuts[98], "ms", 1000)
    section.add("CPU of the server for a command", 1e6 * (cpu(pid) - before) / COMMANDS, "µs")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def all_back(nodes: int, port: int, began: float) -> float:
    """Seconds since `began` until each node answers, to an access point that has to come back too."""
    relay = Relay(url(port), "access-point", "", lambda message: None)
    task = asyncio.create_task(relay.run())
    await all_answer(relay, nodes)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return time.monotonic() - began


async def all_answer(relay: Relay, nodes: int) -> None:
    """Until each node has answered once."""
    while not relay.is_connected:
        await asyncio.sleep(0.01)
    for node in range(nodes):
        while (await command(relay, node))[1]:
            await asyncio.sleep(0.05)


async def command(relay: Relay, node: int) -> tuple[float, str]:
    """Seconds that it took, and why there was no answer."""
    began = time.perf_counter()
    number, waiting = await relay.carry(f"node{node}", "12.0", PACKET)
    while await waiting.parts.get() is not None:
        await relay.taken(number)
    return time.perf_counter() - began, waiting.reason


def entries(section: Section, nodes: int, folder: str) -> None:
    """An entry's way to all nodes, from `joblens control add` until the server knows that each has taken it."""
    path, began = f"{folder}/control.sock", time.monotonic()
    fields = {"user": "alice", "least": "io", "seconds": "600", "reason": "benchmark"}
    answer = control_command._asked(path, "add", fields)
    while answer["Taken"] < nodes and time.monotonic() - began < 60:
        time.sleep(0.05)
        with contextlib.suppress(JobLensError):  # who is not root may ask once a second
            answer = control_command._asked(path, "list", {})
    took = time.monotonic() - began if answer["Taken"] >= nodes else None
    target = 5 if nodes <= KEPT_FROM + 1 else None  # joblens-relay has a node of its own besides
    section.add("an entry's way to all nodes", took, "s", target, "joblensd's check of it is not in it")


# -- registrations --------------------------------------------------------------------------------------------


def registrations(section: Section, folder: str) -> None:
    """Connections with a full TLS handshake and a token, AT_ONCE at a time, to a server that speaks TLS itself."""
    certificate(folder)
    with server(REGISTRATIONS, folder, certificate=f"{folder}/server.pem") as (pid, port):
        used, began = cpu(pid), time.monotonic()
        times = asyncio.run(registered(port, f"{folder}/server.pem"))
        seconds = time.monotonic() - began
        about = f"{AT_ONCE} at a time; who registers runs on the same machine"
        section.add("registrations with TLS and token", REGISTRATIONS / seconds, "a second", 400, about, is_least=True)
        cuts = statistics.quantiles(times, n=100)
        section.add("a registration, median", 1000 * cuts[49], "ms")
        section.add("a registration, 99th percentile", 1000 * cuts[98], "ms", 1000)
        section.add("CPU of the server for a registration", 1e6 * (cpu(pid) - used) / REGISTRATIONS, "µs")


async def registered(port: int, authority: str) -> list[float]:
    """Seconds of each, until the server has said that it takes the token."""
    context = ssl.create_default_context(cafile=authority)
    context.options |= ssl.OP_NO_TICKET  # no handshake is shortened by the one before it
    places, times = asyncio.Semaphore(AT_ONCE), list[float]()

    async def one(number: int) -> None:
        async with places:
            began = time.perf_counter()
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            writer.write(
                b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                b"Authorization: Bearer node%d\r\n\r\n" % number
            )
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 101 "), head
            times.append(time.perf_counter() - began)
            writer.transport.abort()

    await asyncio.gather(*map(one, range(REGISTRATIONS)))
    return times


def certificate(folder: str) -> None:
    """Of 127.0.0.1, by itself: server.pem, with its key."""
    names = ["-subj", "/CN=relay", "-addext", "subjectAltName=IP:127.0.0.1"]
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    files = ["-keyout", f"{folder}/server.key", "-out", f"{folder}/certificate.pem"]
    subprocess.run([*new, *names, *files], check=True, capture_output=True)
    both = Path(f"{folder}/certificate.pem").read_text() + Path(f"{folder}/server.key").read_text()
    Path(f"{folder}/server.pem").write_text(both)


# -- processes ------------------------------------------------------------------------------------------------


def url(port: int) -> str:
    """The server's, on this machine."""
    return f"ws://127.0.0.1:{port}/"


@contextlib.contextmanager
def server(nodes: int, folder: str, port: int = 0, certificate: str = "") -> Iterator[tuple[int, int]]:
    """Its process id and its port. It has entries, and listens for people in `folder`."""
    tokens = {f"node{node}": Who("node", f"node{node}") for node in range(nodes)}
    tokens.update({"access-point": Who("access-point", "ap"), "process": Who("node", "process")})
    known = {hashlib.sha256(token.encode()).hexdigest(): who for token, who in tokens.items()}
    reads, writes = os.pipe()
    roles = read_roles(f"administrator {name_of(os.getuid())}\n")
    os.makedirs(f"{folder}/entries", 0o700, exist_ok=True)

    def log(message: str) -> None:
        pass

    async def serve() -> None:
        tls = tls_by(certificate) if certificate else None
        made = RelayServer(known, log)
        people = Control(listening_at(f"{folder}/control.sock"), EntryStore(f"{folder}/entries"), roles, made, log)
        async with made.start("127.0.0.1", port, tls) as listening:
            os.write(writes, b"%d" % listening.sockets[0].getsockname()[1])
            await people.run()

    with child(lambda: asyncio.run(serve())) as pid:
        yield pid, int(os.read(reads, 10))


@contextlib.contextmanager
def relays(nodes: int, port: int, path: str) -> Iterator[None]:
    """Those of all nodes."""

    async def run() -> None:
        await asyncio.gather(
            *(Relay(url(port), f"node{node}", path, lambda message: None).run() for node in range(nodes))
        )

    with child(lambda: asyncio.run(run())):
        yield


@contextlib.contextmanager
def joblens_relay(port: int, folder: str) -> Iterator[int]:
    """joblens-relay itself, as on a node, and as a user without privilege; its process id."""
    program = Path(folder) / "condor_config_val"
    settings = {"LOG": f"{folder}/log", "JOBLENS_RUN_DIR": folder, "JOBLENS_RELAY_URL": url(port)}
    settings["JOBLENS_RELAY_TOKEN_FILE"] = f"{folder}/token"
    lines = "\n".join(f"{name} = {value}" for name, value in settings.items())
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{lines}\nEND\n")
    program.chmod(0o755)
    token, log = Path(folder) / "token", Path(folder) / "log"
    token.write_text("process\n")
    token.chmod(0o600)
    log.mkdir()
    user: dict[str, object] = {}
    if os.getuid() == 0:
        user = {"user": "nobody", "group": "nogroup", "extra_groups": []}
        for path in (token, log):
            subprocess.run(["chown", "nobody", path], check=True)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(CHECKOUT)}
    command = [sys.executable, "-m", "condor_joblens.relay"]
    process = subprocess.Popen(command, env=environment, cwd="/", **user)  # type: ignore[call-overload]
    try:
        waited = time.monotonic()
        written = log / "JobLensRelayLog"
        while not written.exists() or "connected to" not in written.read_text():
            if process.poll() is not None or time.monotonic() - waited > 120:
                raise SystemExit(f"joblens-relay does not run: {written.read_text() if written.exists() else ''}")
            time.sleep(0.1)
        yield process.pid
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def child(work: Callable[[], object]) -> Iterator[int]:
    """A process that does this until it is ended; its id."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(1)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@contextlib.contextmanager
def answering(path: str) -> Iterator[None]:
    """Somebody who answers at this socket, as joblensd would: one part, and the end."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    os.chmod(path, 0o666)
    listener.listen(1024)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.recv(frames.MAX_PACKET + 1)
                    for frame in (*frames.frames(frames.DATA, b"y" * 1000), *end()):
                        connection.send(frame)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def end() -> list[bytes]:
    """The end of an answer."""
    return list(frames.frames(frames.END, frames.encode_words("over", {})))


def cpu(pid: int) -> float:
    """CPU seconds of a process, to the nanosecond."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def memory(pid: int) -> float:
    """Resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


if __name__ == "__main__":
    sys.exit(main())
