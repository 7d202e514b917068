"""Whose runs have the places for traces that stand: who has most gives way, and his own runs wait for one another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A run that has a place, or wants one."""

    number: int  # of the run
    whose: str
    importance: tuple[float, ...]
    """Of two, the run with the greater one keeps its place."""


def in_turn(waiting: Sequence[Place], having: Mapping[int, Place]) -> list[Place]:
    """The runs that wait, each user's in their order, and who has least first."""
    has = Counter(place.whose for place in having.values())
    ranked = []
    for place in waiting:
        ranked.append((has[place.whose], place))
        has[place.whose] += 1
    return [place for _, place in sorted(ranked, key=lambda each: each[0])]


def to_go(wanting: Place, having: Mapping[int, Place], living: Mapping[int, Place]) -> Place | None:
    """Which of the living runs gives its place up for one of another user; None: this one waits.

    It is the least important one of whoever has most, if he then has no fewer than the other. So nobody's run goes for
    one that would have to give the place back. Runs that are over leave by themselves.
    """
    has = Counter(place.whose for place in having.values())
    has[wanting.whose] += 1
    candidates = [place for place in living.values() if has[place.whose] > has[wanting.whose]]
    return min(candidates, key=lambda place: (-has[place.whose], place.importance), default=None)
