"""Jobs that do next to nothing and are well: for ten times the threshold none of them is suspected.

Beside them is one that hangs, which is. At level profile there is also one in a loop without end, and the samples are
real. Programs, their numbers and the looks at them are real at every level.
"""

from __future__ import annotations

import dataclasses
import os
import selectors
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ground import Ground, Slot, until
from level_node import Node
from test_evidence import SECONDS, Look, lookers, program, start_command
from test_profile import readers

from condor_joblens.agent import hangs
from condor_joblens.agent.hangs import Hangs, LookTaken
from condor_joblens.agent.profiles import Profiles
from condor_joblens.common.config import Config
from condor_joblens.common.process_starter import ProcessStarter
from condor_joblens.model.levels import Level
from condor_joblens.sample.progress import Progress
from condor_joblens.tracer.sensors import Profile

__all__ = ["lookers", "program", "readers"]

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="unwind tables are read on x86-64 alone")

THRESHOLD, TIMES = 1.0, 10

PYTHON = {
    "waits for a server that is not there": """
import socket
while True:
    try:
        socket.create_connection(("127.0.0.1", 9), 1)
    except OSError:
        time.sleep(0.3)
""",
    "asks for an answer again and again": """
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname(), 0.4)
while True:
    try:
        client.recv(1)
    except OSError:
        pass
""",
    "has a socket with a time-out of its own": """
import socket, struct
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 0, 400_000))
while True:
    try:
        client.recv(1)
    except OSError:
        pass
""",
    "tries to get a lock": """
import fcntl, tempfile
file = tempfile.NamedTemporaryFile()
holder = open(file.name)
fcntl.flock(holder, fcntl.LOCK_EX)
while True:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        time.sleep(0.3)
""",
    "has an event loop with a timer": """
import asyncio
async def ticks():
    while True:
        await asyncio.sleep(0.5)
asyncio.run(ticks())
""",
    "has a pool of threads without work": """
import queue, threading
work = queue.Queue()
for _ in range(50):
    threading.Thread(target=work.get, daemon=True).start()
time.sleep(3600)
""",
    "waits for an event with a time-out": """
import threading
while not threading.Event().wait(0.5):
    pass
""",
}
SHELL = {
    "sleeps": "exec sleep 3600",
    "waits for a child that sleeps": "sleep 3600; true",
    "waits for a licence": "until mkdir /proc/licence 2>/dev/null; do sleep 0.4; done",
    "waits for a file": "until test -e /nowhere/result; do sleep 0.4; done",
    "follows a file": "exec tail -f /etc/hostname",
}
WAYS = {"waits for clients": "accept", "waits for a signal": "pause", "polls a server": "poll_and_sleep"}
"""Of tests/kernel/hang.cc."""

HANGS, BUSY = "recv", "busy"
WAITS = {"sleep", "events", "network", "client", "signal", "unknown"}
"""What they wait for when they are on their way no more."""


def commands(program: Path) -> dict[str, list[str]]:
    python = os.path.realpath("/usr/bin/python3")
    return {
        **{name: [python, "-c", f"import time\n{text}"] for name, text in PYTHON.items()},
        **{name: ["/bin/sh", "-c", text] for name, text in SHELL.items()},
        **{name: [str(program), way, "-"] for name, way in WAYS.items()},
    }


class Looks:
    """In the place of agent/evidence.py."""

    def __init__(self, looks: list[Look]) -> None:
        self.looks, self.taken = looks, [0] * len(looks)

    def take(
        self, run: int, uid: object, taken: LookTaken, patience: float, heading: str, least: float, charge: object
    ) -> None:
        self.taken[run] += 1
        for packet in self.looks[run].packets(least=least):
            taken.send(packet)
        taken.end({})


class Kept:
    """What is made known."""

    def __init__(self, it: Node) -> None:
        self.said: list[tuple[int, str]] = []
        it.node.config = dataclasses.replace(Config(), hang_minutes=THRESHOLD / 60, max_cpu=1.0)
        it.node.guard, it.node.describe, it.node.log = lambda run, step, act, *given: act(*given), str, it.said.append

    def hang(self, run: int, cause: str) -> None:
        self.said.append((run, cause))

    def keep(self, run: int, kind: str, pieces: object, **more: object) -> None:
        pass


