"""The ring of events: numbers without a gap, losses known exactly, writers that change, readers that sleep."""

from __future__ import annotations

import multiprocessing
import os
import stat
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples

from condor_joblens.common.config import Config
from condor_joblens.common.errors import JobLensError
from condor_joblens.jobs.run_table import Ended
from condor_joblens.model.events import EVENT, EventKind
from condor_joblens.shm import layout
from condor_joblens.shm import ring as shm_events
from condor_joblens.shm.ring import LEAST, EventReader, EventWriter, Position
from condor_joblens.shm.writer import file_bytes

FACTOR = np.uint64(0x9E3779B97F4A7C15)


def events_of(first: int, count: int) -> np.ndarray:
    """Events of which every word can be told from the first value."""
    events: np.ndarray = np.zeros(count, EVENT)
    numbers = np.arange(first, first + count, dtype="u8")
    words = events.view("u8").reshape(count, EVENT.itemsize // 8)
    words[:, 1:] = (numbers * FACTOR)[:, None] + np.arange(1, words.shape[1], dtype="u8")
    events["kind"] = EventKind.EXEC
    events["run_number"] = numbers
    return events


def check(events: np.ndarray) -> None:
    """Each event is whole, and its number is the one of which it was made."""
    if len(events):
        expected = events_of(0, 1)
        assert (events["run_number"] == events["sequence"]).all()
        for event in events:
            expected = events_of(int(event["sequence"]), 1)
            expected["sequence"] = event["sequence"]
            assert expected[0].tobytes() == event.tobytes()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "events")


def new_writer(path: str, size: int = 0) -> EventWriter:
    return EventWriter(path, size, os.getgid())


def test_a_reader_gets_every_event_once_and_in_order(path: str) -> None:
    writer = new_writer(path)
    reader = EventReader(path)
    assert not len(reader.read())
    for first, count in ((1, 1), (2, 700), (702, 0), (702, 300)):
        writer.append(events_of(first, count))
    got = np.concatenate([reader.read(400), reader.read(400), reader.read(400)])
    assert got["sequence"].tolist() == list(range(1, 1002))
    check(got)
    assert (reader.missed, len(reader.read())) == (0, 0)


