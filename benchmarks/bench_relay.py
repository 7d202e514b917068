#!/usr/bin/env python3
"""What a command from afar waits for between an access point and a node, and what the relay server costs.

Server and relays are the real ones, without TLS: the server is a process, and all nodes' relays are another. Instead of
joblensd somebody answers each node at once. So the door, the check of a warrant and the child are not in these figures.

    bench_relay.py                  200 nodes, in some seconds
    bench_relay.py --nodes 3000     what is kept for docs/performance.md
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
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "benchmarks")]

from results import Section, verdict  # noqa: E402

from condor_joblens.control import frames  # noqa: E402
from condor_joblens.relay.relay import Relay  # noqa: E402
from condor_joblens.relay.server import RelayServer, Who  # noqa: E402

KEPT_FROM = 3000
"""Nodes from which on the results are kept."""

COMMANDS = 500
IDLE_SECONDS = 10.0
PACKET = b"x" * 400
"""As long as a warrant of `ps`."""

_TICK = os.sysconf("SC_CLK_TCK")
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
    about = f"{nodes} nodes, {COMMANDS} commands one after the other, each to another node. Without TLS."
    section = Section("relay", "Relay server", about)
    with tempfile.TemporaryDirectory() as folder, answering(f"{folder}/socket") as path, server(nodes) as (pid, port):
        empty = memory(pid)
        with relays(nodes, port, path):
            asyncio.run(measure(section, nodes, pid, port, empty))
    if nodes >= KEPT_FROM:
        section.write()
    return verdict(section.missed)


async def measure(section: Section, nodes: int, pid: int, port: int, empty: float) -> None:
    """The nodes come meanwhile."""
    relay = Relay(url(port), "access-point", "", lambda message: None)
    task = asyncio.create_task(relay.run())
    while not relay.is_connected:
        await asyncio.sleep(0.01)
    began = time.monotonic()
    for node in range(nodes):
        while (await command(relay, node))[1]:
            await asyncio.sleep(0.05)
    section.add("until all nodes were there", time.monotonic() - began, "s", 60)
    used, began = cpu(pid), time.monotonic()
    await asyncio.sleep(IDLE_SECONDS)
    section.add("the server while nobody asks", 100 * (cpu(pid) - used) / (time.monotonic() - began), "% of a core", 20)
    section.add("memory of the server for a connection", (memory(pid) - empty) / nodes / 1024, "KiB")
    section.add("memory of the server", memory(pid) / 1e6, "MB", 400)
    used, times = cpu(pid), []
    for number in range(COMMANDS):
        seconds, reason = await command(relay, random.randrange(nodes) if number >= nodes else number)
        assert not reason, reason
        times.append(1000 * seconds)
    cuts = statistics.quantiles(times, n=100)
    section.add("a command there and back, median", cuts[49], "ms", 100)
    section.add("a command there and back, 99th percentile", cuts[98], "ms", 1000)
    section.add("CPU of the server for a command", 1e6 * (cpu(pid) - used) / COMMANDS, "µs")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def command(relay: Relay, node: int) -> tuple[float, str]:
    """Seconds that it took, and why there was no answer."""
    began = time.perf_counter()
    number, waiting = await relay.carry(f"node{node}", "12.0", PACKET)
    while await waiting.parts.get() is not None:
        await relay.taken(number)
    return time.perf_counter() - began, waiting.reason


def url(port: int) -> str:
    """The server's, on this machine."""
    return f"ws://127.0.0.1:{port}/"


@contextlib.contextmanager
def server(nodes: int) -> Iterator[tuple[int, int]]:
    """Its process id and its port."""
    tokens = {f"node{node}": Who("node", f"node{node}") for node in range(nodes)}
    tokens["access-point"] = Who("access-point", "ap")
    known = {hashlib.sha256(token.encode()).hexdigest(): who for token, who in tokens.items()}
    reads, writes = os.pipe()

    async def serve() -> None:
        async with RelayServer(known, lambda message: None).start("127.0.0.1", 0) as listening:
            os.write(writes, b"%d" % listening.sockets[0].getsockname()[1])
            await asyncio.Event().wait()

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
def child(work: object) -> Iterator[int]:
    """A process that does this until it is ended; its id."""
    assert callable(work)
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
def answering(path: str) -> Iterator[str]:
    """Somebody who answers at this socket, as joblensd would: one part, and the end."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
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
        yield path
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def end() -> list[bytes]:
    """The end of an answer."""
    return list(frames.frames(frames.END, frames.encode_words("over", {})))


def cpu(pid: int) -> float:
    """CPU seconds of a process."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / _TICK


def memory(pid: int) -> float:
    """Resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


if __name__ == "__main__":
    sys.exit(main())
