"""What a record of a run has: made from the one metric table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from condor_joblens.hub.web.who_sees import Seen, seen_of
from condor_joblens.model.metrics import FIELDS, METRICS, SCHEMA

TEXT, NUMBER, BOOLEAN = "string", "number", "boolean"


@dataclass(frozen=True)
class Column:
    """One of them, by the name that it has in records and in the store."""

    name: str
    type: str  # string, number or boolean
    help: str
    unit: str = ""
    behaviour: str = ""  # of a metric: counter, gauge or peak
    level: str = ""  # of a metric: from which level on it is there
    is_whole: bool = False  # a number that has no fraction

    @property
    def seen(self) -> Seen:
        """Who sees it."""
        return seen_of(self.name)

    @property
    def is_metric(self) -> bool:
        """Whether it has a course over time."""
        return bool(self.behaviour)

    def told(self) -> dict[str, Any]:
        """As JSON has it."""
        words = {"unit": self.unit, "behaviour": self.behaviour, "level": self.level}
        found = {"name": self.name, "type": self.type, "seen": self.seen.name.lower(), "help": self.help}
        return {**found, **{name: word for name, word in words.items() if word}}


_OTHER = (
    Column("Id", TEXT, "the record's name: the run, its number and the record's sequence number"),
    Column("Type", TEXT, "sample: the run goes on; job: its last record"),
    Column("Schema", NUMBER, "the version of these names' meaning"),
    Column("Node", TEXT, "the node that sent the record"),
    Column("Time", NUMBER, "when the node made the record, epoch seconds"),
    Column("Endpoints", TEXT, "a list of network endpoints, as the text of its JSON"),
    Column("Servers", TEXT, "a list of file servers, as the text of its JSON"),
    Column("Cause", TEXT, "why the run failed, without what differs from run to run"),
    Column("SinkPeriodSeconds", NUMBER, "how seldom its node's sink sends samples; 0: each one", "seconds"),
)


def _made() -> dict[str, Column]:
    types = {"S": TEXT, "?": BOOLEAN}
    fields = [
        Column(one.record_name, types.get(one.type[0], NUMBER), one.help, is_whole=one.type[0] in "iu")
        for one in FIELDS
    ]
    metrics = [
        Column(one.path, NUMBER, one.help, one.unit, one.kind.value, one.level.name.lower(), not one.is_float)
        for one in METRICS
    ]
    return {one.name: one for one in (*_OTHER, *fields, *metrics)}


COLUMNS: Mapping[str, Column] = _made()

ALWAYS = ("Run", "Health", "Why", "IsMine", "ExitCode")
"""What each row has beside the columns that were asked for."""

USUAL = ("JobId", "GlobalJobId", "Node", "Owner", "Type", "Level", "StartTime", "UpdateTime", "RequestCpus",
         "RequestMemoryBytes", "Cpu.RecentCores", "Cpu.Seconds", "Memory.ResidentBytes", "Memory.ResidentPeakBytes",
         "Io.CallReadBytes", "Io.CallWriteBytes")  # fmt: skip
"""Columns of a row where a request names none."""


def schema() -> dict[str, Any]:
    """All columns, as JSON has them."""
    return {"schema": SCHEMA, "columns": [column.told() for column in COLUMNS.values()]}
