"""Traces of the commands of bash scripts: for some seconds, or for a job's life. As those of functions, but for what
is told.

Words come from the job. Who is told of them gets them on one line, without secrets (common/redact.py).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from condor_joblens.common import redact
from condor_joblens.control.child_output import MOST
from condor_joblens.model.events import EventKind
from condor_joblens.profiles import traced_commands
from condor_joblens.tracing import for_triggers
from condor_joblens.tracing.child import MOST_SECONDS, Trace
from condor_joblens.tracing.commands import Command, CommandHit, Commands
from condor_joblens.tracing.job_probes import MOST_PROCESSES
from condor_joblens.tracing.opener import Opener
from condor_joblens.tracing.outbox import Outbox
from condor_joblens.tracing.probes import Probes
from condor_joblens.tracing.reading_share import ReadingShare
from condor_joblens.tracing.shell_sums import ShellSums
from condor_joblens.tracing.standing import StandingTrace
from condor_joblens.tracing.standing_messages import KEEP, PART, SPAN, packed_shell
from condor_joblens.tracing.standing_messages import ShellSums as Told

OFF = 4  # enum traced_kind of joblens_trace.h
MOST_SCRIPT = 95
"""Bytes of the name of a script that are told."""

TAKEN_AT_ONCE = 8
"""Rooms full of commands: more are in no ring."""

WHOLE_RING = 2
"""Times that all of a full ring is taken: 16,000 hits, the smallest of which take 104 bytes of it."""

COUNTED_ALONE = "scripts do more commands than may be read at JOBLENS_MAX_CPU: some are counted alone"

MOST_LIVING = MOST_PROCESSES  # of more, not all are looked at


class ShellTrace(Trace):
    """One trace, from its beginning to its end."""

    def __init__(self, outbox: Outbox, spec_texts: Sequence[str], probes: Probes, cgroup: int, opener: Opener) -> None:
        """Raises SpecError."""
        super().__init__(outbox, spec_texts, probes, cgroup, opener)
        self.commands, self.sums = Commands(), ShellSums()
        self.share: ReadingShare | None = None
        """What it may take of the node's CPU; None: nobody has said."""
        self._is_said = False

    def take(self) -> int:
        """Takes what the shells began, and tells the commands that have ended by it, as far as its share goes."""
        began = time.thread_time()
        taken = self._take()
        self.spend(time.thread_time() - began, taken)
        return taken

    def spend(self, seconds: float, commands: int = 0) -> None:
        """So much CPU was used, for so many commands: so many more may be told."""
        if self.share is None:
            return
        self.share.spend(seconds, commands)
        self.probes.may_tell(self.share.room(time.monotonic(), self.probes.may_still_tell > 0))
        if not self._is_said and self.probes.commands_alone:
            self._is_said = True
            self.notice(COUNTED_ALONE)

    def _take(self) -> int:
        self.job.detach_what_is_off()
        taken = 0
        for _ in range(TAKEN_AT_ONCE):
            hits = self.probes.take_commands()
            taken += len(hits)
            ended: list[Command] = []
            for hit in hits:
                if not self._is_off(hit):
                    ended += self.commands.take(hit)
            self._tell(ended)
            self.job.detach_what_is_off()
            if not hits:
                break
        if not taken:
            self._switch_off_untold()
        return taken

    def _is_off(self, hit: CommandHit) -> bool:
        """Whether it is the last one that is told: the shells do too much."""
        if hit.kind != OFF:
            return False
        self._switch_off(hit.function, hit.time_ns)
        return True

    def _switch_off(self, number: int, when_ns: int) -> None:
        traced = self.job.traced[number]
        if traced.until_ns:
            return
        traced.until_ns = when_ns
        self._tell(self.commands.forget(self.commands.pids_of(number)))
        self.notice(
            f"{traced.file} executes too many commands: they are not traced any more, so that the job goes on as fast"
        )

    def look(self) -> bool:
        """Probes new shells of the job; those that are gone have told how before, or never will."""
        is_there = super().look()
        if not self.outbox.is_open:
            return is_there
        gone = [pid for pid in self.commands.all_pids() if pid and pid not in self.job.living]
        if gone and len(self.job.living) < MOST_LIVING:
            for _ in range(WHOLE_RING):  # what others do meanwhile may come for ever
                if not self.take():
                    break
            self._tell(self.commands.forget(gone))
        return is_there

    def close(self) -> None:
        """Nothing is probed any more; what goes on is told as such."""
        super().close()
        self._tell(self.commands.forget(self.commands.all_pids()))

    def _tell(self, commands: Sequence[Command]) -> None:
        if not commands:
            return
        for command in commands:
            self.sums.add(command)
        lines = self.lines.of((each.hit.text, each.is_cut) for each in commands)
        scripts = self.lines.of(_script(each.hit.script) for each in commands)
        self.told_rows([self._row(*each) for each in zip(commands, lines, scripts)])

    def _sums(self) -> dict[str, Any]:
        alone, sums = self.probes.commands_alone, self.sums.told()
        commands = sums["Commands"] + alone
        return {**sums, "Commands": commands, "CountedAlone": alone, "Shells": self.commands.shells}

    def _row(self, command: Command, line: str, script: str) -> list[Any]:
        hit = command.hit
        took = None if command.took_ns is None else command.took_ns / 1e9
        return [
            (hit.time_ns + self.epoch) / 1e9, hit.pid, script, hit.line, line, command.end.value, command.status, took,
            command.depth,
        ]  # fmt: skip

    def told_rows(self, rows: list[list[Any]]) -> None:
        """These commands are told."""
        self.outbox.tell_each("commands", rows)

    def summary(self, number: int) -> dict[str, Any]:
        """What is known of all commands; one bash is told like another."""
        return {**self._counted(number), "ForAll": self.probes.is_for_all, **self._sums()}


