"""The last hour of each run in a file, a point a minute: written by joblensd in place, read by the command line.

The whole content is written at once, with a checksum: a reader that comes in the midst of it reads again. It is one
kilobyte a run, once a minute.
"""

from __future__ import annotations

import os
import time
import zlib

import numpy as np

from condor_joblens.common.errors import JobLensError
from condor_joblens.model.metrics import FIELDS
from condor_joblens.shm.mapped import check_owner

MINUTES = 60
SERIES = ("cores", "resident_bytes", "io_bytes_per_second", "tcp_bytes_per_second")
"""What a point has: the mean since the point before, and memory as it is then."""

_RUN = next(field.type for field in FIELDS if field.name == "run")
RECORD: np.dtype[np.void] = np.dtype([("run", _RUN), ("values", "f4", (MINUTES, len(SERIES)))])
"""A run and its points, the latest last; NaN: there is none."""

_HEADER: np.dtype[np.void] = np.dtype(
    [("magic", "S8"), ("record_bytes", "u4"), ("count", "u4"), ("checksum", "u4"), ("unused", "u4"), ("time", "f8")]
)
_MAGIC = b"JLHIST01"
_TRIES, _PAUSE_SECONDS = 20, 0.02


class HistoryWriter:
    """The one writer of the file."""

    def __init__(self, path: str, group: int) -> None:
        """Opens or makes `path`, mode 0640, group id `group`. Raises OSError."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(path, flags, 0o600)
        os.fchown(self._file, -1, group)
        os.fchmod(self._file, 0o640)
        try:
            self.before, self.time = _parsed(_content(self._file), path)
        except JobLensError:
            self.before, self.time = np.zeros(0, RECORD), 0.0

    def write(self, records: np.ndarray, now: float) -> None:
        """Puts `records` (RECORD, shape (n,)), of which the last point was taken at `now` (epoch seconds). OSError."""
        body = records.tobytes()
        checksum = zlib.crc32(body, zlib.crc32(np.float64(now).tobytes()))
        header = np.array([(_MAGIC, RECORD.itemsize, len(records), checksum, 0, now)], _HEADER)
        content = header.tobytes() + body
        written = 0
        while written < len(content):
            written += os.pwrite(self._file, content[written:], written)
        os.ftruncate(self._file, len(content))


def read(path: str) -> tuple[np.ndarray, float]:
    """All records (RECORD, shape (n,)), and when their last points were taken. Raises JobLensError."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise JobLensError(f"{path}: {error.strerror}") from None
    try:
        check_owner(path, os.fstat(file))
        for _ in range(_TRIES):
            try:
                return _parsed(_content(file), path)
            except JobLensError:
                time.sleep(_PAUSE_SECONDS)
        return _parsed(_content(file), path)
    finally:
        os.close(file)


def _content(file: int) -> bytes:
    return os.pread(file, os.fstat(file).st_size, 0)


def _parsed(content: bytes, path: str) -> tuple[np.ndarray, float]:
    header = np.frombuffer(content[: _HEADER.itemsize].ljust(_HEADER.itemsize, b"\0"), _HEADER)[0]
    body = content[_HEADER.itemsize :][: RECORD.itemsize * int(header["count"])]
    checksum = zlib.crc32(body, zlib.crc32(header["time"].tobytes()))
    if header["magic"] != _MAGIC or header["record_bytes"] != RECORD.itemsize or header["checksum"] != checksum:
        raise JobLensError(f"{path} is no history of this version of joblensd's")
    return np.frombuffer(body, RECORD), float(header["time"])
