"""Reads the log, tells the hub, and then moves the cursor on: what is told twice has the same Id."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Protocol

from condor_joblens.common.errors import JobLensError
from condor_joblens.eventlog import cursor as cursors
from condor_joblens.eventlog.job_events import framed, record
from condor_joblens.eventlog.log_files import LogFiles, Piece
from condor_joblens.sinks import DeliveryResult, Record, RecordKind

MOST_RECORDS = 2000
"""That are delivered at a time."""

LONGEST_PAUSE = 60.0
"""Seconds, while the hub takes nothing. The log waits: nothing is kept in memory."""


class Hub(Protocol):
    """The sink, as far as it is needed."""

    def deliver(self, batch: Sequence[Record]) -> DeliveryResult:
        """As sinks do."""
        ...


class Reader:
    """For one thread."""

    def __init__(self, path: str, kept: str, node: str, hub: Hub, say: Callable[[str], None]) -> None:
        """path: EVENT_LOG; kept: the file of the cursor; node: this access point's name. Raises JobLensError."""
        self._files, self._kept, self._node, self._hub, self._say = LogFiles(path), kept, node, hub, say
        self._cursor = cursors.load(kept)
        self._failures = 0
        self._said: dict[str, str] = {}

    def step(self) -> float:
        """Some of what is new; seconds until the next look: 0 if there is more now."""
        try:
            piece = self._files.read(self._cursor)
            self._tell("log", "")
            if piece is None:
                return 1.0
            return self._take(piece)
        except JobLensError as error:
            self._tell("log", str(error))
            return self._pause(0.0)

    def _take(self, piece: Piece) -> float:
        """Raises JobLensError."""
        if piece.lost:
            self._say(f"warning: {piece.lost}; events may be missing. All that is there is told again")
        found = framed(piece.data, piece.is_end)
        if not found.taken:
            if piece.lost:
                self._move(piece, 0)
            return 1.0
        if found.unread:
            self._say(f"warning: {found.unread} events of the log make no sense. It has to be in JSON")
        last = piece.begin.sequence

        def sequence(moment: float) -> int:
            nonlocal last
            last = max(last + 1, int(moment * 1e6))
            return last

        batch = []
        for event in found.events:
            try:
                made = record(event, self._node, sequence)
            except ValueError as error:
                self._tell("event", str(error))
                continue
            if made is not None:
                text = json.dumps(made, separators=(",", ":")).encode()
                batch.append(Record(RecordKind.EVENT, made["Id"], made["GlobalJobId"], made["Time"], text))
        for begin in range(0, len(batch), MOST_RECORDS):
            pause = self._deliver(batch[begin : begin + MOST_RECORDS])
            if pause:
                return pause
        self._move(piece, found.taken, last)
        return 0.0

    def _deliver(self, batch: Sequence[Record]) -> float:
        """Seconds after which it is to be tried again; 0: the hub has it."""
        outcome = self._hub.deliver(batch)
        for why in sorted(set(outcome.refused.values()))[:1]:
            self._tell("refused", f"the hub refuses events, which are left out: {why}")
        if outcome.retry:
            self._tell("hub", outcome.reason)
            return self._pause(outcome.after)
        self._failures = 0
        self._tell("hub", "")
        return 0.0

    def _move(self, piece: Piece, taken: int, sequence: int = 0) -> None:
        """Raises JobLensError."""
        after = piece.after(taken, sequence or piece.begin.sequence)
        cursors.keep(self._kept, after)
        self._cursor = after

    def _pause(self, wanted: float) -> float:
        self._failures = min(self._failures + 1, 10)
        return min(LONGEST_PAUSE, max(wanted, 0.5 * float(1 << self._failures)))

    def _tell(self, what: str, words: str) -> None:
        """Each thing once, until it is another."""
        if words and words != self._said.get(what):
            self._say(words)
        self._said[what] = words
