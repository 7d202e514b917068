"""What a startd holds of the access point of its slot's job: by which key it vouches for people, and who the user is.

All of it has come from the schedd by way of the shadow and the startd. The job's own files say nothing here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from condor_joblens.control.keys import key_in
from condor_joblens.startd.startd_answers import SlotJob

KEY = "JobLensKey"
"""The attribute of a job that its access point sets (docs/admin.md): `ed25519:` and the public key in base64."""

_LINE = re.compile(rb'^(GlobalJobId|RemoteUser|Name|JobLensKey) = "([^"\\\r\n]{1,1024})"$', re.MULTILINE)


@dataclass(frozen=True)
class Held:
    """Empty where the startd holds nothing."""

    global_job_id: str
    user: str  # the job's User: alice@pool
    slot: str  # with its host: what the job's RemoteHost is
    key: bytes  # public, Ed25519


def held(job: SlotJob) -> Held:
    """Of the slot's job."""
    found = {name.decode(): value.decode(errors="replace") for name, value in _LINE.findall(job.ad)}
    return Held(
        found.get("GlobalJobId", ""), found.get("RemoteUser", ""), found.get("Name", ""), key_in(found.get(KEY, ""))
    )
