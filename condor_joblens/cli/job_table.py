"""Jobs of an access point as lines of a table: what `joblens q` and `joblens history` have in common."""

from __future__ import annotations

import contextlib
import getpass
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from condor_joblens.analysis.job_summary import JobSummary
from condor_joblens.cli import accesspoint, io_sections, job_summaries, units
from condor_joblens.cli.runs import Run
from condor_joblens.cli.status import against
from condor_joblens.common.errors import JobLensError, UsageError, printable

ATTRIBUTES = (*job_summaries.ATTRIBUTES, "JobCurrentStartDate", "CompletionDate", "EnteredCurrentStatus")

STATES = {1: "idle", 2: "running", 3: "removed", 4: "ended", 5: "held", 6: "output", 7: "suspended"}
"""JobStatus, in a word. `output`: the job is over and its files are on their way."""

_RUNS = ("running", "output", "suspended")

_MOST_WAITS = 3


@dataclass(frozen=True)
class JobLine:
    """A job as one line shows it. None, or empty: not known."""

    job: str
    owner: str
    state: str  # of STATES
    level: str
    wall_seconds: float | None  # of this run while it goes on, else of the last one
    cpu_efficiency: float | None  # cores on average over those asked for
    memory_bytes: float | None  # now while the job runs, else the peak
    request_memory_bytes: float | None
    waits: Mapping[str, float]  # shares of its threads' time, the greatest first; of jobs at level io
    wait: str  # the greatest of them, for a narrow column
    program: str
    reason: str  # why it is held, was removed, or did not end well
    first_failure: str  # what failed in a job that ended well
    ended: float | None  # epoch seconds

    @property
    def memory(self) -> str:
        """`1.4/2.0 GiB`."""
        if self.memory_bytes is None:
            return "-"
        if not self.request_memory_bytes:
            return units.memory(self.memory_bytes)
        return against(self.memory_bytes, self.request_memory_bytes, "/")

    @property
    def efficiency(self) -> str:
        """`95%`."""
        return "-" if self.cpu_efficiency is None else f"{100 * self.cpu_efficiency:.0f}%"

    @property
    def wall(self) -> str:
        """`3:12:05`."""
        return "-" if self.wall_seconds is None else units.clock(self.wall_seconds)

    def record(self) -> dict[str, Any]:
        """As JSON: times in seconds, sizes in bytes; what is not known is not there."""
        found = {
            "JobId": self.job, "Owner": self.owner, "State": self.state, "Level": self.level,
            "WallSeconds": self.wall_seconds, "CpuEfficiency": self.cpu_efficiency,
            "MemoryBytes": self.memory_bytes, "RequestMemoryBytes": self.request_memory_bytes,
            "Waits": dict(self.waits), "Program": self.program, "Reason": self.reason,
            "FirstFailure": self.first_failure, "Ended": self.ended,
        }  # fmt: skip
        return {name: value for name, value in found.items() if value not in (None, "", {})}


def job_line(ad: Mapping[str, Any], now: float) -> JobLine:
    """The line of a job ad, looked at at `now` (epoch seconds)."""
    run = accesspoint.from_ad(ad) if isinstance(ad.get("JobLensUsage"), dict) else None
    summary = job_summaries.summary(ad)
    status = ad.get("JobStatus")
    state = STATES.get(status, "?") if isinstance(status, int) else "?"
    wall = _wall(ad, summary, state, now)
    shares = io_sections.shares(run) if run is not None else {}
    total = sum(shares.values())
    requested = summary.requested.get("memory")
    return JobLine(
        job=summary.job, owner=summary.owner, state=state, level=run.fact("level") if run else "",
        wall_seconds=wall, cpu_efficiency=_efficiency(summary, wall),
        memory_bytes=_memory(summary, run, state), request_memory_bytes=requested,
        waits={name: seconds / total for name, seconds in list(shares.items())[:_MOST_WAITS]} if total else {},
        wait=io_sections.waiting(run) if run is not None else "-", program=summary.program, reason=summary.cause,
        first_failure=summary.first_failure,
        ended=_number(ad, "CompletionDate") or _number(ad, "EnteredCurrentStatus") if state in _OVER else None,
    )  # fmt: skip


_OVER = ("ended", "removed")


def _wall(ad: Mapping[str, Any], summary: JobSummary, state: str, now: float) -> float | None:
    if state in _RUNS:
        began = _number(ad, "JobCurrentStartDate")
        return max(0.0, now - began) if began else None
    return summary.numbers.get("wall_seconds") if state != "idle" else None


def _efficiency(summary: JobSummary, wall: float | None) -> float | None:
    if summary.used_cpus is None or (wall or 0) < job_summaries.SHORT_SECONDS:
        return None
    return summary.used_cpus / max(summary.requested.get("cpus", 1.0), 1.0)


def _memory(summary: JobSummary, run: Run | None, state: str) -> float | None:
    if state == "idle":
        return None
    now = run.memory if run is not None and state in _RUNS else None
    return summary.numbers.get("memory_peak_bytes") if now is None else now


def _number(ad: Mapping[str, Any], name: str) -> float | None:
    value: Any = ad.get(name)
    return float(value) if accesspoint.is_number(value) and value > 0 else None


def selection(job: str | None, owner: str | None, everybody: bool, constraint: str | None) -> tuple[list[str], str]:
    """What names the jobs to condor_q and condor_history, and whose they are in words. Raises JobLensError."""
    if job:
        if not re.fullmatch(r"\d+(\.\d+)?", job):
            raise UsageError(f"{printable(job)} is no cluster and no job: write 5 or 5.66")
        if constraint or owner:
            raise UsageError("a job is named whole: leave it away, or --owner and --constraint")
        return [job], ""
    who = None if everybody else owner or getpass.getuser()
    words = [f"Owner == {json.dumps(who)}"] if who else []
    words += [f"({constraint})"] if constraint else []
    return ["-constraint", " && ".join(words) or "true"], f" of {printable(who, 60)}" if who else ""


def none_found(job: str | None, whose: str, where: str, elsewhere: str) -> str:
    """That there is no job; `where`: queue or history; `elsewhere`: where others are."""
    if not job:
        return f"no job{whose} is in this access point's {where}: {elsewhere}, --all everybody's"
    subject = f"job {job} is not" if "." in job else f"no job of cluster {job} is"
    return f"{subject} in this access point's {where}: {elsewhere}"


@contextlib.contextmanager
def naming(constraint: str | None) -> Iterator[None]:
    """An error within names the expression that was asked with. Raises JobLensError.

    HTCondor's commands say of one that they can't parse that they fail to fetch ads.
    """
    try:
        yield
    except JobLensError as error:
        if not constraint:
            raise
        raise JobLensError(f"{error}; is this a ClassAd expression? {printable(constraint, 200)}") from None


def of_several_owners(lines: Iterable[JobLine]) -> bool:
    """Whether a column for owners tells anything."""
    return len({line.owner for line in lines}) > 1


def counted(lines: Sequence[JobLine], whose: str, order: Sequence[str]) -> str:
    """`5 jobs of alice: 3 running, 1 idle, 1 held`."""
    states = [line.state for line in lines]
    words = ", ".join(f"{states.count(state):,} {state}" for state in order if state in states)
    return f"{units.count(len(lines), 'job')}{whose}: {words}"
