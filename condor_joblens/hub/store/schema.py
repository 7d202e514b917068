"""The store's tables, made from the metric table: the names of records are the names of columns.

A record that comes twice has the same key and is kept once: ReplacingMergeTree, read with FINAL. The key has the node
by its token first: what one node sends never replaces what another sent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
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


COMPACT_BYTES = 100 << 20
"""Of a part of a table, before it is packed: a smaller one is a file, not one a column. There are 400 columns, so an
insert of some thousand rows takes less than half of the CPU (bench_hub.py)."""

VERTICAL_ROWS = 32_768
"""From which on parts with a file a column are merged column by column. That takes half of the CPU that rows take, one
after the other with all of their columns. ClickHouse itself begins at four times as many."""

LEAN = {
    "serialization_info_version": "'with_missing_columns'",
    "skip_empty_columns_on_insert": "1",
    "auto_statistics_types": "''",
    "compute_exact_num_defaults_for_sparse_columns": "0",
}
"""Settings of all tables, as far as the engine knows them: ClickHouse 26.9 knows all. A column that no row of an insert
has is in none of its files, and merges don't look at it. Of 400 columns, jobs at level `basic` have a third. And
nothing is counted of columns that no question asks for. Merges take a third of the CPU that they take else."""


@dataclass(frozen=True)
class Table:
    """One table."""

    name: str
    columns: Mapping[str, str]  # name -> ClickHouse's type
    key: tuple[str, ...]
    days: int
    version: str = ""  # of rows with one key the greatest of this column is kept; empty: the last one inserted

    time: str = "Time"  # a column of epoch seconds

    granule: int = 8192  # rows that are read at a time, for one of them; the engine's own, if it is not said

    wide_bytes: int = COMPACT_BYTES  # of a part that has a file a column

    block_bytes: int = 65536  # of a column that are packed together, at least; the engine's own, if it is not said

    at_once: int = 0  # parts that are merged at a time, at least; 0: as the engine likes

    @property
    def lean(self) -> dict[str, str]:
        """Settings that it has as far as the engine knows them."""
        merges = ("min_parts_to_merge_at_once", "merge_selector_base") if self.at_once else ()
        return {**LEAN, **dict.fromkeys(merges, str(self.at_once))}

    def statement(self, known: Collection[str] = ()) -> str:
        """Makes it, where it is not there. known: settings that the engine knows."""
        columns = ",\n  ".join(f"`{name}` {kind}" for name, kind in self.columns.items())
        return (
            f"CREATE TABLE IF NOT EXISTS {self.name} (\n  {columns}\n) ENGINE = ReplacingMergeTree({self.version})\n"
            f"PARTITION BY toDate(toDateTime({self.time})) ORDER BY ({', '.join(self.key)})\n"
            f"TTL toDateTime({self.time}) + INTERVAL {self.days} DAY\n"
            f"SETTINGS min_bytes_for_wide_part = {self.wide_bytes}, min_compress_block_size = {self.block_bytes}, "
            f"index_granularity = {self.granule}, "
            f"vertical_merge_algorithm_min_rows_to_activate = {VERTICAL_ROWS}"
            f"{''.join(f', {name} = {value}' for name, value in self.lean.items() if name in known)}"
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
_OF_FEW = ("Type", "Node", "Level", "Owner", "AccountingGroup", "Vo", "Schedd")
"""Columns in which many runs have the same text."""

SAMPLES = Table("samples", _RUN, _OF_RUN, DAYS, at_once=8)
"""Each row is merged as often as parts grow by that factor, until they have a day. Half of what a record costs the
store was merges. A job's day is looked for in some parts more, a millisecond each."""
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

VERSION_OF_ROW = "bitShiftLeft(RunNumber, 32) + 2 * Sequence + (Type = 'job')"

LATEST = Table("latest", {**_RUN, "Version": "UInt64"}, ("GlobalJobId", "Run", "Node"), DAYS, "Version", granule=512)
"""The newest record of each run. Pages read all columns of a hundred runs that lie anywhere in it. By granules of 512
rows that takes half of the time, and an insert takes no more. A table that is there already stays as it is."""

LIVE_DAYS = 4
"""How long a run is in LIVE after its last record. That is longer than any may be silent and count as running
(hub/web/states.py). So its last record stays as long as a sample of before could be taken for the newest."""

