"""The kernel's ring of process events: what was started and what ended in the slots, in order."""

from __future__ import annotations

import os

import numpy as np

from condor_joblens.common.errors import JobLensError
from condor_joblens.tracer import map_layout
from condor_joblens.tracer._bpf import ffi, lib

EVENTS_AT_A_TIME = 1024
"""More than come between two looks at ten thousand programs a second; what records of them take stays resident."""


class ProcessEvents:
    """Drains the ring. What it had no room for is counted by the kernel (`Tracer.lost_process_events`)."""

    def __init__(self, map_descriptor: int) -> None:
        """Raises JobLensError where the ring can't be opened."""
        self._map = map_descriptor
        self._events = np.zeros(EVENTS_AT_A_TIME, map_layout.PROCESS_EVENT)
        events = ffi.cast("struct process_event *", self._events.ctypes.data)
        self._drain = lib.open_drain(map_descriptor, events, EVENTS_AT_A_TIME)
        if self._drain == ffi.NULL:
            raise JobLensError(f"the kernel's ring of process events can't be opened: {os.strerror(ffi.errno)}")

    def fileno(self) -> int:
        """Readable when there are events."""
        return self._map

    def take(self) -> np.ndarray:
        """What happened since the last call, at most EVENTS_AT_A_TIME of map_layout.PROCESS_EVENT.

        It is good until the next call. An exit has the command of the process's last exec, if that is still known.
        """
        taken: np.ndarray = self._events[: lib.drain_events(self._drain)]
        return taken

    def close(self) -> None:
        """Gives the ring back."""
        lib.close_drain(self._drain)
