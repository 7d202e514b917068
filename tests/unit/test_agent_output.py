"""In which order the ads of a node's runs are written, and what may happen in between."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from agent_node import Made, make

from condor_joblens.agent.lifecycle import run_end
from condor_joblens.agent.output import job_ads
from condor_joblens.agent.output.job_ads import JobAds
from condor_joblens.jobs.sandbox import JobSandbox
from condor_joblens.jobs.update_ad_watches import Watches
from condor_joblens.model.metrics import empty_rows
from condor_joblens.publish import updatead

PUBLISH = JobAds._publish


def test_the_longest_overdue_ads_come_first_and_a_run_may_end_between_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(tmp_path, monkeypatch)
    node, written = made.node, []
    monkeypatch.setattr(JobAds, "_publish", lambda _, runs: written.extend(runs))
    monkeypatch.setattr(job_ads, "TOGETHER", 1)
    first, ends, last, later = (made.begin(f"{number}.0") for number in range(4))
    node.runs.state["next_ad"][[first, ends, last, later]] = [1.0, 2.0, 3.0, 1e18]

    def between() -> None:
        if ends in node.handles:
            run_end.close_run(made.agent, ends)

    made.agent.output.job_ads.publish_due(between)
    assert written == [first, last]


def test_a_thousand_jobs_that_start_together_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make(tmp_path, monkeypatch)
    written: list[int] = []
    monkeypatch.setattr(JobAds, "_publish", lambda _, runs: written.extend(runs))
    for number in range(job_ads.ADS_A_ROUND + 10):
        made.begin(f"{number}.0")
    made.agent.output.job_ads.publish_due(lambda: None)
    assert len(written) == job_ads.ADS_A_ROUND


def test_ads_that_are_due_are_written_by_few_so_that_an_end_waits_for_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(tmp_path, monkeypatch)
    exchanges: list[list[int]] = []
    monkeypatch.setattr(JobAds, "_publish", lambda _, runs: exchanges.append(runs))
    runs = [made.begin(f"{number}.0") for number in range(2 * job_ads.TOGETHER + 1)]
    ends = []
    made.agent.output.job_ads.publish_due(lambda: ends.append(len(exchanges)))
    assert [len(each) for each in exchanges] == [job_ads.TOGETHER, job_ads.TOGETHER, 1]
    assert sorted(run for few in exchanges for run in few) == runs and ends == [1, 2, 3]


@pytest.mark.parametrize(
    ("is_final", "live", "note"),
    [
        (True, 0, ""),
        (False, 3, ""),
        (True, 1, "a process of the job lived on after its first one: what it did then is missing"),
        (True, 3, "3 processes of the job lived on after its first one: what they did then is missing"),
    ],
)
def test_an_ad_from_before_the_last_processes_ended_says_so(is_final: bool, live: int, note: str) -> None:
    rows: np.ndarray = empty_rows(2)
    rows["complete"], rows["final"], rows["process_live"] = True, is_final, live
    rows["note"][1] = b"the clock went back"
    job_ads.declare_left(rows)
    assert rows["complete"].tolist() == [not note] * 2
    assert rows["note"][0] == note.encode()
    assert rows["note"][1] == (f"{note}; the clock went back" if note else "the clock went back").encode()


# -- what the startd writes -----------------------------------------------------------------------------------------


class Job:
    """A run whose folder is real, and the startd that writes there."""

    def __init__(self, made: Made, folder: Path) -> None:
        self.ads, self.run, self._file = made.agent.output.job_ads, made.begin(), folder / updatead.NAME
        self.ads.watches = Watches(made.node.files)
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        sandbox = JobSandbox(made.node.files, str(folder), self._descriptor, os.getuid(), self._descriptor, os.getuid())
        made.node.handles[self.run].sandbox = sandbox
        self.ads.watch(self.run)

    def startd_writes(self, activity: str) -> None:
        made = self._file.with_name("startds")
        made.write_text(f'Activity = "{activity}"\n')
        made.rename(self._file)

    def taken(self) -> set[int]:
        """Whose slots' facts may have changed, since the last call."""
        found = set(self.ads.startd_wrote)
        self.ads.startd_wrote.clear()
        return found

    def lines(self) -> list[str]:
        return [line.split(" = ")[0] for line in self._file.read_text().splitlines()]

    def close(self) -> None:
        os.close(self._descriptor)
        os.close(self.ads.watches.fileno())


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    made = make(tmp_path, monkeypatch)
    monkeypatch.setattr(JobAds, "_publish", PUBLISH)
    folder = tmp_path / "dir_1"
    folder.mkdir()
    job = Job(made, folder)
    yield job
    job.close()


def test_the_startds_file_is_noticed_and_gets_the_numbers(job: Job) -> None:
    job.ads.publish(job.run)
    job.ads.restore_overwritten()
    assert job.taken() == set(), "our own file tells nothing of the slot"
    job.startd_writes("Suspended")
    job.ads.restore_overwritten()
    assert (job.taken(), job.lines()) == ({job.run}, ["Activity", "JobLensUsage"])
    job.ads.restore_overwritten()
    assert job.taken() == set()


def test_the_startds_file_is_noticed_also_if_ours_takes_its_place_before_joblensd_is_told(job: Job) -> None:
    """The kernel tells of both files at once then, and the newer one is ours."""
    job.ads.publish(job.run)
    job.startd_writes("Suspended")
    job.ads.publish(job.run)
    job.ads.restore_overwritten()
    assert (job.taken(), job.lines()) == ({job.run}, ["Activity", "JobLensUsage"])


def test_the_startds_file_is_noticed_if_it_comes_just_after_ours(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    really = updatead._put

    def and_the_startd_writes(*arguments: object) -> object:
        done = really(*arguments)  # type: ignore[arg-type]
        job.startd_writes("Suspended")
        return done

    monkeypatch.setattr(updatead, "_put", and_the_startd_writes)
    job.ads.publish(job.run)
    monkeypatch.undo()
    monkeypatch.setattr(JobAds, "_publish", PUBLISH)
    assert job.lines() == ["Activity"]
    job.ads.restore_overwritten()
    assert (job.taken(), job.lines()) == ({job.run}, ["Activity", "JobLensUsage"])


def test_a_run_that_is_over_has_no_slot_to_look_at(job: Job) -> None:
    job.startd_writes("Suspended")
    job.ads.publish(job.run)
    job.ads.forget(job.run)
    assert job.taken() == set()
