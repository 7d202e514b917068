"""What level io counted, as columns of the metric table."""

from __future__ import annotations

import numpy as np

from condor_joblens.model import classes
from condor_joblens.model.metrics import METRICS
from condor_joblens.tracer import map_layout
from condor_joblens.tracer._bpf import lib

NANO = 1e-9

CALLS = {"Calls": lib.CALL_RETURNS, "Errors": lib.CALL_ERRORS, "Bytes": lib.CALL_BYTES}
FILES = {
    "Opens": lib.FILE_OPENS,
    "FailedOpens": lib.FILE_FAILED_OPENS,
    "ReadBytes": lib.FILE_READ_BYTES,
    "WriteBytes": lib.FILE_WRITE_BYTES,
    "ReadCalls": lib.FILE_READ_CALLS,
    "WriteCalls": lib.FILE_WRITE_CALLS,
}
WAITS = {
    "RunningSeconds": lib.WAIT_RUNNING,
    "RunQueueSeconds": lib.WAIT_RUN_QUEUE,
    "UninterruptibleSeconds": lib.WAIT_UNINTERRUPTIBLE,
    "SleepSeconds": lib.WAIT_SLEEP,
}
UNCOUNTED = {
    lib.UNCOUNTED_32_BIT: "32-bit calls by class",
    lib.UNCOUNTED_AIO: "asynchronous I/O (io_submit)",
    lib.UNCOUNTED_MESSAGES: "bytes of sendmmsg and recvmmsg",
    lib.UNCOUNTED_PATHS: "paths of some failed opens",
    lib.UNCOUNTED_WAITS: "waits of some threads",
    lib.UNCOUNTED_URING: "opens and network of io_uring",
}
"""What of a run was seen and could not be counted, as it is called in `Uncounted`."""


def _places() -> list[tuple[str, str, int]]:
    """Column, field of the counters, index in it."""
    places = []
    errors = [*classes.ERRNOS, "Other"]
    for metric in METRICS:
        if metric.group == "Syscall":
            index = list(classes.SYSCALLS).index(metric.member) * lib.CALL_FIELDS + CALLS[metric.name]
            places.append((metric.column, "calls", index))
        elif metric.group == "Errors":
            places.append((metric.column, "errors", errors.index(metric.name)))
        elif metric.group in ("Fs", "Wait") and metric.member:
            field = FILES[metric.name] if metric.group == "Fs" else lib.FILE_BLOCKED_NS
            index = list(classes.FILESYSTEMS).index(metric.member) * lib.FILE_FIELDS + field
            places.append((metric.column, "files", index))
        elif metric.group == "Wait":
            places.append((metric.column, "waits", WAITS[metric.name]))
    return places


PLACES = _places()
_FIRST = {name: offset // 8 for name, (_, offset, *_) in (map_layout.IO_COUNTERS.fields or {}).items()}
_WORDS = np.array([_FIRST[field] + index for _, field, index in PLACES])
_COUNTS = tuple(column for column, _, _ in PLACES if not column.startswith("wait_"))
_SECONDS = tuple(column for column, _, _ in PLACES if column.startswith("wait_"))


def blocks(counters: np.ndarray) -> dict[tuple[str, ...], np.ndarray]:
    """The columns of n jobs at level io, from layout.IO_COUNTERS of shape (n,): whole numbers together, and seconds.

    Each of shape (n, columns), as they follow one another in a row: what a job's end takes is not to be 172 steps.
    """
    numbers = np.ascontiguousarray(counters).view("i8").reshape(len(counters), -1)[:, _WORDS]
    counts = len(_COUNTS)
    return {_COUNTS: numbers[:, :counts], _SECONDS: numbers[:, counts:] * NANO}


def columns(counters: np.ndarray) -> dict[str, np.ndarray]:
    """The same one by one, each of shape (n,)."""
    of = blocks(counters).items()
    return {column: values[:, place] for names, values in of for place, column in enumerate(names)}


def nothing(count: int) -> dict[str, np.ndarray]:
    """The columns of jobs for which nothing has been counted yet."""
    return columns(np.zeros(count, map_layout.IO_COUNTERS))


def uncounted(counters: np.ndarray) -> list[list[str]]:
    """For each of n jobs what of it was seen and could not be counted."""
    seen = counters["uncounted"] > 0
    return [[name for kind, name in UNCOUNTED.items() if line[kind]] for line in seen]
