"""One sink with its thread, its queue and its spool: whatever it does, the others do not feel it.

Records wait in memory. Only where the sink is behind (it fails, hangs, or has more waiting than QUEUE_BYTES) a second
thread moves all that waits to the spool, the batch that is under way included. What is there is older than what waits
in memory, always, so that the order stays. A mark goes with the records: once they are confirmed or in the spool, the
cursor moves there.
"""

from __future__ import annotations

import collections
import os
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from condor_joblens.errors import JobLensError, printable
from condor_joblens.export import records
from condor_joblens.export.cursor import Cursor, RunTable
from condor_joblens.export.ending import Ending
from condor_joblens.export.spool import Frame, Limits, Spool
from condor_joblens.sinks import Kind, Outcome, Record, Sink, Surroundings
from condor_joblens.sinks.registry import Chosen

QUEUE_BYTES = 16 << 20
"""What may wait in memory for one sink."""

SLOW_SECONDS = 2.0
"""After which a batch that is under way is a reason to spool what waits behind it."""

STUCK_SECONDS = 30.0
"""After which a sink that has not answered does not work, and that is said in the log."""

FRAME_RECORDS = 2000
LONGEST_PAUSE = 30.0
RAISES = 3
"""How often a record alone may make the sink raise before another is tried: it may be the record's fault."""

RAISES_ALONE = 20
"""The same where there is no other record to try."""


@dataclass
class Mark:
    """Up to where the cursor moves once the records before it are safe, and what is lost before there.

    A loss is counted with the move: a process that is killed before leaves both to the next one.
    """

    event: tuple[int, int] | None = None
    samples: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None  # keys, places, sequences
    finals: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    cause: str = ""
    lost: int = 0


@dataclass
class Portion:
    """Records that came together."""

    records: Sequence[Record]
    mark: Mark | None
    since: float  # CLOCK_MONOTONIC
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = sum(len(record.json) for record in self.records)


@dataclass
class Batch:
    """What the sink's thread has taken, and hands on until all of it is confirmed or refused."""

    records: list[Record]
    marks: list[Mark]
    since: float
    frame: Frame | None  # where it is in the spool, if it is there
    suspect: Record | None = None  # that makes the sink raise, perhaps: the one behind it is tried
    accused: Record | None = None  # the same, now that the one behind it went through: it is tried once more
    tells: bool = False  # of losses, in its first records


