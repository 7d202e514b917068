"""Profiles on their way to the sinks: users by turns, what is lost is declared, and nobody else's records wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from profile_samples import hostile, profile, random_profile

from condor_joblens.common.errors import JobLensError
from condor_joblens.export import profile_queue, sink_input
from condor_joblens.export.channel import Channel
from condor_joblens.export.cursor import RunIndex
from condor_joblens.export.profile_maker import MadeRecord, ProfileGone, ProfileMaker
from condor_joblens.export.profile_queue import Announced, Made, ProfileQueue
from condor_joblens.export.shared_memory_reader import SharedMemoryReader
from condor_joblens.export.spool import SpoolLimits
from condor_joblens.model.events import EVENT, EventKind
from condor_joblens.model.metrics import empty_rows
from condor_joblens.profiles import pprof
from condor_joblens.profiles.profile import Profile
from condor_joblens.shm.artifact_header import Artifact
from condor_joblens.shm.artifacts import ArtifactLimits, ArtifactWriter
from condor_joblens.shm.ring import EventWriter
from condor_joblens.sinks import DELIVERED, DeliveryResult, Record, RecordKind, Sink, SinkContext, not_now
from condor_joblens.sinks.registry import SHIPPED, SinkConfig, load
from condor_joblens.sinks.schema import schemas

LIMITS = ArtifactLimits(4 << 20, 1 << 30, 1e9)
SPOOL = SpoolLimits(1 << 30, 1e9, "never")


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@pytest.fixture
def store(tmp_path: Path) -> ArtifactWriter:
    return ArtifactWriter(str(tmp_path / "artifacts"), LIMITS)


def keep(
    store: ArtifactWriter, owner: str = "alice", made: Profile | bytes | None = None, kind: str = "profile"
) -> Artifact:
    run = f"ap#12.0#17#{owner}"
    about = Artifact(kind, pprof.CONTENT_TYPE, 7, 1.7e9, 1.7e9 + 60, run=run, owner=owner, slot="slot1_1", node="n")
    return store.add(about, [made if isinstance(made, bytes) else pprof.encode(made or profile())])


# --- the queue


@pytest.fixture
def queue(store: ArtifactWriter) -> Iterator[ProfileQueue]:
    made = ProfileQueue(store.folder, "n", lambda _: None, rest=0.0)
    yield made
    made.stop()


def all_made(queue: ProfileQueue, count: int) -> list[Made]:
    found: list[Made] = []
    until(lambda: found.extend(queue.taken()) or len(found) >= count, f"{count} profiles, not {found}")
    return found


def test_a_profile_becomes_a_record_of_its_schema(store: ArtifactWriter, queue: ProfileQueue) -> None:
    kept = keep(store)
    queue.announce([Announced(1, 5, kept.name)])
    [made] = all_made(queue, 1)
    assert made.owner == "alice" and made.record is not None
    fields = made.record.fields()
    jsonschema.Draft202012Validator(schemas()[RecordKind.PROFILE]).validate(fields)
    assert fields["Id"] == made.record.id == f"n/{kept.name}" and fields["Total"] == 10
    assert made.record.key == "ap#12.0#17" and made.record.sinks == frozenset()
    assert queue.position(1, 5) == (1, 5, 0)


@pytest.mark.parametrize("wrong", [b"", b"nonsense", b"\x1f\x8b" + bytes(100)])
def test_what_can_not_be_read_is_lost_and_the_next_is_read(
    store: ArtifactWriter, queue: ProfileQueue, wrong: bytes
) -> None:
    names = [keep(store, made=wrong).name, "77.profile", keep(store).name]
    queue.announce([Announced(1, number, name) for number, name in enumerate(names, 1)])
    found = {made.announced.name: made.record is not None for made in all_made(queue, 3)}
    assert found == dict(zip(names, (False, False, True)))


def test_the_largest_profiles_are_read_within_the_memory_that_there_is(
    store: ArtifactWriter, queue: ProfileQueue
) -> None:
    names = [keep(store, made=made).name for made in (hostile(), random_profile(1, 20_000), profile())]
    queue.announce([Announced(1, number, name) for number, name in enumerate(names, 1)])
    assert [made.record is not None for made in all_made(queue, 3)] == [True] * 3


class SlowMaker:
    """In place of the process: waits until it may, and says in which order it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.goes = threading.Event()
        monkeypatch.setattr(ProfileMaker, "make", lambda _, name, sinks: self.make(name, sinks))

    def make(self, name: str, sinks: frozenset[str]) -> MadeRecord:
        self.asked.append(name)
        assert self.goes.wait(120)
        return MadeRecord(Record(RecordKind.PROFILE, name, "k", 1.0, b"{}", sinks), 0.0)


