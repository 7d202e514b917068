"""Jobs that did not end well, put together by their cause."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from condor_joblens.analysis.job_summary import JobState, JobSummary, id_order

_CORE = re.compile(r" \(core dumped\)")
_BEFORE = re.compile(r", [\d.]+ (?:s|min|h) before$")
_MEMORY = re.compile(r"^(out of memory: .+?) held .*$")
_SLOT = re.compile(r"\bslot[\w.]*@[\w.-]+")
_ADDRESS = re.compile(r"<?\b(?:\d{1,3}\.){3}\d{1,3}\b(?::\d+)?(?:\?[^>\s]*)?>?")
_TIME = re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?(?:\.\d+)?Z?")
_PID = re.compile(r"\bpid \d+")
_DIRECTORY = re.compile(r"\bdir_\d+\b")


@dataclass(frozen=True)
class Cause:
    """Jobs that share a state and a cause."""

    state: JobState
    words: str
    jobs: tuple[str, ...]  # in the order of their ids
    example: str  # what was said of the first of them, whole


def causes(jobs: Iterable[JobSummary]) -> list[Cause]:
    """The causes, that of most jobs first. Jobs that ended well, run or wait have none."""
    found: dict[tuple[JobState, str], list[JobSummary]] = defaultdict(list)
    for job in jobs:
        if job.state in (JobState.FAILED, JobState.HELD, JobState.REMOVED):
            found[job.state, general(job.cause)].append(job)
    made = [
        Cause(state, words, tuple(job.job for job in ordered), ordered[0].cause)
        for (state, words), members in found.items()
        for ordered in [sorted(members, key=lambda job: id_order(job.job))]
    ]
    return sorted(made, key=lambda cause: (-len(cause.jobs), id_order(cause.jobs[0])))


def general(cause: str) -> str:
    """What two jobs of one cause share: without the slot, the address, the time, sizes and process numbers.

    >>> general("out of memory: reco held 3.9 GiB of 4 GiB")
    'out of memory: reco'
    """
    words = _MEMORY.sub(r"\1", cause)
    for pattern, instead in (
        (_CORE, ""), (_BEFORE, ""), (_SLOT, "a slot"), (_ADDRESS, "an address"), (_TIME, "a time"),
        (_PID, "pid N"), (_DIRECTORY, "dir_N"),
    ):  # fmt: skip
        words = pattern.sub(instead, words)
    return words or "no reason is known"
