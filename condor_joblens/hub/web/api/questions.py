"""What programs ask the store: always by a viewer's Reader, which is the pages' own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from condor_joblens.hub.web.api.columns import COLUMNS, USUAL, schema
from condor_joblens.hub.web.api.conditions import condition
from condor_joblens.hub.web.api.parameters import WrongRequest
from condor_joblens.hub.web.ended import CLUSTER
from condor_joblens.hub.web.filters import EQUAL
from condor_joblens.hub.web.leaking import leaking
from condor_joblens.hub.web.nodes import NO_NUMBERS, nodes
from condor_joblens.hub.web.reads import OF_ONE_RUN, Reader
from condor_joblens.hub.web.servers import servers
from condor_joblens.hub.web.who_sees import Seen, seen_of

Asked = Mapping[str, Any]
"""The parameters of a request, by name; and `run`, if that is in its path."""

GROUPS = {
    **EQUAL,
    "level": "Level",
    "cluster": "GlobalJobId",
    "schedd": "GlobalJobId",
}
"""By what a summary may be -> the column from which that is."""

_GROUP_OF = {"cluster": CLUSTER, "schedd": "splitByChar('#', GlobalJobId)[1]"}


def told_schema(reader: Reader, asked: Asked) -> dict[str, Any]:
    """The columns: the same for all."""
    return schema()


def jobs(reader: Reader, asked: Asked) -> dict[str, Any]:
    """The newest record of each run: in the order of their names, a page at a time, or the first by another order."""
    where, values = _conditions(reader, asked)
    sort = asked["sort"]
    if sort and asked["after"]:
        raise WrongRequest("after goes with the order of names alone: leave out sort")
    if asked["after"]:
        where, values = f"{where} AND Run > {{after:String}}", {**values, "after": asked["after"]}
    order = _order(reader, sort) if sort else "Run, RunNumber DESC"
    rows, last = reader.runs(asked["columns"] or USUAL, where, order, asked["limit"], values)
    following = None if sort else last
    return {"jobs": rows, "next": following, "is_cut": last is not None, "time": reader.now}


def job(reader: Reader, asked: Asked) -> dict[str, Any] | None:
    """The newest record of one run, with all that the viewer may see of it."""
    columns = asked["columns"] or tuple(COLUMNS)
    rows = reader.newest(asked["run"], columns)
    return {"job": rows[0], "time": reader.now} if rows else None


def series(reader: Reader, asked: Asked) -> dict[str, Any] | None:
    """Metrics of one run over time: its samples in at most `points` equal parts of the time."""
    run = reader.job(asked["run"])
    if run is None or Seen.NUMBERS not in reader.seen(run):
        return None
    of_run = {"job": run["GlobalJobId"], "run": run["Run"], "node": run["Node"], "number": run["RunNumber"]}
    of_run |= {"since": asked["since"], "until": asked["until"]}
    most, metrics = asked["points"], asked["metrics"]
    columns = ", ".join(f"{name} AS m{place}" for place, name in enumerate(metrics))
    samples = (
        f"SELECT Time, Sequence, {columns} FROM {OF_ONE_RUN} "
        "AND Time >= {since:Float64} AND Time <= {until:Float64} LIMIT 1 BY Sequence"
    )
    whole = f"SELECT *, min(Time) OVER () AS Earliest, max(Time) OVER () AS Latest FROM ({samples})"
    width = f"greatest((Latest - Earliest) / {most}, 1e-3)"
    chosen = ", ".join(
        f"min(m{place}) AS low{place}, max(m{place}) AS high{place}, avg(m{place}) AS mean{place}"
        for place in range(len(metrics))
    )
    rows = reader.ask(
        f"SELECT toInt32(least({most - 1}, floor((Time - Earliest) / {width}))) AS part, "
        "min(Time) AS begin, max(Time) AS finish, count() AS samples, min(Sequence) AS first, max(Sequence) AS last, "
        f"{chosen} FROM ({whole}) GROUP BY part ORDER BY part LIMIT {most}",
        **of_run,
    )
    return {
        "run": run["Run"],
        "node": run["Node"],
        "points": [{name: row[name] for name in POINT} for row in rows],
        "metrics": {
            name: {word: [row[f"{short}{place}"] for row in rows] for word, short in _STATISTICS.items()}
            for place, name in enumerate(metrics)
        },
        "time": reader.now,
    }


def series_rows(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A series as a table: a row for each part of the time, a column for each number of a metric."""
    return [
        {
            **point,
            **{f"{name}.{word}": those[word][place] for name, those in found["metrics"].items() for word in those},
        }
        for place, point in enumerate(found["points"])
    ]


