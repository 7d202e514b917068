"""`joblens watch`: a line for each row that comes, and how it ends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from control_socket import Server, servers

from condor_joblens.cli.main import main
from condor_joblens.cli.terminal import Style
from condor_joblens.control import SOCKET
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import Refused, Request
from condor_joblens.model.metrics import SCHEMA_HASH, empty_rows


def row(cores: float, **facts: object) -> bytes:
    rows = empty_rows(1)
    now = int(time.time())
    known = {"job_id": b"12.0", "owner": b"alice", "slot": b"slot1_1", "level": b"io", "request_cpus": 1.0}
    for name, value in {
        **known,
        "start_time": now - 65,
        "update_time": now,
        "cpu_recent_cores": cores,
        **facts,
    }.items():
        rows[name] = value
    return rows.tobytes()


@pytest.fixture
def joblensd(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    def make(*rows: bytes) -> Server:
        def begin(request: Request, stream: Stream) -> None:
            if request.arguments["job"] != "12.0":
                raise Refused("no job 13.0 runs on this node")
            for each in rows:
                stream.send(each)
            stream.end({})

        return serve(begin)

    with servers(str(tmp_path / SOCKET)) as serve:
        yield make


def test_a_line_a_row_and_how_the_job_ended(
    joblensd: Callable[..., Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = joblensd(row(0.5), row(0.98), row(0.0, final=True, death=b"killed by SIGKILL"))
    assert main(["watch", "12.0", "--run-dir", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "job 12.0 of alice in slot1_1"
    assert lines[1].split() == ["LEVEL", "CORES", "MEMORY", "READ", "WRITTEN", "PROC", "TIME"]
    assert [line.split()[:2] for line in lines[2:-1]] == [["io", "0.50/1"], ["io", "0.98/1"], ["io", "0.00/1"]]
    assert len({line.index("/1") for line in lines[2:-1]}) == 1, "columns stand below each other"
    assert lines[-1] == "the job is over: killed by SIGKILL"
    assert server.asked[0].arguments == {"job": "12.0", "schema": f"{SCHEMA_HASH:016x}"}


def test_a_note_is_said_below_when_it_comes_and_when_it_goes(
    joblensd: Callable[..., Server], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("condor_joblens.cli.watch.style", lambda: Style(width=80))
    note = b"joblensd was stopped while the job ran: its numbers lack what it did meanwhile, which is much"
    joblensd(row(0.5), row(0.6, note=note), row(0.7, note=note), row(0.8))
    assert main(["watch", "12.0", "--run-dir", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert lines[4] + lines[5][1:] == f"note: {note.decode()}"
    assert lines[8] == "note: all is well again" and len(lines) == 10


def test_as_many_lines_as_are_wanted(
    joblensd: Callable[..., Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    joblensd(*[row(number) for number in range(5)])
    assert main(["watch", "12.0", "-n", "2", "--json", "--run-dir", str(tmp_path)]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["JobLensUsage"]["Cpu"]["RecentCores"] for record in records] == [0, 1]


def test_a_refusal_is_one_line_and_exit_code_1(
    joblensd: Callable[..., Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    joblensd()
    assert main(["watch", "13.0", "--run-dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "joblens: joblensd refuses: no job 13.0 runs on this node\n"


def test_rows_of_another_size_are_not_taken_apart(
    joblensd: Callable[..., Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    joblensd(row(1)[:-1])
    assert main(["watch", "12.0", "--run-dir", str(tmp_path)]) == 1
    assert "install the same version of both" in capsys.readouterr().err
