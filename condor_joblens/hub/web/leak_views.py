"""The page of running jobs whose memory leaks."""

from __future__ import annotations

from typing import Any

from condor_joblens.hub.web.health import duration, size
from condor_joblens.hub.web.leaking import LOOKED_AT, WINDOW, leaking
from condor_joblens.hub.web.reads import Reader
from condor_joblens.hub.web.views import View, dressed_job

SHOWN = 100
"""Jobs of a page; its JSON and its CSV have more."""


def _dress(asked: Any, found: dict[str, Any]) -> dict[str, Any]:
    rows = [
        {
            **dressed_job(job, found["time"]),
            "growth_text": f"{100 * job['share']:.0f} %",
            "bytes_text": f"{size(job['bytes_per_hour'])}/h",
            "hours_text": "no limit" if job["hours"] is None else duration(3600 * job["hours"]),
        }
        for job in found["jobs"][:SHOWN]
    ]
    times = {"window": duration(2 * WINDOW), "looked_at": duration(LOOKED_AT)}
    return {"jobs": rows, "count": found["count"], "is_cut": found["is_cut"], **times}


def _table(reader: Reader, asked: Any) -> list[dict[str, Any]]:
    return list(leaking(reader)["jobs"])


LEAKS = View(
    "leaks",
    lambda asked: None,
    lambda reader, asked: leaking(reader),
    _dress,
    table=_table,
    backs_off=True,
    is_of_live=True,
)
