"""Events and numbers for triggers from what people write and what the sink `file` has recorded."""

from __future__ import annotations

import array
import errno
import math
import signal
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from condor_joblens.model.events import COMMAND_ENDS, EVENT, FUNCTION_ENDS, PART, EventKind
from condor_joblens.model.levels import Level, parse_level
from condor_joblens.policy.trigger_kinds import KINDS

_OF_RECORDS = {"".join(part.capitalize() for part in kind.name.split("_")).lower(): kind for kind in EventKind}
"""Kinds as records have them (Exec, RunStart), without regard to case."""

_COLUMNS = {
    "time": "time", "runnumber": "run_number", "pid": "pid", "parentpid": "parent_pid", "program": "program",
    "commandline": "text", "livedseconds": "lived_seconds", "memorybytes": "value", "limitbytes": "limit",
    "levelnumber": "value", "reason": "text", "count": "value", "where": "text", "artifact": "text", "bytes": "value",
    "hangcause": "text", "hangsuspected": "value", "exception": "text", "path": "text",
    "thread": "parent_pid", "senderpid": "parent_pid", "sender": "text", "address": "text", "words": "text",
    "script": "program", "line": "value", "depth": "value", "result": "program", "seconds": "lived_seconds",
    "status": "exit_code",
}  # fmt: skip

_PARTS = {
    EventKind.FUNCTION: ("function", "caller", "arguments"),
    EventKind.EXCEPTION: ("exception", "from", "text"),
}
"""Kinds whose text has several parts, and the names of these."""

_ENDS = {EventKind.FUNCTION: ("exit_code", FUNCTION_ENDS), EventKind.COMMAND: ("limit", COMMAND_ENDS)}
"""In which column it is how something ended, by its place in these words."""

_OTHERS = (
    *("kind", "exitcode", "exitsignal", "coredumped", "level", "error", "ended", "signal"),
    *(name for parts in _PARTS.values() for name in parts),
)


def event_of(fields: Mapping[str, Any]) -> np.ndarray | None:
    """The event (EVENT, shape (1,)) of a record's fields; None if it is of no kind that triggers can be told of.

    Raises ValueError where a field is unknown or has no fitting value.
    """
    given = {name.lower(): value for name, value in fields.items()}
    word = str(given.pop("kind", ""))
    kind = KINDS.get(word.lower()) or _OF_RECORDS.get(word.lower())
    if kind is None or kind not in KINDS.values():
        return None
    event: np.ndarray = np.zeros(1, EVENT)
    event["kind"], event["limit"], event["exit_code"] = kind, -1, -1 if kind is EventKind.RUN_END else 0
    _put_what_is_its_own(event, kind, given)
    code, signal, core = (given.pop(name, None) for name in ("exitcode", "exitsignal", "coredumped"))
    if code is not None or signal is not None:
        event["exit_code"] = (int(code or 0) & 255) << 8 | int(signal or 0) & 127 | (128 if _is_true(core) else 0)
    if "error" in given:
        event["exit_code"] = _error(str(given.pop("error")))
    if "level" in given:
        event["value"] = int(parse_level(str(given.pop("level"))))
    for name, value in given.items():
        column = _COLUMNS.get(name)
        if column is None:
            raise ValueError(f"{name} is no field of an event")
        if EVENT[column].kind == "S":
            event[column] = str(value).encode()[: EVENT[column].itemsize]
        elif column == "value" and isinstance(value, (bool, str)) and str(value).lower() in ("true", "false"):
            event[column] = _is_true(value)
        else:
            event[column] = float(value) if EVENT[column].kind == "f" else int(value)
    return event


def _put_what_is_its_own(event: np.ndarray, kind: EventKind, given: dict[str, Any]) -> None:
    """Of the fields `given` those that this kind alone has: they are taken away. Raises ValueError."""
    parts = [str(given.pop(name, "")).replace(PART, " ") for name in _PARTS.get(kind, ())]
    if parts:
        event["text"] = PART.join(parts).encode()[: EVENT["text"].itemsize]
    if kind in (EventKind.FUNCTION, EventKind.COMMAND):
        event["lived_seconds"] = math.nan
    if kind is EventKind.COMMAND:
        event["exit_code"] = -1
    if kind in _ENDS:
        column, words = _ENDS[kind]
        word = str(given.pop("ended", words[0]))
        if word not in words:
            raise ValueError(f"{word} is no end: write {', '.join(words)}")
        event[column] = words.index(word)
    if kind is EventKind.SIGNAL and "signal" in given:
        event["value"] = _signal(str(given.pop("signal")))


def _signal(name: str) -> int:
    """Its number. Raises ValueError."""
    try:
        return int(signal.Signals[name.upper()])
    except KeyError:
        raise ValueError(f"{name} is no signal: write SIGTERM") from None


def _error(name: str) -> int:
    """Its number. Raises ValueError."""
    for number, known in errno.errorcode.items():
        if known == name.upper():
            return number
    raise ValueError(f"{name} is no error: write ENOENT")


def known_of_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Of an event's record what belongs to the event, and not to its run or node."""
    wanted = (*_COLUMNS, *_OTHERS)
    return {name: value for name, value in record.items() if name.lower() in wanted}


def row_of(numbers: Mapping[str, float], paths: Sequence[str]) -> bytes:
    """A row for the child: the numbers (by path in lower case) in the order of `paths`."""
    return array.array("d", [numbers.get(path.lower(), math.nan) for path in paths]).tobytes()


def numbers_of_record(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a sample's record, by path in lower case."""
    found: dict[str, float] = {}

    def walk(prefix: str, inner: Mapping[str, Any], depth: int) -> None:
        for name, value in inner.items():
            if isinstance(value, dict) and depth < 4:
                walk(f"{prefix}{name}.", value, depth + 1)
            elif isinstance(value, (int, float)) and not isinstance(value, bool):
                found[f"{prefix}{name}".lower()] = float(value)

    walk("", record, 0)
    return found


def level_of_record(record: Mapping[str, Any]) -> str:
    """The level's word; basic if it says none."""
    word = str(record.get("Level", ""))
    return word if word.upper() in Level.__members__ else Level.BASIC.word


def _is_true(value: object) -> bool:
    return value is True or str(value).lower() == "true"
