"""JSON of others: what is no number, or is one that nothing can keep, is refused."""

from __future__ import annotations

import json


def _finite(text: str) -> float:
    found = float(text)
    if found - found != 0:
        raise ValueError("a number is greater than any that can be kept")
    return found


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_no_number)
"""Its `decode` raises ValueError, and RecursionError if a text is nested too deep."""
