"""From a request to its command: finds the run that is meant, checks the authority, calls the command."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping

from condor_joblens.commands import (
    activate,
    artifacts,
    ask,
    authority,
    entries,
    evidence,
    last,
    level,
    notify,
    owner_verbs,
    python,
    raised,
    say,
    variables,
)
from condor_joblens.commands.node_protocol import NodeProtocol
from condor_joblens.commands.warrant import Warrants
from condor_joblens.commands.watch import Watch
from condor_joblens.common.user_names import NAMES
from condor_joblens.control.audit import Audit
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import Refused, Request

Find = Callable[[NodeProtocol, Request], int]
"""The index of the run that is meant. Raises Refused."""

Answer = Callable[[NodeProtocol, Request, int], dict[str, str]]
"""The fields of the answer. Raises Refused."""

Begin = Callable[[Request, Stream], None]
"""Finds what is meant, checks the authority and begins to send. Raises Refused."""


class Dispatcher:
    """What the control server calls (control/server.py, Commands)."""

    def __init__(self, node: NodeProtocol) -> None:
        self._node = node
        self.watch = Watch(node)
        self._audit = Audit(node.log)
        self._answers: dict[str, tuple[Find, Answer]] = {
            "activate": (activate.find, activate.answer),
            "level": (level.find, level.answer),
            "last": (last.find, last.answer),
            "ask": (ask.find, ask.answer),
            "say": (say.find, say.answer),
            "raised": (raised.find, raised.answer),
            "variables": (variables.find, variables.answer),
            "python": (python.find, python.answer),
        }
        self._streams: dict[str, Begin] = {
            "watch": self._watch,
            "artifacts": self._artifacts,
            "evidence": self._evidence,
            **dict.fromkeys(owner_verbs.REQUESTS, self._owner_verb),
            "notify": self._notify,
            "entries": lambda request, stream: entries.begin(node, self._audit, request, stream),
            "preview": lambda request, stream: entries.preview(node, self._audit, request, stream),
            "warrant": Warrants(node, self._audit, self._perform).begin,
        }

    def answer(self, request: Request) -> Mapping[str, str]:
        """The fields after the word that grants. Raises Refused."""
        find, answer = self._answers[request.verb]
        run = find(self._node, request)
        authority.check(self._node, request, run)
        return answer(self._node, request, run)

    def stream(self, request: Request, stream: Stream) -> None:
        """Begins to answer with a stream. Raises Refused."""
        self._streams[request.verb](request, stream)

    def timeout(self) -> float:
        """Seconds until `tell_sums` has something to tell."""
        return self._audit.timeout()

    def tell_sums(self, at_once: bool = False) -> None:
        """What the log has left out in a minute that is over, or until now, has its sum."""
        self._audit.sums(at_once)

    def _perform(self, request: Request, stream: Stream) -> None:
        """Any verb, with a stream. Raises Refused."""
        if request.verb in self._streams:
            self.stream(request, stream)
        else:
            stream.end(self.answer(request))

    def _watch(self, request: Request, stream: Stream) -> None:
        run = self.watch.find(self._node, request)
        authority.check(self._node, request, run)
        self.watch.begin(request, run, stream)

    def _evidence(self, request: Request, stream: Stream) -> None:
        run = evidence.find(self._node, request)
        authority.check(self._node, request, run)
        evidence.begin(self._node, request, run, stream)

    def _owner_verb(self, request: Request, stream: Stream) -> None:
        owner_verbs.begin(self._node, self._audit, request, stream)

    def _notify(self, request: Request, stream: Stream) -> None:
        if not NAMES.is_awaited(request.uid, lambda: self._later(self._notify_by_name, request, stream)):
            self._notify_by_name(request, stream)

    def _notify_by_name(self, request: Request, stream: Stream) -> None:
        # the job is told by whom
        notify.begin(self._node, self._audit, request, stream)

    def _artifacts(self, request: Request, stream: Stream) -> None:
        if not NAMES.is_awaited(request.uid, lambda: self._later(self._artifacts_of, request, stream)):
            self._artifacts_of(request, stream)

    def _artifacts_of(self, request: Request, stream: Stream) -> None:
        # of a run that may be over, and has no index then: its owner is told by his name
        found = artifacts.find(self._node, request)
        authority.check_artifacts(self._node, request, found)
        artifacts.begin(self._node, request, found, stream)

    def _later(self, begin: Begin, request: Request, stream: Stream) -> None:
        """As the control server does it at once: whatever is raised costs this request alone."""
        try:
            begin(request, stream)
        except Refused as refused:
            stream.refuse(str(refused))
        except Exception:
            self._node.log(f"a request failed and is refused: {traceback.format_exc()}")
            stream.refuse("joblensd failed on this request: its log says how")
