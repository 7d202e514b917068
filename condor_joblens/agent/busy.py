"""Which runs compute without progress, as far as samples tell: in the same places, and moving next to nothing.

The reader of samples says since when a run has been in the same places (profiling/steady.py), at level profile and
above. The collector of progress says since when it has moved next to no bytes. If both last for JOBLENS_HANG_MINUTES,
the run may hang in a loop without end. It may also compute well for so long: this is a suspicion, its cause `busy`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from condor_joblens.agent.node import Node
from condor_joblens.model.levels import Level
from condor_joblens.profiling.samples import WINDOW_SECONDS

CAUSE = "busy"

STALE = 3 * WINDOW_SECONDS
"""Seconds after which what the reader has said of a run does not hold any more."""


@dataclass(frozen=True)
class _Said:
    """Since and until when a run was in the same places (Unix time), and when that was said (CLOCK_MONOTONIC)."""

    since: float
    until: float
    at: float


class BusyRuns:
    """What the reader has said of runs, and what follows from that."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._said: dict[int, _Said] = {}  # by run number

    def heard(self, number: int, since: float, until: float) -> None:
        """The run has been in the same places from `since` to `until` (Unix time); 0: it is in others now."""
        if since:
            self._said[number] = _Said(since, until, time.monotonic())
        else:
            self._said.pop(number, None)

    def tick(self, threshold: float) -> list[int]:
        """Puts it into the state of the runs; those that have been busy for `threshold` seconds, as their rows say."""
        rows, state, runs = self._node.runs.rows, self._node.runs.state, self._node.runs.living()
        if not self._said and not state["busy_since"][runs].any():
            return []
        by_number = {number: run for run, number in zip(runs.tolist(), rows["run_number"][runs].tolist())}
        now, epoch = time.monotonic(), time.time()
        begins = np.zeros(len(rows))
        for number, said in list(self._said.items()):
            run = by_number.get(number)
            if run is None or now - said.at > STALE:
                del self._said[number]
                continue
            begin = max(said.since - epoch + now, float(state["quiet_since"][run]))
            if self._is_looked_at(run) and said.until - epoch + now - begin >= threshold:
                begins[run] = begin
        state["busy_since"][runs] = begins[runs]
        found: list[int] = runs[(begins[runs] > 0) & (rows["hang_seconds"][runs] >= threshold)].tolist()
        return found

    def _is_looked_at(self, run: int) -> bool:
        rows, state = self._node.runs.rows, self._node.runs.state
        return not (rows["final"][run] or rows["level_number"][run] < Level.PROFILE or state["is_interactive"][run])
