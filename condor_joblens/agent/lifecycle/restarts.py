"""How often a job may begin anew in its slot: its checkpoint exit code lets it do so forty times a second.

Each begin of a run costs joblensd some ten milliseconds, and other jobs' levels step down if joblensd costs too much.
So a starter's first job is always watched, and its further begins have a share. One that has none is not watched at
once: recovery.reconcile finds it, if it still lives. The runs before it have said by then that they may not be all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from condor_joblens.jobs.sandbox import is_roots

SAVED, PER_SECOND = 20.0, 1.0
"""Begins of one starter's job: what is saved up, and what is added. 1 per second is one per cent of a core."""

SAVED_OF_ALL, PER_SECOND_OF_ALL = 100.0, 10.0
"""The same for all starters that use their share up. Who has used less than half of it needs none of this."""

LOW = 5.0
"""Begins left, below which a run says that it may not be all."""

MAX_STARTERS = 4096

NOTE = "it began anew so often that not each time is counted"


class Tokens:
    """Things that may happen: some are saved up, and more come with the time (CLOCK_MONOTONIC)."""

    def __init__(self, most: float, per_second: float, now: float) -> None:
        self._most, self._per_second = most, per_second
        self._left, self._since = most, now

    def left(self, now: float) -> float:
        """How many are left."""
        return min(self._most, self._left + self._per_second * (now - self._since))

    def take(self, now: float) -> bool:
        """Takes one; False if there is none."""
        self._left, self._since = self.left(now), now
        if self._left < 1:
            return False
        self._left -= 1
        return True


@dataclass
class _Starter:
    pid: int
    tokens: Tokens
    has_missed: bool = False  # a begin of its job was not watched


@dataclass
class Restarts:
    """The starters whose job has ended, by the name of their slot's cgroup. Their next cgroup is the same job's."""

    now: Callable[[], float]
    is_starter: Callable[[int], bool] = is_roots  # whether a process is still a starter
    _starters: OrderedDict[str, _Starter] = field(default_factory=OrderedDict)
    _of_all: Tokens = field(init=False)

    def __post_init__(self) -> None:
        self._of_all = Tokens(SAVED_OF_ALL, PER_SECOND_OF_ALL, self.now())

    def ended(self, name: str, starter: int) -> None:
        """The cgroup `name`, which this process made (0: unknown), is gone."""
        known = self._starters.get(name)
        if starter <= 0 or (known is not None and known.pid == starter):
            return
        self._starters[name] = _Starter(starter, Tokens(SAVED, PER_SECOND, self.now()))
        self._starters.move_to_end(name)
        if len(self._starters) > MAX_STARTERS:
            self._starters.popitem(last=False)

    def is_restart(self, name: str, starter: int) -> bool | None:
        """Whether a job of this starter had a cgroup of this name before; None if none of any starter's is known."""
        known = self._starters.get(name)
        return None if known is None or starter <= 0 else known.pid == starter

    def may_begin(self, name: str) -> bool:
        """Whether the run of a new cgroup `name` may begin now; takes it from the share if so."""
        known = self._living(name)
        if known is None:
            return True
        now = self.now()
        is_modest = known.tokens.left(now) > SAVED / 2
        if not known.tokens.take(now) or not (is_modest or self._of_all.take(now)):
            known.has_missed = True
            return False
        return True

    def may_miss(self, name: str) -> bool:
        """Whether a begin of this starter's job has not been watched, or might soon not be."""
        known = self._starters.get(name)
        return known is not None and (known.has_missed or known.tokens.left(self.now()) < LOW)

    def _living(self, name: str) -> _Starter | None:
        known = self._starters.get(name)
        if known is not None and not self.is_starter(known.pid):
            del self._starters[name]  # another one's job begins in the slot
            return None
        return known
