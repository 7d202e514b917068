"""What the reader hands to one sink's channel: what is new to the sink, and the mark that it gets."""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Sequence

import numpy as np

from condor_joblens.export.backlog import Backlog
from condor_joblens.export.batches import Mark
from condor_joblens.export.cursor import PLACES, Cursor, RunIndex
from condor_joblens.export.profile_queue import Made
from condor_joblens.sinks import Record, RecordKind
from condor_joblens.sinks.registry import SinkConfig

BRIEF_SECONDS = 5.0
"""A run may go unseen for so long at its start and at its end without a loss. joblensd publishes several times within
these moments, and the newest record has the numbers of those before it."""


PROFILE_SHARE, USER_SHARE = 8, 4
"""While a sink is behind, profiles may take an eighth of what can wait for it, and one user's a quarter of that."""


class SinkInput:
    """For the reader's thread alone. None of it waits."""

    def __init__(
        self,
        config: SinkConfig,
        run_index: RunIndex,
        backlog: Backlog,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = config.name
        self.wanted: frozenset[str] | None = config.settings.get("metrics") if config.sink.selects else None
        """The metrics that its samples and last records have; None: all."""
        self.takes = config.takes
        """The kinds of records that the sink wants."""
        self._run_index, self._backlog = run_index, backlog
        self._seen = {column: self.cursor.sequences(column) for column in ("sample", "final")}
        self._seen_time: np.ndarray = np.zeros(
            PLACES
        )  # of the sample that was seen last, epoch; 0: not by this process
        self._is_new = self.cursor.is_new
        self._period: float = config.settings.get("period", 0.0) if config.sink.selects else 0.0
        self._clock = clock
        self._due: np.ndarray = np.zeros(PLACES)  # when the next sample of each run is, by the clock
        self._missed = 0  # events, of which the next mark tells
        self._profile = self.cursor.profile
        self._profiles_since = self._profile[:2] if self._profile[2] else self.cursor.event  # those up to it are known
        self._awaited = self._profile[2]  # announced to the process before this one, by events up to `_known`
        self._known = self.cursor.event[1] if self._awaited and self.cursor.event[0] == self._profile[0] else 0
        self._profile_bytes: collections.Counter[str] = collections.Counter()  # by user, while the sink is behind

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
        profiles = 0  # that were announced in there
        if before == identity and first <= last and end > self._profile[1] + 1:
            profiles, self._awaited = self._awaited, 0
        first = max(first, last + 1) if before == identity else first
        count = (max(0, end - first) if RecordKind.EVENT in self.takes else 0) + profiles
        if count:
            self._backlog.missed("overrun", count)
            self._missed += count

    def begins(self, identity: int) -> int | None:
        """The number of the event behind which this sink wants to read that numbering; None: it has no wish."""
        numbers = [self.cursor.event[1]] if RecordKind.EVENT in self.takes and self.cursor.event[0] == identity else []
        if RecordKind.PROFILE in self.takes and self._awaited:
            if self._profile[0] == identity:
                numbers.append(self._profile[1])
            else:
                self._backlog.missed("overrun", self._awaited)
                self._missed, self._awaited = self._missed + self._awaited, 0
        return min(numbers, default=None)

    def profiles(self, made: Sequence[Made], position: tuple[int, int, int]) -> None:
        """What became of profiles, and where that ends: see ProfileQueue.position."""
        if RecordKind.PROFILE not in self.takes:
            return
        identity, last = self._profiles_since
        mine = [each for each in made if each.announced.identity != identity or each.announced.number > last]
        mine = [each for each in mine if each.record is None or self._wants(each.record)]
        there = [(each.owner, each.record) for each in mine if each.record is not None]
        found = [record for owner, record in there if self._has_room(owner, len(record.json))]
        gone, left = len(mine) - len(there), len(there) - len(found)
        for cause, count in (("unseen", gone), ("overflow", left)):
            if count:
                self._backlog.missed(cause, count)
                self._backlog.offer([], Mark(cause=cause, lost=count))
        number, waiting = position[1:]
        if not waiting and position[0] == self._profile[0] and number < self._known:
            position = (position[0], number, 1)  # what the process before knew of is not read again yet
        if found or (position != self._profile and (position[2] or self._profile[2])):
            self._profile = position
            self._backlog.offer(found, Mark(profile=position))

    def _has_room(self, owner: str, size: int) -> bool:
        """Whether a profile of that user may wait: others' records need the room more."""
        most = self._backlog.most_bytes // PROFILE_SHARE
        waiting = self._backlog.waiting_bytes
        if waiting <= most // PROFILE_SHARE:
            self._profile_bytes.clear()
        self._profile_bytes[owner] += size
        return waiting + size <= most and self._profile_bytes[owner] <= most // USER_SHARE

    def samples(self, kind: RecordKind, found: Sequence[Record], places: np.ndarray, sequences: np.ndarray) -> None:
        """Records of runs, with the runs' places in the table (n,) and their sequences (n,)."""
        if kind not in self.takes:
            return
        column = "final" if kind is RecordKind.JOB else "sample"
        new = sequences > self._seen[column][places]
        unseen = self._unseen(kind, found, places, sequences, new) if RecordKind.SAMPLE in self.takes else 0
        if unseen:
            self._backlog.missed("unseen", unseen)
        if kind is RecordKind.JOB:
            self._seen["sample"][places] = np.maximum(self._seen["sample"][places], sequences)
        if not new.any():
            return
        due = new & self._take_due(places) if self._period and kind is RecordKind.SAMPLE else new
        wanted = [found[position] for position in np.flatnonzero(due).tolist() if self._wants(found[position])]
        self._seen_time[places] = [record.time for record in found]
        places, sequences = places[new], sequences[new]
        self._seen[column][places] = sequences
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
        for column in (*self._seen.values(), self._seen_time, self._due):
            column[places] = 0
        self._backlog.forget(places)

    def _wants(self, record: Record) -> bool:
        return not record.sinks or self.name in record.sinks

    def _take_due(self, places: np.ndarray) -> np.ndarray:
        """Which of these runs' samples are due (n,), a period behind the last that was: what comes between is no gap.

        A run's first sample is due at once, so runs that begin at different times stay apart.
        """
        now, due = self._clock(), self._due[places]
        is_due: np.ndarray = due <= now
        following = np.where(due + self._period > now, due + self._period, now + self._period)
        self._due[places] = np.where(is_due, following, due)
        return is_due

    def _unseen(
        self, kind: RecordKind, found: Sequence[Record], places: np.ndarray, sequences: np.ndarray, new: np.ndarray
    ) -> int:
        """Samples between the last that was seen and these; a last record has the number behind the last sample's.

        Of a run that began while nobody read, those are all its samples so far; unless the sink has just come. Those
        that were superseded in the first or last moments of a run are no loss.
        """
        before = self._seen["sample"][places]
        skipped = new & (sequences > before + 1) & ((before > 0) | (not self._is_new))
        count = 0
        for position in np.flatnonzero(skipped).tolist():
            is_edge = kind is RecordKind.JOB or not before[position]
            if not (is_edge and self._is_brief(found[position], int(places[position]), bool(before[position]))):
                count += int(sequences[position] - before[position]) - 1
        return count

    def _is_brief(self, record: Record, place: int, is_known: bool) -> bool:
        """Whether the run has gone unseen for no longer than a moment, and a period of its own, before this record."""
        since, period = float(self._seen_time[place]), 0.0
        if record.row is not None:
            period = max(0.0, float(record.row["period_seconds"]))  # 0 for none, which is NaN
            if not is_known:
                since = float(record.row["start_time"])
        return since > 0 and record.time - since <= BRIEF_SECONDS + period
