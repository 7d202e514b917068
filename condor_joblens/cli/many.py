"""`--cluster 12`: one command to all running jobs of a cluster, told as each node answers."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, TypeVar

from condor_joblens.cli import accesspoint, staff_warrants
from condor_joblens.cli.job_table import STATES
from condor_joblens.cli.units import count
from condor_joblens.common.errors import JobLensError, Refusal, printable

AT_A_TIME = 3
"""Commands under way: an access point carries four of a user (relay/local.py)."""

IN_A_ROW, PAUSE = 20, 1.1
"""After so many jobs one is asked for a second, in seconds: no more of a user are vouched for (control/audit.py)."""

MOST_JOBS = 10_000

MOST_TOLD = 101
"""The exit code is the number of jobs that failed, and this if they are more than a hundred: as of parallel(1)."""

MOST_NAMED = 20
"""Jobs that are listed beside one that has failed for the same reason."""

MOST_OWNERS = 3

_RUNNING = 2

Answer = TypeVar("Answer")


def run(
    cluster: int,
    ask: Callable[[str], Answer],
    shown: Callable[[str, str, Answer], str],
    fields: Callable[[Answer], Mapping[str, Any]] | None,
) -> int:
    """Prints what comes of `ask` for each job, as it comes: as lines, or with `fields` as JSON, a line a job.

    `shown` has the job, its slot with the machine's name, and the answer.
    The exit code is how many failed, MOST_TOLD at most. Raises JobLensError if no job runs.
    """
    slots = running(cluster)
    if not slots:
        raise JobLensError(_why_none(cluster))
    failures = _Failures()
    for job, answer in answers(list(slots), ask):
        told: Mapping[str, Any]
        if isinstance(answer, JobLensError):
            failures.add(job, answer, is_told=fields is None)
            told = {"Error": str(answer)}
        elif fields is None:
            print(shown(job, slots[job], answer), flush=True)
        else:
            told = fields(answer)
        if fields is not None:
            print(json.dumps({"JobId": job, **told, "Slot": slots[job]}), flush=True)
    if fields is None:
        failures.tell()
        print(f"{count(len(slots) - failures.number, 'job')} of {len(slots)} answered{failures.summary}")
    return min(failures.number, MOST_TOLD)


class _Failures:
    """Jobs that have not answered, by why."""

    def __init__(self) -> None:
        self._jobs: dict[str, list[str]] = {}
        self._refused = 0
        self.number = 0

    def add(self, job: str, error: JobLensError, is_told: bool) -> None:
        """Tells a reason when it comes for the first time."""
        self.number += 1
        self._refused += isinstance(error, Refusal)
        jobs = self._jobs.setdefault(str(error), [])
        jobs.append(job)
        if is_told and len(jobs) == 1:
            print(f"joblens: job {job}: {error}", file=sys.stderr, flush=True)

    def tell(self) -> None:
        """Which other jobs had the same reasons."""
        for first, *others in self._jobs.values():
            if others:
                named = " ".join(others[:MOST_NAMED]) + (" ..." if len(others) > MOST_NAMED else "")
                print(f"joblens: {count(len(others), 'more job')} as {first}: {named}", file=sys.stderr)

    @property
    def summary(self) -> str:
        """What follows the number of those that have answered."""
        kinds = (self._refused, "refused"), (self.number - self._refused, "failed")
        return "".join(f", {number} {word}" for number, word in kinds if number)


def running(cluster: int) -> dict[str, str]:
    """The jobs of a cluster that run, each with its slot, by number, up to MOST_JOBS. Raises JobLensError."""
    which = f"ClusterId == {cluster} && JobStatus == {_RUNNING}"
    whose = ["-allusers"] if os.environ.get(staff_warrants.KEY) else []
    attributes = ("ClusterId", "ProcId", "RemoteHost")
    ads = accesspoint.read_ads("condor_q", *whose, "-constraint", which, attributes=attributes)
    found = [ad for ad in ads if ad.get("ClusterId") == cluster and _is_number(ad.get("ProcId"))]
    found.sort(key=lambda ad: int(ad["ProcId"]))
    return {f"{cluster}.{ad['ProcId']}": printable(str(ad.get("RemoteHost", "?")), 200) for ad in found[:MOST_JOBS]}


def _why_none(cluster: int) -> str:
    """What condor_q says of a cluster of which the caller has no running job. Raises JobLensError."""
    which = f"ClusterId == {cluster}"
    ads = accesspoint.read_ads("condor_q", "-allusers", "-constraint", which, attributes=("Owner", "JobStatus"))
    if not ads:
        return (
            f"cluster {cluster} is not in this access point's queue: joblens jobs {cluster} and "
            f"condor_history {cluster} tell of jobs that have ended"
        )
    running = [ad for ad in ads if ad.get("JobStatus") == _RUNNING]
    if running:
        return f"the running jobs of cluster {cluster} are not yours: they are {_owners(running)}'s"
    states = Counter(STATES.get(ad.get("JobStatus", 0), "of an unknown state") for ad in ads)
    return f"no job of cluster {cluster} runs: {', '.join(f'{number} {state}' for state, number in states.items())}"


def _owners(ads: Sequence[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(printable(str(ad.get("Owner", "?")), 60) for ad in ads))
    return ", ".join(names[:MOST_OWNERS]) + (" and others" if len(names) > MOST_OWNERS else "")


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
