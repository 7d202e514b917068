"""Whether a job hangs: one that makes no progress is looked at twice, and what it waits for is kept and told.

Numbers alone can't tell a hang from a `sleep 3600`. So a run that has made no progress for JOBLENS_HANG_MINUTES is
looked at (agent/evidence.py). If it waits without a deadline, it is looked at again after APART seconds. If the second
look finds the same wait at the same place, the job seems to hang. Its row and an event say so, and both looks are kept.
One that computes without progress (agent/busy.py) is not looked at: its profile says more.

The looks are taken one after another, with pauses, so that they take no more than half of JOBLENS_MAX_CPU. A second
look waits for no pause, which is made up for afterwards. So of many jobs that hang, the first is told of within ten
seconds. Users who ask for a look come first.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from condor_joblens.agent import busy
from condor_joblens.agent.evidence import Evidence
from condor_joblens.agent.node import Node
from condor_joblens.agent.output import run_reports
from condor_joblens.agent.output.emit_events import EventEmitter
from condor_joblens.agent.output.run_artifacts import RunArtifacts
from condor_joblens.control.verbs import Refused
from condor_joblens.model.metrics import cut_words, text
from condor_joblens.owner_files.reports import MARK, Report
from condor_joblens.profiles import evidence_page

APART = 5.0
"""Seconds between the two looks."""

LASTED = 0.5
"""Of the threshold: an answer is awaited for so long, or somebody asks for it again and again."""

MOST_PATIENCE = 4
"""A run that waits for something harmless is looked at again after the threshold, and then after up to so many."""

PATIENCE = 6.0
"""Seconds for one look: who waits behind it may hang as well. What a file that does not answer keeps back is missing.
"""

LONGEST_PAUSE = 10.0
"""Seconds of rest for one look."""

SHARE = 0.5
"""Of JOBLENS_MAX_CPU for looks: joblensd has the rest, so that the level of no other job is lowered for them."""

TEXT = b'{"part":"text"}\n'
"""What the look begins a text with that is for the job's owner (profiling/look.py), in a packet of its own."""

LARGEST = 1 << 20
"""Bytes of one look that are kept."""

KIND = "hang"
"""Of the artifact. Each look is a line of JSON with its time and its length in bytes, and then what it said."""

_SUMMARY = re.compile(
    rb'\{"part":"summary","cause":"([a-z \']{1,16})","suspicious":(true|false),"fingerprint":"([0-9a-f]{32})"\}\n'
)
"""What a look says in short (profiling/look.py), in a packet of its own. Nothing else of it is taken apart: it comes
from a process of the job's owner."""


@dataclass(frozen=True)
class Summary:
    """A look in short: the same fingerprint says the same wait at the same place."""

    cause: str
    is_suspicious: bool
    fingerprint: bytes


class LookTaken:
    """Takes what a look tells, in the place of a stream to somebody who asked."""

    has_room = True

    def __init__(self, over: Callable[[LookTaken], None]) -> None:
        """`over` is called once, when all has been said."""
        self._over = over
        self.on_room: Callable[[], object] = lambda: None
        self.on_close: Callable[[], object] = lambda: None
        self.began = time.time()  # epoch seconds
        self.pieces: list[bytes] = []
        self.summary: Summary | None = None
        self.text = b""
        self._bytes = 0

    def send(self, data: bytes) -> bool:
        """A packet of the look."""
        if data.startswith(TEXT):
            self.text = data[len(TEXT) :]
            return True
        found = _SUMMARY.fullmatch(data)
        if found is not None and self.summary is None:
            self.summary = Summary(found[1].decode(), found[2] == b"true", found[3])
        self._bytes += len(data)
        if self._bytes <= LARGEST:
            self.pieces.append(data)
        return True

    def head(self) -> bytes:
        """What stands before it in an artifact."""
        return b'{"part":"look","began":%.3f,"bytes":%d}\n' % (self.began, sum(map(len, self.pieces)))

    def end(self, fields: object) -> None:
        """All has been said."""
        self._over(self)

    def refuse(self, reason: str) -> None:
        """Nothing can be told of the run."""
        self._over(self)


@dataclass
class _Suspicion:
    """A run that stands still."""

    number: int  # its run_number
    due: float  # CLOCK_MONOTONIC of the next look
    first: LookTaken | None = None  # the look with which the next one is compared
    harmless: int = 0  # how often in a row nothing suspicious was found


