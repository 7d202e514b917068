"""peek: a variable of a job's processes, read in their memory while they go on, one JSON object a process.

A series of its values is read by one child, which takes the files' debug information apart once.
"""

from __future__ import annotations

import time
from typing import Any

from condor_joblens.model import peek_spec
from condor_joblens.model.trace_spec import SpecError
from condor_joblens.owner_commands import job_processes, tail
from condor_joblens.owner_commands.answers import Answers, Failed
from condor_joblens.profiling.peek_look import Look, Programs

MOST_PROCESSES = 64


def main(answers: Answers, request: dict[str, Any], scratch: int, cgroup: int) -> None:
    """Tells it of each process of the job that has the file, or of `pid` alone; if `follow`, again and again.

    Raises Failed.
    """
    try:
        spec = peek_spec.parse(str(request["spec"]))
    except SpecError as error:
        raise Failed(str(error)) from None
    wanted, programs = int(request["pid"]), Programs()
    look = Look(spec, programs)
    pids = _pids(cgroup, wanted)
    if not pids:
        raise Failed(f"process {wanted} is none of the job" if wanted else "the job has no process")
    found = [seen for pid in pids[:MOST_PROCESSES] if (seen := look.of(pid)) is not None]
    if not found:
        raise Failed(look.no_file)
    series = _Series(answers) if request["follow"] else None
    for each in found:
        answers.record(each) if series is None else series.tell(each)
    if len(pids) > MOST_PROCESSES:
        answers.notice(f"of the job's {len(pids)} processes, {MOST_PROCESSES} are looked at")
    if series is not None:
        _follow(answers, series, look, programs, cgroup, request)


def _pids(cgroup: int, wanted: int) -> list[int]:
    return [pid for pid in sorted(job_processes.pids(cgroup)) if wanted in (0, pid)]


class _Series:
    """Values with their times. Why there is none is told of a process when it is new."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._why: dict[int, str] = {}  # by pid

    def tell(self, found: dict[str, Any]) -> None:
        """What was seen of a process just now."""
        pid, why = found["Pid"], found.get("Why", "")
        if not why or self._why.get(pid) != why:
            self._answers.record({"Time": round(time.time(), 3), **found})
        self._why[pid] = why

    def keep(self, pids: list[int]) -> None:
        """Others have ended."""
        self._why = {pid: self._why[pid] for pid in pids if pid in self._why}


def _follow(
    answers: Answers, series: _Series, look: Look, programs: Programs, cgroup: int, request: dict[str, Any]
) -> None:
    """Looks again every so many seconds, until the job or the process that is meant has ended, or time is over."""
    every, wanted = float(request["every"]), int(request["pid"])
    begun, seconds = time.monotonic(), min(float(request["seconds"]), tail.FOLLOWED_SECONDS)
    most = time.process_time() + tail.FOLLOWED_CPU_SECONDS
    due, has_file = begun + every, True
    while due <= begun + seconds:
        if is_over(answers, due, cgroup):
            return
        pids = _pids(cgroup, wanted)
        if not pids:
            answers.notice(f"process {wanted} has ended" if wanted else "the job has ended")
            return
        if programs.begin_again():
            look.forget()
        found = [seen for pid in pids[:MOST_PROCESSES] if (seen := look.of(pid)) is not None]
        for each in found:
            series.tell(each)
        series.keep(pids)
        if has_file and not found:
            answers.notice(look.no_file)
        has_file = bool(found)
        if time.process_time() > most:
            answers.notice(f"a variable is followed for {tail.FOLLOWED_CPU_SECONDS:.0f} s of CPU time: ask again")
            return
        due = max(due + every, time.monotonic())
    is_over(answers, begun + seconds, cgroup)


def is_over(answers: Answers, due: float, cgroup: int) -> bool:
    """Waits until then, by time.monotonic(). Whether nobody listens any more, or the job has ended, which is told."""
    while (left := due - time.monotonic()) > 0:
        if answers.is_left(min(left, 1.0)):
            return True
        if job_processes.is_empty(cgroup):
            answers.notice("the job has ended")
            return True
    return False
