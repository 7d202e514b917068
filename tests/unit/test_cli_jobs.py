"""joblens jobs and joblens compare: from the ads that HTCondor prints to the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from history_ads import BEGAN, ad, fill

from condor_joblens.analysis.job_summary import JobState
from condor_joblens.cli import compare, job_summaries, main
from condor_joblens.cli.jobs import lines
from condor_joblens.cli.terminal import Style


def cluster() -> list[dict[str, Any]]:
    """500 jobs of which 25 fail in two ways, and 5 are slow for one reason."""
    ads = [ad(process) for process in range(470)]
    ads += [ad(process, seconds=9000, cvmfs=0.93) for process in range(470, 475)]
    full = {"Death": "sh exited 1; first failure: dd exited 1, 0.2 s before"}
    ads += [ad(process, ExitCode=1, usage=full) for process in range(475, 490)]
    crash = {"Death": "SIGSEGV in reco (core dumped)"}
    return ads + [ad(process, ExitBySignal=True, ExitSignal=11, usage=crash) for process in range(490, 500)]


PAGE = """\
Cluster 5 of alice, reco: 500 jobs: 475 ended well, 25 failed

Why
    15  sh exited 1; first failure: dd exited 1  [5.475 5.476 5.477 5.478 ..]
    10  SIGSEGV in reco  [5.490 5.491 5.492 5.493 ..]

Unlike their siblings
  wall time, median 40 min 30 s
    5.470     2 h 30 min  93 % of its time in cvmfs, siblings 20 %
    5.471     2 h 30 min  93 % of its time in cvmfs, siblings 20 %
    5.472     2 h 30 min  93 % of its time in cvmfs, siblings 20 %
    5.473     2 h 30 min  93 % of its time in cvmfs, siblings 20 %
    5.474     2 h 30 min  93 % of its time in cvmfs, siblings 20 %
"""


def test_what_became_of_500_jobs(accesspoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(accesspoint, cluster())
    assert main.main(["jobs", "5"]) == 0
    page = capsys.readouterr().out
    assert page.startswith(PAGE)
    assert "  cpu" not in page and "  CPU efficiency, median 80 %" in page
    assert "  request_memory = 270 MB    was 2.0 GiB; 95 % of 475 jobs used at most 237.0 MiB" in page
    assert "  request_cpus = 1         as it was" in page
    assert (accesspoint / "history.arguments").read_text().split("\n")[0] == "5"


def test_jobs_of_several_processes_are_not_advised_the_memory_of_one(
    accesspoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the memory controller HTCondor says 0."""
    memory = {"LargestProcessPeakBytes": 47 << 20, "ResidentPeakBytes": 287 << 20}
    fill(accesspoint, [ad(n, ResidentSetSize_RAW=0, usage={"Memory": memory}) for n in range(6)])
    assert main.main(["jobs", "5"]) == 0
    page = capsys.readouterr().out
    assert "request_memory = 320 MB    was 2.0 GiB; 95 % of 6 jobs used at most 287.0 MiB" in page


def test_a_job_in_both_answers_is_as_the_history_knows_it(accesspoint: Path) -> None:
    running = ad(1, JobStatus=2)
    idle = {"ClusterId": 5, "ProcId": 2, "JobStatus": 1, "Owner": "alice"}
    held = ad(3, JobStatus=5, HoldReason="Error from slot1@node: no space")
    fill(accesspoint, [ad(1, ExitCode=3)], [running, idle, held])
    jobs = {job.job: job for job in job_summaries.of_cluster("5")}
    assert [(job.state, job.cause) for job in jobs.values()] == [
        (JobState.FAILED, "reco exited 3"), (JobState.IDLE, ""), (JobState.HELD, "Error from slot1@node: no space")
    ]  # fmt: skip
    page = "\n".join(lines(list(jobs.values()), Style(80)))
    assert "3 jobs: 1 failed, 1 held, 1 idle" in page and "held: Error from slot1@node: no space  [5.3]" in page


