"""What waits for one sink: in memory, in the sink's hands, and in the spool.

Records wait in memory. Only where the sink is behind are they moved to the spool, what the sink has in its hands
included. What is there is older than what waits in memory, always, so that the order stays. A mark goes with the
records: once they are confirmed or in the spool, the cursor moves there.

Three threads come here: the reader's offers, the sink's takes and settles, the spooler's moves to the disk. `_lock`
guards all that is in memory: queue, batch, cursor, counts. It is held for moments, never while a sink or the disk is
asked, so that offering never waits. The spool has its own (see SharedSpool), under which `_lock` may be taken, but
never the other way round.
"""

from __future__ import annotations

import collections
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from condor_joblens.export import records
from condor_joblens.export.batches import Batch, HeldBySpooler, Mark, QueuedRecords
from condor_joblens.export.cursor import Cursor, RunIndex
from condor_joblens.export.shared_spool import SharedSpool
from condor_joblens.export.spool import Frame, Spool, SpoolLimits
from condor_joblens.export.stop_event import StopEvent
from condor_joblens.sinks import Record, RecordKind
from condor_joblens.sinks.registry import SinkConfig

QUEUE_BYTES = 16 << 20
"""What may wait in memory for one sink."""

FRAME_RECORDS = 2000


class Backlog:
    """One sink's records until they are confirmed or refused, with its cursor and its losses."""

    def __init__(
        self,
        config: SinkConfig,
        node: str,
        log: Callable[[str], None],
        run_index: RunIndex,
        folder: str,
        limits: SpoolLimits,
        stop_event: StopEvent,
    ) -> None:
        """Opens spool and cursor in `folder`; a disk that does not want them is said in the log."""
        self._name, self._node, self._log, self._run_index = config.name, node, log, run_index
        self._most = config.sink.batch_records
        self._hears_losses = RecordKind.EVENT in config.takes
        self._folder, self._limits = folder, limits
        self._stop_event = stop_event
        self._lock = threading.Condition()
        self._queue: collections.deque[QueuedRecords] = collections.deque()
        self._queued = 0  # bytes
        self._batch: Batch | None = None
        self._moving = False  # the spooler has something in its hands
        self._counts: collections.Counter[str] = collections.Counter()
        self._dropped: collections.Counter[str] = collections.Counter()
        self._said = ""
        self._spool: SharedSpool | None = None
        self.cursor = Cursor(None, run_index)
        self.lacks_disk = bool(config.takes)
        """Whether there should be a spool, and is none."""
        self.open_disk()

    def open_disk(self) -> None:
        """Cursor and spool are those on the disk, where it wants them. Nothing may be offered meanwhile."""
        if not self.lacks_disk:
            return
        try:
            os.makedirs(self._folder, 0o700, exist_ok=True)
            cursor = Cursor(os.path.join(self._folder, "cursor"), self._run_index)
            spool = Spool(self._folder, self._limits, cursor.spooled) if self._limits.most_bytes else None
        except OSError as error:
            message = (
                f"the sink {self._name} has no spool: {self._folder}: {error.strerror}: what can't be delivered from "
                "memory is lost; give JOBLENS_SPOOL_DIR to the user joblens"
            )
            if message != self._said:
                self._said = message
                self._log(message)
            return
        with self._lock:
            cursor.add(self.cursor)
            self.cursor, self.lacks_disk = cursor, False
            self._spool = SharedSpool(self._name, spool, cursor, self._lose, self._log) if spool is not None else None

    # --- what is offered; none of this waits

    def offer(self, found: Sequence[Record], mark: Mark | None) -> None:
        """Records that came together. Where they are too many the oldest are lost, for want of a disk or of its
        speed."""
        queued = QueuedRecords(found, mark, time.monotonic())
        with self._lock:
            self._queue.append(queued)
            self._queued += queued.size
            while self._spool is None and self.overflows and len(self._queue) > 1:
                self._drop("overflow")
            while self._queued > 2 * QUEUE_BYTES and len(self._queue) > 1:
                self._drop("disk")
            self._lock.notify_all()

    def missed(self, cause: str, count: int) -> None:
        """So many records never came here. The cursor is told by the mark that follows."""
        with self._lock:
            self._dropped[cause] += count

    def forget(self, places: np.ndarray) -> None:
        """These places of the table are free."""
        with self._lock:
            self.cursor.forget(places)

    def _drop(self, cause: str) -> None:
        queued = self._queue.popleft()
        self._queued -= queued.size
        self._lose(cause, len(queued.records))  # first: killed between the two, we leave it declared and not missing
        self._move_cursor([queued.mark])

    def _lose(self, cause: str, count: int) -> None:
        if count:
            with self._lock:
                self._dropped[cause] += count
                self.cursor.lose(cause, count)

    def _move_cursor(self, marks: Sequence[Mark | None]) -> None:
        for mark in marks:
            if mark is not None:
                mark.move(self.cursor)

    # --- what the sink takes

    def take(self) -> Batch | None:
        """The oldest records; waits until there are any. None at the end. Raises OSError where the spool has them and
        can't be read."""
        while True:
            with self._lock:
                while not self._stop_event.is_set() and (self._moving or not self._has_something()):
                    self._lock.wait(1.0)
                if self._stop_event.is_set():
                    return None
                if self._batch is None and not self._pending:
                    self._batch = self._from_memory()
                if self._batch is not None:
                    return self._batch
            self._read_spool()

    def settle(self, batch: Batch, left: list[Record], counted: Mapping[str, int]) -> bool:
        """Of the batch only `left` is neither confirmed nor refused. False where the batch is not the sink's any more:
        it was put into the spool at the end."""
        with self._lock:
            if self._batch is not batch:
                return False
            self._counts.update(counted)
            batch.records = left
            if left:
                return True
            self._move_cursor(batch.marks)
            self._told(batch)
            self._batch = None
            frame = batch.frame
        if frame is not None and self._spool is not None:
            self._spool.delivered(frame)
        return True

    @property
    def _pending(self) -> int:
        return self._spool.pending if self._spool is not None else 0

    def _has_something(self) -> bool:
        return bool(self._queue or self._batch or self._pending or self._has_losses())

    def _has_losses(self) -> bool:
        return self._hears_losses and bool(self.cursor.undeclared())

    def _from_memory(self) -> Batch:
        batch = Batch([], [], self._queue[0].since if self._queue else time.monotonic(), None)
        self._declare(batch)
        while self._queue and len(batch.records) < self._most:
            queued = self._queue.popleft()
            self._queued -= queued.size
            batch.records += queued.records
            if queued.mark is not None:
                batch.marks.append(queued.mark)
        return batch

    def _read_spool(self) -> None:
        assert self._spool is not None
        frame = self._spool.oldest()
        if frame is None:
            return
        with self._lock:
            if self._batch is None:
                self._batch = Batch(list(frame.records), [], time.monotonic() - frame.age, frame)
                self._declare(self._batch)

    def _declare(self, batch: Batch) -> None:
        """The batch begins with what was lost before it."""
        if not self._has_losses():
            return
        batch.tells = True
        name, losses = self.cursor.declare()
        now = time.time()
        batch.records = [
            records.loss(self._node, self._name, cause, count, f"{self._node}/{name}/{cause}", now)
            for cause, count in losses.items()
        ] + batch.records

    def _told(self, batch: Batch) -> None:
        """The losses that the batch tells of are as safe as the batch."""
        if batch.tells:
            self.cursor.confirm_declared()
        batch.tells = False

    # --- what goes to the disk

    @property
    def overflows(self) -> bool:
        """Whether more waits in memory than may."""
        return self._queued > QUEUE_BYTES

    @property
    def waiting_bytes(self) -> int:
        """What waits in memory and on the disk."""
        return self._queued + (self._spool.size if self._spool is not None and self._pending else 0)

    @property
    def most_bytes(self) -> int:
        """What may wait before something is lost: on the disk, if there is one, else in memory."""
        return max(QUEUE_BYTES, self._limits.most_bytes if self._spool is not None else 0)

    @property
    def any_in_memory(self) -> bool:
        """Whether a crash would cost something."""
        with self._lock:
            return bool(self._queue) or (self._batch is not None and self._batch.only_in_memory)

    def spool_all(self) -> None:
        """Moves everything that waits to the disk, what the sink has in its hands first, as long as the disk takes
        it."""
        spool = self._spool
        while spool is not None and (held := self._hold()) is not None:
            frame = None
            try:
                frame = spool.append(held.records) if held.records else None
            finally:
                is_safe = frame is not None or not held.records
                if self._put_down(held, is_safe, frame) and frame is not None:
                    spool.delivered(frame)  # before the sink can find it there
                self._let_go()
            if not is_safe:
                return

    def trim(self) -> None:
        """Drops what is too old from the spool."""
        if self._spool is not None and self._spool.pending:
            self._spool.trim()

    def _hold(self) -> HeldBySpooler | None:
        """The oldest of what is only in memory, which does not change hands until it is let go."""
        with self._lock:
            while self._moving:  # at the end there are two who move
                self._lock.wait(1.0)
            if self._batch is not None and self._batch.only_in_memory:
                held = HeldBySpooler(self._batch.records, batch=self._batch)
            else:
                held = HeldBySpooler([])
                while self._queue and len(held.records) < FRAME_RECORDS:
                    held.queued.append(self._queue.popleft())
                    held.records += held.queued[-1].records
                    self._queued -= held.queued[-1].size
                if not held.queued:
                    return None
            self._moving = True
            return held

    def _put_down(self, held: HeldBySpooler, is_safe: bool, frame: Frame | None) -> bool:
        """It is at `frame` in the spool where it is safe and not empty. Whether the sink has settled it meanwhile."""
        with self._lock:
            is_settled = held.batch is not None and held.batch is not self._batch
            if held.batch is None and not is_safe:
                self._queue.extendleft(reversed(held.queued))
                self._queued += sum(queued.size for queued in held.queued)
            elif held.batch is None:
                self._move_cursor([queued.mark for queued in held.queued])
            elif is_safe and not is_settled:
                self._move_cursor(held.batch.marks)
                self._told(held.batch)
                held.batch.frame, held.batch.marks = frame, []
            return is_settled

    def _let_go(self) -> None:
        with self._lock:
            self._moving = False
            self._lock.notify_all()

    # --- the end, and how it is

    @property
    def is_empty(self) -> bool:
        """Whether the sink has nothing to do but what is in the spool."""
        return not (self._queue or self._batch)

    def end(self) -> None:
        """Whoever waits in `take` comes back with nothing."""
        with self._lock:
            self._stop_event.set()
            self._lock.notify_all()

    def close(self) -> None:
        """What is neither confirmed nor in the spool is lost."""
        with self._lock:
            unfinished, self._batch = self._batch, None  # whoever hangs in `deliver` finds this when he comes back
            is_kept = unfinished is None or unfinished.frame is not None
            count = sum(len(queued.records) for queued in self._queue)
            self._lose("unread", count + (0 if is_kept or unfinished is None else len(unfinished.records)))
            self._move_cursor([queued.mark for queued in self._queue])
        if self._spool is not None:
            self._spool.close()

    def health(self) -> dict[str, Any]:
        """Numbers for the exporter's own metrics."""
        with self._lock:
            now, batch = time.monotonic(), self._batch
            oldest = batch.since if batch else self._queue[0].since if self._queue else now
            return {
                "QueuedRecords": sum(len(p.records) for p in self._queue) + (len(batch.records) if batch else 0),
                "QueuedBytes": self._queued,
                "SpooledRecords": self._pending,
                "SpooledBytes": self._spool.size if self._spool is not None else 0,
                "LagSeconds": round(max(0.0, now - oldest), 3),
                "Delivered": self._counts["delivered"],
                "Retried": self._counts["retried"],
                "Refused": self._counts["refused"],
                "Dropped": dict(self._dropped),
            }
