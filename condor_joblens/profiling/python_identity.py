"""Which code object of Python a sample has at an address: 32 bits that the kernel makes of what names it and its lines.

Names are read later than a sample is taken. By then the code object can be gone, and another one be in its place. Its
names and lines can lie where those of the first one did. So the kernel takes in what they say, too, as python_identity
of bpf_programs/profile/python.bpf.h: any change here is one there.
"""

from __future__ import annotations

import itertools
import struct
from typing import Protocol

from condor_joblens.profiling.python_offsets import Layout

UNREAD = 0
"""The kernel could not read the code object. A part of one is this as well: its page had not been used for long."""

_TEXT_BYTES = 64
_HEAD = struct.Struct("<QQI")  # of a text: length, hash, state
_NO_HASH = (1 << 64) - 1
_KIND, _ASCII = 7, 16
_OLD_TEXT = 48  # bytes of a text's head up to 3.11
_MASK = (1 << 64) - 1


class _Memory(Protocol):
    def read(self, address: int, size: int) -> bytes:
        """The process's memory; less than `size` if it can't be read."""


def size_of_code(at: Layout) -> int:
    """Bytes of a code object that are read for it."""
    return 8 + max(at.code_filename, at.code_name, at.code_line_table, at.code_first_line)


def possible(memory: _Memory, at: Layout, address: int) -> set[int]:
    """What the kernel can have told of the code object that is there now; nothing if it can't be read.

    There are several: parts that it could not read, and a text's hash that Python has made meanwhile.
    """
    size = size_of_code(at)
    code = memory.read(address, size)
    if len(code) < size:
        return set()
    file, name, table = (_word(code, place) for place in (at.code_filename, at.code_name, at.code_line_table))
    mixed = _mixed_in(3, struct.unpack_from("<I", code, at.code_first_line)[0])
    for pointer in (file, name, table):
        mixed = _mixed_in(mixed, pointer)
    found = set()
    for parts in itertools.product(_text(memory, at, name), _text(memory, at, file), _table(memory, at, table)):
        each = mixed
        for part in parts:
            each = _mixed_in(each, part)
        found.add(each & 0xFFFFFFFF or 1)
    return found


def _text(memory: _Memory, at: Layout, address: int) -> list[int]:
    head = memory.read(address + at.text_length, _HEAD.size)
    if len(head) < _HEAD.size:
        return [UNREAD]
    length, hashed, state = _HEAD.unpack(head)
    state >>= at.text_kind_bit
    data = address + at.text_data + (0 if state & _ASCII else 24 if at.text_data == _OLD_TEXT else 16)
    by_bytes = _bytes(memory, data, (state & _KIND) * (length & 0xFFFFFFFF))
    return [UNREAD, by_bytes] if hashed == _NO_HASH else [UNREAD, by_bytes, _mixed_in(2, hashed)]


def _table(memory: _Memory, at: Layout, address: int) -> list[int]:
    size = memory.read(address + at.bytes_size, 8)
    if len(size) < 8:
        return [UNREAD]
    return [UNREAD, _bytes(memory, address + at.bytes_data, _word(size, 0) & 0xFFFFFFFF)]


def _bytes(memory: _Memory, address: int, size: int) -> int:
    last = min(size, _TEXT_BYTES)
    found = memory.read(address + size - last, last)
    if len(found) < last:
        return UNREAD
    mixed = _mixed_in(1, size)
    for (word,) in struct.iter_unpack("<Q", found.ljust(_TEXT_BYTES, b"\0")):
        mixed = _mixed_in(mixed, word)
    return mixed


def _mixed_in(mixed: int, word: int) -> int:
    mixed = (mixed ^ word) * 0x9E3779B97F4A7C15 & _MASK
    return mixed ^ mixed >> 32


def _word(memory: bytes, place: int) -> int:
    return int(struct.unpack_from("<Q", memory, place)[0])
