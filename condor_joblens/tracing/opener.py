"""The child that is the job's owner, as a trace asks it: it tells mappings, and opens files."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from condor_joblens.common import descriptors
from condor_joblens.profiling.program_files import MOST_ANSWER, MOST_FILES
from condor_joblens.tracing.answers import deadline, wait_for

ANSWER_SECONDS = 12.0
"""For so long it may take for an answer; it gives up before that."""

_MOST_MAPPINGS = 20_000
_GONE = " (deleted)"  # behind a path, where the kernel knows that it leads there no more


class Opener:
    """Asks it. What it says is not to be trusted."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self.is_lost = False
        self.meanwhile: Callable[[], None] | None = None  # what is done again and again while it takes its time

    def mappings(self, pid: int) -> Iterator[tuple[int, tuple[int, int], str]]:
        """Address, device and inode, and path of the code that a process has mapped; also of a file that is gone."""
        more, count = self._ask({"maps": pid}), 0
        while more:
            answer, given = self._answer()
            close(given)
            for start, _, _, device, inode, path in answer.get("mappings", []):
                count += 1
                if count < _MOST_MAPPINGS and inode:
                    yield int(start), (int(device), int(inode)), str(path).removesuffix(_GONE)
            more = bool(answer.get("more"))

    def open(self, address: int) -> int | None:
        """The file behind a mapping of the process whose mappings were told last."""
        if not self._ask({"open": [address]}):
            return None
        _, given = self._answer()
        close(given[1:])
        return given[0] if given else None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Its answer to any other question; empty if there is none."""
        if not self._ask(request):
            return {}
        answer, given = self._answer()
        close(given)
        return answer

    def _ask(self, request: dict[str, Any]) -> bool:
        with contextlib.suppress(OSError):
            if not self.is_lost:
                descriptors.send(self._channel, json.dumps(request).encode())
                return True
        self.is_lost = True
        return False

    def _answer(self) -> tuple[dict[str, Any], list[int]]:
        try:
            wait_for(self._channel, deadline(ANSWER_SECONDS), self.meanwhile)
            packet, given = descriptors.receive(self._channel, MOST_ANSWER, MOST_FILES)
            answer = json.loads(packet) if packet else None
            if isinstance(answer, dict):
                return answer, given
            close(given)
        except (OSError, ValueError, RecursionError):
            pass
        self.is_lost = True
        return {}, []


def close(given: Sequence[int]) -> None:
    """Closes these descriptors."""
    for descriptor in given:
        os.close(descriptor)
