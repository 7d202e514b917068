"""Events that no filter lets pass are not sent to the triggers' child: handlers are asked about the same ones as if."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples

from condor_joblens.agent.triggers.sieve import Sieve
from condor_joblens.model.events import EVENT, EventKind
from condor_joblens.policy import trigger_answers, trigger_kinds
from condor_joblens.policy.child_frames import BadFrame, Message
from condor_joblens.policy.trigger_answers import Loaded
from condor_joblens.policy.trigger_engine import Act, TriggerEngine
from condor_joblens.policy.trigger_service import TriggerService

NOW = 1000.0
NAMES = ("bash", "Bash", "sh", "", "python3.11", "python3.12", "a{", "a[", "x" * 32, "x" * 31, "x" * 40, "é", "b h")
NUMBERS = (0, 1, 1.0, 9, 11, 139, 255, -1, 2.5, 2**53, 2**53 + 1, -(2**62))
FIELDS = {
    "exec": ("Program", "CommandLine", "Pid", "ParentPid", "run.Owner", "Kind", "Time"),
    "exit": ("Program", "ExitCode", "ExitSignal", "CoreDumped", "LivedSeconds", "Pid"),
    "oom": ("Program", "MemoryBytes", "LimitBytes"),
    "hang": ("HangSuspected", "HangCause"),
    "failed_open": ("Path", "Count", "Error", "Program"),
    "exception": ("Exception", "From", "Pid"),
    "command": ("Words", "Script", "Status", "Pid"),
    "signal": ("Signal", "Sender", "Program"),
}


def lua(value: object) -> str:
    if isinstance(value, str):
        return '"' + "".join(f"\\{byte:03d}" for byte in value.encode()) + '"'
    return str(value).lower() if isinstance(value, bool) else repr(value)


PLAIN = st.sampled_from([*NAMES, *NUMBERS, True, False, "exec", "ENOENT"])
TESTS = st.one_of(
    PLAIN.map(lua),
    st.lists(PLAIN, max_size=4).map(lambda values: "one_of {" + ", ".join(map(lua, values)) + "}"),
    st.lists(PLAIN, max_size=4).map(lambda values: "{" + ", ".join(map(lua, values)) + "}"),
    st.builds("{}({})".format, st.sampled_from(["above", "below", "at_least", "at_most"]), st.sampled_from(NUMBERS)),
    st.sampled_from(['glob "b*"', 'matches "^p"', 'under "sh"']),
)


@st.composite
def files(draw: st.DrawFn) -> str:
    """A file with some handlers, which note that they were asked."""
    kind = draw(st.sampled_from(list(FIELDS)))
    filters = draw(st.lists(st.dictionaries(st.sampled_from(FIELDS[kind]), TESTS, max_size=2), min_size=1, max_size=2))
    lines = []
    for number, tests in enumerate(filters):
        table = ", ".join(f'["{field}"] = {test}' for field, test in tests.items())
        lines.append(f"on('{kind}', {{{table}}}, function(event, run) run:note('{number} ' .. event.Time) end)")
    return "\n".join(lines)


EVENTS = st.lists(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from([int(trigger_kinds.KINDS[kind]) for kind in FIELDS]),
            "program": st.one_of(st.sampled_from(NAMES).map(str.encode), st.binary(max_size=32)),
            "text": st.one_of(st.sampled_from(NAMES).map(str.encode), st.binary(max_size=40)),
            "exit_code": st.sampled_from([-1, 0, 256, 9, 139, 11 << 8]),
            "value": st.sampled_from([0, 1, 2**53, 2**53 + 1, -(2**62), 9, 139]),
            "limit": st.sampled_from([-1, 0, 2**53 + 1]),
            "pid": st.sampled_from([0, 1, 9]),
            "lived_seconds": st.sampled_from([0.0, 2.5, float("nan")]),
        }
    ),
    min_size=1,
    max_size=12,
)


def batch(told: list[dict[str, Any]]) -> np.ndarray:
    events: np.ndarray = np.zeros(len(told), EVENT)
    for index, fields in enumerate(told):
        events["time"][index], events["run_number"][index] = index, 7
        for name, value in fields.items():
            events[name][index] = value
    return events


def loaded(text: str) -> Loaded:
    """What joblensd knows of a file."""
    answers: list[Message] = []
    TriggerService(answers.append).serve(trigger_kinds.load_message([("a.lua", text)]), b"")
    return trigger_answers.loaded(answers[0])


def asked(text: str, events: np.ndarray) -> list[Act]:
    """What handlers do of so few events that none is one too many."""
    made = TriggerEngine(trigger_kinds.layout(), lambda: 0.0)
    assert made.load([("a.lua", text)]) == []
    acts = []
    for event in events:
        made.begin(NOW)
        told = made.events([(7, 1)], event.tobytes())
        assert not told.failed
        acts += told.acts
    return acts


@settings(max_examples=examples(150), deadline=None)
@given(text=files(), told=EVENTS)
def test_handlers_are_asked_about_the_same_events(text: str, told: list[dict[str, Any]]) -> None:
    events = batch(told)
    sent = events[Sieve(loaded(text).handlers).places(events)]
    assert asked(text, sent) == asked(text, events)


def places(text: str, **fields: Any) -> list[int]:
    event = batch([{"kind": EventKind.EXEC, **fields}])
    return [int(place) for place in Sieve(loaded(text).handlers).places(event)]


@pytest.mark.parametrize("program", ["bash", "python3.12", "x" * 32])
def test_what_no_filter_lets_pass_is_not_sent(program: str) -> None:
    text = f"on('exec', {{Program = one_of {{'{program}', 'zsh'}}}}, function(event, run) end)"
    assert places(text, program=program.upper().encode()) == [0]
    assert places(text, program=program[:-1].encode()) == places(text, program=b"") == []
    assert places(text, program=program.encode(), kind=EventKind.EXIT) == []


@pytest.mark.parametrize(
    "text",
    [
        "on('exec', function(event, run) end)",
        "on('exec', {Program = function(value) return true end}, function(event, run) end)",
        # the list may get more later
        "local list = {'zsh'} on('exec', {Program = list}, function(event, run) list[2] = 'bash' end)",
        "on('exec', {Program = 'zsh'}, function(event, run) run:note(#run:events(5)) end)",
        "on('exec', {Program = 'zsh'}, function(event, run) end) on('exec', {Pid = above(0)}, function() end)",
    ],
)
def test_what_may_be_wanted_is_sent(text: str) -> None:
    assert places(text, program=b"bash", pid=9) == [0]


def test_events_of_no_run_are_nobodys() -> None:
    assert places("on('exec', function(event, run) end)", run_number=0) == []


def test_very_many_tests_are_left_to_lua() -> None:
    words = ", ".join(f"'{'x' * 28}{number}'" for number in range(200))
    text = f"on('exec', {{Program = one_of {{{words}}}}}, function(event, run) end)\n" * 5
    tests = [handler.tests for handler in loaded(text).handlers]
    assert [len(each) for each in tests] == [1, 1, 0, 0, 0]
    assert places(text, program=b"bash") == [0]


@pytest.mark.parametrize(
    "test",
    [
        [],
        ["pid"],
        ["pid", "like", 1],
        ["pid", "above"],
        ["pid", "above", "x"],
        ["pid", "above", True],
        ["pid", "one_of", None],
        ["pid", "one_of", 10**400],
        ["pid", "one_of", float("nan")],
        ["pid", "one_of", *range(300)],
        [5, "one_of", 1],
        "pid",
    ],
)
def test_tests_that_are_none_are_refused(test: object) -> None:
    message = {"errors": [], "paths": [], "handlers": [["a.lua", 1, "exec", [], [["pid", "one_of", 1], test]]]}
    with pytest.raises(BadFrame):
        trigger_answers.loaded(message)
