"""Many jobs of an access point, from its queue and its history, as summaries to compare."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from condor_joblens.analysis.job_summary import JobState, JobSummary
from condor_joblens.cli import accesspoint, io_sections
from condor_joblens.cli.runs import Run
from condor_joblens.common.errors import UsageError, printable
from condor_joblens.common.signals import signal_name

ATTRIBUTES = (
    *accesspoint.ATTRIBUTES, "Cmd", "RemoteWallClockTime", "ResidentSetSize_RAW", "ResidentSetSize", "DiskUsage_RAW",
    "DiskUsage", "RequestDisk", "EnteredCurrentStatus",
)  # fmt: skip

TIMEOUT_SECONDS = 300
"""For one answer: a history of a hundred thousand jobs is read from its file."""

SHORT_SECONDS = 10.0
"""A job that ran for less has no efficiency worth the name: starting took most of it."""

CLOCKS = 60.0
"""Seconds from the end of a run to a hold because of it, for clocks that differ."""

_STATES = {1: JobState.IDLE, 3: JobState.REMOVED, 5: JobState.HELD}


def of_cluster(identity: str) -> list[JobSummary]:
    """The jobs that are named: a cluster (5), or one of its jobs (5.66). Raises JobLensError."""
    if not re.fullmatch(r"\d+(\.\d+)?", identity):
        raise UsageError(f"{printable(identity)} is no cluster and no job: write 5 or 5.66")
    return _all(["-allusers", identity], [identity])


def of_owner(owner: str, since: float | None, constraint: str) -> list[JobSummary]:
    """The jobs of a user that are in the queue, or left it after `since` (epoch seconds). Raises JobLensError.

    `constraint` is one more ClassAd expression, or empty.
    """
    words = [f"Owner == {json.dumps(owner)}", *([f"({constraint})"] if constraint else [])]
    selected = ["-constraint", " && ".join(words)]
    # the history is read backwards, and no further than to the first job that left before
    until = ["-since", f"EnteredCurrentStatus < {since:.0f}"] if since is not None else []
    return _all(["-allusers", *selected], [*selected, *until])


def _all(queue: Sequence[str], history: Sequence[str]) -> list[JobSummary]:
    """The queue first: a job that leaves it between the two answers is in the history then, which is right."""
    found = {job.job: job for job in map(summary, _ads("condor_q", queue))}
    found.update({job.job: job for job in map(summary, _ads("condor_history", history))})
    return list(found.values())


def _ads(command: str, selected: Sequence[str]) -> list[dict[str, Any]]:
    return accesspoint.read_ads(command, *selected, attributes=ATTRIBUTES, timeout=TIMEOUT_SECONDS)


def summary(ad: Mapping[str, Any]) -> JobSummary:
    """The summary of a job ad. Whatever has not the type that it should have is left out."""
    run = accesspoint.from_ad(ad) if isinstance(ad.get("JobLensUsage"), dict) else None
    program = printable(posixpath.basename(str(ad.get("Cmd") or "")), 60)
    state = _state(ad)
    requested = {
        name: value * scale
        for name, attribute, scale in (("cpus", "RequestCpus", 1), ("memory", "RequestMemory", 1 << 20),
                                       ("disk", "RequestDisk", 1 << 10))
        if (value := _number(ad, attribute)) is not None
    }  # fmt: skip
    numbers, waits, used_cpus = _numbers(ad, run, requested.get("cpus", 1.0))
    return JobSummary(
        f"{_number(ad, 'ClusterId') or 0:.0f}.{_number(ad, 'ProcId') or 0:.0f}", state, _cause(ad, run, state, program),
        program, printable(str(ad.get("Owner") or "?"), 60), numbers, waits, requested, used_cpus, run is not None,
        run.fact("first_failure") if run is not None and state is JobState.WELL else "",
    )  # fmt: skip


def _state(ad: Mapping[str, Any]) -> JobState:
    status = ad.get("JobStatus")
    if status == 4:
        return JobState.WELL if ad.get("ExitCode") == 0 and ad.get("ExitBySignal") is not True else JobState.FAILED
    return _STATES.get(status, JobState.RUNNING) if isinstance(status, int) else JobState.RUNNING


def _cause(ad: Mapping[str, Any], run: Run | None, state: JobState, program: str) -> str:
    if state in (JobState.HELD, JobState.REMOVED):
        reason = ad.get("HoldReason" if state is JobState.HELD else "RemoveReason")
        words = printable(str(reason or "no reason given"), accesspoint.MOST_REASON)
        return "; ".join(filter(None, (words, _death_before_hold(ad, run) if state is JobState.HELD else "")))
    if state is not JobState.FAILED:
        return ""
    if run is not None and run.fact("death"):
        return run.fact("death")
    if ad.get("ExitBySignal") is True:
        number = ad.get("ExitSignal")
        name = signal_name(number) if isinstance(number, int) else f"signal {printable(str(number), 12)}"
        return f"{name} in {program or 'the job'}"
    return f"{program or 'the job'} exited {printable(str(ad.get('ExitCode')), 12)}"


def _death_before_hold(ad: Mapping[str, Any], run: Run | None) -> str:
    """How the run ended on which the job was held, as by on_exit_hold; empty if that was not its program's doing."""
    last, held = _number(ad, "EnteredCurrentStatus"), None if run is None else run.facts.get("update_time")
    if run is None or last is None or held is None or not run.over or last > held + CLOCKS:
        return ""  # the numbers can be of a run before
    return run.fact("death")


def _numbers(
    ad: Mapping[str, Any], run: Run | None, cpus: float
) -> tuple[dict[str, float], dict[str, float], float | None]:
    """The measures, the waits, and the cores on average."""
    found: dict[str, float | None] = {
        "wall_seconds": _number(ad, "RemoteWallClockTime") or None,
        "memory_peak_bytes": _scaled(ad, ("ResidentSetSize_RAW", "ResidentSetSize")),
        "disk_bytes": _scaled(ad, ("DiskUsage_RAW", "DiskUsage")),
    }
    waits: dict[str, float] = {}
    used = None
    if run is not None:
        if run.over and run.facts.get("start_time"):
            found["wall_seconds"] = run.age(run.facts.get("update_time", 0))
        used = run.number("Cpu.AverageCores")
        # without the memory controller HTCondor knows no peak
        found["memory_peak_bytes"] = max(found["memory_peak_bytes"] or 0, run.memory_peak[0] or 0) or None
        found["read_bytes"], found["written_bytes"] = run.number("Io.CallReadBytes"), run.number("Io.CallWriteBytes")
        network = [run.number(f"Tcp.{name}") for name in ("SentBytes", "ReceivedBytes")]
        found["network_bytes"] = None if None in network else sum(size or 0 for size in network)
        waits = io_sections.shares(run)
        found["wait_share"] = io_sections.wait_share(run)
        if used is not None and (found["wall_seconds"] or 0) >= SHORT_SECONDS:
            found["cpu_efficiency"] = used / max(cpus, 1.0)
    return {name: value for name, value in found.items() if value is not None}, waits, used


def _scaled(ad: Mapping[str, Any], names: tuple[str, ...]) -> float | None:
    """The first of these numbers in KiB that is there, in bytes."""
    for name in names:
        value = _number(ad, name)
        if value is not None:
            return value * 1024
    return None


def _number(ad: Mapping[str, Any], name: str) -> float | None:
    value: Any = ad.get(name)
    return float(value) if accesspoint.is_number(value) else None
