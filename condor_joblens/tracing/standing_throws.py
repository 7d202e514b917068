"""What a job throws for its whole life, by +JobLensTrace = "throws": triggers and the flight recorder learn of it."""

from __future__ import annotations

from typing import Any

from condor_joblens.model.events import EventKind
from condor_joblens.tracing import for_triggers
from condor_joblens.tracing.standing import StandingTrace


class StandingThrowTrace(StandingTrace):
    """One that stands for a job's life. Nothing is kept of it beside, and it has no sums."""

    def thrown(self, rows: list[list[Any]]) -> None:
        """Triggers are told, if one wants to know, and those who follow."""
        self._followers.tell(rows, "throws")
        if self.for_triggers.wants(EventKind.EXCEPTION):
            self.for_triggers.tell([for_triggers.of_throw(row, self.lines) for row in rows])

    def _told_to_follower(self, untold: int) -> list[dict[str, Any]]:
        numbers = range(len(self.job.traced))
        return [{**self._thrown(number), "NotShown": untold} for number in numbers]

    def _tell_sums(self) -> None:
        pass

    def _tell_kept(self) -> None:
        pass
