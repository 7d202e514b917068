"""The pages of nodes: all of them, and one."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

from condor_joblens.hub.web.health import duration, size
from condor_joblens.hub.web.nodes import node, nodes
from condor_joblens.hub.web.views import View, dressed_job, job_url

SHOWN = 200
"""Nodes of a page; its JSON has all."""

BAR_WIDTH, BAR_HEIGHT = 30, 120
"""Of an hour, in the units of the picture."""


def node_url(name: str) -> str:
    """Of its page."""
    return f"/node/{quote(name, safe='')}"


def _dressed(row: dict[str, Any], now: float) -> dict[str, Any]:
    return {
        **row,
        "url": node_url(row["node"]),
        "memory_text": size(row["memory"]),
        "asked_memory_text": size(row["asked_memory"]),
        "told_text": "never" if row["told"] is None else f"{duration(now - row['told'])} ago",
    }


def _dress_nodes(asked: Any, found: dict[str, Any]) -> dict[str, Any]:
    rows = [_dressed(row, found["time"]) for row in found["nodes"][:SHOWN]]
    return {"nodes": rows, "count": found["count"], "shown": len(rows)}


def _dress_node(name: str, found: dict[str, Any]) -> dict[str, Any]:
    return {
        "node": _dressed(found["node"], found["time"]),
        "causes": [{**one, "example_url": job_url(one["example_run"])} for one in found["causes"]],
        "jobs": [dressed_job(row, found["time"]) for row in found["jobs"]],
        "bars": _bars(found["hours"]),
        "ended_in_all": sum(hour["ended"] for hour in found["hours"]),
        "failed_in_all": sum(hour["failed"] for hour in found["hours"]),
        "width": BAR_WIDTH * len(found["hours"]),
        "height": BAR_HEIGHT,
        "tells_of_itself": found["tells_of_itself"],
        "url": node_url(name),
    }


def _bars(hours: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Two rectangles an hour: what failed, below what did not."""
    most = max([hour["ended"] for hour in hours], default=0) or 1
    found = []
    for place, hour in enumerate(hours):
        failed = BAR_HEIGHT * hour["failed"] / most
        well = BAR_HEIGHT * (hour["ended"] - hour["failed"]) / most
        begin = time.strftime("%H:%M", time.gmtime(hour["begin"]))
        found.append(
            {
                **{"x": place * BAR_WIDTH + 2, "width": BAR_WIDTH - 4},
                **{"failed_y": f"{BAR_HEIGHT - failed:.1f}", "failed_height": f"{failed:.1f}"},
                **{"well_y": f"{BAR_HEIGHT - failed - well:.1f}", "well_height": f"{well:.1f}"},
                "text": f"from {begin} UTC: {hour['ended']} ended, {hour['failed']} of them failed",
            }
        )
    return found


NODES = View("nodes", lambda asked: None, lambda reader, asked: nodes(reader), _dress_nodes)
NODE = View("node", lambda asked, name: name, node, _dress_node)