def test_users_come_by_turns(store: ArtifactWriter, queue: ProfileQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = SlowMaker(monkeypatch)
    first = keep(store).name
    queue.announce([Announced(1, 1, first)])
    until(lambda: maker.asked == [first], "the first to be asked for")
    names = [keep(store, owner).name for owner in ("alice", "alice", "alice", "bob", "carol", "bob")]
    queue.announce([Announced(1, number, name) for number, name in enumerate(names, 2)])
    maker.goes.set()
    all_made(queue, 7)
    assert maker.asked == [first, *(names[place] for place in (0, 3, 4, 1, 5, 2))]


def test_of_one_user_so_many_wait_and_no_others_are_lost(
    store: ArtifactWriter, queue: ProfileQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_queue, "MOST_OF_ONE_USER", 2)
    maker = SlowMaker(monkeypatch)
    first = keep(store).name
    queue.announce([Announced(1, 1, first)])
    until(lambda: maker.asked == [first], "the first to be asked for")
    names = [keep(store, owner).name for owner in ("alice", "bob", "alice", "alice")]
    queue.announce([Announced(1, number, name) for number, name in enumerate(names, 2)])
    maker.goes.set()
    found = {made.announced.name: made.record is not None for made in all_made(queue, 5)}
    assert found == {first: True, **dict(zip(names, (False, True, True, True)))}


def test_what_was_announced_before_is_made_once(store: ArtifactWriter, queue: ProfileQueue) -> None:
    one, two = keep(store).name, keep(store).name
    queue.announce([Announced(1, 5, one)])
    queue.announce([Announced(1, 5, one), Announced(1, 9, two)])
    assert len(all_made(queue, 2)) == 2
    queue.announce([Announced(1, 9, two)])
    assert queue.position(1, 9) == (1, 9, 0)


def test_its_process_that_is_killed_costs_one_profile(store: ArtifactWriter) -> None:
    maker = ProfileMaker(store.folder, "n")
    try:
        assert maker.make(keep(store).name, frozenset({"file"})).record.sinks == {"file"}
        assert maker._process is not None
        maker._process.kill()
        maker._process.wait()
        with pytest.raises(JobLensError, match="its reader ended"):
            maker.make(keep(store).name, frozenset())
        assert maker.make(keep(store).name, frozenset()).seconds > 0
        with pytest.raises(ProfileGone):
            maker.make("1.profile", frozenset())
    finally:
        maker.close()


# --- channels


class Taker(Sink):
    """Takes profiles, and what else there is."""

    name = "taker"
    takes = frozenset(RecordKind)

    def __init__(self, settings: object, context: SinkContext) -> None:
        super().__init__({}, context)
        self.got: list[Record] = []
        self.works = True

    def deliver(self, batch: Sequence[Record]) -> DeliveryResult:
        if not self.works:
            return not_now(batch, "a test")
        self.got += batch
        return DELIVERED

    def of(self, kind: RecordKind) -> list[Record]:
        return [record for record in self.got if record.kind is kind]

    def losses(self) -> dict[str, int]:
        events = [record.fields() for record in self.of(RecordKind.EVENT)]
        return {event["Cause"]: event["Count"] for event in events if event.get("Kind") == "Loss"}


class Other(Taker):
    """As sinks are that say nothing of profiles."""

    name = "other"
    takes = Sink.takes


class Bench:
    """A ring, artifacts, and channels with their cursors on the disk."""

    def __init__(self, folder: Path, store: ArtifactWriter) -> None:
        self.folder, self.store = folder, store
        self.ring = EventWriter(str(folder / "events"), 0, -1)
        self.channels: list[Channel] = []
        self.reader = self.begin(Taker)

    def begin(self, *kinds: type[Sink]) -> SharedMemoryReader:
        """As a new process does."""
        context = SinkContext(lambda _: None, lambda: (empty_rows(0), 0.0), tuple, "n")
        index = RunIndex()
        self.channels = [
            Channel(SinkConfig(kind.name, kind, {}), context, index, str(self.folder / "spool"), SPOOL)
            for kind in kinds
        ]
        for channel in self.channels:
            channel.start()
        self.reader = SharedMemoryReader(str(self.folder), "n", lambda _: None, index)
        return self.reader

    def end(self) -> None:
        self.reader.stop()
        for channel in self.channels:
            channel.stop(0)

    def happen(self, kind: EventKind, words: str = "") -> None:
        event: np.ndarray = np.zeros(1, EVENT)
        event["time"], event["kind"], event["text"], event["run_number"] = 1.7e9, kind, words.encode(), 0
        self.ring.append(event)

    def sink(self, place: int = 0) -> Taker:
        sink = self.channels[place].sink
        assert isinstance(sink, Taker)
        return sink

    def until(self, condition: Callable[[], object], what: str) -> None:
        until(lambda: [self.reader.round(self.channels), condition()][1], what)


@pytest.fixture
def bench(tmp_path: Path, store: ArtifactWriter) -> Iterator[Bench]:
    bench = Bench(tmp_path, store)
    yield bench
    bench.end()


def test_a_sink_gets_profiles_only_if_it_asks_for_them(bench: Bench) -> None:
    bench.end()
    bench.begin(Taker, Other)
    for kind in ("profile", "crash", "off_cpu"):
        bench.happen(EventKind.ARTIFACT, keep(bench.store, kind=kind).name)
    bench.until(lambda: len(bench.sink().of(RecordKind.PROFILE)) == 2, "two profiles")
    bench.until(lambda: len(bench.sink(1).of(RecordKind.EVENT)) == 3, "three events")
    assert not bench.sink(1).of(RecordKind.PROFILE) and not bench.sink().losses()


def test_one_that_is_gone_is_declared(bench: Bench) -> None:
    name = keep(bench.store).name
    bench.store.delete(name)
    bench.happen(EventKind.ARTIFACT, name)
    bench.until(lambda: bench.sink().losses() == {"unseen": 1}, "a loss")


def test_what_waits_at_a_crash_is_made_by_the_next_process(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        maker = SlowMaker(patch)
        names = [keep(bench.store).name, keep(bench.store, "bob").name]
        for name in names:
            bench.happen(EventKind.ARTIFACT, name)
        bench.happen(EventKind.EXEC)
        bench.until(lambda: maker.asked, "the first profile to be asked for")
        bench.until(lambda: bench.channels[0].cursor.event[1] == 3, "events that are confirmed")
        assert bench.channels[0].cursor.profile[1:] == (0, 2)
        bench.end()  # its thread waits for the maker still
    bench.begin(Taker)
    bench.until(lambda: len(bench.sink().of(RecordKind.PROFILE)) == 2, "both profiles")
    assert {record.id for record in bench.sink().of(RecordKind.PROFILE)} == {f"n/{name}" for name in names}
    bench.until(lambda: bench.channels[0].cursor.profile[2] == 0, "that none waits")
    assert not bench.sink().losses() and len(bench.sink().of(RecordKind.EVENT)) == 0
    maker.goes.set()


def test_those_that_the_ring_has_forgotten_meanwhile_are_declared(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        maker = SlowMaker(patch)
        for _ in range(3):
            bench.happen(EventKind.ARTIFACT, keep(bench.store).name)
        bench.until(lambda: maker.asked, "the first profile to be asked for")
        bench.until(lambda: bench.channels[0].cursor.event[1] == 3, "events that are confirmed")
        bench.end()
    lost = 10
    for _ in range(bench.ring.capacity + lost):
        bench.happen(EventKind.EXEC)
    bench.begin(Taker)
    bench.until(lambda: bench.sink().losses(), "a loss")
    assert bench.sink().losses() == {"overrun": lost + 3}
    maker.goes.set()


def test_a_sink_that_is_behind_loses_profiles_and_nothing_else(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_input, "PROFILE_SHARE", 1 << 40)  # nothing may wait
    for _ in range(3):
        bench.happen(EventKind.ARTIFACT, keep(bench.store).name)

    def said(kind: str) -> list[dict[str, Any]]:
        events = [record.fields() for record in bench.sink().of(RecordKind.EVENT)]
        return [event for event in events if event["Kind"] == kind]

    bench.until(lambda: len(said("Artifact")) == 3, "three events")
    # one event may declare what was lost at several times
    bench.until(lambda: sum(event["Count"] for event in said("Loss")) == 3, "three losses")
    assert {event["Cause"] for event in said("Loss")} == {"overflow"}
    assert not bench.sink().of(RecordKind.PROFILE)


def test_one_user_has_a_share_of_what_profiles_may_wait(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = bench.channels[0]
    size = 1 << 20
    room = channel._backlog.most_bytes // sink_input.PROFILE_SHARE
    monkeypatch.setattr(type(channel._backlog), "waiting_bytes", room // 2)
    mine = room // sink_input.USER_SHARE // size
    assert [channel._has_room("alice", size) for _ in range(mine + 1)] == [True] * mine + [False]
    assert channel._has_room("bob", size)


def parsed(sink: type[Sink], given: dict[str, str]) -> dict[str, object]:
    """A sink's settings; without those that must be given."""
    words = {knob: given.get(knob.name, knob.default) for knob in sink.knobs}
    return {knob.name.lower(): knob.parse(word) for knob, word in words.items() if word is not None}


def test_of_the_shipped_sinks_none_takes_profiles_by_default() -> None:
    for name in SHIPPED:
        assert RecordKind.PROFILE not in load(name).wanted(parsed(load(name), {})), name


@pytest.mark.parametrize(
    ("name", "knob", "value"),
    [("file", "KINDS", "profile"), ("kafka", "TOPIC_PROFILES", "joblens.profiles"), ("opensearch", "PROFILES", "true")],
)
def test_a_knob_asks_for_them(name: str, knob: str, value: str) -> None:
    assert RecordKind.PROFILE in load(name).wanted(parsed(load(name), {knob: value}))
