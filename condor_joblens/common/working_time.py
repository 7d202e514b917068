"""A clock that stands still while its thread could work and has no core: others have made it wait, not its work."""

from __future__ import annotations

import contextlib
import os
import time

SCHEDSTAT = "/proc/thread-self/schedstat"
NANO = 1e-9


class WorkingTime:
    """The clock of the thread that makes it. What the thread blocks on counts, as its own time on a core does."""

    def __init__(self, path: str = SCHEDSTAT) -> None:
        """Without that file (a kernel without CONFIG_SCHED_INFO) it never stands still."""
        self._file = -1
        with contextlib.suppress(OSError):
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __call__(self) -> float:
        """Seconds; only the difference of two means anything."""
        return time.monotonic() - self._waited()

    def _waited(self) -> float:
        """Seconds in run queues: the second of three numbers of the file, in nanoseconds (proc_pid_schedstat)."""
        if self._file < 0:
            return 0.0
        try:
            return int(os.pread(self._file, 100, 0).split()[1]) * NANO
        except (OSError, ValueError, IndexError):
            return 0.0

    def close(self) -> None:
        """From here on it never stands still."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