def test_a_failure_in_a_job_that_ended_well_is_told(accesspoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inside = {"FirstFailure": "xrdcp exited 54, 12 s before the end"}
    fill(accesspoint, [ad(1), *(ad(process, usage=inside) for process in (2, 3))])
    assert main.main(["jobs", "5"]) == 0
    page = capsys.readouterr().out.splitlines()
    assert page[0] == "Cluster 5 of alice, reco: 3 jobs: 3 ended well" and "Why" not in page
    assert page[2:4] == ["Ended well, though a program in them failed", "     2  xrdcp exited 54  [5.2 5.3]"]
    assert main.main(["jobs", "5", "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)["FailuresInside"]
    assert (found["Cause"], found["Jobs"]) == ("xrdcp exited 54", ["5.2", "5.3"])


def test_why_a_job_is_held_is_told_to_its_end(accesspoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reason = (
        "Transfer input files failure at access point ap.example.org while sending files to execution point "
        "slot1_{}@node.example.org. Details: 1 total failures: first failure: reading from file "
        "/home/alice/input/part{}.root: (errno 2) No such file or directory"
    )
    fill(accesspoint, [], [ad(n, JobStatus=5, HoldReason=reason.format(n, n), usage={}) for n in (1, 2)])
    assert main.main(["jobs", "5"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "/home/alice/input/partN.root: (errno 2) No such file or directory [5.1 5.2]" in page


def test_how_a_program_died_is_told_of_a_job_that_was_held_for_it(
    accesspoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """HTCondor's own reason names the expression, and no more."""
    reason = "The job attribute OnExitHold expression 'ExitCode != 0' evaluated to TRUE"
    ended = BEGAN + 100
    crash = {"Death": "SIGSEGV in reco (core dumped)", "UpdateTime": ended}
    held = [ad(n, JobStatus=5, HoldReason=reason, EnteredCurrentStatus=ended + 2, usage=crash) for n in (1, 2)]
    later = ad(3, JobStatus=5, HoldReason="no space", EnteredCurrentStatus=ended + 4000, usage=crash)
    by_htcondor = {**crash, "Death": "/Expr(strcat(1, 2))/"}
    moved = ad(4, JobStatus=5, HoldReason="by alice", EnteredCurrentStatus=ended, usage=by_htcondor)
    fill(accesspoint, [], [*held, later, moved])
    assert main.main(["jobs", "5"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert f"2 held: {reason}; SIGSEGV in reco [5.1 5.2]" in page
    assert "1 held: no space [5.3]" in page, "that death was of a run before"
    assert "1 held: by alice [5.4]" in page


def test_several_clusters_have_a_table(accesspoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    others = [{**ad(process), "ClusterId": 7, "Cmd": "/x/fit"} for process in range(3)]
    fill(accesspoint, [*cluster(), *others])
    assert main.main(["jobs", "--since", "2d", "--constraint", "JobUniverse == 5", "--owner", 'al"ice']) == 0
    page = capsys.readouterr().out.splitlines()
    assert page[0] == "2 clusters of alice: 503 jobs: 478 ended well, 25 failed"
    assert page[3].split() == ["5", "500", "475", "25", "-", "-", "-", "reco"]
    asked = (accesspoint / "history.arguments").read_text()
    assert 'Owner == "al\\"ice" && (JobUniverse == 5)' in asked and "-since\nEnteredCurrentStatus < " in asked


def test_json_has_every_cause_and_job(accesspoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(accesspoint, cluster())
    assert main.main(["jobs", "5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["States"] == {"ended well": 475, "failed": 25} and len(found["Jobs"]) == 500
    assert [len(cause["Jobs"]) for cause in found["Causes"]] == [15, 10]
    assert {one["Measure"] for one in found["Outliers"]} == {"wall_seconds", "cpu_efficiency", "wait_share"}


def test_compared_with_its_siblings(accesspoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ads = cluster()
    fill(accesspoint, ads)
    [job] = [one for one in job_summaries.of_cluster("5") if one.job == "5.470"]
    page = compare.sentences(job, job_summaries.of_cluster("5")[0])
    assert page[0] == "5.470 (ended well) beside 5.0 (ended well):"
    assert page[1].startswith("- CPU efficiency: 7 % against 80 %, 11.4 times less")
    assert "- wall time: 2 h 30 min against 40 min, 3.8 times more" in page
    assert "- cvmfs: 93 % of its threads' time against 20 %" in page
    assert compare.sentences(job, job)[1] == "Nothing differs by enough to matter."
    fill(accesspoint, [ad(1)])
    assert main.main(["compare", "5.1", "--siblings"]) == 1
    assert "no other job of cluster 5 ended well" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, words, code",
    [
        (["jobs", "5"], "knows no job 5", 1),
        (["jobs", "5; rm"], "is no cluster and no job", 2),
        (["jobs", "5", "--since", "2d"], "a cluster is named whole", 2),
        (["jobs", "--owner", "nobody-else"], "--since 7d looks further", 1),
        (["compare", "5.1"], "name two jobs", 2),
        (["compare", "5.1", "5.2", "--siblings"], "name two jobs", 2),
        (["compare", "5.1", "5.2"], "knows no job 5.1", 1),
    ],
)
def test_what_has_no_answer_costs_a_line(
    accesspoint: Path, arguments: list[str], words: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(arguments) == code
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


def test_an_ad_that_its_owner_has_edited_harms_nobody(accesspoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wild = {"ClusterId": "x", "ProcId": [], "JobStatus": "4", "Cmd": 7, "RequestCpus": 0, "JobLensUsage": {"Cpu": 3}}
    colour = ad(2, ExitCode=1, usage={"Death": "\x1b[31mred\nline"})
    zero = ad(3, usage={"Wait": {}, "StartTime": 0, "Cpu": {"AverageCores": 1e300}})
    fill(accesspoint, [wild, colour, zero, 7, None])
    assert main.main(["jobs", "5"]) == 0
    assert "\x1b" not in capsys.readouterr().out
