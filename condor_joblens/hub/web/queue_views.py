"""A job as its access point tells of it: a page also for one that has never run, or runs unwatched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from condor_joblens.hub.web import queue
from condor_joblens.hub.web.addresses import cluster_of, job_url, jobs_url, queued_url
from condor_joblens.hub.web.health import duration
from condor_joblens.hub.web.reads import Reader
from condor_joblens.hub.web.views import View, dressed_life


def _find(reader: Reader, job: str) -> dict[str, Any] | None:
    return queue.job(reader, job)


def _dress(job: str, found: Mapping[str, Any]) -> dict[str, Any]:
    row = found["job"]
    links = {"owner": row.get("Owner"), "group": row.get("AccountingGroup")}
    state = row["State"] if row["State"] in queue.WAITS else "idle"
    return {
        "job": row,
        "since": duration(found["time"] - row["Time"]),
        "is_over": row["State"] in ("ended", "removed"),
        "cluster_url": jobs_url("all", cluster=cluster_of(row["GlobalJobId"])),
        "siblings_url": jobs_url(state, cluster=cluster_of(row["GlobalJobId"])),
        "links": {name: jobs_url(state, **{name: value}) for name, value in links.items()},
        "runs": [{"name": run, "url": job_url(run)} for run in found["runs"]],
        "life": dressed_life(found["life"]),
        "url": queued_url(row["GlobalJobId"]),
    }


QUEUED = View("queued", lambda asked, job: job, _find, _dress)
