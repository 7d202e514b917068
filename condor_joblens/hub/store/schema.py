"""The store's tables, made from the metric table: the names of records are the names of columns.

A record that comes twice has the same key and is kept once: ReplacingMergeTree, read with FINAL. The key has the node
by its token first: what one node sends never replaces what another sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from condor_joblens.model.metrics import FIELDS, METRICS, Field, Metric

DAYS = 14
"""How long samples, events and health are kept."""

JOB_DAYS = 400
"""How long last records are kept."""

_TYPES = {"u8": "UInt64", "i8": "Nullable(Int64)", "i4": "Nullable(Int32)", "f8": "Nullable(Float64)", "?": "Bool"}

_EVERY = {
    "Id": "String",
    "Type": "LowCardinality(String)",
    "Schema": "UInt16",
    "Node": "LowCardinality(String)",
    "Time": "Float64",
}
"""What every record has."""

_LISTS = {"Endpoints": "String", "Servers": "String"}
"""Lists of a run's endpoints and file servers: kept as the text of their JSON."""

_EVENT = {
    "Kind": "LowCardinality(String)",
    "Sequence": "UInt64",
    "RunNumber": "UInt64",
    "Run": "String",
    "GlobalJobId": "String",
    "Slot": "String",
    "Sink": "LowCardinality(String)",
    "Count": "Nullable(UInt64)",
    "Cause": "LowCardinality(String)",
    "ExitCode": "Nullable(Int32)",
    "Whole": "String",  # the record itself, as JSON
}
_HEALTH = {"Whole": "String"}


_COMPACT_BYTES = 100 << 20
"""Of a part of a table, before it is packed: a smaller one is a file, not one a column. There are 400 columns, so an
insert of some thousand rows takes less than half of the CPU (bench_hub.py)."""


@dataclass(frozen=True)
class Table:
    """One table."""

    name: str
    columns: Mapping[str, str]  # name -> ClickHouse's type
    key: tuple[str, ...]
    days: int
    version: str = ""  # of rows with one key the greatest of this column is kept; empty: the last one inserted

    time: str = "Time"  # a column of epoch seconds

    def statement(self) -> str:
        """Makes it, where it is not there."""
        columns = ",\n  ".join(f"`{name}` {kind}" for name, kind in self.columns.items())
        return (
            f"CREATE TABLE IF NOT EXISTS {self.name} (\n  {columns}\n) ENGINE = ReplacingMergeTree({self.version})\n"
            f"PARTITION BY toDate(toDateTime({self.time})) ORDER BY ({', '.join(self.key)})\n"
            f"TTL toDateTime({self.time}) + INTERVAL {self.days} DAY\n"
            f"SETTINGS min_bytes_for_wide_part = {_COMPACT_BYTES}"
        )


def _field_type(field: Field) -> str:
    return _TYPES.get(field.type, "String")


def _metric_type(metric: Metric) -> str:
    return "Nullable(Float64)" if metric.is_float else "Nullable(Int64)"


def _groups() -> dict[str, str]:
    """The nested groups of metrics as named tuples: Cpu -> Tuple(`Seconds` Nullable(Float64), ...)."""
    tree: dict[str, Any] = {}
    for metric in METRICS:
        *outer, name = metric.path.split(".")
        inner = tree
        for word in outer:
            inner = inner.setdefault(word, {})
        inner[name] = _metric_type(metric)
    return {name: _tuple(inner) for name, inner in tree.items()}


def _tuple(tree: Mapping[str, Any] | str) -> str:
    if isinstance(tree, str):
        return tree
    return "Tuple({})".format(", ".join(f"`{name}` {_tuple(inner)}" for name, inner in tree.items()))


_ADDED = {"Cause": "String", "SinkPeriodSeconds": "Float64"}
"""By the hub as it takes a record in: why a run failed, without what differs from run to run (analysis/causes.py). And
how seldom its node's sink takes a run's samples: JOBLENS_SINK_HUB_PERIOD, 0 for all of them."""

_RUN = {**_EVERY, **{field.record_name: _field_type(field) for field in FIELDS}, **_LISTS, **_ADDED, **_groups()}
_OF_RUN = ("GlobalJobId", "Run", "Node", "RunNumber", "Sequence", "Id")

SAMPLES = Table("samples", _RUN, _OF_RUN, DAYS)
JOBS = Table("jobs", _RUN, _OF_RUN, JOB_DAYS)
EVENTS = Table("events", {**_EVERY, **_EVENT}, ("Node", "Id"), DAYS)
HEALTH = Table("health", {**_EVERY, **_HEALTH}, ("Node", "Id"), DAYS)
OTHERS = Table("other_schemas", {**_EVERY, **_HEALTH}, ("Node", "Schema", "Type", "Id"), DAYS)
"""Records of nodes whose schema is not this hub's: as they came. The same name could mean something else in them."""