class Channel:
    """Feeds one sink. `offer` never waits for the sink or a disk."""

    def __init__(
        self, chosen: Chosen, surroundings: Surroundings, table: RunTable, folder: str, limits: Limits
    ) -> None:
        """Opens the sink's spool and cursor below `folder`; a disk that does not want them is said in the log."""
        self.chosen = chosen
        self.name = chosen.name
        self.log = surroundings.log
        self._node = surroundings.node
        self._table = table
        self._lock = threading.Condition()
        self._disk = threading.Lock()  # the spool's; never taken while _lock is held
        self._queue: collections.deque[Portion] = collections.deque()
        self._queued = 0  # bytes
        self._batch: Batch | None = None
        self._moving = False  # the spooler has something in its hands
        self._began: float | None = None  # when the sink was handed what it has
        self._failures = 0
        self._started = False
        self._said = ""
        self._missed = 0  # events, of which the next mark tells
        self._raises = 0  # of the record that is tried alone
        self._disk_said = ""
        self._ending = Ending()
        self._limit = chosen.sink.batch_records
        self.counts: collections.Counter[str] = collections.Counter()
        self.dropped: collections.Counter[str] = collections.Counter()
        self._folder, self._limits = os.path.join(folder, chosen.name), limits
        self._spool: Spool | None = None
        self.cursor = Cursor(None, table)
        self.lacks_disk = bool(self.takes)
        self._open()
        self._offered = {column: self.cursor.sequences(column) for column in ("sample", "final")}
        self.is_new = self.cursor.is_new
        self._surroundings = surroundings
        self._sink: Sink | None = None
        self._threads = [threading.Thread(target=self._run, name=self.name, daemon=True)]
        if self.takes:
            self._threads.append(threading.Thread(target=self._spooling, name=f"{self.name} spool", daemon=True))

    def _open(self) -> None:
        """Cursor and spool are those on the disk, where it wants them."""
        if not self.lacks_disk:
            return
        try:
            os.makedirs(self._folder, 0o700, exist_ok=True)
            cursor = Cursor(os.path.join(self._folder, "cursor"), self._table)
            spool = Spool(self._folder, self._limits, cursor.spooled) if self._limits.most_bytes else None
        except OSError as error:
            self._say_of_disk(
                f"the sink {self.name} has no spool: {self._folder}: {error.strerror}: what can't be delivered from "
                "memory is lost; give JOBLENS_SPOOL_DIR to the user joblens"
            )
            return
        with self._lock:
            cursor.add(self.cursor)
            self.cursor, self._spool, self.lacks_disk = cursor, spool, False

    def seek_disk(self) -> None:
        """Once more, where the disk did not want them before. Nothing may be offered meanwhile."""
        self._open()
        if not self.lacks_disk:
            self.log(f"the sink {self.name} has its spool now: {self._folder}")

    @property
    def sink(self) -> Sink:
        """Made by who asks for it first: the sink's own thread, as its constructor is a plug-in's code too."""
        if self._sink is None:
            self._sink = self.chosen.sink(self.chosen.settings, self._surroundings)
        return self._sink

    @property
    def takes(self) -> frozenset[Kind]:
        """The kinds of records that the sink wants."""
        return self.chosen.sink.takes

    def start(self) -> None:
        """Its threads run."""
        for thread in self._threads:
            thread.start()

    # --- what the source hands in; none of this waits

    def events(self, found: Sequence[Record], numbers: Sequence[int], mark: tuple[int, int]) -> None:
        """Events with their numbers in the ring; `mark`: the numbering, and up to where they need not be read again."""
        if Kind.EVENT not in self.takes:
            return
        identity, last = self.cursor.event
        seen = last if identity == mark[0] else 0
        wanted = [r for r, number in zip(found, numbers) if number > seen and self._wants(r)]
        missed, self._missed = self._missed, 0
        self._offer(wanted, Mark(event=mark, cause="overrun", lost=missed))

    def missed_events(self, identity: int, first: int, end: int) -> None:
        """Events from `first` on and before `end` were overwritten in the ring before they were read. `events` follows,
        though there may be none."""
        before, last = self.cursor.event
        first = max(first, last + 1) if before == identity else first
        if Kind.EVENT in self.takes and first < end:
            self.dropped["overrun"] += end - first
            self._missed += end - first

    def samples(self, kind: Kind, found: Sequence[Record], places: np.ndarray, sequences: np.ndarray) -> None:
        """Records of runs, with the runs' places in the table (n,) and their sequences (n,)."""
        if kind not in self.takes:
            return
        column = "final" if kind is Kind.JOB else "sample"
        offered = self._offered[column][places]
        new = sequences > offered
        unseen = 0
        if Kind.SAMPLE in self.takes:
            # the last record has the number behind the last sample's
            before = self._offered["sample"][places]
            # of a run that began while nobody read, all its samples so far; unless this sink has just come
            known = new & (sequences > before) & ((before > 0) | (not self.is_new))
            unseen = int((sequences - before - 1)[known].sum())
            if unseen:
                self.dropped["unseen"] += unseen
        if kind is Kind.JOB:
            self._offered["sample"][places] = np.maximum(self._offered["sample"][places], sequences)
        if not new.any():
            return
        places, sequences = places[new], sequences[new]
        self._offered[column][places] = sequences
        wanted = [found[position] for position in np.flatnonzero(new).tolist() if self._wants(found[position])]
        done = (self._table.keys[places], places, sequences)
        mark = Mark(finals=done) if kind is Kind.JOB else Mark(samples=done)
        mark.cause, mark.lost = "unseen", unseen
        self._offer(wanted, mark)

    def other(self, found: Sequence[Record]) -> None:
        """Records that nothing marks."""
        self._offer([r for r in found if r.kind in self.takes], None)

    def caught_up(self) -> None:
        """From here on a run that is new to this sink has lost whatever came before its first sample."""
        self.is_new = False

    def forget(self, places: np.ndarray) -> None:
        """These places of the table are free."""
        for column in self._offered.values():
            column[places] = 0
        with self._lock:
            self.cursor.forget(places)

    def _wants(self, record: Record) -> bool:
        return not record.sinks or self.name in record.sinks

    def _offer(self, found: Sequence[Record], mark: Mark | None) -> None:
        portion = Portion(found, mark, time.monotonic())
        with self._lock:
            self._queue.append(portion)
            self._queued += portion.size
            while self._spool is None and self._queued > QUEUE_BYTES and len(self._queue) > 1:
                self._drop(self._queue.popleft(), "overflow")
            while self._queued > 2 * QUEUE_BYTES and len(self._queue) > 1:  # the disk does not take it fast enough
                self._drop(self._queue.popleft(), "disk")
            self._lock.notify_all()

    def _drop(self, portion: Portion, cause: str) -> None:
        self._queued -= portion.size
        self._commit([portion.mark])
        self._lose(cause, len(portion.records))

    def _lose(self, cause: str, count: int) -> None:
        if count:
            with self._lock:
                self.dropped[cause] += count
                self.cursor.lose(cause, count)

    def _commit(self, marks: Sequence[Mark | None]) -> None:
        for mark in marks:
            if mark is None:
                continue
            if mark.lost:
                self.cursor.lose(mark.cause, mark.lost)
            if mark.event is not None:
                self.cursor.set_event(*mark.event)
            if mark.samples is not None:
                self.cursor.set_runs("sample", *mark.samples)
            if mark.finals is not None:
                self.cursor.set_runs("final", *mark.finals)

    # --- the sink's own thread

    def _run(self) -> None:
        while not self._ending.is_set() and not self._start_sink():
            self._pause(0.0)
        if not self.takes:
            return
        while True:
            batch = self._take()
            if batch is None:
                return
            self._deliver(batch)

    def _start_sink(self) -> bool:
        self._began = time.monotonic()
        try:
            self.sink.start()
        except BaseException as error:  # a plug-in's code, which may even want to end the process
            self._failed(_said(error))
            return False
        finally:
            self._began = None
        self._started = True
        return True

    def _take(self) -> Batch | None:
        """The oldest records; waits until there are any. None at the end."""
        while True:
            with self._lock:
                while not self._ending.is_set() and (
                    self._moving or not (self._queue or self._batch or self._pending() or self._undeclared())
                ):
                    self._lock.wait(1.0)
                if self._ending.is_set():
                    return None
                if self._batch is not None:
                    return self._batch
                if not self._pending():
                    self._batch = self._from_memory()
                    return self._batch
            self._from_spool()

    def _pending(self) -> int:
        return self._spool.pending if self._spool is not None else 0

    def _undeclared(self) -> bool:
        return Kind.EVENT in self.takes and bool(self.cursor.undeclared())

    def _from_memory(self) -> Batch:
        batch = Batch([], [], self._queue[0].since if self._queue else time.monotonic(), None)
        self._declare(batch)
        while self._queue and len(batch.records) < self.chosen.sink.batch_records:
            portion = self._queue.popleft()
            self._queued -= portion.size
            batch.records += portion.records
            if portion.mark is not None:
                batch.marks.append(portion.mark)
        return batch

    def _from_spool(self) -> None:
        assert self._spool is not None
        frame = None
        with self._disk:
            try:
                frame = self._spool.oldest()
            except OSError as error:
                self._say(f"the spool of the sink {self.name} can't be read: {error.strerror}")
                time.sleep(1.0)
            self._count_spools_losses()
        if frame is None:
            return
        with self._lock:
            if self._batch is None:
                self._batch = Batch(list(frame.records), [], time.monotonic() - frame.age, frame)
                self._declare(self._batch)

    def _declare(self, batch: Batch) -> None:
        """The batch begins with what was lost before it."""
        if not self._undeclared():
            return
        batch.tells = True
        name, losses = self.cursor.tell()
        now = time.time()
        batch.records = [
            records.loss(self._node, self.name, cause, count, f"{self._node}/{name}/{cause}", now)
            for cause, count in losses.items()
        ] + batch.records

    def _deliver(self, batch: Batch) -> None:
        """Hands the batch on once, and keeps what was not confirmed."""
        handed, rest = batch.records[: self._limit], batch.records[self._limit :]
        outcome, raised = Outcome(), ""
        if handed:
            self._began = time.monotonic()
            try:
                found = self.sink.deliver(handed)
                if not isinstance(found, Outcome):
                    raise TypeError(f"deliver returned {type(found).__name__} and no Outcome")
                outcome = found
                retry = sorted({position for position in outcome.retry if 0 <= position < len(handed)})
            except BaseException as error:  # a plug-in's code
                raised, retry = _said(error), list(range(len(handed)))
            self._began = None
        else:
            retry = []
        with self._lock:
            if self._batch is not batch:
                return  # the channel was closed meanwhile, and this is in the spool
            refused = 0 if raised else len(set(outcome.refused) - set(retry))
            self.counts["refused"] += refused
            self.counts["retried"] += len(retry)
            self.counts["delivered"] += len(handed) - len(retry) - refused
            batch.records = [handed[position] for position in retry] + rest
            if raised:
                self._isolate(batch, len(handed))
            elif batch.suspect is not None and not retry:
                batch.records.insert(0, batch.suspect)
                batch.suspect, batch.accused = None, batch.suspect
            done = not batch.records and batch.suspect is None
            if done:
                self._finish(batch)
        if outcome.refused and not raised:
            first = next(iter(outcome.refused.values()))
            self._say(f"the sink {self.name} refused {refused} records: {printable(first, 200)}")
        if batch.frame is not None and done:
            with self._disk:
                self._release(batch.frame)
        if retry:
            self._failed(raised or outcome.reason or "no reason given")
            self._pause(outcome.after)
        elif handed:
            self._worked()

    def _isolate(self, batch: Batch, handed: int) -> None:
        """A record that makes the sink raise must not hold up all others: ever smaller batches, down to it alone.

        Then the next one is tried in its place. Where that goes through (see _deliver), and the record fails even now,
        it was the record's fault, and not that of a backend which has come back meanwhile.
        """
        if handed > 1:
            self._limit, self._raises = handed // 2, 0
            return
        if batch.accused is batch.records[0]:
            self._refuse(batch.records.pop(0))
            return
        self._raises += 1
        if batch.suspect is not None:  # the sink raises at any record
            batch.records.insert(0, batch.suspect)
            batch.suspect, self._raises = None, 0
        elif self._raises >= RAISES and len(batch.records) > 1:
            batch.suspect = batch.records.pop(0)
        elif self._raises >= RAISES_ALONE:
            self._refuse(batch.records.pop(0))

    def _refuse(self, record: Record) -> None:
        self.counts["refused"] += 1
        self._raises = 0
        self._say(f"the sink {self.name} can't take the record {record.id}, which makes it raise: it is left out")

    def _finish(self, batch: Batch) -> None:
        """All of it is confirmed or refused."""
        self._commit(batch.marks)
        self._told(batch)
        self._batch = None

    def _told(self, batch: Batch) -> None:
        """The losses that the batch tells of are as safe as the batch."""
        if batch.tells:
            self.cursor.heard()
        batch.tells = False

    def _release(self, frame: Frame) -> None:
        assert self._spool is not None
        self._spool.delivered(frame)
        self.cursor.spooled = self._spool.wanted

    def _worked(self) -> None:
        if self._failures:
            self.log(f"the sink {self.name} works again")
        self._failures = 0
        self._said = ""
        self._limit = min(self.chosen.sink.batch_records, 2 * self._limit)

    def _failed(self, reason: str) -> None:
        self._failures += 1
        self.counts["failures"] += 1
        self._say(f"the sink {self.name} does not work for now: {printable(reason, 300)}")

    def _say(self, message: str) -> None:
        """Once, until something else is to be said."""
        if message != self._said:
            self._said = message
            self.log(message)

    def _pause(self, at_least: float) -> None:
        seconds = min(LONGEST_PAUSE, 0.1 * 2.0 ** min(self._failures, 20)) * random.uniform(0.5, 1.0)
        self._ending.wait(max(seconds, min(at_least, 600.0)))

    # --- the spooler's thread

    def _has_not_answered(self, seconds: float) -> bool:
        """Whether the sink was asked something longer ago than that, and has not returned."""
        began = self._began
        return began is not None and time.monotonic() - began > seconds

    def _is_behind(self) -> bool:
        late = self._has_not_answered(SLOW_SECONDS)
        waits = bool(self._queue) or (self._batch is not None and self._batch.frame is None)
        return waits and (self._failures > 0 or late or self._queued > QUEUE_BYTES or not self._started)

    def _spooling(self) -> None:
        said = False
        while not self._ending.wait(0.5):
            with self._lock:
                behind = self._is_behind()
            stuck = self._has_not_answered(STUCK_SECONDS)
            if stuck and not said:
                self.log(
                    f"the sink {self.name} has not answered for {STUCK_SECONDS:.0f} s: its records go to the spool"
                )
            said = stuck
            if behind:
                self.spool_all()
            elif self._spool is not None and self._spool.pending:
                with self._disk:
                    self._spool.trim()
                    self._count_spools_losses()

    def spool_all(self) -> None:
        """Moves everything that waits to the disk, what the sink has in its hands first."""
        if self._spool is None:
            return
        with self._lock:
            batch = self._batch if self._batch is not None and self._batch.frame is None else None
            self._moving = batch is not None
            under_way = [batch.suspect] if batch is not None and batch.suspect is not None else []
            under_way += batch.records if batch is not None else []
        if batch is not None and not self._move_batch(batch, under_way):
            return
        while self._move_some():
            pass

    def _move_batch(self, batch: Batch, under_way: Sequence[Record]) -> bool:
        """What the sink has in its hands goes to the disk, and stays in them. False where the disk does not take it."""
        frame = self._to_disk(under_way)
        confirmed = False
        with self._lock:
            self._moving = False
            if frame is not None and self._batch is batch:
                self._commit(batch.marks)
                self._told(batch)
                batch.frame, batch.marks = frame, []
            else:
                confirmed = frame is not None
            self._lock.notify_all()
        if frame is not None and confirmed:
            with self._disk:
                self._release(frame)
        return frame is not None

    def _move_some(self) -> bool:
        with self._lock:
            moved: list[Portion] = []
            while self._queue and sum(len(portion.records) for portion in moved) < FRAME_RECORDS:
                moved.append(self._queue.popleft())
                self._queued -= moved[-1].size
            self._moving = bool(moved)
        if not moved:
            return False
        found = [record for portion in moved for record in portion.records]
        safe = not found or self._to_disk(found) is not None
        with self._lock:
            if safe:
                self._commit([portion.mark for portion in moved])
            else:
                self._queue.extendleft(reversed(moved))
                self._queued += sum(portion.size for portion in moved)
            self._moving = False
            self._lock.notify_all()
        return safe

    def _to_disk(self, found: Sequence[Record]) -> Frame | None:
        """None where the disk does not take them."""
        assert self._spool is not None
        with self._disk:
            try:
                return self._spool.append(found)
            except OSError as error:
                self._say_of_disk(
                    f"the spool of the sink {self.name} takes no more: {error.strerror}: its records wait in memory, "
                    "and the oldest are lost; make room in JOBLENS_SPOOL_DIR"
                )
                return None
            finally:
                self._count_spools_losses()

    def _say_of_disk(self, message: str) -> None:
        """Once: it is tried twice a second, and may go well now and then."""
        if message != self._disk_said:
            self._disk_said = message
            self.log(message)

    def _count_spools_losses(self) -> None:
        assert self._spool is not None
        for cause, count in self._spool.dropped.items():
            self._lose(cause, count)
        self._spool.dropped.clear()
        self.cursor.spooled = self._spool.wanted

    # --- its end

    def stop(self, seconds: float) -> None:
        """Delivers what waits for so long; the rest is in the spool then. A sink that hangs is left behind."""
        end = time.monotonic() + seconds
        while (self._queue or self._batch) and self._works() and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))
        with self._lock:
            self._ending.set()
            self._lock.notify_all()
        closing = threading.Thread(target=self._close_sink, args=(max(0.5, end - time.monotonic()),), daemon=True)
        closing.start()
        closing.join(max(1.0, end - time.monotonic() + 0.5))
        for thread in self._threads:
            thread.join(max(0.2, end - time.monotonic()))
        self.spool_all()
        with self._lock:
            unfinished = self._batch
            self._batch = None  # whoever hangs in `deliver` finds this when he comes back
            kept = unfinished is not None and unfinished.frame is not None
            count = sum(len(portion.records) for portion in self._queue)
            self._lose("unread", count + (0 if unfinished is None or kept else len(unfinished.records)))
            self._commit([portion.mark for portion in self._queue])
        if self._spool is not None:
            with self._disk:
                self._spool.close()

    def _close_sink(self, seconds: float) -> None:
        try:
            if self._sink is not None:
                self._sink.close(seconds)
        except BaseException as error:  # a plug-in's code
            self.log(f"the sink {self.name} could not be closed: {_said(error)}")

    # --- how it does

    def _works(self) -> bool:
        return self._started and not self._failures and not self._has_not_answered(STUCK_SECONDS)

    def health(self) -> dict[str, Any]:
        """Numbers for the exporter's own metrics."""
        with self._lock:
            now = time.monotonic()
            batch = self._batch
            oldest = batch.since if batch else self._queue[0].since if self._queue else now
            return {
                "Sink": self.name,
                "Working": self._works(),
                "QueuedRecords": sum(len(p.records) for p in self._queue) + (len(batch.records) if batch else 0),
                "QueuedBytes": self._queued,
                "SpooledRecords": self._pending(),
                "SpooledBytes": self._spool.size if self._spool is not None else 0,
                "LagSeconds": round(max(0.0, now - oldest), 3),
                "Delivered": self.counts["delivered"],
                "Retried": self.counts["retried"],
                "Refused": self.counts["refused"],
                "Failures": self.counts["failures"],
                "Dropped": dict(self.dropped),
            }


def _said(error: BaseException) -> str:
    # ours are sentences already
    return printable(str(error) if isinstance(error, JobLensError) else f"{type(error).__name__}: {error}", 300)
