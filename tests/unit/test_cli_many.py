"""`--cluster`: one command to all running jobs of a cluster, told as they answer; how many failed is the exit code."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from control_socket import Server, servers

from condor_joblens.cli import many
from condor_joblens.cli.main import main
from condor_joblens.common.errors import JobLensError, Refusal
from condor_joblens.control import SOCKET
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import Refused, Request

FIELDS = {"ParentPid": 1, "State": "S", "Threads": 1, "CpuSeconds": 1.5, "MemoryBytes": 3 << 20, "WallSeconds": 7.0}


class Queue:
    """What condor_q says, and how it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.ads: list[dict[str, Any]] = []
        self.everybodys: list[dict[str, Any]] = []

    def has(self, cluster: int, *processes: object) -> None:
        """These run, the caller's: each in a slot of its own machine, and all slots have one name."""
        self.ads = [
            {"ClusterId": cluster, "ProcId": process, "RemoteHost": f"slot1_1@n{process}"} for process in processes
        ]

    def read_ads(self, *command: str, attributes: Sequence[str]) -> list[dict[str, Any]]:
        self.asked.append(command)
        return self.everybodys if "-allusers" in command else self.ads


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    found = Queue()
    monkeypatch.setattr(many.accesspoint, "read_ads", found.read_ads)
    return found


@pytest.fixture
def joblensd(tmp_path: Path) -> Iterator[Server]:
    """One that knows the jobs 12.0 and 12.2, and not 12.1."""

    def begin(request: Request, stream: Stream) -> None:
        job = request.arguments["job"]
        if job == "12.1":
            raise Refused("no job 12.1 runs on this node")
        stream.send(b"=" + json.dumps({"Pid": 10, **FIELDS, "Command": f"reco of {job}"}).encode())
        stream.send(b"!2 more processes are not shown")
        stream.send(b".")
        stream.end({})

    with servers(str(tmp_path / SOCKET)) as serve:
        yield serve(begin)


