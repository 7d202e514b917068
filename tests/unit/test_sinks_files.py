"""The sinks that write files: lines that are whole, files that are rotated, and prmon's summary of each run."""

from __future__ import annotations

import json
import os
import pwd
import resource
import signal
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples

from condor_joblens.cli import main, plot_series
from condor_joblens.common.errors import JobLensError
from condor_joblens.export.records import RowEncoder
from condor_joblens.model.metrics import empty_rows
from condor_joblens.sinks import Record, RecordKind, SinkContext, folders
from condor_joblens.sinks import prmon as prmon_module
from condor_joblens.sinks.file import FileSink
from condor_joblens.sinks.prmon import PrmonSink, read_series, summary
from condor_joblens.sinks.registry import settings_of

SURROUNDINGS = SinkContext(print, lambda: (empty_rows(0), 0.0), tuple, "node1")
START = 1_700_000_000


def samples(time: int, count: int = 1, kind: RecordKind = RecordKind.SAMPLE) -> list[Record]:
    rows = empty_rows(count)
    for number in range(count):
        rows["run"][number] = b"schedd#%d.0#%d#1" % (number + 10, START)
        rows["global_job_id"][number] = b"schedd#%d.0#%d" % (number + 10, START)
        rows["job_id"][number] = b"%d.0" % (number + 10)
    rows["run_number"] = np.arange(count) + 1
    rows["sequence"], rows["start_time"], rows["update_time"] = time + 1, START, START + time
    rows["cpu_user_seconds"], rows["cpu_system_seconds"] = 0.9 * time, 0.1 * time
    rows["memory_resident_bytes"] = 1024 * (1000 + time)
    rows["io_call_read_bytes"] = 500 * time
    rows["process_live"], rows["process_threads"] = 2, 3
    return RowEncoder("node1").records(rows, kind)


# JSON lines


def file_sink(path: Path, **macros: str) -> FileSink:
    given = {f"JOBLENS_SINK_FILE_{name}": value for name, value in {"PATH": str(path), **macros}.items()}
    found, problems = settings_of("file", FileSink, given)
    assert found is not None and not problems
    sink = FileSink(found, SURROUNDINGS)
    sink.start()
    return sink


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_record_is_a_line(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "records.jsonl"
    sink = file_sink(path)
    batch = [*samples(1, 3), Record(RecordKind.HEALTH, "h", "n", 1.0, b"{}")]
    assert not sink.deliver(batch).retry
    assert [line["Id"] for line in lines(path)] == [record.id for record in batch[:3]], "health is not asked for"
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_line_that_a_killed_process_left_unfinished_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    file_sink(path).deliver(samples(1))
    with path.open("ab") as file:
        file.write(b'{"Type":"sam')
    file_sink(path).deliver(samples(2))
    assert [line["Sequence"] for line in lines(path)] == [2, 3]


def test_files_are_set_aside_by_size_and_the_oldest_go(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    sink = file_sink(path, BYTES="65536", KEEP="2")
    times = range(400)
    for time in times:
        sink.deliver(samples(time, 3))
    files = sorted(tmp_path.iterdir(), key=lambda file: file.stat().st_mtime_ns)
    assert len(files) == 3 and all(file.stat().st_size < 70_000 for file in files)
    kept = [line["Sequence"] for file in files for line in lines(file)]
    assert kept == sorted(kept) and kept[-1] == 400


def test_files_are_set_aside_by_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "records.jsonl"
    sink = file_sink(path, SECONDS="3600")
    sink.deliver(samples(1))
    sink._since -= 3601
    sink.deliver(samples(2))
    sink.deliver(samples(3))
    assert len(list(tmp_path.iterdir())) == 2 and [line["Sequence"] for line in lines(path)] == [4]


def test_no_room_leaves_no_half_a_line_and_nothing_is_confirmed(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    sink = file_sink(path)
    sink.deliver(samples(1))
    size = path.stat().st_size
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, limits[1]))
    try:
        outcome = sink.deliver(samples(2, 5))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert list(outcome.retry) == list(range(5)) and "too large" in outcome.reason
    assert path.stat().st_size == size
    assert not sink.deliver(samples(2, 5)).retry
    assert len(lines(path)) == 6


def test_a_folder_that_can_not_be_written_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JobLensError, match=r"file/records.jsonl: .*JOBLENS_SINK_FILE_PATH"):
        file_sink(tmp_path / "file" / "records.jsonl")


