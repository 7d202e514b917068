"""What prmon would have written about each job: its summary (JSON) and its time series, without any wrapper.

Names and units are prmon's: memory in kB, times in whole seconds. What JobLens does not measure (pss, vmem, packets) is
left out, as prmon does for what it can't measure.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from condor_joblens import __version__
from condor_joblens.common import files
from condor_joblens.common.errors import JobLensError
from condor_joblens.sinks import (
    DELIVERED,
    DeliveryResult,
    Diagnosis,
    Record,
    RecordKind,
    Sink,
    SinkContext,
    SinkKnob,
    folders,
    parsers,
)

SERIES, SUMMARY = ".prmon.txt", ".prmon.json"
_MODE = 0o640
_REMEDY = "make it writable for the user joblens, or set JOBLENS_SINK_PRMON_FOLDER"
_CLEAN_EVERY = 600.0
_MOST_RUNS = 20000


@dataclass(frozen=True)
class PrmonColumn:
    """One of prmon's statistics."""

    name: str
    group: str  # where the record has it
    metric: str
    divisor: int = 1  # ours are bytes, prmon's memory is in kB
    average: str = "mean"  # of a gauge; `rate` of a counter, a second; empty: prmon has none


COLUMNS = (
    PrmonColumn("nprocs", "Process", "Live"),
    PrmonColumn("nthreads", "Process", "Threads"),
    PrmonColumn("stime", "Cpu", "SystemSeconds", average=""),
    PrmonColumn("utime", "Cpu", "UserSeconds", average=""),
    PrmonColumn("rchar", "Io", "CallReadBytes", average="rate"),
    PrmonColumn("read_bytes", "Io", "StorageReadBytes", average="rate"),
    PrmonColumn("wchar", "Io", "CallWriteBytes", average="rate"),
    PrmonColumn("write_bytes", "Io", "StorageWriteBytes", average="rate"),
    PrmonColumn("rss", "Memory", "ResidentBytes", 1024),
    PrmonColumn("swap", "Memory", "SwapBytes", 1024),
    PrmonColumn("rx_bytes", "Tcp", "ReceivedBytes", average="rate"),
    PrmonColumn("tx_bytes", "Tcp", "SentBytes", average="rate"),
)
"""In the order of prmon's columns; `wtime` follows them."""

WALL = "wtime"

Point = dict[str, int]
"""One line of the series: name -> value."""


def point(fields: Mapping[str, Any]) -> Point:
    """What prmon would have written for this record of a run."""
    found: Point = {"Time": int(fields["UpdateTime"])}
    for column in COLUMNS:
        value = fields.get(column.group, {}).get(column.metric)
        if value is not None:
            found[column.name] = int(value) // column.divisor
    found[WALL] = max(0, int(fields["UpdateTime"]) - int(fields.get("StartTime", fields["UpdateTime"])))
    return found


def summary(series: Sequence[Mapping[str, int]], hardware: Mapping[str, Any]) -> dict[str, Any]:
    """prmon's JSON for a series that is not empty."""
    wall = series[-1][WALL]
    greatest = {WALL: wall}
    average: dict[str, float] = {}
    for column in COLUMNS:
        values = [point[column.name] for point in series if column.name in point]
        if not values:
            continue
        greatest[column.name] = max(values)
        if column.average == "mean":
            average[column.name] = round(sum(values) / len(values), 3)
        elif column.average == "rate":
            average[column.name] = round(values[-1] / wall, 3) if wall else 0.0
    return {
        "Avg": dict(sorted(average.items())),
        "HW": hardware,
        "Max": dict(sorted(greatest.items())),
        "prmon": {"Version": f"condor_joblens {__version__}"},
    }


