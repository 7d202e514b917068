"""What a person writes to have functions traced, where functions end, and how hits become calls."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.cli import trace
from condor_joblens.common import descriptors
from condor_joblens.common.errors import JobLensError
from condor_joblens.model import trace_spec as spec
from condor_joblens.model.trace_spec import Spec, SpecError, parse, shown, without_parameters
from condor_joblens.profiling.exception_types import type_name
from condor_joblens.tracing import file_reader
from condor_joblens.tracing.calls import Call, Calls, End, Hit, Kind
from condor_joblens.tracing.child import Opener
from condor_joblens.tracing.exits import ENTRY, JUMP, LEAVE, NO_REGISTER, RETURN, Piece, Place, Unreadable, places
from condor_joblens.tracing.functions import Found
from condor_joblens.tracing.throws import MOST_PLACES, Throw, Throws

# -- what is written ------------------------------------------------------------------------------------------------


def test_a_spec_has_a_file_a_function_and_types() -> None:
    found = parse("libXrdCl.so*:*Open*(int, const char*, double, void *) -> unsigned long")
    assert (found.file, found.function) == ("libXrdCl.so*", "*Open*")
    assert found.is_file("/usr/lib/libXrdCl.so.3") and not found.is_file("/usr/lib/libXrd.so.3")
    assert found.is_function("XrdCl::File::Open(std::string const&)") and not found.is_function("Close()")
    assert [each.name for each in found.registers] == ["int", "const char*", "void *"] and found.texts == 0b10
    assert found.result is not None and found.result.bits == 64


def test_throws_are_those_of_the_library_of_cxx_or_of_a_program_that_has_it_in_itself() -> None:
    assert parse("throws").is_file("/usr/lib/libstdc++.so.6") and parse(" throws ").is_of_throws
    assert parse("prog:__cxa_throw").is_of_throws and not parse("prog:fit").is_of_throws
    with pytest.raises(SpecError, match="write throws"):
        parse("prog:__cxa_throw(int)")


def test_names_with_colons_and_whole_paths() -> None:
    found = parse("/opt/bin/prog:Tree::Fill")
    assert (found.file, found.function) == ("/opt/bin/prog", "Tree::Fill") and found.arguments is None
    assert found.is_file("/opt/bin/prog") and not found.is_file("/tmp/prog")


@pytest.mark.parametrize(
    "text",
    ["", "prog", ":f", "prog:", "prog::f", "prog:f(int", "prog:f(Tree)", "prog:f() -> double", "prog:f(\x1b)",
     "a:" + "f" * 2000, "prog:f(char*, char*, char*)", "prog:f(int, int, int, int, int, int, int)", "prog:(int)"],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        parse(text)


@given(st.text(max_size=200))
def test_no_text_does_harm(text: str) -> None:
    try:
        found = parse(text)
    except SpecError as error:
        assert str(error)
    else:
        assert found.file and found.function and len(found.registers) <= 6


@pytest.mark.parametrize(
    "name, expected",
    [
        ("Tree::Fill(int) const", "Tree::Fill"),
        ("main", "main"),
        ("f(void (*)(int))", "f"),
        ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
        ("A::operator()(int) const", "A::operator()"),
    ],
)
def test_a_name_without_its_parameters(name: str, expected: str) -> None:
    assert without_parameters(name) == expected


def test_values_are_shown_by_their_types() -> None:
    assert shown(spec.parse_type("int"), 0xFFFFFFFF, {}, 0) == "-1"
    assert shown(spec.parse_type("unsigned"), 0xFFFFFFFFFFFFFFFF, {}, 0) == "4294967295"
    assert shown(spec.parse_type("bool"), 0x100, {}, 0) == "false"
    assert shown(spec.parse_type("void*"), 0, {}, 0) == "NULL"
    assert shown(spec.parse_type("char*"), 64, {}, 0) == "0x40 (not resident)"
    assert shown(spec.parse_type("char*"), 64, {0: '"x"'}, 0) == '"x"'


# -- where functions end --------------------------------------------------------------------------------------------


def code(*parts: str) -> Piece:
    return Piece(0, bytes.fromhex("".join(parts)))


def kinds(main: Piece, cold: Piece | None = None) -> list[tuple[int, int]]:
    return [(place.distance, place.kind) for place in places(main, cold)]


def test_each_return_is_an_exit() -> None:
    # test edi,edi; je +1; ret; nop; ret
    assert kinds(code("85ff", "7401", "c3", "90", "c3")) == [(0, ENTRY), (4, RETURN), (6, RETURN)]


@pytest.mark.parametrize(
    "parts, expected",
    [
        (("f30f1efa", "55", "5d", "c3"), 4),  # endbr64; push rbp
        (("f30f1efa", "4154", "415c", "c3"), 4),  # push r12
        (("f30f1efa", "90", "c3"), 4),
        (("f30f1efa", "31c0", "c3"), 0),  # xor eax,eax is stepped over as endbr64 is
        (("f30f1efa", "4189f8", "c3"), 0),  # mov r8d,edi has a prefix as push r12 has
        (("f30f1efa", "55", "ebfd"), 0),  # a loop to the push
        (("55", "5d", "c3"), 0),
        (("f30f1efa",), 0),
    ],
)
def test_the_probe_of_an_entry_is_where_it_costs_least(parts: tuple[str, ...], expected: int) -> None:
    assert places(code(*parts))[0] == Place(expected, ENTRY)


def test_a_jump_out_is_an_exit_and_one_within_is_none() -> None:
    assert kinds(code("90", "eb01", "90", "e900100000")) == [(0, ENTRY), (4, LEAVE)]


def test_a_conditional_jump_to_the_cold_part_is_no_exit() -> None:
    # test edi,edi; jne to 0x40, which returns; ret
    main = code("85ff", "0f8538000000", "c3")
    assert kinds(main, Piece(0x40, bytes.fromhex("90c3"))) == [(0, ENTRY), (8, RETURN), (0x41, RETURN)]
    with pytest.raises(Unreadable, match="conditional jump"):
        places(main)


def test_a_jump_through_a_register_or_memory_is_decided_when_it_is_hit() -> None:
    assert places(code("90", "ffe0"))[1] == Place(1, JUMP, base=10)
    assert places(code("90", "ff24c500100000"))[1] == Place(1, JUMP, NO_REGISTER, 10, 8, True, 0x1000)
    # relative to the end of the instruction
    assert places(code("90", "ff2500010000"))[1] == Place(1, JUMP, 16, NO_REGISTER, 1, True, 0x106)


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "no length"),
        ("f00fb10f" + "c3", "lock"),
        ("90" + "75fd" + "c3", "repeats"),
        ("90" + "06", "can't be read"),
        ("90" + "0f8500100000" + "c3", "conditional"),
        ("90" + "64ff2500000000", "of its thread"),
        ("90" + "eb01" + "b8c3000000" + "c3", "into its instructions"),
    ],
)
def test_what_can_not_be_told_without_doubt_is_refused(text: str, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        places(code(text))


@given(st.binary(max_size=400))
def test_no_code_does_harm(data: bytes) -> None:
    try:
        found = places(Piece(0, data))
    except Unreadable:
        return
    assert found[0] == Place(0, ENTRY) and all(0 <= place.distance < len(data) for place in found)


# -- hits and calls -------------------------------------------------------------------------------------------------


def hit(
    kind: Kind, stack: int, time_ns: int = 0, thread: int = 1, function: int = 0, lost: int = 0, value: int = 0
) -> Hit:
    return Hit(kind, function, time_ns, stack, thread, 10, thread, lost, (value,))


def ended(calls: Calls, *hits: Hit) -> list[tuple[End | None, int]]:
    found: list[Call] = [call for each in hits for call in calls.take(each)]
    return [(call.end, call.entry.stack) for call in found]


def test_an_entry_and_an_exit_are_a_call() -> None:
    calls = Calls(1)
    (call,) = [*calls.take(hit(Kind.ENTRY, 100, 5)), *calls.take(hit(Kind.RETURN, 100, 12, value=7))]
    assert (call.end, call.ended_ns - call.entry.time_ns, call.result, call.depth) == (End.RETURNED, 7, 7, 0)
    sums = calls.sums[0]
    assert (sums.entries, sums.returned, sums.inside, sums.total_ns, sums.longest_ns) == (1, 1, 0, 7, 7)


def test_what_lies_deeper_than_a_later_hit_was_unwound() -> None:
    calls = Calls(1)
    found = ended(
        calls,
        hit(Kind.ENTRY, 100),
        hit(Kind.ENTRY, 80),
        hit(Kind.ENTRY, 60),
        hit(Kind.RETURN, 100),
        hit(Kind.ENTRY, 100),
    )
    assert found == [(End.UNWOUND, 60), (End.UNWOUND, 80), (End.RETURNED, 100)]
    assert calls.sums[0].inside == 1


def test_an_entry_at_the_same_place_says_that_the_one_before_was_unwound() -> None:
    assert ended(Calls(1), hit(Kind.ENTRY, 100), hit(Kind.ENTRY, 100)) == [(End.UNWOUND, 100)]


def test_threads_have_stacks_of_their_own() -> None:
    calls = Calls(1)
    assert ended(calls, hit(Kind.ENTRY, 100), hit(Kind.ENTRY, 500, thread=2), hit(Kind.RETURN, 100)) == [
        (End.RETURNED, 100)
    ]
    assert calls.sums[0].inside == 1


def test_an_end_without_a_beginning_had_begun_before() -> None:
    calls = Calls(1)
    assert ended(calls, hit(Kind.RETURN, 100)) == [] and calls.sums[0].begun_before == 1


def test_a_hit_that_was_lost_may_have_been_any_end() -> None:
    calls = Calls(2)
    assert ended(calls, hit(Kind.ENTRY, 80), hit(Kind.ENTRY, 100, function=1, lost=1)) == []
    assert (calls.sums[0].unknown, calls.sums[0].unwound, calls.sums[1].inside) == (1, 0, 1)


def test_a_call_that_returns_after_it_was_left_behind_shows_several_stacks() -> None:
    calls = Calls(1)
    ended(calls, hit(Kind.ENTRY, 100), hit(Kind.ENTRY, 900), hit(Kind.RETURN, 100))
    sums = calls.sums[0]
    assert calls.switches_stacks and (sums.unwound, sums.unknown, sums.inside) == (0, 1, 1)
    assert ended(calls, hit(Kind.ENTRY, 50), hit(Kind.ENTRY, 2000)) == []


def test_nothing_is_known_of_a_function_that_was_switched_off() -> None:
    calls = Calls(1)
    assert ended(calls, hit(Kind.ENTRY, 100), hit(Kind.OFF, 90)) == [] and calls.sums[0].unknown == 1


@given(
    st.lists(
        st.tuples(st.sampled_from([Kind.ENTRY, Kind.RETURN, Kind.LEAVE]), st.integers(0, 9), st.integers(0, 1)),
        max_size=60,
    )
)
def test_no_call_is_lost_or_ends_twice(told: list[tuple[Kind, int, int]]) -> None:
    calls = Calls(2)
    found = [call for kind, stack, function in told for call in calls.take(hit(kind, stack, function=function))]
    entries = sum(kind is Kind.ENTRY for kind, _, _ in told)
    assert sum(sums.entries for sums in calls.sums) == entries
    assert all(sums.inside >= 0 for sums in calls.sums) and len({id(call) for call in found}) == len(found)


# -- what comes from others' hands ----------------------------------------------------------------------------------

GOOD = ["f", 4096, 10, [0, 0], [[0, 0, 255, 255, 0, False, 0]], False]


def test_what_reads_a_file_has_nothing_else_of_the_trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def taken_over(elf: None, spec: Spec) -> Found:
        found = []
        for descriptor in (0, *range(3, 1024)):
            with contextlib.suppress(OSError):
                os.fstat(descriptor)
                found.append(str(descriptor))
        return Found(refused=found)

    monkeypatch.setattr(file_reader, "find", taken_over)
    monkeypatch.setattr(file_reader, "Elf", lambda file: None)
    (tmp_path / "program").write_bytes(b"x")
    others = [os.open(tmp_path / "program", os.O_RDONLY) for _ in range(9)]
    try:
        found = file_reader.read(others[4], "program:f")
        assert len(found.refused) == 2 and str(others[4]) in found.refused, "the file, and the socket for the answer"
    finally:
        for each in others:
            os.close(each)


def test_a_file_that_has_its_symbols_elsewhere_is_opened(tmp_path: Path) -> None:
    """The opener gives the file that has them too."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, open(tmp_path / "program", "w+b") as program, open(tmp_path / "symbols", "w+b") as symbols:
        descriptors.send(theirs, b'{"opened": 4096}', [program.fileno(), symbols.fileno()])
        opener = Opener(ours)
        file = opener.open(4096)
        assert file is not None and os.fstat(file).st_ino == os.fstat(program.fileno()).st_ino and not opener.is_lost
        os.close(file)


