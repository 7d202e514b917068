"""Addresses of pages: a number leads to the jobs behind it, by exact parameters."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode


def job_url(run: str) -> str:
    """Of a run's page."""
    return f"/job/{quote(run, safe='')}"


def queued_url(job: str) -> str:
    """Of a job's page by its GlobalJobId, whether it has run or not."""
    return f"/queued/{quote(job, safe='')}"


def node_url(name: str) -> str:
    """Of a node's page."""
    return f"/node/{quote(name, safe='')}"


def server_url(name: str) -> str:
    """Of a file server's page; of FUSE its name is a mount point, with slashes."""
    return f"/servers/{quote(name, safe='')}"


def jobs_url(state: str = "running", **parameters: Any) -> str:
    """Of the page of jobs: a state, parameters of `filters`, `mine` and `sort`. Those that say nothing are left out."""
    given = {name: _text(value) for name, value in parameters.items() if value not in (None, "")}
    return "/jobs?" + urlencode({"state": state, **given})


def cluster_of(global_job_id: str) -> str:
    """ap1#12.7#1700000000 -> ap1#12."""
    schedd, _, rest = global_job_id.partition("#")
    return f"{schedd}#{rest.partition('.')[0]}"


def _text(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
