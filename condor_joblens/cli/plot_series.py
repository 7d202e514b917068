"""Series of runs over time, from the lines of the sink `file` or a series of prmon's, for `joblens plot`."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.model.classes import FILESYSTEMS
from condor_joblens.sinks.prmon import WALL, read_series


@dataclass(frozen=True)
class Curve:
    """One line of a panel."""

    label: str
    paths: tuple[str, ...]  # in a record: Cpu.UserSeconds; of several the sum
    column: str  # in a series of prmon's; empty: it has none
    scale: float = 1.0  # from the record's unit to the panel's
    column_scale: float = 1.0
    rate: bool = False  # show its growth a second


@dataclass(frozen=True)
class Panel:
    """One picture below another, with a common time."""

    title: str
    unit: str
    curves: tuple[Curve, ...]
    request: str = ""  # what the job asked for, in a record: RequestCpus
    request_scale: float = 1.0


LONGEST = 1 << 20
"""Characters of a line. Longer ones are nobody's records."""

LATEST = 1e11
"""Epoch seconds: no record is of a later time."""

_GIB = 1.0 / (1 << 30)
_MB = 1e-6  # what flows is counted in powers of 1000, as in all commands

_FILES = tuple(f"Wait.{name}.BlockedSeconds" for name in FILESYSTEMS if name != "Socket")

PANELS = (
    Panel(
        "CPU", "cores",
        (
            Curve("user", ("Cpu.UserSeconds",), "utime", rate=True),
            Curve("system", ("Cpu.SystemSeconds",), "stime", rate=True),
        ),
        "RequestCpus",
    ),
    Panel(
        "Memory", "GiB",
        (
            Curve("resident", ("Memory.ResidentBytes",), "rss", _GIB, 1024 * _GIB),
            Curve("swapped", ("Memory.SwapBytes",), "swap", _GIB, 1024 * _GIB),
            Curve("charged", ("Memory.CgroupBytes",), "", _GIB),
        ),
        "RequestMemoryBytes", _GIB,
    ),
    Panel(
        "Input and output", "MB/s",
        (
            Curve("read by calls", ("Io.CallReadBytes",), "rchar", _MB, _MB, True),
            Curve("written by calls", ("Io.CallWriteBytes",), "wchar", _MB, _MB, True),
            Curve("from storage", ("Io.StorageReadBytes",), "read_bytes", _MB, _MB, True),
            Curve("to storage", ("Io.StorageWriteBytes",), "write_bytes", _MB, _MB, True),
        ),
    ),
    Panel(
        "Network", "MB/s",
        (
            Curve("received", ("Tcp.ReceivedBytes",), "rx_bytes", _MB, _MB, True),
            Curve("sent", ("Tcp.SentBytes",), "tx_bytes", _MB, _MB, True),
        ),
    ),
    Panel(
        "Waits, at level io", "threads on average",
        (
            Curve("for a CPU", ("Wait.RunQueueSeconds",), "", rate=True),
            Curve("uninterruptible", ("Wait.UninterruptibleSeconds",), "", rate=True),
            Curve("in files", _FILES, "", rate=True),
            Curve("for locks on files", ("Wait.FileLockSeconds",), "", rate=True),
            Curve("in the network", ("Wait.Socket.BlockedSeconds",), "", rate=True),
        ),
    ),
    Panel(
        "Processes", "",
        (Curve("processes", ("Process.Live",), "nprocs"), Curve("threads", ("Process.Threads",), "nthreads")),
    ),
)  # fmt: skip


@dataclass
class Series:
    """What is known of one run: a value a time, NaN where there is none."""

    name: str
    owner: str = ""
    started: float = float("nan")  # epoch seconds; NaN: not known
    requests: dict[str, float] = field(default_factory=dict)  # title of a panel -> what was asked for, in its unit
    seconds: list[float] = field(default_factory=list)  # since the run's start
    values: dict[str, list[float]] = field(default_factory=dict)  # label -> values

    def add(self, seconds: float, found: Mapping[str, float]) -> None:
        """One more point in time."""
        self.seconds.append(seconds)
        for label in _LABELS:
            self.values.setdefault(label, []).append(found.get(label, float("nan")))


_LABELS = [curve.label for panel in PANELS for curve in panel.curves]


