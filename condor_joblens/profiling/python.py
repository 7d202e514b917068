"""What CPython says of itself, in the memory of a process: its threads, and the functions and lines they are at.

The memory is the job's, and changes while it is read: every structure may be anything. Every read has a size that is
known before, every chain an end. A frame whose code object does not read as one is left out: none is made up.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from condor_joblens.profiling import python_identity, python_lines
from condor_joblens.profiling.elf import ElfError
from condor_joblens.profiling.process import Mapping, Process
from condor_joblens.profiling.python_offsets import NONE, SAYS_ITSELF, TABLE, Layout
from condor_joblens.profiling.symbols import Files

MOST_FRAMES = 1000
"""Of a thread; by default Python itself ends a deeper recursion."""

MOST_FRAMES_IN_ALL = 20_000
"""Of all threads of a process."""

MOST_INTERPRETERS = 256
MOST_THREADS = 10_000
MOST_NAME = 1000
"""Characters of a name; the rest of a longer one is not read."""

_RUNS_PYTHON = "_PyEval_EvalFrameDefault"
_COOKIE = b"xdebugpy"
_HEAD = 1024  # of the runtime: cookie and offsets are in it
_SPAN = 4096  # no member that is read is further within its structure, but for an interpreter's
_FARTHEST = 1 << 20  # in an interpreter
_TAGS = 3  # the lowest bits of a reference to an object, from 3.14 on
_IN_C = 3  # who owns a frame: C does, so it is none of Python's but where C has called it


class Memory(Protocol):
    """The process that is looked at."""

    def read(self, address: int, size: int) -> bytes:
        """Its memory; less than `size` if it ends there or can't be read."""


@dataclass(frozen=True)
class PythonFrame:
    """A function of Python, and the line it is at; line 0: nobody knows it."""

    function: str
    file: str
    line: int


class CodeObject(NamedTuple):
    """A function, or a module: its lines are in a table of its version."""

    name: str
    file: str
    line_table: bytes
    first_line: int
    size: int  # bytes of instructions

    @property
    def is_own(self) -> bool:
        """Whether it is none of a program's: from 3.12 on the interpreter calls `__init__` by code of its own.

        That is _Py_InitCleanup in Python/specialize.c.
        """
        return self.name == self.file == "__init__"


NO_NAME = CodeObject("", "", b"", 0, 0)
"""A code object that had gone, and made room for another one, before its name was read."""


@dataclass(frozen=True)
class Calls:
    """The frames of a thread by calls of the interpreter from C, the innermost first in each; all innermost first."""

    calls: tuple[tuple[PythonFrame, ...], ...]
    is_whole: bool


NO_CALLS = Calls((), True)


