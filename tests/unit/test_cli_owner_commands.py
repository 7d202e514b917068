"""`joblens ps`, `tail` and `kill`: what a person is shown, whatever the job makes of it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from control_socket import Server, servers

from condor_joblens.cli import ps
from condor_joblens.cli.main import main
from condor_joblens.cli.tail import Harmless
from condor_joblens.control import SOCKET
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import Request

Make = Callable[..., Server]


@pytest.fixture
def joblensd(tmp_path: Path) -> Iterator[Make]:
    """joblensd that passes these messages on."""

    def make(*messages: bytes) -> Server:
        def begin(request: Request, stream: Stream) -> None:
            for message in messages:
                stream.send(message)
            stream.end({})

        return serve(begin)

    with servers(str(tmp_path / SOCKET)) as serve:
        yield make


def process(pid: int, parent: int, command: str) -> bytes:
    fields = {"State": "S", "Threads": 1, "CpuSeconds": 61.5, "MemoryBytes": 3 << 20, "WallSeconds": 3700.0}
    return b"=" + json.dumps({"Pid": pid, "ParentPid": parent, **fields, "Command": command}).encode()


def test_processes_as_a_tree(joblensd: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    processes = process(10, 1, "sh run.sh"), process(11, 10, "reco"), process(12, 11, "gzip"), process(20, 9, "other")
    server = joblensd(*processes, b"!2 more processes are not shown", b".")
    assert main(["ps", "12.0", "--run-dir", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].split() == ["PID", "STATE", "THREADS", "CPU", "TIME", "MEMORY", "COMMAND"]
    assert [line.partition("MiB  ")[2] for line in lines[1:]] == ["sh run.sh", "  reco", "    gzip", "other"]
    assert err == "joblens: 2 more processes are not shown\n"
    assert server.asked[0].arguments == {"job": "12.0"}
    assert main(["ps", "12.0", "--json", "--run-dir", str(tmp_path)]) == 0
    assert [each["Pid"] for each in json.loads(capsys.readouterr().out)] == [10, 11, 12, 20]


def test_parents_in_a_circle_are_shown_none_the_less() -> None:
    circle = [{"Pid": 1, "ParentPid": 2}, {"Pid": 2, "ParentPid": 1}, {"Pid": 3, "ParentPid": 3}]
    assert sorted(each["Pid"] for each, _ in ps.tree(circle)) == [1, 2, 3]


@pytest.mark.parametrize("said", [b"=[]", b"={}", b"=\xff", b"=" + b"[" * 10_000, process(1, 1, "x")[:-2]])
def test_what_makes_no_sense_is_one_line(
    said: bytes, joblensd: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    joblensd(said, b".")
    assert main(["ps", "12.0", "--run-dir", str(tmp_path)]) == 1
    assert "makes no sense" in capsys.readouterr().err


def test_a_job_can_not_fool_a_terminal(joblensd: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    joblensd(process(1, 0, "\x1b[2J\n\u202e"), b"!\x1b[2J", b".")
    assert main(["ps", "12.0", "--run-dir", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err and "\u202e" not in out and len(out.splitlines()) == 2


def test_a_file_arrives_as_it_is(joblensd: Make, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    server = joblensd(b"=a\x1b[1m\n\xff", b"!it was truncated", b"=b\n", b".")
    assert main(["tail", "12.0", "logs/x", "-f", "-n", "3", "--run-dir", str(tmp_path)]) == 0
    out, err = capfdbinary.readouterr()
    assert (out, err) == (b"a\x1b[1m\n\xffb\n", b"joblens: it was truncated\n")
    assert server.asked[0].arguments == {"job": "12.0", "file": "logs/x", "lines": 3, "follow": True}


def test_its_beginning_and_all_of_it_too(
    joblensd: Make, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    server = joblensd(b"=a\n", b".")
    assert main(["head", "12.0", "-n", "3", "--run-dir", str(tmp_path)]) == 0
    assert main(["cat", "12.0", "logs/x", "--run-dir", str(tmp_path)]) == 0
    assert capfdbinary.readouterr().out == b"a\na\n"
    assert [(request.verb, request.arguments) for request in server.asked] == [
        ("head", {"job": "12.0", "file": "stdout", "lines": 3}),
        ("cat", {"job": "12.0", "file": "logs/x"}),
    ]


def test_a_folder_as_lines(joblensd: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = {"Kind": "file", "Mode": 0o640, "Bytes": 3_000_000, "DiskBytes": 0, "Modified": 0, "Target": ""}
    hostile = {**entry, "Name": "\x1b[2J\udcff", "Kind": "link", "Target": "\n", "Modified": 1 << 62, "Mode": -1}
    server = joblensd(*(b"=" + json.dumps(each).encode() for each in ({**entry, "Name": "log"}, hostile)), b".")
    assert main(["ls", "12.0", "logs", "--run-dir", str(tmp_path)]) == 0
    log, other = capsys.readouterr().out.splitlines()
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(0))
    assert log == f"rw-r-----     3.0 MB  {began}  log"
    assert "\x1b" not in other and "\\x1b[2J" in other and " -> " in other
    assert main(["ls", "12.0", "--json", "--run-dir", str(tmp_path)]) == 0
    assert next(each["Name"] for each in json.loads(capsys.readouterr().out)) == "log"
    assert [request.arguments["folder"] for request in server.asked] == ["logs", "."]


def test_on_a_terminal_it_is_harmless() -> None:
    shown = Harmless()
    assert shown.add("a\tä\n\x1b[2J\r".encode() + b"\xc2") == "a\tä\n\\x1b[2J\\x0d".encode()
    assert shown.add(b"\x9b1m\xff") == b"\\x9b1m\\xff"


def test_why_there_is_no_more(joblensd: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    joblensd(b"?it is no regular file, but a pipe")
    assert main(["tail", "12.0", "x", "--run-dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "joblens: it is no regular file, but a pipe\n"


def test_an_answer_that_is_cut_off_is_said_to_be(
    joblensd: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    joblensd(b"=a\n")
    assert main(["tail", "12.0", "--run-dir", str(tmp_path)]) == 1
    assert "this is not all" in capsys.readouterr().err


@pytest.mark.parametrize("word, number", [("TERM", 15), ("sigusr1", 10), ("9", 9), ("64", 64)])
def test_signals_by_name_and_number(
    word: str, number: int, joblensd: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = joblensd(b'={"Pid":7,"Signal":"SIGX","Command":"reco"}', b".")
    assert main(["kill", "12.0", "7", "-s", word, "--run-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "SIGX to process 7: reco\n"
    assert server.asked[0].arguments == {"job": "12.0", "pid": 7, "signal": number}


@pytest.mark.parametrize(
    "wrong", [["kill", "1.0", "-s", "0"], ["kill", "1.0", "-s", "65"], ["kill", "1.0", "0"], ["tail", "1.0", "-n", "x"]]
)
def test_wrong_usage(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(wrong)
    assert sys.argv and capsys.readouterr().err
