"""What one job is in each backend: series and bytes, made by the sinks' own code from rows of jobs that are played."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from condor_joblens.common.compression import gzipped, gzipped_pieces
from condor_joblens.export.records import RowEncoder
from condor_joblens.export.shared_memory_reader import selected
from condor_joblens.model import classes
from condor_joblens.model.endpoints import Scope
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import ABSENT, METRICS, MetricKind, empty_rows
from condor_joblens.model.servers import Scope as ServerScope
from condor_joblens.sinks import RecordKind, selection
from condor_joblens.sinks.otlp import encode_metrics
from condor_joblens.sinks.prometheus_page import Page

JOBS = 200
SOME = "Cpu.*, Memory.ResidentBytes, Memory.CgroupPeakBytes, Io.*, Tcp.*Bytes"
"""What the table of docs/sizing.md has for a selection by METRICS."""

_BASIC_COUNTED = ("Cpu.", "Memory.", "Io.", "Tcp.", "Process.", "Server.Cvmfs.")
_BASIC_QUIET = (
    "OomKills", "Swap", "Major", "Pressure", "Idle", "Refused", "TimedOut", "Unreachable", "Accepted", "Tcp.Failed",
    "Loopback", "Uninterruptible", "Signalled", "CoreDumps", "EventsLost", "Unsent",
)  # fmt: skip
_IO_COUNTED = (
    "Fs.Local.", "Fs.Cvmfs.Opens", "Fs.Cvmfs.Read", "Syscall.Read.", "Syscall.Write.", "Syscall.Open.Calls",
    "Syscall.Memory.Calls", "Syscall.Network.", "Errors.ENOENT", "Errors.EAGAIN", "Wait.RunningSeconds",
    "Wait.RunQueueSeconds", "Wait.UninterruptibleSeconds", "Wait.SleepSeconds", "Wait.Local.", "Wait.Cvmfs.",
)  # fmt: skip
"""Of the metrics those that such a job has counted in; the others are 0."""

_UNKNOWN = ("Memory.Growth", "Memory.HoursToLimit")
"""Absent: there is no trend."""


def plain_jobs(count: int, is_io: bool) -> Any:
    """Rows (metrics.ROW, shape (count,)) of jobs that read from CVMFS, write locally and have one peer over TCP.

    Values are random, as compression would else find more in common than jobs have; the seed is always the same.
    """
    rows, random = empty_rows(count), np.random.default_rng(1)
    for metric in METRICS:
        if metric.path.startswith(_UNKNOWN) or (metric.level is not Level.BASIC and not is_io):
            rows[metric.column] = float("nan") if metric.is_float else ABSENT
            continue
        rows[metric.column] = 0
        is_basic = metric.level is Level.BASIC
        counted = metric.path.startswith(_BASIC_COUNTED if is_basic else _IO_COUNTED)
        if counted and not (is_basic and any(word in metric.path for word in _BASIC_QUIET)):
            values = random.uniform(1, 36_000, count) if metric.is_float else 10 ** random.uniform(1, 10, count)
            rows[metric.column] = np.round(values, 6)
    node = "node1.example.org"
    for number in range(count):
        rows["global_job_id"][number] = f"ap1.example.org#4711.{number}#1700000000"
        rows["run"][number] = f"ap1.example.org#4711.{number}#1700000000#1"
        rows["job_id"][number] = f"4711.{number}"
        rows["slot"][number] = f"slot1_{number}@{node}"
        rows["cgroup"][number] = f"system.slice/condor.service/htcondor/condor_slot1_{number}@{node}"
    rows["owner"], rows["executable"], rows["execute"] = b"alice", b"reco", b"/var/lib/condor/execute"
    rows["source"], rows["level"], rows["level_number"] = b"bpf", b"io" if is_io else b"basic", 2 if is_io else 1
    rows["run_number"], rows["sequence"] = np.arange(count) + 1, 3000
    rows["start_time"], rows["update_time"] = 1_700_000_000, 1_700_003_000
    rows["period_seconds"], rows["complete"], rows["request_cpus"] = 1.0, True, 1.0
    rows["request_memory_bytes"], rows["lost"] = 2 << 30, 0
    _with_a_server(rows, random)
    return rows


def _with_a_server(rows: Any, random: np.random.Generator) -> None:
    """One mount of CVMFS and one peer, which have all that was counted."""
    cvmfs = list(classes.SERVERS).index("Cvmfs")
    first = rows["servers"][:, 0]
    first["name"], first["class"], first["scope"] = b"/cvmfs/atlas.cern.ch", cvmfs, ServerScope.SERVER
    for column, name in (
        ("requests", "requests"), ("sent_bytes", "sent_bytes"), ("received_bytes", "received_bytes"),
        ("seconds", "seconds"), ("errors", "errors"),
    ):  # fmt: skip
        first[column] = rows[f"server_cvmfs_{name}"]
    peer = rows["endpoints"][:, 0]
    peer["scope"], peer["name"], peer["port"] = Scope.OUTSIDE, b"storage.example.org", 1094
    for column in ("sent_bytes", "received_bytes"):
        peer[column] = rows[f"tcp_{column}"]
    peer["connections"] = random.integers(1, 100, len(rows))


def later(rows: Any, seconds: int, random: np.random.Generator) -> Any:
    """The same jobs so many seconds later: what has been counted in goes on."""
    rows = rows.copy()
    for metric in METRICS:
        if metric.kind is MetricKind.COUNTER:
            grown = rows[metric.column] > 0
            more = random.uniform(0, seconds, len(rows)) if metric.is_float else random.integers(0, 10**6, len(rows))
            rows[metric.column][grown] += more[grown]
            if metric.is_float:
                rows[metric.column] = np.round(rows[metric.column], 6)
    rows["sequence"] += seconds
    rows["update_time"] += seconds
    return rows


def sizes(is_io: bool) -> dict[str, float]:
    """What is measured -> series, or bytes, of one job; compressed together with those of the others."""
    rows = plain_jobs(JOBS, is_io)
    text = Page(lambda: (rows, time.time())).text()
    empty = Page(lambda: (rows[:0], time.time())).text()
    records = RowEncoder("node1.example.org").records(rows, RecordKind.SAMPLE)
    some = RowEncoder("node1.example.org").records(selected(rows, selection.metrics(SOME)), RecordKind.SAMPLE)
    lines, few = ([one.json for one in made] for made in (records, some))
    found = {
        "series on the page": sum(b'job_id="' in line for line in text.splitlines()),
        "the page": len(text) - len(empty),
        "the page, gzip": len(gzipped(text)) - len(gzipped(empty)),
        "a record": sum(map(len, lines)),
        "a record, gzip": len(gzipped(b"\n".join(lines))),
        "a record with METRICS of some": sum(map(len, few)),
        "a record with METRICS of some, gzip": len(gzipped(b"\n".join(few))),
        "OTLP": sum(map(len, encode_metrics(records, "node1.example.org"))),
        "OTLP, gzip": len(gzipped_pieces(encode_metrics(records, "node1.example.org"))),
    }
    return {what: total / JOBS for what, total in found.items()}
