"""File servers: their load now and over the last day, as far as the viewer may read their names.

Counters of a run grow as long as it lives. So load is what two readings of one run differ by, and never a run's whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from condor_joblens.hub.store.schema import SERVER_PLACE, SERVER_READINGS, SERVER_SECONDS, WHOSE
from condor_joblens.hub.web import states
from condor_joblens.hub.web.ended import ASKED, HAS_FAILED, by_cause, cause_columns, with_codes
from condor_joblens.hub.web.reads import Reader
from condor_joblens.hub.web.who_sees import Seen

LEAST_SECONDS = float(SERVER_PLACE)
"""Between two readings, at least: a shorter time says little."""

MOST_SECONDS = 900.0
"""And at most: what lies longer back is no load of now. A run that began within it began with nothing asked."""

DAY, STEP = 86400, 1800
"""What a server's page looks back, and the seconds of each of its steps."""

MOST_SERVERS = 500
MOST_ROWS = 20
"""Jobs, users and causes of a server's page."""

MOST_CAUSES = 5000

LOAD = ("requests_per_second", "bytes_per_second", "errors_per_second", "waiting", "wait_seconds")
"""`waiting`: requests on their way at a time, on average. `wait_seconds`: for each of them; null if there were none."""

_NUMBERS = ("Requests", "SentBytes", "ReceivedBytes", "Errors", "Seconds")
_OF_RUN = "Run, Node, RunNumber"
_LISTED = f"Array(Tuple(Name String, Class String, {', '.join(f'{name} Float64' for name in _NUMBERS)}))"
"""What is read of the list of a run's servers, at once."""

_SUMS = (
    "sum(requests / lasted) AS requests_per_second, sum(bytes / lasted) AS bytes_per_second, "
    "sum(errors / lasted) AS errors_per_second, sum(seconds / lasted) AS waiting, "
    "if(sum(requests) > 0, sum(seconds) / sum(requests), NULL) AS wait_seconds"
)
_COUNTS = "uniqExact(RunHash) AS runs, uniqExactIf(RunHash, isNull(requests)) AS unknown"


def servers(reader: Reader) -> dict[str, Any]:
    """All that running jobs have asked, those with most requests on their way first. Raises JobLensError."""
    rows = reader.ask(
        f"SELECT Name AS name, Class AS class, {_COUNTS}, countDistinct(Owner) AS owners, {_SUMS} FROM {_now(reader)} "
        f"GROUP BY Name, Class ORDER BY waiting DESC NULLS LAST, runs DESC, Name, Class LIMIT {MOST_SERVERS}"
    )
    return {"servers": rows, "time": reader.now}


def server(reader: Reader, name: str) -> dict[str, Any] | None:
    """One of them: its load, jobs, users and failures; None if there is none of this name, or none for him."""
    here, values = "Name = {server:String}", {"server": name}
    # in a list with a backslash it may be spelled otherwise
    named = "(position(Servers, {server:String}) > 0 OR position(Servers, '\\\\') > 0)"
    # what is asked since when is found once for all three: it takes most of the time
    found = reader.ask(
        "SELECT Class AS class, Owner AS owner, Run AS run, any(JobId) AS job, any(Owner) AS run_owner, "
        f"min(Node) AS node, {_COUNTS}, countDistinct(Owner) AS owners, {_SUMS}, "
        "multiIf(grouping(Class) = 0, 'class', grouping(Owner) = 0, 'user', 'job') AS of "
        f"FROM {_now(reader, here, named)} GROUP BY GROUPING SETS ((Class), (Owner), (Run)) "
        f"ORDER BY requests_per_second DESC NULLS LAST, runs DESC, owner, run LIMIT {MOST_ROWS} BY of",
        **values,
    )
    numbers = ("runs", "unknown", *LOAD)
    now, users, jobs = (
        [{name: row[name] for name in (*names, *numbers)} for row in found if row["of"] == of and row["runs"]]
        for of, names in (
            ("class", ("class", "owners")),
            ("user", ("owner",)),
            ("job", ("run", "job", "run_owner", "node")),
        )
    )
    now.sort(key=lambda row: str(row["class"]))
    for row in jobs:
        row["owner"] = row.pop("run_owner")
    steps, known = _steps(reader, name)
    ended, failed, causes = _failures(reader, name)
    if not (now or known or ended):
        return None
    return {
        "name": name,
        "now": now,
        "steps": steps,
        "users": users,
        "jobs": jobs,
        "ended": ended,
        "failed": failed,
        "causes": causes,
        "time": reader.now,
        "since": reader.hour,
    }


