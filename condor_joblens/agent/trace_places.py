"""Whose runs have the places for what stands for their lives, as traces: who has most gives way.

His own runs wait for one another.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from condor_joblens.agent.levels import policy_input
from condor_joblens.agent.levels.level_state import Levels


@dataclass(frozen=True)
class Place:
    """A run that has a place, or wants one."""

    number: int  # of the run
    whose: str
    importance: tuple[float, ...]
    """Of two, the run with the greater one keeps its place."""


def place_of(levels: Levels, run: int, number: int) -> Place:
    """As budgets have it: what root has raised is the last to go, and of equals the run that began last goes."""
    state = levels.node.runs.state
    is_roots = bool(state["is_overridden"][run] and state["override_by_root"][run])
    importance = (float(is_roots), float(state["policy_priority"][run]), -float(state["began"][run]))
    return Place(number, policy_input.owner(levels, run), importance)


def waiting(
    levels: Levels,
    runs: Mapping[int, int],
    having: Mapping[int, Place],
    not_before: Mapping[int, float],
    is_wanted: Callable[[Levels, int], object],
) -> list[Place]:
    """Of the `runs`, by number, those that want a place, have none, and are not to wait longer; in turn.

    `not_before` has CLOCK_MONOTONIC by number of a run.
    """
    now = time.monotonic()
    found = [
        place_of(levels, run, number)
        for number, run in runs.items()
        if number not in having and now >= not_before.get(number, 0.0) and is_wanted(levels, run)
    ]
    return in_turn(found, having)


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
