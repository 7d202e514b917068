"""Lines of the log that are worth writing once."""

from __future__ import annotations

from collections.abc import Callable

REMEMBERED = 1000
"""Lines that are remembered at most."""


class LogOnce:
    """Logs a line the first time that it is given."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._logged: set[str] = set()

    def __len__(self) -> int:
        return len(self._logged)

    def __call__(self, line: str) -> None:
        """Logs `line` unless it has been logged before."""
        if self.is_new(line):
            self._log(line)

    def is_new(self, what: str) -> bool:
        """Whether `what` is asked about for the first time; from then on it is known."""
        if what in self._logged:
            return False
        if len(self._logged) >= REMEMBERED:
            self._logged.clear()  # one job after the other can cause lines: the others must still be logged
        self._logged.add(what)
        return True

    def clear(self) -> None:
        """Forgets all lines: each is logged again when it is given again."""
        self._logged.clear()
