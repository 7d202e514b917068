"""As much of the format of protocol buffers as profiles need: numbers, bytes, and lists of numbers.

https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Union

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1

Value = Union[int, bytes]


class WireError(ValueError):
    """These bytes are no message."""


def varint(number: int) -> bytes:
    """A number from -2^63 to 2^63 - 1; others become the nearest."""
    number = min(max(number, _LEAST), _MOST) & 0xFFFF_FFFF_FFFF_FFFF
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def number(field: int, value: int) -> bytes:
    """A field of a number; nothing if it is 0, as readers take it then."""
    return varint(field << 3 | _VARINT) + varint(value) if value else b""


def data(field: int, value: bytes) -> bytes:
    """A field of bytes: a text or another message."""
    return varint(field << 3 | _BYTES) + varint(len(value)) + value


def numbers(field: int, values: Iterable[int]) -> bytes:
    """A field of several numbers, packed."""
    return data(field, b"".join(map(varint, values)))


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Number and value of each field. Raises WireError."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, _signed(value)
            continue
        length = {_FIXED64: 8, _FIXED32: 4}.get(kind, -1)
        if kind == _BYTES:
            length, at = _varint(message, at)
        if length < 0 or at + length > len(message):
            raise WireError("a field outside of its message")
        yield key >> 3, message[at : at + length]
        at += length


def unpacked(value: Value) -> list[int]:
    """The numbers of a field that may be packed. Raises WireError."""
    if isinstance(value, int):
        return [value]
    found, at = [], 0
    while at < len(value):
        each, at = _varint(value, at)
        found.append(_signed(each))
    return found


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
    raise WireError("a number without an end")


def _signed(value: int) -> int:
    return value - (1 << 64) if value > _MOST else value
