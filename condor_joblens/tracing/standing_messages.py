"""What the process of a trace that stands for a job's life tells joblensd. It is to be checked: names are the job's.

Beside sentences (control/child_output.py) there are sums for the run's row, and from time to time all that is kept.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from condor_joblens.control.child_output import MOST
from condor_joblens.model.events import EVENT
from condor_joblens.policy.trigger_kinds import TRACED

SUMS = b"s"
"""A JSON object: Sums, or ShellSums."""

PART = b"p"
"""Bytes of what is to be kept."""

KEEP = b"k"
"""All parts since the last one are to be kept: from and until when that is (SPAN, epoch seconds)."""

SPAN = struct.Struct("<dd")

EVENTS = b"e"
"""How many events triggers were not told of so far (_UNTOLD), and events (EVENT) that they are to be told of."""

_UNTOLD = struct.Struct("<Q")
MOST_EVENTS = (MOST - 1 - _UNTOLD.size) // EVENT.itemsize
"""Of one message."""

MOST_LISTED = 8
MOST_NAME = 200


@dataclass(frozen=True)
class Listed:
    """A function in the row."""

    name: str
    calls: int
    unwound: int
    seconds: float  # from entry to exit, of those that have one
    is_off: bool  # it was called too often, and is not traced any more
    covered: float  # seconds in which it was traced


@dataclass(frozen=True)
class Sums:
    """What the run's row says of all traced functions since this process began."""

    calls: int
    unwound: int
    seconds: float
    begun: float  # epoch seconds; 0: none is traced so far
    unseen: float | None  # seconds that processes ran before their probes; None: not known
    functions: tuple[Listed, ...] = ()  # the most important


def packed(sums: Sums) -> bytes:
    """The message."""
    functions = [list(vars(each).values()) for each in sums.functions[:MOST_LISTED]]
    return SUMS + json.dumps({**vars(sums), "functions": functions}, separators=(",", ":")).encode()


def understood(message: bytes) -> Sums:
    """What a message says, without its first byte. Raises ValueError."""
    try:
        told = json.loads(message)
        return Sums(
            _count(told["calls"]),
            _count(told["unwound"]),
            _seconds(told["seconds"]),
            _seconds(told["begun"]),
            None if told["unseen"] is None else _seconds(told["unseen"]),
            tuple(_listed(*each) for each in told["functions"][:MOST_LISTED]),
        )
    except (TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise ValueError("sums that make no sense") from None


@dataclass(frozen=True)
class ShellSums:
    """What the run's row says of all commands of its shells since this process began."""

    commands: int
    failed: int
    alone: int  # of the commands: counted, and not told, so that nothing more is known of them
    begun: float  # epoch seconds; 0: no shell is traced so far
    unseen: float | None  # seconds that shells ran before their probes; None: not known


def packed_shell(sums: ShellSums) -> bytes:
    """The message."""
    return SUMS + json.dumps(vars(sums), separators=(",", ":")).encode()


def understood_shell(message: bytes) -> ShellSums:
    """What a message of a shell's trace says, without its first byte. Raises ValueError."""
    try:
        told = json.loads(message)
        return ShellSums(
            _count(told["commands"]),
            _count(told["failed"]),
            _count(told["alone"]),
            _seconds(told["begun"]),
            None if told["unseen"] is None else _seconds(told["unseen"]),
        )
    except (TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise ValueError("sums that make no sense") from None


def _listed(name: str, calls: int, unwound: int, seconds: float, is_off: bool, covered: float) -> Listed:
    return Listed(
        str(name)[:MOST_NAME], _count(calls), _count(unwound), _seconds(seconds), bool(is_off), _seconds(covered)
    )


def span(message: bytes) -> tuple[float, float]:
    """From and until when. Raises ValueError."""
    if len(message) != SPAN.size:
        raise ValueError("times that make no sense")
    begun, ended = SPAN.unpack(message)
    return _seconds(begun), _seconds(ended)


def packed_events(untold: int, events: np.ndarray) -> bytes:
    """The message with these events (EVENT, shape (n,), MOST_EVENTS at most)."""
    return EVENTS + _UNTOLD.pack(untold) + events.tobytes()


def understood_events(message: bytes, run_number: int) -> tuple[int, np.ndarray]:
    """How many were not told so far, and the others as events of this run (EVENT, shape (n,)), of a message without
    its first byte. Raises ValueError.
    """
    if (len(message) - _UNTOLD.size) % EVENT.itemsize or len(message) < _UNTOLD.size:
        raise ValueError("events that make no sense")
    (untold,) = _UNTOLD.unpack_from(message)
    events: np.ndarray = np.frombuffer(message, EVENT, offset=_UNTOLD.size).copy()
    if not np.isin(events["kind"], [int(kind) for kind in TRACED]).all() or not np.isfinite(events["time"]).all():
        raise ValueError("events that make no sense")
    events["run_number"], events["sequence"] = run_number, 0
    return untold, events


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError("a number that makes no sense")
    return value


def _seconds(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number) or not 0 <= number < 1e15:
        raise ValueError("a time that makes no sense")
    return number