def test_what_a_reader_says_is_bounded() -> None:
    assert file_reader.understood({"functions": [GOOD], "refused": [], "nearest": []}).functions[0].offset == 4096
    place = GOOD[4][0]  # type: ignore[index]
    for wrong in (
        ["f", -1, *GOOD[2:]],
        [*GOOD[:2], 0, *GOOD[3:]],
        GOOD[:5],
        [*GOOD[:4], [], False],
        [*GOOD[:4], [place] * 1001, False],
        [*GOOD[:4], [[0, 9, *place[2:]]], False],
        [*GOOD[:4], [[1 << 40, *place[1:]]], False],
        [*GOOD[:4], [[True, *place[1:]]], False],
        "f",
        None,
    ):
        with pytest.raises(JobLensError):
            file_reader.understood({"functions": [wrong], "refused": [], "nearest": []})
    with pytest.raises(JobLensError):
        file_reader.understood({"functions": [GOOD] * 17, "refused": [], "nearest": []})


def row(**other: Any) -> dict[str, Any]:
    (call,) = trace._understood(
        json.dumps({"calls": [[1700000000.25, 1, 2, "f(int)", ["1", "\x1b[2J"], "returned", 0.0014, "7", 1]]}).encode()
    )["calls"]
    return {**call, **other}


