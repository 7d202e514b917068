"""Nodes: what runs there, what failed there of late and why, and how that was hour by hour.

A node that ends one job after the other at once draws more jobs than all others: a black hole. So a node is judged by
what failed there, beside what failed elsewhere; clusters count, as in `failures`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from condor_joblens.hub.web import pool, states
from condor_joblens.hub.web.ended import CLUSTER, HAS_FAILED, by_cause, cause_columns, with_codes
from condor_joblens.hub.web.failures import FEW_OF, FEWEST, SEVERAL, WINDOW
from condor_joblens.hub.web.health import duration
from condor_joblens.hub.web.reads import Reader
from condor_joblens.hub.web.who_sees import Seen

FORGOTTEN_SECONDS = 86400.0
"""A node that has said nothing for so long is gone."""

MOST_FAIL = 1 - FEW_OF
"""A share of failures that is called most."""

MOST_NODES = 50_000
"""Of an answer: as many as the hub takes of a collector. Of more, the first ones by their names."""

HOURS = 24
MOST_CAUSES = 20
MOST_KINDS = 5000
"""Of failures, before they are put together by cause."""

MOST_SILENT = 100
MOST_RUNS = 20
"""Of a node's page."""

NO_NUMBERS: Mapping[str, Any] = {
    "runs": 0, "owners": 0, "cores": 0.0, "asked_cores": 0, "memory": 0, "asked_memory": 0, "hanging": 0, "ended": 0,
    "failed": 0, "failed_clusters": 0, "lost": 0, "told": None,
    "pool_cores": None, "claimed_cores": None, "pool_memory": None, "claimed_memory": None, "version": "", "system": "",
}  # fmt: skip
"""Those of the pool's collector are None and empty: it does not have the node, or nobody asks it."""
_ORDER = ("failing", "unknown", "suspect", "well")


def nodes(reader: Reader) -> dict[str, Any]:
    """All nodes of which the viewer may know, the worst first."""
    found, is_cut = _numbers(reader)
    ended = sum(one["ended"] for one in found.values())
    failed = sum(one["failed"] for one in found.values())
    rows = [judged(name, one, ended - one["ended"], failed - one["failed"], reader) for name, one in found.items()]
    rows.sort(key=lambda row: (_ORDER.index(row["health"]), -row["failed"], -row["runs"], row["node"]))
    return {
        "nodes": rows,
        "count": len(rows),
        "is_cut": is_cut,
        "versions": pool.versions(reader) if reader.sees_others else [],
        "time": reader.now,
        "since": reader.hour,
    }


def failing_nodes(reader: Reader) -> list[dict[str, Any]]:
    """Those that fail jobs which do well elsewhere, and would draw ever more of them; those that failed most first."""
    rows = [
        _judged_of_ended(row, reader)
        for row in reader.ask(
            f"{_beside_others(reader, f'failed >= {FEWEST}')} ORDER BY failed DESC, node LIMIT {MOST_NODES}"
        )
    ]
    bad = [row for row in rows if row["health"] == "failing"]
    return [{name: row[name] for name in ("node", "ended", "failed", "why")} for row in bad[:MOST_CAUSES]]


def _beside_others(reader: Reader, where: str) -> str:
    """The question what ended and failed at the nodes that fit, each with what did so at all of them."""
    return (
        "SELECT * FROM (SELECT *, sum(ended) OVER () AS all_ended, sum(failed) OVER () AS all_failed "
        f"FROM ({_ended_by_node(reader)})) WHERE {where}"
    )


def _judged_of_ended(row: Mapping[str, Any], reader: Reader, **more: Any) -> dict[str, Any]:
    """A row of `_beside_others`; more: its other numbers."""
    own = {name: row[name] for name in ("ended", "failed", "failed_clusters")}
    one = {**NO_NUMBERS, **more, **own}
    return judged(row["node"], one, row["all_ended"] - row["ended"], row["all_failed"] - row["failed"], reader)


def silent_nodes(reader: Reader) -> list[dict[str, Any]]:
    """Nodes that have told of themselves within a day, and say nothing now; the longest silent first."""
    return reader.ask(
        f"SELECT Node AS node, max(Time) AS time FROM health FINAL WHERE Time > {reader.now - FORGOTTEN_SECONDS} "
        f"GROUP BY Node HAVING time < {reader.now - pool.TELLS_SECONDS} ORDER BY time LIMIT {MOST_SILENT}"
    )


