"""`joblens level --cluster 12 io --for 10m`: all running jobs of a cluster, told as each node answers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from condor_joblens.cli import accesspoint
from condor_joblens.cli.units import count
from condor_joblens.common.errors import JobLensError

AT_A_TIME = 3
"""Commands under way: an access point carries four of a user (relay/local.py)."""

IN_A_ROW, PAUSE = 20, 1.1
"""After so many jobs one is asked for a second, in seconds: no more of a user are vouched for (control/audit.py)."""

MOST_JOBS = 10_000

_RUNNING = 2

Ask = Callable[[Mapping[str, str]], dict[str, str]]
"""Asks for one job's level, wherever it runs. Raises JobLensError."""


def run(
    cluster: int, arguments: Mapping[str, str], ask: Ask, sentence: Callable[[dict[str, str]], str], as_json: bool
) -> int:
    """Prints a line a job as it is answered; exit code 1 if one was not. Raises JobLensError if none runs."""
    jobs = running(cluster)
    if not jobs:
        raise JobLensError(f"no job of cluster {cluster} runs")
    failed = 0
    for job, answer in answers(jobs, arguments, ask):
        is_done = not isinstance(answer, JobLensError)
        failed += not is_done
        if as_json:
            print(
                json.dumps({"Job": job, **(answer if isinstance(answer, dict) else {"Error": str(answer)})}), flush=True
            )
        else:
            print(sentence(answer) if isinstance(answer, dict) else f"job {job}: {answer}", flush=True)
    if not as_json:
        print(f"{count(len(jobs) - failed, 'job')} of {len(jobs)} answered")
    return int(failed > 0)


def running(cluster: int) -> list[str]:
    """The jobs of a cluster that run, by number, up to MOST_JOBS. Raises JobLensError."""
    which = f"ClusterId == {cluster} && JobStatus == {_RUNNING}"
    found = accesspoint.read_ads("condor_q", "-constraint", which, attributes=("ClusterId", "ProcId"))
    processes = sorted(ad["ProcId"] for ad in found if ad.get("ClusterId") == cluster and _is_number(ad.get("ProcId")))
    return [f"{cluster}.{process}" for process in processes[:MOST_JOBS]]


def answers(
    jobs: list[str], arguments: Mapping[str, str], ask: Ask
) -> Iterator[tuple[str, dict[str, str] | JobLensError]]:
    """Each job with its answer, or why there is none, in the order in which they come."""

    def one(job: str, place: int) -> dict[str, str] | JobLensError:
        if place >= IN_A_ROW:
            time.sleep(PAUSE * AT_A_TIME)  # as each of the others that ask does
        try:
            return ask({**arguments, "job": job})
        except JobLensError as error:
            return error

    with ThreadPoolExecutor(AT_A_TIME) as threads:
        asked = {threads.submit(one, job, place): job for place, job in enumerate(jobs)}
        try:
            for done in as_completed(asked):
                yield asked[done], done.result()
        finally:
            for each in asked:
                each.cancel()


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
