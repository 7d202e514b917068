"""Any number of readers of a double buffer of rows, who need to know nothing of its writer."""

from __future__ import annotations

import numpy as np

from condor_joblens.common.errors import JobLensError
from condor_joblens.model.metrics import ROW, SCHEMA_HASH
from condor_joblens.shm import layout
from condor_joblens.shm._shm import ffi, lib
from condor_joblens.shm.mapped import Mapped

SILENCE = 30.0
"""Seconds (or three periods) without new rows after which a writer counts as dead, and its rows as stale."""


def is_stale(taken: float, now: float, period: float) -> bool:
    """Whether rows taken then are too old now (epoch seconds), for a writer that publishes every `period`."""
    return now - taken > max(SILENCE, 3 * period)


class Reader:
    """Reads the rows at `path`, and follows when a new writer replaces the file. For one thread at a time."""

    def __init__(self, path: str) -> None:
        """Opens `path`. Raises JobLensError where there is nothing to read, and says why."""
        self._path = path
        self._file = self._open()

    def _open(self) -> Mapped:
        return Mapped(self._path, layout.ROWS_MAGIC, ROW, SCHEMA_HASH)

    @property
    def writer_pid(self) -> int:
        """Process id of the joblensd that wrote last, in its own pid namespace."""
        return int(self._file.header["writer_pid"])

    def version(self) -> tuple[int, int]:
        """Changes with every publication: which file it is, and how often its writer has published."""
        if self._file.is_replaced():
            self._file = self._open()
        published = ffi.addressof(self._file.address, "published")
        return int(self._file.header["identity"]), int(lib.load_acquire(published))

    def rows(self) -> tuple[np.ndarray, float]:
        """A copy of all rows, shape (n,), and when they were taken, epoch seconds (0.0: none published yet).

        Each row is whole. To a reader whom the writer overtakes time and again they are of several publications: a
        row's own `sequence` and `update_time` say of which. Raises JobLensError where the file is gone, or of another
        version.
        """
        if self._file.is_replaced():
            self._file = self._open()
        file = self._file
        # as bytes: numpy copies records field by field, and not what is between them
        rows: np.ndarray = np.empty(file.capacity * ROW.itemsize, "u1")
        published, time = ffi.new("uint64_t *"), ffi.new("double *")
        count = lib.joblens_read_rows(file.address, ffi.from_buffer(rows), published, time)
        if count < 0:
            raise JobLensError(f"{self._path} changes faster than it can be read")
        return rows[: count * ROW.itemsize].copy().view(ROW), float(time[0])


def writer_of_any_version(path: str) -> int:
    """Process id of the joblensd that wrote the rows at `path`. Raises JobLensError if there is nothing to read."""
    return int(Mapped(path, layout.ROWS_MAGIC, ROW, None).header["writer_pid"])


def rows_of_any_version(path: str) -> np.ndarray:
    """A copy of the rows at `path` in the columns of its own writer, shape (n,), for the next writer.

    A column that holds no single value is opaque, of type V. Raises JobLensError if there is nothing to read.
    """
    file = Mapped(path, layout.ROWS_MAGIC, ROW, None)
    record = file.described()
    rows: np.ndarray = np.empty(file.capacity * record.itemsize, "u1")
    count = lib.joblens_read_rows(file.address, ffi.from_buffer(rows), ffi.new("uint64_t *"), ffi.new("double *"))
    if count < 0:
        raise JobLensError(f"{path} was left half written")
    return rows[: count * record.itemsize].view(record)
