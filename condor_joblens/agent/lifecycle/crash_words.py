"""What processes of runs died of, in words, and the deaths that these words belong to.

Where they were when a signal killed them, and which exceptions ended Pythons.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

import numpy as np

from condor_joblens.jobs import death_sentence
from condor_joblens.jobs.death_sentence import Crashed, Raised, RunEnding

MOST_RUNS = 200
MOST_OF_RUN = 16
"""Processes of a run whose crashes are remembered, the last ones; and so many exceptions."""


@dataclass
class _Death:
    """What its sentence is made of; ends of processes as DEATH, shape ()."""

    death: np.void
    ending: RunEnding


@dataclass
class CrashWords:
    """By run number, so that a run may be over."""

    _crashed: OrderedDict[int, OrderedDict[int, Crashed]] = field(default_factory=OrderedDict)
    _raised: OrderedDict[int, deque[Raised]] = field(default_factory=OrderedDict)
    _deaths: OrderedDict[int, _Death] = field(default_factory=OrderedDict)

    def of(self, number: int) -> dict[int, Crashed]:
        """Where processes of a run were, by tgid."""
        return dict(self._crashed.get(number, {}))

    def add(self, number: int, tgid: int, crashed: Crashed) -> None:
        """One more."""
        of_run = self._crashed.setdefault(number, OrderedDict())
        self._crashed.move_to_end(number)
        of_run[tgid] = crashed
        of_run.move_to_end(tgid)
        if len(of_run) > MOST_OF_RUN:
            of_run.popitem(last=False)
        if len(self._crashed) > MOST_RUNS:
            self._crashed.popitem(last=False)

    def raised(self, number: int) -> tuple[Raised, ...]:
        """Exceptions that ended processes of a run, in their order."""
        return tuple(self._raised.get(number, ()))

    def add_raised(self, number: int, raised: Raised) -> None:
        """One more."""
        self._raised.setdefault(number, deque(maxlen=MOST_OF_RUN)).append(raised)
        self._raised.move_to_end(number)
        if len(self._raised) > MOST_RUNS:
            self._raised.popitem(last=False)

    def forget_raised(self, number: int) -> None:
        """Nothing of its exceptions is to be said."""
        self._raised.pop(number, None)

    def died(self, number: int, death: np.void, ending: RunEnding) -> None:
        """The run's death has been reported: it may get more words."""
        self._deaths[number] = _Death(death.copy(), ending)
        if len(self._deaths) > MOST_RUNS:
            self._deaths.popitem(last=False)

    def forget(self, number: int) -> None:
        """The run begins anew."""
        self._crashed.pop(number, None)
        self._raised.pop(number, None)
        self._deaths.pop(number, None)

    def sentence(self, number: int) -> str:
        """Why the run died, with what is known by now; empty if no death of it was reported."""
        known = self._deaths.get(number)
        if known is None:
            return ""
        return death_sentence.sentence(known.death, known.ending, self.of(number), self.raised(number))