LIVE_FIELDS = (
    "Type", "Run", "RunNumber", "GlobalJobId", "JobId", "Node", "Time", "StartTime", "UpdateTime", "PeriodSeconds",
    "SinkPeriodSeconds", "Level", "Owner", "AccountingGroup", "Vo", "Executable", "Death", "Servers", "RequestCpus",
    "RequestMemoryBytes", "Slot", "Sequence", "Complete", "HangCause", "Note",
)  # fmt: skip
LIVE_METRICS = (
    "Cpu.RecentCores", "Cpu.Seconds", "Cpu.IdleSeconds", "Memory.ResidentBytes", "Memory.ResidentPeakBytes",
    "Memory.CgroupBytes", "Memory.LimitBytes", "Memory.AnonBytes", "Memory.CgroupAnonBytes", "Memory.CgroupKernelBytes",
    "Io.CallReadBytes", "Io.CallWriteBytes", "Tcp.SentBytes", "Tcp.ReceivedBytes", "Process.Live", "Hang.Suspected",
)  # fmt: skip
_METRIC_TYPES = {metric.path: _metric_type(metric) for metric in METRICS}

LIVE = Table(
    "live",
    {
        **{"RunHash": "UInt64", "JobHash": "UInt64"},
        **{name: "LowCardinality(String)" if name in _OF_FEW else _RUN[name] for name in LIVE_FIELDS},
        **{path: _METRIC_TYPES[path] for path in LIVE_METRICS},
        "Version": "UInt64",
    },
    ("RunHash", "Node", "JobHash"),
    LIVE_DAYS,
    "Version",
    granule=256,
    wide_bytes=1 << 20,
    block_bytes=2048,
)
"""The newest record of each run of late, with few of its columns under the same names. They are those by which pages
choose, sort and sum, and which lists show. For a page of runs that live all of them are read, and FINAL compares keys
of all rows. So `RunHash` and `JobHash` stand in the key for the run and its job: numbers are compared faster. Metrics
are no elements of tuples, which are read whole. A hundred runs that are shown lie anywhere, and of each a granule is
read: a block of each column's file. In parts without such files, each column costs as much as all of them."""


def live_rows(table: str) -> str:
    """Those that records of a table make."""
    metrics = ", ".join(f"{path} AS `{path}`" for path in LIVE_METRICS)
    return (
        f"SELECT sipHash64(Run) AS RunHash, sipHash64(GlobalJobId) AS JobHash, {', '.join(LIVE_FIELDS)}, "
        f"{metrics}, {VERSION_OF_ROW} AS Version FROM {table}"
    )


def live_filled(table: str, where: str) -> str:
    """The statement that puts those of some records there."""
    columns = ", ".join(f"`{name}`" for name in LIVE.columns)
    return f"INSERT INTO {LIVE.name} ({columns}) {live_rows(table)} WHERE {where}"


IDLE_SECONDS = 600.0
NEARLY = 0.95
"""Of the memory that a job may have."""

SUSPECT = (
    f"ifNull(Level != 'off' AND (Hang.Suspected > 0 OR Cpu.IdleSeconds > {IDLE_SECONDS} OR "
    f"(Memory.LimitBytes > 0 AND Memory.CgroupBytes > {NEARLY} * Memory.LimitBytes)), 0)"
)
"""What pages say of a run whose numbers come (hub/web/health.py). Who changes it makes the view of the table below
anew, by a step of migrations."""

_COUNTED = {
    **{name: name for name in ("RunHash", "Node", "JobHash", "Version", "Type", "Level", "Time", "StartTime")},
    "UpdateTime": "UpdateTime",
    "PeriodSeconds": "greatest(ifNull(PeriodSeconds, 0), SinkPeriodSeconds)",
    "Schedd": "splitByChar('#', GlobalJobId)[1]",
    "Job": "bitShiftLeft(toUInt64OrZero(splitByChar('.', JobId)[1]), 32) + toUInt64OrZero(splitByChar('.', JobId)[2])",
    **{name: name for name in ("Owner", "AccountingGroup", "RequestCpus", "RequestMemoryBytes")},
    **{path: f"`{path}`" for path in ("Cpu.RecentCores", "Memory.ResidentBytes")},
    **{path: f"`{path}`" for path in ("Io.CallReadBytes", "Io.CallWriteBytes")},
    **{"IsHanging": "ifNull(Hang.Suspected, 0) > 0", "IsSuspect": SUSPECT},
}
_COUNTED_TYPES = {
    **{"PeriodSeconds": "Float64", "Schedd": "LowCardinality(String)", "Job": "UInt64"},
    **dict.fromkeys(("IsHanging", "IsSuspect"), "Bool"),
}
LIVE_NUMBERS = Table(
    "live_numbers",
    {name: _COUNTED_TYPES.get(name) or LIVE.columns[name] for name in _COUNTED},
    LIVE.key,
    LIVE_DAYS,
    "Version",
    wide_bytes=1 << 20,
)
"""Of LIVE, what is summed and sorted over all runs, and no text that differs from run to run. To read a column of all
of them takes a third of LIVE's time, in which blocks are small."""

