"""`joblens trace ID --timeline`: where it is from, what it says is missing, and which words it takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from control_socket import Server
from test_cli_plot import line_of
from test_commands import Site
from test_commands_artifacts import about
from timeline_samples import BEGUN, events
from traced_samples import content

from condor_joblens.cli import timeline_processes
from condor_joblens.cli.main import main
from condor_joblens.commands.dispatch import Dispatcher
from condor_joblens.control import SOCKET
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import Request
from condor_joblens.model.events import EVENT, EventKind
from condor_joblens.profiles import last_events, traced_calls
from condor_joblens.profiles.last_events import Coverage, Event
from condor_joblens.profiles.timeline import Life
from condor_joblens.shm.artifacts import ArtifactLimits, ArtifactWriter
from condor_joblens.shm.history import RECORD, SERIES, HistoryWriter
from condor_joblens.shm.ring import EventWriter

RUN = "ap.example.org#12.0#1700000000#1"


@pytest.fixture
def joblensd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ArtifactWriter]:
    """joblensd with last events and a trace of job 12.0."""
    monkeypatch.chdir(tmp_path)
    store = ArtifactWriter(str(tmp_path / "artifacts"), ArtifactLimits(8 << 20, 64 << 20, 3600))
    kept = last_events.encode(Coverage(BEGUN + 9.8, "death", "exit 1", BEGUN, BEGUN, BEGUN, 0, 0, 0), events())
    encoded: Any = {"content_type": last_events.CONTENT_TYPE, "content_encoding": last_events.CONTENT_ENCODING}
    store.add(about("12.0", 7, kind="recorder", **encoded), [kept])
    store.add(about("12.0", 7, kind="trace", content_type=traced_calls.CONTENT_TYPE), [content()])
    site = Site()
    site.artifacts = store

    def begin(request: Request, stream: Stream) -> None:
        Dispatcher(site).stream(Request(request.verb, request.arguments, request.pid, 0), stream)

    server = Server(str(tmp_path / SOCKET), begin)
    yield store
    server.stop()


def joblens(*arguments: str) -> int:
    return main(["trace", *arguments, "--run-dir", "."])


def test_what_is_kept_makes_a_page_a_picture_and_json(
    joblensd: ArtifactWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    assert joblens("12.0", "--timeline", "--since", "2025-11-26T00:00") == 0
    said = capsys.readouterr().out
    assert "71 python3" in said and "80 xrdcp" in said and "No curves: root" in said
    assert joblens("12.0", "--timeline", "-o", "job.svg") == 0
    assert capsys.readouterr().out.startswith("job.svg: job 12.0, ")
    assert Path("job.svg").read_text().startswith("<svg")
    assert joblens("12.0", "--timeline", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert {each["Pid"] for each in told["Processes"]} == {71, 80}
    assert {each["Function"] for process in told["Processes"] for each in process["Calls"]} == {"main_loop", "fit(int)"}


def test_the_last_hour_on_the_node_makes_curves(joblensd: ArtifactWriter, capsys: pytest.CaptureFixture[str]) -> None:
    records = np.zeros(1, RECORD)
    records["run"], records["values"] = RUN.encode(), np.nan
    records["values"][0, -3:] = [[1.0, 2 << 30, 5e6, 0.0]] * 3
    HistoryWriter("history", -1).write(records, BEGUN + 9)
    assert joblens("12.0", "--timeline", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert len(SERIES) == 4 and [each["Title"] for each in told["Curves"]] == ["CPU", "Memory", "I/O by calls"]
    assert told["Curves"][1]["Points"] == [[BEGUN + 9 - minute * 60, 2.0] for minute in (2, 1, 0)]


def test_a_file_of_the_sink_has_curves_and_processes(
    joblensd: ArtifactWriter, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ended = {
        "Type": "event",
        "GlobalJobId": "s#2.0#1",
        "Run": "s#2.0#1#1",
        "Kind": "Exit",
        "Pid": 9,
        "Time": 1795000020.0,
    }
    lines = [line_of("2.0", at, StartTime=1_795_000_000.0) for at in (0, 10, 20)]
    lines += [
        json.dumps({**ended, "Program": "cat", "ExitCode": 3, "LivedSeconds": 4.5}),
        "{",
        "[]",
        '{"Type":"event"}',
    ]
    lines += [json.dumps({**ended, "Run": "s#12.0#1#1", "Pid": 10}), json.dumps({**ended, "Pid": "x"})]
    Path("records.jsonl").write_text("\n".join(lines))
    assert joblens("2.0", "--timeline", "--series", "records.jsonl", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    (process,) = told["Processes"]
    assert (process["Pid"], process["Begun"], process["Ending"]) == (9, 1_795_000_015.5, "status 3")
    assert [each["Title"] for each in told["Curves"]] == ["CPU, user"] and told["Curves"][0]["Points"][0][1] == 0.5
    assert any(each.startswith("No calls") for each in told["Remarks"])


def test_the_ring_of_the_node_has_the_latest_of_the_run(tmp_path: Path) -> None:
    found = np.zeros(3, EVENT)
    found["run_number"], found["pid"], found["time"], found["program"] = [7, 7, 8], [5, 5, 6], 1000.0, b"cat"
    found["kind"], found["text"] = [EventKind.EXEC, EventKind.EXIT, EventKind.EXEC], b"cat x"
    found["exit_code"], found["lived_seconds"] = 9, 2.5
    EventWriter(str(tmp_path / "events"), 1 << 20, -1).append(found)
    assert list(timeline_processes.latest(str(tmp_path / "events"), 7)) == [
        Event(1000.0, 5, "cat", "exec", about="cat x"),
        Life(5, 997.5, 1000.0, "cat", 0, "SIGKILL"),
    ]


def test_one_that_can_not_be_read_is_left_out_and_said(
    joblensd: ArtifactWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    joblensd.add(about("12.0", 7, kind="trace", content_type=traced_calls.CONTENT_TYPE), [b"{}"])
    assert joblens("12.0", "--timeline") == 0
    assert "is left out: this is no trace" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, why",
    [
        (("--timeline", "--tree"), "leave out SPEC"),
        (("reco:fit", "--timeline"), "leave out SPEC"),
        (("--timeline", "-o", "job.png"), "is no .svg"),
        (("--since", "10m"), "are of --timeline"),
        (("--series", "x"), "are of --timeline"),
    ],
)
def test_words_that_contradict_each_other(words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert joblens("12.0", *words) == 2
    assert why in capsys.readouterr().err


def test_a_job_of_which_nothing_is_kept(joblensd: ArtifactWriter, capsys: pytest.CaptureFixture[str]) -> None:
    assert joblens("13.0", "--timeline") == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
