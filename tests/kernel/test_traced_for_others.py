"""What traces tell others: triggers, event by event, and the flight recorder, in the kernel."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from condor_joblens.tracer._bpf import lib
from ground import until
from standing import Told
from standing import begin as begin_standing
from test_traced_commands import open_folder, script  # noqa: F401 - a fixture
from test_tracing import when_attached
from traced_jobs import SECONDS, Traces, act, end, is_probed, job

from condor_joblens.common import readiness
from condor_joblens.common.redact import Redactor
from condor_joblens.model.events import COMMAND_ENDS, EVENT, FUNCTION_ENDS, PART, EventKind
from condor_joblens.profiles.last_events import Event
from condor_joblens.tracer.sensors import Recorder
from condor_joblens.tracing import for_triggers, recorder_reader
from condor_joblens.tracing import standing_messages as messages

DEPTH, CALLS = 200, 21  # of traced.cc

pytestmark = [
    pytest.mark.traces,
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="functions are traced on x86-64 alone"),
]


def begin(traces: Traces, spec: str, kind: EventKind) -> socket.socket:
    """A trace that stands, and tells triggers of this kind."""
    channel = traces.begin(spec, seconds=0, stands=True)
    channel.send(for_triggers.request({kind}, 4000))
    return channel


def rest(channel: socket.socket, is_enough: Callable[[np.ndarray], bool] = lambda _: False) -> np.ndarray:
    """All events until its end, or until there are enough."""
    found: np.ndarray = np.zeros(0, EVENT)
    while not is_enough(found):
        assert readiness.readable([channel], SECONDS), found
        message = channel.recv(1 << 16)
        if message[:1] == messages.EVENTS:
            untold, events = messages.understood_events(message[1:], 7)
            assert untold == 0
            found = np.concatenate([found, events])
        if not message:
            break
    channel.close()
    return found


def parts(event: Any) -> list[str]:
    found: list[str] = event["text"].decode().split(PART)
    return found


def recorded(recorder: Recorder, traces: Traces, *kinds: int) -> list[Event]:
    """What the flight recorder has of these kinds, in words."""
    found = recorder.recording(traces.slot.index)
    assert found is not None and found.lost == 0
    return recorder_reader.events_of(found.records[np.isin(found.records["kind"], kinds)], 0.0, Redactor(5.0))


def test_calls_are_told_with_their_caller_and_recorded_as_they_begin_and_end(traces: Traces) -> None:
    recorder = traces.record()
    with job(traces.slot) as process:
        channel = begin(traces, "test_traced:deep", EventKind.FUNCTION)
        until(lambda: is_probed(process.pid, "deep"), SECONDS)
        act(process)
        told = recorded(recorder, traces, lib.RECORDED_CALL, lib.RECORDED_RETURN)  # it lives on: nobody was asked
        end(process)
        events = rest(channel)
    assert len(events) == DEPTH + 1 and {FUNCTION_ENDS[each] for each in events["exit_code"]} == {"returned"}
    outermost = events[events["value"] == 0]
    assert parts(outermost[0])[:2] == ["deep", ""] and parts(events[events["value"] == 1][0])[:2] == ["deep", "deep"]
    assert outermost["lived_seconds"][0] == events["lived_seconds"].max() > 0 and set(events["pid"]) == {process.pid}
    assert [each.what for each in told] == ["call"] * (DEPTH + 1) + ["return"] * (DEPTH + 1)
    assert {(each.pid, each.program, each.about) for each in told} == {(process.pid, "test_traced", "deep")}


def begun(traces: Traces, spec: str, stands: bool) -> socket.socket:
    """A trace whose probes are in the job."""
    channel = begin_standing(traces, spec) if stands else traces.begin(spec)
    if stands:
        told = Told()
        until(lambda: told.receive(channel) and bool(told.sums) and told.sums[-1].begun > 0, SECONDS)
    else:
        when_attached(channel)
    return channel


def ended(channel: socket.socket, traces: Traces, left: int) -> None:
    """Its process and its probes are gone; so many traces are left."""
    channel.close()
    children = Path(f"/proc/{traces.starter}/task/{traces.starter}/children")
    until(lambda: len(children.read_text().split()) == left, SECONDS)


@pytest.mark.guest
@pytest.mark.parametrize("first_stands", [True, False])
def test_a_call_that_two_traces_see_is_recorded_once(traces: Traces, first_stands: bool) -> None:
    """Whichever ends first, the other one goes on to record."""
    recorder = traces.record()
    kinds = lib.RECORDED_CALL, lib.RECORDED_RETURN
    with job(traces.slot, "again") as process:

        def recorded_of_one_round() -> list[int]:
            before = [len(recorded(recorder, traces, kind)) for kind in kinds]
            act(process)
            return [len(recorded(recorder, traces, kind)) - had for kind, had in zip(kinds, before)]

        first = begun(traces, "test_traced:plain", first_stands)
        assert recorded_of_one_round() == [CALLS, CALLS]
        second = begun(traces, "test_traced:plain", not first_stands)
        assert recorded_of_one_round() == [CALLS, CALLS]
        ended(first, traces, 1)
        assert recorded_of_one_round() == [CALLS, CALLS]
        third = begun(traces, "test_traced:plain", first_stands)
        assert recorded_of_one_round() == [CALLS, CALLS]
        ended(second, traces, 1)
        assert recorded_of_one_round() == [CALLS, CALLS]
        ended(third, traces, 0)
        assert recorded_of_one_round() == [0, 0]


def test_two_traces_of_what_is_thrown_and_one_of_the_function_that_throws_record_each_once(traces: Traces) -> None:
    recorder = traces.record()
    with job(traces.slot) as process:
        channels = [begin_standing(traces, "throws")]
        until(lambda: is_probed(process.pid, "__cxa_throw", "libstdc++.so"), SECONDS)
        channels.append(begun(traces, "libstdc++.so*:__cxa_thro?", stands=True))
        channels.append(begun(traces, "throws", stands=False))
        act(process)
        assert len(recorded(recorder, traces, lib.RECORDED_THROW)) == 10
        assert len(recorded(recorder, traces, lib.RECORDED_CALL)) == 10
        for channel in channels:
            channel.close()


def until_shells_are_probed(channel: socket.socket) -> None:
    said = channel.recv(1 << 16)
    while not (said[:1] == messages.SUMS and messages.understood_shell(said[1:]).begun):
        said = channel.recv(1 << 16)


def test_a_command_that_two_traces_see_is_recorded_once(
    traces: Traces,
    open_folder: Path,  # noqa: F811
) -> None:
    recorder = traces.record()
    with script(traces.slot, "true one two\nfalse\n", open_folder) as process:
        first = traces.begin("bash", seconds=0, stands=True)
        until_shells_are_probed(first)
        second = traces.begin("bash")
        until(lambda: b"each costs" in second.recv(1 << 16), SECONDS)
        process.communicate("go\n", timeout=SECONDS)
        told = recorded(recorder, traces, lib.RECORDED_COMMAND)
    assert [(each.about, each.result) for each in told] == [("true one two", "line 2"), ("false", "line 3")]


def test_what_is_thrown_is_told_and_recorded(traces: Traces) -> None:
    recorder = traces.record()
    with job(traces.slot) as process:
        channel = begin(traces, "throws", EventKind.EXCEPTION)
        until(lambda: is_probed(process.pid, "__cxa_throw", "libstdc++.so"), SECONDS)
        act(process)
        told = recorded(recorder, traces, lib.RECORDED_THROW)
        end(process)
        events = rest(channel)
    assert [parts(each) for each in events] == [["std::runtime_error", "work::throws(int)", "of no use"]] * 10
    assert [(each.what, each.about, each.result) for each in told] == [
        ("throw", "std::runtime_error", "of no use")
    ] * 10


def test_commands_are_told_and_recorded_before_the_shell_is_killed(
    traces: Traces,
    open_folder: Path,  # noqa: F811
) -> None:
    recorder = traces.record()
    text = "true one two\nfalse\nnothing --password=hunter22222\nkill -9 $$\n"
    with script(traces.slot, text, open_folder) as process:
        channel = begin(traces, "bash", EventKind.COMMAND)
        until_shells_are_probed(channel)
        process.communicate("go\n", timeout=SECONDS)
        told = recorded(recorder, traces, lib.RECORDED_COMMAND)
        events = rest(channel)
    assert [(each.about, each.result) for each in told] == [
        ("true one two", "line 2"),
        ("false", "line 3"),
        ("nothing --password=***", "line 4, after status 1"),
        ("kill -9 $$", "line 5, after status 127"),
    ]
    seen = [(each["text"].decode(), int(each["value"]), COMMAND_ENDS[each["limit"]]) for each in events]
    assert seen[-4:] == [
        ("true one two", 2, "ended"),
        ("false", 3, "ended"),
        ("nothing --password=***", 4, "ended"),
        ("kill -9 $$", 5, "not seen"),
    ]
    assert events["exit_code"][-3:].tolist() == [1, 127, -1] and set(events["program"]) == {b"job.sh"}


def test_a_command_that_is_counted_alone_is_recorded(
    traces: Traces,
    open_folder: Path,  # noqa: F811
) -> None:
    recorder = traces.record()
    with script(traces.slot, "true one two\nfalse\n", open_folder) as process:
        channel = traces.begin("bash", seconds=0, stands=True, reading=1e-9, saved=0.0)
        until_shells_are_probed(channel)
        process.communicate("go\n", timeout=SECONDS)
        told = recorded(recorder, traces, lib.RECORDED_COMMAND)
        channel.close()
    assert [(each.about, each.result) for each in told] == [("true one two", "line 2"), ("false", "line 3")]
