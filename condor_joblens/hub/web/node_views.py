"""The pages of nodes: all of them, and one."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from condor_joblens.hub.web.addresses import job_url, jobs_url, node_url
from condor_joblens.hub.web.api.parameters import WrongRequest
from condor_joblens.hub.web.bars import HEIGHT, WIDTH, bars
from condor_joblens.hub.web.health import duration, size
from condor_joblens.hub.web.nodes import MOST_NODES, node, nodes
from condor_joblens.hub.web.reads import Reader
from condor_joblens.hub.web.views import View, dressed_job, page_number

SHOWN = 200
"""Nodes of a page; its JSON has all that fit."""

MOST_WORDS = 100
"""Characters of a name that is searched for."""


def _dressed(row: dict[str, Any], now: float, since: float) -> dict[str, Any]:
    return {
        **row,
        "url": node_url(row["node"]),
        "runs_url": jobs_url(node=row["node"]),
        "ended_url": jobs_url("ended", node=row["node"], since=since),
        "failed_url": jobs_url("failed", node=row["node"], since=since),
        "memory_text": size(row["memory"]),
        "asked_memory_text": size(row["asked_memory"]),
        "pool_memory_text": "" if row["pool_memory"] is None else size(row["pool_memory"]),
        "claimed_memory_text": "" if row["claimed_memory"] is None else size(row["claimed_memory"]),
        "told_text": "never" if row["told"] is None else f"{duration(now - row['told'])} ago",
    }


ONLY = ("failing", "unknown", "suspect", "well", "lost")
"""Which nodes can be asked for: a word for each, or those that lost records."""


@dataclass(frozen=True)
class Nodes:
    """Which nodes."""

    only: str = ""  # a word of ONLY; empty: all
    words: str = ""  # what their names have in them
    page: int = 0

    def address(self, **other: Any) -> str:
        """Of the same, with something else; without what is as it is left out."""
        there = replace(self, **other)
        query = {"only": there.only, "q": there.words, "page": there.page or ""}
        return urlencode({name: value for name, value in query.items() if value})

    def named(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those of all nodes that have the words in their names."""
        words = self.words.lower().split()
        return [row for row in rows if all(word in row["node"].lower() for word in words)]

    def chosen(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those of which `only` is true, too."""
        return [row for row in self.named(rows) if not self.only or _is(row, self.only)]


def _is(row: dict[str, Any], only: str) -> bool:
    return bool(row["lost"]) if only == "lost" else bool(row["health"] == only)


def _asked_nodes(asked: Any) -> Nodes:
    """Raises WrongRequest."""
    only = str(asked.get("only", ""))
    if only and only not in ONLY:
        raise WrongRequest(f"only is one of {', '.join(ONLY)}")
    return Nodes(only, str(asked.get("q", ""))[:MOST_WORDS], page_number(asked.get("page", "")))


def _dress_nodes(asked: Nodes, found: dict[str, Any]) -> dict[str, Any]:
    named = asked.named(found["nodes"])
    chosen = asked.chosen(named)
    first = SHOWN * asked.page
    rows = [_dressed(row, found["time"], found["since"]) for row in chosen[first : first + SHOWN]]
    counts = [(word, sum(_is(row, word) for row in named), asked.address(only=word, page=0)) for word in ONLY]
    return {
        "nodes": rows,
        "count": len(chosen),
        "first": first + 1,
        "last": first + len(rows),
        "before": asked.address(page=asked.page - 1) if asked.page else None,
        "after": asked.address(page=asked.page + 1) if first + SHOWN < len(chosen) else None,
        "asked": asked,
        "here": asked.address(),
        "all": asked.address(page=0),
        "words": counts,
        "every": (len(named), asked.address(only="", page=0)),
        "is_cut": found["is_cut"],
        "most": MOST_NODES,
        "versions": found["versions"],
        "has_pool": any(row["pool_cores"] is not None for row in rows),
    }


def _fitting(reader: Reader, asked: Nodes) -> dict[str, Any]:
    """All that fit, not only those of one page."""
    found = nodes(reader)
    rows = asked.chosen(found["nodes"])
    return {**found, "nodes": rows, "count": len(rows)}


def _dress_node(name: str, found: dict[str, Any]) -> dict[str, Any]:
    return {
        "node": _dressed(found["node"], found["time"], found["since"]),
        "causes": [
            {
                **one,
                "example_url": job_url(one["example_run"]),
                "url": jobs_url("failed", node=name, cause=one["cause"], since=found["hours"][0]["begin"]),
            }
            for one in found["causes"]
        ],
        "jobs": [dressed_job(row, found["time"]) for row in found["jobs"]],
        "bars": _bars(found["hours"], name),
        "ended_in_all": sum(hour["ended"] for hour in found["hours"]),
        "failed_in_all": sum(hour["failed"] for hour in found["hours"]),
        "width": WIDTH * len(found["hours"]),
        "height": HEIGHT,
        "tells_of_itself": found["tells_of_itself"],
        "machine": _dressed_machine(found["machine"] or {}),
        "url": node_url(name),
    }


def _dressed_machine(said: dict[str, Any]) -> list[tuple[str, str]]:
    """What a node tells of itself: what it is called, and how much."""
    found = []
    if "Load" in said:
        found.append(("Load", f"{said['Load']:.1f} on {said.get('Cpus', 0)} CPUs"))
    for name, free, whole in (
        ("Memory free", "MemoryAvailableBytes", "MemoryBytes"),
        ("Disk free for jobs", "ExecuteFreeBytes", "ExecuteBytes"),
    ):
        if free in said and whole in said:
            found.append((name, f"{size(said[free])} of {size(said[whole])}"))
    pressures = [
        f"{word} {said[name]:.0f} %"
        for word, name in (("CPU", "CpuPressure"), ("memory", "MemoryPressure"), ("disk", "IoPressure"))
        if said.get(name, -1) >= 0
    ]
    if pressures:
        found.append(("Pressure", f"{', '.join(pressures)} of 10 s"))
    versions = [f"{said['JobLens']} of JobLens"] if "JobLens" in said else []
    versions += [f"kernel {said['Kernel']}"] if "Kernel" in said else []
    if versions:
        found.append(("Runs", ", ".join(versions)))
    if "UptimeSeconds" in said:
        found.append(("Up for", duration(said["UptimeSeconds"])))
    return found


def _bars(hours: list[dict[str, Any]], node: str) -> list[dict[str, Any]]:
    return bars(
        [(hour["ended"], hour["failed"]) for hour in hours],
        [time.strftime("from %H:%M UTC", time.gmtime(hour["begin"])) for hour in hours],
        [jobs_url("ended", node=node, since=hour["begin"], until=hour["begin"] + 3600) for hour in hours],
    )


NODES = View(
    "nodes",
    _asked_nodes,
    lambda reader, asked: nodes(reader),
    _dress_nodes,
    whole=_fitting,
    table=lambda reader, asked: _fitting(reader, asked)["nodes"],
    of_store=lambda asked: None,
    backs_off=True,
    is_of_live=True,
)
NODE = View("node", lambda asked, name: name, node, _dress_node, is_of_live=True)