def thrown(at: int = 1, text: bytes | None = b"of no use") -> Throw:
    return Throw(
        5, 10, 11, 0x70, (0x80, 0x90, 0, 0, 0), (b"4Mine", b"", b"", b"", b""), text, (1, 2, 3), bytes([at] * 9)
    )


def test_what_can_not_wait_is_done_while_an_answer_is_waited_for() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        opener = Opener(ours)
        opener.meanwhile = lambda: theirs.send(b'{"prepared": 5}') and None
        assert opener.ask({"prepare": 5}) == {"prepared": 5} and not opener.is_lost


def test_a_place_is_looked_up_once() -> None:
    asked = []

    def ask(question: dict[str, Any]) -> dict[str, Any]:
        asked.append(question)
        return {"type": "Mine", "names": ["4Mine", "St13runtime_error"], "frames": [["f()", "/p"]], "whole": True}

    throws = Throws(ask)
    first, text = throws.take(thrown())
    assert first is not None and (first.type, text, first.frames) == ("Mine", "of no use", [("f()", "/p")])
    assert throws.take(thrown(text=None)) == (first, None) and first.count == 2 and len(asked) == 1
    assert throws.take(thrown(at=2))[0] is not first and [place.count for place in throws.places] == [2, 1]
    assert asked[0]["registers"] == [1, 2, 3] and asked[0]["thrown"] == 10


