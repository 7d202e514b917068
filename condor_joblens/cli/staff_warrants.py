"""Warrants that a person of the site's staff signs with his own key: about any job of this access point's queue."""

from __future__ import annotations

import time
from collections.abc import Mapping

from condor_joblens.cli import accesspoint
from condor_joblens.common.errors import JobLensError
from condor_joblens.control import keys, located, warrants
from condor_joblens.control.door import Signed
from condor_joblens.control.verbs import Refused
from condor_joblens.control.warrants import BadWarrant, Warrant

KEY = "JOBLENS_STAFF_KEY"
"""The variable of the environment that names the file of the key. Without it the door vouches."""


def sign(path: str, verb: str, job: str, sealing_key: bytes, arguments: Mapping[str, bytes]) -> Signed:
    """A warrant by the key in the file `path`, as joblens-door would give one. Raises JobLensError."""
    key = keys.known_key(path)
    ads = accesspoint.read_ads("condor_q", "-allusers", job, attributes=located.ATTRIBUTES)
    if len(ads) != 1:
        known = f"condor_q knows {len(ads) or 'no'} jobs {job}: name one of this access point, as 12.0"
        raise JobLensError(known if ads else f"{known}; {located.ENDED}")
    public, now = keys.public_half(key), int(time.time() * 1000)
    try:
        found = located.located(ads[0])
        warrant = Warrant(
            found.user, keys.text_of(public), found.run, found.slot, verb, arguments, sealing_key,
            warrants.new_nonce(), now, now + warrants.MAX_SECONDS * 1000,
        )  # fmt: skip
        packet = warrants.sign(warrant, key, warrants.staff_start(public))
    except (Refused, BadWarrant) as error:
        raise JobLensError(str(error)) from None
    return Signed(packet, found.job, found.slot, found.node_key)
