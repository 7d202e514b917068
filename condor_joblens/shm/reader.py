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


class Reader:
    """Reads the rows at `path`, and follows when a new writer replaces the file."""

    def __init__(self, path: str) -> None:
        """Opens `path`. Raises JobLensError where there is nothing to read, and says why."""
        self._path = path
        self._open()

    def _open(self) -> None:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise JobLensError(f"{self._path} is not there: joblensd has not run on this machine since it started") from None
        except PermissionError:
            raise JobLensError(f"{self._path} may not be read by this user: become root or a member of group joblens") from None
        except OSError as error:
            raise JobLensError(f"{self._path} can't be opened: {error.strerror}") from None
        size = os.fstat(descriptor).st_size
        try:
            if size < layout.HEADER_BYTES:
                raise JobLensError(f"{self._path} is no file of joblensd's: {size} bytes are too few")
            self._memory = mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        weakref.finalize(self._memory, os.close, descriptor)
        self._header = np.frombuffer(self._memory, layout.HEADER, 1)
        self._check(size)
        self.capacity = int(self._header["capacity"][0])
        self._buffers = np.frombuffer(
            self._memory, ROW, 2 * self.capacity, layout.HEADER_BYTES
        ).reshape(2, self.capacity)
        base = int(ffi.cast("uintptr_t", ffi.from_buffer(self._memory)))
        offsets = layout.HEADER.fields
        assert offsets is not None
        self._published = ffi.cast("void *", base + offsets["published"][1])
        self._begun = ffi.cast("void *", base + offsets["begun"][1])

    def _check(self, size: int) -> None:
        header = self._header[0]
        if header["magic"] != layout.MAGIC.rstrip(b"\0"):
            raise JobLensError(f"{self._path} is no file of joblensd's")
        same = (
            header["layout_version"] == layout.LAYOUT_VERSION
            and header["schema_hash"] == SCHEMA_HASH
            and header["row_bytes"] == ROW.itemsize
            and size >= layout.file_bytes(int(header["capacity"]))
        )
        if not same:
            raise JobLensError(
                f"{self._path} was written by another version of JobLens than this one: "
                "install one version for all, then condor_restart -subsystem joblensd"
            )

    @property
    def writer_pid(self) -> int:
        """Process id of the joblensd that wrote last, in its own pid namespace."""
        return int(self._header["writer_pid"][0])

    def rows(self) -> tuple[np.ndarray, float]:
        """A copy of all rows, shape (n,), and when they were taken, epoch seconds (0.0: nothing published yet).

        Raises JobLensError where the file is gone, or of another version.
        """
        self._follow()
        for _ in range(ATTEMPTS):
            published = lib.load_acquire(self._published)
            if published == 0:
                return np.empty(0, ROW), 0.0
            front = published & 1
            count = min(int(self._header["count"][0, front]), self.capacity)
            time = float(self._header["time"][0, front])
            rows = self._buffers[front, :count].copy()
            # the copy must be done before `begun` is looked at
            lib.fence_acquire()
            if lib.load_acquire(self._begun) < published + 2:
                return rows, time
        raise JobLensError(f"{self._path} changes faster than it can be read")

    def _follow(self) -> None:
        # a new writer renames its file over this one, and an orderly stop removes it: either way no link is left
        if os.fstat(self._descriptor).st_nlink == 0:
            self._open()