def node(reader: Reader, name: str) -> dict[str, Any] | None:
    """One of them, with its jobs, causes and hours; None if there is none, or he may not know of it."""
    found = _one(reader, name)
    hours = _hours(reader, name)
    if found is None and not any(hour["ended"] for hour in hours):
        return None
    found = found or judged(name, NO_NUMBERS, 0, 0, reader)
    return {
        "node": found,
        "causes": _causes(reader, name),
        "hours": hours,
        "jobs": reader.jobs_of_node(name, MOST_RUNS),
        "tells_of_itself": reader.sees_others,
        "machine": pool.machine_of(reader, name) if reader.sees_others else None,
        "time": reader.now,
        "since": reader.hour,
    }


def _one(reader: Reader, name: str) -> dict[str, Any] | None:
    """As `nodes` has it, without the numbers of all others."""
    found: dict[str, Any] = {}
    for question in _questions(reader, "Node = {node:String}"):
        for row in reader.ask(question, node=name):
            found |= _without_none(row)
    ended = reader.ask(_beside_others(reader, "node = {node:String}"), node=name)
    found.pop("node", None)
    if ended:
        return _judged_of_ended(ended[0], reader, **found)
    return judged(name, {**NO_NUMBERS, **found}, 0, 0, reader) if found else None


def judged(name: str, one: Mapping[str, Any], ended: int, failed: int, reader: Reader) -> dict[str, Any]:
    """With its word and the reason. ended, failed: what the viewer sees of all other nodes, in the same hour."""
    word, why = "well", ""
    share = failed / ended if ended else 0.0
    if one["failed"] >= FEWEST and one["failed_clusters"] >= SEVERAL and one["failed"] > MOST_FAIL * one["ended"]:
        word, why = "failing", f"{one['failed']} of {one['ended']} jobs of {one['failed_clusters']} clusters failed"
        if share >= FEW_OF:
            word, why = "suspect", f"{why}; elsewhere {100 * share:.0f} % did"
        else:
            why += f"; elsewhere {100 * share:.0f} % did" if ended else ""
    elif reader.sees_others and (one["told"] is None or reader.now - one["told"] > pool.TELLS_SECONDS):
        word, why = "unknown", "its exporter has told nothing of itself for a day"
        if one["told"] is not None:
            why = f"no word of it for {duration(reader.now - one['told'])}"
        if one["claimed_cores"]:
            why += f", and {one['claimed_cores']} of its cores are claimed"
    elif one["lost"]:
        word, why = "suspect", f"{one['lost']} records were lost in the last hour, as it declares"
    elif one["hanging"]:
        word, why = "suspect", f"{one['hanging']} of its jobs {'seems' if one['hanging'] == 1 else 'seem'} to hang"
    return {"node": name, **one, "health": word, "why": why}


def _numbers(reader: Reader) -> tuple[dict[str, dict[str, Any]], bool]:
    """Of each node: what runs, what ended and failed in the window, losses, and when it last told of itself.

    And whether there are more nodes: then these are the first ones by name, of all questions the same.
    """
    found: dict[str, dict[str, Any]] = {}
    last = ""
    for question in (*_questions(reader), _ended_by_node(reader)):
        rows = reader.ask(f"{question} ORDER BY node LIMIT {MOST_NODES + 1}")
        if len(rows) > MOST_NODES:
            last = min(filter(None, (last, rows[MOST_NODES - 1]["node"])))
        for row in rows:
            found.setdefault(row.pop("node"), dict(NO_NUMBERS)).update(_without_none(row))
    names = sorted(found)[:MOST_NODES]
    kept = [name for name in names if not last or name <= last]
    return {name: found[name] for name in kept}, len(kept) < len(found)


def _without_none(row: Mapping[str, Any]) -> dict[str, Any]:
    """A sum of nothing is 0."""
    return {name: 0 if value is None else value for name, value in row.items()}


