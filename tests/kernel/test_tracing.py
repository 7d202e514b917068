"""Functions of a real C++ program are traced: it throws, recurses, jumps, and goes on as if nothing were there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import traced_jobs
from ground import like_go_program, until
from traced_jobs import ALICE, SECONDS, SHARE, Traces, act, end, is_probed, job, traced_program

from condor_joblens.common import readiness
from condor_joblens.control.child_output import CONTENT, FAILED, NOTICE, WHOLE

DEPTH = 200  # of traced.cc
ENDED = ("Returned", "LeftByJump", "Unwound", "EndNotSeen", "EndUnknown", "BegunBefore", "LostHits", "NotOurs")

pytestmark = [
    pytest.mark.traces,
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="functions are traced on x86-64 alone"),
]


@dataclass
class Told:
    """What a trace has said."""

    calls: list[list[Any]] = field(default_factory=list)
    throws: list[list[Any]] = field(default_factory=list)
    places: list[list[Any]] = field(default_factory=list)
    summary: list[dict[str, Any]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    failed: str = ""
    is_whole: bool = False

    def take(self, message: bytes) -> None:
        kind, said = message[:1], message[1:]
        if kind == CONTENT:
            fields = json.loads(said)
            self.calls += fields.get("calls", [])
            self.throws += fields.get("throws", [])
            self.places += fields.get("places", [])
            self.summary += fields.get("summary", [])
        elif kind == NOTICE:
            self.notices.append(said.decode())
        elif kind == FAILED:
            self.failed = said.decode()
        elif kind == WHOLE:
            self.is_whole = True

    def of(self, name: str) -> dict[str, Any]:
        (found,) = [each for each in self.summary if each["Function"] == name]
        return found


def receive(channel: socket.socket, told: Told) -> bool:
    """One message; False at the end."""
    ready = readiness.readable([channel], SECONDS)
    assert ready, told
    message = channel.recv(1 << 16)
    told.take(message)
    return bool(message)


def traced(channel: socket.socket) -> Told:
    """All that it says, from when the probes are attached."""
    told = Told()
    while receive(channel, told):
        pass
    return told


def when_attached(channel: socket.socket) -> Told:
    """What is said up to the sentence that the probes are there."""
    told = Told()
    while not any("each hit" in notice for notice in told.notices):
        assert receive(channel, told), told
    return told


def act_and_end(process: subprocess.Popen[str]) -> None:
    """Both."""
    act(process)
    end(process)


def follow(
    traces: Traces,
    spec: str,
    *arguments: str,
    does: Callable[[subprocess.Popen[str]], None] = act_and_end,
    share: float = SHARE,
) -> Told:
    """The whole of a job, traced; `does` has it do what it is for."""
    with job(traces.slot, *arguments) as process:
        channel = traces.begin(spec, share=share)
        told = when_attached(channel)
        does(process)
        while receive(channel, told):
            pass
        channel.close()
    return told


def run(traces: Traces, spec: str) -> Told:
    """The same, of a job of which nothing is missing."""
    told = follow(traces, spec)
    assert told.is_whole and not told.failed, told
    return told


def counted(told: Told, name: str) -> dict[str, int]:
    """How often it was called, and how that ended, as far as it is not 0."""
    summary = told.of(name)
    return {"Calls": summary["Calls"], **{key: summary[key] for key in ENDED if summary[key]}}


@pytest.mark.guest
def test_calls_of_all_threads_with_arguments_and_result(traces: Traces) -> None:
    told = run(traces, "test_traced:plain(int, char*) -> int")
    assert counted(told, "plain") == {"Calls": 42, "Returned": 42}
    expected = [(str(i - 5), '"eleven char"', str(16 - i)) for i in range(20)] + [("1", '""', "-1")]
    numbers = sorted((call[4][0], call[7]) for call in told.calls)
    assert numbers == sorted(2 * [(number, result) for number, _, result in expected])
    # a text that nobody has read so far is not in memory
    shown = {(call[4][0], call[4][1], call[7]) for call in told.calls if "not resident" not in call[4][1]}
    assert shown <= set(expected) and len(shown) > len(expected) // 2
    assert len({call[2] for call in told.calls}) == 2 and len({call[1] for call in told.calls}) == 1


@pytest.mark.guest
def test_recursion_has_an_exit_for_each_entry(traces: Traces) -> None:
    told = run(traces, "test_traced:deep(int) -> int")
    assert counted(told, "deep") == {"Calls": DEPTH + 1, "Returned": DEPTH + 1}
    assert sorted((int(call[4][0]), int(call[7])) for call in told.calls) == sorted(
        (depth, depth + 1) for depth in range(DEPTH + 1)
    )
    assert {call[8] + int(call[4][0]) for call in told.calls} == {DEPTH}


@pytest.mark.guest
def test_an_exception_unwinds(traces: Traces) -> None:
    told = run(traces, "test_traced:work::throws")
    assert counted(told, "work::throws(int)") == {"Calls": 2 * 5 * 4, "Unwound": 2 * 4 * 4, "EndNotSeen": 2 * 4}
    assert {call[5] for call in told.calls} == {"unwound"}


def test_what_is_thrown_has_a_type_a_text_and_a_stack(traces: Traces) -> None:
    told = run(traces, "throws")
    assert {(type, text) for _, _, _, type, text, _, _ in told.throws} == {("std::runtime_error", "of no use")}
    assert {function for *_, function, _ in told.throws} == {"work::throws(int)"}
    assert told.of("__cxa_throw")["Throws"] == len(told.throws) == 10
    ((_, _, type, text, count, frames, is_whole),) = told.places
    assert (type, text, count, is_whole) == ("std::runtime_error", "of no use", 10, True)
    functions = [function for function, _ in frames]
    assert functions[:4] == ["work::throws(int)"] * 4 and functions[4].startswith("act(")
    assert {file for _, file in frames[:5]} == {str(traced_program())}


def test_a_storm_of_exceptions_is_switched_off(traces: Traces) -> None:
    told = follow(traces, "throws", "storm", share=1.0)
    summary = told.of("__cxa_throw")
    assert summary["SwitchedOff"] and 0 < summary["Throws"] < 100_000 and summary["CoveredSeconds"] > 0
    assert any("too often" in notice for notice in told.notices)


@pytest.mark.guest
def test_the_last_exception_of_a_process_is_known_when_it_is_gone(traces: Traces) -> None:
    """It is the program's own type, made of a library's; nobody catches it."""

    def die(process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.wait() == -signal.SIGABRT

    told = follow(traces, "throws", "dies", does=die)
    ((_, _, type, text, count, frames, _),) = told.places
    assert (type, text, count) == ("work::Failure", "the last one", 1)
    assert [function for function, _ in frames[:2]] == ["dies", "main"]


@pytest.mark.guest
def test_a_program_in_go_has_entries_alone(traces: Traces, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as its linker's section tells: nothing is said of ends."""
    monkeypatch.setattr(traced_jobs, "traced_program", like_go_program)
    told = run(traces, "test_like_go:work::throws")
    summary = told.of("work::throws(int)")
    assert summary["EntriesAlone"] and (summary["Calls"], summary["Unwound"], len(told.calls)) == (40, 0, 40)
    assert {(call[5], call[6]) for call in told.calls} == {("entered", None)}


