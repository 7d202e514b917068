"""What relays and their server say to each other: a word, a number of the command, and fields, as in frames.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from condor_joblens.control import frames
from condor_joblens.control.frames import FrameError

CARRY = "carry"
"""To a node: Packet, a warrant, and Job, where to look. An access point's relay says besides for which Node it is."""

ASK = "ask"
"""To an access point: Packet, a request to its door (control/door.py). Somebody elsewhere says besides of which
AccessPoint. It arrives as a CARRY with this Verb."""

ENTRIES, PREVIEW = "entries", "preview"
"""The Verb of what the server itself has carried to a node: entries, or a question about one. A warrant has none."""

DATA, END, MORE, CANCEL = "data", "end", "more", "cancel"
"""A part of the answer (Data). Its end, with a reason if it is none. Who reads it has taken MORE_PARTS parts. Nobody
waits for it any more."""

WINDOW, MORE_PARTS = 8, 4
"""Parts of an answer that can be under way, and after how many of them their reader says that there is room again."""

HEARTBEAT = 45.0
"""Seconds between two pings, of both sides: proxies close what is silent for 60."""

MAX_BYTES = (1 << 17) + 4096
"""Of a message: of a sealed one (sealed_answers.MAX_MESSAGE), and what is around it."""

_NUMBER = "Number"


@dataclass(frozen=True)
class Message:
    """One of them. Numbers are their sender's, or those that were given to it."""

    word: str
    number: int
    fields: Mapping[str, bytes] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """As it is sent."""
        return frames.encode_words(self.word, {_NUMBER: self.number.to_bytes(4, "little"), **self.fields})

    def text(self, name: str) -> str:
        """A field as text; empty if it is missing."""
        return self.fields.get(name, b"").decode("utf-8", "replace")


def end(number: int, reason: str = "") -> Message:
    """The end of a command."""
    return Message(END, number, {"reason": reason.encode("utf-8", "replace")} if reason else {})


def decoded(data: object) -> Message:
    """Raises FrameError for what is none."""
    if not isinstance(data, bytes) or len(data) > MAX_BYTES:
        raise FrameError("a message is bytes, and not too many")
    words = frames.decode_words(data)
    number = words.fields.pop(_NUMBER, b"")
    if words.word not in (CARRY, ASK, DATA, END, MORE, CANCEL) or len(number) != 4:
        raise FrameError("this is no message of a relay")
    return Message(words.word, int.from_bytes(number, "little"), words.fields)
