"""Each verb, when what answers it is killed in the middle: who has asked is told so in one sentence, with exit code 1.

What is killed is a process: the child that is the job's owner, joblensd, or the relay of the access point. The same in
a pool of two nodes, for some verbs, is in tests/pool/test_afar.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from control_socket import Server
from test_cli_owner_commands import RECORD
from test_remote_commands import ACCESS_POINT, MEANT, NODE, FarSite, Older, public

from condor_joblens.agent.owner_commands import OwnerCommands
from condor_joblens.cli import afar
from condor_joblens.cli.main import main
from condor_joblens.commands.authority import MAY, Caller
from condor_joblens.commands.dispatch import Dispatcher
from condor_joblens.commands.owner_verbs import REQUESTS
from condor_joblens.control import SOCKET, door, warrants
from condor_joblens.control.verbs import VERBS, Payer
from condor_joblens.control.warrants import Warrant
from condor_joblens.jobs.sandbox import JobSandbox
from condor_joblens.model.metrics import empty_rows
from condor_joblens.owner_files.operations import Operations

CHECKOUT = Path(__file__).resolve().parents[2]

COMMANDS: dict[str, list[str]] = {
    "ps": ["ps", "12.0"],
    "tail": ["tail", "12.0", "x"],
    "head": ["head", "12.0", "x"],
    "cat": ["cat", "12.0", "x"],
    "log": ["log", "12.0"],
    "get": ["get", "12.0", "x"],
    "env": ["env", "12.0"],
    "peek": ["peek", "12.0", "prog:counter"],
    "node": ["node", "12.0"],
    "ls": ["ls", "12.0"],
    "kill": ["kill", "12.0"],
    "trace": ["trace", "12.0", "prog:main"],
    "notify": ["notify", "12.0", "stop soon"],
    "level": ["level", "12.0"],
    "last": ["last", "12.0"],
    "evidence": ["stacks", "12.0"],
    "artifacts": ["artifacts", "12.0"],
    "watch": ["watch", "12.0"],
}
"""Of each verb that a person asks for, the command."""

WITHOUT_A_MIDDLE = ("notify", "level", "last")
"""Their answer is its end alone."""

FIRST = {
    **dict.fromkeys(("tail", "head", "cat", "log"), b"=a\n"),
    "peek": b"=" + json.dumps({"Pid": 7, "File": "prog", "Variable": "counter", "Value": "1"}).encode(),
    "trace": b'={"calls": []}',
    "evidence": b'{"jo',
    "artifacts": b"",
    "watch": empty_rows(1).tobytes(),
}
"""What has come of an answer before its end; of the other verbs it is a record."""

BY_CHILD = "this is not all: what does it as the job's owner did not answer in time, or was ended"
BY_JOBLENSD = "joblensd has ended the"
BY_RELAY = "joblens-relay of this access point has ended the connection: it was restarted, or has too many"

CHILD = """
import socket, sys, time
channel = socket.socket(fileno=0)
channel.recv(1 << 16)
channel.send(bytes.fromhex(sys.argv[1]))
print("sent", flush=True)
time.sleep(3600)
"""
"""A child of joblensd's that has said something, and does not go on."""

BETWEEN = """
import socket, sys, time
from condor_joblens.control import frames
path, ahead, parts, first = sys.argv[1], sys.argv[2], int(sys.argv[3]), bytes.fromhex(sys.argv[4])
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(path)
listener.listen(1)
print("listens", flush=True)
caller, _ = listener.accept()
packet = caller.recv(1 << 17)
if ahead:
    asked = frames.decode_words(frames.Assembler(frames.REQUEST, frames.MAX_REQUEST).add(packet)[1])
    del asked.fields["node"]
    node = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    node.connect(ahead)
    for each in frames.frames(frames.REQUEST, frames.encode_words(asked.word, asked.fields)):
        node.send(each)
    for _ in range(parts):
        caller.send(node.recv(1 << 17))
else:
    for each in frames.frames(frames.DATA, first) if parts else ():
        caller.send(each)
print("sent", flush=True)
time.sleep(3600)
"""
"""joblensd, or with what is ahead of it a relay, that has sent some parts of an answer, and does not go on."""