def test_every_job_that_runs_is_asked_and_what_failed_is_counted(
    joblensd: Server, queue: Queue, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queue.has(12, 2, 0, 1, "x", True)
    assert main(["ps", "--cluster", "12", "--run-dir", str(tmp_path)]) == 1
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert queue.asked == [("condor_q", "-constraint", "ClusterId == 12 && JobStatus == 2")]
    for job, slot in (("12.0", "slot1_1@n0"), ("12.2", "slot1_1@n2")):
        head, process, notice = lines[(at := lines.index(f"job {job} in {slot}") + 1) : at + 3]
        assert head.split()[0] == "PID" and process.endswith(f"reco of {job}")
        assert notice == "joblens: 2 more processes are not shown"
    assert said.err == "joblens: job 12.1: joblensd refuses: no job 12.1 runs on this node\n"
    assert lines[-1] == "2 jobs of 3 answered, 1 refused"
    queue.has(12, 0, 2)
    assert main(["ps", "--cluster", "12", "--run-dir", str(tmp_path)]) == 0


def test_as_json_each_job_is_a_line(
    joblensd: Server, queue: Queue, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queue.has(12, 0, 1)
    assert main(["ps", "--cluster", "12", "--json", "--run-dir", str(tmp_path)]) == 1
    lines = sorted(map(json.loads, capsys.readouterr().out.splitlines()), key=lambda each: each["JobId"])
    assert [each["JobId"] for each in lines] == ["12.0", "12.1"]
    assert lines[0]["Processes"] == [{"Pid": 10, **FIELDS, "Command": "reco of 12.0"}]
    assert lines[0]["Notices"] == ["2 more processes are not shown"]
    why = "joblensd refuses: no job 12.1 runs on this node"
    assert lines[1] == {"JobId": "12.1", "Error": why, "Slot": "slot1_1@n1"}


def test_levels_too(joblensd: Server, queue: Queue, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queue.has(12, 0, 1)
    arguments = ["level", "--cluster", "12", "io", "--for", "10m", "--run-dir", str(tmp_path)]
    assert main(arguments) == 0
    *told, last = capsys.readouterr().out.splitlines()
    assert sorted(told) == [f"job ? in slot1_1@n{job} is watched at basic" for job in (0, 1)]
    assert last == "2 jobs of 2 answered"
    assert sorted(request.arguments["job"] for request in joblensd.asked) == ["12.0", "12.1"]
    assert {(request.arguments["level"], request.arguments["for"]) for request in joblensd.asked} == {(2, 600)}
    assert main([*arguments, "--json"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert {"JobId": "12.1", "Level": "basic", "Slot": "slot1_1@n1"} in map(json.loads, told)


@pytest.mark.parametrize(
    "ads, why",
    [
        ([], "cluster 12 is not in this access point's queue: joblens jobs 12 and"),
        ([("alice", 2), ("alice", 1), ("alice", 2)], "the running jobs of cluster 12 are not yours: they are alice's"),
        ([("alice", 1), ("alice", 5), ("alice", 5), ("x", 99)], "no job of cluster 12 runs: 1 idle, 2 held, 1 of an"),
        ([(f"\x1b{n}", 2) for n in range(9)], "they are \\x1b0, \\x1b1, \\x1b2 and others's"),
    ],
)
def test_why_no_job_of_it_can_be_asked(
    ads: list[tuple[str, int]], why: str, queue: Queue, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queue.everybodys = [{"Owner": owner, "JobStatus": status} for owner, status in ads]
    assert main(["ps", "--cluster", "12", "--run-dir", str(tmp_path)]) == 1
    assert why in capsys.readouterr().err


def test_a_reason_is_said_once_and_all_who_have_it_are_named(
    queue: Queue, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(job: str) -> str:
        raise Refusal("not yours") if job != "12.3" else JobLensError("no answer")

    monkeypatch.setattr(many, "AT_A_TIME", 1)  # one after the other
    queue.has(12, 0, 1, 2, 3)
    assert many.run(12, ask, lambda *_: "", None) == 4
    said = capsys.readouterr()
    assert said.out == "0 jobs of 4 answered, 3 refused, 1 failed\n"
    assert sorted(said.err.splitlines()) == [
        "joblens: 2 more jobs as 12.0: 12.1 12.2",
        "joblens: job 12.0: not yours",
        "joblens: job 12.3: no answer",
    ]
    assert many.run(12, ask, lambda *_: "", dict) == 4
    said = capsys.readouterr()
    assert said.out.count('"Error": "not yours"') == 3 and said.err == ""


def test_staff_asks_jobs_of_all(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBLENS_STAFF_KEY", "/nowhere")
    many.running(12)
    assert queue.asked == [("condor_q", "-allusers", "-constraint", "ClusterId == 12 && JobStatus == 2")]


def test_an_answer_is_told_while_others_are_awaited() -> None:
    told = threading.Event()

    def ask(job: str) -> str:
        if job == "12.0":
            assert told.wait(60)
        return job

    found = many.answers(["12.0", "12.1"], ask)
    assert next(found) == ("12.1", "12.1")
    told.set()
    assert list(found) == [("12.0", "12.0")]


@pytest.mark.parametrize(("count", "code"), [(0, 0), (2, 2), (100, 100), (101, 101), (300, 101)])
def test_the_exit_code_is_how_many_failed(
    count: int, code: int, queue: Queue, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(job: str) -> str:
        if int(job.partition(".")[2]) < count:
            raise JobLensError("no")
        return job

    monkeypatch.setattr(many, "PAUSE", 0.0)
    queue.has(12, *range(count + 1))
    assert many.run(12, ask, lambda job, slot, answer: answer, None) == code
    rest = f", {count} failed" if count else ""
    assert capsys.readouterr().out.splitlines()[-1] == f"1 job of {count + 1} answered{rest}"


def test_beyond_some_jobs_one_is_asked_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(many.time, "sleep", slept.append)
    jobs = [f"12.{process}" for process in range(25)]
    assert sorted(job for job, _ in many.answers(jobs, lambda job: job)) == sorted(jobs)
    assert slept == [many.PAUSE * many.AT_A_TIME] * 5


@pytest.mark.parametrize("wrong", [["12.0", "--cluster", "12"], [], ["--cluster", "12", "--via", "ssh"]])
def test_either_a_job_or_a_cluster(wrong: list[str], queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ps", *wrong]) == 2
    assert capsys.readouterr().err.startswith("joblens: ") and queue.asked == []