@settings(max_examples=examples(60))
@given(steps=st.lists(st.tuples(st.sampled_from(["write", "read"]), st.integers(0, 2 * LEAST)), max_size=12))
def test_what_was_missed_is_known_exactly(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    path = str(tmp_path_factory.mktemp("ring") / "events")
    writer, reader = new_writer(path), EventReader(path)
    written, got = 0, 0
    for what, count in steps:
        if what == "write":
            writer.append(events_of(written + 1, count))
            written += count
        else:
            events = reader.read(count)
            got += len(events)
            check(events[:50])
    while len(events := reader.read()):
        got += len(events)
    assert got + reader.missed == written == reader.position.sequence


def test_only_the_group_may_read_and_nobody_else(path: str) -> None:
    new_writer(path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640
    assert os.listdir(os.path.dirname(path)) == ["events"]


def test_the_ring_is_of_the_size_that_was_asked_for(path: str) -> None:
    writer = new_writer(path, 4 << 20)
    assert (4 << 20) - EVENT.itemsize < os.stat(path).st_size <= 4 << 20
    assert writer.capacity == EventReader(path)._file.capacity > 16000


def test_a_reader_goes_on_with_the_next_writer_and_loses_nothing(path: str) -> None:
    first = new_writer(path)
    reader, late = EventReader(path), EventReader(path)
    first.append(events_of(1, 10))
    assert len(reader.read(4)) == 4
    second = new_writer(path)
    second.append(events_of(11, 5))
    numbers = [*reader.read()["sequence"].tolist(), *reader.read()["sequence"].tolist()]
    assert numbers == list(range(5, 16)) and reader.missed == 0
    # who begins with the second, finds what the first had left
    fresh = EventReader(path, Position(late.identity, 3))
    got = fresh.read()
    assert got["sequence"].tolist() == list(range(4, 16)) and fresh.missed == 0
    check(got)


def test_what_a_killed_writer_had_finished_within_a_batch_is_taken_over(path: str) -> None:
    first = new_writer(path)
    first.append(events_of(1, LEAST + 10))
    head = np.frombuffer(first._memory, layout.HEADER, 1)["head"]
    head[0] -= 3  # killed before it told of the last three
    ring = np.frombuffer(first._memory, EVENT, LEAST, len(first._memory) - LEAST * EVENT.itemsize)
    ring["sequence"][(LEAST + 11) % LEAST] = 0  # and in the middle of the next one
    reader = EventReader(path)
    new_writer(path)
    got = np.concatenate([reader.read(), reader.read()])
    assert got["sequence"].tolist() == list(range(12, LEAST + 11)), "the one that was being overwritten is gone"


def test_a_writer_of_another_version_goes_on_counting(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    new_writer(path).append(events_of(1, 10))
    reader = EventReader(path)
    reader.read(4)
    monkeypatch.setattr(shm_events, "EVENT_HASH", 4711)
    new_writer(path).append(events_of(11, 1))
    monkeypatch.undo()
    assert len(reader.read()) == 6
    for _ in range(2):
        with pytest.raises(JobLensError, match="another version of JobLens than this one: install one version"):
            reader.read()
    since = reader.position
    new_writer(path).append(events_of(12, 1))
    again = EventReader(path, since)
    got = again.read()
    assert (got["sequence"].tolist(), again.missed) == ([12], 1)


def test_numbers_of_another_life_of_the_machine_are_not_gone_on_from(path: str) -> None:
    new_writer(path).append(events_of(1, 10))
    old = EventReader(path)
    old.read()
    os.unlink(path)
    new_writer(path).append(events_of(1, 3))
    reader = EventReader(path, old.position)
    assert reader.identity != old.identity
    assert reader.read()["sequence"].tolist() == [1, 2, 3]


def test_a_reader_that_sleeps_is_woken(path: str) -> None:
    writer = new_writer(path)
    reader = EventReader(path)
    seen = reader.wake_word()
    thread = threading.Thread(target=lambda: (time.sleep(0.2), writer.append(events_of(1, 1))))
    began = time.monotonic()
    thread.start()
    reader.wait(seen, 60)
    assert time.monotonic() - began < 30 and len(reader.read()) == 1
    thread.join()
    reader.wait(seen, 60)  # the word has changed: returns at once
    assert time.monotonic() - began < 30


def test_a_new_writer_wakes_those_who_sleep_at_the_old_file(path: str) -> None:
    new_writer(path)
    reader = EventReader(path)
    seen = reader.wake_word()
    thread = threading.Thread(target=lambda: (time.sleep(0.2), new_writer(path)))
    began = time.monotonic()
    thread.start()
    reader.wait(seen, 60)
    assert time.monotonic() - began < 30
    thread.join()


def test_a_file_that_others_may_write_is_refused(path: str) -> None:
    new_writer(path)
    os.chmod(path, 0o666)
    with pytest.raises(JobLensError, match="others may write it; remove it"):
        EventReader(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_somebody_elses_file_is_refused(path: str) -> None:
    new_writer(path)
    os.chown(path, 4711, 4711)
    with pytest.raises(JobLensError, match="user id 4711 owns it"):
        EventReader(path)


@settings(max_examples=examples(200))
@given(at=st.integers(0, layout.HEADER.itemsize - 1), value=st.integers(0, 255), cut=st.integers(0, 400_000))
def test_a_damaged_header_is_refused_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, at: int, value: int, cut: int
) -> None:
    path = tmp_path_factory.mktemp("ring") / "events"
    new_writer(str(path)).append(events_of(1, 5))
    content = bytearray(path.read_bytes())
    content[at] = value
    path.write_bytes(bytes(content[: max(len(content) - cut, 0)]) if cut % 2 else bytes(content))
    os.chmod(path, 0o640)
    try:
        reader = EventReader(str(path))
        for _ in range(3):
            reader.read(100)
    except JobLensError as error:
        assert str(path) in str(error)


def write_fast(path: str, stop: Any) -> None:
    writer = new_writer(path)
    written = 0
    while not stop.is_set():
        for size in (1, 7, 200):
            writer.append(events_of(written + 1, size))
            written += size


def read_fast(path: str, seconds: float, results: Any) -> None:
    reader = EventReader(path)
    start = reader.position.sequence
    end, got, numbers = time.monotonic() + seconds, 0, start
    while time.monotonic() < end:
        before = reader.position.sequence
        seen = reader.wake_word()
        events = reader.read(100)
        if not len(events):
            reader.wait(seen, 0.05)
            continue
        sequence = events["sequence"]
        assert (np.diff(sequence.astype("i8")) > 0).all() and int(sequence[0]) > before
        words = events.view("u8").reshape(len(events), -1)
        expected = events_of(0, len(events)).view("u8").reshape(words.shape)
        expected[:, 1:] = (sequence * FACTOR)[:, None] + np.arange(1, words.shape[1], dtype="u8")
        same = np.frombuffer(expected.tobytes(), EVENT).copy()
        same["kind"], same["run_number"], same["sequence"] = EventKind.EXEC, sequence, sequence
        assert same.tobytes() == events.tobytes(), "a torn event"
        got += len(events)
        numbers = reader.position.sequence
    assert got + reader.missed == numbers - start
    results.put((got, reader.missed))


SECONDS = float(os.environ.get("JOBLENS_STRESS_SECONDS", "5"))


@pytest.mark.slow
def test_eight_readers_see_no_torn_event_while_a_writer_runs_at_full_speed(path: str) -> None:
    context = multiprocessing.get_context("spawn")
    new_writer(path)
    stop, results = context.Event(), context.Queue()
    writer = context.Process(target=write_fast, args=(path, stop))
    writer.start()
    readers = [context.Process(target=read_fast, args=(path, SECONDS, results)) for _ in range(8)]
    try:
        for reader in readers:
            reader.start()
        got = [results.get(timeout=SECONDS + 120) for _ in readers]
    finally:
        stop.set()
        for process in [*readers, writer]:
            process.join(60)
    assert all(process.exitcode == 0 for process in [*readers, writer])
    assert all(count > 100 for count, _ in got)


def test_what_the_rows_leave_holds_half_a_minute_of_the_stated_load() -> None:
    config = Config()
    rest = config.buffer_bytes - file_bytes(config.max_jobs) - file_bytes(Ended.KEPT)
    assert shm_events._plan(rest).capacity >= 30 * 5000, "raise the default of JOBLENS_BUFFER_BYTES"