@pytest.mark.guest
def test_longjmp_unwinds(traces: Traces) -> None:
    told = run(traces, "test_traced:jumps")
    assert counted(told, "jumps") == {"Calls": 2 * 2 * 7, "Unwound": 2 * 7, "EndNotSeen": 2 * 7}


@pytest.mark.guest
def test_a_cancelled_thread_is_unwound(traces: Traces) -> None:
    told = follow(traces, "test_traced:cancelled*", "cancel")
    assert counted(told, "cancelled") == {"Calls": 7, "Unwound": 7}
    assert counted(told, "cancelled_cleanup") == {"Calls": 1, "Returned": 1}


@pytest.mark.guest
def test_a_jump_to_another_function_has_no_result(traces: Traces) -> None:
    told = run(traces, "test_traced:t*(long) -> long")
    assert counted(told, "tail") == {"Calls": 20, "LeftByJump": 20}
    assert counted(told, "through") == {"Calls": 20, "LeftByJump": 20}
    assert {call[7] for call in told.calls if call[3] in ("tail", "through")} == {None}


@pytest.mark.guest
def test_a_jump_within_the_function_is_no_exit(traces: Traces) -> None:
    told = run(traces, "test_traced:choose(int) -> int")
    assert counted(told, "choose") == {"Calls": 32, "Returned": 32}
    expected = {0: 3, 1: 1, 2: 4, 3: 1, 4: 5, 5: 9, 6: 2, 7: 6}
    assert {(int(call[4][0]), int(call[7])) for call in told.calls} == set(expected.items())


