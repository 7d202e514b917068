"""A channel and its sink: one that fails, hangs, raises or refuses, and what becomes of its records."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from properties import examples

from condor_joblens.export import backlog, delivery, isolation, spooler
from condor_joblens.export.channel import Channel
from condor_joblens.export.cursor import RunIndex
from condor_joblens.export.shared_spool import SharedSpool
from condor_joblens.export.spool import Frame, Spool, SpoolLimits
from condor_joblens.model.metrics import empty_rows
from condor_joblens.sinks import DELIVERED, DeliveryResult, Record, RecordKind, Sink, SinkContext, not_now
from condor_joblens.sinks.registry import SinkConfig

LIMITS = SpoolLimits(1 << 30, 1e9, "never")


class FakeSink(Sink):
    """Does with a batch what the test says."""

    name = "fake"
    batch_records = 50
    behave: Callable[[Sequence[Record]], DeliveryResult]

    def __init__(self, settings: object, context: SinkContext) -> None:
        super().__init__({}, context)
        self.got: list[Record] = []
        self.calls = 0
        self.behave = self.take

    def take(self, batch: Sequence[Record]) -> DeliveryResult:
        self.got += batch
        return DELIVERED

    def deliver(self, batch: Sequence[Record]) -> DeliveryResult:
        self.calls += 1
        return self.behave(batch)

    def ids(self) -> list[str]:
        return [record.id for record in self.got if "Loss" not in str(record.json)]


JOBS = 3


def events(first: int, count: int, size: int = 0, jobs: int = JOBS) -> list[Record]:
    """Events of so many jobs in turn."""
    line = b'{"Type":"event","Id":"%d","Node":"node","Time":1.0,"Text":"%s"}'
    return [
        Record(
            RecordKind.EVENT, str(number), f"job {number % jobs}", 1.0, line % (number, os.urandom(size).hex().encode())
        )
        for number in range(first, first + count)
    ]


class Bench:
    """Channels of one folder, and a ring's numbers."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.said: list[str] = []
        self.offered = 0
        self.channels: list[Channel] = []

    def channel(self, limits: SpoolLimits = LIMITS, run_index: RunIndex | None = None, **settings: object) -> Channel:
        context = SinkContext(self.said.append, lambda: (empty_rows(0), 0.0), tuple, "node")
        config = SinkConfig("fake", FakeSink, settings)
        channel = Channel(config, context, run_index or RunIndex(), self.folder, limits)
        self.channels.append(channel)
        return channel

    def offer(self, channel: Channel, count: int, size: int = 0, jobs: int = JOBS) -> None:
        """Further events, as the ring numbers them."""
        first = self.offered + 1
        self.offered += count
        channel.events(events(first, count, size, jobs), range(first, first + count), (77, self.offered))

    def expected(self) -> list[str]:
        return [str(number) for number in range(1, self.offered + 1)]


class SlowDisk:
    """Takes nothing before `takes` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_asked, self.takes = threading.Event(), threading.Event()
        really = Spool.append

        def append(spool: Spool, records: Sequence[Record]) -> Frame:
            self.is_asked.set()
            self.takes.wait(60)
            return really(spool, records)

        monkeypatch.setattr(Spool, "append", append)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "LONGEST_PAUSE", 0.05)
    monkeypatch.setattr(spooler, "SLOW_SECONDS", 0.1)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    for channel in bench.channels:
        channel.stop(0)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


def sink_of(channel: Channel) -> FakeSink:
    assert isinstance(channel.sink, FakeSink)
    return channel.sink


def spooled(bench: Bench) -> list[Path]:
    return list(Path(bench.folder).glob("fake/*.spool"))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink is not slow because the machine stands still for a moment."""
    monkeypatch.setattr(spooler, "SLOW_SECONDS", 60.0)


