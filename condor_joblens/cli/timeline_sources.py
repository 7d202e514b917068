"""What a job's time line is made of: all that this user may read of it. What can't be had is said, and why."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from typing import Optional

from condor_joblens.cli import timeline_curves, timeline_processes
from condor_joblens.cli.artifacts import fetched, listed
from condor_joblens.cli.runs import Run
from condor_joblens.cli.timeline_processes import Seen
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.profiles import last_events, traced_calls
from condor_joblens.profiles.last_events import Coverage, Event
from condor_joblens.profiles.timeline import CONNECTIONS, FILES, Life, Material
from condor_joblens.profiles.traced_calls import TracedCalls
from condor_joblens.shm.artifact_header import Artifact

NO_EVENTS = (
    "No files, connections, failed calls and signals: at level trace they are recorded, and kept at a death. Of a "
    "running job `joblens last {job}` keeps them{level}."
)
NO_RECORDED = "No {what}: none is among the events that were recorded."
NO_CALLS = 'No calls: +JobLensTrace = "FILE:FUNCTION; python:calls" at level trace has them recorded{level}.'
NO_CURVES = (
    "No curves: root and the group joblens have them on the job's node, for an hour and a point a minute. --series "
    "FILE takes them from a file of the sink `file`."
)
NO_PROCESSES = "No starts and ends of processes: root sees the latest, and --series FILE has them."

_MOST_NOTES = 3


def gathered(folder: str, path: str, job: str, series: Optional[str] = None) -> Material:
    """All that there is. `path`: of joblensd's socket; `series`: of a file of the sink `file`. Raises JobLensError."""
    try:
        kept, why_nothing = listed(path, job), ""
    except JobLensError as error:
        kept, why_nothing = [], str(error)
    run = _run(folder, path, job)
    name = kept[-1].run if kept else str(run.facts.get("run", "")) if run is not None else ""
    material = Material(job, kept[-1].node if kept else "")
    coverages = _take_artifacts(material, path, [each for each in kept if each.run == name])
    _take_others(material, folder, path, run, name, series)
    if not (material.events or material.lives or material.traces or material.curves):
        raise JobLensError(why_nothing or f"nothing is kept of job {printable(job)} that has a time")
    material.remarks += _missing(material, run, coverages)
    return material


def _run(folder: str, path: str, job: str) -> Optional[Run]:
    """What the node knows of the run: joblensd tells its owner, and others may read it. None: nobody can."""
    from condor_joblens.cli import job as runs_of_jobs
    from condor_joblens.cli.watch import watch

    with contextlib.suppress(JobLensError), contextlib.closing(watch(path, job)) as states:
        return next(states, None)
    with contextlib.suppress(JobLensError):
        found = [run for run in runs_of_jobs.known(folder) if runs_of_jobs.names_run(job, run)]
        return found[-1] if found else None
    return None


def _take_artifacts(material: Material, path: str, kept: Iterable[Artifact]) -> list[Coverage]:
    coverages = []
    for each in kept:
        try:
            if each.kind == traced_calls.KIND:
                material.traces.append(traced_calls.decode(fetched(path, material.job, each.name)[1]))
            elif each.kind == last_events.KIND:
                coverage, events = last_events.decode(fetched(path, material.job, each.name)[1])
                latest = max((event.time for event in material.events), default=0.0)
                material.events += [event for event in events if event.time > latest]  # copies have the same ones
                coverages.append(coverage)
        except (JobLensError, ValueError) as error:
            material.remarks.append(f"{each.name} is left out: {printable(str(error), 200)}")
    return coverages


def _take_others(
    material: Material, folder: str, path: str, run: Optional[Run], name: str, series: Optional[str]
) -> None:
    """Raises JobLensError if `series` is no such file."""
    has_processes = False
    if run is not None and not run.over:
        has_processes = _take(material, timeline_processes.living(path, material.job))
        material.looked = time.time()
    if run is not None and run.facts.get("run_number"):
        with contextlib.suppress(JobLensError):
            latest = timeline_processes.latest(os.path.join(folder, "events"), int(run.facts["run_number"]))
            has_processes = _take(material, latest) or has_processes
    if series is not None:
        material.curves, name = timeline_curves.of_file(series, name or material.job)
        has_processes = _take(material, timeline_processes.of_file(series, name)) or has_processes
    elif name:
        material.curves = timeline_curves.of_history(folder, name)
    if not material.curves:
        material.remarks.append(NO_CURVES)
    if not has_processes and not material.events:
        material.remarks.append(NO_PROCESSES)


def _take(material: Material, found: Iterable[Seen]) -> bool:
    """Whether there was any."""
    some = list(found)
    material.lives += [each for each in some if isinstance(each, Life)]
    material.events += [each for each in some if isinstance(each, Event)]
    return bool(some)


def _missing(material: Material, run: Optional[Run], coverages: list[Coverage]) -> list[str]:
    level = f". It is at level {run.fact('level')}" if run is not None and run.fact("level") else ""
    said = [_recorded(each) for each in coverages]
    kinds = {each.what for each in material.events}
    if not coverages:
        said.append(NO_EVENTS.format(job=printable(material.job), level=level))
    else:
        said += [
            NO_RECORDED.format(what=what)
            for what, some in (("files", FILES), ("connections", CONNECTIONS))
            if not kinds & some
        ]
    if not material.traces:
        said.append(NO_CALLS.format(level=level))
    return [*said, *(remark for trace in material.traces for remark in _of_trace(trace))]


def _recorded(coverage: Coverage) -> str:
    since, until = (time.strftime("%H:%M:%S", time.localtime(at)) for at in (coverage.frequent_since, coverage.tagged))
    lost = f" {coverage.lost} events were lost." if coverage.lost else ""
    return f"Opened files, forks and connections were recorded from {since} until {until}.{lost}"


def _of_trace(trace: TracedCalls) -> list[str]:
    said = [f"Calls: {printable(note, 200)}" for note in trace.notes[:_MOST_NOTES]]
    total = sum(each.counts["Calls"] for each in trace.functions)
    if total > len(trace.calls):
        said.append(
            f"Calls: {len(trace.calls):,} of {total:,}, the last and the longest; `joblens trace` has the sums of all."
        )
    return said
