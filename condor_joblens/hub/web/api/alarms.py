"""Alarms: what rules have found, and what a program outside of the hub posts for them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.rules.posted import BODY, MOST_BYTES, read
from condor_joblens.hub.rules.settings import OUTSIDE, read_file
from condor_joblens.hub.web.desk import desk
from condor_joblens.hub.web.firing_reads import firings_of
from condor_joblens.hub.web.reads import Reader

__all__ = ["BODY", "MOST_BYTES", "found", "read", "take"]

DAYS = 30


def found(reader: Reader, asked: Mapping[str, Any]) -> dict[str, Any]:
    """As far as the viewer may see them. Raises JobLensError."""
    since = reader.now - 86400 * DAYS if asked["since"] is None else asked["since"]
    rows = firings_of(reader, since)
    return {"alarms": rows[: asked["limit"]], "is_cut": len(rows) > asked["limit"], "time": reader.now}


def take(who: str, alarm: dict[str, Any]) -> dict[str, Any]:
    """Keeps it; which rules look for what this person posts: of none, nobody is told. Raises JobLensError."""
    posted, file = desk().posted, desk().rules_file
    if posted is None or not file:
        return {"rules": []}
    posted.post(who, alarm, time.time())
    try:
        rules = read_file(Path(file)).rules
    except OSError as error:
        raise JobLensError(f"the file of rules can't be read: {error.strerror}") from None
    looking = [one for one in rules if one.when == OUTSIDE and one.source in ("", who) and one.least <= alarm["count"]]
    return {"rules": [one.name for one in looking]}
