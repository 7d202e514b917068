"""The one writer of a double buffer of rows."""

from __future__ import annotations

import numpy as np

from condor_joblens.model.metrics import ROW, SCHEMA_HASH
from condor_joblens.shm import layout
from condor_joblens.shm._shm import ffi, lib
from condor_joblens.shm.mapped import Mapped, new_file, new_identity, predecessor

_WHOLE: np.dtype[np.void] = np.dtype(f"V{ROW.itemsize}")


def file_bytes(capacity: int) -> int:
    """The size of a file of so many rows."""
    return _plan(capacity).file_bytes


def _plan(capacity: int) -> layout.FilePlan:
    return layout.FilePlan(layout.ROWS_MAGIC, ROW, SCHEMA_HASH, capacity, 2)


class Writer:
    """Publishes all rows of a node at once; never waits for a reader."""

    def __init__(self, path: str, capacity: int, group: int, rows: np.ndarray | None = None) -> None:
        """Makes `path` (mode 0640, group id `group`) for up to `capacity` rows.

        `rows`, where given, are there from the first moment, at the newest of their UpdateTimes: a restarted
        writer hands on what its predecessor published. Raises OSError where the file can't be made.
        """
        plan = _plan(capacity)
        before = predecessor(lambda: Mapped(path, layout.ROWS_MAGIC, ROW, SCHEMA_HASH))
        generation = 1 if before is None else int(before.header["generation"]) + 1
        self.capacity = capacity
        self._count = 0
        with new_file(path, plan, group) as memory:
            header = plan.header(new_identity(), generation, 1)
            memory[: len(header)] = header
            self._address = ffi.cast("struct joblens_header *", ffi.from_buffer(memory))
            self._header = np.frombuffer(memory, layout.HEADER, 1)
            self._places = np.frombuffer(memory, "u8", 2 * capacity, plan.places_at).reshape(2, capacity)
            self._buffers = np.frombuffer(memory, ROW, 2 * capacity, plan.records_at).reshape(2, capacity)
            if rows is not None and len(rows):
                self.publish(rows[:capacity], float(rows["update_time"].max()))

    def publish(self, rows: np.ndarray, time: float, places: np.ndarray | None = None) -> None:
        """Puts `rows` (shape (n,), n <= capacity) in front; `time` is when they were taken, epoch seconds.

        `places` (n,), rising, say where each row stands in the writer's table as long as it lives. They let a slow
        reader go on in the next publication. Without them it is the order that counts.
        """
        every = np.arange(len(rows))
        self._put(np.ascontiguousarray(rows, ROW), every, time, every if places is None else places)

    def publish_of(self, table: np.ndarray, places: np.ndarray, time: float) -> None:
        """The same of those rows of `table` that stand at `places`, without a copy of them in between."""
        self._put(table, places, time, places)

    def _put(self, table: np.ndarray, chosen: np.ndarray, time: float, places: np.ndarray) -> None:
        count = len(chosen)
        if count > self.capacity:
            raise ValueError(f"{count} rows where there is room for {self.capacity}")
        number = self._count + 1
        back = number & 1
        lib.begin_rows(self._address, number)
        self._places[back, :count] = places
        # whole rows: numpy would copy three hundred fields one by one; and `clip`, as it would check in a copy first
        np.take(table.view(_WHOLE), chosen, out=self._buffers[back, :count].view(_WHOLE), mode="clip")
        self._header["count"][0, back] = count
        self._header["time"][0, back] = time
        lib.end_rows(self._address, number)
        self._count = number