def test_a_hot_function_is_switched_off_and_the_time_said(traces: Traces) -> None:
    told = follow(traces, "test_traced:hot", "hot", share=1.0)
    summary = told.of("hot")
    assert summary["SwitchedOff"] and 0 < summary["Calls"] < 3_000_000
    assert summary["Calls"] == summary["Returned"] + summary["EndUnknown"] and summary["EndUnknown"] <= 1
    assert summary["CoveredSeconds"] > 0 and any("too often" in notice for notice in told.notices)


def test_a_process_of_somebody_else_is_not_traced(traces: Traces) -> None:
    """It is in the job, as what a set-user-id program has started, and its hits are counted as such."""
    with job(traces.slot) as own, job(traces.slot, uid=ALICE + 1) as other:
        channel = traces.begin("test_traced:deep")
        told = when_attached(channel)
        act(other)
        act(own)
        for process in (own, other):
            end(process)
        while receive(channel, told):
            pass
        channel.close()
    assert {call[1] for call in told.calls} == {own.pid}
    assert counted(told, "deep") == {"Calls": DEPTH + 1, "Returned": DEPTH + 1}


def test_hits_in_a_set_user_id_program_are_not_looked_at(traces: Traces) -> None:
    """The probes are those of a process, which goes on as such a program; it has the same library."""
    privileged = traces.folder / "privileged"
    shutil.copy(traced_program(), privileged)
    os.chown(privileged, ALICE + 1, ALICE + 1)
    privileged.chmod(0o4755)
    with job(traces.slot, str(privileged)) as process:
        channel = traces.begin("libstdc++.so*:__cxa_throw")
        told = when_attached(channel)
        process.stdin.write("exec\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        until(lambda: os.readlink(f"/proc/{process.pid}/exe") == str(privileged), SECONDS)
        act(process)
        end(process)
        while receive(channel, told):
            pass
        channel.close()
    summary = told.of("__cxa_throw")
    assert (summary["Throws"], summary["NotOurs"], told.throws, told.places) == (0, 10, [], [])


def test_what_began_later_is_traced_from_when_it_was_seen(traces: Traces) -> None:
    with job(traces.slot) as first:
        channel = traces.begin("test_traced:plain")
        told = when_attached(channel)
        with job(traces.slot) as second:
            until(lambda: is_probed(second.pid), SECONDS)
            act(second)
            end(second)
        first.kill()
        while receive(channel, told):
            pass
        channel.close()
    assert counted(told, "plain") == {"Calls": 42, "Returned": 42}
    assert {call[1] for call in told.calls} == {second.pid}


def test_nothing_is_left_when_nobody_listens(traces: Traces) -> None:
    with job(traces.slot) as process:
        channel = traces.begin("test_traced:plain")
        when_attached(channel)
        assert is_probed(process.pid)
        channel.close()
        until(lambda: not is_probed(process.pid), SECONDS)
        act(process)
        end(process)


@pytest.mark.parametrize(
    "spec, why",
    [
        ("test_traced:plian", "is it one of these: plain"),
        ("nothing_of_it:plain", "no process of the job has a file like nothing_of_it"),
        ("libc.so*:*", "at most 16 are traced"),
        ("test_traced", "write FILE:FUNCTION"),
    ],
)
def test_what_can_not_be_traced_says_why(traces: Traces, spec: str, why: str) -> None:
    with job(traces.slot):
        channel = traces.begin(spec)
        told = traced(channel)
        channel.close()
    assert why in told.failed and not told.is_whole, told
