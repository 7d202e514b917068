"""Which code object of Python a sample has at an address: 32 bits that the kernel makes of what says so.

Names are read later than a sample is taken. By then the code object can be gone, and another one be in its place. Its
names and lines can lie where those of the first one did. From 3.12 on each code object has a number that no other one
has had. Before, the kernel takes in what the names and lines say, too. It is python_identity of
bpf_programs/profile/python.bpf.h: any change here is one there.
"""

from __future__ import annotations

import itertools
import struct
from typing import NamedTuple, Protocol

from condor_joblens.profiling.python_offsets import NONE, Layout

UNREAD = 0
"""The kernel could not read the code object. A part of one is this as well: its page had not been used for long."""

_NUMBERED = (3, 12)
_TO_NUMBER = 24
"""From a code object's first line to its own number, co_version, in each version that has one."""

_WORD = 8
_TEXT_BYTES = 64
_HEAD = struct.Struct("<QQI")  # of a text: length, hash, state
_NO_HASH = (1 << 64) - 1
_KIND, _ASCII = 7, 16
_OLD_TEXT = 48  # bytes of a text's head up to 3.11
_MASK = (1 << 64) - 1
_IDENTITY_MASK = (1 << 32) - 1


class _Memory(Protocol):
    def read(self, address: int, size: int) -> bytes:
        """The process's memory; less than `size` if it can't be read."""


class Part(NamedTuple):
    """The part of a code object that is taken in, in bytes from its begin on: whole words, which stay as they are.

    It is from the first line to the line table in all versions. Names lie between. `number` is where the code object's
    own is; NONE before 3.12.
    """

    first: int
    size: int
    number: int


def part_of(version: tuple[int, int], at: Layout) -> Part:
    """The one of this version."""
    places = (at.code_filename, at.code_name, at.code_line_table, at.code_first_line)
    first, end = min(places) & -_WORD, max(places) + 2 * _WORD - 1 & -_WORD
    number = at.code_first_line + _TO_NUMBER
    return Part(first, end - first, number if version >= _NUMBERED and number < end - _WORD else NONE)


def possible(memory: _Memory, version: tuple[int, int], at: Layout, address: int) -> set[int]:
    """What the kernel can have told of the code object that is there now; nothing if it can't be read.

    There can be several: parts that it could not read, and a text's hash that Python has made meanwhile. One that is
    gone can still have its number, but its names may be others' by now. So it is as if it could not be read.
    """
    part = part_of(version, at)
    code = memory.read(address + part.first, part.size)
    if len(code) < part.size:
        return set()
    mixed = 3
    for (word,) in struct.iter_unpack("<Q", code):
        mixed = _mixed_in(mixed, word)
    if part.number != NONE and struct.unpack_from("<I", code, part.number - part.first)[0]:
        return {mixed & _IDENTITY_MASK or 1} if _is_alive(memory, at, address) else set()
    places = (at.code_filename, at.code_name, at.code_line_table)
    file, name, table = (_word(code, place - part.first) for place in places)
    found = set()
    for parts in itertools.product(_text(memory, at, name), _text(memory, at, file), _table(memory, at, table)):
        each = mixed
        for said in parts:
            each = _mixed_in(each, said)
        found.add(each & _IDENTITY_MASK or 1)
    return found


def _is_alive(memory: _Memory, at: Layout, address: int) -> bool:
    """Whether there are references to an object: their number is its first word.

    A free block has there where the next one is, or 0. The number has 32 bits, and flags are 16 bits above that (3.14).
    The bits between are 0, which those of the addresses of Python's blocks are not.
    """
    references = memory.read(address + at.object_type - _WORD, _WORD)
    return len(references) == _WORD and references[:4] != bytes(4) and references[4:6] == bytes(2)


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
