"""Who may say how closely a job is watched, and who beats whom. This table is the only one.

It goes by who says it, not by the way it comes: by hand on the node, from afar, or by an entry (entries.py).
Of those of one rank, the lowest `at most` beats the highest `at least`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from condor_joblens.control.entries import Role
from condor_joblens.model.levels import Level


class Rank(enum.IntEnum):
    """Who speaks: the first beats all that follow. Docs: policies.md, "Who has the last word"."""

    NODE = 0
    """JOBLENS_MAX_LEVEL: no level is above it."""
    ROOT = 1
    """By hand, for a time."""
    ADMINISTRATOR = 2
    OPERATOR = 3
    """Both by entries, for a time."""
    MANAGER = 4
    """Of an accounting group, by an entry."""
    OWNER = 5
    """The job's, by hand or by an entry, for a time."""
    POLICIES = 6
    """They know what the job requests (policy/precedence.py). If they can't decide: JOBLENS_DEFAULT_LEVEL."""


class May(NamedTuple):
    """What one of a rank may do to a level that those below him have chosen."""

    raise_it: bool
    lower_it: bool
    beyond_policies: bool  # raise it above the policies' cap


TABLE = {
    Rank.NODE: May(raise_it=False, lower_it=True, beyond_policies=False),
    Rank.ROOT: May(raise_it=True, lower_it=True, beyond_policies=True),
    Rank.ADMINISTRATOR: May(raise_it=True, lower_it=True, beyond_policies=True),
    Rank.OPERATOR: May(raise_it=True, lower_it=True, beyond_policies=True),
    Rank.MANAGER: May(raise_it=True, lower_it=False, beyond_policies=False),
    Rank.OWNER: May(raise_it=True, lower_it=False, beyond_policies=False),
    Rank.POLICIES: May(raise_it=True, lower_it=True, beyond_policies=False),
}

OF_ROLE = {
    Role.ADMINISTRATOR: Rank.ADMINISTRATOR,
    Role.OPERATOR: Rank.OPERATOR,
    Role.MANAGER: Rank.MANAGER,
    Role.OWNER: Rank.OWNER,
}
"""The rank of an entry: its author's."""

BY_HAND, BY_POLICIES = -1, -2
"""Sources of a level that are no entry."""

NONE_LEAST, NONE_MOST = int(Level.OFF), int(Level.TRACE)
"""What says nothing."""


class Word(NamedTuple):
    """What one says about n runs."""

    rank: Rank
    source: int  # of an entry: its index; else BY_HAND
    least: np.ndarray  # (n,), NONE_LEAST if nothing
    most: np.ndarray  # (n,), NONE_MOST if nothing


class Bounds(NamedTuple):
    """Between what a level can be chosen, and who says so; all of shape (n,)."""

    least: np.ndarray
    most: np.ndarray
    least_by: np.ndarray  # Word.source; BY_POLICIES: nobody above them
    most_by: np.ndarray
    least_rank: np.ndarray  # theirs
    most_rank: np.ndarray
    beaten: np.ndarray  # the highest "at least" of all, also of those whom a higher rank's "at most" beats
    is_held_up: np.ndarray  # of bool: the lowest "at most" is below `least`, which a higher rank has said


def bounds(words: Iterable[Word], count: int, cap: int, policy_cap: np.ndarray) -> Bounds:
    """What `words` about `count` runs leave open to those below. `policy_cap` has shape (count,)."""
    least, most = np.full(count, int(Level.OFF)), np.full(count, cap)
    least_by, most_by = np.full(count, BY_POLICIES), np.full(count, BY_POLICIES)
    least_rank, most_rank = np.full(count, Rank.POLICIES), np.full(count, Rank.POLICIES)
    beaten = least
    is_held_up: np.ndarray = np.zeros(count, "?")
    for rank, is_least, word in _steps(words):
        if is_least:
            asked = word.least if TABLE[rank].beyond_policies else np.minimum(word.least, policy_cap)
            said, beaten = np.minimum(most, asked), np.maximum(beaten, asked)
            least_by, least_rank = _by(said > least, word, least_by, least_rank)
            least = np.maximum(least, said)
        else:
            said = np.maximum(least, word.most)
            most_by, most_rank = _by(said < most, word, most_by, most_rank)
            is_held_up |= (said < most) & (said > word.most)
            most = np.minimum(most, said)
    return Bounds(least, most, least_by, most_by, least_rank, most_rank, beaten, is_held_up)


def _steps(words: Iterable[Word]) -> list[tuple[Rank, bool, Word]]:
    """Each bound that somebody may give, and whether it is one from below, in the order in which they count."""
    # within a rank all bounds from above come first
    steps = sorted(
        ((word.rank, is_least, word) for word in words for is_least in (False, True)), key=lambda step: step[:2]
    )
    return [step for step in steps if (TABLE[step[0]].raise_it if step[1] else TABLE[step[0]].lower_it)]


def _by(is_his: np.ndarray, word: Word, sources: np.ndarray, rank: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.where(is_his, word.source, sources), np.where(is_his, word.rank, rank)


def forbidding(words: Iterable[Word], level: Level, cap: int, policy_cap: np.ndarray) -> int:
    """Who is the first in the order to leave the one run of `words` no such level: Word.source, BY_POLICIES if none."""
    heard: list[Word] = []
    for _, is_least, word in _steps(words):
        only = {"most": np.array([NONE_MOST])} if is_least else {"least": np.array([NONE_LEAST])}
        heard.append(word._replace(**only))
        found = bounds(heard, 1, cap, policy_cap)
        if not found.least[0] <= level <= found.most[0]:
            return word.source
    return BY_POLICIES


def decide(found: Bounds, policies: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The level of each run, and whose it is: the source of a Word, or BY_POLICIES. Both of shape (n,).

    It is whose bound it could not leave: who has raised it, or who has lowered it or keeps others from raising it. Of
    both, it is the one of the higher rank. What somebody has said exactly is his, also if policies say the same.
    """
    levels = np.minimum(np.maximum(policies, found.least), found.most)
    is_exact = (found.least == found.most) & (found.most_by != BY_POLICIES)
    is_exact &= (found.least_by == found.most_by) | (found.most == Level.OFF)
    is_kept_low = (levels < policies) | ((levels == found.most) & (found.beaten > levels)) | is_exact
    is_raised = (levels > policies) | (found.is_held_up & (levels == found.most))
    is_raisers = is_raised & (~is_kept_low | (found.least_rank < found.most_rank))
    sources = np.where(is_raisers, found.least_by, np.where(is_kept_low, found.most_by, BY_POLICIES))
    return levels, sources