@pytest.mark.usefixtures("patient")
def test_a_healthy_sink_gets_everything_and_nothing_is_written(bench: Bench) -> None:
    channel = bench.channel()
    channel.start()
    for _ in range(30):
        bench.offer(channel, 17)
        time.sleep(0.02)
    until(lambda: channel.cursor.event == (77, 510))
    assert sink_of(channel).ids() == bench.expected()
    assert spooled(bench) == [] and channel.health()["Delivered"] == 510 and channel.health()["SpooledRecords"] == 0


def test_what_a_failing_sink_does_not_take_is_on_the_disk_and_comes_when_it_works_again(bench: Bench) -> None:
    channel = bench.channel()
    sink = sink_of(channel)
    sink.behave = lambda batch: not_now(batch, "the backend is gone")
    channel.start()
    for _ in range(10):
        bench.offer(channel, 60)
        time.sleep(0.05)
    until(lambda: channel.health()["SpooledRecords"] == 600)
    assert channel.cursor.event == (77, 600), "what is on the disk need not be read from the ring again"
    bench.offer(channel, 5)
    sink.behave = sink.take
    until(lambda: len(sink.got) == 605)
    assert sink.ids() == bench.expected()
    until(lambda: not spooled(bench))
    assert any("does not work for now: the backend is gone" in line for line in bench.said)
    assert any("works again" in line for line in bench.said)
    assert sum("does not work" in line for line in bench.said) == 1


def test_a_sink_that_hangs_does_not_hold_up_who_offers_and_loses_nothing(bench: Bench) -> None:
    channel = bench.channel()
    sink = sink_of(channel)
    free = threading.Event()

    def hang(batch: Sequence[Record]) -> DeliveryResult:
        free.wait(60)
        return sink.take(batch)

    sink.behave = hang
    channel.start()
    began = time.monotonic()
    for _ in range(20):
        bench.offer(channel, 100)
    assert time.monotonic() - began < 30
    until(lambda: channel.health()["SpooledRecords"] == 2000)
    free.set()
    until(lambda: len(sink.got) == 2000)
    assert sink.ids() == bench.expected()
    until(lambda: channel.health()["SpooledRecords"] == 0)


def test_at_an_orderly_end_a_hanging_sinks_records_are_in_the_spool(bench: Bench) -> None:
    channel = bench.channel()
    sink = sink_of(channel)
    hangs, free = threading.Event(), threading.Event()

    def hang(batch: Sequence[Record]) -> DeliveryResult:
        hangs.set()
        free.wait(60)
        return DELIVERED

    sink.behave = hang
    channel.start()
    bench.offer(channel, 120)
    assert hangs.wait(30)
    channel.stop(0.1)
    again = bench.channel()
    again.start()
    until(lambda: len(sink_of(again).got) == 120)
    assert sink_of(again).ids() == bench.expected()
    free.set()


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    return SlowDisk(monkeypatch)


def test_at_the_end_nothing_is_put_into_the_spool_twice(bench: Bench, slow_disk: SlowDisk) -> None:
    channel = bench.channel()
    answer = threading.Event()
    sink_of(channel).behave = lambda batch: not_now(batch, "no") if answer.wait(60) else DELIVERED
    bench.offer(channel, 20)
    channel.start()
    until(slow_disk.is_asked.is_set)  # by the spooler, which is left behind in it
    ending = threading.Thread(target=channel.stop, args=(0,))
    ending.start()
    ending.join(3.0)
    slow_disk.takes.set()
    ending.join()
    answer.set()
    again = bench.channel()
    assert again.health()["SpooledRecords"] == 20
    again.start()
    until(lambda: len(sink_of(again).got) == 20)


