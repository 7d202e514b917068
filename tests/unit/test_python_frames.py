"""What is read of Python in a process's memory: versions' line tables, this process itself, and memory that lies."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import struct
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.cli import hang, stacks
from condor_joblens.cli.terminal import Style
from condor_joblens.profiles import evidence as told
from condor_joblens.profiling import python, python_identity, python_lines
from condor_joblens.profiling.mixed import NativeFrame, PlacedFrame, mixed
from condor_joblens.profiling.process import Process
from condor_joblens.profiling.python import NO_NAME, Calls, Interpreter, PythonFrame
from condor_joblens.profiling.python_offsets import NONE, SAYS_ITSELF, TABLE, Layout
from condor_joblens.profiling.symbols import Files

CHECKOUT = Path(__file__).parents[2]

# -- lines -----------------------------------------------------------------------------------------------------------

LINES = json.loads((Path(__file__).parent / "data" / "python_lines.json").read_text())
"""Of one function as each of these versions has compiled it: line table, first line, from where on which line, size."""


@pytest.mark.parametrize("row", LINES, ids=[str(row["version"]) for row in LINES])
def test_the_line_of_each_instruction(row: dict[str, Any]) -> None:
    for offset in range(0, row["bytes"], 2):
        truth = [line for start, line in row["lines_from"] if start <= offset][-1]
        said = python_lines.line(tuple(row["version"]), bytes.fromhex(row["table"]), row["first_line"], offset)
        assert said == truth, offset


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


@pytest.mark.skipif(sys.version_info < (3, 10), reason="it does not say the lines of all instructions")
def test_the_lines_of_a_large_file_in_this_version() -> None:
    source = Path(argparse.__file__).read_text()
    checked = 0
    for code in codes(compile(source, "x", "exec")):
        for start, end, line in code.co_lines():
            for offset in range(start, end, 2):
                said = python_lines.line(sys.version_info[:2], code.co_linetable, code.co_firstlineno, offset)
                assert said == (line or 0), (code, offset)
                checked += 1
    assert checked > 1000


@given(st.sampled_from(sorted(TABLE)), st.binary(max_size=200), st.integers(-(1 << 31), 1 << 31), st.integers(-2, 999))
def test_any_bytes_as_a_line_table(version: tuple[int, int], table: bytes, first: int, offset: int) -> None:
    assert python_lines.line(version, table, first, offset) >= 0


# -- a real process: this one ----------------------------------------------------------------------------------------


def innermost(release: threading.Event, ready: threading.Event) -> None:
    ready.set(), release.wait()


class Caller:
    def call(self, release: threading.Event, ready: threading.Event) -> list[None]:
        return list(map(lambda _: innermost(release, ready), [1]))


class WithoutConstants(Process):
    """Where the name of a type would have to be read of the interpreter's file, which might not answer."""

    def read(self, address: int, size: int) -> bytes:
        found = super().read(address, size)
        return b"" if found == b"code\0" else found


@pytest.mark.parametrize("kind", [Process, WithoutConstants])
def test_a_thread_of_this_process_as_python_itself_has_it(kind: type[Process]) -> None:
    release, ready = threading.Event(), threading.Event()
    thread = threading.Thread(target=Caller().call, args=(release, ready))
    thread.start()
    try:
        ready.wait()
        process = kind(os.getpid())
        (interpreter,) = python.find(process, Files())
        assert thread.ident is not None
        # until it waits it is on its way there
        frames = after = None
        while frames is None or frames[0][0] != "wait" or frames != after:
            frames = own_frames(sys._current_frames()[thread.ident])
            calls = interpreter.calls(interpreter.threads()[thread.ident])
            after = own_frames(sys._current_frames()[thread.ident])
        process.close()
        assert calls.is_whole
        read = [(frame.function.rpartition(".")[2], frame.file, frame.line) for call in calls.calls for frame in call]
        assert read == frames
        assert len(calls.calls) >= 2  # map is in C, and has called
    finally:
        release.set()
        thread.join()


