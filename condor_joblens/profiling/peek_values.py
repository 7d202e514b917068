"""The variables that a job asks for by its +JobLensPeek, each period, for as long as the job runs.

Of several processes the one that has lived longest is meant. What was read once stays: a program that has ended says at
which event it was.
"""

from __future__ import annotations

import time
from typing import Any

from condor_joblens.common.redact import Redactor
from condor_joblens.model import peek_spec
from condor_joblens.model.peek_spec import PeekSpec
from condor_joblens.owner_commands import job_processes
from condor_joblens.owner_commands.answers import Answers
from condor_joblens.profiling import peek_messages
from condor_joblens.profiling.peek import MOST_PROCESSES, is_over
from condor_joblens.profiling.peek_look import Look, Programs
from condor_joblens.profiling.peek_messages import Seen
from condor_joblens.profiling.reading_turn import ReadingTurn, shared_page

VERB = "peek values"

SECONDS = 3600.0
"""After which it ends, and joblensd starts another one: what it has gathered of the job's files goes with it."""

CPU_SECONDS = 60.0
"""Of those: some for the files, and what looks may take of SECONDS."""

REDACTED_SECONDS = 0.05
"""CPU time for keeping secrets out of one value."""

_turns = shared_page()
"""Of this process and of all that it forks: their starter's."""


def main(answers: Answers, request: dict[str, Any], scratch: int, cgroup: int) -> None:
    """Tells all of `specs` when one of them has changed, looking each `every` seconds. Raises SpecError.

    `files_share` is the share of a core for reading programs, which it has together with all others who do this.
    `looks_share` is its own share for all other looks: it rests as long as that takes.
    """
    turn = ReadingTurn(_turns)
    programs = Programs(turn)
    looks = [Look(peek_spec.parse(str(spec)), programs) for spec in request["specs"]]
    seen, told, until = [Seen()] * len(looks), b"", time.monotonic() + SECONDS
    most = time.process_time() + CPU_SECONDS
    while True:
        begun = time.process_time()
        pids = job_processes.oldest_first(cgroup)[:MOST_PROCESSES]
        seen = [_now(look, pids, before) for look, before in zip(looks, seen)]
        said = peek_messages.packed(seen)
        if said != told:
            answers.content(said)
            told = said
        if programs.begin_again():
            for look in looks:
                look.forget()
        used = time.process_time() - begun
        rest = 0.0 if turn.give_back(used, float(request["files_share"])) else used / float(request["looks_share"])
        due = time.monotonic() + max(float(request["every"]), rest)
        if due > until or begun + used > most or is_over(answers, due, cgroup):
            return


def _now(look: Look, pids: list[int], before: Seen) -> Seen:
    why = ""
    for pid in pids:
        found = look.of(pid)
        if found is not None and "Value" in found:
            return Seen(value=without_secrets(look.spec, found["Value"]))
        if found is not None and not why:
            why = found["Why"]
    return before if before.value else Seen(why=why or look.no_file)


def without_secrets(spec: PeekSpec, value: str) -> str:
    """The begin of a value as it may be shown: who sees the job's ad is not its owner alone."""
    begin = value[: peek_messages.MOST_VALUE].encode("utf-8", "backslashreplace")
    return Redactor(REDACTED_SECONDS).variable(spec.shown, begin, cut=len(value) > peek_messages.MOST_VALUE)
