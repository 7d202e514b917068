"""What the schedd says of a job, and the system of who asks: whether the door vouches, and for what."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from condor_joblens.control.keys import key_in
from condor_joblens.control.verbs import Refused

ATTRIBUTES = (
    "ClusterId", "ProcId", "User", "GlobalJobId", "NumShadowStarts", "NumJobStarts", "RemoteHost", "JobStatus",
    "JobLensKey", "JobLensUsage",
)  # fmt: skip

SEPARATOR = "= ="
"""The line between what is said of the user, of super users, and of the job."""

RUNNING = 2
_STATES = {
    1: "is idle",
    3: "is being removed",
    4: "is over",
    5: "is held",
    6: "brings its output home",
    7: "is suspended",
}
_NO_SENSE = "the schedd's answer makes no sense"


@dataclass(frozen=True)
class Target:
    """A running job, as a warrant names it."""

    user: str
    asker: str  # the same, or a queue super user
    run: str
    slot: str  # with its host
    job: str  # GlobalJobId
    node_key: bytes


def target(said: bytes, code: int, uid: int, uid_domain: str, own_key: str) -> Target:
    """The job, if the user `uid` is its user or a queue super user. Raises Refused with why not, in words for him.

    `said` is what QueueChild gives, and `own_key` the attribute that this access point puts into every job.
    """
    passwd, supers, listed = ([*said.split(f"{SEPARATOR}\n".encode(), 2), b"", b""])[:3]
    asker = f"{_name(passwd, uid)}@{uid_domain}"
    ad = _ad(listed, code)
    user = _text(ad, "User")
    if user != asker and not (user and asker in _super_users(supers, uid_domain)):
        raise Refused(f"only its user and queue super users may do this, and you are {asker}")
    state = _number(ad, "JobStatus")
    if state != RUNNING:
        raise Refused(f"the job {_STATES.get(state, 'does not run')}: that is for jobs that run")
    if _text(ad, "JobLensKey") != own_key:
        raise Refused("the job was submitted before this access point had its key: its node can't know that key")
    job, slot = _text(ad, "GlobalJobId"), _text(ad, "RemoteHost")
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
    return Target(user, asker, run, slot, job, node_key)


def _name(passwd: bytes, uid: int) -> str:
    words = passwd.decode("utf-8", "replace").strip().split(":")
    if len(words) < 3 or words[2] != str(uid) or not words[0].isprintable() or not words[0]:
        raise Refused(f"user {uid} has no name on this access point")
    return words[0]


def _super_users(listed: bytes, uid_domain: str) -> set[str]:
    """As the schedd takes QUEUE_SUPER_USERS: a name without a domain is of UID_DOMAIN. Groups (%) are nobody here."""
    names = re.split(r"[,\s]+", listed.decode("utf-8", "replace"))
    return {name if "@" in name else f"{name}@{uid_domain}" for name in names if name and not name.startswith("%")}


def _ad(listed: bytes, code: int) -> dict[str, Any]:
    if code != 0:
        raise Refused("the schedd does not answer: try again")
    try:
        ads = json.loads(listed) if listed.strip() else []
    except (ValueError, RecursionError):
        raise Refused(_NO_SENSE) from None
    if not isinstance(ads, list) or not all(isinstance(ad, dict) for ad in ads):
        raise Refused(_NO_SENSE)
    if len(ads) != 1:
        raise Refused("there is no such job in this access point's queue" if not ads else "that is more than one job")
    found: dict[str, Any] = ads[0]
    return found


def _number(ad: dict[str, Any], name: str) -> int:
    value = ad.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Refused(_NO_SENSE)
    return value


def _text(ad: dict[str, Any], name: str) -> str:
    """Empty if it is none. JSON lets halves of characters through, which are not printable."""
    value = ad.get(name)
    return value if isinstance(value, str) and value.isprintable() else ""
