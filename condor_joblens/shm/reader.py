"""Any number of readers of a double buffer, who need to know nothing of its writer."""

from __future__ import annotations

import mmap
import os
import weakref

import numpy as np

from condor_joblens.errors import JobLensError
from condor_joblens.metrics import ROW, SCHEMA_HASH
from condor_joblens.shm import layout
from condor_joblens.shm._atomic import ffi, lib

ATTEMPTS = 1000
"""A copy takes microseconds and a period a second: to be overtaken twice in a row is next to impossible."""

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
        self._file = _File(path)

    @property
    def writer_pid(self) -> int:
        """Process id of the joblensd that wrote last, in its own pid namespace."""
        return int(self._file.header["writer_pid"][0])

    def rows(self) -> tuple[np.ndarray, float]:
        """A copy of all rows, shape (n,), and when they were taken, epoch seconds (0.0: none published yet).

        Raises JobLensError where the file is gone, or of another version.
        """
        if self._file.is_replaced():
            self._file = _File(self._path)
        file = self._file
        for _ in range(ATTEMPTS):
            published = lib.load_acquire(file.published)
            if published == 0:
                return np.empty(0, ROW), 0.0
            front = published & 1
            count = min(int(file.header["count"][0, front]), file.capacity)
            time = float(file.header["time"][0, front])
            rows = file.buffers[front, :count].copy()
            # the copy must be done before `begun` is looked at
            lib.fence_acquire()
            if lib.load_acquire(file.begun) < published + 2:
                return rows, time
        raise JobLensError(f"{self._path} changes faster than it can be read")


class _File:
    """One writer's file, mapped."""

    def __init__(self, path: str) -> None:
        self._descriptor = _open(path)
        weakref.finalize(self, os.close, self._descriptor)
        size = os.fstat(self._descriptor).st_size
        if size < layout.HEADER_BYTES:
            raise JobLensError(f"{path} is no file of joblensd's: {size} bytes are too few")
        memory = mmap.mmap(self._descriptor, size, prot=mmap.PROT_READ)
        self.header = np.frombuffer(memory, layout.HEADER, 1)
        _check(path, self.header[0], size)
        self.capacity = int(self.header["capacity"][0])
        self.buffers = np.frombuffer(memory, ROW, 2 * self.capacity, layout.HEADER_BYTES)
        self.buffers = self.buffers.reshape(2, self.capacity)
        base = int(ffi.cast("uintptr_t", ffi.from_buffer(memory)))
        self.published = ffi.cast("void *", base + layout.offset("published"))
        self.begun = ffi.cast("void *", base + layout.offset("begun"))

    def is_replaced(self) -> bool:
        # a new writer renames its file over this one, an orderly stop removes it: either way no link is left
        return os.fstat(self._descriptor).st_nlink == 0


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        reason = "is not there: joblensd does not run on this machine"
    except PermissionError:
        reason = "may not be read by this user: become root or a member of group joblens"
    except OSError as error:
        reason = f"can't be opened: {error.strerror}"
    raise JobLensError(f"{path} {reason}")


def _check(path: str, header: np.void, size: int) -> None:
    if header["magic"] != layout.MAGIC.rstrip(b"\0"):
        raise JobLensError(f"{path} is no file of joblensd's")
    same = (
        header["layout_version"] == layout.LAYOUT_VERSION
        and header["schema_hash"] == SCHEMA_HASH
        and header["row_bytes"] == ROW.itemsize
        and size >= layout.file_bytes(int(header["capacity"]))
    )
    if not same:
        raise JobLensError(
            f"{path} was written by another version of JobLens than this one: "
            "install one version for all, then condor_restart -master"
        )