def own_frames(frame: types.FrameType | None) -> list[tuple[str, str, int]]:
    frames = []
    while frame is not None:
        frames.append((frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return frames


def made(name: str, line: int) -> types.CodeType:
    namespace: dict[str, Any] = {}
    exec(compile("\n" * line + f"def {name}(): pass", f"/made/{name}", "exec"), namespace)  # noqa: S102
    return types.FunctionType(namespace[name].__code__, {}).__code__


def test_a_code_object_is_named_only_if_it_is_the_one_that_a_sample_had() -> None:
    process = Process(os.getpid())
    (interpreter,) = python.find(process, Files())
    some = [made("f", 1), made("f", 2), made("g", 1)]
    which = [python_identity.possible(process, interpreter.version, interpreter.layout, id(code)) for code in some]
    for code, its in zip(some, which):
        for identity in its:
            found = interpreter.code_as(id(code), identity)
            assert found is not None
            assert (found.name, found.file, found.first_line) == (
                code.co_name, code.co_filename, code.co_firstlineno,
            )  # fmt: skip
        for identity in {python_identity.UNREAD}.union(*which) - its:
            assert interpreter.code_as(id(code), identity) == NO_NAME
    assert len(set.union(*which)) == sum(map(len, which))
    assert interpreter.code_as(id(process), next(iter(which[0]))) is None, "it is no code object"
    process.close()


def possible(number: int, hashed: int, references: int = 1) -> set[int]:
    """Of a code object of Python 3.12 with this number, whose name has this hash."""
    at, code, name = TABLE[3, 12], 0x10000, 0x20000
    words = {code + place: 0 for place in range(at.code_first_line & -8, at.code_line_table + 8, 8)}
    words |= {code: references, code + at.code_first_line + 20: number << 32, code + at.code_name: name}
    words |= {name + at.text_length: 1, name + at.text_length + 8: hashed, name + at.text_state: 0}
    return python_identity.possible(Words(words), (3, 12), at, code)


@pytest.mark.parametrize(("number", "is_by_name"), [(7, False), (0, True)])
def test_from_3_12_on_its_own_number_says_which_code_object_it_is(number: int, is_by_name: bool) -> None:
    """0: there were four thousand millions of them, and from then on its names have to say it, as before."""
    assert possible(number, 1) and not possible(number, 1) & possible(number + 1, 1)
    assert (possible(number, 1) != possible(number, 2)) == is_by_name


@pytest.mark.parametrize(
    ("references", "is_alive"), [(1, True), (0xFFFFFFFF, True), (0x7F1234567890, False), (0, False)]
)
def test_a_code_object_that_is_gone_is_not_known_by_its_number(references: int, is_alive: bool) -> None:
    """Its memory can be as it was, but for the first word: nothing there, or the next free block's address."""
    assert bool(possible(7, 1, references)) == is_alive
    assert possible(7, 1, 0x0002_0000_C000_0000), "an immortal one of 3.14 has flags there"


# -- memory that lies ------------------------------------------------------------------------------------------------


class Words:
    """Memory of words; whatever is not among them can't be read, or is what `other` says."""

    def __init__(self, words: dict[int, int], other: Callable[[int], int | None] = lambda address: None) -> None:
        self._words, self._other, self.reads = words, other, 0

    def read(self, address: int, size: int) -> bytes:
        self.reads += 1
        assert 0 <= size <= 2 * python_lines.MOST_BYTES
        found = bytearray()
        for at in range(address & ~7, address + min(size, 4096), 8):
            word = self._words.get(at, self._other(at))
            if word is None:
                break
            found += struct.pack("<Q", word & 0xFFFFFFFFFFFFFFFF)
        return bytes(found[address & 7 :][:size])


OLD = sorted(version for version in TABLE if version < SAYS_ITSELF)


@pytest.mark.parametrize("version", OLD)
def test_frames_in_a_circle_end(version: tuple[int, int]) -> None:
    at = TABLE[version]
    first, second = 0x10000, 0x20000
    memory = Words({first + at.frame_previous: second, second + at.frame_previous: first}, lambda address: 0)
    calls = Interpreter(memory, version, at, 0x1000).calls([first])
    assert calls == Calls((), False)
    assert memory.reads < 100


@pytest.mark.parametrize("version", OLD)
def test_interpreters_and_threads_in_a_circle_end(version: tuple[int, int]) -> None:
    at = TABLE[version]
    head, interpreter, state = 0x1000, 0x100000, 0x200000
    words = {
        head: interpreter,
        interpreter + at.interpreter_next: interpreter,
        interpreter + at.threads: state,
        state + at.thread_next: state,
        state + at.thread_interpreter: interpreter,
        state + at.thread_id: 7,
    }
    assert Interpreter(Words(words, lambda address: 0), version, at, head).threads() == {7: [0]}
    # a state of another interpreter is none of this one
    words[state + at.thread_interpreter] = 1
    assert Interpreter(Words(words, lambda address: 0), version, at, head).threads() == {}


@given(st.sampled_from(OLD), st.integers(0, 1 << 64), st.integers(1, 1 << 20))
def test_memory_of_which_every_word_is_made_up(version: tuple[int, int], seed: int, near: int) -> None:
    """Words point to others nearby, so that chains go on; no frame is made of them, for no type is called `code`."""
    memory = Words({}, lambda address: (address * 0x9E3779B97F4A7C15 + seed) % (8 * near) & ~7)
    interpreter = Interpreter(memory, version, TABLE[version], 8)
    calls = [interpreter.calls(frames) for frames in interpreter.threads().values()]
    assert not any(call for each in calls for call in each.calls)
    interpreter.calls([8 * near // 2])


@given(st.sampled_from(sorted(TABLE)), st.binary(max_size=2000), st.booleans())
def test_any_bytes_as_a_runtime(version: tuple[int, int], content: bytes, has_cookie: bool) -> None:
    number = struct.pack("<QQ", version[0] << 24 | version[1] << 16, 0)
    head = (b"xdebugpy" + number if has_cookie else b"") + content
    words = dict(zip(range(0x1000, 1 << 30, 8), (word for (word,) in struct.iter_unpack("<Q", head[: len(head) & ~7]))))
    found = python.at_runtime(Words(words), 0x1000, version)
    if found is not None:
        assert max(found._at) < 1 << 20
        assert found.threads() == {}


def test_a_version_that_nobody_knows_is_not_read() -> None:
    for head in (struct.pack("<8sQQ", b"xdebugpy", 0x04000000, 0), struct.pack("<8sQQ", b"xdebugpy", 0x030E0000, 1)):
        words = [word for (word,) in struct.iter_unpack("<Q", head.ljust(4096, b"\0"))]
        assert python.at_runtime(Words(dict(zip(range(0, 4096, 8), words))), 0, None) is None
    assert python.at_runtime(Words({}), 0, (3, 5)) is None
    assert python.at_runtime(Words({}), 0, None) is None


# -- the table -------------------------------------------------------------------------------------------------------

HEADERS = sorted(Path("/usr/include").glob("python3.*/Python.h"))


@pytest.mark.skipif(not HEADERS or not shutil.which("gcc"), reason="there are no headers of a Python on this machine")
def test_the_table_is_what_the_headers_of_this_machine_say() -> None:
    command = [sys.executable, "-B", CHECKOUT / "tests" / "python_offsets" / "make_table", HEADERS[0].parent]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = eval(f"{{{said}}}", {"Layout": Layout})  # noqa: S307
    assert len(found) == 1
    assert found.items() <= TABLE.items()


def test_each_version_has_what_is_read_of_it() -> None:
    for version, at in TABLE.items():
        missing = {name for name, offset in at._asdict().items() if offset == NONE}
        assert missing <= {"cframe_frame", "frame_owner", "frame_is_entry", "code_instructions"}
        assert ("frame_owner" in missing) == ("code_instructions" in missing) == (version < (3, 11))
        assert ("frame_is_entry" in missing) == (version != (3, 11))
        assert ("cframe_frame" in missing) == (version not in ((3, 11), (3, 12)))


# -- both in one stack -----------------------------------------------------------------------------------------------

READ = NativeFrame("read", "libc.so.6", 1, False)
RUNS = NativeFrame("_PyEval_EvalFrameDefault", "python3", 2, False, True)
MAP = NativeFrame("map_next", "python3", 3, False)
MAIN = NativeFrame("main", "python3", 4, False)
INNER, OUTER, LAST = (PythonFrame(name, "/x/fit.py", line) for name, line in (("f", 1), ("g", 2), ("<module>", 3)))


def in_place(*frames: PythonFrame) -> list[PlacedFrame]:
    return [PlacedFrame(frame, False) for frame in frames]


def test_each_call_of_the_interpreter_stands_for_what_it_runs() -> None:
    calls = Calls(((INNER, OUTER), (LAST,)), True)
    found = mixed([READ, RUNS, MAP, RUNS, MAIN], True, calls)
    assert found == [READ, *in_place(INNER, OUTER), MAP, *in_place(LAST), MAIN]


def test_callers_of_which_the_stack_says_nothing_come_last() -> None:
    found = mixed([READ, RUNS, MAP], False, Calls(((INNER,), (OUTER,), (LAST,)), True))
    assert found == [READ, *in_place(INNER), MAP, *in_place(OUTER, LAST)]


def test_what_does_not_fit_is_marked() -> None:
    for native, is_whole in (([READ, RUNS, MAP, RUNS, MAIN], True), ([READ, MAIN], True)):
        found = mixed(native, is_whole, Calls(((INNER,), (OUTER,), (LAST,)), True))
        assert [frame for frame in found if isinstance(frame, NativeFrame)] == native
        assert [frame for frame in found if isinstance(frame, PlacedFrame)] == [
            PlacedFrame(each, True) for each in (INNER, OUTER, LAST)
        ]


@given(
    st.lists(st.sampled_from([READ, RUNS, MAP]), max_size=12),
    st.booleans(),
    st.lists(st.lists(st.sampled_from([INNER, OUTER]), min_size=1, max_size=3).map(tuple), max_size=5),
)
def test_no_function_is_lost_or_added_or_out_of_order(
    native: list[NativeFrame], is_whole: bool, calls: list[tuple[PythonFrame, ...]]
) -> None:
    found = mixed(native, is_whole, Calls(tuple(calls), True))
    assert [each.frame for each in found if isinstance(each, PlacedFrame)] == [each for call in calls for each in call]
    kept = [each for each in found if isinstance(each, NativeFrame) and not each.is_interpreter]
    assert kept == [each for each in native if not each.is_interpreter]


# -- what a person sees ----------------------------------------------------------------------------------------------


def lines_of(*frames: dict[str, object]) -> bytes:
    parts: list[dict[str, object]] = [
        {
            "part": "threads",
            "threads": [
                {"tid": 10, "pid": 10, "parent": 1, "name": "python3", "state": "S", "waited": 3.0, "call": "read"}
                | {"kernel": []}
            ],
            "left_out": 0,
        },
        {"part": "waits", "cause": "file", "sentence": "process 10 waits in read", "tid": 10, "waits": {}},
        {"part": "stacks", "pid": 10, "stacks": [{"tids": [10], "frames": frames, "whole": True}], "refused": ""},
        {"part": "end"},
    ]
    return b"".join(json.dumps(part).encode() + b"\n" for part in parts)


def frame(function: str, file: str, line: int = 0, is_python: bool = True) -> dict[str, object]:
    return {
        "function": function,
        "file": file,
        "offset": 0,
        "line": line,
        "python": is_python,
        "guessed": False,
    }


def test_the_sentence_names_the_jobs_own_function_that_called() -> None:
    found = told.parse(
        lines_of(
            frame("read", "/lib/libc.so.6", is_python=False),
            frame("SocketIO.readinto", "/usr/lib/python3.11/socket.py", 706),
            frame("map_next", "/usr/bin/python3.11", is_python=False),
            frame("load\x1b", "/home/x/fit.py", 42),
            frame("<module>", "/home/x/fit.py", 99),
        )
    )
    assert found.sentence == (
        "process 10 waits in read; called by fit.py:42 load\\x1b() through socket.py:706 SocketIO.readinto()"
    )
    text = "\n".join(stacks.page(found, Style()))
    assert "    SocketIO.readinto  socket.py:706" in text
    assert "map_next" not in text
    assert "    <module>  fit.py:99" in text
    at = next(line for line in hang.page(found, Style()) if " at " in line)
    assert at.split("at      ")[1] == (
        "read < socket.py:706 SocketIO.readinto() < fit.py:42 load\\x1b() < fit.py:99 <module>"
    )
    record = found.record()["Threads"][0]["Stack"][3]
    assert (record["File"], record["Line"], record["Python"]) == ("/home/x/fit.py", 42, True)


def test_a_job_that_is_in_libraries_alone_is_called_by_the_innermost() -> None:
    found = told.parse(lines_of(frame("wait", "/usr/lib/python3.11/threading.py", 320), frame("_shutdown", "<frozen>")))
    assert found.sentence.endswith("; called by threading.py:320 wait()")
