"""+JobLensReport: the flame graph in the job's own folder, where nothing of the job's is ever replaced."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_node import Made, make
from profile_samples import profile, random_profile
from test_run_profiles import made_of, number_of

from condor_joblens.agent.output import run_artifacts, run_reports
from condor_joblens.agent.output.run_profiles import RunProfiles
from condor_joblens.agent.output.run_reports import RunReports
from condor_joblens.owner_files import reports
from condor_joblens.owner_files.operations import Operations
from condor_joblens.owner_files.reports import MARK, MARK_WITHIN, Report, ReportResult
from condor_joblens.policy.job_identity import literals
from condor_joblens.profiles.report import HEAD, report
from condor_joblens.publish.updatead import MOST_DELETED, STARTDS_TEMPORARY
from condor_joblens.shm.artifacts import ArtifactWriter

OURS, NEWER = HEAD.encode() + b"<svg/>", HEAD.encode() + b"<svg>newer</svg>"


def write(folder: Path, content: bytes = OURS) -> ReportResult:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        return Operations().write_report(descriptor, Report.FLAME, content)
    finally:
        os.close(descriptor)


def test_it_is_written_and_replaced_whole(tmp_path: Path) -> None:
    for content in (OURS, NEWER, OURS):
        assert write(tmp_path, content) is ReportResult.DONE
        assert (tmp_path / "flame.svg").read_bytes() == content
    assert os.listdir(tmp_path) == ["flame.svg"]
    assert stat.S_IMODE((tmp_path / "flame.svg").stat().st_mode) == 0o644


def test_a_file_of_the_jobs_stays(tmp_path: Path) -> None:
    (tmp_path / "flame.svg").write_bytes(b"<svg>my own</svg>")
    assert write(tmp_path) is ReportResult.TAKEN
    assert (tmp_path / "flame.svg").read_bytes() == b"<svg>my own</svg>"


def test_an_empty_file_is_filled(tmp_path: Path) -> None:
    (tmp_path / "flame.svg").touch()
    assert write(tmp_path) is ReportResult.DONE
    assert (tmp_path / "flame.svg").read_bytes() == OURS


@pytest.mark.parametrize(
    "make_it",
    [
        lambda path: path.symlink_to("/etc/hostname"),
        lambda path: path.symlink_to("nowhere"),
        lambda path: path.mkdir(),
        lambda path: os.mkfifo(path),
        lambda path: (path.with_name("other").touch(), os.link(path.with_name("other"), path)),
        lambda path: (path.write_bytes(OURS), os.truncate(path, MOST_DELETED + 1)),
    ],
    ids=["link", "broken link", "folder", "fifo", "second name", "too large to be deleted"],
)
def test_whatever_else_is_there_stays(tmp_path: Path, make_it: Callable[[Path], object]) -> None:
    path = tmp_path / "flame.svg"
    make_it(path)
    before = path.lstat()
    assert write(tmp_path) is ReportResult.TAKEN
    assert (path.lstat().st_ino, path.lstat().st_size) == (before.st_ino, before.st_size)


@pytest.mark.parametrize("begins", [False, True])
def test_what_the_job_makes_at_this_very_moment_stays(
    tmp_path: Path, begins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the look, and before the file gets its name."""
    path, look = tmp_path / "flame.svg", reports._is_there
    if begins:
        write(tmp_path)

    def and_then_the_job_writes(folder: int, owner: int, name: str) -> bool | None:
        found = look(folder, owner, name)
        if name == "flame.svg":
            path.unlink(missing_ok=True)
            path.write_bytes(b"my own")
        return found

    monkeypatch.setattr(reports, "_is_there", and_then_the_job_writes)
    assert write(tmp_path) is ReportResult.TAKEN
    assert path.read_bytes() == b"my own" and os.listdir(tmp_path) == ["flame.svg"]


def test_a_folder_that_is_gone_costs_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY)
    folder.rmdir()
    assert Operations().write_report(descriptor, Report.FLAME, OURS) is ReportResult.FAILED
    os.close(descriptor)


def test_the_startds_own_file_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / STARTDS_TEMPORARY).write_bytes(b"the startd's")
    assert write(tmp_path, NEWER) is ReportResult.FAILED
    assert (tmp_path / STARTDS_TEMPORARY).read_bytes() == b"the startd's"
    assert (tmp_path / "flame.svg").read_bytes() == OURS


@pytest.mark.parametrize("most", [2 << 20, 20_000])
def test_the_picture_begins_with_the_mark_and_is_bounded(most: int) -> None:
    content = report(random_profile(3, 2000), most)
    assert MARK in content[:MARK_WITHIN] and len(content) <= most
    assert content.rstrip().endswith(b"</svg>")


def test_the_job_asks_by_a_plain_word() -> None:
    assert literals(b"JobLensReport = true\n") == {"JobLensReport": True}
    assert literals(b'JobLensReport = "true"\n') == literals(b"JobLensReport = 1\n") == {}