def _questions(reader: Reader, where: str = "1") -> list[str]:
    """What is asked of nodes, beside what ended there. where: which of them, by Node."""
    questions = [
        "SELECT Node AS node, count() AS runs, countDistinct(Owner) AS owners, sum(Cpu.RecentCores) AS cores, "
        "sum(RequestCpus) AS asked_cores, sum(Memory.ResidentBytes) AS memory, "
        "sum(RequestMemoryBytes) AS asked_memory, countIf(IsHanging) AS hanging "
        f"FROM {reader.numbers} WHERE {states.running(reader.now)} AND {where} AND {reader.scope} GROUP BY Node",
    ]
    if reader.sees_others:
        questions += [
            "SELECT Node AS node, max(Time) AS told FROM health FINAL "
            f"WHERE Time > {reader.now - FORGOTTEN_SECONDS} AND {where} GROUP BY Node",
            "SELECT Node AS node, sum(Count) AS lost FROM events FINAL "
            f"WHERE Kind = 'Loss' AND Time > {reader.hour} AND {where} GROUP BY Node",
            "SELECT Node AS node, Cores AS pool_cores, ClaimedCores AS claimed_cores, MemoryBytes AS pool_memory, "
            "ClaimedMemoryBytes AS claimed_memory, Version AS version, System AS system "
            f"FROM {pool.machines(reader)} WHERE {where}",
        ]
    return questions


def _ended_by_node(reader: Reader) -> str:
    """The question what ended and failed in the window; and jobs of how many clusters that do well elsewhere.

    A cluster that fails elsewhere too, or was nowhere else, says nothing of a node; unless there is no other node.
    """
    here = f"SELECT Node, {CLUSTER} AS cluster, count() AS n, countIf({HAS_FAILED}) AS bad"
    both = (
        "SELECT *, sum(n) OVER (PARTITION BY cluster) - n AS others, "
        "sum(bad) OVER (PARTITION BY cluster) - bad AS bad_others, uniqExact(Node) OVER () AS all_nodes "
        f"FROM ({here} FROM {_ended(reader, reader.hour)} GROUP BY Node, cluster)"
    )
    does_well = f"(all_nodes = 1 OR (others > 0 AND bad_others < {FEW_OF} * others))"
    return (
        "SELECT Node AS node, sum(n) AS ended, sum(bad) AS failed, "
        f"uniqExactIf(cluster, bad > 0 AND {does_well}) AS failed_clusters FROM ({both}) GROUP BY Node"
    )


def _ended(reader: Reader, since: float, where: str = "1") -> str:
    """Runs that are over, with their exit codes."""
    columns = "JobId, Owner, Death, Cause, FirstFailure, GlobalJobId, AccountingGroup, Time"
    return with_codes(columns, since, f"{reader.scope} AND {reader.is_past} AND {where}")


def _hours(reader: Reader, name: str) -> list[dict[str, Any]]:
    """The last hours, the oldest first: how many ended and failed in each."""
    begin = reader.hour + WINDOW - HOURS * 3600
    rows = reader.ask(
        f"SELECT toInt32(least({HOURS - 1}, floor((Time - {begin}) / 3600))) AS hour, count() AS ended, "
        f"countIf({HAS_FAILED}) AS failed FROM {_ended(reader, begin, 'Node = {node:String}')} GROUP BY hour",
        node=name,
    )
    by_hour = {row["hour"]: row for row in rows}
    return [
        {
            "begin": begin + 3600 * hour,
            "ended": by_hour.get(hour, {}).get("ended", 0),
            "failed": by_hour.get(hour, {}).get("failed", 0),
        }
        for hour in range(HOURS)
    ]


def _causes(reader: Reader, name: str) -> list[dict[str, Any]]:
    """Why jobs failed there in these hours, the most frequent first; in words that the viewer may read."""
    begin = reader.hour + WINDOW - HOURS * 3600
    rows = reader.ask(
        f"WITH {reader.own} AS IsMine SELECT Code, count() AS n, any(Run) AS run, any(JobId) AS job, "
        f"{cause_columns(reader.sees(Seen.WORDS))} FROM {_ended(reader, begin, 'Node = {node:String}')} "
        f"WHERE {HAS_FAILED} GROUP BY Code, Died, Said, Readable ORDER BY n DESC LIMIT {MOST_KINDS}",
        node=name,
    )
    return by_cause(rows, MOST_CAUSES)
