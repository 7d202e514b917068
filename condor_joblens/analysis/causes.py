"""Jobs that did not end well, put together by their cause."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from condor_joblens.analysis.job_summary import JobState, JobSummary, id_order

_CORE = re.compile(r" \(core dumped\)")
_BEFORE = re.compile(r", [\d.]+ (?:s|min|h) before(?: the end)?$")
_MEMORY = re.compile(r"^(out of memory: .+?) held .*$")
_SLOT = re.compile(r"\bslot[\w.]*@[\w.-]*\w")
_ADDRESS = re.compile(r"<?\b(?:\d{1,3}\.){3}\d{1,3}\b(?::\d+)?(?:\?[^>\s]*)?>?")
_TIME = re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?(?:\.\d+)?Z?")
_PID = re.compile(r"\bpid \d+")
_DIRECTORY = re.compile(r"\bdir_\d+\b")
_PATH = re.compile(r"/\S*")
_NUMBER = re.compile(r"\b(?=[0-9A-Fa-f]*\d)[0-9A-Fa-f]{8,}\b|\d+")
"""Of a path: a number, or what is written like a hash."""

_NO_REASON = "no reason is known"


@dataclass(frozen=True)
class Cause:
    """Jobs that share a state and a cause."""

    state: JobState
    words: str
    jobs: tuple[str, ...]  # in the order of their ids
    example: str  # what was said of the first of them, whole


def causes(jobs: Iterable[JobSummary]) -> list[Cause]:
    """The causes, that of most jobs first. Jobs that ended well, run or wait have none."""
    states = (JobState.FAILED, JobState.HELD, JobState.REMOVED)
    return _together((job, job.cause) for job in jobs if job.state in states)


def failures_inside(jobs: Iterable[JobSummary]) -> list[Cause]:
    """What failed in jobs that ended well all the same: the first failures in them, that of most jobs first."""
    return _together((job, job.first_failure) for job in jobs if job.state is JobState.WELL and job.first_failure)


def _together(said: Iterable[tuple[JobSummary, str]]) -> list[Cause]:
    found: dict[tuple[JobState, str], list[tuple[str, str]]] = defaultdict(list)
    for job, cause in said:
        found[job.state, general(cause)].append((job.job, cause))
    made = [
        Cause(state, _shared([cause for _, cause in ordered]), tuple(job for job, _ in ordered), ordered[0][1])
        for (state, _), members in found.items()
        for ordered in [sorted(members, key=lambda member: id_order(member[0]))]
    ]
    return sorted(made, key=lambda cause: (-len(cause.jobs), id_order(cause.jobs[0])))


def _shared(alike: list[str]) -> str:
    """The words of causes that are one: with their address and path, if all have the same."""
    same = {_without_amounts(cause) for cause in alike}
    return (same.pop() if len(same) == 1 else general(alike[0])) or _NO_REASON


def general(cause: str) -> str:
    """What two jobs of one cause share: without the slot, address, time, sizes, and numbers of processes and files.

    >>> general("out of memory: reco held 3.9 GiB of 4 GiB")
    'out of memory: reco'
    """
    words = _without_amounts(cause)
    for pattern, instead in (
        (_SLOT, "a slot"), (_ADDRESS, "an address"), (_TIME, "a time"), (_PID, "pid N"), (_DIRECTORY, "dir_N"),
    ):  # fmt: skip
        words = pattern.sub(instead, words)
    return _PATH.sub(lambda path: _NUMBER.sub("N", path[0]), words) or _NO_REASON


def _without_amounts(cause: str) -> str:
    """Without what differs from run to run: how much memory it held, and how long before the end it was."""
    return _BEFORE.sub("", _CORE.sub("", _MEMORY.sub(r"\1", cause)))
