"""What a trace that stands tells triggers: an event for each call, command or throw, as far as one is wanted.

joblensd says which kinds are, and how many a second at most. What is beyond that is counted, and not told.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from condor_joblens.common.redact import clipped, printable
from condor_joblens.model.events import COMMAND_ENDS, EVENT, FUNCTION_ENDS, PART, EventKind
from condor_joblens.tracing.lines import Lines
from condor_joblens.tracing.outbox import Outbox
from condor_joblens.tracing.standing_messages import MOST_EVENTS, packed_events

WIDTHS = 88, 40
"""Bytes of the first parts of a text that has three; the last one has what they leave."""

_CUT_TEXT = 63
"""Bytes of an argument's text from which on it may go on (TRACED_TEXT_BYTES of joblens_trace.h)."""

Event = tuple[Any, ...]
"""The fields of EVENT, in their order."""


def request(kinds: Collection[int], most: int) -> bytes:
    """What joblensd says: the kinds that triggers want, and so many events a second at most."""
    return json.dumps({"tell": sorted(map(int, kinds)), "most": most}).encode()


class ForTriggers:
    """Tells them, by the outbox."""

    def __init__(self, outbox: Outbox, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is wanted so far."""
        self._outbox, self._clock = outbox, clock
        self._kinds: frozenset[int] = frozenset()
        self._most, self._left, self._last = 0.0, 0.0, clock()
        self._untold = 0

    def hear(self, said: Mapping[str, Any]) -> None:
        """What joblensd says (`request`)."""
        self._kinds, self._most = frozenset(map(int, said["tell"])), float(said["most"])

    def wants(self, kind: EventKind) -> bool:
        """Whether events of this kind are wanted: to make one costs time."""
        return int(kind) in self._kinds

    def tell(self, events: Sequence[Event]) -> None:
        """These have happened; each is of a kind that is wanted."""
        if not events:
            return
        now = self._clock()
        self._left = min(self._most, self._left + self._most * (now - self._last))
        self._last = now
        told = events[: 0 if self._outbox.is_full else int(self._left)]
        self._left -= len(told)
        self._untold += len(events) - len(told)
        array: np.ndarray = np.array([*told], EVENT)
        for at in range(0, max(1, len(array)), MOST_EVENTS):
            self._outbox.put(packed_events(self._untold, array[at : at + MOST_EVENTS]))


def of_call(row: Sequence[Any], caller: str, lines: Lines, *, has_texts: bool) -> Event:
    """The event of a call, as `Trace.told` tells it. `has_texts`: texts of the job are among its arguments."""
    when, pid, thread, name, arguments, end, seconds, result, depth = row
    if arguments is not None and has_texts:
        arguments = lines.of((each.encode(), len(each) >= _CUT_TEXT) for each in arguments)
    return _event(
        EventKind.FUNCTION,
        when + (seconds or 0.0),
        pid,
        parent_pid=thread,
        exit_code=FUNCTION_ENDS.index(end),
        value=depth,
        lived_seconds=math.nan if seconds is None else seconds,
        program=printable(result or ""),
        text=_parts(name, caller, ", ".join(arguments or ())),
    )


def of_command(row: Sequence[Any]) -> Event:
    """The event of a command, as `ShellTrace` tells it: without secrets."""
    when, pid, script, line, words, end, status, seconds, _ = row
    return _event(
        EventKind.COMMAND,
        when + (seconds or 0.0),
        pid,
        exit_code=-1 if status is None else status,
        value=line,
        limit=COMMAND_ENDS.index(end),
        lived_seconds=math.nan if seconds is None else seconds,
        program=script.rpartition("/")[2],
        text=words.encode(),
    )


def of_throw(row: Sequence[Any], lines: Lines) -> Event:
    """The event of what C++ has thrown, as `Trace` tells it."""
    when, pid, thread, kind, said, where, _ = row
    (shown,) = lines.of([((said or "").encode(), len(said or "") >= _CUT_TEXT)]) if said else ("",)
    return _event(EventKind.EXCEPTION, when, pid, parent_pid=thread, text=_parts(kind, where, shown))


def _parts(first: str, second: str, last: str) -> bytes:
    """They are cut so that there is something of each, and lie on a line each."""
    heads = [clipped(printable(part), width) for part, width in zip((first, second), WIDTHS)]
    return PART.encode().join([*heads, printable(last).encode("utf-8", "backslashreplace")])


def _event(
    kind: EventKind,
    when: float,
    pid: int,
    *,
    parent_pid: int = 0,
    exit_code: int = 0,
    value: int = 0,
    limit: int = -1,
    lived_seconds: float = 0.0,
    program: str = "",
    text: bytes = b"",
) -> Event:
    return (
        0, when, 0, int(kind), pid, parent_pid, exit_code, value, limit, lived_seconds,
        clipped(program, EVENT["program"].itemsize - 1),
        clipped(text.decode("utf-8", "ignore"), EVENT["text"].itemsize),
    )  # fmt: skip
