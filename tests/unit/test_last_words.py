"""What a process says at its end is heard over a socket of its own, whatever else its user has asked for."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from selectors import DefaultSelector
from typing import Any

import pytest
from agent_node import Made, make

from condor_joblens.agent import control_socket, last_words
from condor_joblens.agent.control_socket import CommandNode, ControlSocket
from condor_joblens.agent.evidence import Evidence
from condor_joblens.agent.owner_commands import OwnerCommands
from condor_joblens.agent.throttle import Throttle
from condor_joblens.commands import authority
from condor_joblens.control import LAST_WORDS, SOCKET, frames
from condor_joblens.model.levels import Level

RAISED = {"line": b"KeyError: 7", "place": b"/a/fit.py:3", "traceback": b"KeyError: 7\n"}
SPENT = -1000.0
"""Seconds of its time that a user has saved up."""


class Site:
    """joblensd's two sockets in one loop, of which a test does the turns. All processes are in the only run's slot."""

    def __init__(self, made: Made, folder: Path) -> None:
        self.folder = folder
        self.heard: list[Any] = []
        self._selector, node = DefaultSelector(), made.node
        self._throttles = Throttle(self._selector), Throttle(self._selector)
        nobody = self._throttles[0].selector
        evidence, commands = Evidence(node, None, nobody), OwnerCommands(node, None, nobody)
        self.control = ControlSocket(made.agent, self._throttles, evidence, commands)

    def turn(self) -> None:
        for key, _ in self._selector.select(0.05):
            key.data()
        self.control.resume()

    def say(self, name: str, verb: str = "raised", fields: dict[str, bytes] = RAISED) -> socket.socket:
        """Says it over the socket of that name, from this process."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        connection.connect(str(self.folder / name))
        for packet in frames.frames(frames.REQUEST, frames.encode_words(verb, fields)):
            connection.send(packet)
        return connection

    def answer(self, connection: socket.socket) -> frames.Words:
        """What comes back; a turn at a time until it does."""
        while True:
            try:
                packet = connection.recv(frames.MAX_PACKET + 1)
            except BlockingIOError:
                self.turn()
                continue
            found = frames.Assembler(frames.DATA + frames.END, frames.MAX_ANSWER).add(packet)
            assert found is not None
            return frames.decode_words(found[1])

    def close(self) -> None:
        if (self.folder / SOCKET).exists():
            self.control.close()
        for throttle in self._throttles:
            throttle.selector.close()
        self._selector.close()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Site]]:
    """What makes one, so that a test says first how much time users have."""
    made = make(tmp_path, monkeypatch, max_level=Level.TRACE)
    run, sites = made.begin(level=Level.TRACE), []
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    monkeypatch.setattr(CommandNode, "run_of_process", lambda *_: run)
    monkeypatch.setattr(authority, "check", lambda *_: None)  # tests/unit/test_commands.py has it

    def begin() -> Site:
        sites.append(Site(made, tmp_path))
        heard = sites[-1].heard
        monkeypatch.setattr(CommandNode, "has_raised", lambda _, *said: heard.append(said))
        return sites[-1]

    yield begin
    for each in sites:
        each.close()
    signal.signal(signal.SIGALRM, before)


def test_it_is_heard_though_its_user_has_had_his_share_of_requests(
    site: Callable[[], Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_socket, "SAVED_OF_A_USER", SPENT)
    it = site()
    with it.say(SOCKET, "say", {"words": b"step 3"}) as asks, it.say(LAST_WORDS) as ends:
        assert it.answer(ends).word == "heard"
        with pytest.raises(BlockingIOError):
            asks.recv(1)
    assert it.heard == [(0, os.getpid(), "KeyError: 7", "/a/fit.py:3", "KeyError: 7\n")]


def test_a_flood_of_it_takes_nothing_of_what_starts_of_jobs_need(
    site: Callable[[], Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_words, "SAVED_OF_A_USER", SPENT)
    it = site()
    with it.say(LAST_WORDS) as ends, it.say(SOCKET, "say", {"words": b"step 3"}) as asks:
        assert it.answer(asks).word == "heard"
        with pytest.raises(BlockingIOError):
            ends.recv(1)
    assert it.heard == []


REFUSED = {"say": {"words": b"step 3"}, "level": {"job": b"12.0"}, "watch": {"job": b"12.0", "schema": b"1"}}


@pytest.mark.parametrize("verb", REFUSED)
def test_nothing_else_is_heard_there(site: Callable[[], Site], verb: str) -> None:
    it = site()
    with it.say(LAST_WORDS, verb, REFUSED[verb]) as asks:
        answer = it.answer(asks)
    assert (answer.word, answer.fields["reason"]) == ("refused", b"only last words are heard at this socket")


def test_both_sockets_end_together(site: Callable[[], Site], tmp_path: Path) -> None:
    it = site()
    assert (tmp_path / LAST_WORDS).stat().st_mode & 0o777 == 0o666
    it.control.close()
    assert not (tmp_path / SOCKET).exists() and not (tmp_path / LAST_WORDS).exists()
