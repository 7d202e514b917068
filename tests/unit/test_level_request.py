"""What a job's request for a level is taken for, and what it is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.model.levels import Level, parse_level
from condor_joblens.policy.level_request import SHOWN, LevelRequest, may_ask_for, note, understand


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@pytest.mark.parametrize("level", Level)
def test_a_level_is_its_name_in_any_case_or_its_number(level: Level) -> None:
    name, number = level.word, int(level)
    for value in (name, name.upper(), name.title(), number, str(number), f" {name}\t"):
        assert parse_level(value) is level


NUMBERS = (7, -1, 5, 1.0, float("nan"), True, False)
STRINGS = ("", " ", "io; rm -rf /", "i o", "ıo", "io\n", "٢")


@pytest.mark.parametrize("value", [*NUMBERS, *STRINGS, None, [1, 2], b"io"])
def test_everything_else_is_no_level(value: object) -> None:
    with pytest.raises(ValueError, match="is not a level"):
        parse_level(value)


@given(st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.lists(st.integers())))
def test_any_value_is_a_level_or_refused(value: object) -> None:
    try:
        level = parse_level(value)
    except ValueError:
        return
    assert str(value).strip().lower() in (level.word, str(int(level)))


@given(st.text(max_size=500), st.text(max_size=500), st.sampled_from(Level), st.sampled_from(Level))
def test_what_a_job_writes_is_repeated_bounded_and_printable(
    source: str, evaluated: str, final: Level, cap: Level
) -> None:
    request = understand(None, source, evaluated)
    line = note(request, final, cap, "10-default.lua")
    assert len(request.written) <= SHOWN
    assert len(line) <= 200
    assert (request.written + line).isprintable() and (request.written + line).isascii()


@pytest.mark.parametrize(("value", "source"), [(7, "7"), ("io; rm -rf /", quoted("io; rm -rf /")), ([1, 2], "{ 1,2 }")])
def test_a_bad_request_is_told_what_was_taken_instead(value: object, source: str) -> None:
    line = note(understand(value, source, source), Level.BASIC, Level.IO, "10-default.lua")
    refusal = "is not a level (off, basic, io, profile, trace or 0-4)"
    assert line == f"JobLensLevel = {source} {refusal}: taken as basic"


def test_an_expression_is_shown_with_its_value() -> None:
    assert understand(None, "undefined", "undefined") == LevelRequest(), "a deleted attribute was not written"
    request = understand(None, "Foo +\n 1", "undefined")
    assert request == LevelRequest(None, "Foo + 1 (= undefined)")


def test_above_the_cap_the_note_names_the_knob() -> None:
    line = note(LevelRequest(Level.TRACE, '"trace"'), Level.IO, Level.IO, "10-default.lua")
    assert line == 'JobLensLevel = "trace" is above this site\'s JOBLENS_MAX_LEVEL = io: capped'


def test_a_policy_that_decides_otherwise_is_named() -> None:
    line = note(LevelRequest(Level.IO, '"io"'), Level.BASIC, Level.TRACE, "20-site.lua")
    assert line == 'JobLensLevel = "io" was asked, policy 20-site.lua gave basic'


@pytest.mark.parametrize("written", ["2", '"io"', '"IO"', 'ifThenElse(true,"io","off") (= "io")'])
def test_a_request_that_is_granted_needs_no_note(written: str) -> None:
    assert note(LevelRequest(Level.IO, written), Level.IO, Level.IO, "10-default.lua") == ""


def test_a_request_that_had_to_be_tidied_is_told_so() -> None:
    line = note(understand("IO ", quoted("IO "), quoted("IO ")), Level.IO, Level.IO, "10-default.lua")
    assert line == 'JobLensLevel = "IO " is taken as io'


def test_no_request_needs_no_note() -> None:
    assert note(LevelRequest(), Level.BASIC, Level.IO, "10-default.lua") == ""


@pytest.mark.parametrize(
    ("line", "asks"),
    [
        (b'JobLensLevel = "io"', True),
        (b'\tjoblenslevel="TRACE" \r', True),
        (b"JobLensLevel = 2", True),
        (b'JobLensLevel = " 3 "', True),
        (b'JobLensLevel = "basic"', False),
        (b"JobLensLevel = 1", False),
        (b"JobLensLevel = 7", False),
        (b"JobLensLevel = undefined", False),
        (b"JobLensLevel =", False),
        (b'JobLensLevel = "io; rm -rf /"', False),
        (b'JobLensLevel = ifThenElse(RequestCpus > 8, "io", "basic")', True),
        (b'JobLensLevel = "\xff\xfe"', False),
        (b'JobLensLevels = "io"', False),
        (b'MyJobLensLevel = "io"', False),
        (b'Note = "JobLensLevel = 2"', False),
    ],
)
def test_who_may_ask_for_io_is_known_without_evaluation(line: bytes, asks: bool) -> None:
    assert may_ask_for(line, Level.IO) == asks
    assert may_ask_for(b"Cmd = 1\n" + line + b'\nOwner = "alice"\n', Level.IO) == asks


def test_of_two_lines_the_later_one_asks() -> None:
    assert not may_ask_for(b'JobLensLevel = "io"\nJobLensLevel = 1\n', Level.IO)
    assert may_ask_for(b'JobLensLevel = 1\nJobLensLevel = "io"\n', Level.IO)


@given(st.binary(max_size=2000), st.sampled_from([b"", b"JobLensLevel", b"\nJobLensLevel = "]))
def test_no_ad_makes_the_look_fail(ad: bytes, name: bytes) -> None:
    assert may_ask_for(ad + name + ad, Level.IO) in (True, False)


@given(st.sampled_from(Level), st.sampled_from(['"{}"', '" {} "', "{:d}"]))
def test_the_look_and_the_evaluation_agree_on_literals(level: Level, form: str) -> None:
    source = form.format(level) if "d" in form else form.format(level.word)
    assert may_ask_for(f"JobLensLevel = {source}\n".encode(), Level.IO) == (level >= Level.IO)