def _now(reader: Reader, where: str = "1", lists: str = "Servers != ''") -> str:
    """Of each run and server: what it asked since its reading before (`requests`, ...), and the seconds of that.

    Both are NULL where there is no reading to compare with.

    where: which servers. lists: what the text of a run's list has of these, as a condition on Servers.
    """
    names = ", ".join(f"one.{name} AS {name}" for name in ("Name", "Class", *_NUMBERS))
    newest = (
        f"SELECT RunHash, {_OF_RUN}, JobId, Owner, StartTime, Time, Time - {LEAST_SECONDS} AS Before, {names}, "
        f"{WHOSE} AS Whose FROM (WITH {reader.own} AS IsMine SELECT RunHash, {_OF_RUN}, JobId, Owner, StartTime, Time, "
        f"arrayJoin(JSONExtract(Servers, '{_LISTED}')) AS one FROM {reader.live_with_servers} "
        f"WHERE {states.running(reader.now)} AND {lists} AND {reader.scope} AND {reader.sees(Seen.WORDS)}) "
        f"WHERE Name != '' AND {where}"
    )
    # the earlier one of each is found among as few as may be: of 200,000 runs, readings of half an hour cost a second
    at_most = f"least({2 * MOST_SECONDS}, {LEAST_SECONDS + SERVER_SECONDS} + Period + {states.patience_of('Period')})"
    before = (
        f"SELECT Whose, Time, {', '.join(_NUMBERS)} FROM {SERVER_READINGS.name} "
        f"WHERE Place >= {int((reader.now - 2 * MOST_SECONDS) // SERVER_PLACE)} "
        f"AND Time > {reader.now - 2 * MOST_SECONDS} AND Time + {at_most} > {reader.now} AND {where}"
    )
    began = f"(r.Time = 0 AND l.StartTime > l.Time - {MOST_SECONDS})"
    is_known = f"({began} OR r.Time > l.Time - {MOST_SECONDS})"
    grown = {name: f"if({is_known}, greatest(0, l.{name} - r.{name}), NULL)" for name in _NUMBERS}
    return (
        "(SELECT l.RunHash AS RunHash, l.Run AS Run, l.Node AS Node, l.JobId AS JobId, l.Owner AS Owner, "
        "l.Name AS Name, l.Class AS Class, "
        f"if({is_known}, greatest(1, l.Time - if({began}, l.StartTime, r.Time)), NULL) AS lasted, "
        f"{grown['Requests']} AS requests, {grown['SentBytes']} + {grown['ReceivedBytes']} AS bytes, "
        f"{grown['Errors']} AS errors, {grown['Seconds']} AS seconds FROM ({newest}) AS l "
        f"ASOF LEFT JOIN ({before}) AS r ON l.Whose = r.Whose AND l.Before >= r.Time)"
    )


def _steps(reader: Reader, name: str) -> tuple[list[dict[str, Any]], bool]:
    """The last day, the oldest step first; and whether there is anything of it."""
    begin = STEP * int((reader.now - DAY) // STEP + 1)
    sees = f"{reader.scope} AND {reader.sees(Seen.WORDS)}"
    those = f"WITH {reader.own} AS IsMine SELECT Run FROM {reader.live} WHERE Time > {begin} AND {sees}"
    is_seen = "1" if sees == "1 AND 1" else f"Run IN ({those})"  # of who sees all, 200,000 names would be compared
    whole = "OVER (PARTITION BY Class, Run, Node, RunNumber ORDER BY Place ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"
    grown = ", ".join(
        f"greatest(0, toFloat64({name}) - toFloat64(lagInFrame({name}) {whole})) AS d{name}" for name in _NUMBERS
    )
    readings = (
        f"SELECT Time, lagInFrame(Time) {whole} AS Former, StartTime, {grown} FROM {SERVER_READINGS.name} FINAL "
        f"WHERE Name = {{server:String}} AND Time > {begin - MOST_SECONDS} AND {is_seen}"
    )
    rows = reader.ask(
        f"SELECT toInt32(floor((Time - {begin}) / {STEP})) AS step, sum(dRequests) AS requests, "
        "sum(dSentBytes + dReceivedBytes) AS bytes, sum(dErrors) AS errors, sum(dSeconds) AS seconds "
        f"FROM ({readings}) WHERE Time >= {begin} AND if(Former = 0, StartTime, Former) > Time - {MOST_SECONDS} "
        f"GROUP BY step",
        server=name,
    )
    by_step = {row["step"]: row for row in rows}
    found = []
    for step in range(DAY // STEP):
        start = begin + STEP * step
        lasted = max(1.0, min(STEP, reader.now - start))
        found.append({"begin": start, **_load(by_step.get(step), lasted)})
    return found, bool(rows)


def _load(row: Mapping[str, Any] | None, lasted: float) -> dict[str, Any]:
    if row is None:
        return {**dict.fromkeys(LOAD, 0.0), "wait_seconds": None}
    requests, waited = row["requests"], row["seconds"] or 0.0  # infinite ones are none in JSON
    each = waited / requests if requests else None
    return dict(zip(LOAD, (requests / lasted, row["bytes"] / lasted, row["errors"] / lasted, waited / lasted, each)))


def _failures(reader: Reader, name: str) -> tuple[int, int, Sequence[dict[str, Any]]]:
    """Of those that asked it, in the last hour: how many ended and failed, and why."""
    columns = "JobId, Owner, Death, Cause, FirstFailure, Servers, GlobalJobId, AccountingGroup, Time"
    table = with_codes(columns, reader.hour, f"{reader.scope} AND {reader.is_past}")
    asked = f"Servers != '' AND has({ASKED}, {{server:String}}) AND {reader.sees(Seen.WORDS)}"
    (ended,) = reader.ask(
        f"WITH {reader.own} AS IsMine SELECT count() AS n, countIf({HAS_FAILED}) AS bad FROM {table} WHERE {asked}",
        server=name,
    )
    rows = reader.ask(
        f"WITH {reader.own} AS IsMine SELECT Code, count() AS n, any(Run) AS run, any(JobId) AS job, "
        f"{cause_columns(reader.sees(Seen.WORDS))} FROM {table} WHERE {HAS_FAILED} AND {asked} "
        f"GROUP BY Code, Died, Said, Readable ORDER BY n DESC LIMIT {MOST_CAUSES}",
        server=name,
    )
    return ended["n"], ended["bad"], by_cause(rows, MOST_ROWS)
