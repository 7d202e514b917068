"""The disposable process of one trace: it attaches the probes, puts calls together, and tells them.

If it ends, for whatever reason, its probes are gone. A process of the job that hangs delays nobody else. It has the
rights to load and attach programs, and reads nothing that the job has made. Files are opened by a child that is the
job's owner (profiling/program_files.py). Processes without any right read them (file_reader.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Sequence
from typing import Any

from condor_joblens.common.errors import JobLensError
from condor_joblens.control.child_output import FAILED, MOST, WHOLE
from condor_joblens.model import trace_spec as specs
from condor_joblens.model.trace_spec import Spec, shown
from condor_joblens.tracing.calls import Call, Calls, End, Hit, Kind
from condor_joblens.tracing.job_probes import LOOK_SECONDS, JobProbes
from condor_joblens.tracing.lines import Lines
from condor_joblens.tracing.opener import Opener
from condor_joblens.tracing.outbox import Outbox
from condor_joblens.tracing.probes import CALLS, COMMANDS, MOST_FUNCTIONS, THROWS, Probes, Rings
from condor_joblens.tracing.throws import Place, Throw, Throws

MOST_SECONDS = 3600
TAKE_SECONDS = 0.05
"""How often the ring of hits is looked into."""

GRACE_SECONDS = 30.0
"""After the time that was asked for, this process is ended."""


class Trace:
    """One trace, from its beginning to its end."""

    def __init__(self, outbox: Outbox, spec_texts: Sequence[str], probes: Probes, cgroup: int, opener: Opener) -> None:
        """Raises SpecError."""
        self.outbox, self.probes = outbox, probes
        self.job = JobProbes(spec_texts, probes, cgroup, opener, self.notice)
        self.calls, self._throws = Calls(MOST_FUNCTIONS), Throws(opener.ask)
        self.lines = Lines()
        self._thrown_by = [0] * MOST_FUNCTIONS
        self.epoch = time.time_ns() - time.monotonic_ns()

    @property
    def _is_of_throws(self) -> bool:
        return self.job.specs[0][1].is_of_throws

    def run(self, seconds: float) -> None:
        """Traces for so long, or until nobody takes what is told. Raises JobLensError if there is nothing to trace.

        The time begins when the probes are there: on a full machine that may take seconds.
        """
        self.look()
        if not self.job.traced:
            raise JobLensError(self.job.why_nothing())
        self.notice(self.job.what())
        until = time.monotonic() + seconds
        next_look = time.monotonic() + LOOK_SECONDS
        while (now := time.monotonic()) < until and self.outbox.is_open:
            self.take()
            if now >= next_look:
                if not self.look():
                    break
                next_look = time.monotonic() + LOOK_SECONDS
            if not self.outbox.flush():
                return
            self.outbox.wait([self.probes.fileno()], min(TAKE_SECONDS, max(0.0, until - now)))
        self.end()

    def end(self) -> None:
        """Nothing is probed any more; tells the sums."""
        self.close()
        numbers = range(len(self.job.traced))
        if self._is_of_throws:
            self.outbox.say({"places": [_place(place) for place in self._throws.places]})
            self.outbox.say({"summary": [self._thrown(number) for number in numbers]})
        else:
            self.outbox.say({"summary": [self.summary(number) for number in numbers]})
        self.outbox.put(WHOLE)
        self.outbox.send_all(GRACE_SECONDS / 2)

    def close(self) -> None:
        """Nothing is probed any more, and all that was hit is taken."""
        self.job.close()
        while self.take():
            pass

    def look(self) -> bool:
        """Probes what is new of the job; False if it has no process any more."""
        known = len(self.job.traced)
        is_there = self.job.look()
        for number in range(known, len(self.job.traced)):
            if self.job.traced[number].function.is_entry_alone:
                self.calls.entry_alone.add(number)
        return is_there

    # -- calls ----------------------------------------------------------------------------------------------

    def take(self) -> int:
        """Takes what was hit, and tells the calls that have ended by it; how many hits there were."""
        self.job.detach_what_is_off()
        if self._is_of_throws:
            return self._take_throws()
        hits = self.probes.take()
        ended: list[Call] = []
        for hit in hits:
            self._switch_off_if(hit)
            ended += self.calls.take(hit)
        if not hits:
            self._switch_off_untold()
        self.ended(ended)
        return len(hits)

    def ended(self, calls: Sequence[Call]) -> None:
        """These calls have ended."""
        self.outbox.tell_each("calls", [self.told(call) for call in calls])

    def _take_throws(self) -> int:
        """The same of what is thrown."""
        taken = self.probes.take_throws()
        rows = []
        for hit, thrown in taken:
            self._switch_off_if(hit)
            self._thrown_by[hit.function] += 1
            rows.append(self._told_throw(thrown))
        if not taken:
            self._switch_off_untold()
        self.thrown(rows)
        return len(taken)

    def thrown(self, rows: list[list[Any]]) -> None:
        """This was thrown."""
        self.outbox.tell_each("throws", rows)

    def _switch_off_if(self, hit: Hit) -> None:
        if hit.kind is Kind.OFF:
            self._switch_off(hit.function, hit.time_ns)

    def _switch_off_untold(self) -> None:
        """There was no room to tell it."""
        for number in self.job.detached:
            self._switch_off(number, int(self.probes.functions[number].off_ns))

    def _switch_off(self, number: int, when_ns: int) -> None:
        traced = self.job.traced[number]
        if traced.until_ns:
            return
        traced.until_ns = when_ns
        self.calls.forget(number)
        self.notice(f"{traced.function.name} is called too often: it is not traced any more, so that the job goes on")

    def notice(self, text: str) -> None:
        """Tells people what is to be known."""
        self.outbox.notice(text)

    # -- what is told ---------------------------------------------------------------------------------------

    def told(self, call: Call) -> list[Any]:
        """A call, as it is told."""
        entry, traced = call.entry, self.job.traced[call.entry.function]
        spec = traced.spec
        return [
            (entry.time_ns + self.epoch) / 1e9,
            entry.pid,
            entry.tid,
            traced.function.name,
            _arguments(spec, entry),
            (call.end or End.RETURNED).value,
            None if call.end in (End.UNWOUND, End.NOT_LOOKED_FOR) else (call.ended_ns - entry.time_ns) / 1e9,
            shown(spec.result, call.result, {}, 0) if call.end is End.RETURNED and spec.result is not None else None,
            call.depth,
        ]

    def _told_throw(self, thrown: Throw) -> list[Any]:
        place, text = self._throws.take(thrown)
        where = place.frames[0][0] if place is not None and place.frames else ""
        kind = place.type if place is not None else ""
        number = place.number if place is not None else -1
        return [(thrown.time_ns + self.epoch) / 1e9, thrown.pid, thrown.tid, kind, text, where, number]

    def _thrown(self, number: int) -> dict[str, Any]:
        """What is known of all throws by the library of one file."""
        return {**self._counted(number), "Throws": self._thrown_by[number], "OtherPlaces": self._throws.others}

    def _counted(self, number: int) -> dict[str, Any]:
        """What is known of the probes of a function."""
        traced, counted = self.job.traced[number], self.probes.functions[number]
        return {
            "Function": traced.function.name,
            "File": traced.file,
            "LostHits": self.probes.lost,
            "NotOurs": int(counted.not_ours),
            "SwitchedOff": bool(counted.off_ns),
            "CoveredSeconds": self.job.covered_seconds(number),
            "NotShown": self.outbox.untold,
        }

    def summary(self, number: int) -> dict[str, Any]:
        """What is known of all calls of a function."""
        sums = self.calls.sums[number]
        return {
            **self._counted(number),
            "Calls": sums.entries,
            "Returned": sums.returned,
            "LeftByJump": sums.left,
            "Unwound": sums.unwound,
            "EndNotSeen": sums.inside,
            "EndUnknown": sums.unknown,
            "BegunBefore": sums.begun_before,
            "TotalSeconds": sums.total_ns / 1e9,
            "LongestSeconds": sums.longest_ns / 1e9,
            "SwitchesStacks": self.calls.switches_stacks,
            "EntriesAlone": number in self.calls.entry_alone,
        }


def main(channel: socket.socket, request: dict[str, Any], given: Sequence[int], last: int = -1) -> None:
    """Answers a request for a trace, which has its SPEC, its seconds, and the user id of the job's owner.

    It is given the job's cgroup, the socket of the child that is its owner, and the flight recorder's maps if that has
    the job. `last` is what all traces share (probes.Rings).
    """
    from condor_joblens.tracing import shell_trace, standing, standing_throws

    cgroup, opener, *maps = given
    with socket.socket(fileno=os.dup(opener)) as asked:
        try:
            texts = [str(each) for each in request["specs"]]
            spec = specs.parse(texts[0])
            of = THROWS if spec.is_of_throws else COMMANDS if spec.is_of_shell else CALLS
            # whoever else has the same bash pays too: the site alone says so
            is_for_all = spec.is_of_shell and bool(request.get("for_all"))
            rings = Rings(maps, **request["recorder"], last=last) if maps else None
            probes = Probes(
                cgroup, int(request["uid"]), of=of, share=float(request["share"]), is_for_all=is_for_all, rings=rings
            )
            outbox, opens = Outbox(channel), Opener(asked)
            if spec.is_of_shell:
                shell_trace.begin(request, outbox, texts, probes, cgroup, opens)
            elif request.get("stands"):
                stands = standing_throws.StandingThrowTrace if spec.is_of_throws else standing.StandingTrace
                standing_trace = stands(outbox, texts, probes, cgroup, opens)
                standing_trace.may_look(request)
                standing_trace.stand()
            else:
                seconds = min(float(request["seconds"]), MOST_SECONDS)
                Trace(outbox, texts, probes, cgroup, opens).run(seconds)
        except (JobLensError, specs.SpecError) as error:
            with contextlib.suppress(OSError):
                channel.send(FAILED + str(error).encode("utf-8", "replace")[: MOST - 1])


def _arguments(spec: Spec, entry: Hit) -> list[str] | None:
    if spec.arguments is None:
        return None
    texts = {at: json.dumps(text.decode("utf-8", "replace"), ensure_ascii=False) for at, text in entry.texts}
    arguments, register = [], 0
    for kind in spec.arguments:
        if kind.kind is specs.Kind.FLOATING:
            arguments.append("(floating-point)")
            continue
        arguments.append(shown(kind, entry.values[register], texts, register))
        register += 1
    return arguments


def _place(place: Place) -> list[Any]:
    return [place.number, place.pid, place.type, place.text, place.count, place.frames, place.is_whole]
