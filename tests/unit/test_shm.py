"""The double buffer: whole copies at any speed, a writer that changes, and files that are none."""

from __future__ import annotations

import errno
import multiprocessing
import os
import stat
import threading
from pathlib import Path

import numpy as np
import pytest

from condor_joblens.common.errors import JobLensError
from condor_joblens.model.metrics import empty_rows
from condor_joblens.shm import _shm, layout
from condor_joblens.shm.reader import Reader
from condor_joblens.shm.writer import Writer


def rows_of(count: int, sequence: int) -> np.ndarray:
    rows = empty_rows(count)
    rows["sequence"] = sequence
    rows["run"] = f"run {sequence}".encode()
    rows["cpu_seconds"] = sequence
    rows["process_core_dumps"] = sequence
    rows["update_time"] = sequence
    return rows


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "rows")


def new_writer(path: str, capacity: int = 16, rows: np.ndarray | None = None) -> Writer:
    return Writer(path, capacity, os.getgid(), rows)


def test_reads_what_was_published(path: str) -> None:
    writer = new_writer(path)
    reader = Reader(path)
    rows, time = reader.rows()
    assert (len(rows), time) == (0, 0.0)
    for sequence, count in enumerate([3, 16, 0, 1], 1):
        writer.publish(rows_of(count, sequence), 1000.0 + sequence)
        rows, time = reader.rows()
        assert time == 1000.0 + sequence
        assert rows.tobytes() == rows_of(count, sequence).tobytes()
    assert reader.writer_pid == os.getpid()


def test_the_file_is_for_the_group_alone(path: str) -> None:
    new_writer(path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640
    assert os.listdir(os.path.dirname(path)) == ["rows"]


def test_more_rows_than_there_is_room_for_change_nothing(path: str) -> None:
    writer = new_writer(path, 2)
    writer.publish(rows_of(2, 1), 1.0)
    with pytest.raises(ValueError):
        writer.publish(rows_of(3, 2), 2.0)
    rows, time = Reader(path).rows()
    assert (rows["sequence"].tolist(), time) == ([1, 1], 1.0)


def publish_fast(path: str, stop: object) -> None:
    writer = new_writer(path, 64)
    sequence = 0
    while not stop.is_set():  # type: ignore[attr-defined]
        sequence += 1
        writer.publish(rows_of(1 + sequence % 64, sequence), float(sequence))


def test_a_copy_is_whole_however_fast_the_writer(path: str) -> None:
    context = multiprocessing.get_context("spawn")
    new_writer(path, 64)
    stop = context.Event()
    process = context.Process(target=publish_fast, args=(path, stop))
    process.start()
    reader = Reader(path)
    seen: list[int] = []
    try:
        while len(seen) < 2000:
            assert process.is_alive()
            rows, time = reader.rows()
            if time:
                numbers = rows["sequence"]
                assert (rows["process_core_dumps"] == numbers).all() and (rows["cpu_seconds"] == numbers).all()
                assert rows["run"].tolist() == [f"run {number}".encode() for number in numbers.tolist()]
                # of one publication; of several, where this process did not get to run
                assert (numbers <= time).all() and (np.diff(numbers.astype("i8")) >= 0).all()
                assert len(rows) == 1 + int(time) % 64 or numbers[0] < time
                seen.append(int(time))
    finally:
        stop.set()
        process.join()
    assert seen == sorted(seen) and seen[-1] > seen[0]


def test_a_publication_that_never_ended_is_not_seen(path: str) -> None:
    writer = new_writer(path)
    writer.publish(rows_of(2, 1), 1.0)
    reader = Reader(path)
    # a writer killed in the middle of its second publication
    _shm.lib.begin_rows(writer._address, 2)
    writer._buffers[0, :2]["sequence"] = 2
    assert reader.rows()[0]["sequence"].tolist() == [1, 1]


def test_a_buffer_written_meanwhile_is_not_returned(path: str) -> None:
    writer = new_writer(path)
    writer.publish(rows_of(2, 1), 1.0)
    reader = Reader(path)
    _shm.lib.begin_rows(writer._address, 3)  # the buffer in front is being overwritten, and stays so
    with pytest.raises(JobLensError, match="faster"):
        reader.rows()


def test_a_new_writer_hands_on_its_predecessors_rows(path: str) -> None:
    new_writer(path).publish(rows_of(3, 7), 7.0)
    reader = Reader(path)
    second = new_writer(path, 8, reader.rows()[0])
    rows, time = reader.rows()
    assert (rows["sequence"].tolist(), time) == ([7, 7, 7], 7.0)
    second.publish(rows_of(1, 8), 8.0)
    assert reader.rows()[0]["sequence"].tolist() == [8]


def test_an_orderly_stop_is_seen_and_so_is_the_next_start(path: str) -> None:
    new_writer(path).publish(rows_of(1, 1), 1.0)
    reader = Reader(path)
    os.unlink(path)
    for _ in range(2):
        with pytest.raises(JobLensError, match="does not run"):
            reader.rows()
    new_writer(path).publish(rows_of(1, 2), 2.0)
    assert reader.rows()[0]["sequence"].tolist() == [2]


def test_another_versions_file_is_refused_every_time(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    new_writer(path).publish(rows_of(1, 1), 1.0)
    reader = Reader(path)
    monkeypatch.setattr(layout, "LAYOUT_VERSION", layout.LAYOUT_VERSION + 1)
    new_writer(path)
    monkeypatch.undo()
    for _ in range(2):
        with pytest.raises(JobLensError, match="another version"):
            reader.rows()
    with pytest.raises(JobLensError, match="another version"):
        Reader(path)


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"\0" * 8192, b"JOBLENS" + b"\0" * 8192])
def test_what_is_no_file_of_ours(path: str, content: bytes) -> None:
    Path(path).write_bytes(content)
    with pytest.raises(JobLensError, match="rows"):
        Reader(path)


def test_a_truncated_file_is_refused(path: str) -> None:
    new_writer(path)
    os.truncate(path, os.stat(path).st_size - 1)
    with pytest.raises(JobLensError, match="truncated"):
        Reader(path)


def test_no_room_leaves_nothing_behind(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        new_writer(path)
    assert os.listdir(os.path.dirname(path)) == []


def test_descriptors_are_given_back(path: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for sequence in range(20):
        new_writer(path).publish(rows_of(1, sequence), 1.0)
        Reader(path).rows()
    Path(path).write_bytes(b"x" * 8192)
    for _ in range(20):
        with pytest.raises(JobLensError):
            Reader(path)
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_a_slow_reader_gets_every_row_although_the_writer_overtakes_it_at_each(path: str) -> None:
    """A thread that writes without rest, on a machine where a reader is often put to sleep in the middle of a copy."""
    writer = new_writer(path, 64)
    writer.publish(rows_of(50, 1), 1.0, np.arange(0, 100, 2))
    reader = Reader(path)
    stop = threading.Event()

    def publish() -> None:
        sequence = 1
        while not stop.is_set():
            sequence += 1
            rows = rows_of(50, sequence)
            rows["run_number"] = np.arange(0, 100, 2)
            writer.publish(rows, float(sequence), np.arange(0, 100, 2))

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        for _ in range(300):
            rows, time = reader.rows()
            if time > 1:
                assert rows["run_number"].tolist() == list(range(0, 100, 2)), "each run once, none missing"
                assert (rows["process_core_dumps"] == rows["sequence"]).all()
    finally:
        stop.set()
        thread.join()