@pytest.fixture
def joblens(monkeypatch: pytest.MonkeyPatch) -> int:
    """The user joblens is one without privilege: nobody where the tests are root's, else who runs them."""
    uid = 65534 if os.geteuid() == 0 else os.geteuid()
    user = SimpleNamespace(pw_uid=uid, pw_gid=uid)
    monkeypatch.setattr(pwd, "getpwnam", lambda name: user)
    return uid


def test_doctor_asks_as_the_user_that_will_write(joblens: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, joblens, -1)
        inside = f"{folder}/records"
        assert (folders.refusal(inside, "records.jsonl"), os.listdir(folder)) == ("", [])
        os.chmod(folder, 0o500)
        assert folders.refusal(inside, "records.jsonl") == f"{folder}: Permission denied for the user joblens"
        os.chmod(folder, 0o700)
        Path(folder, "records").write_text("a file where a folder is to be")
        assert "Not a directory" in folders.refusal(inside)
        Path(folder, "records").chmod(0)
        assert "records: Permission denied" in folders.refusal(folder, "records")


def test_doctor_names_the_knob_of_a_folder_that_can_not_be_written(joblens: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o500)
        path = Path(folder, "here", "records.jsonl")
        file = FileSink(settings_of("file", FileSink, {"JOBLENS_SINK_FILE_PATH": str(path)})[0] or {}, SURROUNDINGS)
        prmon = PrmonSink({"folder": str(path.parent), "interval": 30, "seconds": 1}, SURROUNDINGS)
        for sink, knob in ((file, "JOBLENS_SINK_FILE_PATH"), (prmon, "JOBLENS_SINK_PRMON_FOLDER")):
            (found,) = sink.check()
            assert (found.ok, knob in found.remedy) == (False, True)


@settings(max_examples=examples(100))
@given(content=st.binary(max_size=300))
def test_whatever_was_in_the_file_new_lines_are_whole(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("file") / "records.jsonl"
    path.write_bytes(content)
    file_sink(path).deliver(samples(1))
    assert json.loads(path.read_bytes().splitlines(True)[-1].split(b"\n")[0])["Sequence"] == 2
    assert path.read_bytes().startswith(content[: content.rfind(b"\n") + 1])


# prmon


def prmon_sink(folder: Path) -> PrmonSink:
    sink = PrmonSink({"folder": str(folder), "interval": 30, "seconds": 1 << 32}, SURROUNDINGS)
    sink.start()
    return sink


def test_prmons_files_are_made_for_each_run(tmp_path: Path) -> None:
    sink = prmon_sink(tmp_path)
    for time in range(0, 121, 10):
        assert not sink.deliver(samples(time, 2)).retry
    assert not sink.deliver(samples(125, 2, RecordKind.JOB)).retry
    name = f"schedd#10.0#{START}#1.prmon"
    head, *rest = (tmp_path / f"{name}.txt").read_text().splitlines()
    assert head.split("\t")[0] == "Time" and head.split("\t")[-1] == "wtime"
    assert [int(line.split("\t")[-1]) for line in rest] == [0, 30, 60, 90, 120, 125]
    found = json.loads((tmp_path / f"{name}.json").read_text())
    assert set(found) == {"Avg", "HW", "Max", "prmon"}
    assert found["Max"] == {
        "nprocs": 2, "nthreads": 3, "rchar": 62500, "rss": 1125, "stime": 12, "utime": 112, "wtime": 125
    }  # fmt: skip
    assert found["Avg"]["rchar"] == 500.0 and found["Avg"]["rss"] == pytest.approx(1070.833)
    assert "utime" not in found["Avg"] and found["HW"]["mem"]["MemTotal"] > 0 and found["HW"]["cpu"]["CPUs"] > 0
    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o640] * 4


def test_records_that_come_twice_and_another_process_add_no_line(tmp_path: Path) -> None:
    sink = prmon_sink(tmp_path)
    sink.deliver(samples(0) + samples(40))
    again = prmon_sink(tmp_path)
    again.deliver(samples(0) + samples(40) + samples(80) + samples(80))
    again.deliver(samples(90, kind=RecordKind.JOB))
    again.deliver(samples(90, kind=RecordKind.JOB))
    [series] = tmp_path.glob("*.txt")
    assert [point["wtime"] for point in read_series(str(series))] == [0, 40, 80, 90]


