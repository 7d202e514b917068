"""A trace that stands for a job's life: by +JobLensTrace, or by a policy. It tells sums, and what is to be kept.

It ends with the job, or when joblensd closes its socket: then the job's level is another one.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

from condor_joblens.control.child_output import MOST, WHOLE
from condor_joblens.model.events import EventKind
from condor_joblens.profiles import traced_calls
from condor_joblens.tracing import for_triggers
from condor_joblens.tracing.call_tree import ROOT
from condor_joblens.tracing.calls import Call
from condor_joblens.tracing.child import GRACE_SECONDS, TAKE_SECONDS, Trace
from condor_joblens.tracing.followers import Followers
from condor_joblens.tracing.for_triggers import ForTriggers
from condor_joblens.tracing.opener import Opener
from condor_joblens.tracing.outbox import Outbox
from condor_joblens.tracing.probes import Probes
from condor_joblens.tracing.standing_messages import KEEP, MOST_LISTED, MOST_NAME, PART, SPAN, Listed, Sums, packed

FIRST_LOOK_SECONDS = 0.1
"""How often new processes are looked for, and how soon a new one is looked at again: it may have been a shell."""

LOOK_SHARE = 0.02
"""Of the time, that looks may take at most, whatever joblensd allows: a job can start processes without end."""

MOST_PAUSE_SECONDS = 10.0
"""Until the next look, at most: on a machine whose cores are all busy a look takes long, and costs no more."""

SUMS_SECONDS = 1.0
FIRST_KEPT_SECONDS, MOST_KEPT_SECONDS = 5.0, 60.0
"""When all is told that is kept, and again after twice as long each time, up to this."""

DEADLINE_SECONDS = 300.0
"""If this process stands still for so long, the kernel ends it, and its probes with it."""


class StandingTrace(Trace):
    """One of them."""

    def __init__(self, outbox: Outbox, spec_texts: Sequence[str], probes: Probes, cgroup: int, opener: Opener) -> None:
        """Raises SpecError."""
        self._notes: list[str] = []
        self.for_triggers = ForTriggers(outbox)
        self._followers = Followers(self._told_to_follower)
        self._followers.hear_more = self.hear_more
        super().__init__(outbox, spec_texts, probes, cgroup, opener)
        self.job.first_pause, self.look_share = FIRST_LOOK_SECONDS, LOOK_SHARE
        self._began = time.time()
        outbox.hear = self._followers.hear
        self._last = traced_calls.LastCalls()

    def hear_more(self, said: dict[str, Any]) -> None:
        """joblensd says what triggers want from now on, or what looks may take."""
        if "tell" in said:
            self.for_triggers.hear(said)
        else:
            self.may_look(said)

    def may_look(self, said: Mapping[str, Any]) -> None:
        """Looks may take so much of a core."""
        self.look_share = min(LOOK_SHARE, float(said.get("looking", LOOK_SHARE)))

    def notice(self, text: str) -> None:
        """It is kept too."""
        if len(self._notes) < traced_calls.MOST_NOTES:
            self._notes.append(text)
        self._followers.notice(text)
        super().notice(text)

    def stand(self) -> None:
        """Until the job or joblensd has ended."""
        now = time.monotonic()
        next_look, next_sums, pause = now, now + SUMS_SECONDS, FIRST_KEPT_SECONDS
        next_kept = now + pause
        while self.outbox.is_open:
            signal.setitimer(signal.ITIMER_REAL, DEADLINE_SECONDS)
            self.take()
            now = time.monotonic()
            if now >= next_look:
                if not self.look():
                    break
                took = time.monotonic() - now
                next_look = now + took + min(max(FIRST_LOOK_SECONDS, took / self.look_share), MOST_PAUSE_SECONDS)
            if now >= next_sums:
                self._tell_sums()
                next_sums = now + SUMS_SECONDS
            if now >= next_kept:
                self._tell_kept()
                pause = min(2 * pause, MOST_KEPT_SECONDS)
                next_kept = now + pause
            self._followers.flush()
            if not self.outbox.flush():
                return
            self.outbox.wait([self.probes.fileno()], TAKE_SECONDS)
        self.close()
        if self.outbox.is_open:
            self._tell_sums()
            self._tell_kept()
            self.outbox.put(WHOLE)
            self.outbox.send_all(GRACE_SECONDS / 2, self._followers.flush)
        self._followers.end()

    def look(self) -> bool:
        """Probes what is new of the job, and says what is meant and not there."""
        known = len(self.job.unmatched)
        is_there = super().look()
        for text in self.job.unmatched[known:]:
            self.notice(text)
        return is_there

    def ended(self, calls: Sequence[Call]) -> None:
        """The last ones and the longest are kept, and those who follow are told."""
        events, are_wanted = [], self.for_triggers.wants(EventKind.FUNCTION)
        for call in calls:
            told = self.told(call)
            self._followers.tell([told])
            self._last.add([*told[:3], call.entry.function, *told[4:]])
            if are_wanted:
                spec = self.job.traced[call.entry.function].spec
                events.append(for_triggers.of_call(told, self._caller(call), self.lines, has_texts=bool(spec.texts)))
        self.for_triggers.tell(events)

    def _caller(self, call: Call) -> str:
        """The traced function in whose call it is; empty: in none, or nobody knows."""
        nodes = self.calls.tree.nodes
        parent = ROOT if call.node == ROOT else nodes[call.node].parent
        return "" if parent == ROOT else self.job.traced[nodes[parent].function].function.name

    def _told_to_follower(self, untold: int) -> list[dict[str, Any]]:
        numbers = [number for number, each in enumerate(self.job.traced) if each.since_ns]
        return [{**self.summary(number), "NotShown": untold} for number in numbers]

    def _tell_sums(self) -> None:
        numbers = [number for number, each in enumerate(self.job.traced) if each.since_ns]
        sums = [self.calls.sums[number] for number in numbers]
        self.outbox.put(
            packed(
                Sums(
                    sum(each.entries for each in sums),
                    sum(each.unwound for each in sums),
                    sum(each.total_ns for each in sums) / 1e9,
                    min((self._from(number) for number in numbers), default=0.0),
                    self._unseen(numbers),
                    tuple(self._listed(number) for number in self._by_importance(numbers)[:MOST_LISTED]),
                )
            )
        )

    def _by_importance(self, numbers: Sequence[int]) -> list[int]:
        sums = self.calls.sums
        return sorted(numbers, key=lambda number: (-sums[number].total_ns, -sums[number].entries, number))

    def _listed(self, number: int) -> Listed:
        sums, traced = self.calls.sums[number], self.job.traced[number]
        return Listed(
            traced.function.name[:MOST_NAME],
            sums.entries,
            sums.unwound,
            sums.total_ns / 1e9,
            bool(traced.until_ns),
            self.job.covered_seconds(number),
        )

    def _from(self, number: int) -> float:
        return (self.job.traced[number].since_ns + self.epoch) / 1e9

    def _unseen(self, numbers: Sequence[int]) -> float | None:
        """Of the function of which most is unseen."""
        if not all(self.job.traced[number].is_unseen_known for number in numbers):
            return None
        return max((self.job.traced[number].unseen_ns for number in numbers), default=0) / 1e9

    def _tell_kept(self) -> None:
        ended = time.time()
        told = {
            "Begun": self._began,
            "Ended": ended,
            "Notes": self._notes,
            "Functions": [self._kept(number) for number in range(len(self.job.traced))],
            "Tree": [
                [node.parent, node.function, node.calls, node.unwound, node.total_ns / 1e9]
                for node in self.calls.tree.nodes
            ],
            "Folded": self.calls.tree.folded,
        }
        content = traced_calls.encode(told, self._last.all())
        for at in range(0, len(content), MOST - 1):
            self.outbox.put(PART + content[at : at + MOST - 1])
        self.outbox.put(KEEP + SPAN.pack(self._began, ended))

    def _kept(self, number: int) -> dict[str, Any]:
        traced = self.job.traced[number]
        return {
            **self.summary(number),
            "From": self._from(number) if traced.since_ns else 0.0,
            "Processes": traced.processes,
            "UnseenSeconds": traced.unseen_ns / 1e9 if traced.is_unseen_known else None,
            "Times": self.calls.sums[number].times.counts(),
        }
