#!/usr/bin/env python3
"""What the relay server and its TLS proxy need together: nodes that are connected through a real nginx.

The proxy has the lines of docs/admin.md. All nodes' relays are one process, and somebody answers for each joblensd at
once, as in bench_relay.py, which has the server without a proxy.

    bench_relay_proxy.py [--nodes N]      as root; 200 nodes, kept from 3000 on
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import os
import pwd
import resource
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "benchmarks"), str(CHECKOUT / "tests/service")]

from bench_relay import COMMANDS, IDLE_SECONDS, KEPT_FROM, all_answer, answering, child, command, cpu, memory  # noqa: E402
from results import Section, verdict  # noqa: E402
from servers import Nginx, free_port  # noqa: E402
from test_relay_nginx import certificates, lines_of_the_page  # noqa: E402

from condor_joblens.common.open_socket import streams_at  # noqa: E402
from condor_joblens.relay.relay import Relay  # noqa: E402
from condor_joblens.relay.server import RelayServer, Who  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=200, metavar="N", help="that are connected (200)")
    nodes: int = parser.parse_args().nodes
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    section = Section(
        f"relay_proxy_{nodes}",
        f"Relay server behind a TLS proxy with {nodes:,} nodes",
        f"{nodes} nodes by TLS and a token through one worker of nginx. Idle is {IDLE_SECONDS:.0f} s, in which each "
        f"connection has two pings of both sides. Then {COMMANDS} commands, each to another node.",
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        certificates(folder)
        port = free_port()
        proxy = Nginx(folder / "nginx", port, lines_of_the_page(folder, port), 2 * nodes + 100)
        with answering(f"{folder}/activate.sock"), server(nodes, folder) as pid, proxy:
            assert proxy.process is not None
            (worker,) = psutil.Process(proxy.process.pid).children()
            empty = memory(pid), memory(worker.pid)
            with relays(nodes, port, folder):
                asyncio.run(at_work(section, nodes, (pid, worker.pid), empty, Peer(port, folder)))
    if nodes >= KEPT_FROM:
        section.write()
    return verdict(section.missed)


class Peer:
    """How a relay comes to the server."""

    def __init__(self, port: int, folder: Path) -> None:
        self.url, self.folder = f"wss://127.0.0.1:{port}/", folder
        self.tls = ssl.create_default_context(cafile=str(folder / "hosts.pem"))

    def relay(self, token: str) -> Relay:
        return Relay(self.url, token, f"{self.folder}/activate.sock", lambda message: None, self.tls)


async def at_work(section: Section, nodes: int, pids: tuple[int, int], empty: tuple[float, float], peer: Peer) -> None:
    """The nodes come meanwhile; `pids`, and bytes of memory when `empty`, are the server's and the proxy's."""
    relay = peer.relay("access-point")
    task = asyncio.create_task(relay.run())
    began = time.monotonic()
    await all_answer(relay, nodes)
    section.add("until all nodes were there", time.monotonic() - began, "s", 60)
    used, began = [cpu(pid) for pid in pids], time.monotonic()
    await asyncio.sleep(IDLE_SECONDS)
    seconds = time.monotonic() - began
    for who, pid, before, at_first in zip(("server", "proxy"), pids, used, empty):
        section.add(f"the {who} while nobody asks", 100 * (cpu(pid) - before) / seconds, "% of a core")
        section.add(f"memory of the {who}", memory(pid) / 1e6, "MB")
        section.add(f"memory of the {who} for a connection", (memory(pid) - at_first) / nodes / 1024, "KiB")
    both = sum(memory(pid) for pid in pids) / 1e6
    section.add("memory of both", both, "MB", 1200)
    used = [cpu(pid) for pid in pids]
    times = []
    for number in range(COMMANDS):
        took, reason = await command(relay, number % nodes)
        assert not reason, reason
        times.append(1000 * took)
    cuts = statistics.quantiles(times, n=100)
    section.add("a command there and back, median", cuts[49], "ms", 100)
    section.add("a command there and back, 99th percentile", cuts[98], "ms", 1000)
    for who, pid, at_first in zip(("server", "proxy"), pids, used):
        section.add(f"CPU of the {who} for a command", 1e6 * (cpu(pid) - at_first) / COMMANDS, "µs")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@contextlib.contextmanager
def server(nodes: int, folder: Path) -> Iterator[int]:
    """Its process id; it serves the proxy's user at the socket of the page's lines."""
    known = {hashlib.sha256(f"node{node}".encode()).hexdigest(): Who("node", f"node{node}") for node in range(nodes)}
    known[hashlib.sha256(b"access-point").hexdigest()] = Who("access-point", "ap")
    reads, writes = os.pipe()

    async def serve() -> None:
        uid = pwd.getpwnam(Nginx.USER).pw_uid
        async with RelayServer(known, lambda message: None).start_for_proxy(streams_at(f"{folder}/proxy.sock"), uid):
            os.write(writes, b"1")
            await asyncio.Event().wait()

    with child(lambda: asyncio.run(serve())) as pid:
        os.read(reads, 1)
        yield pid


@contextlib.contextmanager
def relays(nodes: int, port: int, folder: Path) -> Iterator[None]:
    """Those of all nodes."""

    async def run() -> None:
        peer = Peer(port, folder)
        await asyncio.gather(*(peer.relay(f"node{node}").run() for node in range(nodes)))

    with child(lambda: asyncio.run(run())):
        yield


if __name__ == "__main__":
    sys.exit(main())
