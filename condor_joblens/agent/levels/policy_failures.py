"""Runs on which the policies failed: what they may have meanwhile, and when the policies are asked again.

Nobody gets by a failure what the policies would not have given: an ad can be written so that it fails. Until a decision
comes, the run has no more than the default level, and its owner can't raise it by hand; root can.
"""

from __future__ import annotations

import time

from condor_joblens.agent.levels.level_state import Failed, Levels

SHORTEST, LONGEST = 30.0, 3600.0
"""Seconds after which the policies are asked again: twice as long after each failure."""

PATIENCE = 3
"""Failures in a row after which a decision that was made before them stands no longer."""


def record(levels: Levels, run: int) -> int:
    """One more failure on this run; how many there have been in a row."""
    key = levels.node.key_of(run)
    before = levels.round.failed.get(key)
    in_a_row = 1 if before is None else before.in_a_row + 1
    pause = min(LONGEST, SHORTEST * 2 ** (in_a_row - 1))
    levels.round.failed[key] = Failed(in_a_row, time.monotonic() + pause)
    levels.node.handles[run].notes["policy again"] = f"the policies are asked again after {pause:.0f} s"
    return in_a_row


def forget(levels: Levels, run: int) -> None:
    """The policies have decided about the run."""
    if levels.round.failed.pop(levels.node.key_of(run), None) is not None:
        levels.node.handles[run].notes["policy again"] = ""


def is_due(levels: Levels, key: str) -> bool:
    """Whether the policies are to be asked about this run (again)."""
    found = levels.round.failed.get(key)
    return found is None or time.monotonic() >= found.again_at