POINT = ("begin", "finish", "samples", "first", "last")
"""Of a part of the time: its first and last sample's times, how many there are, and these two's numbers."""

_STATISTICS = {"min": "low", "max": "high", "mean": "mean"}

_SUMS = {
    "runs": "uniqExact(Run)",
    "running": "uniqExactIf(Run, {running})",
    "ended": "uniqExactIf(Run, Type = 'job')",
    "failed": "uniqExactIf(Run, {failed})",
    "cores": "sumIf(Cpu.RecentCores, {running})",
    "cpu_seconds": "sum(Cpu.Seconds)",
    "wall_seconds": "sum(UpdateTime - StartTime)",
    "asked_core_seconds": "sum((UpdateTime - StartTime) * RequestCpus)",
    "peak_bytes": "max(Memory.ResidentPeakBytes)",
    "mean_peak_bytes": "avg(Memory.ResidentPeakBytes)",
    "asked_bytes": "avg(RequestMemoryBytes)",
    "read_bytes": "sum(Io.CallReadBytes)",
    "written_bytes": "sum(Io.CallWriteBytes)",
}
"""A number of a summary -> how it is made of the newest records, of each node that tells of a run one."""


def summary(reader: Reader, asked: Asked) -> dict[str, Any]:
    """Sums over runs, by what they have in common; the greatest groups first."""
    where, values = _conditions(reader, asked)
    by = asked["by"]
    column = COLUMNS[GROUPS[by]]
    # what he may not see of a run is no group of its own
    key = f"if({reader.sees(column.seen)}, toString({_GROUP_OF.get(by, column.name)}), NULL)"
    parts = {name: reader.states(asked["since"] or reader.oldest)[name] for name in ("running", "failed")}
    sums = ", ".join(f"{how.format(**parts)} AS s{place}" for place, how in enumerate(_SUMS.values()))
    rows = reader.ask(
        f"WITH {reader.own} AS IsMine SELECT {key} AS name, {sums} FROM latest FINAL "
        f"WHERE {reader.scope} AND {where} GROUP BY name ORDER BY s0 DESC, name "
        f"LIMIT {asked['limit'] + 1}",
        **values,
    )
    groups = [{"name": row["name"], **{name: row[f"s{place}"] for place, name in enumerate(_SUMS)}} for row in rows]
    return {"by": by, "groups": groups[: asked["limit"]], "is_cut": len(groups) > asked["limit"], "time": reader.now}


SUMS = tuple(_SUMS)


NODE_NUMBERS = tuple(name for name, none in NO_NUMBERS.items() if name != "told" and none != "")
NODE_TEXTS = tuple(name for name, none in NO_NUMBERS.items() if none == "")


def all_nodes(reader: Reader, asked: Asked) -> dict[str, Any]:
    """Each node, the worst first; `since` is from when on what ended is counted."""
    found = nodes(reader)
    chosen = [
        row
        for row in found["nodes"]
        if asked["node"] in (None, row["node"]) and asked["health"] in (None, row["health"])
    ]
    return {**found, "nodes": chosen[: asked["limit"]], "count": len(chosen)}


def all_servers(reader: Reader, asked: Asked) -> dict[str, Any]:
    """File servers, those with most requests on their way first."""
    found = servers(reader)
    chosen = [row for row in found["servers"] if asked["server"] in (None, row["name"])]
    return {**found, "servers": chosen[: asked["limit"]]}


OF_LEAK = ("Run", "GlobalJobId", "JobId", "Node", "Owner", "AccountingGroup", "Executable")
"""What says of which job a leak is; null where it may not be seen."""


def all_leaks(reader: Reader, asked: Asked) -> dict[str, Any]:
    """Jobs whose memory leaks, those that will be at their limit first."""
    found = leaking(reader)
    rows = [
        {
            **{name: job.get(name) for name in OF_LEAK},
            **{name: job[name] for name in ("bytes_per_hour", "share", "hours")},
        }
        for job in found["jobs"]
    ]
    return {**found, "jobs": rows[: asked["limit"]]}


def _conditions(reader: Reader, asked: Asked) -> tuple[str, dict[str, Any]]:
    """Which runs. Raises WrongRequest."""
    where, values = reader.conditions(asked["state"], asked)
    if asked["where"]:
        text, more = condition(asked["where"], reader.sees)
        where, values = f"{where} AND {text}", {**values, **more}
    return where, values


def _order(reader: Reader, sort: str) -> str:
    name = sort.lstrip("-")
    sees = reader.sees(seen_of(name))
    value = name if sees == "1" else f"if({sees}, {name}, NULL)"
    return f"{value} {'DESC' if sort.startswith('-') else 'ASC'} NULLS LAST, Run, RunNumber DESC"