class Interpreter:
    """A CPython that is in a process."""

    def __init__(self, memory: Memory, version: tuple[int, int], layout: Layout, head: int) -> None:
        """`head` is the address of the first (sub)interpreter's address."""
        self._memory, self.version, self._at, self.head = memory, version, layout, head
        self._codes: dict[int, CodeObject | None] = {}
        self._types: dict[int, bool] = {}
        self._left = MOST_FRAMES_IN_ALL
        self.code = range(0)
        """Where it runs functions of Python without having a name there."""

    @property
    def layout(self) -> Layout:
        """Where it keeps what: offsets in its memory."""
        return self._at

    def is_at(self, address: int, function: str) -> bool:
        """Whether it runs functions of Python here; compilers put parts of that elsewhere, and add to the name."""
        return runs_python(function) or address in self.code

    def know_code_objects(self, kind: int) -> None:
        """The type of code objects is at this address."""
        self._types[kind] = True

    def threads(self) -> dict[int, list[int]]:
        """The innermost frames of each thread by its thread pointer; of several interpreters the latest first."""
        found: dict[int, list[int]] = {}
        left = MOST_THREADS
        for interpreter in self._chain(self._word(self.head), self._at.interpreter_next, MOST_INTERPRETERS):
            first = self._word(interpreter + self._at.threads)
            for state in self._chain(first, self._at.thread_next, left):
                left -= 1
                # a state that is not this interpreter's is none: it has been freed meanwhile
                if self._word(state + self._at.thread_interpreter) != interpreter:
                    break
                found.setdefault(self._word(state + self._at.thread_id), []).append(self._first_frame(state))
        return found

    def calls(self, frames: list[int]) -> Calls:
        """What a thread has called, from its innermost frames on; see threads."""
        found: list[tuple[PythonFrame, ...]] = []
        is_whole = True
        for first in frames:
            call: list[PythonFrame] = []
            for frame, is_known, is_last in self._frames(first):
                is_whole = is_whole and is_known
                if frame is not None:
                    call.append(frame)
                if is_last and call:
                    found.append(tuple(call))
                    call = []
            if call:
                found.append(tuple(call))
        return Calls(tuple(found), is_whole)

    def _frames(self, first: int) -> Iterator[tuple[PythonFrame | None, bool, bool]]:
        """Each frame, whether all is known that should be there, and whether it is the last that C's call is of."""
        at, last = self._at, first
        size = max(at.frame_previous, at.frame_code, at.frame_instruction, at.frame_owner, at.frame_is_entry) + 8
        for address in self._chain(first, at.frame_previous, min(MOST_FRAMES, self._left)):
            self._left -= 1
            memory = self._memory.read(address, size)
            if len(memory) < size:
                yield None, False, True
                return
            last = _word_in(memory, at.frame_previous)
            if at.frame_owner != NONE and at.frame_is_entry == NONE and memory[at.frame_owner] >= _IN_C:
                yield None, True, True
                continue
            frame, is_own = self._frame(memory)
            is_last = at.frame_owner == NONE or (at.frame_is_entry != NONE and bool(memory[at.frame_is_entry]))
            yield frame, is_own or frame is not None, is_last
        if last:
            yield None, False, True

    def _frame(self, memory: bytes) -> tuple[PythonFrame | None, bool]:
        """A frame, and whether it is the interpreter's own, of which nothing is told."""
        code = _word_in(memory, self._at.frame_code) & ~_TAGS
        known = self.code_at(code)
        if known is None or known.is_own:
            return None, known is not None
        line = line_at(self.version, self._at, code, known, _word_in(memory, self._at.frame_instruction))
        return PythonFrame(known.name, known.file, line), False

    def code_at(self, address: int) -> CodeObject | None:
        """The code object at an address, as it was when it was first asked for; None if there is none."""
        if address not in self._codes:
            self._codes[address] = self._code(address)
        return self._codes[address]

    def code_as(self, address: int, identity: int) -> CodeObject | None:
        """The code object that was at an address in a sample (python_identity.py), by what is there now.

        None if there is no code object; NO_NAME if it is another one, or becomes one just now.
        """
        was_there = identity in python_identity.possible(self._memory, self.version, self._at, address)
        code = self._code(address)
        is_there = code is None or identity in python_identity.possible(self._memory, self.version, self._at, address)
        return code if code is None or (was_there and is_there) else NO_NAME

    def _code(self, address: int) -> CodeObject | None:
        at = self._at
        size = 8 + max(
            at.code_filename, at.code_name, at.code_line_table, at.code_first_line, at.bytes_size, at.object_type
        )
        memory = self._memory.read(address, size) if address else b""
        if len(memory) < size or not self._is_code(_word_in(memory, at.object_type)):
            return None
        name, file = (self._text(_word_in(memory, place)) for place in (at.code_name, at.code_filename))
        if name is None or file is None:
            return None
        (first_line,) = struct.unpack_from("<i", memory, at.code_first_line)
        instructions = 2 * _word_in(memory, at.bytes_size)  # if they are within: an object of so many units
        table = self._bytes(_word_in(memory, at.code_line_table))
        return CodeObject(name, file, table, first_line, instructions)

    def _is_code(self, kind: int) -> bool:
        if kind not in self._types:
            name = self._word(kind + self._at.type_name)
            self._types[kind] = bool(name) and self._memory.read(name, 5) == b"code\0"
        return self._types[kind]

    def _text(self, address: int) -> str | None:
        at = self._at
        head = self._memory.read(address, at.text_data)
        if len(head) < at.text_data or not address:
            return None
        (state,) = struct.unpack_from("<I", head, at.text_state)
        kind, is_compact, is_ascii = (state >> at.text_kind_bit + bit & mask for bit, mask in ((0, 7), (3, 1), (4, 1)))
        length = _word_in(head, at.text_length)
        if kind not in _ENCODINGS or not is_compact or length >> 40:
            return None
        # others also have room for their UTF-8: two words, and one more in older versions
        data = at.text_data + (0 if is_ascii else 24 if at.text_data == _OLD_TEXT else 16)
        size = kind * min(length, MOST_NAME)
        memory = self._memory.read(address + data, size)
        return memory.decode(_ENCODINGS[kind], "replace") if len(memory) == size else None

    def _bytes(self, address: int) -> bytes:
        size = self._word(address + self._at.bytes_size)
        return self._memory.read(address + self._at.bytes_data, size) if size <= python_lines.MOST_BYTES else b""

    def _first_frame(self, state: int) -> int:
        frame = self._word(state + self._at.thread_frame)
        return frame if self._at.cframe_frame == NONE else self._word(frame + self._at.cframe_frame)

    def _chain(self, first: int, place: int, most: int) -> Iterator[int]:
        """Addresses, each of which has the next one at a place; it ends if they lead in a circle."""
        seen: set[int] = set()
        address = first
        while address and address not in seen and len(seen) < most:
            seen.add(address)
            yield address
            address = self._word(address + place)

    def _word(self, address: int) -> int:
        """0 if it can't be read."""
        memory = self._memory.read(address, 8) if 0 < address < 1 << 63 else b""
        return int(struct.unpack("<Q", memory)[0]) if len(memory) == 8 else 0


