"""The collector of level io: system calls, file systems, errors and waits, which the kernel counts in wide counters."""

from __future__ import annotations

import numpy as np

from condor_joblens.model import classes
from condor_joblens.model.metrics import METRICS
from condor_joblens.sample import totals
from condor_joblens.sample.collector import NO_RUNS, SampledNode, SourceFailed, declare_uncounted, have_their_cgroups
from condor_joblens.sample.kernel_counters import KernelCounters
from condor_joblens.sample.merged_columns import COUNTER, SECONDS, Column, MergedColumns, Part
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
    lib.UNCOUNTED_URING: "opens, network and multishot reads of io_uring",
    lib.UNCOUNTED_SLEEPERS: "file systems of some waits",
    lib.UNCOUNTED_UNTOLD: "io_uring without completions",
    lib.UNCOUNTED_MAPPED: "mapped files of some file servers",
}
"""What of a run was seen and could not be counted, as `Uncounted` calls it."""


def _places() -> list[tuple[str, str, int]]:
    """Column of the row, field of the kernel's counters, index in the field."""
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
        elif metric.column == "wait_file_lock_seconds":
            places.append((metric.column, "file_lock_ns", 0))
        elif metric.group == "Wait":
            places.append((metric.column, "waits", WAITS[metric.name]))
    return places


PLACES = _places()
_FIRST = {name: offset // 8 for name, (_, offset, *_) in (map_layout.IO_COUNTERS.fields or {}).items()}
_WORDS = np.array([_FIRST[field] + index for _, field, index in PLACES])
_SECONDS = "wait_"
"""What the columns begin with that are times."""

MERGED = MergedColumns(
    [
        Column(
            column,
            SECONDS if column.startswith(_SECONDS) else COUNTER,
            (Part(0, map_layout.IO_COUNTERS, field, index),),
        )
        for column, field, index in PLACES
    ]
)
"""The same, as they come into rows: from map_layout.IO_COUNTERS."""


class IoCounters:
    """What is counted of jobs at level io."""

    name = "counters of level io"
    columns = tuple(column for column, _, _ in PLACES)

    def __init__(self, node: SampledNode, kernel: KernelCounters) -> None:
        self.runs = NO_RUNS
        self._node = node
        self._kernel = kernel

    def prepare(self, runs: np.ndarray, at_end: bool) -> None:
        """Nothing."""

    def read(self, runs: np.ndarray, at_end: bool) -> None:
        """The counters of those that are at level io, of all CPUs together."""
        plan = self._kernel.plan
        if plan is None:
            raise SourceFailed("which jobs the kernel counts is unknown")
        at_io = self._node.tracer.counters["io_key"][plan.slots] > 0
        at_io &= ~self._node.runs.state["io_provisional"][plan.runs]
        at_io &= have_their_cgroups(self._node, plan.runs)  # a CPU may take the next job for it, for a moment
        self.runs = plan.runs[at_io]
        if len(self.runs):
            counted, numbers = self._node.tracer.sensors["io"].counters(plan.slots[at_io])
            self._merge(self.runs[counted], numbers)

    def _merge(self, runs: np.ndarray, counted: np.ndarray) -> None:
        """The numbers of `runs` (n,): map_layout.IO_COUNTERS, shape (n,)."""
        table = self._node.runs
        MERGED.merge(table.rows, table.state["offset"], runs, (counted,))
        for run, names in zip(runs.tolist(), uncounted(counted)):
            declare_uncounted(table.rows, run, [*self._node.tracer.sensors["io"].missing, *names])

    def begin(self, run: int) -> None:
        """The kernel counts the run from nothing on: its totals go on from where they are."""
        totals.rebase(self._node.runs.rows, self._node.runs.state["offset"], run, nothing(1))

    def add(self, run: int, counted: np.ndarray) -> None:
        """What is counted of the run (map_layout.IO_COUNTERS, shape (1,)), outside of the rounds: its totals stand."""
        self._merge(np.array([run]), counted)

    def rebase(self, run: int) -> None:
        """The kernel counts from nothing on whenever a run comes to level io: see `begin`."""

    def reset(self, run: int) -> None:
        """The same."""

    def forget(self, run: int) -> None:
        """Nothing is kept beside the state."""


def columns(counters: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of n jobs at level io, from map_layout.IO_COUNTERS of shape (n,): each of shape (n,)."""
    numbers = np.ascontiguousarray(counters).view("i8").reshape(len(counters), -1)[:, _WORDS]
    return {
        column: numbers[:, place] * NANO if column.startswith(_SECONDS) else numbers[:, place]
        for place, (column, _, _) in enumerate(PLACES)
    }


def nothing(count: int) -> dict[str, np.ndarray]:
    """The columns of `count` jobs of which nothing has been counted yet."""
    return columns(np.zeros(count, map_layout.IO_COUNTERS))


def uncounted(counters: np.ndarray) -> list[list[str]]:
    """For each of n jobs the names of what was seen and could not be counted."""
    seen = counters["uncounted"] > 0
    return [[name for kind, name in UNCOUNTED.items() if line[kind]] for line in seen]


def calls_and_bytes(counted: np.ndarray) -> tuple[int, int]:
    """How many system calls are in `counted` (map_layout.IO_COUNTERS, shape (n,)), and how much they have moved."""
    calls = counted["calls"].reshape(-1, lib.CALL_FIELDS)
    return int(calls[:, lib.CALL_RETURNS].sum()), int(calls[:, lib.CALL_BYTES].sum())
