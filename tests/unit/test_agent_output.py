"""In which order the ads of a node's runs are written, and what may happen in between."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from agent_node import make

from condor_joblens.agent.lifecycle import run_end
from condor_joblens.agent.output import job_ads
from condor_joblens.agent.output.job_ads import JobAds
from condor_joblens.model.metrics import empty_rows


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