def test_a_type_that_is_made_of_none_with_a_text_has_none() -> None:
    throws = Throws(lambda question: {"type": "Mine", "names": ["4Mine", "9exception"], "frames": []})
    assert throws.take(thrown())[1] is None


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"names": 5},
        {"frames": [5]},
        {"frames": [["f"]]},
        {"frames": {"a": 1}, "names": [[]]},
        {"type": ["x"] * 9999},
    ],
)
def test_what_the_owners_child_says_of_a_throw_does_no_harm(answer: dict[str, Any]) -> None:
    place, text = Throws(lambda question: answer).take(thrown())
    assert place is not None and len(place.type) <= 300 and not place.frames and text is None


def test_too_many_places_are_counted_together() -> None:
    throws = Throws(lambda question: {})
    for at in range(MOST_PLACES):
        assert throws.take(thrown(at))[0] is not None
    assert throws.take(thrown(MOST_PLACES)) == (None, None) and throws.others == 1
    assert sum(place.count for place in throws.places) == MOST_PLACES


def test_types_as_their_author_wrote_them() -> None:
    assert type_name("St13runtime_error") == "std::runtime_error" and type_name("*N4work7FailureE") == "work::Failure"
    assert type_name("") == "" and type_name("no type") == "no type"


def test_throws_and_places_in_lines() -> None:
    said = {
        "throws": [[0.5, 10, 11, "std::bad\x1b", "of no\nuse", "f()", 0], [0.5, 10, 11, "", None, "", -1]],
        "places": [[0, 10, "std::bad", "of no use", 3, [["f()", "/a/prog"], ["", ""]], False]],
        "summary": [{"Function": "__cxa_throw", "File": "/l", "Throws": 3, "OtherPlaces": 1, "LostHits": 0,
                     "NotOurs": 0, "NotShown": 0, "CoveredSeconds": 2.0, "SwitchedOff": True}],
    }  # fmt: skip
    told = trace._understood(json.dumps(said).encode())
    line = trace.throw_line(told["throws"][0])
    assert "10/11  std::bad" in line and line.endswith("in f()") and "\x1b" not in line and "\n" not in line
    assert "a type that is not known" in trace.throw_line(told["throws"][1])
    assert trace.place_lines(told["places"][0])[1:] == [
        "3 x std::bad in process 10, the first one with: of no use", "    f() (prog)", "    (no name) ()",
        "    and what called that is not known",
    ]  # fmt: skip
    page = trace.page(told["summary"][0])
    assert "3 exceptions were thrown by /l in 2.0 s" in page and any("switched off" in each for each in page)


def test_a_call_in_a_line() -> None:
    text = trace.line(row())
    assert text.endswith(".250000  1/2    f(1, \\x1b[2J) = 7  1.4 ms")
    assert trace.line(row(End="unwound", Seconds=None, Result=None)).endswith("  unwound")


@pytest.mark.parametrize(
    "said", [b"", b"[]", b'{"calls":[[1]]}', b'{"summary":[{}]}', b'{"calls":[["x",1,2,"f",[],"r",1,"",1]]}']
)
def test_what_makes_no_sense_is_said_to(said: bytes) -> None:
    with pytest.raises(JobLensError, match="makes no sense"):
        trace._understood(said)


def test_the_program_and_python_agree_on_kinds() -> None:
    text = (Path(__file__).parents[2] / "bpf_programs/trace/joblens_trace.h").read_text()
    order = [text.index(f"TRACED_{name}") for name in ("ENTRY", "RETURN", "LEAVE", "JUMP", "OFF")]
    assert order == sorted(order) and (Kind.RETURN, Kind.LEAVE, Kind.OFF) == (1, 2, 4)
