"""joblensd gives Pythons of a job that asks for it rings, and keeps what another process reads of them."""

from __future__ import annotations

import mmap
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from agent_node import Made, make

from condor_joblens.agent import python_calls, script_shares
from condor_joblens.agent.levels import level_arbiter, python_tracing
from condor_joblens.agent.output.run_artifacts import RunArtifacts
from condor_joblens.agent.python_calls import PythonCalls
from condor_joblens.control import frames
from condor_joblens.control.verbs import Refused
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import text
from condor_joblens.policy.trace_request import MOST_SPECS, TraceRequest, of_text
from condor_joblens.profiles import traced_calls
from condor_joblens.shm.artifacts import ArtifactLimits, ArtifactReader, ArtifactWriter
from condor_joblens.tracing import python_ring, recorder_reader

SECONDS = 60


class Reader:
    """Starts what reads rings as itself: who may start it as somebody else is another test's."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, channel: Any, *_: Any, **__: Any) -> Any:
        command = [sys.executable, "-m", recorder_reader.MODULE]
        self.started.append(subprocess.Popen(command, stdin=channel))
        return self.started[-1]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    return make(tmp_path, monkeypatch, max_level=Level.TRACE, max_jobs_trace=20, max_jobs_profile=20)


@pytest.fixture
def calls(made: Made, tmp_path: Path) -> Iterator[PythonCalls]:
    store = ArtifactWriter(str(tmp_path / "artifacts"), ArtifactLimits(1 << 20, 8 << 20, 3600.0))
    found = PythonCalls(made.levels, RunArtifacts(made.node, MagicMock(), store))
    selector, reader = selectors.DefaultSelector(), Reader()
    found.open(reader, selector)  # type: ignore[arg-type]
    yield found
    for process in reader.started:
        process.kill()
        process.wait()
    selector.close()


def begin(made: Made, spec: str = "python:calls", memory: int = -1) -> int:
    run = made.begin(level=Level.TRACE)
    made.levels.inputs[run].trace = of_text(spec)
    made.node.runs.state["policy_level"][run] = Level.TRACE
    made.node.runs.rows["request_memory_bytes"][run] = memory
    level_arbiter.arbitrate(made.levels)
    assert python_tracing.what(made.levels, run) == "calls"
    return run


def write(ring: int) -> None:
    """One call, as a Python records it."""
    code: Any = np.zeros(1, python_ring.CODE)
    code[0] = (1, 1, 0, 5000, 5000, 0, 12, 1, b"/job/fit.py", b"fit")
    os.pwrite(ring, code.tobytes(), python_ring.HEAD_BYTES)


def turn_until(calls: PythonCalls, is_so: Callable[[], object], now: float) -> None:
    until = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < until
        calls.tick(now)
        assert calls._readers._selector is not None
        for key, _ in calls._readers._selector.select(0.05):
            key.data()


def kept(calls: PythonCalls) -> list[Any]:
    return [each for each in calls._artifacts.store.stored() if each.name.endswith(".trace")]


def test_what_a_ring_has_is_kept_now_and_then_and_at_the_end_once(made: Made, calls: PythonCalls) -> None:
    run = begin(made)
    files, ring = calls.give(run, 5, "3.13.1")
    assert files == {}
    write(ring)
    now = time.monotonic()
    calls.tick(now)
    assert not calls._readers._readings
    turn_until(calls, lambda: kept(calls), now + python_calls.EVERY + 1)
    first = kept(calls)[0].name
    made.node.runs.rows["final"][run] = True
    turn_until(calls, lambda: kept(calls) and kept(calls)[0].name != first, now)
    assert len(kept(calls)) == 1 and not calls._recorded
    with pytest.raises(OSError):
        os.fstat(ring)
    content = ArtifactReader(calls._artifacts.store.folder).read(kept(calls)[0].name)[1]
    function = traced_calls.decode(content).functions[0]
    assert (function.name, function.counts["Calls"]) == ("fit (fit.py:12)", 1)


def function(calls: PythonCalls) -> tuple[str, int, int]:
    """Name, calls and processes of the only one that is kept."""
    (artifact,) = kept(calls)
    (found,) = traced_calls.decode(ArtifactReader(calls._artifacts.store.folder).read(artifact.name)[1]).functions
    return found.name, found.counts["Calls"], found.counts["Processes"]


def ended() -> int:
    """The id of a process that is gone."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_pythons_that_have_ended_leave_their_room_to_others_and_what_they_wrote_is_kept(
    made: Made, calls: PythonCalls
) -> None:
    run, now = begin(made, memory=1 << 20), time.monotonic()
    names: set[str] = set()
    for number in range(1, 20):
        write(calls.give(run, ended(), "3.13.1")[1])
        if number % 3 == 0:
            now += python_calls.EVERY + 1
            turn_until(calls, lambda: {each.name for each in kept(calls)} - names, now)  # noqa: B023
            names = {each.name for each in kept(calls)}
            assert function(calls) == ("fit (fit.py:12)", number, number)
    made.node.runs.rows["final"][run] = True
    turn_until(calls, lambda: not calls._recorded and not calls._readers._readings, now)
    assert function(calls) == ("fit (fit.py:12)", 19, 19)