class StandingShellTrace(StandingTrace, ShellTrace):
    """One that stands for a job's life."""

    def __init__(self, outbox: Outbox, spec_texts: Sequence[str], probes: Probes, cgroup: int, opener: Opener) -> None:
        """Raises SpecError."""
        self._last_rows: deque[list[Any]] = deque(maxlen=traced_commands.MOST_COMMANDS)
        super().__init__(outbox, spec_texts, probes, cgroup, opener)

    def hear_more(self, said: dict[str, Any]) -> None:
        """joblensd says what it may take from now on, or as of all traces."""
        super().hear_more(said)
        if self.share is not None and "reading" in said:
            self.share.set(float(said["reading"]), time.monotonic())

    def told_rows(self, rows: list[list[Any]]) -> None:
        """The last ones are kept, and those who follow are told."""
        self._followers.tell(rows, "commands")
        if self.for_triggers.wants(EventKind.COMMAND):
            self.for_triggers.tell([for_triggers.of_command(row) for row in rows])
        self._last_rows.extend(rows)

    def _tell_sums(self) -> None:
        begun = [number for number, each in enumerate(self.job.traced) if each.since_ns]
        alone = self.probes.commands_alone
        self.outbox.put(
            packed_shell(
                Told(
                    self.sums.commands + alone,
                    self.sums.failed,
                    alone,
                    min((self._from(number) for number in begun), default=0.0),
                    self._unseen(begun),
                )
            )
        )

    def _tell_kept(self) -> None:
        began, ended = time.thread_time(), time.time()
        told = {
            "Begun": self._began,
            "Ended": ended,
            "Notes": [redact.printable(note) for note in self._notes],
            "Sums": self._sums(),
            "Probed": [self._probed(number) for number in range(len(self.job.traced))],
            "Lines": self._told_lines(),
            "Folded": self.sums.folded,
        }
        content = traced_commands.encode(told, self._last_rows)
        for at in range(0, len(content), MOST - 1):
            self.outbox.put(PART + content[at : at + MOST - 1])
        self.outbox.put(KEEP + SPAN.pack(self._began, ended))
        self.spend(time.thread_time() - began)

    def _told_lines(self) -> list[list[Any]]:
        """The most time first."""
        lines = sorted(self.sums.lines.items(), key=lambda each: (-each[1].total_ns, -each[1].runs))
        shown = self.lines.of(key[2:] for key, _ in lines)
        scripts = self.lines.of(_script(key[0]) for key, _ in lines)
        return [
            [script, key[1], text, line.runs, line.failed, line.total_ns / 1e9, line.longest_ns / 1e9]
            for (key, line), text, script in zip(lines, shown, scripts)
        ]

    def _probed(self, number: int) -> dict[str, Any]:
        traced, counted = self.job.traced[number], self._counted(number)
        return {
            "File": counted["File"],
            "From": self._from(number) if traced.since_ns else 0.0,
            "Processes": traced.processes,
            "UnseenSeconds": traced.unseen_ns / 1e9 if traced.is_unseen_known else None,
            "ForAll": self.probes.is_for_all,
            **{name: counted[name] for name in ("LostHits", "NotOurs", "SwitchedOff", "CoveredSeconds")},
        }


def begin(
    request: Mapping[str, Any], outbox: Outbox, spec_texts: Sequence[str], probes: Probes, cgroup: int, opener: Opener
) -> None:
    """Traces until it is over. The request has how many cores it may take to read commands, and to look for shells."""
    kind = StandingShellTrace if request.get("stands") else ShellTrace
    trace = kind(outbox, spec_texts, probes, cgroup, opener)
    if "reading" in request:
        trace.share = ReadingShare(float(request["reading"]), time.monotonic(), float(request.get("saved", 1.0)))
        trace.spend(0.0)
    if isinstance(trace, StandingShellTrace):
        trace.may_look(request)
        trace.stand()
    else:
        trace.run(min(float(request["seconds"]), MOST_SECONDS))


def _script(name: bytes) -> tuple[bytes, bool]:
    """And whether it may go on."""
    return name, len(name) >= MOST_SCRIPT
