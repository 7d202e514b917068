"""`joblens trace ID --source`: the lines of scripts beside their calls and times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from control_socket import Server
from test_commands import Site
from test_commands_artifacts import about
from traced_samples import BEGUN, function

from condor_joblens.cli import annotate
from condor_joblens.cli.main import main
from condor_joblens.cli.source_lines import asked_of
from condor_joblens.cli.terminal import Style
from condor_joblens.commands.dispatch import Dispatcher
from condor_joblens.control import SOCKET
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import Request
from condor_joblens.profiles import annotated, traced_calls
from condor_joblens.profiles.profile import Frame, Kind, Profile, Stack
from condor_joblens.profiling import source_text
from condor_joblens.shm.artifacts import ArtifactLimits, ArtifactWriter

SCRIPT = """\
import time

@cache
def fit(run):
    for at in range(9):
        work(at)
    return run


class Fitter:
    def load(self):
        raise KeyError(1)

x = 3
"""


def content(path: str) -> bytes:
    """Three calls of fit, four of load, of which one is unwound."""
    functions = [
        function("fit (fit.py:3)", File=path),
        function("Fitter.load (fit.py:11)", File=path, Calls=4, Unwound=1, TotalSeconds=0.5),
        function("reco::fit(int)", File="/home/alice/reco"),
    ]
    calls: list[list[Any]] = [
        [BEGUN, 1, 1, 0, None, "returned", 0.5, "left at line 7", 0],
        [BEGUN, 1, 1, 0, None, "returned", 0.5, "left at line 7", 0],
        [BEGUN, 1, 1, 1, None, "raised", None, "KeyError at line 12", 1],
    ]
    told = {"Begun": BEGUN, "Ended": BEGUN + 10, "Functions": functions}
    return traced_calls.encode(told, calls)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A script of job 12.0, whose trace joblensd has kept."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "job" / "fit.py"
    path.parent.mkdir()
    path.write_text(SCRIPT)
    tmp_path.chmod(0o755)
    monkeypatch.setattr(annotate, "asked_of", lambda _, asked, uid: {"texts": [source_text.read(asked["paths"][0])]})
    store = ArtifactWriter(str(tmp_path / "artifacts"), ArtifactLimits(8 << 20, 64 << 20, 3600))
    store.add(about("12.0", 7, kind="trace", content_type=traced_calls.CONTENT_TYPE), [content(str(path))])
    site = Site()
    site.artifacts = store

    def begin(request: Request, stream: Stream) -> None:
        Dispatcher(site).stream(Request(request.verb, request.arguments, request.pid, 0), stream)

    server = Server(str(tmp_path / SOCKET), begin)
    yield path
    server.stop()


def joblens(*arguments: str) -> int:
    return main(["trace", "12.0", *arguments, "--run-dir", "."])


def test_functions_and_ends_of_calls_stand_beside_their_lines(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert joblens("--source") == 0
    title, _, *lines = capsys.readouterr().out.splitlines()
    assert title == str(script)
    by_text = {line[44:].strip(): line[:35].split() for line in lines[:10]}
    assert by_text["@cache"] == ["3", "7.0", "ms"] and by_text["return run"] == ["2"]
    assert by_text["def load(self):"] == ["4", "500.0", "ms"] and by_text["raise KeyError(1)"] == ["!"]
    assert by_text["work(at)"] == [] and "x = 3" not in by_text and "import time" not in by_text


def test_json_has_each_line_with_its_numbers(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert joblens("--source", "--json") == 0
    (file,) = json.loads(capsys.readouterr().out)["Files"]
    (load,) = (line for line in file["Lines"] if line["Function"] == "Fitter.load")
    assert (load["Line"], load["Calls"], load["Unwound"], load["Text"]) == (11, 4, 1, "    def load(self):")


def test_a_file_that_is_another_one_by_now_is_not_shown(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_text("\n\n" + SCRIPT.replace("load", "read"))
    assert joblens("--source") == 0
    said = capsys.readouterr().out
    assert "it is not the file that ran" in said and "raise KeyError" not in said and "Fitter.load" in said


def test_the_script_of_whoever_asks_will_do(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.rename(script.parent.parent / "fit.py")
    assert joblens("--source") == 0
    assert "No such file" in capsys.readouterr().out
    assert joblens("--source", "--script", "fit.py") == 0
    assert "raise KeyError(1)" in capsys.readouterr().out
    assert joblens("--source", "--script", "other.py") == 1


@pytest.mark.parametrize("words", [("--script", "fit.py"), ("--source", "--tree"), ("a:b", "--source")])
def test_words_that_contradict_each_other(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert joblens(*words) == 2


def test_samples_on_the_cpu_are_seconds_of_lines_once_a_stack() -> None:
    frame = Frame("fit", kind=Kind.PYTHON, file="/job/fit.py", line=5)
    profile = Profile(0.0, 1.0, 100.0)
    profile.add(Stack((frame, frame, Frame("work", kind=Kind.PYTHON, file="/job/fit.py", line=6))), 50)
    (source,) = annotated.sources([], profile)
    assert (source.lines[5].cpu, source.lines[6].cpu) == (0.5, 0.5)


def test_hostile_scripts_cost_a_bounded_page() -> None:
    source = annotated.Source("/\x1b[2J")
    source.functions = {1: "\x1b[2J.\u202e", 10**6: "f"}
    for number in (1, 2, 10**6):
        source.lines[number].calls = 1
    source.text = ["def\x1b[2J\u202e" + "x" * 10_000] * 50_000
    assert not annotated.fits(source)
    lines = annotate.page(source, Style(120))
    assert len(lines) < 100 and all(line.isprintable() and len(line) <= 120 for line in lines)
    json.dumps(annotated.record(source))


def test_what_is_no_file_of_text_is_not_read(tmp_path: Path) -> None:
    big = tmp_path / "big"
    with big.open("w") as file:
        file.truncate(source_text.MOST_BYTES + 1)
    assert source_text.read(str(big)) == [None, "it has more than 1 MiB"]
    for path in (str(tmp_path), "fit.py", "/\0", "/dev/zero"):
        assert source_text.read(path)[0] is None, path


def test_for_root_a_process_of_the_jobs_user_reads(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of nobody else")
    secret.chmod(0o000)  # root alone reads that
    found = asked_of(annotate._READER, {"paths": [str(secret), __file__]}, 65534)["texts"]
    assert found[0] == [None, "Permission denied"] and found[1] is not None
