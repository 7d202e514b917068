"""Sinks as joblens-export makes them, and records to hand them, for the tests of this layer."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from condor_joblens.common.errors import JobLensError
from condor_joblens.export.records import RowEncoder
from condor_joblens.model import metrics
from condor_joblens.sinks import DeliveryResult, Record, RecordKind, Rows, Sink, SinkContext


def no_rows() -> tuple[np.ndarray, float]:
    return metrics.empty_rows(0), time.time()


def make(
    kind: type[Sink],
    log: list[str] | None = None,
    rows: Rows = no_rows,
    health: Any = tuple,
    unattributed: Any = dict,
    **macros: str,
) -> Sink:
    """A sink with these knobs (SERVERS="..."), started by nobody yet; what it logs is added to `log`."""
    settings: dict[str, Any] = {}
    for knob in kind.knobs:
        text = macros.pop(knob.name, knob.default)
        assert text is not None, f"{knob.name} must be given"
        settings[knob.name.lower()] = knob.parse(text)
    assert not macros, f"{kind.name} has no knobs {macros}"
    said = log if log is not None else []
    return kind(settings, SinkContext(said.append, rows, health, "node1", unattributed=unattributed))


def start(sink: Sink, seconds: float = 60) -> None:
    """Starts it as the exporter does: again, where a backend that is new takes longer than the sink waits."""
    end = time.monotonic() + seconds
    while True:
        try:
            return sink.start()
        except JobLensError:
            if time.monotonic() > end:
                raise
        time.sleep(0.2)


def record(number: int, kind: RecordKind = RecordKind.EVENT, job: int = 0, **more: Any) -> Record:
    """Some record with an id of its own."""
    name = f"{kind.value}-{number}"
    run = f"ap.example.org#{job}.0#1700000000#1"
    content = {"Type": kind.value, "Id": name, "Run": run, "Number": number, **more}
    return Record(kind, name, run.rpartition("#")[0], 1.7e9 + number, json.dumps(content).encode())


def runs(count: int, sequence: int = 1) -> np.ndarray:
    """Rows in which every metric has a value of its own."""
    rows = metrics.empty_rows(count)
    for place, metric in enumerate(metrics.METRICS):
        rows[metric.column] = np.arange(count) * 1000 + place + (0.25 if metric.is_float else 0)
    for number in range(count):
        rows["global_job_id"][number] = f"ap.example.org#{number}.0#1700000000"
        rows["run"][number] = f"ap.example.org#{number}.0#1700000000#1"
        rows["job_id"][number] = f"{number}.0"
    rows["run_number"], rows["sequence"] = np.arange(count) + 1, sequence
    rows["start_time"], rows["update_time"] = 1_700_000_000, 1_700_000_100 + sequence
    return rows


def samples(count: int, sequence: int = 1, kind: RecordKind = RecordKind.SAMPLE) -> list[Record]:
    return RowEncoder("node1").records(runs(count, sequence), kind)


def deliver(sink: Sink, batch: Sequence[Record], seconds: float = 60, reasons: list[str] | None = None) -> list[str]:
    """Hands a batch in until nothing is left to retry; returns (and adds to `reasons` at once) why it was not taken."""
    reasons = [] if reasons is None else reasons
    end = time.monotonic() + seconds
    while batch:
        outcome: DeliveryResult = sink.deliver(batch)
        assert not outcome.refused, outcome
        if outcome.retry:
            reasons.append(outcome.reason)
            assert time.monotonic() < end, reasons
            time.sleep(0.2)
        batch = [batch[position] for position in outcome.retry]
    return reasons


def deliver_all(sink: Sink, records: Sequence[Record], most: int = 500) -> None:
    """In their order, so many at a time. None may be asked for again."""
    for begin in range(0, len(records), most):
        assert deliver(sink, records[begin : begin + most]) == []


def complaints(sink: Sink) -> list[str]:
    """What `joblens doctor` would find wrong, each with its remedy."""
    return [f"{one.text}: {one.remedy}" for one in sink.check() if not one.ok]


def until(condition: Callable[[], Any], what: str, seconds: float = 60, seen: Sequence[Any] = ()) -> Any:
    """Asks until the answer is true, and returns it; one that never comes fails the test, which shows what was `seen`
    last."""
    end, asked = time.monotonic() + seconds, time.monotonic()
    while not (answer := condition()):
        assert time.monotonic() < end, "\n".join([f"waited {seconds:.0f} s for {what}", *map(str, seen[-3:])])
        # who asks is not to take the CPU of whom he waits for
        time.sleep(min(2, max(0.05, 2 * (time.monotonic() - asked))))
        asked = time.monotonic()
    return answer
