"""The pages of file servers: all of them, and one."""

from __future__ import annotations

import time
from typing import Any

from condor_joblens.hub.web.addresses import job_url, jobs_url, node_url, server_url
from condor_joblens.hub.web.bars import HEIGHT, WIDTH, plain_bars
from condor_joblens.hub.web.health import size
from condor_joblens.hub.web.server_texts import dressed_load, dressed_server, number_text, wait_text
from condor_joblens.hub.web.servers import STEP, server, servers
from condor_joblens.hub.web.views import View

SHOWN = 200
"""Servers of the page of all; its JSON has more."""


def _dress_servers(asked: Any, found: dict[str, Any]) -> dict[str, Any]:
    rows = [dressed_server(row) for row in found["servers"][:SHOWN]]
    return {"servers": rows, "count": len(found["servers"]), "shown": len(rows)}


def _dress_server(name: str, found: dict[str, Any]) -> dict[str, Any]:
    since = found["since"]
    return {
        "name": name,
        "url": server_url(name),
        "now": [dressed_load(row) for row in found["now"]],
        "runs_url": jobs_url(server=name),
        "jobs": [
            {**dressed_load(row), "url": job_url(row["run"]), "node_url": node_url(row["node"])}
            for row in found["jobs"]
        ],
        "users": [{**dressed_load(row), "url": jobs_url(server=name, owner=row["owner"])} for row in found["users"]],
        "ended": found["ended"],
        "failed": found["failed"],
        "ended_url": jobs_url("ended", server=name, since=since),
        "failed_url": jobs_url("failed", server=name, since=since),
        "causes": [
            {
                **one,
                "example_url": job_url(one["example_run"]),
                "url": jobs_url("failed", server=name, cause=one["cause"], since=since),
            }
            for one in found["causes"]
        ],
        "charts": _charts(found["steps"]),
        "width": WIDTH * len(found["steps"]),
        "height": HEIGHT,
    }


def _charts(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Requests, bytes and the wait for each, over the day; with the greatest of each, which is as high as a chart."""
    begins = [time.strftime("%H:%M UTC", time.gmtime(step["begin"])) for step in steps]
    found = []
    for title, name, text in (
        ("Requests a second", "requests_per_second", number_text),
        ("Bytes a second", "bytes_per_second", size),
        ("Wait for each", "wait_seconds", wait_text),
    ):
        values = [step[name] or 0.0 for step in steps]
        said = [f"{STEP // 60} min from {begin}: {text(step[name])}" for begin, step in zip(begins, steps)]
        found.append({"title": title, "most": text(max(values)), "bars": plain_bars(values, said)})
    return found


SERVERS = View(
    "servers",
    lambda asked: None,
    lambda reader, asked: servers(reader),
    _dress_servers,
    table=lambda reader, asked: servers(reader)["servers"],
    backs_off=True,
    is_of_live=True,
)
SERVER = View("server", lambda asked, name: name, server, _dress_server, is_of_live=True)