def read(path: str, job: str | None = None) -> list[Series]:
    """The series in a file. Raises JobLensError where there are none."""
    try:
        with _opened(path) as file:
            first = file.readline(LONGEST)
        if first.startswith("Time\t"):
            found = [_of_prmon(path)]
        else:
            with _opened(path) as file:
                found = list(_of_records(file, job).values())
    except (OSError, EOFError) as error:
        raise JobLensError(f"{printable(path)} can't be read: {getattr(error, 'strerror', None) or error}") from None
    found = [series for series in found if len(series.seconds) > 1]
    if not found:
        what = f"two samples of job {printable(job)}" if job else "two samples of a run"
        raise JobLensError(
            f"{printable(path)} has no {what}: name a file of the sink `file`, or a .prmon.txt (its .json has no times)"
        )
    return found


@contextlib.contextmanager
def _opened(path: str) -> Iterator[IO[str]]:
    opener: Any = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8", errors="replace") as file:
        yield file


def _of_prmon(path: str) -> Series:
    series = Series(os.path.basename(path))
    for point in read_series(path):
        with contextlib.suppress(OverflowError):  # whole numbers have no bound
            found = {
                curve.label: point[curve.column] * curve.column_scale
                for panel in PANELS
                for curve in panel.curves
                if curve.column in point
            }
            series.add(float(point[WALL]), found)
    return series


def _of_records(file: IO[str], job: str | None) -> dict[str, Series]:
    runs: dict[str, Series] = {}
    seen: set[str] = set()
    for line in iter(lambda: file.readline(LONGEST), ""):
        try:
            record = json.loads(line)
            if record["Type"] not in ("sample", "job") or record["Id"] in seen:
                continue  # delivered twice
            if (job and not _is(record, job)) or not 0 <= record["StartTime"] <= record["UpdateTime"] < LATEST:
                continue
            found = dict(_found(record))
            series = runs.get(record["Run"]) or runs.setdefault(record["Run"], _named(record))
            seen.add(record["Id"])
            series.add(record["UpdateTime"] - record["StartTime"], found)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            continue  # the file's last line can be half written, and others' lines can be anything
    return runs


def events(path: str, job: str) -> Iterator[Mapping[str, Any]]:
    """Records of starts and ends of processes of a job or a run, in the order of the file. Raises JobLensError."""
    try:
        with _opened(path) as file:
            for line in iter(lambda: file.readline(LONGEST), ""):
                with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
                    record = json.loads(line)
                    if record["Type"] == "event" and record["Kind"] in ("Exec", "Exit") and _is(_with_id(record), job):
                        yield record
    except (OSError, EOFError) as error:
        raise JobLensError(f"{printable(path)} can't be read: {getattr(error, 'strerror', None) or error}") from None


def _with_id(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """An event names its run alone: `ap.example.org#12.0#1700000000#1`."""
    return {**event, "JobId": event["GlobalJobId"].split("#")[-2:][0]}


def _is(record: Mapping[str, Any], job: str) -> bool:
    """Whether a job is named by its id, its cluster, its GlobalJobId or a run: 2.0 is not 12.0."""
    known = record["JobId"]
    return job in (known, known.partition(".")[0], record.get("GlobalJobId"), record["Run"])


def _named(record: Mapping[str, Any]) -> Series:
    requests = {panel.title: record[panel.request] * panel.request_scale for panel in PANELS if panel.request in record}
    return Series(str(record["Run"]), str(record.get("Owner", "")), float(record["StartTime"]), requests)


def _found(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for panel in PANELS:
        for curve in panel.curves:
            values = [value for path in curve.paths if (value := _number(record, path)) is not None]
            if values:
                yield curve.label, sum(values) * curve.scale


def _number(record: Mapping[str, Any], path: str) -> float | None:
    found: Any = record
    for name in path.split("."):
        found = found.get(name, {})
    return found if isinstance(found, (int, float)) else None


def line(series: Series, curve: Curve) -> tuple[np.ndarray, np.ndarray]:
    """Times and values; of a counter its growth a second between two points in time."""
    seconds, values = np.array(series.seconds, "f8"), np.array(series.values[curve.label], "f8")
    known = np.isfinite(values)
    order = np.argsort(seconds[known], kind="stable")
    seconds, values = seconds[known][order], values[known][order]
    if not curve.rate:
        return seconds, values
    later = np.flatnonzero(np.diff(seconds, prepend=-1.0) > 0)  # of several at the same second the first
    seconds, values = seconds[later], values[later]
    if len(seconds) < 2:
        return seconds[:0], values[:0]
    return seconds[1:], np.maximum(np.diff(values), 0) / np.diff(seconds)
