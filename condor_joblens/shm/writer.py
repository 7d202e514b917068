"""The one writer of a double buffer."""

from __future__ import annotations

import mmap
import os

import numpy as np

from condor_joblens.metrics import ROW
from condor_joblens.shm import layout
from condor_joblens.shm._atomic import ffi, lib


class Writer:
    """Publishes all rows of a node at once; never waits for a reader.

    The file is made anew under a temporary name and renamed into place, so that a reader sees either the old
    writer's last rows or a whole new file, and nobody can have prepared it.
    """

    def __init__(self, path: str, capacity: int, group: int, rows: np.ndarray | None = None) -> None:
        """Makes `path` (mode 0640, group id `group`) for up to `capacity` rows.

        `rows`, where given, are there from the first moment, at the newest of their UpdateTimes: a restarted
        writer hands on what its predecessor published. Raises OSError where the file can't be made.
        """
        temporary = f"{path}.new"
        if os.path.lexists(temporary):
            os.unlink(temporary)
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            self._map(descriptor, capacity)
            if rows is not None and len(rows):
                self.publish(rows[:capacity], float(rows["update_time"].max()))
            os.fchown(descriptor, -1, group)
            os.fchmod(descriptor, 0o640)
            os.rename(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        finally:
            os.close(descriptor)

    def _map(self, descriptor: int, capacity: int) -> None:
        size = layout.file_bytes(capacity)
        # every page now: a file system that is full later would be a SIGBUS, not an error
        os.posix_fallocate(descriptor, 0, size)
        os.write(descriptor, layout.new_header(capacity, os.getpid()).tobytes())
        memory = mmap.mmap(descriptor, size)
        self._header = np.frombuffer(memory, layout.HEADER, 1)
        self._buffers = np.frombuffer(memory, ROW, 2 * capacity, layout.HEADER_BYTES).reshape(2, capacity)
        base = int(ffi.cast("uintptr_t", ffi.from_buffer(memory)))
        self._published = ffi.cast("void *", base + layout.offset("published"))
        self._begun = ffi.cast("void *", base + layout.offset("begun"))
        self._count = 0
        self.capacity = capacity

    def publish(self, rows: np.ndarray, time: float) -> None:
        """Puts `rows` (shape (n,), n <= capacity) in front; `time` is when they were taken, epoch seconds."""
        number = self._count + 1
        back = number & 1
        lib.store_release(self._begun, number)
        # the writes below must not be seen before `begun`, which a release store alone does not say
        lib.fence_release()
        self._buffers[back, : len(rows)] = rows
        self._header["count"][0, back] = len(rows)
        self._header["time"][0, back] = time
        lib.store_release(self._published, number)
        self._count = number
