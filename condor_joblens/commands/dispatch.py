"""From a request to its command: finds the run that is meant, checks the authority, calls the command."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from condor_joblens.commands import activate, authority, level
from condor_joblens.commands.node import Node
from condor_joblens.commands.watch import Watch
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import Request

Find = Callable[[Node, Request], int]
"""The index of the run that is meant. Raises Refused."""

Answer = Callable[[Node, Request, int], dict[str, str]]
"""The fields of the answer. Raises Refused."""

Begin = Callable[[Request, int, Stream], None]
"""Begins to send. Raises Refused."""


class Dispatcher:
    """What the control server calls (control/server.py, Commands)."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.watch = Watch(node)
        self._answers: dict[str, tuple[Find, Answer]] = {
            "activate": (activate.find, activate.answer),
            "level": (level.find, level.answer),
        }
        self._streams: dict[str, tuple[Find, Begin]] = {
            "watch": (self.watch.find, self.watch.begin),
        }

    def answer(self, request: Request) -> Mapping[str, str]:
        """The fields after the word that grants. Raises Refused."""
        find, answer = self._answers[request.verb]
        run = find(self._node, request)
        authority.check(self._node, request, run)
        return answer(self._node, request, run)

    def stream(self, request: Request, stream: Stream) -> None:
        """Begins to answer with a stream. Raises Refused."""
        find, begin = self._streams[request.verb]
        run = find(self._node, request)
        authority.check(self._node, request, run)
        begin(request, run, stream)
