"""Traces of what C++ programs throw that stand for the life of runs at level trace: as those of functions.

Nothing is kept of them but what triggers and the flight recorder are told.
"""

from __future__ import annotations

from condor_joblens.agent.function_traces import FunctionTraces, Standing
from condor_joblens.agent.levels import standing_requests
from condor_joblens.model.events import EventKind


class ThrowTraces(FunctionTraces):
    """All of the node."""

    what = standing_requests.THROWN
    tells, one_by_one = EventKind.EXCEPTION, "exceptions"

    def base(self, run: int) -> tuple[int, int, float]:
        """Its row has nothing of them."""
        return 0, 0, 0.0

    def put(self, standing: Standing, said: bytes) -> None:
        """They have no sums. Raises ValueError."""
        raise ValueError("it says what it does not know")
