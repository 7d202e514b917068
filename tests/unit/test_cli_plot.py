"""joblens plot: which runs it takes, and what stands in the picture. (That it draws at all: test_sinks_files.py.)"""

from __future__ import annotations

import json
import time
from pathlib import Path

import matplotlib
import pytest

from condor_joblens.cli import plot, plot_series
from condor_joblens.cli.main import main
from condor_joblens.common.errors import JobLensError

BEGAN = 1_795_000_000.0


def line_of(job: str, seconds: int, **more: object) -> str:
    run = f"s#{job}#1#1"
    known = {
        "Type": "sample",
        "Id": f"{run}/{seconds}",
        "Run": run,
        "GlobalJobId": run[:-2],
        "JobId": job,
        "Owner": "alice",
    }
    times = {"StartTime": BEGAN, "UpdateTime": BEGAN + seconds}
    return json.dumps({**known, **times, "Cpu": {"UserSeconds": seconds * 0.5}, **more}) + "\n"


@pytest.mark.parametrize(
    "asked, found",
    [
        ("2.0", ["s#2.0#1#1"]),
        ("2", ["s#2.0#1#1", "s#2.1#1#1"]),
        ("s#12.0#1", ["s#12.0#1#1"]),
        ("s#12.0#1#1", ["s#12.0#1#1"]),
    ],
)
def test_a_job_is_not_another_whose_number_ends_alike(tmp_path: Path, asked: str, found: list[str]) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text("".join(line_of(job, seconds) for job in ("2.0", "12.0", "2.1") for seconds in (10, 20)))
    assert sorted(series.name for series in plot_series.read(str(path), asked)) == found


def test_owner_requests_waits_and_the_time_of_the_day_are_in_the_picture(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    with path.open("w") as file:
        for seconds in (10, 20, 30):
            waits = {"Local": {"BlockedSeconds": seconds * 0.25}, "Cvmfs": {"BlockedSeconds": seconds * 0.5}}
            asked = {"RequestCpus": 2, "RequestMemoryBytes": 3 << 30, "Memory": {"ResidentBytes": 1 << 30}}
            file.write(line_of("2.0", seconds, Wait={"RunQueueSeconds": 0.0, **waits}, **asked))
    [series] = plot_series.read(str(path))
    assert (series.owner, series.requests) == ("alice", {"CPU": 2, "Memory": 3.0})
    [files] = [curve for panel in plot_series.PANELS for curve in panel.curves if curve.label == "in files"]
    assert plot_series.line(series, files)[1] == pytest.approx(0.75)
    picture = path.with_suffix(".svg")
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        plot.draw([series], str(picture))
    drawn = picture.read_text()
    began = time.strftime("began %Y-%m-%d %H:%M:%S", time.localtime(BEGAN))
    for words in ("s#2.0#1#1, alice", began, "asked for", "Waits", "in files", "CPU", "GiB"):
        assert words in drawn
    assert time.strftime("%H:%M", time.localtime(BEGAN)) in drawn


def lines_of(job: str) -> str:
    return line_of(job, 10) + line_of(job, 20)


HUGE = 10**400

HOSTILE = {
    "nested": "[" * 100_000 + "\n",
    "many digits": line_of("3.0", 30).replace("15.0", "1" * 5000),
    "a number beyond all floats": line_of("2.0", 30, Memory={"ResidentBytes": HUGE}),
    "a request beyond all floats": line_of("3.0", 30, RequestCpus=HUGE),
    "a start beyond all floats": line_of("3.0", 30, StartTime=HUGE, UpdateTime=HUGE),
    "a start beyond all calendars": line_of("3.0", 30, StartTime=1e300, UpdateTime=1e300),
    "a time beyond all floats": line_of("2.0", 30, UpdateTime=HUGE),
    "a time without end": line_of("2.0", 30, UpdateTime=float("inf")),
    "a time that is none": line_of("2.0", 30, UpdateTime=float("nan")),
    "a time before all times": line_of("2.0", 30, StartTime=-1e300),
    "a line without end": line_of("2.0", 30, More="x" * plot_series.LONGEST),
}


@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE)
def test_a_line_that_nobody_can_draw_costs_no_other_run(tmp_path: Path, line: str) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(line + lines_of("2.0") + line.replace("/30", "/31"))
    [series] = plot_series.read(str(path))
    assert series.seconds == [10, 20]
    plot.draw([series], str(tmp_path / "picture.png"))


def test_a_run_that_has_a_number_for_a_name_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(lines_of("2.0").replace('"Run": "s#2.0#1#1"', '"Run": 7'))
    plot.draw(plot_series.read(str(path)), str(tmp_path / "picture.png"))


def test_numbers_of_prmon_s_that_are_too_large_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "prmon.txt"
    path.write_text(f"Time\twtime\tutime\n1\t1\t1\n2\t2\t{HUGE}\n3\t{HUGE}\t1\n4\t4\t5\n")
    [series] = plot_series.read(str(path))
    assert series.seconds == [1, 4]


def test_samples_without_a_number_are_said_to_have_none(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(lines_of("2.0").replace("UserSeconds", "Other"))
    with pytest.raises(JobLensError, match="none of the numbers"):
        plot.draw(plot_series.read(str(path)), str(tmp_path / "picture.png"))


def test_a_link_in_the_picture_s_place_is_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The picture lies beside the file, whose folder can be another user's."""
    path, other = tmp_path / "records.jsonl", tmp_path / "other"
    path.write_text(lines_of("2.0"))
    other.write_text("precious")
    picture = tmp_path / "records.jsonl.png"
    picture.symlink_to(other)
    assert main(["plot", str(path)]) == 0
    assert capsys.readouterr().out == f"{picture}: 1 run\n"
    assert other.read_text() == "precious"
    assert not picture.is_symlink() and picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_mode & 0o777 == 0o644
