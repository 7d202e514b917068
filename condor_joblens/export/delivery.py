"""The thread of one sink: makes it, starts it, and hands it what waits, whatever it does.

A sink may be a plug-in's code, which raises what it likes, hangs, or answers nonsense. That is a failure for now, and
the sink is tried again after a pause.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.export.backlog import Backlog
from condor_joblens.export.batches import Batch
from condor_joblens.export.isolation import Isolation
from condor_joblens.export.stop_event import StopEvent
from condor_joblens.sinks import DeliveryResult, Record, Sink, SinkContext, not_now
from condor_joblens.sinks.registry import SinkConfig

STUCK_SECONDS = 30.0
"""After which a sink that has not answered does not work, and that is said in the log."""

LONGEST_PAUSE = 30.0


class Delivery:
    """`run` is the thread; how it does may be asked from any other."""

    def __init__(self, config: SinkConfig, context: SinkContext, backlog: Backlog, stop_event: StopEvent) -> None:
        self._config, self._context, self._backlog, self._stop_event = config, context, backlog, stop_event
        self._isolation = Isolation(config.sink.batch_records)
        self._sink: Sink | None = None
        self._began: float | None = None  # when the sink was asked what it has not answered yet
        self._in_a_row = 0  # failures
        self._said = ""
        self.failures = 0
        """How often it has failed so far."""
        self.is_started = False
        """Whether the sink has been started."""

    @property
    def sink(self) -> Sink:
        """Made by who asks for it first: the sink's own thread, as its constructor is a plug-in's code too."""
        if self._sink is None:
            self._sink = self._config.sink(self._config.settings, self._context)
        return self._sink

    @property
    def works(self) -> bool:
        """Whether the sink is started, does not fail and answers."""
        return self.is_started and not self.fails and not self.is_stuck

    @property
    def fails(self) -> bool:
        """Whether it failed last."""
        return self._in_a_row > 0

    @property
    def is_stuck(self) -> bool:
        """Whether the sink has not answered for far too long."""
        return self.has_not_answered(STUCK_SECONDS)

    def has_not_answered(self, seconds: float) -> bool:
        """Whether the sink was asked something longer ago than that, and has not returned."""
        began = self._began
        return began is not None and time.monotonic() - began > seconds

    def run(self) -> None:
        """Until the end."""
        while not self._stop_event.is_set() and not self._start_sink():
            self._pause(0.0)
        if not self._config.takes:
            return
        while True:
            try:
                batch = self._backlog.take()
            except OSError as error:
                self._say(f"the spool of the sink {self._config.name} can't be read: {error.strerror}")
                self._stop_event.wait(1.0)
                continue
            if batch is None:
                return
            self._deliver(batch)

    def close_sink(self, seconds: float) -> None:
        """In so long; `run` may be in the midst of a batch."""
        try:
            if self._sink is not None:
                self._sink.close(seconds)
        except BaseException as error:  # a plug-in's code
            self._context.log(f"the sink {self._config.name} could not be closed: {_said(error)}")

    def _start_sink(self) -> bool:
        self._began = time.monotonic()
        try:
            self.sink.start()
        except BaseException as error:  # a plug-in's code, which may even want to end the process
            self._failed(_said(error))
            return False
        finally:
            self._began = None
        self.is_started = True
        return True

    def _deliver(self, batch: Batch) -> None:
        """Hands a part of the batch on once, and keeps what was not confirmed."""
        begin, end = self._isolation.part(batch.records)
        handed = batch.records[begin:end]
        outcome, raised = self._hand_over(handed) if handed else (DeliveryResult(), False)
        left = [handed[position] for position in outcome.retry]
        refused = len(outcome.refused)
        if raised and self._isolation.raised(handed, batch.records):
            left, refused = [], 1
            self._say(
                f"the sink {self._config.name} can't take the record {handed[0].id}, which makes it raise: "
                "it is left out"
            )
        counted = {
            "refused": refused,
            "retried": len(outcome.retry),
            "delivered": len(handed) - len(outcome.retry) - len(outcome.refused),
        }
        if not self._backlog.settle(batch, batch.records[:begin] + left + batch.records[end:], counted):
            return
        if outcome.refused:
            first = printable(next(iter(outcome.refused.values())), 200)
            self._say(f"the sink {self._config.name} refused {refused} records: {first}")
        if outcome.retry:
            self._failed(outcome.reason or "no reason given")
            self._pause(outcome.after)
        elif handed:
            self._worked()

    def _hand_over(self, handed: list[Record]) -> tuple[DeliveryResult, bool]:
        """What became of them, with nothing in it that a sink should not say; and whether it raised."""
        self._began = time.monotonic()
        try:
            return _checked(self.sink.deliver(handed), handed), False
        except BaseException as error:  # a plug-in's code
            return not_now(handed, _said(error)), True
        finally:
            self._began = None

    def _worked(self) -> None:
        if self.fails:
            self._context.log(f"the sink {self._config.name} works again")
        self._in_a_row = 0
        self._said = ""
        self._isolation.went_through()

    def _failed(self, reason: str) -> None:
        self._in_a_row += 1
        self.failures += 1
        self._say(f"the sink {self._config.name} does not work for now: {printable(reason, 300)}")

    def _say(self, message: str) -> None:
        """Once, until something else is to be said."""
        if message != self._said:
            self._said = message
            self._context.log(message)

    def _pause(self, at_least: float) -> None:
        seconds = min(LONGEST_PAUSE, 0.1 * 2.0 ** min(self._in_a_row, 20)) * random.uniform(0.5, 1.0)
        self._stop_event.wait(max(seconds, min(at_least, 600.0)))


def _checked(outcome: DeliveryResult, handed: Sequence[Record]) -> DeliveryResult:
    """An outcome in which no record is twice. Raises what there is to raise where it is none."""
    if not isinstance(outcome, DeliveryResult):
        raise TypeError(f"deliver returned {type(outcome).__name__} and no DeliveryResult")
    retry = sorted({position for position in outcome.retry if 0 <= position < len(handed)})
    refused = {
        position: str(why)
        for position, why in outcome.refused.items()
        if 0 <= position < len(handed) and position not in retry
    }
    return DeliveryResult(retry, refused, str(outcome.reason), float(outcome.after))


def _said(error: BaseException) -> str:
    # ours are sentences already
    return printable(str(error) if isinstance(error, JobLensError) else f"{type(error).__name__}: {error}", 300)
