"""What a program's file says: where its code lies, its unwind table, its functions. The file is the job's.

Every part of it is a slice of a mapping of bounded size, so what is wrong in the file is an exception: ElfError.
"""

from __future__ import annotations

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
from typing import Any, Protocol

import numpy as np

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


def _record(**members: str) -> np.dtype[np.void]:
    return np.dtype(list(members.items()))


_SEGMENT = _record(
    type="<u4", flags="<u4", offset="<u8", address="<u8", physical="<u8", file_size="<u8", size="<u8", align="<u8"
)
_SECTION = _record(
    name="<u4", type="<u4", flags="<u8", address="<u8", offset="<u8", size="<u8", link="<u4", info="<u4", align="<u8",
    entry_size="<u8",
)  # fmt: skip
_SYMBOL = _record(name="<u4", info="u1", other="u1", section="<u2", value="<u8", size="<u8")


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

    def read(self, offset: int, size: int) -> np.ndarray:
        """A part that is within the file, as bytes (u1). Raises ElfError if the file has become shorter."""


class _InMemory:
    def __init__(self, memory: mmap.mmap | bytes) -> None:
        self.size = len(memory)
        self.all = np.frombuffer(memory, "u1")

    def read(self, offset: int, size: int) -> np.ndarray:
        part: np.ndarray = self.all[offset : offset + size]
        return part


