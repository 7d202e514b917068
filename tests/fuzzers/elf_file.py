"""A program's file, which is the job's: whatever is in it, its functions and unwind rules are found, or ElfError says
that they are not."""

from __future__ import annotations

import contextlib
import lzma
import struct

from condor_joblens.profiling.elf import MOST_NAME, NO_RULE, Elf, ElfError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_NOTE = struct.pack("<III", 4, 20, 3) + b"GNU\0" + bytes(range(20))
_TEXT, _TEXT_BYTES, _ADDRESS = 0x200, 0x40, 0x401200


def _aligned(content: bytes) -> bytes:
    return content + bytes(-len(content) % 16)


def _eh_frame() -> bytes:
    """One function of all the code, whose caller's frame begins 8 bytes above its stack pointer."""
    cie = struct.pack("<I", 0) + b"\x01\0\x01\x78\x10\x0c\x07\x08\x90\x01" + bytes(2)
    fde = struct.pack("<IQQ", 4 + len(cie) + 4, _ADDRESS, _TEXT_BYTES) + b"\x41\x0e\x10\x42"
    return b"".join(struct.pack("<I", len(part)) + part for part in (cie, fde)) + bytes(4)


def _example(embedded: bytes = b"") -> bytes:
    """A program with a segment of code, an index of its functions, symbols, and perhaps a file within it."""
    names = b"\0.text\0.eh_frame\0.symtab\0.strtab\0.gnu_debugdata\0"
    strings = b"\0outer\0_ZN5inner4leafEv\0"
    symbols = _SYMBOL.pack(0, 0, 0, 0, 0, 0) + _SYMBOL.pack(1, 0x12, 0, 1, _ADDRESS, 0x20)
    symbols += _SYMBOL.pack(7, 0x12, 0, 1, _ADDRESS + 0x20, 0)
    index = b"\x01\x1b\x03\x3b" + struct.pack("<iI", 16, 1) + struct.pack("<ii", -0x40, 0x10)
    parts = {
        b".eh_frame": _aligned(_eh_frame()), b".symtab": _aligned(symbols), b".strtab": _aligned(strings),
        b".gnu_debugdata": _aligned(embedded), b"": _aligned(names),
    }  # fmt: skip
    content, at = b"\x90" * _TEXT_BYTES + _aligned(index), _TEXT + _TEXT_BYTES + len(_aligned(index))
    sections = bytes(_SECTION.size)
    kinds = {b".symtab": 2, b".strtab": 3, b"": 3}
    sections += _SECTION.pack(names.index(b".text"), 1, 6, _ADDRESS, _TEXT, _TEXT_BYTES, 0, 0, 16, 0)
    for name, part in parts.items():
        place = names.index(name) if name else 0
        sections += _SECTION.pack(place, kinds.get(name, 1), 2, 0x500000 + at, at, len(part), 4, 0, 8, 24)
        content, at = content + part, at + len(part)
    segments = _SEGMENT.pack(1, 5, 0, 0x401000, 0x401000, at, at, 0x1000)
    note_at = 64 + 3 * _SEGMENT.size
    segments += _SEGMENT.pack(4, 4, note_at, 0x400000 + note_at, 0, len(_NOTE), len(_NOTE), 4)
    segments += _SEGMENT.pack(0x6474E550, 4, _TEXT + _TEXT_BYTES, _ADDRESS + _TEXT_BYTES, 0, len(index), len(index), 4)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    head = _HEADER.pack(ident, 2, 62, 1, _ADDRESS, 64, at, 0, 64, 56, 3, 64, len(sections) // 64, len(parts) + 1)
    return (head + segments + _NOTE).ljust(_TEXT, b"\0") + content + sections


SEEDS = [_example(), _example(lzma.compress(_example())), _example()[:0x300]]
WORDS = [b"\x7fELF", b"\x50\xe5\x74\x64", b".gnu_debugdata", b".eh_frame", b"\xff" * 8, b"\x01\x1b\x03\x3b"]


def check(data: bytes) -> None:
    """Each question has an answer of its kind, or ElfError."""
    try:
        elf = Elf.within(data)
    except ElfError:
        return
    offsets = [0, _TEXT, _TEXT + 0x21, len(data), 1 << 40]
    with contextlib.suppress(ElfError):
        assert set(elf.build_id) <= set("0123456789abcdef") and len(elf.build_id) <= 64
    with contextlib.suppress(ElfError):
        rows = elf.rows.tolist()
        assert rows == sorted(rows)
        assert all(elf.rule(offset) == NO_RULE for offset in offsets if not rows or offset < rows[0] >> 32)
    with contextlib.suppress(ElfError):
        found = elf.functions(offsets)
        assert len(found) == len(offsets) and all(len(name) <= MOST_NAME for name, _ in found)
    for offset in offsets:
        with contextlib.suppress(ElfError):
            elf.function(offset)
        with contextlib.suppress(ElfError):
            elf.start(_ADDRESS, offset)
    with contextlib.suppress(ElfError):
        assert elf.places(["outer", "nothing"]).keys() <= {"outer", "nothing"}
    with contextlib.suppress(ElfError):
        first, end = elf.largest_unnamed_function()
        assert first <= end
