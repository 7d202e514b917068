"""Traces of what C++ programs throw that stand for the life of runs at level trace: as those of functions.

Nothing is kept of them but what triggers and the flight recorder are told.
"""

from __future__ import annotations

from condor_joblens.agent.function_traces import FunctionTraces, Standing
from condor_joblens.agent.levels import word_tracing
from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.model.events import EventKind


class ThrowTraces(FunctionTraces):
    """All of the node."""

    subject = word_tracing.THROWN.subject
    tells, one_by_one = EventKind.EXCEPTION, "exceptions"

    def asked(self, run: int) -> bool:
        """Whether its exceptions are traced for the run's life, or may come to be."""
        return bool(word_tracing.THROWN.asked(self._levels, run))

    def wanted(self, levels: Levels, run: int) -> tuple[str, ...]:
        """What is to be traced of the run now."""
        return word_tracing.THROWN.wanted(levels, run)

    def base(self, run: int) -> tuple[int, int, float]:
        """Its row has nothing of them."""
        return 0, 0, 0.0

    def put(self, standing: Standing, said: bytes) -> None:
        """They have no sums. Raises ValueError."""
        raise ValueError("it says what it does not know")

    def note(self, run: int, text: str) -> None:
        """What the run's note says of it."""
        word_tracing.THROWN.say(self._levels, run, text)
