"""joblens q, joblens history and joblens job --summary: from the ads that HTCondor prints to 80 columns."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from cli_samples import GIB, NOW, bob, busy, row
from history_ads import BEGAN, ad, fill

from condor_joblens.cli import accesspoint as access_points
from condor_joblens.cli import history, job_mail, job_page, job_table, main, q, runs
from condor_joblens.cli.terminal import Style
from condor_joblens.common.errors import JobLensError

LIVES: dict[str, Any] = {"JobStatus": 2, "JobCurrentStartDate": BEGAN, "RemoteWallClockTime": 0.0}
NO_NUMBERS: dict[str, Any] = {"JobLensUsage": None, "ResidentSetSize_RAW": None, "RemoteWallClockTime": 0.0}
HELD = "Error from slot1_2@node7: the job used more disk than it asked for: 21 of 20 GiB in /scratch"

QUEUE = """\
5 jobs of alice: 2 running, 2 held, 1 idle
JOB   STATE    LEVEL     WALL  EFF       MEMORY  WAITS      PROGRAM
5.1   running  io     1:00:00  80%  0.3/2.0 GiB  20% cvmfs  reco
5.2   running  -      1:00:00    -  0.1/2.0 GiB  -          reco
5.10  held     -            -    -            -  -          reco
5.11  held     -            -    -            -  -          reco
5.9   idle     -            -    -            -  -          reco

