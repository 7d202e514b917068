"""Runs of jobs as plain values, whether read from this node's shared memory or from job ads."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from condor_joblens.common.errors import printable

DEFAULT_RUN_DIR = "/run/joblens"

_POSITIVE = ("request_cpus", "request_memory_bytes", "start_time", "update_time")


@dataclass(frozen=True)
class Run:
    """One run of one job. What is not known is not there."""

    facts: dict[str, Any]  # the columns of metrics.FIELDS
    numbers: dict[str, float]  # "Cpu.Seconds" -> value, the measurements of metrics.METRICS
    ending: str = ""  # how the job ended, in words, where the access point says so
    endpoints: list[dict[str, Any]] = field(default_factory=list)  # as endpoints.records, most bytes first
    servers: list[dict[str, Any]] = field(default_factory=list)  # as servers.records

    def fact(self, column: str) -> str:
        """A text of the run, fit to print; empty where it is not known."""
        return printable(str(self.facts.get(column, "")), 240)

    def number(self, name: str) -> float | None:
        """A measurement, e.g. `Cpu.RecentCores`; None where this kernel or source can't give it."""
        return self.numbers.get(name)

    def members(self, group: str) -> dict[str, dict[str, float]]:
        """The classes of a group that are in use: `members("Fs")["Cvmfs"]["Opens"]`."""
        found: dict[str, dict[str, float]] = {}
        for path, value in self.numbers.items():
            parts = path.split(".")
            if len(parts) == 3 and parts[0] == group:
                found.setdefault(parts[1], {})[parts[2]] = value
        return {member: numbers for member, numbers in found.items() if any(numbers.values())}

    @property
    def memory(self) -> float | None:
        """Bytes of memory now: resident, or what the cgroup is charged with where that alone is known."""
        return self.numbers.get("Memory.ResidentBytes", self.numbers.get("Memory.CgroupBytes"))

    @property
    def memory_peak(self) -> tuple[float | None, str]:
        """Bytes of resident memory that it had at most, and of what, in words: an older node tells less."""
        together = self.number("Memory.ResidentPeakBytes")
        largest = self.number("Memory.LargestProcessPeakBytes")
        if together is None:
            return largest, "in its largest process"
        # what lives shorter than a period is in the kernel's number of one process alone
        return max(together, largest or 0.0), "at its peak"

    @property
    def request_cpus(self) -> float | None:
        """Cores asked for."""
        return self.facts.get("request_cpus")

    @property
    def request_memory(self) -> float | None:
        """Bytes of memory asked for."""
        return self.facts.get("request_memory_bytes")

    @property
    def over(self) -> bool:
        """Whether the job's first process has ended, or HTCondor says that the job has."""
        return bool(self.facts.get("final", False) or self.ending)

    def age(self, now: float) -> float:
        """Seconds since counting began, for a run that is over until its last numbers."""
        start = self.facts.get("start_time", 0)
        end = self.facts.get("update_time", now) if self.over else now
        return max(end - start, 0.0) if start else 0.0

    def record(self) -> dict[str, Any]:
        """The run as JSON: names as in its ads, `JobLensUsage` as condor_q -json shows it."""
        from condor_joblens.model.metrics import FIELDS

        usage: dict[str, Any] = {}
        record: dict[str, Any] = {}
        for each in FIELDS:
            if each.name in self.facts:
                if each.group:
                    usage.setdefault(each.group, {})[each.attribute] = self.facts[each.name]
                elif each.attribute:
                    usage[each.attribute] = self.facts[each.name]
                else:
                    name = "".join(word.capitalize() for word in each.name.split("_"))
                    record[name] = self.facts[each.name]
        for path, value in self.numbers.items():
            *groups, metric = path.split(".")
            place = usage
            for group in groups:
                place = place.setdefault(group, {})
            place[metric] = value
        if self.endpoints:
            usage["Endpoint"] = self.endpoints
        if self.servers:
            usage["Servers"] = self.servers
        if self.ending:
            record["Ending"] = self.ending
        return {**record, "JobLensUsage": usage}


def run_dir(option: str | None) -> str:
    """Where joblensd's files are: `option`, else the default where they are there, else JOBLENS_RUN_DIR.

    HTCondor is asked last because that costs more than everything else that `joblens status` does.
    """
    if option:
        return option
    if os.path.exists(os.path.join(DEFAULT_RUN_DIR, "rows")):
        return DEFAULT_RUN_DIR
    from condor_joblens.common.condor_config import read_macros
    from condor_joblens.common.config_parser import parse
    from condor_joblens.common.errors import JobLensError

    try:
        return parse(read_macros("JOBLENS_RUN_DIR"))[0].run_dir
    except JobLensError:
        return DEFAULT_RUN_DIR


def living(folder: str) -> tuple[list[Run], float]:
    """The runs that go on, in the order of their slots, and when they were taken, epoch seconds.

    Raises JobLensError where joblensd has not published anything that this user may read.
    """
    from condor_joblens.shm.reader import Reader

    rows, time = Reader(os.path.join(folder, "rows")).rows()
    return sorted(from_rows(rows), key=slot_order), time


def ended(folder: str) -> list[Run]:
    """The last runs that ended on this node, the oldest first; none where joblensd has never noted one.

    Raises JobLensError where there are some and they can't be read.
    """
    from condor_joblens.shm.reader import Reader

    path = os.path.join(folder, "ended")
    if not os.path.exists(path):
        return []
    rows, _ = Reader(path).rows()
    return sorted(from_rows(rows), key=lambda run: run.facts.get("update_time", 0))


def from_rows(rows: Any) -> Iterable[Run]:
    """The runs in a record array of metrics.ROW."""
    from condor_joblens.model import endpoints, servers
    from condor_joblens.model.metrics import FIELDS, METRICS, SINGLE, text

    fields = [field.name for field in FIELDS]
    metrics = [metric.path for metric in METRICS]
    listings, asked = rows["endpoints"], rows["servers"]
    with_endpoints = set((listings["scope"][:, 0] != endpoints.Scope.NONE).nonzero()[0].tolist())
    with_servers = set((asked["scope"] != servers.Scope.NONE).any(axis=1).nonzero()[0].tolist())
    for position, row in enumerate(rows[SINGLE].tolist()):
        facts = {}
        for name, value in zip(fields, row):
            if isinstance(value, bytes):
                value = text(value)
            # NaN is not equal to itself; a request or a time of 0 is one that nobody made
            if value != "" and value == value and not (name in _POSITIVE and value <= 0):
                facts[name] = value
        numbers = {name: value for name, value in zip(metrics, row[len(fields) :]) if value >= 0}
        yield Run(
            facts,
            numbers,
            endpoints=endpoints.records(listings[position]) if position in with_endpoints else [],
            servers=servers.records(asked[position]) if position in with_servers else [],
        )


def slot_order(run: Run) -> tuple[Any, ...]:
    """A key that puts slot1_2 before slot1_10."""
    name = str(run.facts.get("slot", ""))
    digits = "".join(c if c.isdecimal() else " " for c in name.partition("@")[0]).split()
    return ([int(d) for d in digits], name)
