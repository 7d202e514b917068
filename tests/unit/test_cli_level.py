"""`joblens level`: what it asks for, what it says, and what it refuses before it asks."""

from __future__ import annotations

import json
import selectors
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.cli.level import sentence
from condor_joblens.cli.main import main
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.control import SOCKET, frames
from condor_joblens.control.client import granted, read_answer
from condor_joblens.control.server import ControlServer
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import Refused, Request
from condor_joblens.model.levels import Level

ANSWER = {"job_id": "12.0", "slot": "slot1_1", "level": "io", "policy": "by hand", "reason": "by alice until 14:05"}


class Joblensd:
    """The socket of one, with answers of its own."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[Request] = []
        self._selector = selectors.DefaultSelector()
        self._socket = ControlServer(str(folder / SOCKET), self._selector, self, print)
        self._over = False
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def stream(self, request: Request, stream: Stream) -> None:
        raise Refused("no test of this file asks for a stream")

    def answer(self, request: Request) -> dict[str, str]:
        self.asked.append(request)
        if request.verb == "say":
            return {"progress": "30 %: step 3"}
        if request.arguments["job"] == "13.0":
            raise Refused("no job 13.0 runs on this node")
        return ANSWER

    def _serve(self) -> None:
        while not self._over:
            for key, _ in self._selector.select(0.05):
                key.data()

    def stop(self) -> None:
        self._over = True
        self._thread.join()
        self._socket.close()


def test_a_job_says_how_far_it_is(joblensd: Joblensd, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ["--run-dir", str(tmp_path)]
    for said in (["say", "step", "3"], ["progress", "0.3"], ["progress", "30%", "step", "3"], ["progress", "1"]):
        assert main([*said, *folder]) == 0
    assert [(request.verb, request.arguments) for request in joblensd.asked] == [
        ("say", {"words": "step 3"}),
        ("say", {"share": 0.3}),
        ("say", {"words": "step 3", "share": 0.3}),
        ("say", {"share": 1.0}),
    ]
    assert capsys.readouterr().out == "", "a job's output is its own"
    assert main(["say", "x", "--json", *folder]) == 0
    assert json.loads(capsys.readouterr().out) == {"Progress": "30 %: step 3"}
    for wrong in ("1.1", "-1", "nan", "x", "101%", ""):
        with pytest.raises(SystemExit):
            main(["progress", wrong, *folder])


@pytest.mark.parametrize("wrong", [["12.0", "io", "--cluster", "12"], [], ["io", "--cluster", "12", "--clear"]])
def test_either_a_job_or_a_cluster(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["level", *wrong]) == 2
    assert capsys.readouterr().err.startswith("joblens: ")


@pytest.fixture
def joblensd(tmp_path: Path) -> Iterator[Joblensd]:
    joblensd = Joblensd(tmp_path)
    yield joblensd
    joblensd.stop()


@pytest.mark.parametrize(
    "words, arguments",
    [
        (["12.0", "io"], {"job": "12.0", "level": Level.IO, "for": 600}),
        (["12.0", "io", "--for", "2h"], {"job": "12.0", "level": Level.IO, "for": 7200}),
        (["12.0", "io", "--for", "45"], {"job": "12.0", "level": Level.IO, "for": 45}),
        (["12.0", "--clear"], {"job": "12.0", "clear": True}),
        (["slot1_1"], {"job": "slot1_1"}),
    ],
)
def test_what_is_asked(joblensd: Joblensd, tmp_path: Path, words: list[str], arguments: dict[str, object]) -> None:
    assert main(["level", *words, "--run-dir", str(tmp_path)]) == 0
    assert [(request.verb, request.arguments) for request in joblensd.asked] == [("level", arguments)]


def test_the_answer_is_a_sentence(joblensd: Joblensd, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["level", "12.0", "io", "--run-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "job 12.0 in slot1_1 is watched at io: by hand, by alice until 14:05\n"


def test_json_has_the_names_of_every_record(
    joblensd: Joblensd, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["level", "12.0", "io", "--json", "--run-dir", str(tmp_path)]) == 0
    expected = {"JobId": "12.0", "Slot": "slot1_1", "Level": "io", "Policy": "by hand"}
    assert json.loads(capsys.readouterr().out) == {**expected, "Reason": "by alice until 14:05"}


def test_where_nobody_asked_it_is_the_site_s_default() -> None:
    answer = {"job_id": "1.0", "slot": "slot1", "level": "basic", "policy": "as asked", "reason": "the site's default"}
    assert sentence(answer) == "job 1.0 in slot1 is watched at basic: the site's default"


def test_a_refusal_is_one_line_and_exit_code_1(
    joblensd: Joblensd, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["level", "13.0", "io", "--run-dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "joblens: joblensd refuses: no job 13.0 runs on this node\n"


def test_without_joblensd_the_remedy_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["level", "12.0", "io", "--run-dir", str(tmp_path)]) == 1
    assert "is joblensd running on this node?" in capsys.readouterr().err


@pytest.mark.parametrize("time", ["0", "-1m", "25h", "10 m", "1.5h", "m", "", "²m", "9" * 20 + "s"])
def test_a_time_that_is_none_is_refused_with_what_would_be_one(time: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["level", "12.0", "io", f"--for={time}"])
    assert ended.value.code == 2
    assert "write 30s, 10m or 2h" in capsys.readouterr().err


def test_a_level_is_given_or_taken_back_not_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["level", "12.0", "io", "--clear", "--run-dir", str(tmp_path)]) == 2
    assert "leave LEVEL or --clear away" in capsys.readouterr().err


@given(st.binary(max_size=600))
def test_any_answer_is_fields_or_an_error(packet: bytes) -> None:
    try:
        fields = granted("level", read_answer(packet))
    except JobLensError:
        return
    assert all(value.isprintable() for value in fields.values())


@given(st.dictionaries(st.sampled_from(list(ANSWER)), st.text(st.characters(codec="ascii"), max_size=60)))
def test_what_is_granted_comes_through(fields: dict[str, str]) -> None:
    plain = {name: value.replace("\0", "") for name, value in fields.items()}
    packet = frames.encode_packet("done", {name: value.encode() for name, value in plain.items()}, 512)
    assert granted("level", read_answer(packet)) == {name: printable(value, 1000) for name, value in plain.items()}
