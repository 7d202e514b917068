"""The last events of a job, as the flight recorder's artifact has them. docs/shared-memory.md describes the format.

What is in it is the job's: who makes it has taken secrets out and has escaped it, and who reads it believes nothing.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from condor_joblens.profiles.text import clean

CONTENT_TYPE, CONTENT_ENCODING = "application/json", "gzip"
VERSION = 1
KIND = "recorder"

MOST_BYTES = 16 << 20
"""Of an artifact when it is unpacked."""

MOST_KEPT_BYTES = 4 << 20
"""Of an artifact: joblensd keeps none that is larger."""

MOST_EVENTS = 1 << 16
"""Of JOBLENS_RECORDER_BYTES there can be no more: each takes 256 bytes."""

_GZIP = 16 + zlib.MAX_WBITS
_LONGEST = 400


@dataclass(frozen=True)
class Event:
    """One event. Texts are printable, and empty if there is nothing to say."""

    time: float  # epoch seconds
    pid: int  # 0: unknown
    program: str
    what: str  # failed, exec, exit, signal, open, fork, connect, refused, raised, call, return, command, throw
    call: str = ""  # the system call that failed
    result: str = ""  # ENOENT; status 3; SIGTERM from condor_starter (12); a descriptor
    about: str = ""  # a path, arguments, an address


@dataclass(frozen=True)
class Coverage:
    """From when to when the events are, and what is not among them. Times are epoch seconds."""

    tagged: float  # when somebody asked what had happened
    cause: str  # why: death, ended (by HTCondor), owner, hang, trigger
    death: str  # of what the job died or was ended, if it was
    since: float  # recording began
    rare_since: float  # from here on failures, programs, ends, signals and throws are complete
    frequent_since: float  # from here on opens, forks, connections, traced calls and commands are
    overwritten: int  # events that were recorded, and have been overwritten
    lost: int  # events that were not recorded
    not_ours: int  # events of tasks that are not the owner's alone: not recorded


def encode(coverage: Coverage, events: Sequence[Event]) -> bytes:
    """The artifact, of the newest events as far as they fit: what is left out is as if it had been overwritten."""
    while True:
        told = {"Version": VERSION, **{_key(name): value for name, value in asdict(coverage).items()}}
        told["Events"] = [[getattr(event, field.name) for field in fields(Event)] for event in events]
        data = json.dumps(told, separators=(",", ":")).encode("utf-8", "replace")
        packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
        made = packer.compress(data) + packer.flush()
        if not events or (len(data) < MOST_BYTES and len(made) <= MOST_KEPT_BYTES):
            return made
        out, events = (len(events) + 1) // 2, events[(len(events) + 1) // 2 :]
        begin = events[0].time if events else coverage.tagged
        coverage = replace(
            coverage,
            overwritten=coverage.overwritten + out,
            rare_since=max(begin, coverage.rare_since),
            frequent_since=max(begin, coverage.frequent_since),
        )


def decode(content: bytes) -> tuple[Coverage, list[Event]]:
    """What an artifact has. Raises ValueError for what is none, or of a later version."""
    unpacker = zlib.decompressobj(_GZIP)
    try:
        data = unpacker.decompress(content, MOST_BYTES)
        told = json.loads(data)
    except (zlib.error, RecursionError, ValueError) as error:
        raise ValueError(f"it is no record of last events: {error}") from None
    if unpacker.unconsumed_tail or not unpacker.eof or not isinstance(told, dict):
        raise ValueError("it is no whole record of last events")
    if told.get("Version") != VERSION:
        raise ValueError("it is of another version of JobLens")
    try:
        values = {field.name: _checked(field.type, told[_key(field.name)]) for field in fields(Coverage)}
        return Coverage(**values), [_event(each) for each in told["Events"][:MOST_EVENTS]]
    except (KeyError, TypeError, OverflowError):
        raise ValueError("it is no record of last events") from None


def record(coverage: Coverage, events: Sequence[Event]) -> dict[str, Any]:
    """The same in JSON for a program to read: events as objects, and how much time they cover."""
    told: dict[str, Any] = {_key(name): value for name, value in asdict(coverage).items()}
    told["RareSeconds"] = round(max(0.0, coverage.tagged - coverage.rare_since), 6)
    told["FrequentSeconds"] = round(max(0.0, coverage.tagged - coverage.frequent_since), 6)
    told["Events"] = [
        {_key(name): value for name, value in asdict(event).items() if value not in ("", 0)} for event in events
    ]
    return told


def _key(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _event(told: Any) -> Event:
    return Event(**{field.name: _checked(field.type, value) for field, value in zip(fields(Event), told)})


def _checked(kind: Any, value: Any) -> Any:
    """`value`, if it is what the field is of; texts once more fit for a terminal. Raises TypeError."""
    if kind == "str" and isinstance(value, str):
        return clean(value, _LONGEST)
    if kind == "int" and type(value) is int:
        return value
    if kind == "float" and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    raise TypeError(kind)
