"""What a program's file says: where its code lies, its unwind table, its functions. The file is the job's.

Every part of it is a slice of a mapping of bounded size, so what is wrong in the file is an exception: ElfError.
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from condor_joblens.profiling._eh_frame import ffi, lib

MOST_BYTES = 4 << 30
MOST_ROWS = 16 << 20
MOST_SYMBOLS = 4 << 20
MOST_NAME = 16 << 10

_SECTION_HEADERS = 4096  # at most
_SEGMENTS = 256
_EXECUTABLE, _LOAD, _EH_FRAME_HEADER = 1, 1, 0x6474E550
_X86_64 = 62
_SYMTAB, _DYNSYM, _NOBITS = 2, 11, 8
_FUNCTION, _INDIRECT = 2, 10


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


class Elf:
    """A file of 64 bits that is open for reading."""

    def __init__(self, descriptor: int) -> None:
        """Maps it; the descriptor stays the caller's. Raises ElfError and OSError."""
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not 64 <= status.st_size <= MOST_BYTES:
            raise ElfError("no plain file, or of an impossible size")
        self._memory = mmap.mmap(descriptor, status.st_size, prot=mmap.PROT_READ)
        self._all = np.frombuffer(self._memory, "u1")
        header = self._memory[:64]
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
        return int(self._all.ctypes.data)

    # -- unwind table ---------------------------------------------------------------------------------------

    @cached_property
    def _rows(self) -> np.ndarray:
        """The rows of its unwind table (eh_frame.h) in the order of their offsets; none for another machine's file."""
        empty: np.ndarray = np.zeros(0, "<u8")
        place = self._eh_frame() if self.machine == _X86_64 else None
        if place is None:
            return empty
        offset, size, address = place
        code = self._code()
        section = ffi.cast("uint8_t *", self._all.ctypes.data) + offset
        count = lib.unwind_rows(section, size, address, code, len(code), ffi.NULL, 0)
        if count > MOST_ROWS:
            raise ElfError("too long an unwind table")
        rows: np.ndarray = np.zeros(count, "<u8")
        lib.unwind_rows(section, size, address, code, len(code), ffi.cast("uint64_t *", rows.ctypes.data), count)
        rows.sort()
        return rows

    def rule(self, offset: int) -> Rule:
        """How to unwind at an offset of the file. Raises ElfError."""
        rows = self._rows
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
        starts, ends, names, strings = self._functions
        index = int(np.searchsorted(starts, np.uint64(address), side="right")) - 1
        # symbols of one place follow each other; one that has ended may lie within another
        for candidate in range(index, max(-1, index - 8), -1):
            if address < int(ends[candidate]):
                start = int(starts[candidate])
                return self._name(int(strings[candidate]), int(names[candidate])), offset - (address - start)
        return None

    def _address(self, offset: int) -> int:
        for segment in self._loaded():
            within = offset - int(segment["offset"])
            if 0 <= within < int(segment["file_size"]):
                return int(segment["address"]) + within
        raise ElfError("an offset that is in no segment")

    @cached_property
    def _functions(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """First addresses, ends, and offsets of names in which section: of all functions, by their first address."""
        parts: list[np.ndarray] = [np.zeros(0, _SYMBOL)]
        owners: list[np.ndarray] = [np.zeros(0, "i8")]
        for section in self._sections:
            if section["type"] in (_SYMTAB, _DYNSYM):
                symbols = self._table(
                    _SYMBOL, int(section["offset"]), min(int(section["size"]) // _SYMBOL.itemsize, MOST_SYMBOLS)
                )
                kind = symbols["info"] & 15
                symbols = symbols[((kind == _FUNCTION) | (kind == _INDIRECT)) & (symbols["section"] > 0)]
                parts.append(symbols)
                owners.append(np.full(len(symbols), int(section["link"])))
        symbols, owner = np.concatenate(parts), np.concatenate(owners)
        order = np.lexsort((symbols["size"], symbols["value"]))
        symbols, owner = symbols[order], owner[order]
        # written in assembler, some have no size: they last until the next one
        following = np.append(symbols["value"][1:], symbols["value"][-1:] + np.uint64(1))
        ends = np.where(symbols["size"] > 0, symbols["value"] + symbols["size"], following)
        return symbols["value"], ends, symbols["name"], owner

    def _name(self, section: int, offset: int) -> str:
        if not 0 <= section < len(self._sections):
            raise ElfError("a name in no section")
        strings = self._sections[section]
        if offset >= int(strings["size"]):
            raise ElfError("a name outside of its section")
        at = int(strings["offset"]) + offset
        end = self._memory.find(b"\0", at, min(at + MOST_NAME, len(self._memory)))
        if end < 0:
            raise ElfError("a name without an end")
        return self._memory[at:end].decode("utf-8", "replace")

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
        return self._memory[at : at + 16].partition(b"\0")[0] if at < len(self._memory) else b""

    def _table(self, dtype: np.dtype[np.void], offset: int, count: int) -> np.ndarray:
        table: np.ndarray = self._slice(offset, count * dtype.itemsize).view(dtype)
        return table

    def _slice(self, offset: int, size: int) -> np.ndarray:
        if offset + size > len(self._all):
            raise ElfError("a part outside of the file")
        part: np.ndarray = self._all[offset : offset + size]
        return part
