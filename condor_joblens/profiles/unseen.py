"""Times within a profile at which nobody looked: what counts samples had ended, or joblensd, or the level was lower."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

Times = tuple[tuple[float, float], ...]
"""Pairs of epoch seconds, from and until when, in their order. None of them overlap."""

MOST = 64
"""Of a profile. Beyond that the two that are nearest to each other become one, which is longer than both."""

_SHOWN = 2
"""So many are told one by one."""


def together(times: Iterable[tuple[float, float]]) -> Times:
    """Those of several parts; what is the same, or overlaps, is one."""
    found: list[tuple[float, float]] = []
    for begun, ended in sorted(times):
        if found and begun <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], ended)
        else:
            found.append((begun, ended))
    while len(found) > MOST:
        at = min(range(len(found) - 1), key=lambda at: found[at + 1][0] - found[at][1])
        found[at : at + 2] = [(found[at][0], found[at + 1][1])]
    return tuple(found)


def encode(times: Times) -> str:
    """In text, to the millisecond."""
    return ",".join(f"{begun:.3f}-{ended:.3f}" for begun, ended in times)


def decode(text: str) -> Times:
    """What `encode` has written; of anything else what reads as such. The text may be anybody's."""
    found: list[tuple[float, float]] = []
    for part in text.split(",", MOST)[:MOST]:
        begun, _, ended = part.partition("-")
        try:
            pair = float(begun), float(ended)
        except ValueError:
            continue
        if all(map(math.isfinite, pair)) and 0 <= pair[0] <= pair[1] < 1e11:
            found.append(pair)
    return together(found)


def records(times: Times) -> list[dict[str, float]]:
    """As JSON has them."""
    return [{"BeginTime": begun, "EndTime": ended} for begun, ended in times]


def in_words(times: Times, begun: float, ended: float) -> str:
    """`not seen from 14:10:00 to 14:10:12`: of those between `begun` and `ended`; empty if there is none."""
    inside = [(first, last) for first, last in times if begun < last and first < ended]
    if not inside:
        return ""
    day = "%Y-%m-%d " if time.localtime(begun)[:3] != time.localtime(ended)[:3] else ""
    spans = [
        f"from {time.strftime(f'{day}%H:%M:%S', time.localtime(first))}"
        f" to {time.strftime(f'{day}%H:%M:%S', time.localtime(last))}"
        for first, last in sorted(inside, key=lambda pair: pair[0] - pair[1])
    ]
    if len(spans) <= _SHOWN:
        return f"not seen {' and '.join(sorted(spans))}"
    seconds = sum(last - first for first, last in inside)
    return f"not seen at {len(spans)} times, {seconds:,.0f} s in all, the longest {spans[0]}"
