"""What the schedd says of a job, and the system of who asks: whether the door vouches, and for what."""

from __future__ import annotations

import hmac
import json
import re
from dataclasses import dataclass
from typing import Any

from condor_joblens.control import located
from condor_joblens.control.door import BY_PROOF
from condor_joblens.control.located import ENDED, NO_SENSE, Located
from condor_joblens.control.verbs import Refused

PROOF = "JobLensProof"
"""The attribute into which who may edit the job writes the proof of a request (control/door.py)."""

ATTRIBUTES = (*located.ATTRIBUTES, "JobLensKey", PROOF)

SEPARATOR = "= ="
"""The line between what is said of the user, of super users, and of the job."""


@dataclass(frozen=True)
class Target:
    """A running job, and who asks about it."""

    job: Located
    asker: str  # its user, a queue super user, or in words who has proved that he may edit it


def target(said: bytes, code: int, uid: int | None, uid_domain: str, own_key: str, proof: str = "") -> Target:
    """The job, if the user `uid` is its user or a queue super user. Raises Refused with why not, in words for him.

    With the `proof` of his request, it is enough that the job has that: then somebody who may edit it wants this. Who
    asks from afar has no `uid`, and nothing else than that proof.
    `said` is what QueueChild gives, and `own_key` the attribute that this access point puts into every job.
    """
    passwd, supers, listed = ([*said.split(f"{SEPARATOR}\n".encode(), 2), b"", b""])[:3]
    asker = "somebody" if uid is None else f"{_name(passwd, uid)}@{uid_domain}"
    ad = _ad(listed, code)
    user = located.text(ad, "User")
    if not user or uid is None or (user != asker and asker not in _super_users(supers, uid_domain)):
        if user and proof and hmac.compare_digest(located.text(ad, PROOF).encode(), proof.encode()):
            asker = f"{asker}{BY_PROOF}"
        elif proof:
            raise Refused("the job's JobLensProof is not of this request: ask again from the start")
        else:
            raise Refused(f"only its user and queue super users may do this, and you are {asker}")
    found = located.located(ad)
    if located.text(ad, "JobLensKey") != own_key:
        raise Refused("the job was submitted before this access point had its key: its node can't know that key")
    return Target(found, asker)


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
        raise Refused(NO_SENSE) from None
    if not isinstance(ads, list) or not all(isinstance(ad, dict) for ad in ads):
        raise Refused(NO_SENSE)
    if len(ads) != 1:
        raise Refused("that is more than one job" if ads else f"no such job is in this access point's queue; {ENDED}")
    found: dict[str, Any] = ads[0]
    return found
