"""`joblens jobs CLUSTER`: what became of many jobs, which of them differ, and what to ask for next time."""

from __future__ import annotations

import argparse
import dataclasses
import getpass
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from condor_joblens.analysis.causes import Cause, causes, failures_inside
from condor_joblens.analysis.differences import typical, wait_differences
from condor_joblens.analysis.job_summary import JobState, JobSummary, Measure, id_order
from condor_joblens.analysis.outliers import Outlier, outliers
from condor_joblens.analysis.requests import Advice, advice
from condor_joblens.cli import job_summaries, units
from condor_joblens.cli.terminal import Style, style, table
from condor_joblens.common.errors import JobLensError, UsageError

MOST_CAUSES = 12
MOST_OUTLIERS = 5
"""Of each measure."""
MOST_NAMED = 4
"""Jobs of a cause."""
MOST_CLUSTERS = 20
DAY = 86400.0


def run(options: argparse.Namespace) -> int:
    """Asks the access point; exit code 0. Raises JobLensError where it knows no such job."""
    if options.cluster and (options.since or options.constraint):
        raise UsageError("a cluster is named whole: leave it away, or --since and --constraint")
    if options.cluster:
        jobs, what = job_summaries.of_cluster(options.cluster), f"job {options.cluster}"
    else:
        owner = options.owner or getpass.getuser()
        since = time.time() - (options.since or DAY)
        jobs, what = job_summaries.of_owner(owner, since, options.constraint or ""), f"job of {owner}'s"
    if not jobs:
        raise JobLensError(f"this access point knows no {what}, in its queue or its history; --since 7d looks further")
    if options.json:
        import json

        print(json.dumps(record(jobs), indent=2))
    else:
        print("\n".join(lines(jobs, style())))
    return 0


def lines(jobs: Sequence[JobSummary], look: Style) -> list[str]:
    """The page: how many ended how, why, which differ, and what to ask for."""
    page = [look.paint(line, "bold") for line in look.wrapped(title(jobs))]
    clusters = list(dict.fromkeys(job.cluster for job in sorted(jobs, key=lambda job: id_order(job.job))))
    if len(clusters) > 1:
        page += ["", *_clusters(jobs, clusters, look)]
    page += _section("Why", _causes(causes(jobs), look), look)
    page += _section("Ended well, though a program in them failed", _causes(failures_inside(jobs), look), look)
    page += _section("Unlike their siblings", list(_outliers(outliers(jobs), jobs, look)), look)
    if len(clusters) == 1:
        page += _section("For the next submission", [line for one in advice(jobs) for line in _advice(one, look)], look)
    unwatched = sum(1 for job in jobs if not job.watched and job.state not in (JobState.IDLE, JobState.REMOVED))
    if unwatched:
        words = (
            f"{units.count(unwatched, 'job')} of these {'has' if unwatched == 1 else 'have'} no numbers of JobLens: "
            "the level was off, the node has no JobLens, the program never started, or the first numbers are on their "
            "way"
        )
        page += ["", *look.wrapped(words, "! ", "  ")]
    return page


def title(jobs: Sequence[JobSummary]) -> str:
    """`Cluster 5 of alice, reco: 500 jobs: 470 ended well, 30 failed`."""
    counted = Counter(job.state for job in jobs)
    words = ", ".join(f"{counted[state]:,} {state.value}" for state in _ORDER if counted[state])
    clusters, owners, programs = ({getattr(job, name) for job in jobs} for name in ("cluster", "owner", "program"))
    who = f" of {owners.pop()}" if len(owners) == 1 else ""
    program = f", {programs.pop()}" if len(programs) == 1 and "" not in programs else ""
    first = f"Cluster {clusters.pop()}" if len(clusters) == 1 else units.count(len(clusters), "cluster")
    return f"{first}{who}{program}: {units.count(len(jobs), 'job')}: {words}"


_ORDER = (JobState.WELL, JobState.FAILED, JobState.RUNNING, JobState.HELD, JobState.IDLE, JobState.REMOVED)


def _section(name: str, body: list[str], look: Style) -> list[str]:
    return ["", look.paint(name, "bold"), *body] if body else []


def _clusters(jobs: Sequence[JobSummary], clusters: list[str], look: Style) -> list[str]:
    headers = ("CLUSTER", "JOBS", "WELL", "FAILED", "RUNNING", "HELD", "IDLE", "PROGRAM")
    states = (JobState.WELL, JobState.FAILED, JobState.RUNNING, JobState.HELD, JobState.IDLE)
    rows = []
    for cluster in clusters[-MOST_CLUSTERS:]:
        members = [job for job in jobs if job.cluster == cluster]
        counted = Counter(job.state for job in members)
        rows.append((cluster, str(len(members)), *(str(counted[state] or "-") for state in states), members[0].program))
    body = [look.fit(line) for line in table(headers, rows, "CLUSTER PROGRAM", look.width)]
    left = len(clusters) - MOST_CLUSTERS
    return [*body, f"and {units.count(left, 'earlier cluster')}"] if left > 0 else body


