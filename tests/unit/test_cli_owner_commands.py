"""`joblens ps`, `tail` and `kill`: what a person is shown, whatever the job makes of it."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from control_socket import Begin, Server, servers
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.cli import child_output, get, notify, ps, tail, top_processes
from condor_joblens.cli.main import main
from condor_joblens.cli.tail import Harmless
from condor_joblens.control import SOCKET
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import Request
from condor_joblens.owner_files import notices

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


@pytest.mark.parametrize("arguments", [["head", "12.0"], ["tail", "12.0"], ["cat", "12.0"], ["log", "12.0"]])
def test_as_json_a_file_arrives_in_pieces(
    arguments: list[str], joblensd: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    joblensd(b">stdout", b"=a\xc3", b"=\xa9\n", b"=\xff\x00", b"!it was truncated", b"=b\xe2\x82", b".")
    assert main([*arguments, "--json", "--run-dir", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    pieces = [{"Text": "a"}, {"Text": "é\n"}, {"Base64": "/wA="}, {"Note": "it was truncated"}, {"Text": "b"}]
    assert [json.loads(line) for line in out.splitlines()] == [{"File": "stdout"}, *pieces, {"Base64": "4oI="}]
    assert err == ""


@given(st.lists(st.binary(max_size=6) | st.sampled_from(["é".encode(), b"\xe2", b"\x82", b"\xac"])))
def test_pieces_joined_are_what_has_come(parts: list[bytes]) -> None:
    pieces = tail.Pieces()
    found = [each for part in parts for each in pieces.add(part)] + pieces.rest()
    assert b"".join(b64decode(each.get("Base64", "")) or each["Text"].encode() for each in found) == b"".join(parts)
    assert len(found) <= len(parts) + 1


@pytest.mark.parametrize("verb", ["head", "tail", "cat"])
def test_a_files_name_can_not_fool_a_terminal(
    verb: str, joblensd: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "\x1b[2J\udcff"
    server = joblensd(b"=a\n", b"!\x1b[2J was replaced", b"?\x1b[2J is no regular file")
    assert main([verb, "12.0", name, "--run-dir", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert out == "a\n" and "\x1b" not in err and err.count("\\x1b[2J") == 2
    assert server.asked[0].arguments["file"] == name


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


def test_a_job_is_told_something(joblensd: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = joblensd()
    assert main(["notify", "12.0", "stop", "soon", "--run-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "job 12.0 has it in .joblens/notices of its scratch folder\n"
    assert server.asked[0].arguments == {"job": "12.0", "text": "stop soon"}
    assert main(["notify", "12.0", "é" * 501, "--run-dir", str(tmp_path)]) == 2
    assert len(server.asked) == 1 and "at most 1000 bytes" in capsys.readouterr().err
    assert f"{notices.FOLDER}/{notices.NAME}" == notify.FILE


def test_both_streams_are_told_apart(joblensd: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    server = joblensd(b">stdout: /x/\x1b[2J", b"=a\n", b">stderr: /y", b"=b\n", b"!stderr was truncated", b".")
    assert main(["log", "12.0", "-f", "-n", "3", "--run-dir", str(tmp_path)]) == 0
    out, err = capfd.readouterr()
    assert out == "==> stdout: /x/\\x1b[2J <==\na\n\n==> stderr: /y <==\nb\n"
    assert err == "joblens: stderr was truncated\n"
    assert server.asked[0].arguments == {"job": "12.0", "lines": 3, "follow": True}


def test_variables_as_lines(joblensd: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = {"Name": "A", "Value": "\x1b[2J"}, {"Name": "B"}, {"Name": "C", "Value": "1"}
    server = joblensd(*(b"=" + json.dumps(each).encode() for each in said), b"!it has more", b".")
    assert main(["env", "12.0", "7", "--run-dir", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("A=\\x1b[2J\nB\nC=1\n", "joblens: it has more\n")
    assert main(["env", "12.0", "--json", "--run-dir", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)[1:] == [{"Name": "B"}, {"Name": "C", "Value": "1"}]
    assert [request.arguments for request in server.asked] == [{"job": "12.0", "pid": 7}, {"job": "12.0"}]


def test_a_variable_is_a_line_a_process(joblensd: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = {"File": "/home/alice/reco", "Variable": "state.run[3]"}
    said = {"Pid": 7, **common, "Type": "int", "Value": "22\x1b"}, {"Pid": 8, **common, "Why": "not resident"}
    server = joblensd(*(b"=" + json.dumps(each).encode() for each in said), b"!64 are looked at", b".")
    assert main(["peek", "12.0", "reco:state.run[3]", "--run-dir", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert out == "7  reco  state.run[3] = 22\\x1b  (int)\n8  reco  state.run[3]: not resident\n"
    assert err == "joblens: 64 are looked at\n"
    assert main(["peek", "12.0", "reco:state.run[3]", "7", "--json", "--run-dir", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)[1] == said[1]
    asked = {"job": "12.0", "spec": "reco:state.run[3]"}
    assert [request.arguments for request in server.asked] == [asked, {**asked, "pid": 7}]


def test_a_series_is_a_line_a_value(joblensd: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = {"Time": 1700000000.5, "Pid": 7, "File": "/home/alice/reco", "Variable": "event"}
    said = {**common, "Why": "not resident"}, {**common, "Type": "int", "Value": "22\x1b"}, {**common, "Time": 1e300}
    server = joblensd(*(b"=" + json.dumps(each).encode() for each in said), b"!the job has ended", b".")
    asked = ["peek", "12.0", "reco:event", "--every", "2s", "--run-dir", str(tmp_path)]
    assert main([*asked, "--for", "1m"]) == 0
    out, err = capsys.readouterr()
    assert [line[8:] for line in out.splitlines()] == [
        "  7  reco  event: not resident", "  7  reco  event = 22\\x1b  (int)", "  7  reco  event: ",
    ]  # fmt: skip
    assert re.fullmatch(r"\d\d:\d\d:20", out[:8]) and "--:--:--" in out and err == "joblens: the job has ended\n"
    assert main([*asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[1])["Time"] == 1700000000.5
    arguments = {"job": "12.0", "spec": "reco:event", "follow": True, "every": 2}
    assert [request.arguments for request in server.asked] == [
        {**arguments, "seconds": 60},
        {**arguments, "seconds": 3600},
    ]
    assert main(["peek", "12.0", "reco:event", "--for", "1m", "--run-dir", str(tmp_path)]) == 2
    assert "how often by --every" in capsys.readouterr().err


NODE = {
    **{"Host": "n1", "Kernel": "6.1 x86_64", "JobLens": "0.2", "UptimeSeconds": 86400, "Cpus": 64, "Load": 3.5},
    **{"MemoryBytes": 4 << 30, "MemoryAvailableBytes": 1 << 30, "CpuPressure": 1.5, "MemoryPressure": 0.0},
    **{"IoPressure": -1, "ScratchBytes": 10**12, "ScratchFreeBytes": 10**11},
}


def test_the_machine_of_a_job(joblensd: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = {"JobId": "12.0", "Slot": "slot1_1", "Level": "\x1b[2J", "StartTime": int(time.time()) - 7200}
    joblensd(*(b"=" + json.dumps(each).encode() for each in (NODE, job)), b".")
    assert main(["node", "12.0", "--run-dir", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("n1: Linux 6.1 x86_64, JobLens 0.2, up for 1 d")
    assert lines[1] == "64 CPUs with a load of 3.5; memory: 1.0 GiB of 4.0 GiB available"
    assert lines[2:4] == [
        "scratch folder: 100.0 GB of 1.0 TB free",
        "waits of the last 10 s, by all jobs: CPU 1.5 %, memory 0 %",
    ]
    assert lines[4].split() == ["JOB", "SLOT", "LEVEL", "TIME"] and "\\x1b[2J" in lines[5]
    assert main(["node", "12.0", "--json", "--run-dir", str(tmp_path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["Host"] == "n1" and [each["JobId"] for each in told["Jobs"]] == ["12.0"]


def test_processes_live(joblensd: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = top_processes.Sample(
        [{"Pid": 1, "WallSeconds": 10.0, "CpuSeconds": 1.0}, {"Pid": 2, "WallSeconds": 10.0, "CpuSeconds": 1.0}],
        100.0,
        {},
    )
    later = [{"Pid": 1, "WallSeconds": 12.0, "CpuSeconds": 4.0}, {"Pid": 2, "WallSeconds": 1.0, "CpuSeconds": 0.5}]
    assert top_processes.used(first, later, 102.0) == {1: 1.5}, "the other one has begun since then"
    joblensd(process(10, 1, "sh run.sh"), process(11, 10, "reco\x1b"), b"!2 more processes are not shown", b".")
    assert main(["top", "12.0", "-n", "1", "-d", "0.1", "--run-dir", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 processes, 0.00 cores" and lines[1].split()[:2] == ["PID", "STATE"]
    assert "reco\\x1b" in lines[3] and lines[4] == "2 more processes are not shown"
    assert main(["top", "12.0", "-n", "1", "-d", "0.1", "--json", "--run-dir", str(tmp_path)]) == 0
    assert [each["Cores"] for each in json.loads(capsys.readouterr().out)] == [0.0, 0.0]


# -- get ------------------------------------------------------------------------------------------------------


class Remote:
    """A file of a job, behind joblensd; pages of so many bytes."""

    def __init__(self, folder: Path, content: bytes) -> None:
        self.content, self.page, self.identity, self.asked = content, 30_000, "1:2", list[int]()
        self.breaks_after = 1 << 60  # pages

    def begin(self, request: Request, stream: Stream) -> None:
        offset = request.arguments["offset"]
        self.asked.append(offset)
        header = {"Bytes": len(self.content), "File": self.identity, "Mode": 0o644}
        stream.send(b"=" + json.dumps(header).encode())
        if len(self.asked) <= self.breaks_after:
            stream.send(b"=" + self.content[offset : offset + self.page])
            stream.send(b".")
        stream.end({})


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Remote]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(get, "PAGES_AT_ONCE", 1 << 30)
    monkeypatch.setattr(get, "OVERLAP", 1000)
    found = Remote(tmp_path, os.urandom(200_000))
    with servers(str(tmp_path / SOCKET)) as serve:
        serve(found.begin)
        yield found


def fetch(*more: str) -> int:
    return main(["get", "12.0", "logs/x", "--run-dir", ".", *more])


def test_what_has_no_name_of_a_file_is_asked_for_all_the_same(remote: Remote, tmp_path: Path) -> None:
    for name in ("..", "logs/.", "/"):
        assert main(["get", "12.0", name, "--run-dir", ".", "-o", "."]) == 0
        (tmp_path / "file").unlink()


def test_a_file_is_fetched_page_by_page(remote: Remote, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fetch() == 0
    assert (tmp_path / "x").read_bytes() == remote.content and remote.asked == list(range(0, 200_000, 30_000))
    assert capsys.readouterr().err == "x: 200.0 kB\n"
    assert fetch() == 1
    assert "x is there already: take --continue" in capsys.readouterr().err
    assert fetch("-o", "y", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"File": "y", "Bytes": 200_000}
    (tmp_path / "folder").mkdir()
    assert fetch("-o", "folder") == fetch("-o", "folder", "--continue") == 0, "in a folder it has its own name"
    assert capsys.readouterr().err == "folder/x: 200.0 kB\n" * 2
    assert (tmp_path / "folder/x").read_bytes() == remote.content
    assert fetch("-o", "folder") == 1 and fetch("-o", "nowhere/") == 1
    said = capsys.readouterr().err
    assert "folder/x is there already" in said and "nowhere/: there is no such folder" in said


def test_what_is_broken_off_is_gone_on_with(remote: Remote, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    remote.breaks_after = 3
    assert fetch() == 1
    assert "90.0 kB are in x: --continue goes on" in capsys.readouterr().err
    remote.breaks_after = 1 << 60
    remote.content += b"grown"
    assert fetch("--continue") == 0
    assert (tmp_path / "x").read_bytes() == remote.content
    assert remote.asked[4] == 90_000 - get.OVERLAP, "the end of what is here is compared"
    assert fetch("--continue") == 0, "nothing is left"


def test_a_name_with_escapes_is_the_files_name_here_and_harmless_on_a_terminal(
    remote: Remote, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "\x1b[2J\u202e\udcff"
    command = ["get", "12.0", f"logs/{name}", "--run-dir", "."]
    remote.breaks_after = 3
    assert main(command) == 1, "it is broken off"
    remote.breaks_after = 1 << 60
    assert main(command) == 1, "it is there already"
    assert main([*command, "--continue"]) == 0
    assert (tmp_path / name).read_bytes() == remote.content
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err and "\u202e" not in out + err
    assert err.count("\\x1b[2J") == 3 == len(err.splitlines())


def test_another_file_is_not_put_behind_what_is_here(
    remote: Remote, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x").write_bytes(b"of yesterday")
    assert fetch("--continue") == 1
    assert "is not the beginning of that file" in capsys.readouterr().err
    assert (tmp_path / "x").read_bytes() == b"of yesterday"


def test_a_file_that_is_replaced_meanwhile_is_said(remote: Remote, capsys: pytest.CaptureFixture[str]) -> None:
    begin = remote.begin

    def replacing(request: Request, stream: Stream) -> None:
        remote.identity = f"1:{len(remote.asked)}"
        begin(request, stream)

    with servers("other.sock") as serve:
        serve(replacing)
        os.replace("other.sock", SOCKET)
        assert fetch() == 1
    assert "it is another file now" in capsys.readouterr().err


def test_a_link_here_is_not_followed(remote: Remote, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.symlink(tmp_path / "elsewhere", tmp_path / "x")
    assert fetch() == fetch("--continue") == 1
    assert not (tmp_path / "elsewhere").exists()


def test_nothing_is_left_of_a_file_that_there_is_not(
    joblensd: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    joblensd(b"?the job's folder has no such file")
    assert fetch() == 1
    assert capsys.readouterr().err == "joblens: the job's folder has no such file\n"
    assert not (tmp_path / "x").exists()


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


def for_ever(message: bytes) -> Callable[[Request, Stream], None]:
    """A node that does not end."""

    def begin(request: Request, stream: Stream) -> None:
        def more() -> None:
            while stream.send(message):
                pass

        stream.on_room = more
        more()

    return begin


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Begin], Server]]:
    with servers(str(tmp_path / SOCKET)) as made:
        yield made


RECORD = (
    b"="
    + json.dumps(
        {
            **json.loads(process(1, 0, "x")[1:]),
            **NODE,
            **{"Name": "x", "Kind": "file", "Mode": 0, "Bytes": 1 << 40, "DiskBytes": 1, "Modified": 1, "Target": ""},
            **{"File": "1:2", "Signal": "SIGTERM", "JobId": "1.0", "Slot": "slot1", "Level": "io", "StartTime": 1},
        }
    ).encode()
)


@pytest.mark.parametrize("verb", ["ps", "ls", "env", "node", "kill"])
@pytest.mark.parametrize("message", [RECORD, b"!again and again", b""], ids=["records", "notices", "nothing"])
def test_records_that_never_end_are_not_collected(
    verb: str,
    message: bytes,
    serve: Callable[[Begin], Server],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    serve(for_ever(message or b"x"))
    assert main([verb, "12.0", "--run-dir", str(tmp_path)]) == 1
    assert "sent more than 4096 messages or 64 MiB" in capsys.readouterr().err


@pytest.mark.parametrize("verb", [["tail"], ["head"], ["cat"], ["log"], ["get", "x", "-o"]])
def test_a_file_that_never_ends_is_neither(
    verb: list[str],
    serve: Callable[[Begin], Server],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.setattr(child_output, "MOST_BYTES", 1 << 20)
    serve(for_ever(b"=" + (b"x" * 50_000 if verb != ["get", "x", "-o"] else RECORD[1:])))
    command = [verb[0], "12.0", *verb[1:], *([str(tmp_path / "local")] if "-o" in verb else [])]
    assert main([*command, "--run-dir", str(tmp_path)]) == 1
    out, err = capfdbinary.readouterr()
    assert b"sent more than 4096 messages or 1 MiB" in err and len(out) <= 1 << 20


def test_an_answer_that_comes_too_slowly_is_given_up(
    serve: Callable[[Begin], Server],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(child_output, "MOST_SECONDS", -1.0)
    serve(for_ever(RECORD))
    assert main(["ps", "12.0", "--run-dir", str(tmp_path)]) == 1
    assert "not whole within" in capsys.readouterr().err


def test_what_is_followed_has_no_bound(
    serve: Callable[[Begin], Server], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(child_output, "MOST_MESSAGES", 3)
    serve(for_ever(b"=x"))
    messages = child_output.messages(
        str(tmp_path / SOCKET), "tail", {"job": "12.0", "file": "x", "lines": "1", "follow": "1"}
    )
    assert [next(messages)[1] for _ in range(100)] == [b"x"] * 100
    messages.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("word, number", [("TERM", 15), ("sigusr1", 10), ("9", 9), ("64", 64)])
def test_signals_by_name_and_number(
    word: str, number: int, joblensd: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = joblensd(b'={"Pid":7,"Signal":"SIGX","Command":"reco"}', b".")
    assert main(["kill", "12.0", "7", "-s", word, "--run-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "SIGX to process 7: reco\n"
    assert server.asked[0].arguments == {"job": "12.0", "pid": 7, "signal": number}


@pytest.mark.parametrize(
    "words, number, pid",
    [
        (["-9", "12.0"], 9, None),
        (["-9", "12.0", "7"], 9, 7),
        (["12.0", "7", "-9"], 9, 7),
        (["12.0", "-USR1", "7"], 10, 7),
        (["-SIGUSR1", "12.0"], 10, None),
        (["-s9", "12.0"], 9, None),
        (["12.0", "-s", "USR1", "7"], 10, 7),
        (["-s", "stop", "12.0"], 19, None),
        (["-RTMIN", "12.0"], 34, None),
        (["12.0", "7"], 15, 7),
    ],
)
def test_signals_as_kill_takes_them(
    words: list[str], number: int, pid: int | None, joblensd: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = joblensd(b'={"Pid":7,"Signal":"SIGX","Command":"reco"}', b".")
    assert main(["kill", *words, "--run-dir", str(tmp_path)]) == 0
    given = {} if pid is None else {"pid": pid}
    assert server.asked[0].arguments == {"job": "12.0", "signal": number, **given}


@pytest.mark.parametrize(
    "words, why",
    [
        (["-0", "1.0"], "'0' is no signal"),
        (["-65", "1.0"], "'65' is no signal"),
        (["-NONE", "1.0"], "'NONE' is no signal"),
        (["-9", "1.0", "-15"], "two signals"),
        (["-9", "1.0", "-s", "TERM"], "two signals"),
        (["-9"], "required: ID"),
        (["12.0", "-s"], "is no signal"),
        (["1.0", "--", "-9"], "is no whole number above 0"),
    ],
)
def test_signals_that_are_none(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["kill", *words])
    assert left.value.code == 2 and why in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong", [["kill", "1.0", "-s", "0"], ["kill", "1.0", "-s", "65"], ["kill", "1.0", "0"], ["tail", "1.0", "-n", "x"]]
)
def test_wrong_usage(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(wrong)
    assert sys.argv and capsys.readouterr().err
