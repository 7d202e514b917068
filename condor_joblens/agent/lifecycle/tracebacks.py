"""Whole tracebacks of runs, until they are artifacts.

A run has a name first, and no more than so many files a second: a job can end Pythons in a loop. What has to wait is
held in memory, of each run the first and the last ones. It is kept at the run's end at the latest.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from condor_joblens.agent.lifecycle.crash_words import MOST_OF_RUN
from condor_joblens.agent.node import Node
from condor_joblens.agent.output.run_artifacts import RunArtifacts
from condor_joblens.common.redact import printable

KIND = "traceback"
"""The kind of the artifact."""

CONTENT_TYPE = "text/plain; charset=utf-8"

MOST_KEPT = MOST_OF_RUN
"""Artifacts of a run: the first one, and the last ones."""

AT_ONCE, EVERY = 16, 2.0
"""Artifacts of a run that are written as they come; and then one in so many seconds."""

MOST_WRITTEN = 200
"""Artifacts of a run that are written before its end. Each is an event for the sinks too."""

WAITS = 2.0
"""Seconds in which a process that has told of its end can tell its local variables."""

MOST_HELD, MOST_HELD_BYTES = 4, 8 << 20
"""Tracebacks of one run that wait, and bytes of all runs' together."""


@dataclass(frozen=True)
class _Held:
    when: float  # epoch seconds
    text: bytes
    pid: int
    words: str  # the exception and where it was raised, in a line
    until: float = 0.0  # CLOCK_MONOTONIC until which more can come of it


@dataclass
class _OfRun:
    """What is known of a run whose Pythons have told something."""

    held: list[_Held] = field(default_factory=list)
    written: int = 0
    full_at: float = 0.0  # CLOCK_MONOTONIC at which AT_ONCE could be written again


class Tracebacks:
    """By run, for as long as it is in the table."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._of: dict[int, _OfRun] = {}
        self._bytes = 0

    def hear(
        self, artifacts: RunArtifacts, run: int, pid: int, words: str, traceback: str, *, goes_on: bool = False
    ) -> None:
        """A process of the run has told of its end, in a line and whole; it is kept now, or later.

        `goes_on`: not before `go_on`, or WAITS.
        """
        of = self._of.setdefault(run, _OfRun())
        lines = [printable(each) for each in traceback.split("\n")]
        text = f"Process {pid}\n".encode() + "\n".join(lines).encode("utf-8", "replace")
        told = _Held(time.time(), text, pid, words, time.monotonic() + WAITS if goes_on else 0.0)
        if len(of.held) == MOST_HELD:
            self._take(of, 1)
        if self._bytes + len(told.text) > MOST_HELD_BYTES:
            self._node.log_once(f"{self._node.describe(run)}: a traceback is not kept: too many wait")
            return
        of.held.append(told)
        self._bytes += len(told.text)
        self.keep_due(artifacts, run)

    def go_on(self, artifacts: RunArtifacts, run: int, pid: int, lines: Sequence[str]) -> None:
        """What more the process has told: lines fit to print, which follow the traceback."""
        of = self._of.get(run, _OfRun())
        for place, told in enumerate(of.held):
            if told.pid == pid and told.until:
                more = "".join(f"\n{line}" for line in lines).encode("utf-8", "replace")
                if self._bytes + len(more) > MOST_HELD_BYTES:
                    more = b""
                of.held[place] = dataclasses.replace(told, text=told.text.rstrip(b"\n") + b"\n" + more, until=0.0)
                self._bytes += len(of.held[place].text) - len(told.text)
        self.keep_due(artifacts, run)

    def keep_due(self, artifacts: RunArtifacts, run: int) -> None:
        """Keeps what need not wait any more."""
        of = self._of.get(run)
        if of is None or not self._node.runs.state["named"][run]:
            return
        now = time.monotonic()
        while (
            of.held
            and of.held[0].until <= now
            and of.written < MOST_WRITTEN
            and of.full_at - now <= (AT_ONCE - 1) * EVERY
        ):
            self._keep(artifacts, run, of)

    def keep_all(self, artifacts: RunArtifacts, run: int) -> None:
        """The run is over: keeps all that waits, if anybody will know whose it is."""
        of = self._of.get(run)
        while of is not None and of.held and self._node.runs.state["named"][run]:
            self._keep(artifacts, run, of)

    def tick(self, artifacts: RunArtifacts) -> None:
        """Once a round."""
        for run in [run for run, of in self._of.items() if of.held]:
            self._node.guard(run, "traceback", self.keep_due, artifacts, run)

    def forget(self, run: int) -> None:
        """Nothing of what waits is to be kept."""
        of = self._of.pop(run, None)
        while of is not None and of.held:
            self._take(of, 0)

    def end(self, artifacts: RunArtifacts, run: int) -> None:
        """The run leaves the table."""
        self.keep_all(artifacts, run)
        self.forget(run)

    def _take(self, of: _OfRun, place: int) -> _Held:
        told = of.held.pop(place)
        self._bytes -= len(told.text)
        return told

    def _keep(self, artifacts: RunArtifacts, run: int, of: _OfRun) -> None:
        told = self._take(of, 0)
        of.written += 1
        of.full_at = max(of.full_at, time.monotonic()) + EVERY
        about = dataclasses.replace(
            artifacts.about(run), kind=KIND, content_type=CONTENT_TYPE, begun=told.when, ended=told.when
        )
        kept = [
            each
            for each in artifacts.store.stored(about.run_number)
            if each.run == about.run and each.name.endswith(f".{KIND}")
        ]
        if len(kept) >= MOST_KEPT:
            artifacts.store.delete(kept[1].name)
        artifacts.keep_about(about, [told.text])
        artifacts.tell_raised(about.run_number, told.pid, told.words)
