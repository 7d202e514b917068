"""What a program's file says: where its code lies, its unwind table, its functions. The file is the job's.

Every part of it is a slice of a mapping of bounded size, so what is wrong in the file is an exception: ElfError.
"""

from __future__ import annotations

import bisect
import contextlib
import lzma
import mmap
import os
import stat
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Union

from condor_joblens.profiling._eh_frame import ffi, lib

MOST_BYTES = 4 << 30
MOST_ROWS = 16 << 20
MOST_SYMBOLS = 4 << 20
MOST_NAME = 16 << 10

_MOST_EMBEDDED = 32 << 20  # bytes of a table of symbols that is compressed within a file
_MOST_ENDS = 1000  # of names that end as one that is looked for
_MOST_STRINGS = 64 << 20  # bytes of the names of symbols that one is looked for in
_ADDRESSES = (1 << 64) - 1  # the greatest: what is above begins anew
_PAGE = 4096  # the least; loaders round to it
_SECTION_HEADERS = 4096  # at most
_SEGMENTS = 256
_EXECUTABLE, _LOAD, _NOTE, _EH_FRAME_HEADER = 1, 1, 4, 0x6474E550
_NOTE_OF_BUILD_ID = 3  # NT_GNU_BUILD_ID of elf.h
_MOST_NOTES, _MOST_BUILD_ID = 64 << 10, 32  # bytes
_X86_64 = 62
_SYMTAB, _DYNSYM, _NOBITS = 2, 11, 8
_OBJECT, _FUNCTION, _INDIRECT = 1, 2, 10
_COMPRESSED, _BY_ZLIB = 0x800, 1
_COMPRESSION = struct.Struct("<IIQQ")
_OF_GO = frozenset({b".go.buildinfo", b".gopclntab", b".note.go.buildid"})


_SEGMENT, _SECTION = struct.Struct("<IIQQQQQQ"), struct.Struct("<IIQQQQIIQQ")
_SYMBOL_BYTES = 24
_FOUND = struct.Struct("=QQIHH")  # struct symbol of elf_symbols.h
_PAIR_BYTES = 8
_BYTES_OF_A_ROW = 4
"""Of .eh_frame, in most files more; where it is less, the table is made twice."""


class _Segment(NamedTuple):
    type: int
    flags: int
    offset: int
    address: int
    physical: int
    file_size: int
    size: int
    align: int


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


Bytes = Union[bytes, memoryview]
"""A part of a file."""


class ElfError(Exception):
    """The file is not what it seems to be."""


@dataclass(frozen=True)
class Rule:
    """How to come from a frame to its caller's; see eh_frame.h."""

    kind: int
    n: int
    frame: int


NO_RULE = Rule(lib.RULE_NONE, 0, 0)


class Content(Protocol):
    """The bytes of a file."""

    size: int

    def read(self, offset: int, size: int) -> Bytes:
        """A part that is within the file. Raises ElfError if the file has become shorter."""


class _InMemory:
    def __init__(self, memory: mmap.mmap | bytes) -> None:
        self.size = len(memory)
        self.all = memoryview(memory)

    def read(self, offset: int, size: int) -> Bytes:
        return self.all[offset : offset + size]


