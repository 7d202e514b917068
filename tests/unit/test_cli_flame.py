"""`joblens flame` and `joblens hot`: what a person gets of the profiles that joblensd has kept."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from agent_node import OWNER
from control_socket import Server
from profile_samples import hostile, profile, waits
from test_commands import Site
from test_commands_artifacts import about

from condor_joblens.cli import flame, hot, profiles
from condor_joblens.cli.main import main
from condor_joblens.cli.wait_lengths import COLUMNS
from condor_joblens.commands.dispatch import Dispatcher
from condor_joblens.control import SOCKET
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import Request
from condor_joblens.profiles import call_waits, pprof
from condor_joblens.profiles.profile import Profile, View
from condor_joblens.shm.artifact_header import Artifact
from condor_joblens.shm.artifacts import ArtifactLimits, ArtifactWriter


@pytest.fixture
def store(tmp_path: Path) -> ArtifactWriter:
    return ArtifactWriter(str(tmp_path / "artifacts"), ArtifactLimits(8 << 20, 64 << 20, 3600))


@pytest.fixture
def joblensd(tmp_path: Path, store: ArtifactWriter, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """joblensd with two minutes of job 12.0, one of 12.1, and a report of job 13.0 that is no profile."""
    monkeypatch.chdir(tmp_path)
    keep(store, profile())
    keep(store, profile(), begun=1.7e9 + 60)
    keep(store, profile(), job="12.1", number=8)
    store.add(about("13.0", 9), [b"a report"])
    site = Site()
    site.artifacts = store

    def begin(request: Request, stream: Stream) -> None:
        Dispatcher(site).stream(Request(request.verb, request.arguments, request.pid, 0), stream)

    server = Server(str(tmp_path / SOCKET), begin)
    yield str(tmp_path)
    server.stop()


def keep(store: ArtifactWriter, found: Profile, job: str = "12.0", number: int = 7, begun: float = 1.7e9) -> None:
    found.job, found.node, found.begun, found.ended = "", "", begun, begun + 60
    header = about(
        job,
        number,
        node="node01",
        kind="profile" if found.view is View.ON_CPU else "off_cpu",
        content_type=pprof.CONTENT_TYPE,
        begun=begun,
        ended=begun + 60,
        uid=OWNER,
    )
    store.add(header, [pprof.encode(found)])


def joblens(*arguments: str) -> int:
    return main([*arguments, "--run-dir", "."])


def test_a_picture_of_all_that_is_kept(joblensd: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert joblens("flame", "12.0") == 0
    said = capsys.readouterr().out
    assert said.startswith("flame.svg: job 12.0 on node01, on the CPU")
    assert "20 samples at 99 Hz; 4 lost" in said
    assert Path("flame.svg").read_text().startswith("<svg ") and os.stat("flame.svg").st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "form, begin", [("folded", b"_start"), ("pprof", b"\x1f\x8b"), ("speedscope", b"{"), ("json", b"{")]
)
def test_each_format_goes_where_it_is_wanted(joblensd: str, form: str, begin: bytes) -> None:
    assert joblens("flame", "12.0", "--format", form, "-o", "here") == 0
    assert Path("here").read_bytes().startswith(begin)


def test_only_some_of_the_time(joblensd: str, capsys: pytest.CaptureFixture[str]) -> None:
    day = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(1.7e9 + 60))
    for bound in ("--since", "--until"):
        assert joblens("flame", "12.0", "--json", bound, day) == 0
        assert json.loads(capsys.readouterr().out)["Samples"] == 10
    assert joblens("flame", "12.0", "--since", "1m") == 1
    assert "no profile of job 12.0 is kept" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        joblens("flame", "12.0", "--since", "yesterday")


def test_several_jobs_and_a_whole_cluster_in_one(joblensd: str, capsys: pytest.CaptureFixture[str]) -> None:
    for ids in (["12"], ["12.0", "12.1"]):
        assert joblens("flame", *ids, "--json") == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["JobId"], found["Samples"]) == ("12.0 12.1", 30)


def test_what_can_be_grouped(joblensd: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert joblens("flame", "12.0", "--format", "folded", "--thread", "--process", "--by", "library") == 0
    assert "python3 (100);reader;python3.11;fit.py (fit.py:0);libTree.so;[kernel]_[k] 6" in capsys.readouterr().out


def test_functions_by_line(joblensd: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def with_lines(found: Profile, uid: int | None) -> tuple[Profile, list[str]]:
        assert uid == OWNER
        changed = [(stack, replace(stack.frames[-1], file="/s/fit.cpp", line=7)) for stack in found.stacks]
        told = {stack: replace(stack, frames=(*stack.frames[:-1], leaf)) for stack, leaf in changed}
        return found.mapped(lambda stack: told[stack]), ["libx.so"]

    monkeypatch.setattr(flame, "with_lines", with_lines)
    assert joblens("flame", "12.0", "--lines", "--compare", "12.1") == 0
    assert "No lines of libx.so:" in capsys.readouterr().out and " (fit.cpp:7)" in Path("flame.svg").read_text()
    assert joblens("flame", "12.0", "--lines", "--format", "folded") == 0
    said = capsys.readouterr()
    assert " (fit.cpp:7)" in said.out and said.err.startswith("No lines of libx.so:")
    assert joblens("flame", "12.0", "--lines", "--by", "library") == 2


def test_a_picture_of_what_differs(joblensd: str) -> None:
    assert joblens("flame", "12.0", "--compare", "12.1") == 0
    assert "against job 12.1" in Path("flame.svg").read_text()
    assert joblens("flame", "12.0", "--compare", "12.1", "--format", "folded") == 2


def test_what_is_in_no_profile_of_waits_is_said(
    joblensd: str, store: ArtifactWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(store, waits())
    for command in ("flame", "hot"):
        for view in ("--off-cpu", "--wall"):
            assert joblens(command, "12.0", view) == 0
            assert "page faults left out" in " ".join(capsys.readouterr().out.split())
            assert joblens(command, "12.0", view, "--json") == 0
            assert json.loads(capsys.readouterr().out)["Lacks"] == ["waits in page faults"]
        assert joblens(command, "12.0", "--json") == 0
        assert json.loads(capsys.readouterr().out)["Lacks"] == []
    joblens("flame", "12.0", "--off-cpu")
    assert "page faults left out" in Path("flame.svg").read_text()


def test_a_job_of_which_no_wait_is_kept(joblensd: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert joblens("flame", "12.0", "--off-cpu") == 1
    said = capsys.readouterr().err
    assert "no wait of job 12.0 is kept" in said and "`joblens stacks 12.0`" in said and said.count("\n") == 1
    assert not Path("flame.svg").exists()


def test_where_a_job_waits_and_for_what(
    joblensd: str, store: ArtifactWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(store, waits())
    assert joblens("flame", "12.0", "--off-cpu") == 0
    said = capsys.readouterr().out
    assert said.startswith("flame.svg: job 12.0 on node01, off the CPU, ")
    assert "; 2.000 s in 12 waits of 1 ms or more that have ended; 9 of them with a stack; 0.250 s without" in said
    assert "1.500 s, 75.00 %" in Path("flame.svg").read_text()
    assert joblens("flame", "12.0", "--off-cpu", "--format", "folded") == 0
    assert "_start;Tree::Fill(int);waits for a lock (futex)_[k] 1500000000" in capsys.readouterr().out
    assert joblens("flame", "12.0", "--off-cpu", "--format", "speedscope", "-o", "-") == 0
    assert {each["unit"] for each in json.loads(capsys.readouterr().out)["profiles"]} == {"nanoseconds"}
    assert joblens("flame", "12.0", "--off-cpu", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [found[name] for name in ("View", "Unit", "Waits", "Samples")] == [
        "off the CPU",
        "nanoseconds",
        12,
        2 * 10**9,
    ]
    assert joblens("hot", "12.0", "--off-cpu", "-n", "1") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "75.0 %  75.0 %  waits for a lock (futex)  [kernel]"


def test_what_runs_and_what_waits_in_one(
    joblensd: str, store: ArtifactWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sample on the CPU stands for the time until the next one."""
    keep(store, waits())
    assert joblens("flame", "12.0", "--wall", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["View"], found["Samples"]) == ("on the CPU or off it", 2 * 10**9 + 20 * round(1e9 / 99))
    assert joblens("hot", "12.0", "--wall", "--follow") == 2
    assert "leave --wall out" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        joblens("flame", "12.0", "--wall", "--off-cpu")


