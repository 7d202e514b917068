"""Waits for another process, and does meanwhile what can't wait."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from condor_joblens.common import readiness

PAUSE_SECONDS = 0.005


def wait_for(channel: socket.socket, seconds: float, meanwhile: Callable[[], None] | None) -> None:
    """Until something can be read there; `meanwhile` is called every few milliseconds. Raises TimeoutError."""
    until = time.monotonic() + seconds
    while not readiness.readable([channel], seconds if meanwhile is None else PAUSE_SECONDS):
        if meanwhile is not None:
            meanwhile()
        if time.monotonic() >= until:
            raise TimeoutError