class _OnDisk:
    """Reads what is asked for: a file that is cut off meanwhile ends no process, as it would if it were mapped."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor, self.size = descriptor, size

    def read(self, offset: int, size: int) -> Bytes:
        data = os.pread(self._descriptor, size, offset)
        if len(data) != size:
            raise ElfError("a file that has become shorter")
        return data


class Elf:
    """A file of 64 bits that is open for reading."""

    beside: Elf | None = None
    """The file that has the symbols of this one, if that is known (debug_files.py)."""

    def __init__(self, descriptor: int) -> None:
        """Maps it; the descriptor stays the caller's. Raises ElfError and OSError."""
        size = _size(descriptor)
        self._open(_InMemory(mmap.mmap(descriptor, size, prot=mmap.PROT_READ)))

    @classmethod
    def unmapped(cls, descriptor: int) -> Elf:
        """One that is read when it is needed; the descriptor must stay open. Raises ElfError and OSError."""
        self = cls.__new__(cls)
        self._open(_OnDisk(descriptor, _size(descriptor)))
        return self

    def has_beside(self, other: Elf) -> None:
        """Another file has the symbols that this one lacks."""
        self.beside = _without_embedded(other)

    @classmethod
    def within(cls, content: bytes) -> Elf:
        """One that is part of another file. Raises ElfError."""
        self = cls.__new__(cls)
        if len(content) < 64:
            raise ElfError("too short")
        self._open(_InMemory(content))
        return self

    def _open(self, content: Content) -> None:
        self._content = content
        header = bytes(self._slice(0, 64))
        if header[:6] != b"\x7fELF\x02\x01":
            raise ElfError("no ELF file of 64 bits")
        self.machine = struct.unpack_from("<H", header, 18)[0]
        segments_at, sections_at = struct.unpack_from("<QQ", header, 32)
        segments, _, sections = struct.unpack_from("<HHH", header, 56)
        table = self._slice(segments_at, _SEGMENT.size * min(segments, _SEGMENTS))
        self._segments = [_Segment(*each) for each in _SEGMENT.iter_unpack(table)]
        self._sections_at, self._section_count = sections_at, min(sections, _SECTION_HEADERS)
        self._names_index = struct.unpack_from("<H", header, 62)[0]

    @property
    def mapped_at(self) -> int:
        """Where it is in this process's memory."""
        if not isinstance(self._content, _InMemory):
            raise ElfError("not in memory")
        return int(ffi.cast("uintptr_t", ffi.from_buffer(self._content.all)))

    @cached_property
    def build_id(self) -> str:
        """What its linker has named it by, in hexadecimal; empty if it has no such note. Raises ElfError."""
        for segment in self._of_type(_NOTE):
            size = min(segment.file_size, _MOST_NOTES)
            found = _build_id(bytes(self._slice(segment.offset, size)), segment.align)
            if found:
                return found.hex()
        return ""

    # -- unwind table ---------------------------------------------------------------------------------------

    @cached_property
    def rows(self) -> memoryview:
        """The rows of its unwind table (eh_frame.h), rising by their offsets; none for another machine's file.

        Numbers of 64 bits, shape (n,).
        """
        place = self._eh_frame() if self.machine == _X86_64 else None
        if place is None:
            return _numbers(0)
        offset, size, address = place
        code = self._code()
        section = ffi.from_buffer("uint8_t[]", self._slice(offset, size))
        room = size // _BYTES_OF_A_ROW
        while True:
            if room > MOST_ROWS:
                raise ElfError("too long an unwind table")
            rows = _numbers(room)
            count = lib.unwind_rows(section, size, address, code, len(code), _pointer(rows), room)
            if count <= room:
                break
            room = count
        lib.sort_rows(_pointer(rows), _pointer(_numbers(count)), count)
        return rows[:count]

    def rule(self, offset: int) -> Rule:
        """How to unwind at an offset of the file. Raises ElfError."""
        rows = self.rows
        if offset >> 32:
            return NO_RULE
        index = bisect.bisect_right(rows, offset << 32 | 0xFFFFFFFF) - 1
        if index < 0:
            return NO_RULE
        row = rows[index]
        kind, n = row >> 29 & 7, row >> 12 & 0x1FFFF
        return Rule(kind, n if kind == lib.RULE_PLT else 8 * n, 8 * (row & 0xFFF))

    def _eh_frame(self) -> tuple[int, int, int] | None:
        """Offset, size and address of the section .eh_frame; by the segment that points to it, or by its name."""
        for section in self._sections:
            if self._section_name(section) == b".eh_frame" and section.type != _NOBITS:
                self._slice(section.offset, section.size)
                return section.offset, section.size, section.address
        for segment in self._of_type(_EH_FRAME_HEADER):
            return self._eh_frame_of_segment(segment.offset, segment.address)
        return None

    def _eh_frame_of_segment(self, offset: int, address: int) -> tuple[int, int, int] | None:
        version, encoding = self._slice(offset, 2)
        if version != 1 or encoding != 0x1B:  # a signed number of 32 bits, from its own address on
            return None
        (distance,) = struct.unpack("<i", self._slice(offset + 4, 4))
        start = address + 4 + distance
        for segment in self._loaded:
            within = start - segment.address
            if 0 <= within < segment.file_size:
                at, size = segment.offset + within, segment.file_size - within
                self._slice(at, size)
                return at, size, start
        return None

    def _of_type(self, kind: int) -> list[_Segment]:
        return [segment for segment in self._segments if segment.type == kind]

    @cached_property
    def _loaded(self) -> list[_Segment]:
        return self._of_type(_LOAD)

    def _code(self) -> Any:
        found = [segment for segment in self._loaded if segment.flags & _EXECUTABLE]
        return ffi.new("struct code[]", [(each.address, each.offset, each.file_size) for each in found])

    # -- functions ------------------------------------------------------------------------------------------

    def function(self, offset: int) -> tuple[str, int] | None:
        """Name, as it is in the file, and first offset of the function at an offset; None if no symbol says it."""
        address = self._address(offset)
        if address is None:
            raise ElfError("an offset that is in no segment")
        symbol = self._symbol(address)
        return None if symbol is None else (symbol[0], offset - (address - symbol[1]))

    def functions(self, offsets: Sequence[int]) -> list[tuple[str, int]]:
        """Of offsets of the file: name, as it is in the file, and first offset of the function there.

        Without a symbol the name is empty, and the first offset is where the unwind table has a function begin. If
        that knows none either, it is the offset itself. Raises ElfError.
        """
        entries, found = self._entries, []
        for offset, address in zip(offsets, self.addresses(offsets)):
            symbol, begin = self._symbol(address) if address else None, address
            if symbol is None and address:
                index = bisect.bisect_right(entries, address) - 1
                begin = entries[index] if index >= 0 else address
            found.append((symbol[0], offset - (address - symbol[1])) if symbol else ("", offset - (address - begin)))
        return found

    def _symbol(self, address: int) -> tuple[str, int] | None:
        """Name and first address of the function at an address."""
        functions, count = self._functions
        at = lib.function_at(functions, count, address)
        if at >= 0:
            function = functions[at]
            return self._name(function.strings, function.name), function.start
        return self._symbol_beside(address) or (self._embedded._symbol(address) if self._embedded is not None else None)

    def _symbol_beside(self, address: int) -> tuple[str, int] | None:
        if self.beside is not None:
            try:
                return self.beside._symbol(address)
            except (ElfError, OSError, MemoryError):  # its own symbols are still there
                self.beside = None
        return None

    def addresses(self, offsets: Sequence[int]) -> list[int]:
        """Where offsets of the file are when it is loaded; 0 for those that are not."""
        return [self._address(offset) or 0 for offset in offsets]

    @cached_property
    def _entries(self) -> memoryview:
        """First addresses of all functions that can be unwound, rising: from the index of the unwind table."""
        for segment in self._of_type(_EH_FRAME_HEADER):
            version, pointer, count, table = self._slice(segment.offset, 4)
            # pointers of 4 bytes, a count of 4, and a table of pairs, both from the segment's address on
            if (version, pointer, count, table) != (1, 0x1B, 0x03, 0x3B):
                continue
            (pairs,) = struct.unpack("<I", self._slice(segment.offset + 8, 4))
            pairs = min(pairs, MOST_SYMBOLS)
            content = ffi.from_buffer("uint8_t[]", self._slice(segment.offset + 12, _PAIR_BYTES * pairs))
            entries, spare = _numbers(pairs), _numbers(pairs)
            return entries[: lib.read_entries(content, pairs, segment.address, _pointer(entries), _pointer(spare))]
        return _numbers(0)

    @cached_property
    def _embedded(self) -> Elf | None:
        """The symbols that a stripped file has within itself, compressed (MiniDebugInfo)."""
        for section in self._sections:
            if self._section_name(section) == b".gnu_debugdata":
                with contextlib.suppress(ElfError, lzma.LZMAError, EOFError):
                    packed = self._slice(section.offset, min(section.size, _MOST_EMBEDDED))
                    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MOST_EMBEDDED * 4)
                    return _without_embedded(Elf.within(unpacker.decompress(packed, _MOST_EMBEDDED)))
        return None

    def places(self, names: Sequence[str]) -> dict[str, int]:
        """The addresses, as the file has them, of what is called so, as far as it is there. Raises ElfError."""
        found: dict[str, int] = {}
        for section, table, count in self._symbol_tables():
            if section.link >= len(self._sections):
                continue
            strings = self._sections[section.link]
            text = bytes(self._slice(strings.offset, min(strings.size, _MOST_STRINGS)))
            for name in names:
                ends = _ends(text, name)
                at = lib.first_called(table, count, ends, len(ends))
                if at < count:
                    (value,) = struct.unpack_from("<Q", ffi.buffer(table), _SYMBOL_BYTES * at + 8)
                    found.setdefault(name, value)
        return found

    def _symbol_tables(self) -> Iterator[tuple[_Section, Any, int]]:
        """Each table of symbols, as C has it, and how many are in it: MOST_SYMBOLS of all together, at most.

        Thousands of sections may be one and the same part of the file. Raises ElfError.
        """
        room = MOST_SYMBOLS
        for section in self._sections:
            if section.type in (_SYMTAB, _DYNSYM):
                count = min(section.size // _SYMBOL_BYTES, room)
                room -= count
                yield section, ffi.from_buffer("uint8_t[]", self._slice(section.offset, _SYMBOL_BYTES * count)), count

    def _defined(self, *kinds: int) -> tuple[Any, int]:
        """Symbols of these kinds that the file itself has (struct symbol[]), and how many they are. Raises ElfError."""
        bits, tables = sum(1 << kind for kind in kinds), list(self._symbol_tables())
        counts = [lib.find_symbols(table, count, bits, 0, ffi.NULL) for _, table, count in tables]
        found, at = ffi.new("struct symbol[]", sum(counts)), 0
        for (section, table, count), more in zip(tables, counts):
            if at + more <= len(found):  # a file in memory may change meanwhile
                at += lib.find_symbols(table, count, bits, min(section.link, 0xFFFF), found + at)
        return found, at

    def named_functions(self) -> Iterator[tuple[str, int, int]]:
        """Name, as it is in the file, first address and size of each function that has its code there.

        Some are told twice, and several may have the same address. Raises ElfError.
        """
        for address, end, name, strings, _ in self._named(_FUNCTION):
            with contextlib.suppress(ElfError):
                yield self._name(strings, name), address, end - address & _ADDRESSES if end else 0
        if self._embedded is not None:
            yield from self._embedded.named_functions()

    def named_variables(self) -> Iterator[str]:
        """The names, as they are in the file, of what is in its data. Some are told twice. Raises ElfError."""
        for _, _, name, strings, _ in self._named(_OBJECT):
            with contextlib.suppress(ElfError):
                yield self._name(strings, name)

    def _named(self, kind: int) -> Iterator[tuple[int, ...]]:
        """As struct symbol has them."""
        found, count = self._defined(kind)
        return _FOUND.iter_unpack(ffi.buffer(found, count * _FOUND.size))

    @cached_property
    def is_go(self) -> bool:
        """Whether it is a program in Go, whose linker leaves sections of these names also in a stripped one."""
        return any(self._section_name(section) in _OF_GO for section in self._sections)

    @cached_property
    def is_stripped(self) -> bool:
        """Whether it has no symbols but those that other files use, if any."""
        return self._embedded is None and all(section.type != _SYMTAB for section in self._sections)

    def code(self, address: int, size: int) -> tuple[int, bytes]:
        """Where in the file the code at an address is, and its bytes. Raises ElfError."""
        for segment in self._loaded:
            within = address - segment.address
            if segment.flags & _EXECUTABLE and within >= 0 and within + size <= segment.file_size:
                at = segment.offset + within
                return at, bytes(self._slice(at, size))
        raise ElfError("code that is in no segment")

    def largest_unnamed_function(self) -> tuple[int, int]:
        """First address and end, as the file has them, of its largest function; equal ones if that has a name."""
        entries = self._entries
        if len(entries) < 2:
            return 0, 0
        largest = lib.widest_gap(_pointer(entries), len(entries))
        first, end = entries[largest], entries[largest + 1]
        functions, count = self._functions
        last = lib.last_function(functions, count, first)
        return first, first if last >= 0 and functions[last].start == first else end

    def start(self, address: int, offset: int) -> int:
        """Where its address 0 is in a process that has code of an offset at an address. Raises ElfError."""
        for segment in self._loaded:
            first = segment.offset // _PAGE * _PAGE
            if segment.flags & _EXECUTABLE and first <= offset < first + segment.file_size + _PAGE:
                return address - offset - (segment.address - segment.offset)
        raise ElfError("code that is in no segment")

    def _address(self, offset: int) -> int | None:
        """Where an offset of the file is when it is loaded; None if it is not."""
        for segment in self._loaded:
            within = offset - segment.offset
            if 0 <= within < segment.file_size:
                return within + segment.address & _ADDRESSES
        return None

    @cached_property
    def _functions(self) -> tuple[Any, int]:
        """All functions (struct symbol[]) by their first address, and how many they are. Raises ElfError."""
        found, count = self._defined(_FUNCTION, _INDIRECT)
        ends = [section.address + section.size & _ADDRESSES for section in self._sections]
        lib.finish_functions(found, ffi.new("struct symbol[]", count), count, ffi.new("uint64_t[]", ends), len(ends))
        return found, count

    def _name(self, section: int, offset: int) -> str:
        if not 0 <= section < len(self._sections):
            raise ElfError("a name in no section")
        strings = self._sections[section]
        if offset >= strings.size:
            raise ElfError("a name outside of its section")
        at = strings.offset + offset
        if at >= self._content.size:
            raise ElfError("a name outside of the file")
        for longest in (256, MOST_NAME):
            name, end, _ = bytes(self._slice(at, min(longest, self._content.size - at))).partition(b"\0")
            if end:
                return name.decode("utf-8", "replace")
        raise ElfError("a name without an end")

    # -- tables of the file ---------------------------------------------------------------------------------

    @cached_property
    def _sections(self) -> list[_Section]:
        try:
            table = self._slice(self._sections_at, _SECTION.size * self._section_count)
        except ElfError:
            return []  # stripped of them: segments still tell how to unwind
        return [_Section(*each) for each in _SECTION.iter_unpack(table)]

    def _section_name(self, section: _Section) -> bytes:
        if self._names_index >= len(self._sections):
            return b""
        at = self._sections[self._names_index].offset + section.name
        if at >= self._content.size:
            return b""
        return bytes(self._slice(at, min(32, self._content.size - at))).partition(b"\0")[0]

    def section(self, name: bytes, most: int) -> bytes:
        """A section's content, unpacked; empty if neither this file nor the one beside it has it.

        Raises ElfError if it has more than `most` bytes, or is packed in another way than by zlib.
        """
        for section in self._sections:
            if self._section_name(section) == name and section.type != _NOBITS:
                content, size = self._slice(section.offset, section.size), section.size
                is_packed = bool(section.flags & _COMPRESSED)
                if is_packed:
                    way, _, size, _ = _COMPRESSION.unpack_from(content)
                    if way != _BY_ZLIB:
                        raise ElfError("debug information that is packed in a way that is not known here")
                if size > most:
                    raise ElfError(f"more than {most >> 20} MiB of {name.decode()}")
                return _unpacked(content[_COMPRESSION.size :], size) if is_packed else bytes(content)
        return self.beside.section(name, most) if self.beside is not None else b""

    def text_at(self, offset: int, most: int) -> bytes:
        """The text that begins there in the file and ends with a NUL; empty if it is longer. Raises ElfError."""
        if not 0 <= offset < self._content.size:
            raise ElfError("a text outside of the file")
        text, end, _ = bytes(self._slice(offset, min(most, self._content.size - offset))).partition(b"\0")
        return text if end else b""

    def _slice(self, offset: int, size: int) -> Bytes:
        if offset + size > self._content.size:
            raise ElfError("a part outside of the file")
        return self._content.read(offset, size)


def _numbers(count: int) -> memoryview:
    """Zeros of 64 bits, shape (count,): memory that is there once it is written to."""
    return memoryview(mmap.mmap(-1, 8 * max(1, count), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)).cast("Q")[:count]


def _pointer(numbers: memoryview) -> Any:
    return ffi.from_buffer("uint64_t[]", numbers)


def _ends(text: bytes, name: str) -> list[int]:
    """Where texts end so: a linker may have kept a name within a longer one, `environ` in `__environ`."""
    found, wanted = list[int](), name.encode() + b"\0"
    at = text.find(wanted)
    while at >= 0 and len(found) < _MOST_ENDS:
        found.append(at)
        at = text.find(wanted, at + 1)
    return found


def _unpacked(packed: Bytes, size: int) -> bytes:
    try:
        return zlib.decompressobj().decompress(packed, size) if size else b""
    except zlib.error:
        raise ElfError("debug information that can't be unpacked") from None


def _build_id(notes: bytes, align: int) -> bytes:
    """That of some notes: elf(5) has their form."""
    step, at = (8 if align == 8 else 4), 0
    while at + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, at)
        content = at + -(-(12 + name_size) // step) * step
        if kind == _NOTE_OF_BUILD_ID and notes[at + 12 : at + 12 + name_size] == b"GNU\0":
            return notes[content : content + min(size, _MOST_BUILD_ID)]
        at = content + -(-size // step) * step
    return b""


def _without_embedded(elf: Elf) -> Elf:
    """One that is asked for its own symbols alone: a file within a file within a file has no end."""
    elf.__dict__["_embedded"] = None
    return elf


def _size(descriptor: int) -> int:
    """Of a plain file, in bytes. Raises ElfError and OSError."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or not 64 <= status.st_size <= MOST_BYTES:
        raise ElfError("no plain file, or of an impossible size")
    return status.st_size