def test_a_job_without_a_profile(joblensd: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert joblens("flame", "13.0") == 1
    assert "it needs level profile" in capsys.readouterr().err


def kept_waits(begun: float, **classes: call_waits.ClassWaits) -> call_waits.CallWaits:
    return call_waits.CallWaits(begun, begun + 60, classes)


def test_how_long_calls_waited(joblensd: str, store: ArtifactWriter, capsys: pytest.CaptureFixture[str]) -> None:
    assert joblens("hot", "12.0", "--waits") == 1
    assert "how long calls of job 12.0 wait is not kept" in capsys.readouterr().err
    lengths = [0] * len(call_waits.LENGTHS_NS)
    lengths[0], lengths[8], lengths[9], lengths[-1] = 5, 2, 3, 1  # below 4 us, below 1 ms, from 1 ms, from 4 s
    first = call_waits.ClassWaits(1_234_000, tuple(lengths), 1_500_000, 6_004_000_000)
    for number, found in (
        (6, kept_waits(1.6e9, Read=first)),  # of an earlier run
        (7, kept_waits(1.7e9, Read=first, Open=call_waits.ClassWaits(3))),
        (7, kept_waits(1.7e9 + 60, Read=first)),  # after joblensd was started anew
    ):
        header = about("12.0", number, node="node01", kind=call_waits.KIND, uid=OWNER, content_type="application/json")
        store.add(replace(header, run=header.run if number == 7 else "x"), [call_waits.encode(found)])
    assert joblens("hot", "12.0", "--waits") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("job 12.0 on node01, waits of system calls, ")
    assert "14 waits below a millisecond, 0.003 s together; 8 longer ones, 12.008 s" in " ".join(lines[1:3])
    assert lines[-3].split() == ["CALLS", "DID", "NOT", "WAIT", *(name for name, _ in COLUMNS), "LONGER", "WAITED"]
    assert lines[-2].split() == ["Read", "2,468,000", "10", "0", "4", "6", "0", "0", "2", "12", "s"]
    assert lines[-1].split() == ["Open", "3", *"0000000", "-"]
    assert joblens("hot", "12.0", "--waits", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["JobId"] == "12.0" and told["Classes"]["Read"]["Waits"][9] == 6
    with pytest.raises(SystemExit):
        joblens("hot", "12.0", "--waits", "--off-cpu")


def test_waits_that_another_version_has_kept_are_said_to_be(
    joblensd: str, store: ArtifactWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    header = about("12.0", 7, node="node01", kind=call_waits.KIND, uid=OWNER, content_type="application/json")
    store.add(header, [b'{"FromNanoseconds": [0, 10]}'])
    assert joblens("hot", "12.0", "--waits") == 1
    assert "waits of other lengths" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"[" * 9999, b"{}", b'{"FromNanoseconds": 1}', call_waits.encode(kept_waits(0.0))[:-9]]
)
def test_what_are_no_waits_are_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        call_waits.decode(content)


def test_what_is_hot(joblensd: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert joblens("hot", "12.0", "-n", "2") == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()[2:]] == [
        ["SELF", "TOTAL", "FUNCTION"],
        ["60.0", "%", "90.0", "%", "Tree::Fill(int)", "libTree.so"],
        ["30.0", "%", "30.0", "%", "vfs_read", "[kernel]"],
    ]
    assert joblens("hot", "12.0", "--by", "line", "--total", "--json") == 0
    found = json.loads(capsys.readouterr().out)["Hottest"]
    assert [each["Name"] for each in found][:2] == ["fit.py:41 fit_tracks", "_start"]


def test_each_part_as_it_comes(
    joblensd: str, store: ArtifactWriter, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = []

    def sleep(seconds: float) -> None:
        times.append(seconds)
        if len(times) > 2:
            raise KeyboardInterrupt
        if len(times) == 1:
            keep(store, profile(), begun=1.7e9 + 120)

    monkeypatch.setattr(hot.time, "sleep", sleep)
    assert joblens("hot", "12.0", "--follow", "--json") == 130
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["BeginTime"] - 1.7e9 for each in found] == [60, 120]


def test_a_part_that_two_older_ones_have_become_is_not_new(
    joblensd: str, store: ArtifactWriter, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = []

    def sleep(seconds: float) -> None:
        times.append(seconds)
        if len(times) > 2:
            raise KeyboardInterrupt
        keep(store, profile(), begun=1.7e9)

    monkeypatch.setattr(hot.time, "sleep", sleep)
    assert joblens("hot", "12.0", "--follow", "--json") == 130
    assert [json.loads(line)["BeginTime"] - 1.7e9 for line in capsys.readouterr().out.splitlines()] == [60]


def test_parts_that_become_one_while_they_are_read(
    joblensd: str, store: ArtifactWriter, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, listed = store.stored(7)[0].name, profiles.listed

    def and_then_it_is_gone(path: str, job: str, **which: bool) -> list[Artifact]:
        found = listed(path, job, **which)
        store.delete(first)
        return found

    monkeypatch.setattr(profiles, "listed", and_then_it_is_gone)
    assert joblens("flame", "12.0", "--json") == 0
    assert json.loads(capsys.readouterr().out)["Samples"] == 10


def test_a_terminal_gets_no_commands_of_a_job(
    joblensd: str, store: ArtifactWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(store, hostile(), job="14.0", number=10)
    for arguments in (["hot", "14.0"], ["hot", "14.0", "--by", "file"], ["flame", "14.0"], ["hot", "14.0", "--json"]):
        assert joblens(*arguments) == 0
        assert capsys.readouterr().out.replace("\n", "").isascii()
        assert joblens("hot", "14.0") == 0 and capsys.readouterr().out.replace("\n", "").isprintable()


def test_a_profile_that_is_damaged_is_named(
    joblensd: str, store: ArtifactWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = store.add(about("15.0", 11, kind="profile"), [b"no profile"])
    assert joblens("hot", "15.0") == 1
    assert stored.name in capsys.readouterr().err
