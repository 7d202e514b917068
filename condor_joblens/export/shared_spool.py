"""A spool from which the sink's thread reads while the spooler's fills it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

from condor_joblens.export.cursor import Cursor
from condor_joblens.export.spool import Frame, Spool
from condor_joblens.sinks import Record


class SharedSpool:
    """Each method may wait for the disk, and for another thread that does: call none with a lock in hand."""

    def __init__(
        self, sink: str, spool: Spool, cursor: Cursor, lose: Callable[[str, int], None], log: Callable[[str], None]
    ) -> None:
        """`lose` is told the cause and number of records that never came out again; it may take a lock."""
        self._sink, self._spool, self._cursor, self._lose, self._log = sink, spool, cursor, lose, log
        self._lock = threading.Lock()
        self._said = ""
        spool.tell = self._tell_losses
        self._tell_losses()

    @property
    def pending(self) -> int:
        """Records in it, without waiting."""
        return self._spool.pending

    @property
    def size(self) -> int:
        """Bytes on disk, without waiting."""
        return self._spool.size

    def append(self, records: Sequence[Record]) -> Frame | None:
        """Puts records at the end. None where the disk does not take them."""
        try:
            with self._held() as spool:
                return spool.append(records)
        except OSError as error:
            message = (
                f"the spool of the sink {self._sink} takes no more: {error.strerror}: its records wait in memory, "
                "and the oldest are lost; make room in JOBLENS_SPOOL_DIR"
            )
            if message != self._said:  # it is tried twice a second, and may go well now and then
                self._said = message
                self._log(message)
            return None

    def oldest(self) -> Frame | None:
        """What is to be delivered next. Raises OSError where it can't be read."""
        with self._held() as spool:
            return spool.oldest()

    def delivered(self, frame: Frame) -> None:
        """All of it is confirmed or refused."""
        with self._held() as spool:
            spool.delivered(frame)

    def trim(self) -> None:
        """Drops what is too old."""
        with self._held() as spool:
            spool.trim()

    def close(self) -> None:
        """For the next process."""
        with self._held() as spool:
            spool.close()

    @contextlib.contextmanager
    def _held(self) -> Iterator[Spool]:
        """At the end the cursor says where it stands."""
        with self._lock:
            try:
                yield self._spool
            finally:
                self._tell_losses()

    def _tell_losses(self) -> None:
        """A process that is killed in here leaves something that is declared lost, and comes out all the same."""
        for cause, count in self._spool.dropped.items():
            self._lose(cause, count)
        self._spool.dropped.clear()
        self._cursor.spooled = self._spool.wanted