def _causes(found: Sequence[Cause], look: Style) -> list[str]:
    left = len(found) - MOST_CAUSES
    more = [f"  and {units.count(left, 'more cause')}: joblens jobs --json lists all"] if left > 0 else []
    return [line for cause in found[:MOST_CAUSES] for line in _cause(cause, look)] + more


def _cause(cause: Cause, look: Style) -> list[str]:
    named = " ".join(cause.jobs[:MOST_NAMED]) + (" .." if len(cause.jobs) > MOST_NAMED else "")
    verb = f"{cause.state.value}: " if cause.state in (JobState.HELD, JobState.REMOVED) else ""
    words = cause.example if len(cause.jobs) == 1 else cause.words
    return look.wrapped(f"{verb}{words}  [{named}]", f"{len(cause.jobs):>6,}  ", " " * 8)


def _outliers(found: Sequence[Outlier], jobs: Sequence[JobSummary], look: Style) -> Iterator[str]:
    ended = [job for job in jobs if job.ended]
    usual = {one: typical([job for job in ended if job.cluster == one]) for one in {one.job.cluster for one in found}}
    for measure in dict.fromkeys(one.measure for one in found):
        worst = [one for one in found if one.measure == measure]
        clusters = {one.job.cluster for one in worst}
        median = f", median {said(measure, worst[0].median)}" if len(clusters) == 1 else ""
        more = f"; the worst of {len(worst)}" if len(worst) > MOST_OUTLIERS else ""
        yield look.fit(f"  {measure.words}{median}{more}")
        for one in worst[:MOST_OUTLIERS]:
            why = _where_time_went(one.job, usual[one.job.cluster])
            yield look.fit(f"    {one.job.job:<10}{said(measure, one.value):<12}{why}".rstrip())


def _where_time_went(job: JobSummary, usual: JobSummary) -> str:
    """`93 % of its time in cvmfs, siblings 20 %`: what it waited for more than usual; empty if that is not known."""
    for wait in wait_differences(job, usual):
        if wait.share > wait.other:
            return f"{units.percent(wait.share, 1)} of its time in {wait.name}, siblings {units.percent(wait.other, 1)}"
    return ""


def said(measure: Measure, value: float) -> str:
    """A value in its unit."""
    if measure.unit == "seconds":
        return units.duration(value)
    if measure.unit == "share":
        return units.percent(value, 1)
    return units.memory(value) if measure.unit == "memory" else units.volume(value)


def _advice(one: Advice, look: Style) -> list[str]:
    if one.name == "request_cpus":
        ask, asked = f"{one.ask:.0f}", f"{one.asked:g}" if one.asked is not None else "not known"
        seen = f"95 % of {one.count} jobs used at most {one.percentile95:.2f} cores on average"
    else:
        ask, asked = f"{one.ask / (1 << 20):.0f} MB", units.memory(one.asked) if one.asked is not None else "not known"
        seen = (
            f"95 % of {one.count} jobs used at most {units.memory(one.percentile95)}, "
            f"the greatest {units.memory(one.greatest)}"
        )
    verdict = f"was {asked}" if one.changes else "as it was"
    above = f"; above it: {' '.join(one.above[:MOST_NAMED])}" if one.above else ""
    return look.wrapped(f"{verdict}; {seen}{above}", f"  {one.name} = {ask:<10}", " " * 8)


def record(jobs: Sequence[JobSummary]) -> dict[str, object]:
    """All of it, for programs. Names as in job ads; sizes are bytes, times seconds."""
    counted = Counter(job.state for job in jobs)
    return {
        "States": {state.value: counted[state] for state in _ORDER if counted[state]},
        "Causes": [_record(cause) for cause in causes(jobs)],
        "FailuresInside": [_record(cause) for cause in failures_inside(jobs)],
        "Outliers": [
            {"JobId": one.job.job, "Measure": one.measure.name, "Value": one.value, "Median": one.median,
             "Siblings": one.count, "Score": one.score}
            for one in outliers(jobs)
        ],
        "Requests": [{**dataclasses.asdict(one), "changes": one.changes} for one in advice(jobs)],
        "Jobs": [
            {"JobId": job.job, "State": job.state.value, "Cause": job.cause, "Numbers": dict(job.numbers)}
            for job in sorted(jobs, key=lambda job: id_order(job.job))
        ],
    }  # fmt: skip


def _record(cause: Cause) -> dict[str, object]:
    return {"State": cause.state.value, "Cause": cause.words, "Jobs": list(cause.jobs), "Example": cause.example}
