"""The text of the event log -> one record for each step of a job's life.

HTCondor writes an event as a JSON object whose first and last lines are braces alone. With
EVENT_LOG_JOB_AD_INFORMATION_ATTRS another one follows it: a JobAdInformationEvent, with all that the first one has and
the job's own attributes. That one is read, and no other: without an owner an event is nobody's.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from condor_joblens.model.metrics import SCHEMA

MOST_EVENT = 64 << 10
"""Bytes of one event; a longer one is left out, and counted."""

MOST_REASON = 1000
"""Characters of why a job was held, removed or evicted."""

_MOST_NAME = 300
_BEGIN = b"{\n"
_END = b"\n}\n"
_INFORMATION = 28
_FILE_TRANSFER = 40
_SUBMIT, _TERMINATE, _HOLD = 0, 5, 12
_STATUS_HELD = 5  # JobStatus

IDLE, TRANSFERRING, RUNNING, SUSPENDED, HELD, ENDED, REMOVED = (
    "idle", "transferring", "running", "suspended", "held", "ended", "removed",
)  # fmt: skip

KINDS: Mapping[int, tuple[str, str]] = {
    0: ("submit", IDLE),
    1: ("execute", RUNNING),
    4: ("evict", IDLE),
    5: ("end", ENDED),
    7: ("shadow exception", IDLE),
    9: ("remove", REMOVED),
    10: ("suspend", SUSPENDED),
    11: ("unsuspend", RUNNING),
    12: ("hold", HELD),
    13: ("release", IDLE),
    22: ("disconnect", RUNNING),
    23: ("reconnect", RUNNING),
    24: ("reconnect failed", IDLE),
}
"""A number of HTCondor's events -> what it is called here, and the job's state from then on."""

TRANSFERS: Mapping[int, tuple[str, str]] = {
    1: ("input queued", TRANSFERRING),
    2: ("input transfer", TRANSFERRING),
    3: ("input transferred", TRANSFERRING),
    4: ("output queued", TRANSFERRING),
    5: ("output transfer", TRANSFERRING),
    6: ("output transferred", RUNNING),  # a checkpoint's too: then it goes on
}
"""The same for `Type` of its file transfers. The first of a run says that the job was matched."""

_JOB = re.compile(r"([^#\s\x00-\x1f]{1,255})#(\d{1,12})\.(\d{1,9})#\d{1,12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)?")


@dataclass(frozen=True)
class Taken:
    """Of a piece of the log."""

    events: list[dict[str, Any]]
    taken: int  # bytes; what is behind them is not whole yet
    unread: int  # events that are no JSON, or too long


def framed(data: bytes, is_end: bool) -> Taken:
    """The events of a piece. is_end: nothing follows in its file."""
    events: list[dict[str, Any]] = []
    place = unread = 0
    while place < len(data):
        end = data.find(_END, place)
        if end < 0:
            break
        one = data[place : end + len(_END)]
        place = end + len(_END)
        found = _event(one)
        if found is None:
            unread += 1
        else:
            events.append(found)
    rest = len(data) - place
    if rest and (is_end or rest > MOST_EVENT):
        # of the end of a file that was cut off nothing comes; of what is too long, its end still does
        place, unread = len(data), unread + (1 if data[place:].strip() else 0)
    return Taken(events, place, unread)


def _event(text: bytes) -> dict[str, Any] | None:
    """None if it makes no sense. What a writer that was killed has left before it is left out."""
    begin = text.rfind(b"\n" + _BEGIN) + 1  # what is nested begins behind a name
    if len(text) - begin > MOST_EVENT:
        return None
    try:
        found = json.loads(text[begin:])
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def record(event: Mapping[str, Any], node: str, sequence: Callable[[float], int]) -> dict[str, Any] | None:
    """What the hub is told of it; None: it is no step of a job's life.

    node: the access point's name. sequence: makes the record's from its time. Raises ValueError for a step that can't
    be told: without the job's name, or its owner.
    """
    if event.get("EventTypeNumber") != _INFORMATION:
        return None
    number = event.get("TriggerEventTypeNumber")
    if not isinstance(number, int):
        return None
    step = TRANSFERS.get(_integer(event, "Type") or 0) if number == _FILE_TRANSFER else KINDS.get(number)
    if step is None:
        return None
    name, owner = _text(event, "GlobalJobId"), _text(event, "Owner")
    match = _JOB.fullmatch(name)
    if match is None or not owner:
        raise ValueError("an event has no GlobalJobId or Owner: look at EVENT_LOG_JOB_AD_INFORMATION_ATTRS")
    if (int(match[2]), int(match[3])) != (_integer(event, "Cluster"), _integer(event, "Proc")):
        raise ValueError("an event names another job in its GlobalJobId")
    moment = _moment(_text(event, "EventTime"))
    # a job that is submitted on hold has no event that says so
    is_held = number == _HOLD or (number == _SUBMIT and _integer(event, "JobStatus") == _STATUS_HELD)
    content = json.dumps(event, sort_keys=True).encode("utf-8", "surrogatepass")
    found = {
        "Type": "job_event",
        "Schema": SCHEMA,
        "Node": node,
        "Time": moment,
        "Id": f"{name}/{hashlib.sha256(content).hexdigest()[:32]}",
        "GlobalJobId": name,
        "JobId": f"{match[2]}.{match[3]}",
        "Owner": owner,
        "User": _text(event, "User"),
        "AccountingGroup": _text(event, "AccountingGroup") or _text(event, "AcctGroup"),
        "Executable": os.path.basename(_text(event, "Cmd")),
        "Sequence": sequence(moment),
        "Kind": step[0],
        "State": HELD if is_held else step[1],
        "Slot": _text(event, "SlotName"),
        "Reason": _why(event, is_held),
    }
    numbers = {"Code": "HoldReasonCode", "SubCode": "HoldReasonSubCode"} if is_held else {}
    if number == _TERMINATE:
        numbers = {"ExitCode": "ReturnValue", "Signal": "TerminatedBySignal"}
    return found | {key: _integer(event, attribute) for key, attribute in numbers.items()}


def _why(event: Mapping[str, Any], is_held: bool) -> str:
    words = _text(event, "HoldReason", MOST_REASON) if is_held else ""
    return words or _text(event, "Reason", MOST_REASON) or _text(event, "Message", MOST_REASON)


def _text(event: Mapping[str, Any], name: str, most: int = _MOST_NAME) -> str:
    found = event.get(name)
    # half of a surrogate pair is no character, and would be no UTF-8
    return found[:most].encode("utf-8", "replace").decode("utf-8") if isinstance(found, str) else ""


def _integer(event: Mapping[str, Any], name: str) -> int | None:
    found = event.get(name)
    is_one = isinstance(found, int) and not isinstance(found, bool) and abs(found) < 1 << 31
    return found if is_one and isinstance(found, int) else None


def _moment(text: str) -> float:
    """Epoch seconds. Without a zone it is this machine's time. Raises ValueError."""
    if not _TIME.fullmatch(text):
        raise ValueError("an event has no time that we know")
    whole = text[:-1] + "+00:00" if text.endswith("Z") else text
    seconds, point, rest = whole.partition(".")
    fraction = 0.0
    if point:
        digits = re.match(r"\d+", rest)
        assert digits
        fraction, whole = float(f"0.{digits[0]}"), seconds + rest[digits.end() :]
    try:
        found = datetime.fromisoformat(whole).timestamp() + fraction
    except (ValueError, OverflowError, OSError):
        raise ValueError("an event has no time that we know") from None
    return found if math.isfinite(found) else 0.0
