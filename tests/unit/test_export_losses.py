"""What is told of losses is what was lost, however often and whenever the exporter is killed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from test_export_channel import Bench, events, samples, sink_of, until

from condor_joblens.export import delivery
from condor_joblens.export.channel import Channel
from condor_joblens.export.cursor import RunIndex
from condor_joblens.sinks import DELIVERED, DeliveryResult, Record, not_now


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(delivery, "LONGEST_PAUSE", 0.05)
    bench = Bench(tmp_path)
    yield bench
    for channel in bench.channels:
        channel.stop(0)


def known(bench: Bench) -> None:
    """A process that had sample 1 of run 1, and event 1."""
    run_index = RunIndex()
    channel = bench.channel(run_index=run_index)
    channel.start()
    channel.samples(*samples(run_index, {1: 1}))  # type: ignore[arg-type]
    channel.events(events(1, 1), [1], (77, 1))
    until(lambda: channel.cursor.event == (77, 1))
    channel.stop(1)


def told(found: Sequence[Record]) -> dict[str, int]:
    """The losses, each once."""
    losses = {record.id: record.fields() for record in found if record.fields().get("Kind") == "Loss"}
    return {loss["Cause"]: loss["Count"] for loss in losses.values()}


def come(bench: Bench, run_index: RunIndex, sample: int, event: int) -> Channel:
    """The next process finds that it missed all between, hands that in, and is not yet started."""
    channel = bench.channel(run_index=run_index)
    bench.channels.clear()
    channel.samples(*samples(run_index, {1: sample}))  # type: ignore[arg-type]
    channel.missed_events(77, 2, event)
    channel.events(events(event, 1), [event], (77, event))
    return channel


def start(bench: Bench, channel: Channel) -> None:
    bench.channels.append(channel)
    channel.start()


def test_what_was_missed_is_counted_once_by_processes_that_are_killed_before_they_deliver(bench: Bench) -> None:
    known(bench)
    for number in range(10, 60, 10):
        come(bench, RunIndex(), number, 10 * number)  # and is killed
    last = come(bench, RunIndex(), 60, 600)
    assert last.health()["Dropped"] == {"unseen": 58, "overrun": 598}
    start(bench, last)
    until(lambda: last.cursor.event == (77, 600))
    last.other(events(0, 1))
    until(lambda: told(sink_of(last).got) == {"unseen": 58, "overrun": 598})
    until(lambda: last.cursor.undeclared() == {})


def test_a_loss_that_was_told_by_a_process_that_is_killed_has_the_same_id_when_it_is_told_again(bench: Bench) -> None:
    known(bench)
    first = come(bench, RunIndex(), 10, 100)
    sink, got = sink_of(first), []

    def confirmed_but_nobody_heard(batch: Sequence[Record]) -> DeliveryResult:
        got.extend(batch)
        return not_now(batch, "timed out") if told(batch) else DELIVERED

    sink.behave = confirmed_but_nobody_heard
    start(bench, first)
    until(lambda: first.cursor.event == (77, 100))
    first.other(events(0, 1))
    until(lambda: bool(told(got)))
    again = bench.channel()
    more = [event for event in events(101, 5)]
    again.missed_events(77, 101, 111)
    again.events([], [], (77, 110))
    again.events(more, range(111, 116), (77, 115))
    again.start()
    until(lambda: again.cursor.event == (77, 115))
    again.other(events(0, 1))
    until(lambda: again.cursor.undeclared() == {})
    losses = {record.id: record.fields() for record in [*got, *sink_of(again).got] if "Loss" in str(record.json)}
    assert sorted((loss["Cause"], loss["Count"]) for loss in losses.values()) == [
        ("overrun", 10), ("overrun", 98), ("unseen", 8)
    ]  # fmt: skip


def test_a_loss_is_told_though_nothing_comes_after_it(bench: Bench) -> None:
    known(bench)
    channel = come(bench, RunIndex(), 10, 100)
    start(bench, channel)
    until(lambda: told(sink_of(channel).got) == {"unseen": 8, "overrun": 98})
    until(lambda: channel.cursor.undeclared() == {})
