"""Which line an instruction of Python is of: the three formats of line tables that CPython has had."""

from __future__ import annotations

from collections.abc import Iterator

MOST_BYTES = 1 << 20
"""Of a table; no longer one is read."""

_STEPPED, _RANGES = (3, 10), (3, 11)  # the first versions of the second and of the third format
_SIGNED, _NO_LINE = 128, -128
_NOTHING, _LONG, _NO_COLUMNS, _ONE_LINE = 15, 14, 13, 10  # kinds of entries, Objects/locations.md of CPython


def line(version: tuple[int, int], table: bytes, first: int, offset: int) -> int:
    """The line of the instruction at an offset in bytes; 0 if it has none, or the table does not say it."""
    if version < _STEPPED:
        found = _by_increments(table, first, offset)
    elif version < _RANGES:
        found = _in(_steps(table, first), offset)
    else:
        found = _in(_ranges(table, first), offset)
    return max(found, 0)


def _by_increments(table: bytes, first: int, offset: int) -> int:
    """Pairs: so many bytes further, so many lines further (Objects/lnotab_notes.txt)."""
    at, number = 0, first
    for bytes_on, lines_on in zip(table[::2], table[1::2]):
        at += bytes_on
        if at > offset:
            break
        number += lines_on - 256 if lines_on >= _SIGNED else lines_on
    return number


def _in(ranges: Iterator[tuple[int, int]], offset: int) -> int:
    start = 0
    for end, number in ranges:
        if start <= offset < end or offset < 0:  # before the first instruction it is at the first line
            return number
        start = end
    return 0


def _steps(table: bytes, first: int) -> Iterator[tuple[int, int]]:
    """End and line of each range: pairs of its bytes, and of the lines further."""
    end, number = 0, first
    for size, lines_on in zip(table[::2], table[1::2]):
        end += size
        on = lines_on - 256 if lines_on >= _SIGNED else lines_on
        if on != _NO_LINE:
            number += on
        yield end, 0 if on == _NO_LINE else number


def _ranges(table: bytes, first: int) -> Iterator[tuple[int, int]]:
    """The same; an entry's first byte alone has its highest bit set, and says its kind and how long the range is."""
    end, number, at = 0, first, 0
    while at < len(table):
        head = table[at]
        kind, end = head >> 3 & 15, end + 2 * ((head & 7) + 1)
        if kind in (_LONG, _NO_COLUMNS):
            number += _signed(table, at + 1)
        elif _ONE_LINE <= kind < _NO_COLUMNS:
            number += kind - _ONE_LINE
        yield end, 0 if kind == _NOTHING else number
        at += 1
        while at < len(table) and not table[at] & 0x80:
            at += 1


def _signed(table: bytes, at: int) -> int:
    """A number in groups of six bits, the lowest of which is its sign."""
    value = shift = 0
    for byte in table[at : at + 6]:
        value |= (byte & 63) << shift
        shift += 6
        if not byte & 64:
            break
    return -(value >> 1) if value & 1 else value >> 1