class _OnDisk:
    """Reads what is asked for: a file that is cut off meanwhile ends no process, as it would if it were mapped."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor, self.size = descriptor, size

    def read(self, offset: int, size: int) -> np.ndarray:
        data = os.pread(self._descriptor, size, offset)
        if len(data) != size:
            raise ElfError("a file that has become shorter")
        part: np.ndarray = np.frombuffer(data, "u1")
        return part


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
        header = self._slice(0, 64).tobytes()
        if header[:6] != b"\x7fELF\x02\x01":
            raise ElfError("no ELF file of 64 bits")
        self.machine = struct.unpack_from("<H", header, 18)[0]
        segments_at, sections_at = struct.unpack_from("<QQ", header, 32)
        segments, _, sections = struct.unpack_from("<HHH", header, 56)
        self._segments = self._table(_SEGMENT, segments_at, min(segments, _SEGMENTS))
        self._sections_at, self._section_count = sections_at, min(sections, _SECTION_HEADERS)
        self._names_index = struct.unpack_from("<H", header, 62)[0]

    @property
    def mapped_at(self) -> int:
        """Where it is in this process's memory."""
        if not isinstance(self._content, _InMemory):
            raise ElfError("not in memory")
        return int(self._content.all.ctypes.data)

    @cached_property
    def build_id(self) -> str:
        """What its linker has named it by, in hexadecimal; empty if it has no such note. Raises ElfError."""
        for segment in self._segments[self._segments["type"] == _NOTE]:
            size = min(int(segment["file_size"]), _MOST_NOTES)
            found = _build_id(self._slice(int(segment["offset"]), size).tobytes(), int(segment["align"]))
            if found:
                return found.hex()
        return ""

    # -- unwind table ---------------------------------------------------------------------------------------

    @cached_property
    def rows(self) -> np.ndarray:
        """The rows of its unwind table (eh_frame.h) in the order of their offsets; none for another machine's file."""
        empty: np.ndarray = np.zeros(0, "<u8")
        place = self._eh_frame() if self.machine == _X86_64 else None
        if place is None:
            return empty
        offset, size, address = place
        code = self._code()
        content = self._slice(offset, size)
        section = ffi.cast("uint8_t *", content.ctypes.data)
        count = lib.unwind_rows(section, size, address, code, len(code), ffi.NULL, 0)
        if count > MOST_ROWS:
            raise ElfError("too long an unwind table")
        rows: np.ndarray = np.zeros(count, "<u8")
        lib.unwind_rows(section, size, address, code, len(code), ffi.cast("uint64_t *", rows.ctypes.data), count)
        rows.sort()
        return rows

    def rule(self, offset: int) -> Rule:
        """How to unwind at an offset of the file. Raises ElfError."""
        rows = self.rows
        if offset >> 32:
            return NO_RULE
        index = int(np.searchsorted(rows, np.uint64(offset << 32 | 0xFFFFFFFF), side="right")) - 1
        if index < 0:
            return NO_RULE
        row = int(rows[index])
        kind, n = row >> 29 & 7, row >> 12 & 0x1FFFF
        return Rule(kind, n if kind == lib.RULE_PLT else 8 * n, 8 * (row & 0xFFF))

    def _eh_frame(self) -> tuple[int, int, int] | None:
        """Offset, size and address of the section .eh_frame; by the segment that points to it, or by its name."""
        for section in self._sections:
            if self._section_name(section) == b".eh_frame" and section["type"] != _NOBITS:
                offset, size = int(section["offset"]), int(section["size"])
                self._slice(offset, size)
                return offset, size, int(section["address"])
        for segment in self._segments:
            if segment["type"] == _EH_FRAME_HEADER:
                return self._eh_frame_of_segment(int(segment["offset"]), int(segment["address"]))
        return None

    def _eh_frame_of_segment(self, offset: int, address: int) -> tuple[int, int, int] | None:
        version, encoding = self._slice(offset, 2).tolist()
        if version != 1 or encoding != 0x1B:  # a signed number of 32 bits, from its own address on
            return None
        (distance,) = struct.unpack("<i", self._slice(offset + 4, 4).tobytes())
        start = address + 4 + distance
        for segment in self._loaded():
            within = start - int(segment["address"])
            if 0 <= within < int(segment["file_size"]):
                at, size = int(segment["offset"]) + within, int(segment["file_size"]) - within
                self._slice(at, size)
                return at, size, start
        return None

    def _loaded(self) -> np.ndarray:
        loaded: np.ndarray = self._segments[self._segments["type"] == _LOAD]
        return loaded

    def _code(self) -> Any:
        found = self._loaded()
        found = found[(found["flags"] & _EXECUTABLE) > 0]
        code = ffi.new("struct code[]", len(found))
        for at, segment in enumerate(found):
            code[at].address, code[at].offset = int(segment["address"]), int(segment["offset"])
            code[at].size = int(segment["file_size"])
        return code

    # -- functions ------------------------------------------------------------------------------------------

    def function(self, offset: int) -> tuple[str, int] | None:
        """Name, as it is in the file, and first offset of the function at an offset; None if no symbol says it."""
        address = self._address(offset)
        symbol = self._symbol(address)
        return None if symbol is None else (symbol[0], offset - (address - symbol[1]))

    def functions(self, offsets: Sequence[int]) -> list[tuple[str, int]]:
        """Of offsets of the file: name, as it is in the file, and first offset of the function there.

        Without a symbol the name is empty, and the first offset is where the unwind table has a function begin. If
        that knows none either, it is the offset itself. Raises ElfError.
        """
        places = np.array(offsets, "u8")
        addresses, starts = self._addresses(places), self._entries
        index = np.searchsorted(starts, addresses, side="right").astype("i8") - 1
        begins = starts[np.maximum(index, 0)] if len(starts) else addresses
        begins = np.where((index >= 0) & (addresses > 0), begins, addresses)
        found = []
        for place, address, begin in zip(offsets, addresses.tolist(), begins.tolist()):
            symbol = self._symbol(address) if address else None
            found.append((symbol[0], place - (address - symbol[1])) if symbol else ("", place - (address - begin)))
        return found

    def _symbol(self, address: int) -> tuple[str, int] | None:
        """Name and first address of the function at an address."""
        starts, ends, names, strings = self._functions
        index = int(np.searchsorted(starts, np.uint64(address), side="right")) - 1
        # symbols of one place follow each other; one that has ended may lie within another
        for candidate in range(index, max(-1, index - 8), -1):
            if address < int(ends[candidate]):
                return self._name(int(strings[candidate]), int(names[candidate])), int(starts[candidate])
        return self._symbol_beside(address) or (self._embedded._symbol(address) if self._embedded is not None else None)

    def _symbol_beside(self, address: int) -> tuple[str, int] | None:
        if self.beside is not None:
            try:
                return self.beside._symbol(address)
            except (ElfError, OSError, MemoryError):  # its own symbols are still there
                self.beside = None
        return None

    def _addresses(self, offsets: np.ndarray) -> np.ndarray:
        """Where offsets of the file are when it is loaded; 0 for those that are not."""
        addresses: np.ndarray = np.zeros(len(offsets), "u8")
        for segment in self._loaded():
            start, size, address = segment["offset"], segment["file_size"], segment["address"]
            is_in = (offsets >= start) & (offsets - start < size) & (addresses == 0)
            addresses = np.where(is_in, offsets - start + address, addresses)
        return addresses

    def addresses(self, offsets: Sequence[int]) -> list[int]:
        """Where offsets of the file are when it is loaded; 0 for those that are not."""
        found: list[int] = self._addresses(np.array(offsets, "u8")).tolist()
        return found

    @cached_property
    def _entries(self) -> np.ndarray:
        """First addresses of all functions that can be unwound, rising: from the index of the unwind table."""
        none: np.ndarray = np.zeros(0, "u8")
        for segment in self._segments[self._segments["type"] == _EH_FRAME_HEADER]:
            offset, address = int(segment["offset"]), int(segment["address"])
            version, pointer, count, table = self._slice(offset, 4).tolist()
            # pointers of 4 bytes, a count of 4, and a table of pairs, both from the segment's address on
            if (version, pointer, count, table) != (1, 0x1B, 0x03, 0x3B):
                continue
            (pairs,) = struct.unpack("<I", self._slice(offset + 8, 4).tobytes())
            distances: np.ndarray = self._slice(offset + 12, 8 * min(pairs, MOST_SYMBOLS)).view("<i4")[::2]
            found: np.ndarray = distances.astype("i8") + np.uint64(address).astype("i8")
            entries: np.ndarray = np.sort(found[found > 0]).astype("u8")
            return entries
        return none

    @cached_property
    def _embedded(self) -> Elf | None:
        """The symbols that a stripped file has within itself, compressed (MiniDebugInfo)."""
        for section in self._sections:
            if self._section_name(section) == b".gnu_debugdata":
                with contextlib.suppress(ElfError, lzma.LZMAError, EOFError):
                    packed = self._slice(int(section["offset"]), min(int(section["size"]), _MOST_EMBEDDED)).tobytes()
                    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MOST_EMBEDDED * 4)
                    return _without_embedded(Elf.within(unpacker.decompress(packed, _MOST_EMBEDDED)))
        return None

    def places(self, names: Sequence[str]) -> dict[str, int]:
        """The addresses, as the file has them, of what is called so, as far as it is there. Raises ElfError."""
        found: dict[str, int] = {}
        for section in self._sections:
            if section["type"] not in (_SYMTAB, _DYNSYM) or not int(section["link"]) < len(self._sections):
                continue
            count = min(int(section["size"]) // _SYMBOL.itemsize, MOST_SYMBOLS)
            symbols = self._table(_SYMBOL, int(section["offset"]), count)
            strings = self._sections[int(section["link"])]
            text = self._slice(int(strings["offset"]), min(int(strings["size"]), _MOST_STRINGS)).tobytes()
            for name in names:
                for symbol in symbols[np.isin(symbols["name"], _ends(text, name)) & (symbols["section"] > 0)]:
                    found.setdefault(name, int(symbol["value"]))
        return found

    def _defined(self, kind: int) -> Iterator[tuple[int, np.ndarray]]:
        """Of each table of symbols the section of their names, and those of this kind that the file itself has.

        There are MOST_SYMBOLS of all tables at most, shape (n,). Raises ElfError.
        """
        room = MOST_SYMBOLS
        for section in self._sections:
            if section["type"] not in (_SYMTAB, _DYNSYM):
                continue
            count = min(int(section["size"]) // _SYMBOL.itemsize, room)
            room -= count
            symbols = self._table(_SYMBOL, int(section["offset"]), count)
            yield int(section["link"]), symbols[((symbols["info"] & 15) == kind) & (symbols["section"] > 0)]

    def named_functions(self) -> Iterator[tuple[str, int, int]]:
        """Name, as it is in the file, first address and size of each function that has its code there.

        Some are told twice, and several may have the same address. Raises ElfError.
        """
        for link, symbols in self._defined(_FUNCTION):
            for name, address, size in zip(*(symbols[each].tolist() for each in ("name", "value", "size"))):
                with contextlib.suppress(ElfError):
                    yield self._name(link, name), address, size
        if self._embedded is not None:
            yield from self._embedded.named_functions()

    def named_variables(self) -> Iterator[str]:
        """The names, as they are in the file, of what is in its data. Some are told twice. Raises ElfError."""
        for link, symbols in self._defined(_OBJECT):
            for name in symbols["name"].tolist():
                with contextlib.suppress(ElfError):
                    yield self._name(link, name)

    @cached_property
    def is_go(self) -> bool:
        """Whether it is a program in Go, whose linker leaves sections of these names also in a stripped one."""
        return any(self._section_name(section) in _OF_GO for section in self._sections)

    @cached_property
    def is_stripped(self) -> bool:
        """Whether it has no symbols but those that other files use, if any."""
        return self._embedded is None and not bool((self._sections["type"] == _SYMTAB).any())

    def code(self, address: int, size: int) -> tuple[int, bytes]:
        """Where in the file the code at an address is, and its bytes. Raises ElfError."""
        for segment in self._loaded():
            within = address - int(segment["address"])
            if segment["flags"] & _EXECUTABLE and within >= 0 and within + size <= int(segment["file_size"]):
                at = int(segment["offset"]) + within
                return at, self._slice(at, size).tobytes()
        raise ElfError("code that is in no segment")

    def largest_unnamed_function(self) -> tuple[int, int]:
        """First address and end, as the file has them, of its largest function; equal ones if that has a name."""
        entries = self._entries
        if len(entries) < 2:
            return 0, 0
        largest = int(np.argmax(np.diff(entries)))
        first, end = int(entries[largest]), int(entries[largest + 1])
        return first, first if np.any(self._functions[0] == entries[largest]) else end

    def start(self, address: int, offset: int) -> int:
        """Where its address 0 is in a process that has code of an offset at an address. Raises ElfError."""
        for segment in self._loaded():
            first = int(segment["offset"]) // _PAGE * _PAGE
            if segment["flags"] & _EXECUTABLE and first <= offset < first + int(segment["file_size"]) + _PAGE:
                return address - offset - (int(segment["address"]) - int(segment["offset"]))
        raise ElfError("code that is in no segment")

    def _address(self, offset: int) -> int:
        for segment in self._loaded():
            within = offset - int(segment["offset"])
            if 0 <= within < int(segment["file_size"]):
                return int(segment["address"]) + within & _ADDRESSES
        raise ElfError("an offset that is in no segment")

    @cached_property
    def _functions(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """First addresses, ends, and offsets of names in which section: of all functions, by their first address."""
        parts: list[np.ndarray] = [np.zeros(0, _SYMBOL)]
        owners: list[np.ndarray] = [np.zeros(0, "u4")]
        room = MOST_SYMBOLS  # in all: thousands of sections may be one and the same part of the file
        for section in self._sections:
            if section["type"] in (_SYMTAB, _DYNSYM):
                count = min(int(section["size"]) // _SYMBOL.itemsize, room)
                room -= count
                symbols = self._table(_SYMBOL, int(section["offset"]), count)
                kind = symbols["info"] & 15
                symbols = symbols[((kind == _FUNCTION) | (kind == _INDIRECT)) & (symbols["section"] > 0)]
                parts.append(symbols)
                owners.append(np.full(len(symbols), int(section["link"]), "u4"))
        symbols = np.concatenate(parts)
        # each column apart: what is sorted and searched lies together, and nothing else is kept
        starts, sizes, names = (np.ascontiguousarray(symbols[name]) for name in ("value", "size", "name"))
        order = np.argsort(starts, kind="stable")
        starts, sizes, names, owner = starts[order], sizes[order], names[order], np.concatenate(owners)[order]
        # written in assembler, some have no size: they last until the next one, or the end of their section
        following = np.append(starts[1:], starts[-1:] + np.uint64(1))
        sections = self._sections
        number = np.minimum(symbols["section"][order], max(0, len(sections) - 1))
        if len(sections):
            following = np.minimum(following, sections["address"][number] + sections["size"][number])
        return starts, np.where(sizes > 0, starts + sizes, following), names, owner

    def _name(self, section: int, offset: int) -> str:
        if not 0 <= section < len(self._sections):
            raise ElfError("a name in no section")
        strings = self._sections[section]
        if offset >= int(strings["size"]):
            raise ElfError("a name outside of its section")
        at = int(strings["offset"]) + offset
        if at >= self._content.size:
            raise ElfError("a name outside of the file")
        for longest in (256, MOST_NAME):
            name, end, _ = self._slice(at, min(longest, self._content.size - at)).tobytes().partition(b"\0")
            if end:
                return name.decode("utf-8", "replace")
        raise ElfError("a name without an end")

    # -- tables of the file ---------------------------------------------------------------------------------

    @cached_property
    def _sections(self) -> np.ndarray:
        try:
            return self._table(_SECTION, self._sections_at, self._section_count)
        except ElfError:
            none: np.ndarray = np.zeros(0, _SECTION)
            return none  # stripped of them: segments still tell how to unwind

    def _section_name(self, section: np.void) -> bytes:
        if self._names_index >= len(self._sections):
            return b""
        at = int(self._sections[self._names_index]["offset"]) + int(section["name"])
        if at >= self._content.size:
            return b""
        return self._slice(at, min(32, self._content.size - at)).tobytes().partition(b"\0")[0]

    def section(self, name: bytes, most: int) -> bytes:
        """A section's content, unpacked; empty if neither this file nor the one beside it has it.

        Raises ElfError if it has more than `most` bytes, or is packed in another way than by zlib.
        """
        for section in self._sections:
            if self._section_name(section) == name and section["type"] != _NOBITS:
                content, size = self._slice(int(section["offset"]), int(section["size"])), int(section["size"])
                is_packed = bool(int(section["flags"]) & _COMPRESSED)
                if is_packed:
                    way, _, size, _ = _COMPRESSION.unpack_from(content[: _COMPRESSION.size].tobytes())
                    if way != _BY_ZLIB:
                        raise ElfError("debug information that is packed in a way that is not known here")
                if size > most:
                    raise ElfError(f"more than {most >> 20} MiB of {name.decode()}")
                return _unpacked(content[_COMPRESSION.size :].tobytes(), size) if is_packed else content.tobytes()
        return self.beside.section(name, most) if self.beside is not None else b""

    def _table(self, dtype: np.dtype[np.void], offset: int, count: int) -> np.ndarray:
        table: np.ndarray = self._slice(offset, count * dtype.itemsize).view(dtype)
        return table

    def text_at(self, offset: int, most: int) -> bytes:
        """The text that begins there in the file and ends with a NUL; empty if it is longer. Raises ElfError."""
        if not 0 <= offset < self._content.size:
            raise ElfError("a text outside of the file")
        text, end, _ = self._slice(offset, min(most, self._content.size - offset)).tobytes().partition(b"\0")
        return text if end else b""

    def _slice(self, offset: int, size: int) -> np.ndarray:
        if offset + size > self._content.size:
            raise ElfError("a part outside of the file")
        return self._content.read(offset, size)


def _ends(text: bytes, name: str) -> list[int]:
    """Where texts end so: a linker may have kept a name within a longer one, `environ` in `__environ`."""
    found, wanted = list[int](), name.encode() + b"\0"
    at = text.find(wanted)
    while at >= 0 and len(found) < _MOST_ENDS:
        found.append(at)
        at = text.find(wanted, at + 1)
    return found


def _unpacked(packed: bytes, size: int) -> bytes:
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
