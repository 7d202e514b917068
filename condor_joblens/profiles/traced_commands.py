"""What a trace of a job's bash scripts has seen until a moment, as it is kept: the artifact `commands`.

JSON of one object. `Version` rises if what is there changes its meaning. A reader skips keys and ends of commands that
it does not know, so that what is new needs no other version. What it says comes from the job: whoever shows it escapes
it. Secrets in it were looked for when it was made.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from condor_joblens.profiles.checked_numbers import Checked

_checked = Checked("commands that make no sense")

KIND = "commands"
CONTENT_TYPE = "application/json"
FORMAT, VERSION = "joblens-commands", 1

MOST_BYTES = 1 << 20
MOST_LINES, MOST_COMMANDS, MOST_NOTES, MOST_PROBED = 1000, 2000, 100, 32
_ROOM_FOR_LINES = MOST_BYTES // 2

COUNTS = ("Commands", "Failed", "InBackground", "IntoPipes", "InTraps", "EndNotSeen", "Shells", "CountedAlone")
_LATER = ("CountedAlone",)  # 0 where it is not there


@dataclass(frozen=True)
class Probed:
    """A bash of which the commands are seen."""

    file: str
    begun: float  # when its first process was probed, epoch seconds
    processes: int
    unseen: Optional[float]  # seconds that its processes ran before; None: not known
    for_all: bool  # one probe is for all its processes: those that begin later miss nothing
    lost: int
    not_ours: int
    is_off: bool  # its scripts did too much
    covered: float  # seconds in which it was probed


@dataclass(frozen=True)
class Line:
    """All runs of one command of a line."""

    script: str
    line: int
    text: str
    runs: int
    failed: int
    seconds: float
    longest: float


@dataclass(frozen=True)
class ShellCommand:
    """One command that has ended."""

    time: float  # epoch seconds
    pid: int
    script: str
    line: int
    text: str
    end: str
    status: Optional[int]
    seconds: Optional[float]
    depth: int


@dataclass(frozen=True)
class TracedCommands:
    """All of it."""

    begun: float  # epoch seconds
    ended: float
    notes: list[str]
    counts: dict[str, int]
    seconds: float
    probed: list[Probed]
    lines: list[Line]  # the most time first
    folded: int  # commands that are in no line
    commands: list[ShellCommand] = field(default_factory=list)  # the last ones


def encode(told: dict[str, Any], commands: Sequence[list[Any]]) -> bytes:
    """The content of an artifact of at most MOST_BYTES: of the `commands`, so many of the last ones as there is room.

    Of `Lines` those with the least time are folded if they take more than half of it.
    """
    lines, folded = list(told["Lines"])[:MOST_LINES], int(told["Folded"])
    while len(json.dumps(lines)) > _ROOM_FOR_LINES:
        keep = len(lines) * 3 // 4
        folded += sum(line[3] for line in lines[keep:])
        lines = lines[:keep]
    last = list(commands)[-MOST_COMMANDS:]
    while True:
        whole = {
            "Format": FORMAT, "Version": VERSION, **told, "Lines": lines, "Folded": folded, "LastCommands": last,
        }  # fmt: skip
        content = json.dumps(whole, separators=(",", ":")).encode()
        if len(content) <= MOST_BYTES or not last:
            return content
        last = last[len(last) // 4 + 1 :]


def decode(content: bytes) -> TracedCommands:
    """Raises ValueError for what is none, or of a version that this one can't read."""
    try:
        told = json.loads(content)
        if not isinstance(told, dict) or told.get("Format") != FORMAT:
            raise ValueError("these are no commands")
        if told.get("Version") != VERSION:
            raise ValueError(f"version {told.get('Version')!r:.20}: install a newer joblens")
        return TracedCommands(
            begun=_checked.seconds(told["Begun"]),
            ended=_checked.seconds(told["Ended"]),
            notes=[str(note) for note in told.get("Notes", [])[:MOST_NOTES]],
            counts=_counts(told["Sums"]),
            seconds=_checked.seconds(told["Sums"]["Seconds"]),
            probed=[_probed(each) for each in told["Probed"][:MOST_PROBED]],
            lines=[_line(*each[:7]) for each in told["Lines"][:MOST_LINES]],
            folded=_checked.count(told.get("Folded", 0)),
            commands=[command(*each[:9]) for each in told.get("LastCommands", [])[-MOST_COMMANDS:]],
        )
    except (TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise ValueError("commands that make no sense") from None


def _counts(told: dict[str, Any]) -> dict[str, int]:
    return {name: _checked.count(told.get(name, 0) if name in _LATER else told[name]) for name in COUNTS}


def _probed(told: dict[str, Any]) -> Probed:
    return Probed(
        file=str(told["File"]),
        begun=_checked.seconds(told["From"]),
        processes=_checked.count(told["Processes"]),
        unseen=None if told["UnseenSeconds"] is None else _checked.seconds(told["UnseenSeconds"]),
        for_all=bool(told["ForAll"]),
        lost=_checked.count(told["LostHits"]),
        not_ours=_checked.count(told["NotOurs"]),
        is_off=bool(told["SwitchedOff"]),
        covered=_checked.seconds(told["CoveredSeconds"]),
    )


def _line(script: str, line: int, text: str, runs: int, failed: int, seconds: float, longest: float) -> Line:
    return Line(
        str(script),
        _checked.integer(line),
        str(text),
        _checked.count(runs),
        _checked.count(failed),
        _checked.seconds(seconds),
        _checked.seconds(longest),
    )


def command(
    time: float,
    pid: int,
    script: str,
    line: int,
    text: str,
    end: str,
    status: Optional[int],
    seconds: Optional[float],
    depth: int,
) -> ShellCommand:
    """One command, as it is told one by one. Raises ValueError and TypeError."""
    return ShellCommand(
        _checked.seconds(time),
        _checked.count(pid),
        str(script),
        _checked.integer(line),
        str(text),
        str(end),
        None if status is None else _checked.integer(status),
        None if seconds is None else _checked.seconds(seconds),
        _checked.count(depth),
    )
