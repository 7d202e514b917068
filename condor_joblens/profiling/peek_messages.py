"""What the child that reads a job's variables each period tells joblensd. It comes from the job in the end.

One packet has all of them, in the order in which they were asked for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

MOST_VALUE = 200
MOST_WHY = 300
MOST_PACKET = 16384


@dataclass(frozen=True)
class Seen:
    """What a variable held last, or why it is not known."""

    value: str = ""
    why: str = ""  # of a value that is known nothing


def packed(seen: Sequence[Seen]) -> bytes:
    """The packet; a long value loses its end."""
    return json.dumps([[each.value[:MOST_VALUE], each.why[:MOST_WHY]] for each in seen]).encode()


def understood(packet: bytes, count: int) -> list[Seen]:
    """What it says of `count` variables. Raises ValueError for what can't be."""
    try:
        told = [Seen(*each) for each in json.loads(packet[:MOST_PACKET])]
    except (TypeError, RecursionError) as error:
        raise ValueError(f"it says what it does not know: {type(error).__name__}") from None
    if len(told) != count or not all(_is_fit(each.value, MOST_VALUE) and _is_fit(each.why, MOST_WHY) for each in told):
        raise ValueError("it says something else than was asked for")
    return told


def _is_fit(text: object, most: int) -> bool:
    return isinstance(text, str) and len(text) <= most