def test_what_is_being_read_when_the_run_ends_is_counted_once(made: Made, calls: PythonCalls) -> None:
    run, now = begin(made), time.monotonic() + python_calls.EVERY + 1
    write(calls.give(run, ended(), "3.13.1")[1])
    calls.tick(now)
    assert calls._readers._readings
    made.node.runs.rows["final"][run] = True
    turn_until(calls, lambda: not calls._recorded and not calls._readers._readings, now)
    assert function(calls) == ("fit (fit.py:12)", 1, 1)


def test_a_ring_that_a_forked_child_has_is_not_over(made: Made, calls: PythonCalls) -> None:
    run, pid = begin(made, memory=1 << 20), ended()
    _, ring = calls.give(run, pid, "3.13.1")
    with mmap.mmap(ring, python_ring.RING_BYTES), pytest.raises(Refused, match="room for 1 at a time"):
        calls.give(run, 5, "3.13.1")
    assert calls.give(run, 5, "3.13.1")[1]


def test_a_process_that_goes_on_as_another_python_leaves_its_ring(made: Made, calls: PythonCalls) -> None:
    run = begin(made, memory=1 << 20)
    calls.give(run, os.getpid(), "3.13.1")
    with pytest.raises(Refused, match="room for 1 at a time"):  # it may not have it in its memory yet
        calls.give(run, 1, "3.13.1")
    assert calls.give(run, os.getpid(), "3.13.1")[1]


def test_a_ring_whose_python_goes_on_is_seldom_asked_until_another_python_wants_one(
    made: Made, calls: PythonCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_calls, "MAPPED_SECONDS", -1.0)
    monkeypatch.setattr(python_calls, "AGAIN_SECONDS", 3600.0)
    asked: list[int] = []

    def goes_on(ring: int) -> bool:
        asked.append(ring)
        return False

    monkeypatch.setattr(python_ring, "is_over", goes_on)
    run = begin(made)
    _, first = calls.give(run, os.getpid(), "3.13.1")
    for _ in range(20):
        calls.tick(time.monotonic())
    assert asked == [first]
    _, second = calls.give(run, 1, "3.13.1")
    assert asked == [first, first]
    calls.tick(time.monotonic())
    assert asked == [first, first, second]
    monkeypatch.setattr(python_calls, "AGAIN_SECONDS", 0.0)
    calls.tick(time.monotonic())
    assert asked == [first, first, second, first, second]


def test_readings_keep_to_their_share_and_those_of_jobs_that_are_over_do_not_wait(
    made: Made, calls: PythonCalls
) -> None:
    runs, now = [begin(made) for _ in range(3)], time.monotonic() + python_calls.EVERY + 1
    for place, run in enumerate(runs):
        sandbox = made.node.handles[run].sandbox
        assert sandbox is not None
        sandbox.scratch_uid = 1 + place // 2  # type: ignore[misc]
        write(calls.give(run, ended(), "3.13.1")[1])
    turn_until(calls, lambda: len(kept(calls)) == 3 and not calls._readers._readings, now)
    assert sorted(calls._read_at) == ["user 1", "user 2"]
    used = 2 * python_calls.SAVED_SECONDS
    calls._charge(used)
    wait = (used - python_calls.SAVED_SECONDS) / (script_shares.OF_RINGS * made.node.config.max_cpu)
    for run in runs:
        write(calls.give(run, ended(), "3.13.1")[1])
    calls.tick(now + python_calls.EVERY + 1)
    assert not calls._readers._readings, "there is no CPU for them"
    made.node.runs.rows["final"][runs[0]] = True
    turn_until(calls, lambda: len(calls._recorded) == 2 and not calls._readers._readings, now)
    calls._read_at["user 2"] = 0.0
    later = time.monotonic() + wait + python_calls.EVERY
    calls._readers._most = 1
    calls.tick(later)
    assert calls._read_at == {"user 1": calls._read_at["user 1"], "user 2": later}, "his turn has come"


def test_pythons_that_end_faster_than_they_are_read_are_not_recorded_and_read_soon(
    made: Made, calls: PythonCalls
) -> None:
    run, now = begin(made, memory=1 << 20), time.monotonic()
    for _ in range(python_calls.MOST_COPIES_OF_RUN + 1):
        write(calls.give(run, ended(), "3.13.1")[1])
    with pytest.raises(Refused, match="room for 1 at a time, and more end than can be read"):
        calls.give(run, ended(), "3.13.1")
    turn_until(calls, lambda: kept(calls), now + python_calls.SOON + 1)
    assert function(calls)[1] == python_calls.MOST_COPIES_OF_RUN + 1
    assert calls.give(run, ended(), "3.13.1")[1]


