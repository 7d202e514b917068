"""`--cluster 12`: one command to all running jobs of a cluster, told as each node answers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, TypeVar

from condor_joblens.cli import accesspoint
from condor_joblens.cli.units import count
from condor_joblens.common.errors import JobLensError

AT_A_TIME = 3
"""Commands under way: an access point carries four of a user (relay/local.py)."""

IN_A_ROW, PAUSE = 20, 1.1
"""After so many jobs one is asked for a second, in seconds: no more of a user are vouched for (control/audit.py)."""

MOST_JOBS = 10_000

MOST_TOLD = 101
"""The exit code is the number of jobs that failed, and this if they are more than a hundred: as of parallel(1)."""

_RUNNING = 2

Answer = TypeVar("Answer")


def run(
    cluster: int,
    ask: Callable[[str], Answer],
    shown: Callable[[str, Answer], str],
    fields: Callable[[Answer], Mapping[str, Any]] | None,
) -> int:
    """Prints what comes of `ask` for each job, as it comes: as lines, or with `fields` as JSON, a line a job.

    The exit code is how many failed, MOST_TOLD at most. Raises JobLensError if no job runs.
    """
    jobs = running(cluster)
    if not jobs:
        raise JobLensError(f"no job of cluster {cluster} runs")
    failed = 0
    for job, answer in answers(jobs, ask):
        if isinstance(answer, JobLensError):
            failed += 1
            line = f"job {job}: {answer}" if fields is None else json.dumps({"Job": job, "Error": str(answer)})
        else:
            line = shown(job, answer) if fields is None else json.dumps({"Job": job, **fields(answer)})
        print(line, flush=True)
    if fields is None:
        print(f"{count(len(jobs) - failed, 'job')} of {len(jobs)} answered")
    return min(failed, MOST_TOLD)


def running(cluster: int) -> list[str]:
    """The jobs of a cluster that run, by number, up to MOST_JOBS. Raises JobLensError."""
    which = f"ClusterId == {cluster} && JobStatus == {_RUNNING}"
    found = accesspoint.read_ads("condor_q", "-constraint", which, attributes=("ClusterId", "ProcId"))
    processes = sorted(ad["ProcId"] for ad in found if ad.get("ClusterId") == cluster and _is_number(ad.get("ProcId")))
    return [f"{cluster}.{process}" for process in processes[:MOST_JOBS]]


def answers(jobs: list[str], ask: Callable[[str], Answer]) -> Iterator[tuple[str, Answer | JobLensError]]:
    """Each job with its answer, or why there is none, in the order in which they come."""

    def one(job: str, place: int) -> Answer | JobLensError:
        if place >= IN_A_ROW:
            time.sleep(PAUSE * AT_A_TIME)  # as each of the others that ask does
        try:
            return ask(job)
        except JobLensError as error:
            return error

    with ThreadPoolExecutor(AT_A_TIME) as threads:
        asked = {threads.submit(one, job, place): job for place, job in enumerate(jobs)}
        try:
            for done in as_completed(asked):
                yield asked.pop(done), done.result()
        finally:
            for each in asked:
                each.cancel()


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
