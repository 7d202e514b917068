"""joblens plot: which runs it takes, and what stands in the picture. (That it draws at all: test_sinks_files.py.)"""

from __future__ import annotations

import json
import time
from pathlib import Path

import matplotlib
import pytest

from condor_joblens.cli import plot, plot_series

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
