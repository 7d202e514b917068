"""`joblens hang` and `joblens stacks`: what a person is shown of what joblensd says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from control_socket import Server

from condor_joblens.cli import hang, source_lines, stacks
from condor_joblens.cli.main import main
from condor_joblens.cli.runs import Run
from condor_joblens.common.errors import JobLensError
from condor_joblens.control import SOCKET
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import Refused, Request
from condor_joblens.profiles.evidence import parse


def lines(pid: int, what: str, cause: str = "file") -> bytes:
    thread = {"tid": pid, "pid": pid, "parent": 1, "name": "reco", "state": "D", "waited": 61.0, "call": "read"}
    wait = {"cause": cause, "object": what, "holder": "", "holder_pid": 0, "holder_tid": 0}
    frame = {"function": "Tree::fill(int)", "file": "/x/libTree.so", "offset": 7, "line": 0}
    frame |= {"python": False, "guessed": False}
    parts = [
        {"part": "threads", "threads": [{**thread, "kernel": ["fuse_read", "do_syscall_64"]}], "left_out": 0},
        {
            "part": "waits",
            "cause": cause,
            "sentence": f"process {pid} waits: {what}",
            "tid": pid,
            "waits": {str(pid): wait},
        },
        {"part": "stacks", "pid": pid, "stacks": [{"tids": [pid], "frames": [frame], "whole": True}], "refused": ""},
        {"part": "end"},
    ]
    return b"".join(json.dumps(part).encode() + b"\n" for part in parts)


@pytest.fixture
def joblensd(tmp_path: Path) -> Iterator[str]:
    """joblensd with four jobs; the last one is refused."""

    def begin(request: Request, stream: Stream) -> None:
        job = request.arguments["job"]
        if job == "4.0":
            raise Refused("the job is not watched")
        said = lines(int(job[0]) * 10, "/cvmfs/x" if job in ("1.0", "3.0") else "/home/y")
        # as it comes: in pieces of any size
        for at in range(0, len(said), 100):
            stream.send(said[at : at + 100])
        stream.end({})

    server = Server(str(tmp_path / SOCKET), begin)
    yield str(tmp_path)
    server.stop()


def test_the_sentence_then_each_thread(joblensd: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hang", "1.0", "--run-dir", joblensd]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "process 10 waits: /cvmfs/x; called by Tree::fill(int) in libTree.so",
        "cause: file",
        "",
        "process 10 (reco), child of 1",
        "  thread 10 (reco)  D 61.0 s in read  file: /cvmfs/x",
        "      kernel  fuse_read",
        "      at      Tree::fill(int)",
    ]


def test_each_function_of_a_stack(joblensd: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stacks", "1.0", "--run-dir", joblensd]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "thread 10 (reco), process 10: D 61.0 s in read",
        "    fuse_read  [kernel]",
        "    do_syscall_64  [kernel]",
        "    Tree::fill(int)  libTree.so",
        "",
    ]


def test_a_stack_whose_lines_are_not_known_says_so(joblensd: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stacks", "1.0", "--lines", "--run-dir", joblensd]) == 0
    said = capsys.readouterr().out
    assert "    Tree::fill(int)  libTree.so" in said.splitlines() and "No lines of libTree.so:" in said
    assert main(["stacks", "1.0", "--lines", "--json", "--run-dir", joblensd]) == 0
    assert json.loads(capsys.readouterr().out)["WithoutLines"] == ["libTree.so"]


def test_a_stack_is_shown_also_if_no_line_can_be_read(
    joblensd: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is of this moment, and another one may not come: addr2line is missing, say, or the process is gone."""

    def refused(*_: object) -> None:
        raise JobLensError("addr2line is missing: install binutils")

    monkeypatch.setattr(source_lines, "read", refused)
    assert main(["stacks", "1.0", "--lines", "--run-dir", joblensd]) == 0
    said = capsys.readouterr().out
    assert "    Tree::fill(int)  libTree.so" in said.splitlines()
    assert "No lines of libTree.so: addr2line is missing: install binutils." in " ".join(said.split())
    assert main(["stacks", "1.0", "--lines", "--json", "--run-dir", joblensd]) == 0
    assert json.loads(capsys.readouterr().out)["WithoutLines"] == ["libTree.so"]


def test_as_whom_root_reads_lines_is_the_jobs_user_whichever_process_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that may not be dumped seems to be root's."""
    owners = {"/proc/10": 0, "/proc/11": 1000}

    def stat(path: str) -> SimpleNamespace:
        if path not in owners:
            raise FileNotFoundError(2, "gone", path)
        return SimpleNamespace(st_uid=owners[path])

    monkeypatch.setattr(stacks.os, "stat", stat)
    threads = [SimpleNamespace(pid=pid) for pid in (9, 10, 10, 11)]
    assert stacks._user_of(SimpleNamespace(threads=threads)) == 1000  # type: ignore[arg-type]
    assert stacks._user_of(SimpleNamespace(threads=threads[:2])) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("command", ["hang", "stacks"])
