"""Clocks: what waits does so by the one that nobody sets, and what is written by the other can bear its jumps."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from test_sinks_files import START, prmon_sink, samples

from condor_joblens.export.records import RowEncoder
from condor_joblens.export.stop_event import StopEvent
from condor_joblens.model.metrics import empty_rows
from condor_joblens.sinks import Record, RecordKind
from condor_joblens.sinks.prmon import read_series


def test_an_ending_wakes_who_waits_and_whoever_will() -> None:
    stop_event = StopEvent()
    assert not stop_event.is_set() and not stop_event.wait(0.01)
    woken = threading.Event()
    thread = threading.Thread(target=lambda: (stop_event.wait(1000), woken.set()))
    thread.start()
    stop_event.set()
    thread.join(60)
    assert woken.is_set() and stop_event.is_set() and stop_event.wait(1000) and stop_event.wait(-1)


def test_an_ending_is_waited_for_as_long_as_was_said() -> None:
    stop_event, began = StopEvent(), time.monotonic()
    while time.monotonic() < began + 0.3:
        assert not stop_event.wait(began + 0.3 - time.monotonic())
    assert not stop_event.is_set()


def sample(sequence: int, seconds: int, kind: RecordKind = RecordKind.SAMPLE) -> list[Record]:
    """A run's record by a clock that says START + seconds."""
    rows = empty_rows(1)
    rows["run"], rows["run_number"], rows["start_time"] = b"schedd#10.0#1#1", 1, START
    rows["sequence"], rows["update_time"] = sequence, START + seconds
    return RowEncoder("node1").records(rows, kind)


def test_prmons_series_goes_on_where_the_clock_goes_back(tmp_path: Path) -> None:
    sink = prmon_sink(tmp_path)
    hour = 3600
    shifts = [(1, 4000), (2, 4030), (3, 4060 - hour), (4, 4070 - hour), (5, 4090 - hour), (6, 4120), (7, 4150)]
    for sequence, seconds in shifts:
        sink.deliver(sample(sequence, seconds))
        sink.deliver(sample(sequence, seconds))
    sink.deliver(sample(8, 4160 - hour, RecordKind.JOB))
    [series] = tmp_path.glob("*.txt")
    times = [point["Time"] - START for point in read_series(str(series))]
    assert times == [4000, 4030, 460, 490, 4120, 4150, 560]


def test_prmons_series_has_no_line_twice_after_a_new_start(tmp_path: Path) -> None:
    for _ in range(2):
        sink = prmon_sink(tmp_path)
        for number in range(5):
            sink.deliver(samples(number * 30))
    [series] = tmp_path.glob("*.txt")
    assert [point["wtime"] for point in read_series(str(series))] == [0, 30, 60, 90, 120]
