"""Runs whose connections still close: after a job's end the kernel sends what is left to send, for seconds.

Its last ad has what was sent until then, and Tcp.UnsentBytes. The slot's index is kept until all of its connections
have closed. Then the run's last row is put right, and readers get it a second time, with `corrects`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from condor_joblens.agent.node import Node
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import MetricKind, cut_words
from condor_joblens.sample import totals
from condor_joblens.sample.collector import have_their_cgroups
from condor_joblens.sample.kernel_counters import columns, counted_by
from condor_joblens.tracer import map_layout

LONGEST = 60.0
"""Seconds after which a connection is given up that has not closed: its peer may never read on."""

SHARE = 8
"""One of so many slots of the kernel's table may be kept; beyond that, the oldest is given up."""

_NAMES = map_layout.COUNTERS.names or ()
CORRECTED = {
    column: name
    for level in (Level.BASIC, Level.IO)
    for column, name in counted_by(level, MetricKind.COUNTER, _NAMES).items()
    if column.startswith("tcp_") and name in map_layout.TOTALS
}
"""Column of the row -> the field of the kernel's structures that goes on counting."""


@dataclass
class _Ended:
    slot: int
    row: np.ndarray  # ROW, shape (1,): the last one
    offset: np.ndarray  # what is to be added to the kernel's totals, shape (1,)
    until: float  # CLOCK_MONOTONIC


@dataclass
class Settling:
    """The runs that have ended and still send."""

    node: Node
    now: Callable[[], float] = time.monotonic
    _ended: list[_Ended] = field(default_factory=list)

    def begin(self, run: int) -> bool:
        """Keeps the run's slot in the kernel if connections of it are open; else the caller gives it back."""
        state, rows = self.node.runs.state, self.node.runs.rows
        slot = int(state["kernel_slot"][run])
        is_left = not have_their_cgroups(self.node, np.array([run]))[0]  # what closes is counted with the next job
        if not state["named"][run] or is_left or not is_open(self.node, slot):
            return False
        last, offset = rows[run : run + 1].copy(), state["offset"][run : run + 1].copy()
        self._ended.append(_Ended(slot, last, offset, self.now() + LONGEST))
        if len(self._ended) > max(1, len(self.node.tracer.counters) // SHARE):
            self._settle([self._ended.pop(0)])
        return True

    def tick(self) -> None:
        """Once a round: what has closed by now, or won't in time, is settled."""
        now = self.now()
        is_over = [now >= one.until or not is_open(self.node, one.slot) for one in self._ended]
        over = [one for one, ends in zip(self._ended, is_over) if ends]
        self._ended = [one for one, ends in zip(self._ended, is_over) if not ends]
        self._settle(over)

    def say_death(self, number: int, sentence: str) -> None:
        """The last row of the run of this number is to say so."""
        for one in self._ended:
            if one.row["run_number"][0] == number:
                one.row["death"] = cut_words(sentence, "death")

    def _settle(self, over: list[_Ended]) -> None:
        """Puts their rows right. All that is open is walked over once, however many they are."""
        walked: np.ndarray = np.zeros(len(over), map_layout.LIVING)
        still_open = np.array([is_open(self.node, one.slot) for one in over], "?")
        if still_open.any():
            tracer = self.node.tracer
            tracer.count_connections()
            walked[still_open] = tracer.connections[[one.slot for one in over]][still_open]
        for place, one in enumerate(over):
            self._put_right(one, walked[place : place + 1])

    def _put_right(self, one: _Ended, walked: np.ndarray) -> None:
        """`walked` (map_layout.LIVING, shape (1,)) is what its open connections have carried."""
        node, ended = self.node, self.node.tracer.counters[[one.slot]]
        found = columns(ended, np.zeros(1, map_layout.LIVING), walked)
        wanted = {column: found[column] for column in ("tcp_open", "tcp_unsent_bytes")}
        for column, name in CORRECTED.items():
            if one.row[column][0] >= 0:
                wanted[column] = (ended[name] + walked[name]).astype("i8")
        before = one.row.copy()
        totals.merge(one.row, one.offset, np.array([0]), wanted)
        node.tracer.stop(one.slot)
        # that the peer has said good-bye as well is no news
        if any(one.row[column] != before[column] for column in wanted if column != "tcp_open"):
            one.row["sequence"] += 1
            one.row["corrects"] = True  # and the time is still that of the end
            node.ended.correct(np.void(one.row[0]))


def is_open(node: Node, slot: int) -> bool:
    """Whether connections of the slot are open."""
    count = node.tracer.counters[slot]
    return slot >= 0 and int(count["connected"] + count["accepted"]) != int(count["closed"])