class _Told:
    """Memory: pieces of it, by their addresses. Nothing else is there."""

    def __init__(self, pieces: dict[int, bytes]) -> None:
        self._pieces = pieces

    def read(self, address: int, size: int) -> bytes:
        """So many bytes; none if they are not in one piece."""
        for begin, piece in self._pieces.items():
            if begin <= address and address + size <= begin + len(piece):
                return piece[address - begin :][:size]
        return b""


class _ToldInterpreter(Interpreter):
    def _is_code(self, kind: int) -> bool:
        return True  # a thread ran it


def code_in(pieces: dict[int, bytes], version: tuple[int, int], layout: Layout, address: int) -> CodeObject | None:
    """The code object at an address, of which there are pieces of memory alone; None if one is missing."""
    return _ToldInterpreter(_Told(pieces), version, layout, 0).code_at(address)


def runs_python(function: str) -> bool:
    """Whether a function of C is the interpreter's that runs functions of Python; compilers cut parts of it off."""
    return function == _RUNS_PYTHON or function.startswith(f"{_RUNS_PYTHON}.")


def line_at(version: tuple[int, int], layout: Layout, address: int, code: CodeObject, instruction: int) -> int:
    """The line of a frame by what it has as its instruction, a word; its code object is at an address. 0: unknown."""
    if layout.code_instructions == NONE:
        offset = (instruction & 0x7FFFFFFF) - (instruction & 0x80000000)
        return python_lines.line(
            version, code.line_table, code.first_line, 2 * offset if version >= (3, 10) else offset
        )
    return _line_after(version, code, instruction - address - layout.code_instructions)


def line_of_sample(version: tuple[int, int], layout: Layout, code: CodeObject, place: int) -> int:
    """The same by what the kernel tells of a frame (joblens_profile.h): 32 bits."""
    if layout.code_instructions == NONE:
        return line_at(version, layout, 0, code, place)
    signed = (place & 0x7FFFFFFF) - (place & 0x80000000)
    return _line_after(version, code, signed - layout.code_instructions)


