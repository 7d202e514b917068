"""The last hour of a run: points from joblensd's rows, through the file, to marks on a terminal."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from agent_node import Made, make
from cli_samples import NOW, publish, row
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.agent.output import run_history
from condor_joblens.agent.output.run_history import RunHistory
from condor_joblens.cli import main, runs, sparklines
from condor_joblens.cli.terminal import Style
from condor_joblens.common.errors import JobLensError
from condor_joblens.shm import history
from condor_joblens.shm.history import MINUTES, RECORD, HistoryWriter


class Clock:
    def __init__(self) -> None:
        self.now = NOW


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(run_history.time, "time", lambda: clock.now)
    return clock


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    return make(tmp_path, monkeypatch)


def recorder(made: Made, tmp_path: Path) -> RunHistory:
    return RunHistory(made.node, HistoryWriter(str(tmp_path / "history"), os.getgid()))


def minute(made: Made, taken: RunHistory, clock: Clock, run: int, cpu: float, resident: int = 1 << 20) -> None:
    rows = made.node.runs.rows
    rows["cpu_seconds"][run] += cpu
    rows["memory_resident_bytes"][run] = resident
    rows["io_call_read_bytes"][run] = rows["io_call_write_bytes"][run] = rows["cpu_seconds"][run] * 1000
    taken.take()
    taken.take()  # the next round writes
    clock.now += 60


def points(tmp_path: Path, run: bytes) -> np.ndarray:
    records, _ = history.read(str(tmp_path / "history"))
    (found,) = records["values"][records["run"] == run]
    values: np.ndarray = found
    return values


def begun(made: Made, job: str = "1.0") -> int:
    run = made.begin(job)
    rows = made.node.runs.rows
    rows["start_time"][run], rows["cpu_seconds"][run] = NOW - 60, 0.0
    return run


def test_a_point_a_minute_is_the_mean_since_the_one_before(made: Made, clock: Clock, tmp_path: Path) -> None:
    run, taken = begun(made), recorder(made, tmp_path)
    for cpu in (60.0, 30.0, 0.0):
        minute(made, taken, clock, run, cpu)
        clock.now -= 30
        taken.take()  # it is not time
        clock.now += 30
    values = points(tmp_path, b"ap#1.0#1#1")
    assert np.isnan(values[:-3]).all()
    assert values[-3:, 0].tolist() == [1.0, 0.5, 0.0]
    assert values[-3:, 1].tolist() == [1 << 20] * 3
    assert values[-3:, 2].tolist() == [2000.0, 1000.0, 0.0]
    assert np.isnan(values[:, 3]).all(), "what is absent has no point"


def test_an_hour_is_kept_of_those_that_live_and_of_those_that_have_ended(
    made: Made, clock: Clock, tmp_path: Path
) -> None:
    run, other, taken = begun(made), begun(made, "2.0"), recorder(made, tmp_path)
    for number in range(MINUTES + 5):
        made.node.runs.rows["cpu_seconds"][other] += 6.0
        made.node.runs.rows["final"][other] = number >= 10
        minute(made, taken, clock, run, float(number))
    values = points(tmp_path, b"ap#1.0#1#1")
    assert values[:, 0] == pytest.approx(np.arange(5, MINUTES + 5) / 60)
    ended = points(tmp_path, b"ap#2.0#1#1")
    assert np.flatnonzero(~np.isnan(ended[:, 0])).tolist() == [0, 1, 2, 3, 4]
    for _ in range(5):
        minute(made, taken, clock, run, 0.0)
    records, at = history.read(str(tmp_path / "history"))
    assert records["run"].tolist() == [b"ap#1.0#1#1"] and at == clock.now - 60


def test_the_next_joblensd_goes_on_with_what_was_kept(made: Made, clock: Clock, tmp_path: Path) -> None:
    run, taken = begun(made), recorder(made, tmp_path)
    for _ in range(3):
        minute(made, taken, clock, run, 60.0)
    clock.now += 120  # nobody was there
    minute(made, recorder(made, tmp_path), clock, run, 0.0)
    cores = points(tmp_path, b"ap#1.0#1#1")[:, 0]
    assert cores[-6:-3].tolist() == [1.0, 1.0, 1.0] and np.isnan(cores[-3:-1]).all()
    clock.now += 2 * 3600
    minute(made, recorder(made, tmp_path), clock, run, 0.0)
    assert np.isnan(points(tmp_path, b"ap#1.0#1#1")[:-1]).all(), "what is older than an hour is gone"


def test_of_too_many_that_have_ended_the_earliest_go(made: Made, clock: Clock, tmp_path: Path) -> None:
    taken, rows = recorder(made, tmp_path), made.node.runs.rows
    made.node.runs.capacity = 3
    run = begun(made, "1.0")
    for number in range(6):
        rows["run"][run] = f"run{number}".encode()
        minute(made, taken, clock, run, 1.0)
    records, _ = history.read(str(tmp_path / "history"))
    assert sorted(records["run"].tolist()) == [b"run2", b"run3", b"run4", b"run5"]


def test_a_full_disk_costs_the_file_alone(made: Made, clock: Clock, tmp_path: Path) -> None:
    begun(made)
    taken = recorder(made, tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    taken._writer.write = full  # type: ignore[method-assign]
    taken.take()
    taken.take()


# -- the file -------------------------------------------------------------------------------------------------


def some(count: int) -> np.ndarray:
    records: np.ndarray = np.zeros(count, RECORD)
    records["run"] = [f"run{number}".encode() for number in range(count)]
    records["values"] = count
    return records


def test_a_reader_never_sees_half_of_it(tmp_path: Path) -> None:
    path, stopped = str(tmp_path / "history"), threading.Event()
    writer = HistoryWriter(path, os.getgid())
    writer.write(some(1), 1.0)

    def write() -> None:
        while not stopped.is_set():
            for count in (200, 3, 50):
                writer.write(some(count), float(count))
                stopped.wait(0.005)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(100):
            records, at = history.read(path)
            assert len(records) == at and (records["values"] == at).all()
    finally:
        stopped.set()
        thread.join()
    assert os.stat(path).st_mode & 0o777 == 0o640


@pytest.mark.parametrize("damage", [b"", b"x" * 10, b"x" * 100_000, None])
def test_what_is_no_history_is_said_and_replaced(
    tmp_path: Path, damage: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_PAUSE_SECONDS", 0.0)
    path = tmp_path / "history"
    HistoryWriter(str(path), os.getgid()).write(some(3), 5.0)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]) if damage is None else damage)
    with pytest.raises(JobLensError, match="is no history"):
        history.read(str(path))
    writer = HistoryWriter(str(path), os.getgid())
    assert len(writer.before) == 0
    writer.write(some(2), 6.0)
    assert history.read(str(path))[1] == 6.0
    with pytest.raises(JobLensError, match="No such file"):
        history.read(str(tmp_path / "none"))


# -- the marks ------------------------------------------------------------------------------------------------


def hour(**series: Callable[[int], float]) -> np.ndarray:
    values: np.ndarray = np.full((MINUTES, len(history.SERIES)), np.nan, "f4")
    for name, of in series.items():
        values[:, history.SERIES.index(name)] = [of(number) for number in range(MINUTES)]
    return values


def run_of(**columns: float) -> runs.Run:
    (found,) = runs.from_rows(row(**columns))
    return found


def test_a_line_for_each_number_against_what_was_asked_for() -> None:
    found = hour(cores=lambda n: n / 59, resident_bytes=lambda n: 1 << 30, io_bytes_per_second=lambda n: 0.0)
    lines = sparklines.lines(found, run_of(), Style(80, blocks=True))
    assert lines == [
        "CPU     ▁▁▂▂▂▂▂▃▃▃▃▄▄▄▄▅▅▅▅▆▆▆▆▇▇▇▇▇██  0.00 to 1.00 cores",
        "Memory  " + "▅" * 30 + "  1.0 GiB",
    ]
    assert sparklines.lines(found, run_of(), Style(80))[1] == "Memory  " + "=" * 30 + "  1.0 GiB"
    wide = sparklines.lines(found, run_of(), Style(160, blocks=True))
    assert len(wide[0].split()[1]) == MINUTES


def test_a_young_run_has_as_many_marks_as_points_and_one_of_a_minute_none() -> None:
    found = hour(cores=lambda n: float("nan") if n < 55 else 1.0)
    (line,) = sparklines.lines(found, run_of(), Style(160, blocks=True))
    assert line.startswith("CPU     █████  ")
    assert sparklines.lines(hour(cores=lambda n: float("nan") if n < 59 else 1.0), run_of(), Style(80)) == []


@given(st.lists(st.floats(0, 1e15) | st.just(float("nan")), max_size=70), st.floats(1e-3, 1e15), st.booleans())
def test_each_value_has_one_mark(values: list[float], whole: float, blocks: bool) -> None:
    marks = sparklines.spark(values, whole, blocks)
    assert len(marks) == len(values)
    assert all((mark == " ") == (value != value) for mark, value in zip(marks, values))


def test_joblens_job_shows_the_hour_of_its_own_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish(tmp_path, "rows", row(), time=time.time())
    writer = HistoryWriter(str(tmp_path / "history"), os.getgid())
    records: np.ndarray = np.zeros(2, RECORD)
    records["run"] = [b"another", b"ap.example#12.0#1799980000#1"]
    records["values"][1] = hour(cores=lambda n: 0.5)
    writer.write(records, time.time())
    assert main.main(["job", "12.0", "--run-dir", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "\nLast hour CPU" in said and "  0.50 cores\n" in said
    writer.write(records[:1], time.time())
    assert main.main(["job", "12.0", "--run-dir", str(tmp_path)]) == 0
    assert "Last hour" not in capsys.readouterr().out
