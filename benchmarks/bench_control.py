#!/usr/bin/env python3
"""What the control socket costs joblensd: a wrapper's call, and rows for everybody who watches a job.

The server, its frames and the commands are real, the node is that of the unit tests. Figures are CPU time of joblensd's
side alone; its clients are another process, or take their rows between two measurements.

    bench_control.py
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
import tempfile
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "benchmarks"), str(CHECKOUT / "tests" / "unit")]

import pytest  # noqa: E402
from agent_node import Made, make  # noqa: E402
from results import Section  # noqa: E402

from condor_joblens.agent.control_socket import CommandNode  # noqa: E402
from condor_joblens.agent.evidence import Evidence  # noqa: E402
from condor_joblens.agent.owner_commands import OwnerCommands  # noqa: E402
from condor_joblens.commands.dispatch import Dispatcher  # noqa: E402
from condor_joblens.control import SOCKET, frames  # noqa: E402
from condor_joblens.control.server import MAX_STREAMS, ControlServer  # noqa: E402
from condor_joblens.control.stream import Stream  # noqa: E402
from condor_joblens.control.verbs import Request  # noqa: E402
from condor_joblens.model.metrics import SCHEMA_HASH  # noqa: E402

CALLS = 10_000
ROUNDS = 50


class Basic:
    """Commands that cost nothing."""

    def answer(self, request: Request) -> dict[str, str]:
        """As to a wrapper."""
        return {"level": "basic"}

    def stream(self, request: Request, stream: Stream) -> None:
        """Nobody asks for one."""


def main() -> int:
    """Measures all of it; exit code 1 if a target is missed."""
    about = f"{CALLS} calls one after the other; {MAX_STREAMS} readers, each of another job."
    section = Section("control", "Control socket", about)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        section.add("a wrapper's call, but for what it begins", calls(Path(folder)) * 1e6, "µs")
        nobody, everybody = round_costs(make(Path(folder), patch))
        section.add("a round while nobody watches", nobody * 1e6, "µs", 2)
        section.add(f"a round with {MAX_STREAMS} readers", everybody * 1e3, "ms", 5)
    section.write()
    return 1 if section.missed else 0


def calls(folder: Path) -> float:
    """CPU seconds of a call that another process makes."""
    path = str(folder / SOCKET)
    selector = selectors.EpollSelector()
    server = ControlServer(path, selector, Basic(), print)
    child = os.fork()
    if child == 0:
        packet = frames.encode_packet("activate", {"slot": b"slot1_1", "scratch": b"/x/dir_1"}, frames.MAX_REQUEST_1)
        for _ in range(CALLS):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.connect(path)
                connection.send(packet)
                assert connection.recv(512) == b"joblens/1\0traced\0level=basic\0"
        os._exit(0)
    began = time.process_time()
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        for key, _ in selector.select(0.01):
            key.data()
    used = time.process_time() - began
    server.close()
    return used / CALLS


def round_costs(made: Made) -> tuple[float, float]:
    """CPU seconds of `Watch.send` while nobody watches, and while MAX_STREAMS readers get a row each."""
    selector = selectors.EpollSelector()
    dispatcher = Dispatcher(
        CommandNode(
            made.agent, Evidence(made.agent.node, None, selector), OwnerCommands(made.agent.node, None, selector)
        )
    )
    began = time.process_time()
    for _ in range(ROUNDS):
        dispatcher.watch.send()
    nobody = (time.process_time() - began) / ROUNDS
    readers = []
    for number in range(MAX_STREAMS):
        made.begin(f"{number}.0")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        arguments = {"job": f"{number}.0", "schema": f"{SCHEMA_HASH:016x}"}
        dispatcher.stream(Request("watch", arguments, 1, 0), Stream(ours, selector, "over", lambda stream: None))
        readers.append(theirs)
    used = 0.0
    for _ in range(ROUNDS):
        for reader in readers:
            reader.recv(frames.MAX_PACKET)
        made.node.runs.rows["sequence"] += 1
        began = time.process_time()
        dispatcher.watch.send()
        used += time.process_time() - began
    return nobody, used / ROUNDS


if __name__ == "__main__":
    sys.exit(main())
