"""What the page Site asks the store: sums, what failed of late and why, file servers, silence and losses."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from condor_joblens.hub.store.schema import CONTRADICTS
from condor_joblens.hub.web import pool, states
from condor_joblens.hub.web.ended import ASKED, CLUSTER, HAS_FAILED, cause, cause_columns, last_records, with_codes
from condor_joblens.hub.web.failures import USUAL_HOURS, WINDOW, Ended, Failure, Wave, waves
from condor_joblens.hub.web.nodes import failing_nodes, silent_nodes
from condor_joblens.hub.web.reads import Reader
from condor_joblens.hub.web.servers import servers
from condor_joblens.hub.web.who_sees import FEWEST, Seen

MOST_FAILURES = 20_000
"""That are looked at; the newest."""

MOST_SERVERS = 10

SILENT_SECONDS = 86400.0
"""Runs that have been silent for longer are on the page of jobs alone."""


def site(reader: Reader) -> dict[str, Any]:
    """Sums of all that runs. They are left out where they would tell of too few people. Raises JobLensError."""
    now, day = reader.now, reader.hour + WINDOW - SILENT_SECONDS
    sums = (
        "uniqExact(Run) AS runs, countDistinct(Owner) AS owners, countDistinct(Node) AS nodes, "
        "sum(Cpu.RecentCores) AS cores, sum(RequestCpus) AS asked_cores, "
        "sum(Memory.ResidentBytes) AS memory, sum(RequestMemoryBytes) AS asked_memory, "
        "uniqExactIf(Run, Hang.Suspected > 0) AS hanging"
    )
    live = f"FROM latest FINAL WHERE {states.running(now)}"
    quiet = f"FROM latest FINAL WHERE Time >= {day} AND {states.silent(now)}"
    (whole,) = reader.ask(f"SELECT {sums} {live}")
    (mine,) = reader.ask(f"SELECT {sums} {live} AND {reader.own}")
    (silent,) = reader.ask(f"SELECT uniqExact(Run) AS runs, uniqExactIf(Run, {reader.own}) AS mine {quiet}")
    (lost,) = reader.ask(f"SELECT sum(Count) AS records FROM events FINAL WHERE Kind = 'Loss' AND Time > {reader.hour}")
    (other,) = reader.ask(
        "SELECT count() AS records, countDistinct(Node) AS nodes, max(Schema) AS newest FROM other_schemas FINAL "
        f"WHERE Time > {now - 86400}"
    )
    (contradicted,) = reader.ask(
        "SELECT count() AS records, countDistinct(Node) AS nodes FROM doubted FINAL "
        f"WHERE Judged = {CONTRADICTS} AND Time > {now - 86400}"
    )
    failures, ended = _failures(reader)
    is_hidden = not reader.sees_others and whole["owners"] < FEWEST
    sees_all = reader.sees_others
    return {
        "site": None
        if is_hidden
        else {**whole, "owners": whole["owners"] if sees_all else None, "silent": silent["runs"]},
        "mine": {**mine, "silent": silent["mine"]},
        "pool": pool.sums(reader),
        "last_hour": {"ended": sum(ended.by_node.values()), "failed": len(failures)},
        "failures": [_told(wave) for wave in waves(failures, _before(reader), ended)],
        "failing_nodes": failing_nodes(reader),
        "servers": servers(reader)["servers"][:MOST_SERVERS],
        "silent_nodes": silent_nodes(reader) if sees_all else None,
        "lost_records": lost["records"] or 0,
        "other_schemas": other if sees_all and other["records"] else None,
        "contradicted": contradicted if sees_all and contradicted["records"] else None,
        "sees_others": sees_all,
        "time": now,
        "since": reader.hour,
        "day": day,
    }


def told_waves(reader: Reader) -> list[dict[str, Any]]:
    """What failed by cause, and whose that is, if it is of one owner at one schedd. Raises JobLensError."""
    failures, ended = _failures(reader)
    whose: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for failure in failures:
        whose[failure.words].add((failure.owner, failure.cluster.partition("#")[0]))
    found = []
    for wave in waves(failures, _before(reader), ended):
        owner, schedd = next(iter(whose[wave.cause])) if len(whose[wave.cause]) == 1 else ("", "")
        found.append({**_told(wave), "owner": owner, "schedd": schedd})
    return found


def _told(wave: Wave) -> dict[str, Any]:
    """As JSON has it."""
    found = {name: value for name, value in vars(wave).items() if name not in ("example", "blamed")}
    return {
        **found,
        "blamed": dict([wave.blamed]) if wave.blamed else {},
        "example_job": wave.example.job,
        "example_run": wave.example.run,
    }


def _failures(reader: Reader) -> tuple[list[Failure], Ended]:
    """Of the window, within the viewer's scope."""
    since = reader.hour
    readable = reader.sees(Seen.WORDS)
    columns = "JobId, Owner, Death, Cause, FirstFailure, Servers, GlobalJobId, AccountingGroup, Time"
    table = with_codes(columns, since, f"{reader.scope} AND {reader.is_past}")
    rows = reader.ask(
        f"WITH {reader.own} AS IsMine SELECT Run, JobId, Node, if({reader.sees(Seen.OWNER)}, Owner, '') AS Who, Code, "
        f"if({readable}, {ASKED}, []) AS Asked, {CLUSTER} AS Cluster, {cause_columns(readable)} "
        f"FROM {table} WHERE {HAS_FAILED} ORDER BY Time DESC LIMIT {MOST_FAILURES}"
    )
    failures = [
        Failure(
            cause(row), row["Code"], row["Cluster"], row["Node"], row["Who"], tuple(row["Asked"]), row["JobId"],
            row["Run"],
        )
        for row in rows
    ]  # fmt: skip
    ended = last_records("Node, GlobalJobId, JobId, Servers", f"Time > {since} AND {reader.scope} AND {reader.is_past}")
    most = f"GROUP BY name ORDER BY n DESC LIMIT {MOST_FAILURES}"
    counts = {
        name: {row["name"]: row["n"] for row in reader.ask(query)}
        for name, query in {
            "by_node": f"SELECT Node AS name, count() AS n FROM {ended} {most}",
            "by_cluster": f"SELECT {CLUSTER} AS name, count() AS n FROM {ended} {most}",
            "by_server": f"SELECT arrayJoin(arrayDistinct({ASKED})) AS name, count() AS n FROM {ended} "
            f"WHERE Servers != '' {most}",
        }.items()
    }
    return failures, Ended(**counts)


def _before(reader: Reader) -> Counter[str]:
    """Causes of the day before the window, and how often."""
    begin, end = reader.hour - USUAL_HOURS * 3600, reader.hour
    columns = "Owner, Death, Cause, FirstFailure, GlobalJobId, AccountingGroup"
    rows = reader.ask(
        f"WITH {reader.own} AS IsMine SELECT Code, count() AS n, {cause_columns(reader.sees(Seen.WORDS))} "
        f"FROM {with_codes(columns, begin, f'Time <= {end} AND {reader.scope}')} WHERE {HAS_FAILED} "
        f"GROUP BY Code, Died, Said, Readable ORDER BY n DESC LIMIT {MOST_FAILURES}"
    )
    before: Counter[str] = Counter()
    for row in rows:
        before[cause(row)] += row["n"]
    return before