def _line_after(version: tuple[int, int], code: CodeObject, offset: int) -> int:
    if not -2 <= offset < code.size:
        return 0
    return python_lines.line(version, code.line_table, code.first_line, offset)


_ENCODINGS = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}
_OLD_TEXT = 48  # bytes of a text's head up to 3.11


def at_runtime(memory: Memory, runtime: int, version: tuple[int, int] | None) -> Interpreter | None:
    """The interpreter of a runtime that is there; None for a version that nobody here knows."""
    head = memory.read(runtime, _HEAD)
    if head.startswith(_COOKIE):
        if len(head) < _HEAD:
            return None
        number, without_lock = struct.unpack_from("<QQ", head, 8)
        version = number >> 24 & 0xFF, number >> 16 & 0xFF
        layout = _said(TABLE[version], head) if version in TABLE and not without_lock else None
    else:
        layout = TABLE.get(version) if version is not None and version < SAYS_ITSELF else None
    if layout is None or version is None:
        return None
    return Interpreter(memory, version, layout, runtime + layout.interpreters)


def _said(places: Layout, head: bytes) -> Layout | None:
    """The offsets that a program says; None if they can't be true."""
    said = [place if place == NONE else _word_in(head, place) for place in places[1:]]
    layout = Layout(places.text_kind_bit, *said)
    near = layout._replace(interpreters=0, interpreter_next=0, threads=0, code_instructions=0)
    if max(near[1:]) >= _SPAN or max(layout[1:]) >= _FARTHEST or layout.text_data > _OLD_TEXT:
        return None
    return layout


def find(process: Process, files: Files) -> list[Interpreter]:
    """The interpreters in a process. Looked into are its program, and files that are called after Python."""
    found: list[Interpreter] = []
    seen: set[tuple[tuple[int, int], int]] = set()
    for mapping in process.mappings:
        if not mapping.is_code or not mapping.inode or (mapping.device, mapping.inode) in seen:
            continue
        is_first = not seen
        seen.add((mapping.device, mapping.inode))
        if is_first or "python" in mapping.path.rpartition("/")[2]:
            interpreter = _in_file(process, files, mapping)
            if interpreter is not None:
                found.append(interpreter)
    return found


def _in_file(process: Process, files: Files, mapping: Mapping) -> Interpreter | None:
    elf = files.of(process, mapping)
    if elf is None:
        return None
    found = None
    with contextlib.suppress(ElfError):
        places = elf.places(("_PyRuntime", "Py_Version", "interp_head", "PyCode_Type"))
        start = elf.start(mapping.start, mapping.offset)
        version = _version(process, start, places, mapping.path)
        if "_PyRuntime" in places:
            found = at_runtime(process, start + places["_PyRuntime"], version)
        elif "interp_head" in places and version == (3, 6):
            found = Interpreter(process, version, TABLE[version], start + places["interp_head"])
        if found is not None:
            if "PyCode_Type" in places:  # its name need not be in memory
                found.know_code_objects(start + places["PyCode_Type"])
            # in each version from 3.6 to 3.14 it was by far the largest function; compilers can leave the name to a
            # small part of it, and put all else aside
            first, end = elf.largest_unnamed_function()
            found.code = range(start + first, start + end)
    return found


def _version(process: Process, start: int, places: dict[str, int], path: str) -> tuple[int, int] | None:
    """From 3.11 on a constant in the program says it, before that the file's name alone."""
    if "Py_Version" in places:
        memory = process.read(start + places["Py_Version"], 4)
        if len(memory) == 4:
            return memory[3], memory[2]
    found = re.search(r"python(\d)\.(\d{1,2})", path.rpartition("/")[2])
    return (int(found[1]), int(found[2])) if found else None


def _word_in(memory: bytes, place: int) -> int:
    return int(struct.unpack_from("<Q", memory, place)[0])
