"""Bytes on the control socket. It is a unix SOCK_SEQPACKET socket, so that every packet arrives whole or not at all.

Version 1 is one packet of NUL-terminated fields each way. Job wrappers speak it, and always will: a job can start with
the helper of an older version. A field without `=` is ignored.

    joblens/1 NUL activate NUL slot=slot1_1 NUL scratch=/var/lib/condor/execute/dir_123/scratch NUL
    joblens/1 NUL traced NUL level=basic NUL       or       joblens/1 NUL refused NUL reason=... NUL

Version 2 is for requests larger than a packet, for values with any byte in them, and for streams. A request is one
message. Its answer is any number of DATA messages, and one END message. The frames of a message are sent in a row:

    joblens/2 NUL, kind (1 byte), left (4 bytes, little endian), payload (1 to 16384 bytes)

`left` is the bytes of the message that are not sent yet, this payload included. The message of a REQUEST and of an END
is a word and named fields: word, name, value, name, value ... Each is preceded by its length (4 bytes, little endian).
The message of DATA is what the verb says.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

VERSION_1 = b"joblens/1"
VERSION_2 = b"joblens/2"

MAX_REQUEST_1 = 4096
"""Bytes of a request of version 1."""

MAX_ANSWER_1 = 512
"""Bytes of an answer of version 1: what the wrapper's helper has room for."""

MAX_PAYLOAD = 16384
"""Bytes of a message that one frame of version 2 carries."""

MAX_REQUEST = 65536
"""Bytes of a request's message in version 2."""

MAX_ANSWER = 131072
"""Bytes of a DATA message, and of an END message, in version 2."""

MAX_FIELDS = 64
"""Named fields of a message in version 2."""

REQUEST, DATA, END = b"Q", b"D", b"E"
"""Kinds of frames: the client sends the first, the server the others."""

_START = VERSION_2 + b"\0"
_HEADER = struct.Struct("<cI")
_LENGTH = struct.Struct("<I")

MAX_PACKET = len(_START) + _HEADER.size + MAX_PAYLOAD
"""Bytes of a packet of any version."""


class FrameError(Exception):
    """What is wrong with bytes that were received, in words for their sender."""


@dataclass(frozen=True)
class Words:
    """A request or the end of an answer: a word (a verb, or what became of the request) and named fields."""

    word: str
    fields: dict[str, bytes]


def version_of(packet: bytes) -> int:
    """The version, 1 or 2, of which a packet says that it is. Raises FrameError."""
    protocol = packet[: packet.find(b"\0") + 1]
    if protocol == VERSION_1 + b"\0":
        return 1
    if protocol == _START:
        return 2
    raise FrameError("the protocol is joblens/1 or joblens/2")


# -- version 1 ------------------------------------------------------------------------------------------------


def decode_packet(packet: bytes) -> Words:
    """The message in a packet of version 1. Raises FrameError."""
    if len(packet) > MAX_REQUEST_1:
        raise FrameError(f"a request of joblens/1 has at most {MAX_REQUEST_1} bytes")
    if not packet.endswith(b"\0"):
        raise FrameError("a request of joblens/1 consists of NUL-terminated fields")
    protocol, *words = packet[:-1].split(b"\0")
    if protocol != VERSION_1:
        raise FrameError("the protocol is joblens/1")
    if not words:
        raise FrameError("a request has a verb")
    fields = {}
    for field in words[1:]:
        name, equals, value = field.partition(b"=")
        if equals:
            fields[name.decode("utf-8", "replace")] = value
    return Words(words[0].decode("utf-8", "replace"), fields)


def encode_packet(word: str, fields: Mapping[str, bytes], limit: int) -> bytes:
    """A message as its packet of version 1. NUL bytes are left out; what exceeds `limit` bytes is cut."""
    parts = [VERSION_1, word.encode("utf-8", "replace")]
    parts += [name.encode("utf-8", "replace") + b"=" + value for name, value in fields.items()]
    packet = b"".join(part.replace(b"\0", b"") + b"\0" for part in parts)
    return packet if len(packet) <= limit else packet[: limit - 1] + b"\0"


# -- version 2 ------------------------------------------------------------------------------------------------


def encode_words(word: str, fields: Mapping[str, bytes]) -> bytes:
    """The message of a REQUEST or an END."""
    parts = [word.encode("utf-8", "replace")]
    for name, value in fields.items():
        parts += [name.encode("utf-8", "replace"), value]
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def decode_words(message: bytes) -> Words:
    """The reverse of `encode_words`. Raises FrameError, also if a name stands twice."""
    parts: list[bytes] = []
    at = 0
    while at < len(message) and len(parts) <= 2 * MAX_FIELDS:
        if len(message) - at < _LENGTH.size:
            raise FrameError("a field's length is cut off")
        (length,) = _LENGTH.unpack_from(message, at)
        at += _LENGTH.size
        if length > len(message) - at:
            raise FrameError("a field is longer than its message")
        parts.append(message[at : at + length])
        at += length
    if at < len(message):
        raise FrameError(f"a message has at most {MAX_FIELDS} fields")
    if len(parts) % 2 == 0:
        raise FrameError("a message is a word, and a name and a value for each field")
    names = [part.decode("utf-8", "replace") for part in parts[1::2]]
    if len(set(names)) < len(names):
        raise FrameError("a field stands twice in a message")
    return Words(parts[0].decode("utf-8", "replace"), dict(zip(names, parts[2::2])))


def frames(kind: bytes, message: bytes) -> Iterator[bytes]:
    """The packets of a message of at least one byte."""
    for at in range(0, len(message), MAX_PAYLOAD):
        yield _START + _HEADER.pack(kind, len(message) - at) + message[at : at + MAX_PAYLOAD]


class Assembler:
    """Puts the frames of messages together, each of at most `limit` bytes, of these `kinds` alone."""

    def __init__(self, kinds: bytes, limit: int) -> None:
        self._kinds, self._limit = kinds, limit
        self._kind, self._left = b"", 0
        self._parts: list[bytes] = []

    def add(self, packet: bytes) -> tuple[bytes, bytes] | None:
        """Kind and bytes of the message that `packet` completes; None if more frames are to come. Raises FrameError."""
        at = len(_START) + _HEADER.size
        if not packet.startswith(_START) or not at < len(packet) <= MAX_PACKET:
            raise FrameError(f"a frame of joblens/2 has a header and 1 to {MAX_PAYLOAD} bytes")
        kind, left = _HEADER.unpack_from(packet, len(_START))
        if kind not in self._kinds:
            raise FrameError("a frame of joblens/2 has a kind, and this is none that belongs here")
        if self._parts and (kind, left) != (self._kind, self._left):
            raise FrameError("a frame does not go on where the one before it ended")
        if left > self._limit:
            raise FrameError(f"a message has at most {self._limit} bytes")
        if len(packet) - at > left:
            raise FrameError("a frame is longer than its message")
        self._parts.append(packet[at:])
        self._kind, self._left = kind, left - (len(packet) - at)
        if self._left:
            return None
        message = b"".join(self._parts)
        self._parts.clear()
        return kind, message
