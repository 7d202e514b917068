"""How much of JOBLENS_MAX_CPU standing traces may take, so that they and peeks alone make no job's level step down.

All users have the same, and of a user's each trace. A trace begins with a part of what was saved up for its user.
So those that follow each other have no more than one that goes on.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping

from condor_joblens.agent.trace_places import Place

OF_COMMANDS = 0.2
"""Of JOBLENS_MAX_CPU: what it may take to read the commands of scripts that are traced for their jobs' lives."""

OF_LOOKS = 0.1
"""And to look for new processes: of traces of scripts, of functions, and of what is thrown, each."""

OF_ASKED = 0.05
"""And to read those that somebody has asked for: he is told them as they end."""

OF_RINGS = 0.06
"""And to read what Pythons of jobs that go on have recorded, again and again (python_calls.py)."""

GOES_ON = 0.75
"""Of a user's share, for what goes on; the rest is saved up for what begins."""

_SAVED_SECONDS = 60.0  # of a user's share; twice as much as of a trace's (tracing/reading_share.py)


class ScriptShares:
    """Those of all users."""

    def __init__(self) -> None:
        # user -> of what can be saved up for him, how much there was, and when (CLOCK_MONOTONIC)
        self._saved: dict[str, tuple[float, float]] = {}

    def saved(self, whose: str, count: int) -> float:
        """How much of what it could save up a trace may begin with; the user has `count` with this one."""
        now = time.monotonic()
        self._saved = {user: each for user, each in self._saved.items() if _level(*each, now) < 1}
        level = _level(*self._saved.get(whose, (1.0, now)), now)
        part = min(1.0, level * count / GOES_ON)
        self._saved[whose] = level - part * GOES_ON / (2 * count), now
        return part


def _level(before: float, since: float, now: float) -> float:
    return min(1.0, before + (1 - GOES_ON) * (now - since) / _SAVED_SECONDS)


def shares(having: Mapping[int, Place], max_cpu: float) -> dict[int, dict[str, float]]:
    """By number of the run, in cores: `reading` commands, and `looking` for shells."""
    users = _by_user(having.values())
    return {
        number: {
            "reading": GOES_ON * OF_COMMANDS * max_cpu / len(users) / users[place.whose],
            "looking": OF_LOOKS * max_cpu / len(users) / users[place.whose],
        }
        for number, place in having.items()
    }


def looking(having: Mapping[int, Place], max_cpu: float) -> dict[int, dict[str, float]]:
    """Of traces that read what they count in no such share: by number of the run, in cores, `looking` alone."""
    return {number: {"looking": share["looking"]} for number, share in shares(having, max_cpu).items()}


def asked(count: int, max_cpu: float) -> dict[str, float]:
    """Of a trace that somebody has asked for, with which there are `count`; it is not changed as others come and go."""
    return {"reading": OF_ASKED * max_cpu / count}


def _by_user(places: Iterable[Place]) -> Counter[str]:
    return Counter(place.whose for place in places)
