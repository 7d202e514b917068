"""The lines about commands are in joblensd's log alone: the ring of jobs' events has none, done or refused."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from selectors import DefaultSelector
from typing import Any

import pytest
from agent_node import Made, make
from test_commands import GOOD

from condor_joblens.agent.control_socket import CommandNode
from condor_joblens.agent.evidence import Evidence
from condor_joblens.agent.output.emit_events import EventEmitter
from condor_joblens.agent.owner_commands import OwnerCommands
from condor_joblens.commands import owner_verbs
from condor_joblens.commands.dispatch import Dispatcher
from condor_joblens.control import audit
from condor_joblens.control.verbs import VERBS, Refused, Request
from condor_joblens.jobs.sandbox import JobSandbox
from condor_joblens.model.events import EventKind
from condor_joblens.owner_files.operations import Operations
from condor_joblens.shm.ring import EventReader, EventWriter


class Children:
    """What starts children, and what traces; neither says anything."""

    def __init__(self) -> None:
        self._channels: list[socket.socket] = []

    def start(self, *given: Any, **more: object) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channels += [theirs, *(each.dup() for each in given if isinstance(each, socket.socket))]
        return ours

    def close(self) -> None:
        for each in self._channels:
            each.close()

    def number(self, run: int) -> int:
        return 0


class Stream:
    """The end of a stream."""

    def __init__(self) -> None:
        self.on_close: Callable[[], object] = int

    def send(self, data: bytes) -> bool:
        """Somebody takes it."""
        return True

    def end(self, fields: object) -> None:
        """All has been said."""


@dataclass
class Node:
    """joblensd's commands over a ring of events as it has one, and a job."""

    made: Made
    dispatcher: Dispatcher
    ring: EventReader

    def ask(self, verb: str, uid: int) -> str:
        """Why it is refused; empty: it is done."""
        request, stream = Request(verb, {**GOOD[verb]}, 666, uid), Stream()
        try:
            if VERBS[verb].streams:
                self.dispatcher.stream(request, stream)  # type: ignore[arg-type]
            else:
                self.dispatcher.answer(request)
        except Refused as refused:
            return str(refused)
        stream.on_close()
        return ""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    made, path = make(tmp_path, monkeypatch), str(tmp_path / "events")
    made.agent.output.events = EventEmitter(made.node, EventWriter(path, 0, os.getgid()))
    run = made.begin("12.0")
    made.node.runs.state["cgroup_id"][run] = tmp_path.stat().st_ino
    folder = os.open(tmp_path, os.O_RDONLY)
    sandbox = JobSandbox(Operations(), str(tmp_path), folder, os.getuid(), folder, os.getuid())
    made.node.handles[run].path, made.node.handles[run].sandbox = str(tmp_path), sandbox
    children: Any = Children()
    commands = OwnerCommands(made.node, children, DefaultSelector(), children)
    there = CommandNode(made.agent, Evidence(made.node, None, DefaultSelector()), commands)
    yield Node(made, Dispatcher(there), EventReader(path))
    children.close()
    os.close(folder)


def test_no_command_done_or_refused_is_an_event(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "REFUSALS", 1)
    node.made.agent.output.events.run_started(0)
    done = [verb for verb in VERBS if node.ask(verb, 0) == ""]
    assert {*owner_verbs.REQUESTS, "notify"} <= set(done)
    for verb in VERBS:
        node.ask(verb, os.getuid() + 1)
    node.dispatcher.tell_sums(at_once=True)
    lines = "\n".join(node.made.log)
    for said in ("root asked for kill", "was refused: only root", "more commands were refused"):
        assert said in lines
    (event,) = node.ring.read()
    assert (event["kind"], node.ring.missed) == (EventKind.RUN_START, 0), "of the job, and of nobody's commands"