def test_users_share_the_memory_of_joblensd_for_rings_that_are_over(made: Made, calls: PythonCalls) -> None:
    for place in range(20):
        run = begin(made)
        sandbox = made.node.handles[run].sandbox
        assert sandbox is not None
        sandbox.scratch_uid = 1 + (place >= 10)  # type: ignore[misc]
        for _ in range(3):
            calls.give(run, ended(), "3.13.1")
    copies = {"user 1": 0, "user 2": 0}
    for recorded in calls._recorded.values():
        calls._let_go(recorded)
        copies[recorded.whose] += len(recorded.copies)
    assert copies == {"user 1": 16, "user 2": 8}


def test_a_reading_that_fails_loses_what_it_was_to_read_of_pythons_that_have_ended_alone(
    made: Made, calls: PythonCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, now = begin(made), time.monotonic() + python_calls.EVERY + 1
    write(calls.give(run, ended(), "3.13.1")[1])
    turn_until(calls, lambda: kept(calls), now)
    write(calls.give(run, ended(), "3.13.1")[1])
    monkeypatch.setattr(recorder_reader, "MODULE", "nothing.like.it")
    now += python_calls.EVERY + 1
    turn_until(calls, lambda: "not kept" in text(made.node.runs.rows["note"][run]), now)
    monkeypatch.undo()
    write(calls.give(run, ended(), "3.13.1")[1])
    before, now = kept(calls)[0].name, now + python_calls.EVERY + 1
    turn_until(calls, lambda: kept(calls) and kept(calls)[0].name != before, now)
    assert function(calls)[1] == 2


def test_a_python_that_records_nothing_is_said_to_be_so(made: Made, calls: PythonCalls) -> None:
    run = begin(made)
    for version in ("3.8.2", "3.8.2", "2.7", "x", ""):
        with pytest.raises(Refused, match=r"3\.9 is not"):
            calls.give(run, 5, version)
    assert "joblens stacks" in text(made.node.runs.rows["note"][run])
    assert calls._recorded and not any(each.rings for each in calls._recorded.values())


def test_a_job_that_names_many_versions_fills_neither_the_log_nor_memory(made: Made, calls: PythonCalls) -> None:
    run = begin(made)
    for minor in range(500):
        with pytest.raises(Refused, match=f"Python 2.{minor} is too old"):
            calls.give(run, 5, f"2.{minor}")
    (recorded,) = calls._recorded.values()
    assert len(recorded.notes) == python_calls.MOST_NOTES_OF_RUN


def test_chosen_files_are_told(made: Made, calls: PythonCalls) -> None:
    said = {"file0": "fit.py", "file1": "cuts/*"}
    assert calls.give(begin(made, "python:fit.py; python:cuts/*"), 5, "3.12.0")[0] == said
    with_values = calls.give(begin(made, "python:fit.py; python:returns; python:cuts/*"), 5, "3.12.0")[0]
    assert with_values == {**said, "values": "plain"}
    with_arguments = calls.give(begin(made, "python:fit(run, event); python:cuts/*"), 5, "3.12.0")[0]
    assert with_arguments == {"file0": "cuts/*", "call0": "fit,run,event"}
    assert calls.give(begin(made, "python:fit(run)"), 5, "3.12.0")[0] == {"call0": "fit,run"}
    of_all = calls.give(begin(made, "python:fit(run); python:calls"), 5, "3.12.0")[0]
    assert of_all == {"file0": "*", "call0": "fit,run"}
    longest = "; ".join(f"python:f{number}({'a' * 23},{'b' * 23})" for number in range(MOST_SPECS))
    said = calls.give(begin(made, longest), 5, "3.12.0")[0]
    assert len(said) == MOST_SPECS and frames.encode_packet(
        "recorded", {name: value.encode() for name, value in said.items()}, frames.MAX_ANSWER_1
    )
    with_exceptions = calls.give(begin(made, "python:exceptions"), 5, "3.12.0")[0]
    assert with_exceptions == {"raised": "types"}
    assert calls.give(begin(made, "python:calls+locals+limited"), 5, "3.9.0")[0] == {"limited": "calls"}


@pytest.mark.parametrize("memory, most", [(-1, 9), (100 << 30, 9), (256 << 20, 2), (1 << 20, 1)])
def test_rings_are_a_small_part_of_the_jobs_memory(made: Made, calls: PythonCalls, memory: int, most: int) -> None:
    run = begin(made, memory=memory)
    living = [mmap.mmap(calls.give(run, 5, "3.14.0")[1], python_ring.RING_BYTES) for _ in range(most)]
    with pytest.raises(Refused, match=f"the job's memory has room for {len(living)}"):
        calls.give(run, 5, "3.14.0")
    assert f"room for {most}" in text(made.node.runs.rows["note"][run])


def test_a_user_leaves_places_to_others(made: Made, calls: PythonCalls) -> None:
    given, living = {"user 1": 0, "user 2": 0, "user 3": 0}, []
    for place, whose in enumerate(given):
        with pytest.raises(Refused, match=r"the last [0-9]+ places are for other users"):
            while True:
                run = begin(made)
                sandbox = made.node.handles[run].sandbox
                assert sandbox is not None
                sandbox.scratch_uid = place + 1  # type: ignore[misc]
                for _ in range(8):
                    living.append(mmap.mmap(calls.give(run, 5, "3.14.0")[1], python_ring.RING_BYTES))
                    given[whose] += 1
    assert given == {"user 1": 32, "user 2": 16, "user 3": 8}


def test_a_job_that_asks_for_exceptions_alone_gets_none(made: Made, calls: PythonCalls) -> None:
    run = made.begin(level=Level.TRACE)
    made.levels.inputs[run].trace = TraceRequest(python_raises=True)
    assert python_tracing.what(made.levels, run) == "raises"
    with pytest.raises(Refused, match="no calls are recorded"):
        calls.give(run, 5, "3.13.1")


def test_a_reader_that_fails_costs_what_it_reads_alone(
    made: Made, calls: PythonCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begin(made)
    calls.give(run, 5, "3.13.1")
    monkeypatch.setattr(recorder_reader, "MODULE", "nothing.like.it")
    made.node.runs.rows["final"][run] = True
    turn_until(calls, lambda: not calls._recorded and not calls._readers._readings, time.monotonic())
    assert not kept(calls)


def test_a_reader_that_jobs_of_a_full_node_leave_little_cpu_is_waited_for(
    made: Made, calls: PythonCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Reader.start

    def start_stopped(self: Reader, channel: Any, **more: Any) -> Any:
        process = start(self, channel, **more)
        process.send_signal(signal.SIGSTOP)
        return process

    monkeypatch.setattr(Reader, "start", start_stopped)
    run = begin(made)
    write(calls.give(run, 5, "3.13.1")[1])
    made.node.runs.rows["final"][run] = True
    now = time.monotonic()
    calls.tick(now)
    (reading,) = calls._readers._readings
    calls.tick(now + 300)
    reading.process.send_signal(signal.SIGCONT)  # type: ignore[attr-defined]
    turn_until(calls, lambda: kept(calls), now + 300)
    assert not calls._readers._readings


def test_a_reader_that_never_answers_is_ended(made: Made, calls: PythonCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(3600)"]
    started: list[subprocess.Popen[bytes]] = []

    def start(self: Reader, channel: Any, **_: Any) -> Any:
        started.append(subprocess.Popen(command, stdin=channel))
        return started[-1]

    monkeypatch.setattr(Reader, "start", start)
    run = begin(made)
    calls.give(run, 5, "3.13.1")
    made.node.runs.rows["final"][run] = True
    now = time.monotonic()
    calls.tick(now)
    calls.tick(now + python_calls.PATIENCE + 1)
    assert not calls._readers._readings and not calls._recorded and started[0].wait(SECONDS) == -signal.SIGKILL


def test_a_reader_that_fails_is_said_in_the_note_of_its_run_alone(
    made: Made, calls: PythonCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended_at_once(self: Reader, channel: Any, **_: Any) -> Any:
        """Before it could be sent anything."""
        process = subprocess.Popen(["false"], stdin=channel)
        process.wait()
        return process

    monkeypatch.setattr(Reader, "start", ended_at_once)
    run, other = begin(made), begin(made)
    for each in (run, other):
        write(calls.give(each, 5, "3.13.1")[1])
    calls._recorded[int(made.node.runs.rows["run_number"][other])].next_at += 3600
    said = "calls of its Pythons are not kept: what reads it has failed"
    turn_until(calls, lambda: said in text(made.node.runs.rows["note"][run]), time.monotonic() + python_calls.EVERY + 1)
    assert said not in text(made.node.runs.rows["note"][other])
    assert [each for each in made.log if said in each and made.node.describe(run) in each]


def test_what_was_recorded_before_the_level_was_refused_is_forgotten(made: Made, calls: PythonCalls) -> None:
    run = begin(made)
    _, ring = calls.give(run, 5, "3.13.1")
    made.node.runs.state["policy_level"][run] = Level.IO
    level_arbiter.arbitrate(made.levels)
    made.levels.inputs[run].is_decided = True
    calls.tick(time.monotonic())
    with pytest.raises(OSError):
        os.fstat(ring)
    assert not calls._readers._readings
