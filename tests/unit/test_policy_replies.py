"""The wire, and what joblensd believes of it: a decision is within all bounds, or there is none."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.model.levels import Level
from condor_joblens.policy import policy_answers
from condor_joblens.policy.child_frames import BadFrame, FrameReader, pack
from condor_joblens.policy.engine import identity_of
from condor_joblens.policy.job_identity import MAX_STRING, NUMBERS, STRINGS, identity, literals
from condor_joblens.policy.jobad import JobAd
from condor_joblens.policy.policy_answers import MAX_TRACE, ActivationRequest, decided, failed, failure

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=400),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=8,
)
LEVELS = st.sampled_from(Level)
WORDS = st.sampled_from([level.word for level in Level])
GOOD: dict[str, object] = {
    **{"level": "io", "requested": None, "written": "", "policy": "", "reason": ""},
    **{"errors": [], "identity": {}, "cap": "io", "period": None, "priority": 0, "sinks": None, "report": None},
    **{"until": None, "state": {}, "traced": None},
}
OPTIONAL = {"requested", "identity", "cap", "period", "priority", "sinks", "report", "until", "state", "traced"}


def request(default: Level = Level.BASIC, cap: Level = Level.IO) -> ActivationRequest:
    return ActivationRequest(b"", {"Name": "slot1"}, default, cap)


@given(
    st.dictionaries(st.sampled_from(sorted(GOOD)), JSON),
    st.fixed_dictionaries({"level": WORDS | JSON, "requested": st.none() | WORDS, "policy": st.text()}),
    LEVELS,
)
def test_a_decision_is_within_all_bounds_or_refused(
    anything: dict[str, object], likely: dict[str, object], cap: Level
) -> None:
    for message in (anything, {**GOOD, **anything}, {**GOOD, **likely}):
        try:
            made = decided(message, request(cap=cap))
        except BadFrame:
            continue
        assert isinstance(made.level, Level) and made.level <= cap
        assert made.report in (None, True, False) and len(made.traced) <= MAX_TRACE
        texts = [(made.note, 200), (made.reason, 120), (made.policy, 60), (made.written, 60)]
        for text, limit in texts + [(error.what, 300) for error in made.errors]:
            assert len(text) <= limit and text.isascii() and text.isprintable()


@given(LEVELS, LEVELS, LEVELS)
def test_the_cap_is_not_the_childs_to_decide(answered: Level, default: Level, cap: Level) -> None:
    asked = request(default, cap)
    assert decided({**GOOD, "level": answered.word}, asked).level == min(answered, cap)
    assert failure("died", asked).level == min(default, cap)


@pytest.mark.parametrize("key", sorted(set(GOOD) - OPTIONAL))
def test_a_decision_lacks_nothing(key: str) -> None:
    with pytest.raises(BadFrame):
        decided({name: value for name, value in GOOD.items() if name != key}, request())


def test_a_state_that_could_not_be_sent_again_is_refused() -> None:
    """A nest that is read at one depth of calls is beyond Python's limit at another."""
    state: dict[str, object] = {}
    for _ in range(300):
        state = {"a": state}
    with pytest.raises(BadFrame, match="a state"):
        decided({**GOOD, "state": state}, request())


@given(JSON)
def test_other_messages_are_right_or_refused(value: object) -> None:
    for read, key in (
        (policy_answers.doing, "what"),
        (policy_answers.unfit, "reason"),
        (policy_answers.failures, "errors"),
        (policy_answers.names, "identity"),
        (lambda message: failed(message, request()).note, "reason"),
    ):
        try:
            text = read({key: value})  # type: ignore[operator]
        except BadFrame:
            continue
        assert len(json.dumps(text, default=str)) < 8000


def test_the_note_of_a_failure_says_why_and_what_was_taken() -> None:
    line = failure("policy 20-site.lua took more than 20 ms of CPU", request()).note
    assert line == "policy 20-site.lua took more than 20 ms of CPU: watched at the default, basic"
    assert len(failure("x" * 500, request()).note) <= 200


@given(
    st.lists(st.tuples(st.dictionaries(st.text(), st.text()), st.binary(max_size=2000)), max_size=5),
    st.integers(1, 999),
)
def test_frames_survive_any_cut(frames: list[tuple[dict[str, str], bytes]], step: int) -> None:
    stream = b"".join(pack(message, body) for message, body in frames)
    reader, got = FrameReader(1 << 20, 1 << 20), []
    for start in range(0, len(stream), step):
        got += reader.feed(stream[start : start + step])
    assert got == frames


@given(st.binary(max_size=200))
def test_garbage_is_a_bad_frame_or_not_yet_one(data: bytes) -> None:
    with_lengths = struct.pack(">II", len(data), 0) + data
    for stream in (data, with_lengths):
        try:
            frames = FrameReader(1000, 1000).feed(stream)
        except BadFrame:
            continue
        assert all(isinstance(message, dict) for message, _ in frames)


@pytest.mark.parametrize(("message", "body"), [(1001, 0), (0, 1001), (0xFFFFFFFF, 0xFFFFFFFF)])
def test_a_frame_beyond_its_bounds_is_refused_by_its_lengths(message: int, body: int) -> None:
    with pytest.raises(BadFrame):
        FrameReader(1000, 1000).feed(struct.pack(">II", message, body))


def test_json_too_deep_is_a_bad_frame() -> None:
    text = b"[" * 50_000
    with pytest.raises(BadFrame):
        FrameReader(1 << 16, 0).feed(struct.pack(">II", len(text), 0) + text)


@given(st.dictionaries(st.sampled_from([*STRINGS, *NUMBERS, "owner", "Else"]), JSON))
def test_an_identity_has_known_names_of_right_types(attributes: dict[str, object]) -> None:
    for name, value in identity(attributes).items():
        if name in STRINGS:
            assert isinstance(value, str) and len(value) <= MAX_STRING and value.isprintable()
        else:
            assert name in NUMBERS and isinstance(value, (int, float)) and not isinstance(value, bool)
            assert json.loads(json.dumps(value, allow_nan=False)) == value
            np.int64(int(value * (1 << 20)))  # megabytes, as the bytes that a row holds


@pytest.mark.parametrize("number", [1 << 44, -(1 << 44), 4e18, -4e18, float("inf"), float("nan")])
def test_a_number_whose_bytes_no_row_can_hold_is_left_out(number: float) -> None:
    assert identity({"RequestMemory": number, "ClusterId": 7}) == {"ClusterId": 7}


@given(st.binary())
def test_literals_of_garbage_do_no_harm(data: bytes) -> None:
    literals(data)
    literals(b"Owner = " + data)


def test_literals_tell_what_the_evaluated_ad_tells() -> None:
    ad = b"""GlobalJobId = "ap.example.org#12.0#1700000000"
ClusterId = 12
procid = 0
Owner = "alice"
Cmd = "/home/alice/bin/my job"
NumShadowStarts = 2
RequestMemory = 2 * 1024
AcctGroup = undefined
"""
    told = literals(ad)
    evaluated = identity_of(JobAd(ad))
    assert evaluated == {**told, "RequestMemory": 2048}
    assert told["Cmd"] == "my job"
    assert told["GlobalJobId"] == "ap.example.org#12.0#1700000000"
    assert told["ProcId"] == 0
