"""What nodes answer to the question how many jobs an entry would be for, added up.

A node can say anything about its own jobs, and no more. Its answer is what agent/levels/level_arbiter.preview makes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from condor_joblens.control.entries import Entry
from condor_joblens.model.levels import Level

COUNTS = ("Jobs", "Raised", "Lowered", "Beaten", "Capped")
"""Of jobs: all. Those with a closer level, and with a less close one. Those that are not as the entry says, as others
have the last word. And those that are not as close as it says, as the node allows less.
"""

_LEVELS = ("Before", "After")
"""Jobs of the nodes at each level, off first."""

_MOST_JOBS = 1 << 20
_MOST_BYTES = 4000


def counted(answer: bytes) -> dict[str, Any] | None:
    """What a node has counted, within bounds; None if that is no answer."""
    try:
        found = json.loads(answer) if len(answer) < _MOST_BYTES else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("Contradicts"), dict):
        return None
    lists = [found.get(name) for name in _LEVELS]
    if not all(isinstance(each, list) and len(each) == len(Level) for each in lists):
        return None
    numbers = [found.get(name) for name in (*COUNTS, "Begun")]
    if not all(type(number) is int for each in (numbers, found["Contradicts"].values(), *lists) for number in each):
        return None
    counts = {name: _jobs(found[name]) for name in COUNTS}
    at_levels = {name: [_jobs(number) for number in found[name]] for name in _LEVELS}
    begun = min(max(found["Begun"], -_MOST_JOBS), _MOST_JOBS)
    shared = {name: _jobs(number) for name, number in found["Contradicts"].items()}
    return {**counts, **at_levels, "Begun": begun, "Contradicts": shared}


def _jobs(number: int) -> int:
    return min(max(number, 0), _MOST_JOBS)


def summed(answers: Sequence[bytes], contradicted: Sequence[Entry]) -> tuple[dict[str, Any], list[int]]:
    """The sums over all nodes that have answered, and how many these are of those that were asked.

    Also how many running jobs the entry shares with each that it contradicts.
    """
    known = [each for each in map(counted, answers) if each is not None]
    counts = {name: sum(each[name] for each in known) for name in (*COUNTS, "Begun")}
    at_levels = {name: [sum(each[name][level] for each in known) for level in Level] for name in _LEVELS}
    nodes = {"Nodes": len(answers), "Answered": len(known), "NodesWithJobs": sum(each["Jobs"] > 0 for each in known)}
    shared = [sum(each["Contradicts"].get(other.name, 0) for each in known) for other in contradicted]
    return {**counts, **at_levels, **nodes}, shared


def contradicting(entry: Entry, others: Iterable[Entry]) -> list[Entry]:
    """Those of `others` that say the opposite of jobs that can be the same."""
    return [other for other in others if entry.contradicts(other) and entry.may_share_jobs(other)]