def hardware() -> dict[str, Any]:
    """The machine, as prmon's HW."""
    cpu: dict[str, Any] = {"CPUs": os.cpu_count() or 0}
    names = {"model name": "ModelName", "cpu cores": "CoresPerSocket"}
    sockets: set[str] = set()
    threads = 0
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as info:
        for line in info:
            key, _, value = (part.strip() for part in line.partition(":"))
            if key in names:
                cpu.setdefault(names[key], int(value) if value.isdigit() else value)
            elif key == "physical id":
                sockets.add(value)
            elif key == "siblings" and value.isdigit():
                threads = int(value)
    if sockets:
        cpu["Sockets"] = len(sockets)
    if threads and cpu.get("CoresPerSocket"):
        cpu["ThreadsPerCore"] = max(1, threads // int(cpu["CoresPerSocket"]))
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024
    return {"cpu": dict(sorted(cpu.items())), "mem": {"MemTotal": total}}


@dataclass(frozen=True)
class _Last:
    """The last line of a series."""

    sequence: int
    time: int  # epoch seconds
    is_ours: bool  # not a process's before this one, whose records may come once more

    def is_over(self, record: Record, interval: float) -> bool:
        """Whether the next line is due with this record; a clock that was put back makes it due too."""
        sequence = int(record.id.rpartition("/")[2])
        return sequence > self.sequence and not 0 <= record.time - self.time < interval


class PrmonSink(Sink):
    """A record is delivered once it is in its run's files, or would be a line too many."""

    name = "prmon"
    takes = frozenset({RecordKind.SAMPLE, RecordKind.JOB})
    selects = False  # its files have columns of their own, and INTERVAL
    knobs = (
        SinkKnob("FOLDER", "/var/lib/joblens/prmon", parsers.file, "folder", "where the files of each run are written"),
        SinkKnob("INTERVAL", "30", parsers.integer(1, 86400), "seconds", "time between two lines of a run's series"),
        SinkKnob("SECONDS", "604800", parsers.integer(1, 1 << 32), "seconds", "how long the files of a run are kept"),
    )

    def __init__(self, settings: Mapping[str, Any], context: SinkContext) -> None:
        super().__init__(settings, context)
        self._folder: str = settings["folder"]
        self._last: dict[str, _Last] = {}  # run ->
        self._hardware: dict[str, Any] = {}
        self._next_cleaning = 0.0

    def start(self) -> None:
        """Makes the folder. Raises JobLensError."""
        try:
            os.makedirs(self._folder, 0o750, exist_ok=True)
        except OSError as error:
            raise JobLensError(f"{self._folder}: {error.strerror}: {_REMEDY}") from None
        self._hardware = hardware()

    def deliver(self, batch: Sequence[Record]) -> DeliveryResult:
        """Lines that are due, and the summaries of runs that have ended."""
        for position, record in enumerate(batch):
            try:
                self._take(record)
            except OSError as error:
                return DeliveryResult(range(position, len(batch)), reason=f"{self._folder}: {error.strerror}")
        if time.monotonic() >= self._next_cleaning:
            self._next_cleaning = time.monotonic() + _CLEAN_EVERY
            with contextlib.suppress(OSError):
                self._clean()
        return DELIVERED

    def _take(self, record: Record) -> None:
        # Run/number/sequence[/final]
        run, _, sequence = record.id.removesuffix("/final").rpartition("/")
        last = self._last.get(run)
        if (
            record.kind is RecordKind.SAMPLE
            and last is not None
            and not last.is_over(record, self.settings["interval"])
        ):
            return
        fields = record.fields()
        path = self._path(str(fields["Run"]))
        if last is None:
            last = _Last(-1, max((point["Time"] for point in read_series(path + SERIES)), default=-1), False)
        now = point(fields)
        if now["Time"] > last.time or (now["Time"] < last.time and last.is_ours):
            _append(path + SERIES, now)
            last = _Last(int(sequence), now["Time"], True)
        if record.kind is RecordKind.JOB:
            self._last.pop(run, None)
            self._summarize(path)
        else:
            if len(self._last) > _MOST_RUNS:
                self._last.clear()
            self._last[run] = last

    def _path(self, run: str) -> str:
        """`#` is what GlobalJobIds are full of; everything else that is not plain becomes an underline."""
        return os.path.join(self._folder, re.sub(r"[^A-Za-z0-9._#@+-]", "_", run).lstrip(".")[:200])

    def _summarize(self, path: str) -> None:
        series = read_series(path + SERIES)
        if not series:
            return
        content = json.dumps(summary(series, self._hardware), indent=2) + "\n"
        files.write(path + SUMMARY, content.encode(), _MODE)

    def _clean(self) -> None:
        """Removes what is too old. A run that lives has a new line now and then."""
        oldest = time.time() - self.settings["seconds"]
        with os.scandir(self._folder) as entries:
            for entry in entries:
                ours = entry.name.endswith((SERIES, SUMMARY)) and entry.is_file(follow_symlinks=False)
                if ours and entry.stat(follow_symlinks=False).st_mtime < oldest:
                    os.unlink(entry.path)

    def check(self) -> Iterable[Diagnosis]:
        """Whether the folder can be written into, or made."""
        if refused := folders.refusal(self._folder):
            return [Diagnosis(False, refused, _REMEDY)]
        return [Diagnosis(True, f"writes into {self._folder}")]


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)


def _append(path: str, now: Point) -> None:
    names = ["Time", *(column.name for column in COLUMNS), WALL]
    file = _open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        before = os.fstat(file).st_size
        line = "\t".join(str(now.get(name, "")) for name in names) + "\n"
        content = (("\t".join(names) + "\n" + line) if before == 0 else line).encode()
        if os.write(file, content) != len(content):
            os.ftruncate(file, before)
            raise OSError(28, os.strerror(28))
    finally:
        os.close(file)


def read_series(path: str) -> list[Point]:
    """A file of prmon's, or one of ours: a line a point. Nothing where there is none; broken lines are left out."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            names = file.readline().rstrip("\n").split("\t")
            lines = [line.rstrip("\n").split("\t") for line in file if line.endswith("\n")]
    except FileNotFoundError:
        return []
    if names[0] != "Time":
        return []
    series = []
    for line in lines:
        with contextlib.suppress(ValueError):
            found = {name: int(value) for name, value in zip(names, line) if value}
            if len(line) == len(names) and "Time" in found and WALL in found:
                series.append(found)
    return series
