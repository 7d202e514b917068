"""JSON of others: what is no number, or is one that nothing can keep, is refused.

orjson reads it where it is installed, in a quarter of Python's time. What that refuses, or could read as something else
than Python does, Python reads: so both say the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

_quick: Callable[[bytes], Any] | None
_quick_text: Callable[[Any], bytes] | None
try:
    import orjson
except ImportError:
    _quick = _quick_text = None
else:
    _quick, _quick_text = orjson.loads, orjson.dumps

_DEEP = 200
"""Brackets in a text of which Python may say that it is nested too deep, and orjson not yet."""


def _finite(text: str) -> float:
    found = float(text)
    if found - found != 0:
        raise ValueError("a number is greater than any that can be kept")
    return found


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_no_number)
"""Its `decode` raises ValueError, and RecursionError if a text is nested too deep."""


def has_deep_line(lines: bytes) -> bool:
    """Whether a line of it has so many brackets that it might be nested too deep."""
    codes = np.frombuffer(lines, np.uint8)
    opened = np.flatnonzero((codes | 0x20) == ord("{"))  # [ becomes { by that bit
    ends = np.flatnonzero(codes == ord("\n"))
    before = np.searchsorted(opened, np.append(ends, len(lines)))
    return bool((np.diff(before, prepend=0) >= _DEEP).any())


def decoded(text: bytes, is_flat: bool = False) -> Any:
    """What a text says; integers above 64 bits may be floats. is_flat: it is known to have few brackets.

    Raises ValueError, and RecursionError if it is nested too deep.
    """
    if _quick is not None and (is_flat or text.count(b"{") + text.count(b"[") < _DEEP):
        try:
            return _quick(text)
        except ValueError:  # whose words say less
            pass
    return DECODER.decode(text.decode("utf-8"))


def encoded(value: Any) -> bytes:
    """The text of what `decoded` has read."""
    if _quick_text is not None:
        try:
            return _quick_text(value)
        except TypeError:  # an integer above 64 bits
            pass
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