def test_for_programs(command: str, joblensd: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "2.0", "--json", "--run-dir", joblensd]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["Cause"], record["Whole"]) == ("file", True)
    assert record["Threads"][0]["Stack"][0]["Function"] == "Tree::fill(int)"


def test_all_jobs_of_a_node_by_what_they_wait_for(
    joblensd: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [Run({"run": f"{number}.0", "job_id": f"{number}.0"}, {}) for number in range(1, 5)]
    monkeypatch.setattr(hang, "living", lambda folder: (runs, 0.0))
    assert main(["hang", "--all", "--run-dir", joblensd]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2 jobs: file: /cvmfs/x",
        "    1.0 3.0",
        "1 job: file: /home/y",
        "    process 20 waits: /home/y; called by Tree::fill(int) in libTree.so",
        "    2.0",
        "4.0: joblensd refuses: the job is not watched",
    ]
    assert main(["hang", "--all", "--json", "--run-dir", joblensd]) == 0
    records = json.loads(capsys.readouterr().out)
    assert [record.get("Cause") for record in records] == ["file", "file", "file", None]


def test_jobs_of_which_only_the_cause_is_the_same_have_a_sentence_each() -> None:
    found = [
        (Run({"run": f"{number}.0", "job_id": f"{number}.0"}, {}), parse(lines(10 + number, "a mutex", "mutex")))
        for number in range(12)
    ]
    head, *sentences, rest = hang.page_of_all(found)
    assert (head, rest) == ("12 jobs: mutex", "    10.0 11.0")
    assert [line.split()[:3] for line in sentences] == [[f"{each}.0:", "process", f"{10 + each}"] for each in range(10)]


def test_of_a_job_that_runs_the_command_is_named_that_shows_where() -> None:
    assert hang.where_it_runs(parse(lines(10, "", "runs")), "64.0") == [
        "",
        "where it runs: joblens hot 64.0, at level profile",
        "  joblens level 64.0 profile --for 10m asks for that",
    ]
    assert hang.where_it_runs(parse(lines(10, "/x", "file")), "64.0") == []


@pytest.mark.parametrize(
    ("cause", "what", "shared"),
    [
        ("file", "/site/f70 (fuse.site at /site) at byte 917504", "/site (fuse.site)"),
        ("file", "/site/f (x at /y) (fuse.site at /site) at byte 0", "/site (fuse.site)"),
        ("page", "a page of /cvmfs/x/lib.so (fuse at /cvmfs/x)", "/cvmfs/x (fuse)"),
        ("file", "/site/opened", "/site/opened"),
        ("file lock", "a lock on /home/l (nfs4 at /home)", "a lock on /home/l (nfs4 at /home)"),
        ("network", "tcp 127.0.0.1:30400 -> 127.0.0.1:8099, established", "tcp to 127.0.0.1:8099"),
        ("network", "tcp 10.0.0.1:4 -> [2001:db8::1]:80, in an unknown state", "tcp to [2001:db8::1]:80"),
        ("network", "tcp 10.0.0.1:4 -> 10.0.0.2:80, established, and 2 others", "tcp to 10.0.0.2:80, and 2 others"),
        ("network", "udp 10.0.0.1:4 -> 10.0.0.2:53", "udp to 10.0.0.2:53"),
        ("network", "udp 10.0.0.1:4 -> 10.0.0.2:53, and 1 others", "udp to 10.0.0.2:53, and 1 others"),
        ("network", "unix socket /run/x", "unix socket /run/x"),
        ("mutex", "a mutex at 0x1", ""),
    ],
)
def test_jobs_that_wait_for_one_server_wait_for_the_same(cause: str, what: str, shared: str) -> None:
    assert hang.awaited(parse(lines(10, what, cause))) == shared


def test_a_job_that_ends_while_others_are_asked_is_no_refusal(
    joblensd: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [Run({"run": f"{number}.0", "job_id": f"{number}.0"}, {}) for number in range(1, 5)]
    looks = [runs, runs[:3]]
    monkeypatch.setattr(hang, "living", lambda folder: (looks.pop(0), 0.0))
    assert main(["hang", "--all", "--run-dir", joblensd]) == 0
    page = capsys.readouterr().out.splitlines()
    assert page[-1] == "ended meanwhile: 4.0" and not any("refuses" in line for line in page)


@pytest.mark.parametrize("arguments", [[], ["1.0", "--all"]])
def test_one_job_or_all(arguments: list[str], joblensd: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hang", *arguments, "--run-dir", joblensd]) == 2
    assert "say which job" in capsys.readouterr().err
