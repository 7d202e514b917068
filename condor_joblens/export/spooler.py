"""The thread that moves one sink's records to the spool where the sink is behind."""

from __future__ import annotations

from collections.abc import Callable

from condor_joblens.export import delivery
from condor_joblens.export.backlog import Backlog
from condor_joblens.export.delivery import Delivery
from condor_joblens.export.stop_event import StopEvent

SLOW_SECONDS = 2.0
"""After which a batch that is under way is a reason to spool what waits behind it."""

LOOK_EVERY = 0.5


class Spooler:
    """`run` is the thread."""

    def __init__(
        self, name: str, backlog: Backlog, sink: Delivery, stop_event: StopEvent, log: Callable[[str], None]
    ) -> None:
        self._name, self._backlog, self._sink, self._stop_event, self._log = name, backlog, sink, stop_event, log

    def run(self) -> None:
        """Until the end."""
        was_stuck = False
        while not self._stop_event.wait(LOOK_EVERY):
            is_stuck = self._sink.is_stuck
            if is_stuck and not was_stuck:
                seconds = f"{delivery.STUCK_SECONDS:.0f} s"
                self._log(f"the sink {self._name} has not answered for {seconds}: its records go to the spool")
            was_stuck = is_stuck
            if self._is_behind():
                self._backlog.spool_all()
            else:
                self._backlog.trim()

    def _is_behind(self) -> bool:
        is_slow = self._sink.fails or not self._sink.is_started or self._sink.has_not_answered(SLOW_SECONDS)
        return self._backlog.any_in_memory and (is_slow or self._backlog.overflows)
