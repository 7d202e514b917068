"""What the reader hands to one sink's channel: what is new to the sink, and the mark that it gets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from condor_joblens.export.backlog import Backlog
from condor_joblens.export.batches import Mark
from condor_joblens.export.cursor import Cursor, RunIndex
from condor_joblens.sinks import Record, RecordKind
from condor_joblens.sinks.registry import SinkConfig


class SinkInput:
    """For the reader's thread alone. None of it waits."""

    def __init__(self, config: SinkConfig, run_index: RunIndex, backlog: Backlog) -> None:
        self.name = config.name
        self.takes = config.sink.takes
        """The kinds of records that the sink wants."""
        self._run_index, self._backlog = run_index, backlog
        self._offered = {column: self.cursor.sequences(column) for column in ("sample", "final")}
        self._is_new = self.cursor.is_new
        self._missed = 0  # events, of which the next mark tells

    @property
    def cursor(self) -> Cursor:
        """How far the sink has got."""
        return self._backlog.cursor

    def events(self, found: Sequence[Record], numbers: Sequence[int], mark: tuple[int, int]) -> None:
        """Events with their numbers in the ring; `mark`: the numbering, and up to where they need not be read again."""
        if RecordKind.EVENT not in self.takes:
            return
        identity, last = self.cursor.event
        seen = last if identity == mark[0] else 0
        wanted = [r for r, number in zip(found, numbers) if number > seen and self._wants(r)]
        missed, self._missed = self._missed, 0
        self._backlog.offer(wanted, Mark(event=mark, cause="overrun", lost=missed))

    def missed_events(self, identity: int, first: int, end: int) -> None:
        """Events from `first` on and before `end` were overwritten in the ring before they were read. `events` follows,
        though there may be none."""
        before, last = self.cursor.event
        first = max(first, last + 1) if before == identity else first
        if RecordKind.EVENT in self.takes and first < end:
            self._backlog.missed("overrun", end - first)
            self._missed += end - first

    def samples(self, kind: RecordKind, found: Sequence[Record], places: np.ndarray, sequences: np.ndarray) -> None:
        """Records of runs, with the runs' places in the table (n,) and their sequences (n,)."""
        if kind not in self.takes:
            return
        column = "final" if kind is RecordKind.JOB else "sample"
        new = sequences > self._offered[column][places]
        unseen = self._unseen(places, sequences, new) if RecordKind.SAMPLE in self.takes else 0
        if unseen:
            self._backlog.missed("unseen", unseen)
        if kind is RecordKind.JOB:
            self._offered["sample"][places] = np.maximum(self._offered["sample"][places], sequences)
        if not new.any():
            return
        places, sequences = places[new], sequences[new]
        self._offered[column][places] = sequences
        wanted = [found[position] for position in np.flatnonzero(new).tolist() if self._wants(found[position])]
        done = (self._run_index.keys[places], places, sequences)
        mark = Mark(finals=done) if kind is RecordKind.JOB else Mark(samples=done)
        mark.cause, mark.lost = "unseen", unseen
        self._backlog.offer(wanted, mark)

    def other(self, found: Sequence[Record]) -> None:
        """Records that nothing marks."""
        self._backlog.offer([r for r in found if r.kind in self.takes], None)

    def caught_up(self) -> None:
        """From here on a run that is new to this sink has lost whatever came before its first sample."""
        self._is_new = False

    def forget(self, places: np.ndarray) -> None:
        """These places of the table are free."""
        for column in self._offered.values():
            column[places] = 0
        self._backlog.forget(places)

    def _wants(self, record: Record) -> bool:
        return not record.sinks or self.name in record.sinks

    def _unseen(self, places: np.ndarray, sequences: np.ndarray, new: np.ndarray) -> int:
        """Samples between the last that was offered and these; a last record has the number behind the last sample's.

        Of a run that began while nobody read, those are all its samples so far; unless the sink has just come.
        """
        before = self._offered["sample"][places]
        known = new & (sequences > before) & ((before > 0) | (not self._is_new))
        return int((sequences - before - 1)[known].sum())