NUMBERS = (
    f"(SELECT *, concat(toString(Schedd), '#') AS GlobalJobId, 0 AS SinkPeriodSeconds FROM {LIVE_NUMBERS.name} FINAL)"
)
"""The newest of each run. PeriodSeconds is the sink's, too; and of GlobalJobId, no more than the schedd is known."""

NUMBERS_OF_LIVE = f"SELECT {', '.join(f'{how} AS `{name}`' for name, how in _COUNTED.items())} FROM {LIVE.name}"

SNAPSHOTS = "live_snapshot_"
"""How names of passing tables begin, which are in memory (hub/web/live_snapshots.py). Then come the seconds since the
epoch and something random. No backup has these tables."""

SNAPSHOT_SECONDS = 15
"""That one may take."""


def snapshot_of_live(name: str, since: float) -> str:
    """The statement that makes one: of each run in LIVE that has not ended, the newest record since then.

    It has all columns of LIVE, and those of LIVE_NUMBERS under names that LIVE does not have.
    """
    more = ", ".join(f"{how} AS `{column}`" for column, how in _COUNTED.items() if column not in LIVE.columns)
    return (
        f"CREATE TABLE {name} ENGINE = Memory AS SELECT *, {more} FROM {LIVE.name} FINAL "
        f"WHERE Type = 'sample' AND Time > {since} SETTINGS max_execution_time = {SNAPSHOT_SECONDS}"
    )


_OF_ASKER = ("RunHash", "Node", "JobHash", "Version", "Type", "Time", "StartTime", "UpdateTime", "PeriodSeconds",
             "SinkPeriodSeconds", "Run", "RunNumber", "GlobalJobId", "JobId", "Owner", "AccountingGroup",
             "Servers")  # fmt: skip
LIVE_SERVERS = Table(
    "live_servers", {name: LIVE.columns[name] for name in _OF_ASKER}, LIVE.key, LIVE_DAYS, "Version", wide_bytes=1 << 20
)
"""Of LIVE, the rows with file servers, which few runs have. One whose newest record has none any more, as a policy may
want it, is there until its numbers count as silent."""

SERVERS_OF_LIVE = f"SELECT {', '.join(_OF_ASKER)} FROM {LIVE.name} WHERE Servers != ''"

READING_SECONDS = 360
"""One reading of a run's memory is kept in each such time: it is what leaks are found by, for all runs at once."""

_READING = "toUInt64(Time)"
_PLACE = f"toUInt32(intDiv({_READING}, {READING_SECONDS}))"
READINGS = Table(
    "memory_readings",
    {
        **{"GlobalJobId": "String", "Run": "String", "Node": "LowCardinality(String)", "RunNumber": "UInt64"},
        **{"Place": "UInt32", "Time": "Float64", "Sequence": "UInt64", "Bytes": "Float64"},
    },
    ("GlobalJobId", "Run", "Node", "RunNumber", "Place"),
    1,
    "Sequence",
)
"""Anonymous memory of runs, once in READING_SECONDS. `Place` counts those times since the epoch."""

READINGS_OF_SAMPLES = (
    f"SELECT GlobalJobId, Run, Node, RunNumber, {_PLACE} AS Place, Time, Sequence, "
    "toFloat64(ifNull(Memory.CgroupAnonBytes, ifNull(Memory.AnonBytes, 0))) AS Bytes FROM samples WHERE "
    f"{_READING} % {READING_SECONDS} < greatest(ifNull(PeriodSeconds, 10), SinkPeriodSeconds, 1) "
    "AND isNotNull(ifNull(Memory.CgroupAnonBytes, Memory.AnonBytes))"
)
"""The first sample of each such time, by how often its run's come: one that comes late has no reading."""

SERVER_SECONDS = 120
"""Of samples, one reading of each file server that the run has asked is kept in each such time."""

SERVER_PLACE = 20
"""Seconds in which the last reading replaces the others: as long as lies between two of which a load is made, at least.
So a newest reading never replaces the one that it is compared with."""

_OF_SERVER = {"Requests": "UInt64", "SentBytes": "UInt64", "ReceivedBytes": "UInt64", "Errors": "UInt64"}
SERVER_READINGS = Table(
    "server_readings",
    {
        **{"Name": "String", "Class": "LowCardinality(String)", "Place": "UInt32", "GlobalJobId": "String"},
        **{"Run": "String", "Node": "LowCardinality(String)", "RunNumber": "UInt64", "Sequence": "UInt64"},
        **{"Time": "Float64", "StartTime": "Float64", "Period": "Float64"},
        **{**_OF_SERVER, "Seconds": "Float64", "Whose": "UInt64"},
    },
    ("Name", "Class", "Place", "GlobalJobId", "Run", "Node", "RunNumber"),
    2,
    "Sequence",
)
"""What a run had asked of a server until then. `Place` counts times of SERVER_PLACE since the epoch. `Period`: the
seconds between its samples. `Whose`: WHOSE, by which readings of one run are found faster."""