5.10 5.11: Error from slot1_2@node7: the job used more disk than it asked for:
  21 of 20 GiB in /scratch"""


def queue() -> list[dict[str, Any]]:
    running = ad(1, seconds=3600, **LIVES)
    running["JobLensUsage"]["Memory"]["ResidentBytes"] = 300 << 20
    running["JobLensUsage"]["Final"] = False
    held = {**NO_NUMBERS, "JobStatus": 5, "HoldReason": HELD}
    return [
        ad(10, **held), ad(11, **held), ad(9, **NO_NUMBERS, JobStatus=1), running,
        ad(2, **{**LIVES, "JobLensUsage": None}),
    ]  # fmt: skip


def listed(ads: list[dict[str, Any]], now: float = BEGAN + 3600) -> list[job_table.JobLine]:
    ordered = sorted(ads, key=lambda each: each["ProcId"])
    return [job_table.job_line({name: v for name, v in each.items() if v is not None}, now) for each in ordered]


def test_the_queue_in_80_columns_with_those_that_run_first_and_why_others_are_held() -> None:
    found = q.lines(listed(queue()), " of alice", Style(80))
    assert "\n".join(found) == QUEUE
    assert max(map(len, found)) <= 80


def test_the_queue_of_several_owners_names_them() -> None:
    lines = q.lines(listed([*queue(), ad(20, **LIVES, Owner="production_service")]), "", Style(80))
    assert lines[1].split()[:3] == ["JOB", "OWNER", "STATE"] and max(map(len, lines)) <= 80
    assert any("production_servi  running" in line for line in lines)


@pytest.mark.parametrize("width", [40, 72, 80])
def test_neither_list_is_wider_than_the_terminal(width: int) -> None:
    ads = [ad(number, ClusterId=12345678, Owner=f"user{number}", RequestMemory=900) for number in range(990, 999)]
    for ended in ads:
        ended["Cmd"], ended["CompletionDate"] = "/x/" + "n" * 70, BEGAN
    for lines in (q.lines(listed(ads), "", Style(width)), history.lines(listed(ads), "", 9, Style(width))):
        assert max(map(len, lines)) <= width


def test_the_history_tells_how_each_job_ended(accesspoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crash = {"Death": "SIGSEGV in reco (core dumped)"}
    gone = {**NO_NUMBERS, "JobStatus": 3, "RemoveReason": "via condor_rm (by user alice)"}
    fill(accesspoint, [ad(3, **gone), ad(1, seconds=3600), ad(2, ExitBySignal=True, ExitSignal=11, usage=crash)])
    assert main.main(["history", "--owner", "alice"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "3 jobs of alice: 2 ended, 1 removed"
    assert lines[1].split() == ["JOB", "ENDED", "WALL", "EFF", "MEMORY", "WAITS", "HOW"]
    assert [line.split()[0] for line in lines[2:]] == ["5.3", "5.1", "5.2"], "the latest first, as HTCondor has them"
    assert lines[2].endswith("removed: via condor_rm (by user alice)")
    assert re.search(r"1:00:00  80%  0\.2/2\.0 GiB  20% cvmfs  exit 0$", lines[3])
    assert lines[4].endswith("SIGSEGV in reco (core dumped)")
    asked = (accesspoint / "history.arguments").read_text().splitlines()
    assert asked[:4] == ["-constraint", 'Owner == "alice"', "-limit", "20"]


def test_the_history_tells_what_failed_in_a_job_that_ended_well() -> None:
    inside = {"FirstFailure": "xrdcp exited 54, 12 s before the end"}
    [line] = listed([ad(1, usage=inside)])
    assert history.lines([line], "", None, Style(120))[-1].endswith("exit 0, but xrdcp exited 54, 12 s before the end")
    assert line.record()["FirstFailure"] == inside["FirstFailure"]


def test_the_history_says_that_there_may_be_more(accesspoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(accesspoint, [ad(1), ad(2)])
    assert main.main(["history", "-n", "2", "--all"]) == 0
    assert capsys.readouterr().out.startswith("the latest 2 jobs: 2 ended; -n shows more\n")
    assert main.main(["history", "--since", "2h", "--all"]) == 0
    asked = (accesspoint / "history.arguments").read_text().splitlines()
    assert "-limit" not in asked and asked[:3] == ["-constraint", "true", "-since"]
    assert abs(time.time() - 7200 - int(asked[3].rpartition(" ")[2])) < 600


def test_both_lists_as_json(accesspoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(accesspoint, [ad(1, seconds=3600)], queue())
    assert main.main(["history", "5", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["JobId"], one["WallSeconds"], one["CpuEfficiency"]) == ("5.1", 3600, 0.8)
    assert one["Waits"] == pytest.approx({"running": 0.8, "cvmfs": 0.2}) and "Reason" not in one
    assert main.main(["q", "5", "--json"]) == 0
    states = [job["State"] for job in json.loads(capsys.readouterr().out)]
    assert states == ["running", "running", "idle", "held", "held"]
    assert (accesspoint / "queue.arguments").read_text().splitlines()[:2] == ["-allusers", "5"]


@pytest.mark.parametrize(("command", "where"), [("q", "queue"), ("history", "history")])
def test_a_job_that_is_not_there_is_named(
    command: str, where: str, accesspoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main([command, "99.0"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"joblens: job 99.0 is not in this access point's {where}: ") and "everybody" not in said
    assert main.main([command, "99"]) == 1
    assert capsys.readouterr().err.startswith(f"joblens: no job of cluster 99 is in this access point's {where}: ")


@pytest.mark.parametrize("command", ["q", "history"])
def test_what_names_no_job_is_one_line(command: str, accesspoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, code in ((["5; rm"], 2), (["5", "--owner", "bob"], 2), (["--owner", "nobody"], 1)):
        assert main.main([command, *arguments]) == code
        said = capsys.readouterr()
        assert said.out == "" and said.err.startswith("joblens: ") and said.err.count("\n") == 1


@pytest.mark.parametrize("command", ["q", "history"])
def test_an_expression_that_htcondor_cannot_read_is_named(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(name: str, *arguments: str, timeout: float) -> str:
        raise JobLensError(f"{name} fails: Failed to fetch ads from: <10.0.0.1:9618>")

    monkeypatch.setattr(access_points, "ask", fails)
    assert main.main([command, "--constraint", "foo bar(\033"]) == 1
    told = capsys.readouterr().err
    assert told.endswith("<10.0.0.1:9618>; is this a ClassAd expression? foo bar(\\x1b\n")
    assert main.main([command]) == 1 and "expression" not in capsys.readouterr().err


def test_whatever_an_owner_writes_into_the_ad_is_one_harmless_line() -> None:
    usage = {"Level": "\x1b]0;", "Cpu": {"AverageCores": "many"}}
    evil: dict[str, Any] = {
        "Cmd": "/x/\x1b[2J\n", "Owner": "a\nb", "JobCurrentStartDate": "now", "RequestMemory": "a*b", "JobStatus": "x",
        "JobLensUsage": usage,
    }  # fmt: skip
    line = job_table.job_line(ad(1, **evil), NOW)
    for lines in (q.lines([line], "", Style(80)), history.lines([line], "", None, Style(80))):
        assert len(lines) == 3 and all(each.isprintable() for each in lines)


# -- the summary ----------------------------------------------------------------------------------------------

SUMMARY = """\
Job 12.0 of alice on slot1_1, ended after 3 h 12 min, 1 min ago
Ended      {ended}
Death      payload.py exited 1; first failure: xrdcp exited 54, 12 s before
CPU        0.95 of 1 core (95 %) on average; 3 h 2 min of CPU time
Memory     1.4 of 2.0 GiB (70 %) in its largest process
I/O        read 3.4 GB in 52,000 calls; wrote 12.0 MB in 900 calls; from
           storage 3.3 GB, to storage 12.0 MB
