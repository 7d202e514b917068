"""Rows -> the world outside HTCondor. Unprivileged, each sink on its own: one that is slow slows no other."""

from __future__ import annotations

from typing import Callable, Protocol

import numpy as np

Rows = Callable[[], "tuple[np.ndarray, float]"]
"""Gives a copy of all rows, shape (n,), and when they were taken, epoch seconds; from any thread.

Raises JobLensError where there are none, or none that are fresh.
"""


class Sink(Protocol):
    """What joblens-export starts. It works in threads of its own; a fault is logged, never raised."""

    def start(self) -> None:
        """Begins, and returns at once."""

    def stop(self) -> None:
        """Ends within half a second."""
