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


def bounds(words: Iterable[Word], count: int, cap: int, policy_cap: np.ndarray) -> Bounds:
    """What `words` about `count` runs leave open to those below. `policy_cap` has shape (count,)."""
    least, most = np.full(count, int(Level.OFF)), np.full(count, cap)
    least_by, most_by = np.full(count, BY_POLICIES), np.full(count, BY_POLICIES)
    # within a rank all bounds from above come first
    steps = [(word.rank, is_least, word) for word in words for is_least in (False, True)]
    for rank, is_least, word in sorted(steps, key=lambda step: step[:2]):
        may = TABLE[rank]
        if is_least and may.raise_it:
            said = np.minimum(most, word.least if may.beyond_policies else np.minimum(word.least, policy_cap))
            least, least_by = np.maximum(least, said), np.where(said > least, word.source, least_by)
        elif not is_least and may.lower_it:
            said = np.maximum(least, word.most)
            most, most_by = np.minimum(most, said), np.where(said < most, word.source, most_by)
    return Bounds(least, most, least_by, most_by)


def decide(found: Bounds, policies: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The level of each run, and whose it is: the source of a Word, or BY_POLICIES. Both of shape (n,)."""
    levels = np.minimum(np.maximum(policies, found.least), found.most)
    sources = np.where(levels > policies, found.least_by, np.where(levels < policies, found.most_by, BY_POLICIES))
    return levels, sources