@pytest.fixture
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="joblens-harmless", dir="/tmp") as name:
        os.chown(name, 12345, 12345)
        yield Path(name)


class Samples:
    """What joblensd does at level profile, of all slots: the number of a run is one more than its place."""

    CLOSE_EVERY = 4.5
    """Seconds: windows that are told apart have 4 at least."""

    def __init__(
        self, slots: list[Slot], lookers: ProcessStarter, readers: ProcessStarter, scratch: Path, watched: Hangs
    ) -> None:
        on_demand = slots[0].tracer.sensors["profile"]
        sensor = on_demand.sensor
        assert isinstance(sensor, Profile)
        self._slots, self._lookers, self._selector = slots, lookers, selectors.DefaultSelector()
        self._closed = time.monotonic()

        def open_files(run: int, channel: socket.socket) -> None:
            folder = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY)
            try:
                lookers.start(channel, folder)
            finally:
                os.close(folder)

        self._profiles = Profiles(
            sensor, 64 << 20, readers, open_files, lambda *_: True, lambda *_: None, self._selector, print
        )
        self._profiles.on_steady = watched.busy.heard
        for place, slot in enumerate(slots):
            sensor.describe(slot.index, place + 1, 12345)
            assert on_demand.start(slot.index), on_demand.missing
            self._profiles.begin(place + 1, slot.index)

    def turn(self) -> None:
        for key, _ in self._selector.select(0):
            key.data()
        self._lookers.receive()
        now = time.monotonic()
        self._profiles.tick(now)
        if now >= self._closed + self.CLOSE_EVERY:
            self._closed = now
            for place in range(len(self._slots)):
                self._profiles.close_window(place + 1)

    def close(self) -> None:
        for place, slot in enumerate(self._slots):
            self._profiles.end(place + 1)
            slot.tracer.sensors["profile"].stop(slot.index)
        self._profiles.close()
        self._selector.close()


def cpu_seconds(slot: Slot) -> float:
    words = (slot.path / "cpu.stat").read_text().split()
    return int(words[words.index("usage_usec") + 1]) * 1e-6


@pytest.mark.sampled(1)
@pytest.mark.parametrize("level", [Level.BASIC, Level.IO, Level.PROFILE])
def test_of_many_jobs_that_do_nothing_the_one_that_hangs_is_told(
    level: Level,
    ground: Ground,
    lookers: ProcessStarter,
    readers: ProcessStarter,
    program: Path,
    scratch: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hangs, "APART", 0.3)
    told = commands(program)
    suspected = [HANGS, BUSY] if level is Level.PROFILE else [HANGS]
    slots = [ground.slot(f"condor_slot{number}") for number in range(1, len(told) + len(suspected) + 1)]
    looks = [Look(slot, lookers, scratch) for slot in slots]
    for slot, command in zip(slots, [*told.values(), *([str(program), way, "-"] for way in suspected)]):
        start_command(slot, command, HANG_TOLD=os.devnull)
    for look in looks[: len(told) + 1]:
        until(lambda look=look: look().cause in WAITS, SECONDS)
    it = Node(slots, tmp_path)
    for run in range(len(slots)):
        it.level(run, level)
    events, node = Kept(it), it.node
    taken: Any = Looks(looks)
    watched = Hangs(node, taken, events, events, lambda *tag: None)
    it.runs.rows["run_number"][: len(slots)] = range(1, len(slots) + 1)
    samples = Samples(slots, lookers, readers, scratch, watched) if level is Level.PROFILE else None
    progress, began = Progress(node), time.monotonic()
    while time.monotonic() < began + TIMES * THRESHOLD or len(events.said) < len(suspected):
        assert time.monotonic() < began + SECONDS, f"they are not noticed: {events.said}"
        it.take()
        if samples is not None:
            samples.turn()
        it.runs.rows["cpu_seconds"][: len(slots)] = [cpu_seconds(slot) for slot in slots]
        progress.read(np.arange(len(slots)), False)
        watched.tick()
        time.sleep(0.05)
    if samples is not None:
        samples.close()
    names = [*told, *suspected]
    assert {(names[run], cause) for run, cause in events.said} == {*zip(suspected, ["network", "busy"])}
    assert sum(map(bool, taken.taken[: len(told)])) >= len(told) / 2, (
        "most of them have stood still, and were looked at"
    )
