"""Where a running job is, by its ad in the schedd's queue: what a warrant has to name, and whose answer is believed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from condor_joblens.control.keys import key_in
from condor_joblens.control.verbs import Refused

ATTRIBUTES = (
    "ClusterId", "ProcId", "User", "GlobalJobId", "NumShadowStarts", "NumJobStarts", "RemoteHost", "JobStatus",
    "JobLensUsage",
)  # fmt: skip

NO_SENSE = "the schedd's answer makes no sense"

RUNNING = 2
_STATES = {
    1: "is idle",
    3: "is being removed",
    4: "is over",
    5: "is held",
    6: "brings its output home",
    7: "is suspended",
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
        raise Refused(f"the job {_STATES.get(state, 'does not run')}: that is for jobs that run")
    job, slot = text(ad, "GlobalJobId"), text(ad, "RemoteHost")
    if not (job and slot):
        raise Refused("the schedd does not say where the job runs")
    run = f"{job}#{_number(ad, 'NumShadowStarts' if 'NumShadowStarts' in ad else 'NumJobStarts')}"
    usage = ad.get("JobLensUsage")
    usage = usage if isinstance(usage, dict) else {}
    node_key = key_in(usage.get("NodeKey"))
    if not node_key:
        raise Refused("the job's node takes no commands from afar, or its first numbers are on their way")
    if usage.get("Run") != run:
        raise Refused("the job has begun anew: ask again when the numbers of its new run have come")
    return Located(text(ad, "User"), run, slot, job, node_key)


def text(ad: Mapping[str, Any], name: str) -> str:
    """Empty if it is none. JSON lets halves of characters through, which are not printable."""
    value = ad.get(name)
    return value if isinstance(value, str) and value.isprintable() else ""


def _number(ad: Mapping[str, Any], name: str) -> int:
    value = ad.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Refused(NO_SENSE)
    return value
