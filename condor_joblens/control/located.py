"""Where a running job is, by its ad in the schedd's queue: what a warrant has to name, and whose answer is believed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from condor_joblens.control.keys import key_in
from condor_joblens.control.verbs import Refused

ATTRIBUTES = (
    "ClusterId", "ProcId", "User", "GlobalJobId", "NumShadowStarts", "NumJobStarts", "NumJobReconnects", "RemoteHost",
    "JobStatus", "JobLensUsage",
)  # fmt: skip

NO_SENSE = "the schedd's answer makes no sense"

_DIGITS = 11
"""Of the number of a start, and one more."""

ENDED = (
    "if it has ended, `joblens job` and condor_history tell of it, and on its node `joblens job --before-death` what "
    "it did last"
)
"""What follows that there is no such job in a queue."""

RUNNING = 2
_STATES = {
    1: "is idle: ask again when it runs (condor_q -better-analyze says why it does not)",
    3: "is being removed: `joblens job` tells of it",
    4: "has ended: `joblens job` tells of it",
    5: "is held: ask again when it runs (condor_q -hold says why it does not)",
    6: "has ended and brings its output home: `joblens job` tells of it",
    7: "is suspended: ask again when it goes on",
}


@dataclass(frozen=True)
class Located:
    """A running job, as a warrant names it."""

    user: str  # alice@pool; empty if the schedd does not say
    run: str  # GlobalJobId#start
    slot: str  # with its host
    job: str  # GlobalJobId
    node_key: bytes  # public, Ed25519


def located(ad: Mapping[str, Any]) -> Located:
    """By what condor_q says of the job. Raises Refused with what the job does instead, in words."""
    state = _number(ad, "JobStatus")
    if state != RUNNING:
        raise Refused(f"the job {_STATES.get(state, 'does not run: ask again when it does')}")
    job, slot = text(ad, "GlobalJobId"), text(ad, "RemoteHost")
    if not (job and slot):
        raise Refused("the schedd does not say where the job runs")
    usage = ad.get("JobLensUsage")
    usage = usage if isinstance(usage, dict) else {}
    node_key = key_in(usage.get("NodeKey"))
    if not node_key:
        raise Refused("the job's node takes no commands from afar, or its first numbers are on their way")
    run = text(usage, "Run")
    if not _is_its(ad, job, run):
        raise Refused("the job has begun anew: ask again when the numbers of its new run have come")
    return Located(text(ad, "User"), run, slot, job, node_key)


def _is_its(ad: Mapping[str, Any], job: str, run: str) -> bool:
    """Whether the numbers of this run (GlobalJobId#start) are the ones of the job as it runs now.

    A shadow that has found its job again, as after a restart of the schedd, is one more start, and the run goes on. If
    that makes an earlier run pass for the present one, the node refuses: a warrant is for a run.
    """
    started = _number(ad, "NumShadowStarts" if "NumShadowStarts" in ad else "NumJobStarts")
    again = _number(ad, "NumJobReconnects") if "NumJobReconnects" in ad else 0
    _, _, number = run.rpartition("#")
    if not (number.isascii() and number.isdecimal() and len(number) < _DIGITS):
        return False
    return run == f"{job}#{int(number)}" and started - again <= int(number) <= started


def text(ad: Mapping[str, Any], name: str) -> str:
    """Empty if it is none. JSON lets halves of characters through, which are not printable."""
    value = ad.get(name)
    return value if isinstance(value, str) and value.isprintable() else ""


def _number(ad: Mapping[str, Any], name: str) -> int:
    value = ad.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Refused(NO_SENSE)
    return value
