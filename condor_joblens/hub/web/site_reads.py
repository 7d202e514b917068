"""What the page Site asks the store: sums, what failed of late and why, file servers, silence and losses."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar

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


T = TypeVar("T")


class Sharing(Protocol):
    """Answers that all who see the same share."""

    def __call__(self, name: str, ask: Callable[[], T], stamp: Hashable = None) -> T:
        """What `ask` says or has said; as long as the stamp is the same, it would say the same."""
        ...


def site(reader: Reader, shared: Sharing) -> dict[str, Any]:
    """Sums of all that runs. They are left out where they would tell of too few people. Raises JobLensError."""
    now, day = reader.now, reader.hour + WINDOW - SILENT_SECONDS
    whole, mine = _live_sums(reader, day)
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
    usual = shared("before", lambda: _before(reader), reader.hour)
    is_hidden = not reader.sees_others and whole["owners"] < FEWEST
    sees_all = reader.sees_others
    return {
        "site": None if is_hidden else {**whole, "owners": whole["owners"] if sees_all else None},
        "mine": mine,
        "pool": pool.sums(reader),
        "last_hour": {"ended": sum(ended.by_node.values()), "failed": len(failures)},
        "failures": [_told(wave) for wave in waves(failures, usual, ended)],
        "failing_nodes": failing_nodes(reader),
        "servers": shared("servers", lambda: servers(reader))["servers"][:MOST_SERVERS],
        "silent_nodes": silent_nodes(reader) if sees_all else None,
        "lost_records": lost["records"] or 0,
        "other_schemas": other if sees_all and other["records"] else None,
        "contradicted": contradicted if sees_all and contradicted["records"] else None,
        "sees_others": sees_all,
        "has_jobs": reader.has_jobs,
        "has_groups": reader.has_groups,
        "time": now,
        "since": reader.hour,
        "day": day,
    }


COUNTS = {"runs": "{0}", "suspect": "{0} AND IsSuspect", "hanging": "{0} AND Hangs", "silent": "{0}Silent"}
"""A number of runs on the page -> which of those that fit a condition."""

SUMS = {
    **{"owners": "uniqExactIf(Owner, {0})", "nodes": "uniqExactIf(Node, {0})"},
    **{"cores": "sumIf(Cores, {0})", "asked_cores": "sumIf(RequestCpus, {0})"},
    **{"memory": "sumIf(Bytes, {0})", "asked_memory": "sumIf(RequestMemoryBytes, {0})"},
}
"""Any other sum of it -> how it is made of rows that fit a condition."""


def _live_sums(reader: Reader, day: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of all that runs, and of what is his or his groups', by one look at the runs.

    With how many fell silent since `day`. A run of which two nodes tell is one, but there is next to none. So rows are
    counted, and runs only where that is not the same: to count each number's runs takes most of the time.
    """
    found = reader.ask(_live_question(reader, day, of_runs=False))[0]
    if found["Rows"] != found["All"]:
        found = reader.ask(_live_question(reader, day, of_runs=True))[0]
    whole, mine = ({name: found[f"{which}_{name}"] for name in (*COUNTS, *SUMS)} for which in ("Runs", "Mine"))
    return whole, mine


def _live_question(reader: Reader, day: float, *, of_runs: bool) -> str:
    counted = "uniqExactIf(RunHash, {})" if of_runs else "countIf({})"
    sums = {**{name: counted.format(which) for name, which in COUNTS.items()}, **SUMS}
    parts = [f"{text.format('Runs')} AS Runs_{name}" for name, text in sums.items()]
    none = {name: "NULL" if text.startswith("sum") else "0" for name, text in sums.items()}
    has_own = reader.near != "0"
    parts += [f"{text.format('Mine') if has_own else none[name]} AS Mine_{name}" for name, text in sums.items()]
    runs = "count()" if reader.tells_each_once else "uniqExact(RunHash)"
    parts += ["count() AS Rows", f"{runs} AS All"]
    return (
        f"SELECT {', '.join(parts)} FROM (SELECT RunHash, Owner, Node, Cpu.RecentCores AS Cores, "
        "Memory.ResidentBytes AS Bytes, IsHanging AS Hangs, IsSuspect, RequestCpus, RequestMemoryBytes, "
        f"{reader.near} AS IsOwn, {states.running(reader.now)} AS Runs, Runs AND IsOwn AS Mine, "
        f"Time >= {day} AND {states.silent(reader.now)} AS RunsSilent, RunsSilent AND IsOwn AS MineSilent "
        f"FROM {reader.numbers} WHERE Type = 'sample' AND Time > {reader.now - states.AT_MOST})"
    )


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
    counts: dict[str, dict[str, int]] = {"by_node": {}, "by_cluster": {}, "by_server": {}}
    for row in reader.ask(
        "SELECT one.1 AS what, one.2 AS name, count() AS n FROM (SELECT arrayJoin(arrayConcat("
        f"[('by_node', toString(Node)), ('by_cluster', {CLUSTER})], "
        f"arrayMap(x -> ('by_server', x), arrayDistinct({ASKED})))) AS one FROM {ended}) "
        f"GROUP BY what, name ORDER BY n DESC LIMIT {MOST_FAILURES} BY what"
    ):
        counts[row["what"]][row["name"]] = row["n"]
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
