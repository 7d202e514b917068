"""One sink with its threads, its queue and its spool: whatever it does, the others do not feel it.

reader's thread -> SinkInput -> Backlog -> Delivery, the sink's thread -> the sink
                                |    ^
                                v    |
                                spool   filled by Spooler, a thread, where the sink is behind
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from condor_joblens.export.backlog import Backlog
from condor_joblens.export.cursor import RunIndex
from condor_joblens.export.delivery import Delivery
from condor_joblens.export.sink_input import SinkInput
from condor_joblens.export.spool import SpoolLimits
from condor_joblens.export.spooler import Spooler
from condor_joblens.export.stop_event import StopEvent
from condor_joblens.sinks import Sink, SinkContext
from condor_joblens.sinks.registry import SinkConfig


class Channel(SinkInput):
    """Feeds one sink with what the reader hands in."""

    def __init__(
        self, config: SinkConfig, context: SinkContext, run_index: RunIndex, folder: str, limits: SpoolLimits
    ) -> None:
        """Opens the sink's spool and cursor below `folder`; a disk that does not want them is said in the log."""
        self.config = config
        self._log = context.log
        self._folder = os.path.join(folder, config.name)
        stop_event = StopEvent()
        backlog = Backlog(config, context.node, context.log, run_index, self._folder, limits, stop_event)
        super().__init__(config, run_index, backlog)
        self._delivery = Delivery(config, context, backlog, stop_event)
        self._threads = [threading.Thread(target=self._delivery.run, name=self.name, daemon=True)]
        if self.takes:
            spooler = Spooler(self.name, backlog, self._delivery, stop_event, context.log)
            self._threads.append(threading.Thread(target=spooler.run, name=f"{self.name} spool", daemon=True))

    @property
    def sink(self) -> Sink:
        """What it feeds."""
        return self._delivery.sink

    @property
    def lacks_disk(self) -> bool:
        """Whether there should be a spool, and is none."""
        return self._backlog.lacks_disk

    def seek_disk(self) -> None:
        """Once more, where the disk did not want them before. Nothing may be offered meanwhile."""
        self._backlog.open_disk()
        if not self.lacks_disk:
            self._log(f"the sink {self.name} has its spool now: {self._folder}")

    def start(self) -> None:
        """Its threads run."""
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float) -> None:
        """Delivers what waits for so long; the rest is in the spool then. A sink that hangs is left behind."""
        end = time.monotonic() + seconds
        while not self._backlog.is_empty and self._delivery.works and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))
        self._backlog.end()
        patience = max(0.5, end - time.monotonic())
        closing = threading.Thread(target=self._delivery.close_sink, args=(patience,), daemon=True)
        closing.start()
        closing.join(max(1.0, end - time.monotonic() + 0.5))
        for thread in self._threads:
            thread.join(max(0.2, end - time.monotonic()))
        self._backlog.spool_all()
        self._backlog.close()

    def health(self) -> dict[str, Any]:
        """Numbers for the exporter's own metrics."""
        return {
            "Sink": self.name,
            "Working": self._delivery.works,
            **self._backlog.health(),
            "Failures": self._delivery.failures,
        }
