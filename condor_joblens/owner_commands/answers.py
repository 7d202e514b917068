"""What the child says over its socket to joblensd, which passes it on (control/child_output.py)."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any

from condor_joblens.common import readiness
from condor_joblens.control.child_output import CONTENT, FAILED, MOST, NOTICE, SOURCE, WHOLE


class Failed(Exception):
    """Why what was asked for can't be done, in words for who has asked."""


class Answers:
    """One answer. Each call waits until joblensd has taken it, and raises OSError if nobody listens any more."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel

    def content(self, data: bytes) -> None:
        """Bytes of a file, as many as there are."""
        for at in range(0, len(data), MOST - 1):
            self._channel.send(CONTENT + data[at : at + MOST - 1])

    def record(self, fields: Mapping[str, Any]) -> None:
        """A JSON object."""
        self._channel.send((CONTENT + json.dumps(fields, separators=(",", ":")).encode())[:MOST])

    def notice(self, sentence: str) -> None:
        """A sentence about what follows."""
        self._channel.send(_text(NOTICE, sentence))

    def source(self, name: str) -> None:
        """Of which file the bytes are that follow."""
        self._channel.send(_text(SOURCE, name))

    def failed(self, reason: str) -> None:
        """Why there is no more."""
        self._channel.send(_text(FAILED, reason))

    def is_left(self, seconds: float) -> bool:
        """Whether joblensd closes the socket within so many seconds: it says nothing after its request."""
        return bool(readiness.readable([self._channel], seconds))

    def whole(self) -> None:
        """That was all."""
        self._channel.send(WHOLE)


def _text(kind: bytes, text: str) -> bytes:
    return kind + text.encode("utf-8", "backslashreplace")[:1000]