WAITS, TAKEN, CONTRADICTS = 0, 1, 2
"""`Judged` of the table below: of rows with one key the greatest is kept."""

DOUBTED = Table(
    "doubted",
    {
        **{**_EVERY, **_HEALTH, "GlobalJobId": "String", "Digest": "String"},
        **{"Moment": "Float64", "Judged": "UInt8", "Why": "String"},
    },
    ("Node", "Id", "Digest"),
    DAYS,
    "Judged",
)
"""Records from Kafka that say something else than the schedd's RemoteHost (hub/ingest/doubts.py): as they came."""

LATEST = Table("latest", {**_RUN, "Version": "UInt64"}, ("GlobalJobId", "Run", "Node"), DAYS, "Version")
"""The newest record of each run."""

_FAILED_END = {"Run": "String", "Node": "LowCardinality(String)", "RunNumber": "UInt64"}
FAILED_ENDS = Table(
    "failed_ends", {**_FAILED_END, "Time": "Float64", "ExitCode": "Int32"}, tuple(_FAILED_END), JOB_DAYS
)
"""Runs that ended with an exit code: their last records don't say it, their events do."""

HOUR = "toUInt32(3600 * intDiv(toUInt64(Time), 3600))"
"""Of a row: the epoch seconds at which its hour began."""

HOUR_KEY = ("Hour", "Node", "Schedd", "Owner", "AccountingGroup", "Vo")
_NAME, _COUNT, _SUM = "LowCardinality(String)", "UInt64", "Float64"
HOURS = Table(
    "hours",
    {
        **{"Hour": "UInt32", "Node": _NAME, "Schedd": _NAME, "Owner": _NAME, "AccountingGroup": _NAME, "Vo": _NAME},
        **{name: _COUNT for name in ("Runs", "Failed", "NodeRuns", "NodeFailed")},
        **{name: _SUM for name in ("WallSeconds", "CpuSeconds", "AskedCpuSeconds")},
        **{name: _SUM for name in ("MemoryByteSeconds", "AskedMemoryByteSeconds", "GreatestBytes")},
        "Version": "UInt64",
    },
    (*HOUR_KEY,),
    JOB_DAYS,
    "Version",
    "Hour",
)
"""Sums of runs that ended in an hour (rollups.py). `Version` is when it was begun to be made, by microseconds since the
epoch: of an hour the greatest counts alone."""

TOUCHED_HOURS = Table("touched_hours", {"Hour": "UInt32", "At": "Float64"}, ("Hour",), JOB_DAYS, "At", "Hour")
"""When rows of an hour came last, by epoch seconds."""

TABLES = (SAMPLES, JOBS, EVENTS, HEALTH, OTHERS, DOUBTED, LATEST, FAILED_ENDS, HOURS, TOUCHED_HOURS)
BY_TYPE = {"sample": SAMPLES, "job": JOBS, "event": EVENTS, "health": HEALTH}
"""Where records of a type go."""

VERSION_OF_ROW = "bitShiftLeft(RunNumber, 32) + 2 * Sequence + (Type = 'job')"


def views(anew: bool) -> list[str]:
    """What fills LATEST from samples and last records, FAILED_ENDS and TOUCHED_HOURS. A replayed record changes no sum.

    anew: columns have changed.
    """
    made = [
        (f"latest_of_{table.name}", LATEST, f"SELECT *, {VERSION_OF_ROW} AS Version FROM {table.name}")
        for table in (SAMPLES, JOBS)
    ]
    ends = f"SELECT {', '.join(FAILED_ENDS.columns)} FROM {EVENTS.name} WHERE Kind = 'RunEnd' AND ExitCode > 0"
    made.append(("failed_ends_of_events", FAILED_ENDS, ends))
    touched = f"SELECT DISTINCT {HOUR} AS Hour, toUnixTimestamp64Micro(now64(6)) / 1e6 AS At FROM "
    made.append(("touched_by_jobs", TOUCHED_HOURS, touched + JOBS.name))
    made.append(("touched_by_ends", TOUCHED_HOURS, f"{touched}{EVENTS.name} WHERE Kind = 'RunEnd' AND ExitCode > 0"))
    statements = []
    for name, target, select in made:
        statements += [f"DROP VIEW IF EXISTS {name}"] if anew else []
        statements.append(f"CREATE MATERIALIZED VIEW IF NOT EXISTS {name} TO {target.name} AS {select}")
    return statements