Time       cvmfs 63 %, running 30 %, other sleep 3 %, network 2 %
Network    TCP sent 1.2 MB, received 900.0 MB; 12 connections made;
           1 connection failed; 7 segments sent again; round trip 12.3 ms
Processes  3,400 created; 3,300 started a program; 3,396 ended; 2 of them
           with an exit code other than 0
joblens job 12.0 has more"""


def one(*rows: Any) -> runs.Run:
    (found,) = runs.from_rows(*rows)
    return found


def test_the_summary_of_an_ended_job_fits_a_mail() -> None:
    death = "payload.py exited 1; first failure: xrdcp exited 54, 12 s before"
    page = job_mail.render(one(busy(final=True, death=death)), NOW + 60)
    assert "\n".join(page) == SUMMARY.format(ended=time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(NOW)))
    assert max(map(len, page)) <= job_mail.WIDTH


def test_the_summary_tells_what_failed_in_a_job_that_ended_well() -> None:
    page = job_mail.render(one(busy(final=True, first_failure="xrdcp exited 54, 12 s before the end")), NOW + 60)
    assert "Failure    xrdcp exited 54, 12 s before the end" in page


def test_the_summary_says_what_is_remarkable_and_stays_short() -> None:
    rows = bob(final=False, complete=False, memory_oom_kills=3, uncounted="x" * 100, slot="slot1_2@node7")
    page = job_mail.render(one(rows), NOW)
    assert len(page) <= 40 and "! these numbers are not complete" in page
    assert page[-1] == "joblens job 13.4 has more, on node7"
    assert job_mail.render(runs.Run({}, {}), NOW)[0] == "Job ? of ?, running for 0.0 s"


def test_the_summary_of_a_job_in_the_history(accesspoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(accesspoint, [ad(1, seconds=3600)])
    assert main.main(["job", "5.1", "--summary"]) == 0
    said = capsys.readouterr().out
    assert "completed with exit code 0" in said and "cvmfs 20 %" in said and "\x1b" not in said


# -- what is news, and what is not ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "words", "is_news"),
    [
        ({"cpu_seconds": 0.1, "cpu_run_queue_seconds": 0.5}, "for a CPU", False),
        ({"cpu_seconds": 100.0, "cpu_run_queue_seconds": 61.0}, "for a CPU", True),
        ({"cpu_idle_seconds": 599.0}, "next to nothing", False),
        ({"cpu_idle_seconds": 660.0}, "next to nothing for 11 min", True),
        ({"cpu_idle_seconds": 660.0, "final": True}, "next to nothing", False),
        ({"memory_hours_to_limit": 25.0}, "its memory grows", False),
        ({"memory_hours_to_limit": 23.0}, "its memory grows", True),
    ],
)
def test_a_remark_is_made_of_what_is_news(columns: dict[str, Any], words: str, is_news: bool) -> None:
    assert (words in "\n".join(job_page.remarkable(one(row(**columns)), NOW))) is is_news


def test_a_job_that_does_nothing_is_told_with_what_it_waited_for() -> None:
    remarks = "\n".join(job_page.remarkable(one(busy(cpu_idle_seconds=720.0, request_memory_bytes=4 * GIB)), NOW))
    assert "it has done next to nothing for 12 min; of its time until now 63 % cvmfs; `joblens hang` on" in remarks
    both = "\n".join(job_page.remarkable(one(busy(cpu_idle_seconds=720.0, hang_suspected=1)), NOW))
    assert "nothing for 12 min" in both and both.count("`joblens hang` on its node") == 1
