"""Waits for another process, and does meanwhile what can't wait."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from condor_joblens.common import readiness

PAUSE_SECONDS = 0.005

_patience = 1.0


def be_patient(times: float) -> None:
    """Deadlines of this process, and of those that it forks, are so many times as long: its CPU may be emulated."""
    global _patience
    _patience = times


def deadline(seconds: float) -> float:
    """What on this machine is as long as so many seconds on others."""
    return seconds * _patience


def wait_for(channel: socket.socket, seconds: float, meanwhile: Callable[[], None] | None) -> None:
    """Until something can be read there; `meanwhile` is called every few milliseconds. Raises TimeoutError."""
    until = time.monotonic() + seconds
    while not readiness.readable([channel], seconds if meanwhile is None else PAUSE_SECONDS):
        if meanwhile is not None:
            meanwhile()
        if time.monotonic() >= until:
            raise TimeoutError
