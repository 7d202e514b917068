"""Records that C makes of process events: what it fills itself is what Python would have shown."""

from __future__ import annotations

import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.agent.lifecycle.process_events import TEXT_BYTES, as_events
from condor_joblens.common.redact import clipped, command_line
from condor_joblens.common.scan import FOUND, scan_table
from condor_joblens.common.secret_names import SIGNS
from condor_joblens.tracer import map_layout
from condor_joblens.tracer.event_records import MARK_TEXT, RecordMaker
from condor_joblens.tracer.map_layout import COMMAND_BYTES

WORDS = [b"he", b"she", b"his", b"hers", b"passw", b"pass", b"@"]


def executed(*commands: bytes) -> np.ndarray:
    """An exec of each of these arguments, separated by NUL, as far as they fit."""
    found: np.ndarray = np.zeros(len(commands), map_layout.PROCESS_EVENT)
    found["kind"], found["program"] = map_layout.PROCESS_EXEC, b"job"
    found["command"] = commands
    found["command_bytes"] = [min(len(command), COMMAND_BYTES) for command in commands]
    return found


def texts(*commands: bytes) -> list[bytes]:
    """What is shown of each."""
    found = executed(*commands)
    shown: list[bytes] = as_events(found, np.ones(len(found), "u8"), 0.0)["text"].tolist()
    return shown


def joined(arguments: list[str]) -> bytes:
    return b"\0".join(argument.encode() for argument in arguments) + b"\0"


@given(st.text("hersi pawSHERI@", max_size=30))
def test_the_table_finds_every_word(text: str) -> None:
    table, state = scan_table(WORDS), 0
    for end, byte in enumerate(text.encode(), 1):
        state = int(table[state, byte])
        assert bool(state & FOUND) == any(text[:end].lower().encode().endswith(word) for word in WORDS)
        if state & FOUND:
            break


@given(st.lists(st.lists(st.text(string.printable.strip(), min_size=1), min_size=1), min_size=1, max_size=20))
def test_the_fast_way_shows_what_the_thorough_one_shows(commands: list[list[str]]) -> None:
    lines = texts(*map(joined, commands))
    for line, arguments in zip(lines, commands):
        head = joined(arguments)[:COMMAND_BYTES].rstrip(b"\0")
        assert line == clipped(command_line(head, cut=len(head) == COMMAND_BYTES), TEXT_BYTES)


@pytest.mark.parametrize("sign", [*SIGNS, b"\x1b", b"\n", "é".encode(), b"0" * 20])
def test_what_may_hold_a_secret_is_left_to_python(sign: bytes) -> None:
    found = executed(b"job\0x" + sign.upper(), b"job\0plain", b"job\0" + b"1/" * 126)
    events, marks, has_marks = RecordMaker(3).make(found, [1, 1, 1], 0.0)
    assert has_marks
    assert (marks["mark"] & MARK_TEXT != 0).tolist() == [True, False, True]
    assert events["text"].tolist() == [b"", b"job plain", b""]


@given(st.lists(st.binary(max_size=120), max_size=20))
def test_any_bytes_make_one_line_of_utf8_within_bounds(commands: list[bytes]) -> None:
    for line in texts(*commands or [b""]):
        assert len(line) <= TEXT_BYTES
        assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in line.decode("utf-8"))


@pytest.mark.parametrize("sign", ["\u061c", "\u200e", "\u200f", "\u2028", "\u202a", "\u202e", "\u2066", "\u2069"])
def test_nothing_turns_the_direction_of_reading(sign: str) -> None:
    assert texts(f"/bin/{sign}job".encode()) == [f"/bin/\\u{ord(sign):04x}job".encode()]


def test_events_without_a_run_have_no_record() -> None:
    events, marks, has_marks = RecordMaker(3).make(executed(b"a", b"b", b"c"), [5, 0, 7], 0.0)
    assert events["run_number"].tolist() == [5, 7] and marks["event"].tolist() == [0, 2]
    assert events["text"].tolist() == [b"a", b"c"] and not has_marks


def test_what_a_length_beyond_the_command_says_is_not_believed() -> None:
    found = executed(b"job")
    found["command_bytes"] = 1 << 31
    assert as_events(found, np.ones(1, "u8"), 0.0)["text"].tolist() == [b""]


def test_more_events_than_there_is_room_for_are_refused() -> None:
    with pytest.raises(ValueError, match="room for 1"):
        RecordMaker(1).make(executed(b"a", b"b"), [1, 2], 0.0)
