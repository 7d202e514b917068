"""ps: the processes of a job, one JSON object each: those in its cgroup, whoever runs them."""

from __future__ import annotations

import time
from typing import Any

from condor_joblens.common.redact import Redactor
from condor_joblens.owner_commands import job_processes
from condor_joblens.owner_commands.answers import Answers
from condor_joblens.owner_commands.job_processes import Stat

MOST_PROCESSES = 2000
MOST_COMMAND = 4096
"""Bytes that are read of a command line."""

LOOK_SECONDS = 0.5
"""CPU time for taking secrets out of all command lines; arguments of the rest are not shown."""


def main(answers: Answers, request: dict[str, Any], scratch: int, cgroup: int) -> None:
    """Tells of each process, the oldest first."""
    known = [(pid, stat) for pid in job_processes.pids(cgroup) if (stat := job_processes.stat_of(pid)) is not None]
    known.sort(key=lambda each: (each[1].begun, each[0]))
    redactor, now = Redactor(LOOK_SECONDS), time.clock_gettime(time.CLOCK_BOOTTIME)
    for pid, stat in known[:MOST_PROCESSES]:
        answers.record(described(pid, stat, now, redactor))
    if len(known) > MOST_PROCESSES:
        answers.notice(f"{len(known) - MOST_PROCESSES} more processes are not shown")
    if job_processes.has_more(cgroup):
        answers.notice(f"only those in {job_processes.SEEN} are shown")


def described(pid: int, stat: Stat, now: float, redactor: Redactor) -> dict[str, Any]:
    """A process; `now` is in seconds since boot."""
    return {
        "Pid": pid,
        "ParentPid": stat.parent,
        "State": stat.state,
        "Threads": stat.threads,
        "CpuSeconds": round(stat.cpu, 2),
        "MemoryBytes": stat.memory,
        "WallSeconds": round(max(0.0, now - stat.begun), 1),
        "Command": command(pid, redactor),
    }


def command(pid: int, redactor: Redactor) -> str:
    """Its command line without what looks like a secret; its program's name in brackets if it has none."""
    line = _read(pid, "cmdline")
    if line:
        return redactor.line(line[:MOST_COMMAND], len(line) > MOST_COMMAND)
    return f"[{_read(pid, 'comm').decode('utf-8', 'replace').strip()}]"


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read(MOST_COMMAND + 1)
    except OSError:
        return b""
