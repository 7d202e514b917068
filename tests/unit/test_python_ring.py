"""Rings of calls of Pythons: what is read of them, whatever a job has written."""

from __future__ import annotations

import dataclasses
import errno
import mmap
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from condor_joblens.profiles import trace_page, traced_calls
from condor_joblens.profiles.traced_calls import TracedCalls
from condor_joblens.tracing import python_ring as ring
from condor_joblens.tracing.python_ring import RAISE, RESUME, RETURN, START, UNWIND, VALUE, YIELD

NOW = 1_800_000_000.0


class Made:
    """A ring as a Python writes it, of functions f0, f1 ... of /job/fit.py."""

    def __init__(self, functions: int = 3) -> None:
        self.bytes = bytearray(ring.RING_BYTES)
        self.head = np.frombuffer(self.bytes, ring.HEAD, 1)
        self.codes: Any = np.frombuffer(self.bytes, ring.CODE, ring.CODES, ring.HEAD_BYTES)
        at = ring.HEAD_BYTES + ring.CODES * ring.CODE.itemsize
        self.records: Any = np.frombuffer(self.bytes, ring.RECORD, ring.RECORDS, at)
        self.head["codes"] = functions
        for number in range(functions):
            self.codes[number] = (1, 1, 0, 1000, 1000, 0, number + 1, 1, b"/job/fit.py", b"f%d" % number)

    def returns(self, code: int, ms: int, value: bytes) -> None:
        """An end with a value."""
        self.add(RETURN, code, ms, -(-len(value) // ring.VALUE_BYTES))
        self.value(value)

    def starts(self, code: int, ms: int, *arguments: bytes) -> None:
        """A begin with arguments."""
        counts = [-(-len(each) // ring.VALUE_BYTES) for each in arguments]
        self.add(START, code, ms, sum(count << 4 * at for at, count in enumerate(counts)))
        for each in arguments:
            self.value(each)

    def value(self, value: bytes) -> None:
        for part in (value[at : at + ring.VALUE_BYTES] for at in range(0, len(value), ring.VALUE_BYTES)):
            self.add(VALUE, 0, 0, len(part))
            at = (int(self.head["records"][0]) - 1) % ring.RECORDS
            self.records[at : at + 1].view(np.uint8)[8 : 8 + len(part)] = np.frombuffer(part, np.uint8)

    def add(self, kind: int, code: int, ms: int, line: int = 0, tid: int = 7) -> None:
        number = int(self.head["records"][0])
        self.head["records"] += 1
        self.records[number % ring.RECORDS] = (number + 1, ms * 1_000_000, code, 5, tid, kind | line << 8)


def read(*made: Made, begun: float = NOW) -> TracedCalls:
    """CLOCK_MONOTONIC was 0 at NOW, and it is read a minute later."""
    about = ring.About([begun] * len(made), NOW + 60, NOW, ["a note"])
    return traced_calls.decode(ring.made_of([bytes(each.bytes) for each in made], about))


def ends(kept: TracedCalls) -> list[tuple[str, str, int, Any]]:
    return [(kept.functions[c.function].name[:2], c.end, c.depth, c.result) for c in kept.calls]


def nodes(kept: TracedCalls) -> list[tuple[str, int, int, int]]:
    return [(kept.functions[node.function].name[:2], node.parent, node.calls, node.unwound) for node in kept.tree]


def test_calls_are_told_with_who_called_them_and_how_they_ended() -> None:
    made = Made()
    for kind, code, ms, line in (
        *((START, 0, 1, 0), (START, 1, 2, 0), (RETURN, 1, 5, 0), (START, 1, 6, 0), (UNWIND, 1, 7, 12)),
        *((START, 2, 8, 0), (YIELD, 2, 9, 0), (RESUME, 2, 10, 0), (RETURN, 2, 11, 0), (START, 2, 12, 0)),
    ):
        made.add(kind, code, ms, line)
    kept = read(made)
    assert ends(kept) == [
        *(("f0", "entered", 0, None), ("f1", "returned", 1, None), ("f1", "unwound", 1, "left at line 12")),
        *(("f2", "returned", 1, None), ("f2", "entered", 1, None)),
    ]
    assert nodes(kept) == [("f0", -1, 1, 0), ("f1", 0, 2, 1), ("f2", 0, 2, 0)]
    assert kept.calls[1].seconds == pytest.approx(0.003) and kept.calls[1].time == pytest.approx(NOW + 0.002)
    assert kept.calls[2].seconds == pytest.approx(0.001), "when it was unwound is known"
    assert kept.functions[0].name == "f0 (fit.py:1)" and kept.functions[0].file == "/job/fit.py"
    assert kept.notes == ["a note"] and trace_page.table(kept) and trace_page.tree(kept)


def three() -> list[Made]:
    """Rings that have functions in common, with values, an exception, calls that go on, bursts, and what is lost."""
    first, second, third = Made(), Made(2), Made(4)
    first.starts(0, 1, b"run=3", b"password='hunter2'")
    first.add(START, 1, 2)
    first.returns(1, 5, b"'text'")
    first.add(UNWIND, 0, 7, 12)
    second.add(START, 1, 3)
    second.add(START, 0, 4)
    second.add(RAISE, 0, 5, 12)
    second.value(b"KeyError")
    second.head["lived_ns"], second.head["seen_ns"], second.head["others"] = 9_000_000_000, 1_000_000, 7
    third.add(START, 3, 6)
    third.add(START, 0, 8)
    third.returns(0, 9, b"1")
    third.codes[3]["over_ns"] = 5_000_000
    third.codes[1]["name"] = b"another"
    return [first, second, third]


def in_parts(made: list[Made], *ended: int) -> TracedCalls:
    """Read so often, with what is known by then: each time so many more of them are over, and are not read any more."""
    known, gone = b"", 0
    for count in (*ended, 0):
        rings = [bytes(each.bytes) for each in made[gone:]]
        about = ring.About([NOW] * len(rings), NOW + 60, NOW, ["a note"], count)
        known, artifact = ring.parts_of(ring.read(rings, about, known))
        gone += count
    assert b"hunter2" not in known
    return traced_calls.decode(artifact)


@pytest.mark.parametrize("ended", [(1, 1), (2,), (3,), (1, 2), (0, 1)])
def test_rings_that_are_over_are_in_the_sum_as_if_they_were_read_with_the_others(ended: tuple[int, ...]) -> None:
    found, whole = in_parts(three(), *ended), read(*three())
    for each, other in zip(found.functions, whole.functions):
        assert vars(each) == {**vars(other), "times": each.times}
    assert dataclasses.replace(found, functions=[]) == dataclasses.replace(whole, functions=[])
    assert len(found.functions) == len(whole.functions) == 5


def test_functions_of_rings_that_are_over_give_way_as_others_do() -> None:
    many = [Made(ring.CODES), Made(ring.CODES)]
    many[0].add(START, 600, 1)
    many[0].add(START, ring.CODES - 1, 2)
    for each in many:
        each.codes["total_ns"] = range(ring.CODES)
    many[1].codes["name"] = [b"g%d" % number for number in range(ring.CODES)]
    kept = in_parts(many, 1)
    assert len(kept.functions) == traced_calls.MOST_FUNCTIONS
    assert [call.depth for call in kept.calls] == [1] and kept.folded == 2 and not kept.tree
    assert kept.notes[1].startswith(f"{traced_calls.MOST_FUNCTIONS} functions are kept")


def test_an_answer_that_makes_no_sense_is_none() -> None:
    for said in (b"", b"\0\0", b"\0\0\0\5abcde", b"\xff\xff\xff\xffabc"):
        assert ring.parts_of(said)[1] == b""


def test_a_ring_is_over_when_no_process_has_it_and_its_copy_has_what_was_in_it() -> None:
    made = ring.create()
    memory = mmap.mmap(made, ring.RING_BYTES)
    memory[5000:5004] = b"fit5"
    memory[-4:] = b"last"
    reads, writes = os.pipe()
    child = os.fork()
    if not child:  # it shares the ring
        os.close(writes)
        os.read(reads, 1)
        os._exit(0)
    os.close(reads)
    memory.close()
    try:
        assert not ring.is_over(made)
    finally:
        os.close(writes)
        os.waitpid(child, 0)
    assert ring.is_over(made) and ring.is_over(made)
    with pytest.raises(PermissionError):
        os.pwrite(made, b"x", 0)
    copy = ring.copied(made)
    assert os.pread(copy, ring.RING_BYTES, 0) == os.pread(made, ring.RING_BYTES, 0)
    assert os.pread(copy, 4, 5000) == b"fit5" and os.fstat(copy).st_blocks < 64, (
        "what was never written takes no memory"
    )
    for each in (made, copy):
        os.close(each)


@pytest.mark.parametrize(
    "name, value, told",
    [(b"Fit.chi2", b"1.5", "1.5"), (b"f", b"'a value of 21 bytes'", "'a value of 21 bytes'"), (b"f", b"", None),
     (b"f", b"'" + b"word " * 20, "'" + "word " * 11 + "..."), (b"f", b"'" + b"x" * 80, "..."),
     (b"Login.password", b"'hunter2'", "***"), (b"f", b"'\x1b[2J'", "'\\x1b[2J'"), (b"f", b"'a\xff'", "'a\\xff'")],
)  # fmt: skip
def test_a_returned_value_is_told_without_secrets(name: bytes, value: bytes, told: str | None) -> None:
    made = Made()
    made.codes[0]["name"] = name
    made.add(START, 0, 1)
    made.add(START, 1, 2)
    made.returns(1, 3, b"None")
    made.returns(0, 4, value[: ring.VALUE_BYTES * ring.MOST_VALUES])
    assert [call.result for call in read(made).calls] == [told, "None"]


def test_arguments_are_told_by_their_names_without_secrets() -> None:
    made = Made()
    made.starts(0, 1, b"run=3", b"event='a text of more than 20 bytes'")
    made.starts(1, 2, b"", b"password='hunter2'")
    made.starts(2, 3, (b"url='" + b"words " * 16)[:100])
    made.add(START, 0, 4)
    made.returns(0, 5, b"None")
    assert [call.arguments for call in read(made).calls] == [
        *(["run = 3", "event = 'a text of more than 20 bytes'"], ["password = ***"]),
        *(["url = '" + "words " * 15 + "..."], None),
    ]
    made.records[2]["number"] = 0
    assert next(call.arguments for call in read(made).calls) == ["run = 3"]


@pytest.mark.parametrize(
    "name", [b"KeyError", b"NameOf20BytesAsAType", b"ALongerNameThanTwoRecordsHaveRoomForInThem", b""]
)
def test_an_exception_is_told_where_it_was_raised(name: bytes) -> None:
    made = Made()
    made.add(START, 0, 1)
    made.add(RAISE, 0, 2, 12)
    made.value(name)
    made.returns(0, 3, b"1")
    said = f"{name.decode() or 'an exception'} at line 12"
    assert ends(read(made)) == [("f0", "returned", 0, "1"), ("f0", "raised", 0, said)]
    assert nodes(read(made)) == [("f0", -1, 1, 0)]


def test_of_a_value_that_is_not_whole_nothing_is_told() -> None:
    made = Made()
    made.add(START, 0, 1)
    made.returns(0, 2, b"x" * 45)
    made.records[3]["number"] = 0
    kept = read(made)
    assert [(call.end, call.result) for call in kept.calls] == [("returned", None)]


def test_threads_have_calls_of_their_own() -> None:
    made = Made()
    made.add(START, 0, 1, tid=7)
    made.add(START, 1, 2, tid=8)
    made.add(RETURN, 0, 3, tid=7)
    assert nodes(read(made)) == [("f0", -1, 1, 0), ("f1", -1, 1, 0)]


def test_the_same_function_of_two_processes_is_one() -> None:
    kept = read(Made(), Made())
    assert [each.counts["Processes"] for each in kept.functions] == [2, 2, 2]
    assert [each.counts["Calls"] for each in kept.functions] == [2, 2, 2]


def test_an_end_whose_begin_was_overwritten_says_nothing_and_the_rest_goes_on() -> None:
    made = Made()
    for at in range(ring.RECORDS + 3):
        made.add(START if at % 2 == 0 else RETURN, 0, at // 1000)
    kept = read(made)
    assert f"the last {ring.RECORDS} begins and ends" in kept.notes[1]
    assert nodes(kept) == [("f0", -1, ring.RECORDS // 2, 0)]


def test_an_end_that_no_open_call_has_is_looked_for_in_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that writes nothing else would keep the reader busy for long."""
    made, looks = Made(), 0
    for kind, code in ((START, 0), (RETURN, 1)):
        for _ in range(1000):
            made.add(kind, code, 1)

    class Looked(ring._Open):
        def __getattribute__(self, name: str) -> Any:
            nonlocal looks
            looks += name == "function"
            return super().__getattribute__(name)

    monkeypatch.setattr(ring, "_Open", Looked)
    assert len(read(made).calls) == 1000
    assert looks < 10_000  # each end at each begin were a million


def test_functions_without_room_are_said() -> None:
    made = Made()
    made.head["others"] = 5
    assert any(note.startswith("5 functions of chosen files found no room") for note in read(made).notes)


@pytest.mark.parametrize(
    "column, value",
    [("number", 0), ("number", 1 << 63), ("number", ring.RECORDS + 1), ("code", ring.CODES), ("code", 1 << 31),
     ("code", 2000), ("kind_and_line", 0), ("kind_and_line", 255), ("time_ns", (1 << 64) - 1), ("time_ns", 10**12)],
)  # fmt: skip
def test_a_forged_record_is_left_out(column: str, value: int) -> None:
    made = Made()
    made.add(START, 0, 1)
    made.add(START, 1, 2)
    made.records[1][column] = value
    assert ends(read(made)) == [("f0", "entered", 0, None)]


def test_forged_sums_and_names_are_bounded_and_without_secrets() -> None:
    made = Made()
    made.codes[0]["calls"] = made.codes[0]["total_ns"] = made.codes[0]["longest_ns"] = (1 << 64) - 1
    made.codes[1]["file"], made.codes[1]["name"] = b"/a\x1b[2J\n" + b"\xff" * 100, b"--password=hunter2hunter2"
    made.head["codes"] = made.head["others"] = (1 << 64) - 1
    kept = read(made, made)
    text = "\n".join((*trace_page.table(kept), *trace_page.tree(kept)))
    assert "hunter2" not in text and "\x1b" not in text
    assert kept.functions[0].counts["Calls"] == 1 << 49


def test_functions_for_which_there_is_no_room_are_counted() -> None:
    """Names of control characters are the longest when they are written."""
    made = Made(0)
    for number in range(ring.CODES):
        name = b"\x01" * 60 + b"%d" % number
        made.codes[number] = (1, 1, 0, 1000 * (number + 1), 1000, 0, 1, 1, b"/job/" + b"\x02" * 120, name)
    many, few = read(made), read(Made(3))
    kept, left_out = len(many.functions), ring.CODES - len(many.functions)
    assert kept > 100 and left_out > 0 and str(ring.CODES - 1) in many.functions[0].name
    said = f"{kept} functions are kept, those in which most time was spent; {left_out} more were called"
    assert said in many.notes
    assert few.notes == ["a note"]


@settings(max_examples=30, deadline=None)
@given(st.binary(min_size=1, max_size=300), st.binary(min_size=1, max_size=100), st.integers(0, (1 << 64) - 1))
def test_whatever_is_in_a_ring_it_is_read(codes: bytes, records: bytes, begun: int) -> None:
    made = Made()
    for column, pattern in ((made.codes, codes), (made.records, records)):
        raw = column.view(np.uint8)
        raw[:] = np.resize(np.frombuffer(pattern, np.uint8), raw.shape)
    made.records["number"][::2] = np.arange(1, ring.RECORDS + 1, 2)
    made.records["kind_and_line"][::3] = np.arange(len(made.records[::3])) % 9
    made.records["code"][::5] = np.arange(len(made.records[::5])) % 9
    made.records["time_ns"][::2] = 10**9
    made.head["records"] = begun
    kept = read(made)
    assert len(kept.functions) <= traced_calls.MOST_FUNCTIONS


def test_a_ring_can_be_neither_shortened_nor_made_longer() -> None:
    made = ring.create()
    try:
        assert os.fstat(made).st_size == ring.RING_BYTES <= 1 << 20
        for size in (0, 2 << 20):
            with pytest.raises(OSError) as raised:
                os.ftruncate(made, size)
            assert raised.value.errno == errno.EPERM
    finally:
        os.close(made)


def test_of_a_python_in_bursts_the_share_of_time_is_told_and_no_call_goes_on_from_one_to_the_next() -> None:
    made = Made()
    made.head["lived_ns"], made.head["seen_ns"] = 10_000_000_000, 210_000_000
    made.add(ring.BURST, 0, 1)
    made.add(START, 0, 2)
    made.add(START, 1, 3)
    made.add(ring.BURST, 0, 200)
    made.add(START, 2, 201)
    made.add(RETURN, 2, 202)
    kept = read(made)
    assert ends(kept) == [("f0", "entered", 0, None), ("f1", "entered", 1, None), ("f2", "returned", 0, None)]
    assert nodes(kept)[-1] == ("f2", -1, 1, 0)
    assert {round(each.share, 6) for each in kept.functions} == {0.021}
    assert kept.notes[1:] == ["1 Pythons are older than 3.12: calls of their main threads were seen 2.1 % of the time"]
    assert all(line.rstrip().endswith("2.1 % of 60.00 s") for line in trace_page.table(kept)[2:5])
    made.head["seen_ns"] = (1 << 64) - 1
    assert {each.share for each in read(made).functions} == {1.0}


def test_a_limited_function_says_until_when_it_was_counted() -> None:
    made = Made(8)
    made.codes["over_ns"][:6] = 3_000_000_000
    made.codes["over_ns"][6] = (1 << 64) - 1
    kept = read(made)
    covered = {each.name[:2]: (each.truths["SwitchedOff"], each.seconds["CoveredSeconds"]) for each in kept.functions}
    assert (covered["f0"], covered["f6"], covered["f7"]) == ((True, 3.0), (True, 60.0), (False, 60.0))
    assert "7 functions were switched off then: too many calls" in trace_page.table(kept)
