"""What the Kafka sink and the process that runs kafka-python say to each other: frames of JSON and plain bytes.

A frame is the two lengths, then the JSON, then the bytes. Both sides know how long a frame may be, and wait no longer
than they are told: the other side may be hung, or worse.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

_HEAD = struct.Struct(">II")
MOST_BYTES = 64 << 20
"""Of a frame to the process: a batch."""

MOST_ANSWER_BYTES = 4 << 20


class BadFrame(Exception):
    """The other side has ended, says too much, or what is none."""


def send(to: socket.socket, said: Any, content: bytes = b"", seconds: float | None = None) -> None:
    """Sends a frame, within so many seconds. Raises OSError."""
    text = json.dumps(said).encode()
    to.settimeout(seconds)
    to.sendall(_HEAD.pack(len(text), len(content)) + text + content)


def receive(source: socket.socket, most: int, seconds: float | None = None) -> tuple[Any, memoryview]:
    """The next frame, within so many seconds. Raises BadFrame, or OSError."""
    end = None if seconds is None else time.monotonic() + seconds
    text_size, content_size = _HEAD.unpack(_read(source, _HEAD.size, end))
    if text_size + content_size > most:
        raise BadFrame(f"a frame of more than {most} bytes")
    text = bytes(_read(source, text_size, end))
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        raise BadFrame("a frame without JSON") from None
    return said, _read(source, content_size, end)


def _read(source: socket.socket, size: int, end: float | None) -> memoryview:
    content = memoryview(bytearray(size))
    done = 0
    while done < size:
        source.settimeout(None if end is None else max(0.001, end - time.monotonic()))
        count = source.recv_into(content[done:])
        if count == 0:
            raise BadFrame("the end")
        done += count
    return content