class Hangs:
    """The runs that stand still, and which of them seem to hang."""

    def __init__(
        self,
        node: Node,
        evidence: Evidence,
        events: EventEmitter,
        artifacts: RunArtifacts,
        tag: Callable[[int, str], object],
    ) -> None:
        """`tag` is called with a run that seems to hang, and KIND: what it did last is kept (flight_recorder.py)."""
        self._node, self._evidence, self._events, self._artifacts, self._tag = node, evidence, events, artifacts, tag
        self.busy = busy.BusyRuns(node)
        self._still: dict[int, _Suspicion] = {}  # by run
        self._told: dict[int, int] = {}  # run -> run_number of those of which an event says that they hang
        self._looks_at: int | None = None
        self._rests_until = 0.0
        rows, living = node.runs.rows, node.runs.living()
        for run in living[rows["hang_suspected"][living] == 1].tolist():  # an earlier joblensd has told of them
            self._told[run] = int(rows["run_number"][run])

    def tick(self) -> None:
        """Once a period: forgets what moves again, and begins the next look that is due."""
        threshold, now = 60.0 * self._node.config.hang_minutes, time.monotonic()
        self._withdraw()
        for run in self.busy.tick(threshold or math.inf):
            self._node.guard(run, "hang", self._tell, run, busy.CAUSE)
        still = self._standing_still(threshold) if threshold else []
        if not still and not self._still:
            return
        for run in self._still.keys() - set(still):
            del self._still[run]
        numbers = self._node.runs.rows["run_number"]
        for run in still:
            known = self._still.get(run)
            if known is None or known.number != int(numbers[run]):
                self._still[run] = _Suspicion(int(numbers[run]), now)
        if self._looks_at is None and (due := self._due(now)) is not None:
            self._look(due, now)

    def _due(self, now: float) -> int | None:
        """Whose look is the next: second looks first, so one job is told of before the others are looked at."""
        rests = now < self._rests_until
        due = [run for run, one in self._still.items() if one.due <= now and not (rests and one.first is None)]
        return min(due, key=lambda run: (self._still[run].first is None, self._still[run].due), default=None)

    def _standing_still(self, threshold: float) -> list[int]:
        rows, state = self._node.runs.rows, self._node.runs.state
        runs = self._node.runs.living()
        runs = runs[rows["hang_seconds"][runs] >= threshold]
        if not len(runs):
            return []
        kept = ~rows["final"][runs] & (rows["level_number"][runs] > 0) & (state["kernel_slot"][runs] >= 0)
        kept &= ~state["is_interactive"][runs] & (state["busy_since"][runs] == 0)
        found: list[int] = runs[kept].tolist()
        return found

    def _look(self, run: int, now: float) -> None:
        number = self._still[run].number
        self._looks_at = run
        taken = LookTaken(lambda look: self._looked(run, number, look))
        try:
            least = LASTED * 60.0 * self._node.config.hang_minutes
            self._evidence.take(run, None, taken, PATIENCE, self._heading(run, taken.began), least, self._rest)
        except Refused:  # its folder is not known, or nobody can look on this node
            self._looks_at = None
            self._still[run].due = now + 60.0 * self._node.config.hang_minutes

    def _heading(self, run: int, now: float) -> str:
        """Of the report for the job's own folder, if this look may be the one that makes it; else empty."""
        known = self._still[run]
        is_told = self._told.get(run) == known.number
        if known.first is None or is_told or not run_reports.is_wanted(self._node, run):
            return ""
        job = text(self._node.runs.rows["job_id"][run])
        whose = f"{MARK.decode()} for +JobLensReport: job {job} on {os.uname().nodename} seems to hang,"
        return f"{whose}\n{evidence_page.taken(known.first.began, now)}"

    def _rest(self, used: float) -> None:
        """A look has used so many seconds of CPU. One that waited for a server that does not answer has used few."""
        rest = min(LONGEST_PAUSE, used / (SHARE * self._node.config.max_cpu))
        self._rests_until = max(self._rests_until, time.monotonic()) + rest

    def _looked(self, run: int, number: int, look: LookTaken) -> None:
        """A look is over, or has been refused."""
        now = time.monotonic()
        self._looks_at = None
        known = self._still.get(run)
        if known is not None and known.number == number:
            self._node.guard(run, "hang", self._judge, run, known, look, now)

    def _judge(self, run: int, known: _Suspicion, look: LookTaken, now: float) -> None:
        threshold, found, first = 60.0 * self._node.config.hang_minutes, look.summary, known.first
        if found is None or not found.is_suspicious:
            known.first, known.harmless = None, known.harmless + 1
            known.due = now + threshold * min(known.harmless, MOST_PATIENCE)
            self._tell(run, "")
        elif first is None or first.summary != found:
            known.first, known.harmless, known.due = look, 0, now + APART
        else:
            known.first, known.due = None, now + threshold
            if self._told.get(run) != known.number:
                self._artifacts.keep(
                    run,
                    KIND,
                    [piece for one in (first, look) for piece in (one.head(), *one.pieces)],
                    content_type="application/x-ndjson",
                    begun=first.began,
                    ended=look.began,
                )
                if look.text:
                    run_reports.write(self._node, run, Report.HANG, look.text)
            self._tell(run, found.cause)

    def _tell(self, run: int, cause: str) -> None:
        """The row says from now on that the run hangs, or with an empty cause that it does not."""
        row = self._node.runs.rows[run : run + 1]
        row["hang_suspected"], row["hang_cause"] = int(bool(cause)), cut_words(cause, "hang_cause")
        if not cause:
            self._withdraw()
        elif self._told.get(run) != int(row["run_number"][0]):
            self._told[run] = int(row["run_number"][0])
            self._tag(run, KIND)
            self._events.hang(run, cause)
            command = "hot" if cause == busy.CAUSE else "hang"
            self._node.log(f"{self._node.describe(run)}: seems to hang: {cause}; `joblens {command}` shows where")

    def _withdraw(self) -> None:
        """Those of which an event says that they hang, and that do no more."""
        rows, state = self._node.runs.rows, self._node.runs.state
        for run, number in list(self._told.items()):
            if not state["used"][run] or int(rows["run_number"][run]) != number:
                del self._told[run]
            elif rows["hang_suspected"][run] != 1:
                del self._told[run]
                self._events.hang(run, "")