# -- when ---------------------------------------------------------------------------------------------------------


class Drawer:
    """Draws as the reader of samples does; a test says when."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, tuple[str, str], Callable[[bytes], object]]] = []

    def __call__(
        self, run: int, files: list[int], content_at: int, whose: tuple[str, str], done: Callable[[bytes], object]
    ) -> None:
        assert all(os.pread(file, 2, content_at) == b"\x1f\x8b" for file in files)
        self.asked.append((run, len(files), whose, done))


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    made = make(tmp_path, monkeypatch)
    limits = run_artifacts.limits(made.node.config, str(tmp_path / "artifacts"))
    made.agent.output.artifacts.store = ArtifactWriter(str(tmp_path / "artifacts"), limits)
    return made


def another_part(made: Made, profiles: RunProfiles, found: RunReports, run: int) -> None:
    profiles.keep(number_of(made, run), 0.0, 1.0, made_of(b"x"))
    found.part_is_kept(number_of(made, run))


def test_it_is_made_anew_more_and_more_rarely(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles, draw, now = RunProfiles(made.agent.output.artifacts), Drawer(), [1000.0]
    found = RunReports(made.node, profiles, draw)
    run, other = made.begin("12.0"), made.begin("13.0")
    made.node.runs.state["wants_report"][run] = True
    made.node.runs.state["may_report"][run] = True
    made.node.runs.rows["start_time"][run] = int(time.time())
    monkeypatch.setattr(run_reports.time, "monotonic", lambda: now[0])
    for each in (run, other):
        profiles.begin(each)
        another_part(made, profiles, found, each)
    assert [(number, parts, whose[0]) for number, parts, whose, _ in draw.asked] == [(number_of(made, run), 1, "12.0")]
    draw.asked[0][3](b"")
    another_part(made, profiles, found, run)
    assert len(draw.asked) == 1
    now[0] += 61
    another_part(made, profiles, found, run)
    draw.asked[1][3](b"")
    assert [parts for _, parts, _, _ in draw.asked] == [1, 3]
    made.node.runs.rows["start_time"][run] = int(time.time()) - 36_000
    now[0] += 61
    another_part(made, profiles, found, run)
    draw.asked[2][3](b"")
    now[0] += 1700
    another_part(made, profiles, found, run)
    assert len(draw.asked) == 3, "of a job of ten hours each half hour"


def test_one_is_made_after_another(made: Made) -> None:
    profiles, draw = RunProfiles(made.agent.output.artifacts), Drawer()
    found = RunReports(made.node, profiles, draw)
    runs = [made.begin(f"1{number}.0") for number in range(3)]
    for run in runs:
        made.node.runs.state["wants_report"][run] = made.node.runs.state["may_report"][run] = True
        profiles.begin(run)
        another_part(made, profiles, found, run)
    for number in range(len(runs)):
        assert [each[0] for each in draw.asked] == [number_of(made, each) for each in runs[: number + 1]]
        draw.asked[number][3](b"")
    assert len(draw.asked) == 3


@pytest.mark.parametrize("column", ["wants_report", "may_report"])
def test_the_job_must_ask_and_the_policies_may_forbid_it(made: Made, column: str) -> None:
    profiles, draw = RunProfiles(made.agent.output.artifacts), Drawer()
    found = RunReports(made.node, profiles, draw)
    run = made.begin("12.0")
    made.node.runs.state["wants_report"][run] = made.node.runs.state["may_report"][run] = True
    made.node.runs.state[column][run] = False
    profiles.begin(run)
    another_part(made, profiles, found, run)
    assert draw.asked == []


def test_it_is_written_and_what_stands_in_its_way_is_said(made: Made) -> None:
    profiles, draw = RunProfiles(made.agent.output.artifacts), Drawer()
    found = RunReports(made.node, profiles, draw)
    run = made.begin("12.0")
    made.node.runs.state["wants_report"][run] = made.node.runs.state["may_report"][run] = True
    profiles.begin(run)
    another_part(made, profiles, found, run)
    sandbox: Any = made.node.handles[run].sandbox
    sandbox.write_report.side_effect = [ReportResult.TAKEN, ReportResult.DONE, OSError(5, "Input/output error")]
    (_, _, _, done) = draw.asked[0]
    done(b"")  # there is none
    assert "flame.svg" not in made.node.handles[run].notes
    done(OURS)
    assert (
        made.node.handles[run].notes["flame.svg"] == "no flame.svg for JobLensReport: the job has a file of that name"
    )
    done(OURS)
    assert made.node.handles[run].notes["flame.svg"] == ""
    done(OURS)
    assert "the job's folder can't be written" in made.node.handles[run].notes["flame.svg"]


def test_a_profile_becomes_a_picture_of_its_job() -> None:
    found = profile()
    assert b"job 12.0 on node01, on the CPU" in report(found, 1 << 20)
