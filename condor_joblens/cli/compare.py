"""`joblens compare 5.66 5.67` and `joblens compare 5.66 --siblings`: where a job differs, in words."""

from __future__ import annotations

import argparse

from condor_joblens.analysis.differences import Difference, WaitDifference, differences, typical, wait_differences
from condor_joblens.analysis.job_summary import JobState, JobSummary
from condor_joblens.cli import job_summaries, units
from condor_joblens.cli.jobs import said
from condor_joblens.cli.terminal import style
from condor_joblens.common.errors import JobLensError, UsageError, printable


def run(options: argparse.Namespace) -> int:
    """Compares two jobs, or one with the others of its cluster that ended well; exit code 0. Raises JobLensError."""
    if bool(options.other) == options.siblings:
        raise UsageError("name two jobs, or one with --siblings: joblens compare 5.66 5.67")
    job = _one(options.id)
    other = _siblings(job) if options.siblings else _one(options.other)
    if options.json:
        import json

        print(json.dumps(record(job, other), indent=2))
    else:
        look = style()
        print("\n".join(line for words in sentences(job, other) for line in look.wrapped(words, "", "  ")))
    return 0


def _one(identity: str) -> JobSummary:
    found = job_summaries.of_cluster(identity) if "." in identity else []
    if not found:
        raise JobLensError(f"this access point knows no job {printable(identity)}, in its queue or its history")
    return found[0]


def _siblings(job: JobSummary) -> JobSummary:
    others = [
        one
        for one in job_summaries.of_cluster(job.cluster)
        if one.job != job.job and one.state is JobState.WELL and one.watched
    ]
    if not others:
        raise JobLensError(f"no other job of cluster {job.cluster} ended well: there is nothing to compare with")
    return typical(others)


def sentences(job: JobSummary, other: JobSummary) -> list[str]:
    """What differs, a sentence each, the greatest difference first; the first says who is compared."""
    theirs = f"the median of {other.job}" if other.job.endswith("siblings") else other.job
    page = [f"{job.job} ({_became(job)}) beside {theirs} ({_became(other)}):"]
    page += [_number(one) for one in differences(job, other)]
    page += [_wait(one) for one in wait_differences(job, other)]
    if len(page) == 1:
        page.append("Nothing differs by enough to matter.")
    if not (job.waits and other.waits):
        page.append('What they waited for is known of jobs at level io only: +JobLensLevel = "io".')
    return page


def _became(job: JobSummary) -> str:
    return f"{job.state.value}: {job.cause}" if job.cause else job.state.value


def _number(one: Difference) -> str:
    how = "more" if one.value > one.other else "less"
    times = f"{one.factor:.1f} times {how}" if one.factor < 1000 else f"far {how}"
    return f"- {one.measure.words}: {said(one.measure, one.value)} against {said(one.measure, one.other)}, {times}"


def _wait(one: WaitDifference) -> str:
    return f"- {one.name}: {units.percent(one.share, 1)} of its threads' time against {units.percent(one.other, 1)}"


def record(job: JobSummary, other: JobSummary) -> dict[str, object]:
    """The differences, for programs; shares are of 1."""
    return {
        "JobId": job.job,
        "Other": other.job,
        "Differences": [
            {"Measure": one.measure.name, "Value": one.value, "Other": one.other} for one in differences(job, other)
        ],
        "Time": [{"Name": one.name, "Share": one.share, "Other": one.other} for one in wait_differences(job, other)],
    }