def test_what_is_confirmed_while_it_is_moved_to_the_disk_is_not_delivered_again(
    bench: Bench, slow_disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = bench.channel()
    sink, answer, really = sink_of(channel), threading.Event(), SharedSpool.delivered

    def slowly(spool: SharedSpool, frame: Frame) -> None:
        time.sleep(0.3)
        really(spool, frame)

    monkeypatch.setattr(SharedSpool, "delivered", slowly)
    sink.behave = lambda batch: sink.take(batch) if answer.wait(60) else DELIVERED
    bench.offer(channel, 20)
    channel.start()
    until(slow_disk.is_asked.is_set)
    answer.set()
    until(lambda: channel.health()["Delivered"] == 20)
    slow_disk.takes.set()
    until(lambda: channel.health()["SpooledRecords"] == 0 and not spooled(bench))
    bench.offer(channel, 1)
    until(lambda: channel.health()["QueuedRecords"] == 0 and len(sink.got) > 20)
    assert sink.ids() == bench.expected()


@pytest.mark.usefixtures("patient")
def test_at_an_orderly_end_what_waits_is_delivered_within_its_time(bench: Bench) -> None:
    channel = bench.channel()
    sink = sink_of(channel)

    def slowly(batch: Sequence[Record]) -> DeliveryResult:
        time.sleep(0.05)
        return sink.take(batch)

    sink.behave = slowly
    channel.start()
    bench.offer(channel, 300)
    channel.stop(20)
    assert sink.ids() == bench.expected() and spooled(bench) == []


def test_refused_records_are_counted_and_hold_up_nobody(bench: Bench) -> None:
    channel = bench.channel()
    sink = sink_of(channel)

    def refuse_odd(batch: Sequence[Record]) -> DeliveryResult:
        odd = {place: "odd numbers are forbidden" for place, record in enumerate(batch) if int(record.id) % 2}
        sink.got += [record for place, record in enumerate(batch) if place not in odd]
        return DeliveryResult(refused=odd)

    sink.behave = refuse_odd
    channel.start()
    bench.offer(channel, 200)
    until(lambda: channel.health()["QueuedRecords"] == 0)
    health = channel.health()
    assert (health["Delivered"], health["Refused"], health["Retried"]) == (100, 100, 0)
    assert any("odd numbers are forbidden" in line for line in bench.said)


def test_part_of_a_batch_is_handed_in_again_before_what_comes_behind(bench: Bench) -> None:
    channel = bench.channel()
    sink = sink_of(channel)

    def half(batch: Sequence[Record]) -> DeliveryResult:
        taken = max(1, len(batch) // 2)
        sink.got += batch[:taken]
        return DeliveryResult(range(taken, len(batch)), reason="too many at a time")

    sink.behave = half
    channel.start()
    bench.offer(channel, 130)
    until(lambda: len(sink.got) == 130)
    assert sink.ids() == bench.expected()


def test_a_record_that_makes_the_sink_raise_is_found_and_left_out(bench: Bench) -> None:
    channel = bench.channel()
    sink = sink_of(channel)

    def raises_at_77(batch: Sequence[Record]) -> DeliveryResult:
        if any(record.id == "77" for record in batch):
            raise ValueError("what is this?")
        return sink.take(batch)

    sink.behave = raises_at_77
    channel.start()
    bench.offer(channel, 200)
    until(lambda: channel.health()["QueuedRecords"] == 0)
    assert sink.ids() == [name for name in bench.expected() if name != "77"]
    assert channel.health()["Refused"] == 1
    assert any("can't take the record 77" in line for line in bench.said)


def test_a_backend_that_comes_back_while_a_record_is_suspected_gets_that_too(bench: Bench) -> None:
    channel = bench.channel()
    sink = sink_of(channel)

    def raises_until_the_second_is_tried(batch: Sequence[Record]) -> DeliveryResult:
        if not sink.got and batch[0].id == "1":
            raise ConnectionError("nobody there")
        return sink.take(batch)

    sink.behave = raises_until_the_second_is_tried
    bench.offer(channel, 2)
    channel.start()
    until(lambda: channel.health()["QueuedRecords"] == 0 and channel.health()["SpooledRecords"] == 0)
    assert sink.ids() == ["2", "1"] and channel.health()["Refused"] == 0


def test_a_suspected_record_is_not_overtaken_by_its_own_job(bench: Bench) -> None:
    channel = bench.channel()
    sink = sink_of(channel)

    def raises_for_a_while(batch: Sequence[Record]) -> DeliveryResult:
        if sink.calls < isolation.RAISES_ALONE:
            raise ConnectionError("nobody there")
        return sink.take(batch)

    sink.behave = raises_for_a_while
    bench.offer(channel, 2, jobs=1)
    channel.start()
    until(lambda: len(sink.got) == 2)
    assert sink.ids() == bench.expected() and channel.health()["Refused"] == 0


def test_a_job_alone_can_have_a_record_that_is_left_out(bench: Bench) -> None:
    channel = bench.channel()
    sink = sink_of(channel)

    def raises_at_2(batch: Sequence[Record]) -> DeliveryResult:
        if any(record.id == "2" for record in batch):
            raise ValueError("what is this?")
        return sink.take(batch)

    sink.behave = raises_at_2
    bench.offer(channel, 3, jobs=1)
    channel.start()
    until(lambda: channel.health()["QueuedRecords"] == 0 and channel.health()["SpooledRecords"] == 0)
    assert sink.ids() == ["1", "3"] and channel.health()["Refused"] == 1


def test_a_sink_that_raises_at_everything_loses_nothing(bench: Bench) -> None:
    channel = bench.channel()
    sink = sink_of(channel)

    def raises(batch: Sequence[Record]) -> DeliveryResult:
        raise ConnectionError("nobody there")

    sink.behave = raises
    channel.start()
    bench.offer(channel, 200)
    until(lambda: sink.calls > 25)
    sink.behave = sink.take
    until(lambda: channel.health()["QueuedRecords"] == 0 and channel.health()["SpooledRecords"] == 0)
    assert sink.ids() == bench.expected() and channel.health()["Refused"] == 0


def test_a_record_is_not_to_blame_for_what_others_before_it_made_of_the_sink(bench: Bench) -> None:
    channel = bench.channel()
    sink = sink_of(channel)

    def raises_at_first(batch: Sequence[Record]) -> DeliveryResult:
        if sink.calls % 2:
            raise ConnectionError("nobody there")
        return sink.take(batch)

    sink.behave = raises_at_first
    channel.start()
    for number in range(1, 26):
        bench.offer(channel, 1)
        until(lambda: channel.health()["QueuedRecords"] == 0)
        assert (len(sink.got), channel.health()["Refused"]) == (number, 0)


NONSENSE = {
    "nothing": None,
    "retry": DeliveryResult(None),  # type: ignore[arg-type]
    "refused": DeliveryResult(refused=[2]),  # type: ignore[arg-type]
    "after": DeliveryResult([0], after="soon"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_for_an_answer_is_a_failure(bench: Bench, answer: DeliveryResult) -> None:
    channel = bench.channel()
    sink = sink_of(channel)
    sink.behave = lambda batch: answer
    channel.start()
    bench.offer(channel, 3)
    until(lambda: any("the sink fake does not work for now" in line for line in bench.said))
    sink.behave = sink.take
    until(lambda: len(sink.got) == 3)


def test_a_sink_refuses_only_what_it_was_handed(bench: Bench) -> None:
    channel = bench.channel()
    sink_of(channel).behave = lambda batch: DeliveryResult(refused={0: ValueError("no"), 9: "no"})  # type: ignore[dict-item]
    channel.start()
    bench.offer(channel, 3)
    until(lambda: channel.health()["QueuedRecords"] == 0)
    health = channel.health()
    assert (health["Delivered"], health["Refused"]) == (2, 1)


def test_overflow_drops_the_oldest_and_the_sink_is_told_how_many(bench: Bench) -> None:
    channel = bench.channel(SpoolLimits(1 << 17, 1e9, "never"))
    sink = sink_of(channel)
    sink.behave = lambda batch: not_now(batch, "gone")
    channel.start()
    for _ in range(60):
        bench.offer(channel, 100, 100)
    until(lambda: channel.health()["Dropped"].get("overflow", 0) > 0)
    sink.behave = sink.take
    until(lambda: channel.health()["SpooledRecords"] == channel.health()["QueuedRecords"] == 0)
    bench.offer(channel, 1)
    until(lambda: sink.got[-1].id == str(bench.offered))
    told = [record.fields() for record in sink.got if record.fields().get("Kind") == "Loss"]
    lost = sum(loss["Count"] for loss in told)
    assert {loss["Cause"] for loss in told} == {"overflow"} and lost == channel.health()["Dropped"]["overflow"]
    got = sink.ids()
    assert len(set(got)) + lost >= bench.offered, "what is missing is declared"
    assert got == sorted(got, key=int)


def test_a_loss_is_told_by_the_next_process_where_this_one_could_not(bench: Bench) -> None:
    channel = bench.channel()
    sink_of(channel).behave = lambda batch: not_now(batch, "gone")
    channel.start()
    bench.offer(channel, 1)
    channel.missed_events(77, 2, 12)
    channel.events([], [], (77, 11))
    bench.offered = 11
    channel.stop(0)
    again = bench.channel()
    again.start()
    bench.offer(again, 1)
    until(lambda: len(again.sink.got) == 3)  # type: ignore[attr-defined]
    told = [record.fields() for record in sink_of(again).got if record.fields().get("Kind") == "Loss"]
    assert [(loss["Cause"], loss["Count"], loss["Sink"]) for loss in told] == [("overrun", 10, "fake")]
    assert again.cursor.undeclared() == {}


def test_the_next_process_passes_over_what_is_dealt_with(bench: Bench) -> None:
    channel = bench.channel()
    channel.start()
    bench.offer(channel, 10)
    until(lambda: channel.cursor.event == (77, 10))
    # killed: nothing is closed
    again = bench.channel()
    again.start()
    again.events(events(6, 10), range(6, 16), (77, 15))
    until(lambda: len(sink_of(again).got) == 5)
    assert sink_of(again).ids() == ["11", "12", "13", "14", "15"]
    # another numbering: a machine that was started anew
    again.events(events(1, 3), range(1, 4), (78, 3))
    until(lambda: again.cursor.event == (78, 3))


def samples(run_index: RunIndex, sequences: dict[int, int], kind: RecordKind = RecordKind.SAMPLE) -> tuple[object, ...]:
    found = [
        Record(kind, f"{run}/{sequence}", "node", 10.0 * sequence, b'{"Type":"%s","Id":"%d/%d","Node":"n","Time":1}' % (
            kind.value.encode(), run, sequence))
        for run, sequence in sequences.items()
    ]  # fmt: skip
    return kind, found, run_index.places(list(sequences)), np.array(list(sequences.values()), "u8")


def test_samples_that_nobody_saw_are_counted_run_by_run(bench: Bench) -> None:
    run_index = RunIndex()
    channel = bench.channel(run_index=run_index)
    channel.start()
    channel.samples(*samples(run_index, {1: 100, 2: 5}))  # type: ignore[arg-type]
    channel.caught_up()
    assert channel.health()["Dropped"] == {}, "a sink that has just come has missed nothing"
    channel.samples(*samples(run_index, {1: 101, 2: 9, 3: 1}))  # type: ignore[arg-type]
    assert channel.health()["Dropped"] == {"unseen": 3}
    channel.samples(*samples(run_index, {1: 101, 2: 9, 3: 1}))  # type: ignore[arg-type]
    channel.samples(*samples(run_index, {4: 3}))  # type: ignore[arg-type]
    assert channel.health()["Dropped"] == {"unseen": 5}
    channel.samples(*samples(run_index, {1: 104}, RecordKind.JOB))  # type: ignore[arg-type]
    assert channel.health()["Dropped"] == {"unseen": 7}
    until(lambda: len(sink_of(channel).ids()) == 7)
    channel.stop(5)
    # the next process: it knows these runs
    run_index = RunIndex()
    again = bench.channel(run_index=run_index)
    again.start()
    again.samples(*samples(run_index, {2: 9, 3: 5, 4: 3}))  # type: ignore[arg-type]
    again.samples(*samples(run_index, {1: 104}, RecordKind.JOB))  # type: ignore[arg-type]
    until(lambda: sink_of(again).ids() == ["3/5"])
    assert again.health()["Dropped"] == {"unseen": 3}


def young(run_index: RunIndex, sequence: int, lived: int, kind: RecordKind = RecordKind.SAMPLE) -> tuple[object, ...]:
    """The record of run 1, which is so many seconds old."""
    row = empty_rows(1)
    row["start_time"], row["period_seconds"], row["run_number"] = 1_700_000_000, 1.0, 1
    record = Record(kind, f"1/{sequence}", "node", 1_700_000_000.0 + lived, b'{"Node":"n"}', row=row[0])
    return kind, [record], run_index.places([1]), np.array([sequence], "u8")


@pytest.mark.parametrize(
    ("seen", "then", "lost"),
    [
        ([], (5, 4, RecordKind.JOB), 0),  # a job of some seconds, of which only the last record was seen
        ([], (4, 3, RecordKind.SAMPLE), 0),
        ([], (4, 60, RecordKind.SAMPLE), 3),  # it ran for a minute, and nobody looked
        ([(1, 1)], (4, 3, RecordKind.JOB), 0),
        ([(1, 1)], (4, 3, RecordKind.SAMPLE), 2),  # in the middle of a run each sample counts
        ([(60, 60)], (63, 62, RecordKind.JOB), 0),  # those of the first exit, and of the cgroup's end
        ([(60, 60)], (75, 74, RecordKind.JOB), 14),
    ],
)
def test_samples_superseded_when_a_run_begins_or_ends_are_no_loss(
    bench: Bench, seen: list[tuple[int, int]], then: tuple[int, int, RecordKind], lost: int
) -> None:
    run_index = RunIndex()
    channel = bench.channel(run_index=run_index)
    channel.start()
    channel.caught_up()
    for sequence, lived in seen:
        channel.samples(*young(run_index, sequence, lived))  # type: ignore[arg-type]
    before = channel.health()["Dropped"].get("unseen", 0)
    channel.samples(*young(run_index, *then))  # type: ignore[arg-type]
    assert channel.health()["Dropped"].get("unseen", 0) - before == lost


def test_a_sink_with_a_period_gets_a_sample_a_period_and_no_loss_for_those_between(bench: Bench) -> None:
    run_index, now = RunIndex(), 1000.0
    channel = bench.channel(run_index=run_index, period=10.0)
    channel._clock = lambda: now
    channel.start()
    channel.caught_up()
    for sequence in range(1, 36):
        channel.samples(*samples(run_index, {1: sequence} if sequence < 4 else {1: sequence, 2: sequence - 3}))  # type: ignore[arg-type]
        now += 1
    channel.samples(*samples(run_index, {1: 36}, RecordKind.JOB))  # type: ignore[arg-type]
    until(lambda: len(sink_of(channel).ids()) == 9)
    assert channel.health()["Dropped"] == {}, "what a sink does not want is no loss"
    assert sorted(sink_of(channel).ids()) == sorted(
        ["1/1", "1/11", "1/21", "1/31", "2/1", "2/11", "2/21", "2/31", "1/36"]
    )
    # and a process that comes later has not missed what was passed over
    channel.stop(5)
    run_index = RunIndex()
    again = bench.channel(run_index=run_index, period=10.0)
    again.start()
    again.samples(*samples(run_index, {2: 33}))  # type: ignore[arg-type]
    until(lambda: sink_of(again).ids() == ["2/33"])
    assert again.health()["Dropped"] == {}


def test_a_record_goes_to_the_sinks_that_it_names(bench: Bench) -> None:
    channel = bench.channel()
    channel.start()
    mine = Record(RecordKind.HEALTH, "mine", "n", 1.0, b"{}", frozenset({"fake", "other"}))
    channel.events(
        [Record(RecordKind.EVENT, "theirs", "n", 1.0, b"{}", frozenset({"other"})), mine], [1, 2], (77, 2)
    )  # fmt: skip
    until(lambda: channel.cursor.event == (77, 2))
    assert sink_of(channel).ids() == ["mine"]


def test_without_a_folder_it_works_from_memory_and_says_so(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "fake").write_text("in the way")
    channel = bench.channel()
    channel.start()
    bench.offer(channel, 10)
    until(lambda: len(sink_of(channel).got) == 10)
    assert any("has no spool" in line and "JOBLENS_SPOOL_DIR" in line for line in bench.said)


def test_memory_is_bounded_where_there_is_no_disk(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "QUEUE_BYTES", 10_000)
    (tmp_path / "fake").write_text("in the way")
    channel = bench.channel()
    sink = sink_of(channel)
    sink.behave = lambda batch: not_now(batch, "gone")
    channel.start()
    for _ in range(100):
        bench.offer(channel, 50)
    health = channel.health()
    assert health["QueuedBytes"] <= 10_000 + 50 * 60
    # a batch that was begun after the first drop has one record more: the one that tells of it
    assert health["QueuedRecords"] + health["Dropped"]["overflow"] - 5000 in (0, 1)


@pytest.mark.slow
@settings(max_examples=examples(25))
@example(script=["raise"] * 4, batches=[2], jobs=1)  # the second record overtook the first
@example(script=["raise"] * 4, batches=[2], jobs=2)
@given(
    script=st.lists(st.sampled_from(["take", "fail", "half", "raise"]), max_size=25),
    batches=st.lists(st.integers(1, 90), max_size=12),
    jobs=st.integers(1, 4),
)
def test_whatever_the_sink_does_each_record_is_delivered_in_order_or_refused(
    tmp_path_factory: pytest.TempPathFactory, script: list[str], batches: list[int], jobs: int
) -> None:
    bench = Bench(tmp_path_factory.mktemp("channel"))
    channel = bench.channel()
    sink = sink_of(channel)
    steps = iter(script)

    def behave(batch: Sequence[Record]) -> DeliveryResult:
        step = next(steps, "take")
        if step == "fail":
            return not_now(batch, "fail")
        if step == "raise":
            raise OSError("raise")
        taken = len(batch) if step == "take" else len(batch) // 2
        sink.got += batch[:taken]
        return DeliveryResult(range(taken, len(batch)), reason="half")

    sink.behave = behave
    channel.start()
    for count in batches:
        bench.offer(channel, count, jobs=jobs)
    until(lambda: len(sink.got) + channel.health()["Refused"] >= bench.offered)
    for job in range(jobs):
        got = [int(record.id) for record in sink.got if record.key == f"job {job}"]
        assert got == sorted(set(got)), "a job's records are delivered once and in order"
    # three exceptions at a record alone, and one more after another job's record went through
    assert channel.health()["Refused"] <= script.count("raise") // (isolation.RAISES + 1)
    assert len(sink.got) == channel.health()["Delivered"]
    channel.stop(1)


@pytest.mark.parametrize("behaviour", ["good", "hangs"])
def test_a_channel_leaves_no_thread_behind_but_the_one_that_hangs(bench: Bench, behaviour: str) -> None:
    before = threading.active_count()
    channel = bench.channel()
    free = threading.Event()
    if behaviour == "hangs":
        sink_of(channel).behave = lambda batch: (free.wait(60), DELIVERED)[1]
    channel.start()
    bench.offer(channel, 5)
    time.sleep(0.1)
    channel.stop(0.2)
    free.set()
    until(lambda: threading.active_count() <= before)