class Victim:
    """A process that is killed as soon as it has said `sent`."""

    def __init__(self, script: str, *arguments: str, channel: socket.socket | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            stdin=channel,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        )
        self._thread = threading.Thread(target=self._kill)

    def until(self, said: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == f"{said}\n"

    def die(self) -> None:
        """Soon; does not wait for that."""
        self._thread.start()

    def _kill(self) -> None:
        try:
            self.until("sent")
        finally:
            self._process.kill()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        if self._thread.ident is not None:
            self._thread.join()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a joblensd, or of none; no access point is here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(afar, "_sockets", lambda: None)
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def first_of(verb: str) -> bytes:
    return FIRST.get(verb, RECORD)


def check(verb: str, here: Path, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMANDS[verb], "--run-dir", str(here)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("joblens: ") and why in line


def test_each_verb_that_a_person_asks_for_is_here() -> None:
    assert set(COMMANDS) == {verb for verb, may in MAY.items() if Caller.OWNER in may}
    assert {verb for verb in COMMANDS if not VERBS[verb].streams} <= set(WITHOUT_A_MIDDLE)


# -- the child that is the job's owner ------------------------------------------------------------------------


@dataclass
class Node(FarSite):
    """joblensd's own code for what children do, each of which is a victim."""

    owner: int | None = field(default_factory=os.getuid)
    commands: Any = None
    verb: str = ""
    victims: list[Victim] = field(default_factory=list)

    def do_as_owner(self, run: int, whose: Payer, request: Mapping[str, object], stream: Any) -> None:
        self.commands.begin(run, whose, request, stream)

    def start(self, *given: Any, **more: object) -> socket.socket:
        """A child, for a command or a trace; its channel is given, or made here."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        channel = given[0] if isinstance(given[0], socket.socket) else theirs
        self.victims.append(Victim(CHILD, first_of(self.verb).hex(), channel=channel))
        self.victims[-1].die()
        theirs.close()
        if channel is theirs:
            ours.send(b"{}")
        ours.setblocking(False)
        return ours

    def number(self, run: int) -> int:
        return 0

    def why_over(self, run: int, number: int) -> str:
        return ""


@pytest.fixture
def node(here: Path) -> Iterator[Node]:
    found = Node()
    server = Server(str(here / SOCKET), Dispatcher(found).stream)
    folder = os.open(here, os.O_RDONLY)
    sandbox = JobSandbox(Operations(), str(here), folder, os.getuid(), folder, os.getuid())
    found.runs.state["cgroup_id"][0] = here.stat().st_ino
    there: Any = SimpleNamespace(handles={0: SimpleNamespace(path=str(here), sandbox=sandbox)}, runs=found.runs)
    maker: Any = found
    found.commands = OwnerCommands(there, maker, server._selector, maker)
    yield found
    server.stop()
    for victim in found.victims:
        victim.close()
    os.close(folder)


@pytest.mark.parametrize("verb", REQUESTS)
def test_the_child_is_killed(verb: str, node: Node, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node.verb = verb
    check(verb, here, BY_CHILD, capsys)
    assert len(node.victims) == 1


# -- joblensd -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def dying(path: Path, verb: str, ahead: str = "", parts: int = 1) -> Iterator[None]:
    """In here, what listens at `path` is killed within its answer to `verb`, when it has sent so many parts."""
    parts = 0 if verb in WITHOUT_A_MIDDLE else parts
    victim = Victim(BETWEEN, str(path), ahead, str(parts), first_of(verb).hex())
    try:
        victim.until("listens")
        victim.die()
        yield
    finally:
        victim.close()


@pytest.mark.parametrize("verb", COMMANDS)
def test_joblensd_is_killed(verb: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with dying(here / SOCKET, verb):
        check(verb, here, BY_JOBLENSD, capsys)


@pytest.mark.parametrize("verb", [verb for verb, may in MAY.items() if Caller.VOUCHED in may])
def test_what_a_joblensd_that_is_killed_may_have_done_is_not_asked_again_from_afar(
    verb: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a machine that is access point and node, the same command would reach the same joblensd by the relay."""
    asked: list[str] = []
    monkeypatch.setattr(afar, "from_afar", lambda verb, *_: asked.append(verb) or iter(()))
    with dying(here / SOCKET, verb, parts=0):
        check(verb, here, BY_JOBLENSD, capsys)
    assert asked == []


# -- the relay of the access point ----------------------------------------------------------------------------


class Endless(FarSite):
    """A node that has said something, and does not go on."""

    def do_as_owner(self, run: int, whose: Payer, request: Mapping[str, object], stream: Any) -> None:
        stream.send(first_of(str(request["verb"])))

    def take_evidence(self, run: int, whose: Payer, stream: Any) -> None:
        stream.send(first_of("evidence"))


def signed(path: str, verb: str, job: str, key: bytes, arguments: Mapping[str, bytes]) -> door.Signed:
    """As the access point's door does."""
    now, nonce = int(time.time() * 1000), warrants.new_nonce()
    warrant = Warrant(MEANT.user, MEANT.user, MEANT.run, MEANT.node, verb, arguments, key, nonce, now, now + 60_000)
    return door.Signed(warrants.sign(warrant, ACCESS_POINT), job, MEANT.node, public(NODE))


@pytest.fixture
def relayed(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """A node, and a relay between that dies."""
    monkeypatch.setattr(warrants, "Acceptance", Older)
    monkeypatch.setattr(afar, "_sockets", lambda: ("", "relay.sock"))
    monkeypatch.setattr(afar, "_sign", signed)
    server = Server("node.sock", Dispatcher(Endless()).stream)
    yield lambda verb: dying(Path("relay.sock"), verb, "node.sock")
    server.stop()


@pytest.mark.parametrize("verb", [verb for verb, may in MAY.items() if Caller.VOUCHED in may])
def test_the_relay_is_killed(
    verb: str, relayed: Callable[[str], Any], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with relayed(verb):
        check(verb, here, BY_RELAY, capsys)
