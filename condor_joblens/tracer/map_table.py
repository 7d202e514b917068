"""A table that programs in the kernel fill, of endpoints or of servers: read whole, and kept small by the agent."""

from __future__ import annotations

from typing import Any

import numpy as np

from condor_joblens.tracer._bpf import ffi, lib


class MapTable:
    """The entries of all slots. What an entry does not hold is in its slot's total all the same."""

    def __init__(self, map_fd: int, room: int, key: np.dtype[Any], value: np.dtype[Any]) -> None:
        """For a hash map of `room` entries of these types."""
        self._map = map_fd
        self.room = room
        # touched as far as there are entries
        self._keys: np.ndarray = np.zeros(room, key)
        self._values: np.ndarray = np.zeros(room, value)

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """All entries: keys and values, both of shape (n,), copies.

        Empty where the kernel can't give them; an entry that is made meanwhile may be missing.
        """
        keys, values = ffi.from_buffer(self._keys), ffi.from_buffer(self._values)
        count = max(0, lib.read_map(self._map, keys, self._keys.itemsize, values, self._values.itemsize, self.room))
        return self._keys[:count].copy(), self._values[:count].copy()

    def put(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Writes entries of the agent's own, over those of the same keys; shape (n,) both.

        One for which there is no room is left out.
        """
        keys, values = np.ascontiguousarray(keys), np.ascontiguousarray(values)
        for key, value in zip(keys.reshape(-1, 1), values.reshape(-1, 1)):
            lib.bpf_map_update_elem(self._map, ffi.from_buffer(key), ffi.from_buffer(value), 0)

    def drop(self, keys: np.ndarray) -> int:
        """Takes the entries of these keys, shape (n,), out of the table; how many of them were there."""
        keys = np.ascontiguousarray(keys)
        if not len(keys):
            return 0
        return int(lib.delete_keys(self._map, ffi.from_buffer(keys), keys.itemsize, len(keys)))