def test_a_run_that_is_over_at_once_has_a_summary(tmp_path: Path) -> None:
    prmon_sink(tmp_path).deliver(samples(0, kind=RecordKind.JOB))
    [found] = tmp_path.glob("*.json")
    assert json.loads(found.read_text())["Max"]["wtime"] == 0


def test_a_runs_name_leads_nowhere_else(tmp_path: Path) -> None:
    rows = empty_rows(2)
    rows["run"] = [b"../../etc/x#1", b"..#/\xff\n#2"]
    rows["run_number"], rows["sequence"], rows["update_time"] = [1, 2], 1, START
    sink = prmon_sink(tmp_path / "folder")
    sink.deliver(RowEncoder("n").records(rows, RecordKind.JOB))
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    assert len(list((tmp_path / "folder").iterdir())) == 4


def test_old_files_go(tmp_path: Path) -> None:
    sink = PrmonSink({"folder": str(tmp_path), "interval": 30, "seconds": 100}, SURROUNDINGS)
    sink.start()
    sink.deliver(samples(0, kind=RecordKind.JOB))
    (tmp_path / "others.txt").write_text("not ours")
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))
    sink._next_cleaning = 0.0
    sink.deliver([])
    assert [path.name for path in tmp_path.iterdir()] == ["others.txt"]


@settings(max_examples=examples(100))
@given(content=st.text(max_size=300))
def test_a_series_that_is_none_is_read_without_harm(tmp_path_factory: pytest.TempPathFactory, content: str) -> None:
    path = tmp_path_factory.mktemp("series") / "x.prmon.txt"
    path.write_text("Time\tnprocs\twtime\n1\t2\t0\n" + content + "\n7\t2\t6\n", encoding="utf-8")
    found = read_series(str(path))
    assert found[0] == {"Time": 1, "nprocs": 2, "wtime": 0} and summary(found, {})["Max"]["nprocs"] >= 2


# Pictures


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "records.jsonl"
    sink = file_sink(path)
    for time in range(0, 600, 10):
        sink.deliver(samples(time, 2))
    with path.open("a") as file:
        file.write('{"Type": "sample"}\n[]\nnonsense\n{"Type":"sam')
    return path


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_picture_of_records_is_drawn(recorded: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    output = recorded.with_suffix(suffix)
    assert main.main(["plot", str(recorded), "-o", str(output)]) == 0
    content = output.read_bytes()
    assert content.startswith(b"\x89PNG") if suffix == ".png" else b"<svg" in content
    assert len(content) > 10_000 and "2 runs" in capsys.readouterr().out


def test_a_picture_of_prmons_series_is_drawn(tmp_path: Path) -> None:
    sink = prmon_sink(tmp_path)
    for time in range(0, 300, 30):
        sink.deliver(samples(time))
    [series] = tmp_path.glob("*.txt")
    assert main.main(["plot", str(series)]) == 0
    assert Path(f"{series}.png").read_bytes().startswith(b"\x89PNG")


def test_rates_and_units_are_right(recorded: Path) -> None:
    [series] = plot_series.read(str(recorded), "11.0")
    curves = {curve.label: curve for panel in plot_series.PANELS for curve in panel.curves}
    seconds, cores = plot_series.line(series, curves["user"])
    assert cores == pytest.approx(0.9) and seconds[0] == 10
    seconds, rate = plot_series.line(series, curves["read by calls"])
    assert rate == pytest.approx(500e-6)
    assert plot_series.line(series, curves["resident"])[1][-1] == pytest.approx((1000 + 590) / (1 << 20))
    assert len(plot_series.line(series, curves["sent"])[0]) == 0


@pytest.mark.parametrize(
    "arguments, words, code",
    [
        (["/nonexistent"], "No such file", 1),
        (["FILE", "--job", "99.0"], "no two samples of job 99.0", 1),
        (["FILE", "-o", "x.jpg"], "neither a .png nor an .svg", 2),
        (["FILE", "-o", "/nonexistent/x.png"], "can't be written", 1),
    ],
)
def test_what_can_not_be_drawn_costs_a_line(
    recorded: Path, arguments: list[str], words: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["plot", *(str(recorded) if word == "FILE" else word for word in arguments)]) == code
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


def test_the_module_knows_prmons_units() -> None:
    assert {column.name for column in prmon_module.COLUMNS if column.divisor == 1024} == {"rss", "swap"}
