"""How many commands a trace of scripts may have told: as many as it can read in its share of a core.

The kernel counts what comes beyond, and tells nothing of it. So a script that does nothing but short commands takes no
more of the node's JOBLENS_MAX_CPU than that, and nobody's level steps down for it.
"""

from __future__ import annotations

SAVED_SECONDS = 30.0
"""Of this time, the share that was not used is left for a burst: joblensd's use of CPU is smoothed over a minute."""

MOST_COMMANDS = 4_000
"""At a time: most rings have room for so many."""

LEAST_COMMANDS = 200
"""Below that none are told once there was no room: of single ones between others the ends are not known."""

FIRST_COST_SECONDS = 20e-6
"""Of CPU that a command takes to read, until it has been measured."""

_MEASURED_COMMANDS = 50
_NEWEST = 0.2  # weight of what was measured last


class ReadingShare:
    """The share of one trace. Times are of CLOCK_MONOTONIC."""

    def __init__(self, cores: float, now: float, saved: float = 1.0) -> None:
        """`cores` of CPU; `saved` of what can be saved up is there from the beginning."""
        self._cores, self._since = cores, now
        self._left = saved * SAVED_SECONDS * cores  # seconds of CPU
        self._cost = FIRST_COST_SECONDS

    def set(self, cores: float, now: float) -> None:
        """From now on it is another one."""
        self._fill(now)
        self._cores = cores
        self._left = min(self._left, SAVED_SECONDS * cores)

    def spend(self, seconds: float, commands: int) -> None:
        """So much CPU was used, for so many commands."""
        self._left -= seconds
        if commands >= _MEASURED_COMMANDS:
            self._cost += _NEWEST * (seconds / commands - self._cost)

    def room(self, now: float, told: bool) -> int:
        """So many commands may be told from now on; `told`: there was room for those until now."""
        self._fill(now)
        room = int(self._left / self._cost)
        return max(0, min(room, MOST_COMMANDS)) if told or room >= LEAST_COMMANDS else 0

    def _fill(self, now: float) -> None:
        self._left = min(SAVED_SECONDS * self._cores, self._left + self._cores * (now - self._since))
        self._since = now
