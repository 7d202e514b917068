"""Who follows a trace that stands for a job's life: he is told each call that ends from then on, for some time."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from condor_joblens.common import descriptors
from condor_joblens.control.child_output import FAILED, WHOLE
from condor_joblens.tracing.outbox import Outbox

MOST = 4
"""Of a trace at a time."""

MOST_REQUEST = 256
END_SECONDS = 10.0
"""In which who follows until the end of the job has to take the rest."""

Sums = Callable[[int], list[dict[str, Any]]]
"""Sums of all functions, for who was not told of so many calls."""


@dataclass
class _Follower:
    outbox: Outbox
    until: float  # CLOCK_MONOTONIC; when it is over, and he has only to take the rest: until when
    is_over: bool = False


def request(seconds: float) -> bytes:
    """What joblensd sends, with the socket on which the calls are to be told."""
    return json.dumps({"follow": seconds}).encode()


class Followers:
    """All of one trace."""

    def __init__(self, sums: Sums) -> None:
        """`sums` is asked when somebody has followed for as long as he wanted."""
        self._sums, self._all = sums, list[_Follower]()
        self.hear_more: Callable[[dict[str, Any]], None] = lambda said: None
        """Takes what joblensd says beside that."""

    def hear(self, channel: socket.socket) -> bool:
        """Takes what joblensd has to say; False if it is gone. Raises OSError."""
        packet, given = descriptors.receive(channel, MOST_REQUEST, 1)
        said = json.loads(packet) if packet else {}
        if packet and not given:
            self.hear_more(said)
        for descriptor in given:
            follower = socket.socket(fileno=descriptor)
            follower.setblocking(False)
            self._add(Outbox(follower), float(said["follow"]))
        return bool(packet)

    def _add(self, outbox: Outbox, seconds: float) -> None:
        if len(self._all) >= MOST:
            outbox.put(FAILED + f"{MOST} others follow this trace: try again".encode())
            outbox.flush()
            outbox.channel.close()
            return
        outbox.notice("the calls that end from now on; those that were too many to be sent are counted")
        self._all.append(_Follower(outbox, time.monotonic() + seconds))

    def tell(self, rows: Sequence[list[Any]], name: str = "calls") -> None:
        """These calls, or commands, have ended."""
        for each in self._all:
            if not each.is_over:
                each.outbox.tell_each(name, list(rows))

    def notice(self, text: str) -> None:
        """A sentence for people."""
        for each in self._all:
            if not each.is_over:
                each.outbox.notice(text)

    def flush(self) -> None:
        """Sends what is taken at once. Whose time is over is told the sums; who takes nothing more is let go."""
        now = time.monotonic()
        for each in list(self._all):
            if now >= each.until and not each.is_over:
                self._finish(each)
            is_gone = not each.outbox.flush() or (each.is_over and now >= each.until)
            if is_gone or (each.is_over and each.outbox.is_empty):
                each.outbox.channel.close()
                self._all.remove(each)

    def _finish(self, follower: _Follower) -> None:
        follower.outbox.say({"summary": self._sums(follower.outbox.untold)})
        follower.outbox.put(WHOLE)
        follower.is_over, follower.until = True, time.monotonic() + END_SECONDS

    def end(self) -> None:
        """The trace is over: all are told the sums, and have some time to take them."""
        for each in self._all:
            if not each.is_over:
                self._finish(each)
        while self._all:
            self.flush()
            if self._all:
                time.sleep(0.01)