WHOSE = "sipHash64(Run, Node, RunNumber, Name, Class)"
"""Of which run and server a reading is."""


def server_readings(table: str, is_last: bool) -> str:
    """Those that records of a table make: of samples the first of each time, of last records all."""
    named = "arrayFilter(x -> JSONExtractString(x, 'Name') != '', JSONExtractArrayRaw(Servers))"
    numbers = ", ".join(f"JSONExtractUInt(one, '{name}') AS {name}" for name in _OF_SERVER)
    period = "greatest(ifNull(PeriodSeconds, 10), SinkPeriodSeconds, 1)"
    when = f"{_READING} % {SERVER_SECONDS} < {period}"
    return (
        f"WITH arrayJoin({named}) AS one SELECT JSONExtractString(one, 'Name') AS Name, "
        f"JSONExtractString(one, 'Class') AS Class, toUInt32(intDiv({_READING}, {SERVER_PLACE})) AS Place, "
        f"GlobalJobId, Run, Node, RunNumber, Sequence, Time, ifNull(StartTime, Time) AS StartTime, "
        f"{period} AS Period, {numbers}, "
        f"greatest(0, JSONExtractFloat(one, 'Seconds')) AS Seconds, {WHOSE} AS Whose FROM {table} "
        f"WHERE Servers != '' AND {'1' if is_last else when}"
    )


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

QUEUE_DAYS = 30
"""How long steps of jobs' lives are kept, and a job's state after the last one: no longer than names may stay."""

_STEP = {
    **{"Id": "String", "Type": "LowCardinality(String)", "Schema": "UInt16", "Node": "LowCardinality(String)"},
    **{"Time": "Float64", "GlobalJobId": "String", "JobId": "String", "Owner": "LowCardinality(String)"},
    **{"User": "LowCardinality(String)", "AccountingGroup": "LowCardinality(String)", "Executable": "String"},
    **{"Sequence": "UInt64", "Kind": "LowCardinality(String)", "State": "LowCardinality(String)"},
    **{"Slot": "LowCardinality(String)", "Reason": "String", "Cause": "String"},
    **{name: "Nullable(Int32)" for name in ("Code", "SubCode", "ExitCode", "Signal")},
}
JOB_EVENTS = Table("job_events", _STEP, ("GlobalJobId", "Node", "Id"), QUEUE_DAYS)
"""Steps of jobs' lives, as access points tell them from their event logs (condor_joblens/eventlog)."""

JOB_STATES = Table("job_states", _STEP, ("GlobalJobId", "Node"), QUEUE_DAYS, "Sequence")
"""The last step of each job: its state."""

MACHINES = Table(
    "machines",
    {
        **{"Node": "LowCardinality(String)", "Time": "Float64", "Slots": "UInt32"},
        **{name: "UInt64" for name in ("Cores", "ClaimedCores", "MemoryBytes", "ClaimedMemoryBytes")},
        **{"Version": "LowCardinality(String)", "System": "LowCardinality(String)"},
    },
    ("Node",),
    DAYS,
    "Time",
)
"""Machines as the pool's collector has them: the newest answer (hub/ingest/collector.py). Version is HTCondor's."""

TABLES = (
    *(SAMPLES, JOBS, EVENTS, HEALTH, OTHERS, DOUBTED, LATEST, LIVE, LIVE_NUMBERS, LIVE_SERVERS),
    *(READINGS, SERVER_READINGS),
    *(FAILED_ENDS, HOURS, TOUCHED_HOURS, JOB_EVENTS, JOB_STATES, MACHINES),
)
BY_TYPE = {"sample": SAMPLES, "job": JOBS, "event": EVENTS, "health": HEALTH, "job_event": JOB_EVENTS}
"""Where records of a type go."""


def views(anew: bool) -> list[str]:
    """What fills tables that are made of others' rows. A replayed record changes no sum.

    anew: columns have changed.
    """
    made = [
        (f"latest_of_{table.name}", LATEST, f"SELECT *, {VERSION_OF_ROW} AS Version FROM {table.name}")
        for table in (SAMPLES, JOBS)
    ]
    made += [(f"live_of_{table.name}", LIVE, live_rows(table.name)) for table in (SAMPLES, JOBS)]
    made += [("numbers_of_live", LIVE_NUMBERS, NUMBERS_OF_LIVE), ("servers_of_live", LIVE_SERVERS, SERVERS_OF_LIVE)]
    made.append(("job_states_of_events", JOB_STATES, f"SELECT * FROM {JOB_EVENTS.name}"))
    made.append(("readings_of_samples", READINGS, READINGS_OF_SAMPLES))
    for table in (SAMPLES, JOBS):
        made.append((f"servers_of_{table.name}", SERVER_READINGS, server_readings(table.name, table is JOBS)))
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
