"""`joblens hang ID`: why a running job of this node stands still: one sentence, then each thread and its wait.

With --all it asks for every job of the node, and puts those together that wait for the same.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Sequence
from typing import Any

from condor_joblens.cli.evidence import ask, kept
from condor_joblens.cli.runs import Run, living, run_dir
from condor_joblens.cli.terminal import Style, style
from condor_joblens.common.errors import JobLensError, UsageError, printable
from condor_joblens.control import SOCKET
from condor_joblens.profiles import evidence_page
from condor_joblens.profiles.evidence import Evidence

MOST_JOBS = 10
_COMMON = {"file lock", "file", "page", "network", "pipe"}
"""Causes whose object can be the same for several jobs."""

_RUNS = "runs"
"""The cause of a job that does not wait."""

_OF_FILES = {"file", "page"}
_MOUNTED = re.compile(r".* \((?P<type>\S+) at (?P<at>/.*?)\)(?: at byte \d+)?")
"""`/cvmfs/x.org/a (fuse at /cvmfs/x.org) at byte 4096`, as profiling/waits.py writes it."""

_CONNECTION = re.compile(
    r"(?P<protocol>tcp|udp) \S+ -> (?P<there>[^\s,]+)(?:, (?!and )[^,]*)?(?P<others>, and \d+ others)?"
)
"""`tcp 10.0.0.1:4242 -> 10.0.0.2:1094, established, and 2 others`, as profiling/sockets.py writes one."""


def run(options: argparse.Namespace) -> int:
    """Asks joblensd, and prints; exit code 0."""
    if bool(options.id) == options.all:
        raise UsageError("say which job: ID, or --all for every job of this node")
    folder = run_dir(options.run_dir)
    if options.all:
        return run_all(folder, options.json)
    path, looks = os.path.join(folder, SOCKET), []
    if options.kept:
        looks = kept(path, options.id)
    else:
        try:
            looks = [(0.0, ask(path, options.id))]
        except JobLensError as error:
            try:
                looks = kept(path, options.id)
            except JobLensError:
                raise error from None
    if options.json:
        print(json.dumps(record(looks), indent=2))
    else:
        print("\n".join([*heading(looks), *page(looks[-1][1], style()), *where_it_runs(looks[-1][1], options.id)]))
    return 0


def record(looks: Sequence[tuple[float, Evidence]]) -> dict[str, Any]:
    """The last look in JSON; if it was kept, with the times of all."""
    times = [began for began, _ in looks if began]
    return {**looks[-1][1].record(), **({"KeptTimes": times} if times else {})}


def heading(looks: Sequence[tuple[float, Evidence]]) -> list[str]:
    """When looks that were kept have been taken; nothing for one of now."""
    began, last = looks[0][0], looks[-1][0]
    return [evidence_page.taken(began, last), ""] if last else []


def where_it_runs(evidence: Evidence, job: str) -> list[str]:
    """What shows the place of threads that run, which have no stack here; nothing if the job waits."""
    if evidence.cause != _RUNS:
        return []
    name = printable(job)
    return [
        "",
        f"where it runs: joblens hot {name}, at level profile",
        f"  joblens level {name} profile --for 10m asks for that",
    ]


def run_all(folder: str, as_json: bool) -> int:
    """The same for all jobs of the node, one after another."""
    found: list[tuple[Run, Evidence]] = []
    refused: list[tuple[Run, str]] = []
    for each in living(folder)[0]:
        try:
            found.append((each, ask(os.path.join(folder, SOCKET), each.fact("run") or each.fact("slot"))))
        except JobLensError as error:
            refused.append((each, str(error)))
    still = {each.fact("run") for each in living(folder)[0]} if refused else set()
    ended = [each for each, _ in refused if each.fact("run") not in still]  # while others were asked
    refused = [(each, why) for each, why in refused if each.fact("run") in still]
    if as_json:
        records = [{"Run": each.fact("run"), **evidence.record()} for each, evidence in found]
        print(json.dumps([*records, *({"Run": each.fact("run"), "Error": why} for each, why in refused)], indent=2))
    else:
        look = style()
        lines = [*page_of_all(found), *(f"{named_job(each)}: {why}" for each, why in refused)]
        if ended:
            lines.append(f"ended meanwhile: {' '.join(map(named_job, ended))}")
        print("\n".join(look.fit(line) for line in lines or ["no job runs on this node"]))
    return 0


def page_of_all(found: Sequence[tuple[Run, Evidence]]) -> list[str]:
    """Jobs that wait for the same in one paragraph, those first that are most."""
    alike: dict[tuple[str, str], list[tuple[Run, Evidence]]] = {}
    for each, evidence in found:
        alike.setdefault((evidence.cause, awaited(evidence)), []).append((each, evidence))
    lines = []
    for (cause, what), jobs in sorted(alike.items(), key=lambda group: -len(group[1])):
        count = "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"
        lines.append(f"{count}: {cause}{f': {what}' if what else ''}")
        if not what and len(jobs) > 1:  # of one word, but each for something of its own
            lines += [f"    {named_job(each)}: {evidence.sentence}" for each, evidence in jobs[:MOST_JOBS]]
            jobs = jobs[MOST_JOBS:]
        elif len(jobs) == 1:
            lines.append(f"    {jobs[0][1].sentence}")
        if not jobs:
            continue
        some = " ".join(named_job(each) for each, _ in jobs[:MOST_JOBS])
        lines.append(f"    {some}{' ..' if len(jobs) > MOST_JOBS else ''}")
    return lines


def awaited(evidence: Evidence) -> str:
    """What the job waits for, without what is this job's alone; empty if no thread alone tells.

    Of an open file that is its file system, of a connection its other end.
    """
    thread = next((each for each in evidence.threads if each.tid == evidence.tid), None)
    if thread is None or evidence.cause not in _COMMON:
        return ""
    if evidence.cause in _OF_FILES and (mounted := _MOUNTED.fullmatch(thread.object)):
        return f"{mounted['at']} ({mounted['type']})"
    if connection := _CONNECTION.fullmatch(thread.object):
        return f"{connection['protocol']} to {connection['there']}{connection['others'] or ''}"
    return thread.object


def named_job(run: Run) -> str:
    """`12.0`, or its slot if nobody knows the job."""
    return run.fact("job_id") or run.fact("slot")


def page(evidence: Evidence, look: Style) -> list[str]:
    """The lines for a person."""
    sentence, *others = evidence_page.page(evidence)
    return [*(look.paint(line, "bold") for line in look.wrapped(sentence)), *map(look.fit, others)]
