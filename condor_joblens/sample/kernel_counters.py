"""The collector of the kernel's counters: processes, memory, I/O and TCP, of what has ended and of what lives.

What has ended is read *before* the walks over threads and connections. A thread that ends in between is then missing
once and never counted twice. A total never goes backwards (totals.py), so such a thread's share comes next round.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from condor_joblens.common.structs import taken
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import METRICS, MetricKind
from condor_joblens.sample import totals
from condor_joblens.sample.collector import NO_RUNS, SampledNode
from condor_joblens.sample.merged_columns import COUNTER, GAUGE, GREATEST, MEAN, SECONDS, Column, MergedColumns, Part
from condor_joblens.tracer import map_layout

PAGE = os.sysconf("SC_PAGE_SIZE")
NANO, MICRO = 1e-9, 1e-6

CONNECTIONS_EVERY = 5.0
"""Seconds between two walks over the open TCP connections: one costs as much as everything else together."""

_TCP = frozenset(metric.column for metric in METRICS if metric.group == "Tcp")

OTHERWISE_NAMED = {"tcp_failed": "connect_failed", "process_live": "processes"}
"""Column of the row -> the field of the kernel's structures that counts it, if that has another name."""

LIVING_PAGES = {
    "memory_anon_bytes": "anon_pages",
    "memory_file_bytes": "file_pages",
    "memory_swap_bytes": "swap_pages",
}


def counted_by(level: Level, kind: MetricKind, fields: tuple[str, ...]) -> dict[str, str]:
    """Column of a metric of this level and kind -> the one of `fields` that counts it.

    A field counts the metric of its name, with the group or without: `minor_faults` is Memory.MinorFaults. So a new
    counter needs its line in model/metrics.py, and its field in the kernel's structure with the code that adds to it.
    """
    found = {}
    for metric in METRICS:
        # a class of calls or of file systems has counters of its own: io_counters.py
        if metric.level is level and metric.kind is kind and not metric.member:
            without_group = metric.column[len(metric.group) + 1 :]
            for field in (OTHERWISE_NAMED.get(metric.column), metric.column, without_group):
                if field in fields:
                    found[metric.column] = field
                    break
    return found


COUNTS = counted_by(Level.BASIC, MetricKind.COUNTER, map_layout.COUNTERS.names or ())
"""Those in map_layout.TOTALS have a living part as well."""

LIVING = counted_by(Level.BASIC, MetricKind.GAUGE, map_layout.LIVING.names or ())


@dataclass(frozen=True)
class SamplePlan:
    """What a round is about to read."""

    runs: np.ndarray  # that the kernel counts, shape (n,)
    slots: np.ndarray  # their indices in the tracer
    has_open: bool  # any of them has open connections
    walks: bool  # over the open connections


@dataclass(frozen=True)
class Reading:
    """What the kernel had counted: arrays of shape (n,), for the runs of the plan."""

    runs: np.ndarray
    slots: np.ndarray
    ended: np.ndarray  # map_layout.COUNTERS
    walked: np.ndarray | None  # map_layout.LIVING: the open connections, if they were walked over
    unmet: np.ndarray | None  # of bool: the walk has not met all that were open before and after it


class KernelCounters:
    """What the tracer counts of every job, and what other collectors list shares of."""

    name = "counters of the kernel"

    def __init__(self, node: SampledNode) -> None:
        self.runs = NO_RUNS
        self.plan: SamplePlan | None = None
        """Made by `prepare`; None if that failed."""
        self.reading: Reading | None = None
        """Made by `read`; None if that failed."""
        self._node = node
        self._next_connections = 0.0  # CLOCK_MONOTONIC
        unknown = node.tracer.unknown
        self._merged, self._merged_without_tcp = merged(unknown), merged(unknown | _TCP)
        made = columns(np.zeros(0, map_layout.COUNTERS), _nothing(0), _nothing(0))
        self.columns = tuple(column for column in made if column not in unknown)

    def prepare(self, runs: np.ndarray, at_end: bool) -> None:
        """Decides whether the connections are walked over, which takes long: at the end only if any is open."""
        self.plan = self.reading = None
        self.runs = runs = self.counted(runs)
        slots = self._node.runs.state["kernel_slot"][runs]
        is_due = at_end
        if not at_end and len(runs):
            now = time.monotonic()
            is_due = now >= self._next_connections
            if is_due:
                self._next_connections = now + CONNECTIONS_EVERY
        has_open = self._has_open(runs, slots)
        self.plan = SamplePlan(runs, slots, has_open, has_open and is_due)

    def walk_next_time(self) -> None:
        """The next `read` walks over the open connections, however short ago the last one did."""
        self._next_connections = 0.0

    def counted(self, runs: np.ndarray) -> np.ndarray:
        """Those of `runs` that the kernel counts, and whose job has begun."""
        slots = self._node.runs.state["kernel_slot"][runs]
        counted = slots >= 0
        counted[counted] = self._node.tracer.counters["awaits_exec"][slots[counted]] == 0
        found: np.ndarray = runs[counted]
        return found

    def any_open(self, runs: np.ndarray) -> bool:
        """Whether any of the runs that the kernel counts has open connections."""
        counted = self.counted(runs)
        return self._has_open(counted, self._node.runs.state["kernel_slot"][counted])

    def _has_open(self, runs: np.ndarray, slots: np.ndarray) -> bool:
        counters = self._node.tracer.counters
        if (counters["connected"][slots] + counters["accepted"][slots] != counters["closed"][slots]).any():
            return True
        # a job that is older than the tracer can have connections that were never seen to open: the walk met them
        late = slots[~self._node.runs.rows["complete"][runs]]
        return bool(self._node.tracer.connections["connections"][late].any())

    def read(self, runs: np.ndarray, at_end: bool) -> None:
        """The totals of what has ended, then what lives.

        At the end the threads are not walked over: what lives on is known from the round before. How many processes do
        is known from those that began and ended.
        """
        plan, tracer, table = self.plan, self._node.tracer, self._node.runs
        assert plan is not None
        ended, walked, unmet = taken(tracer.counters, plan.slots), None, None
        if not len(plan.runs):
            self.reading = Reading(plan.runs, plan.slots, ended, None, None)
            return
        if not at_end:
            tracer.count_living()
        living = None if at_end else taken(tracer.living, plan.slots)
        if plan.walks:
            opened = ended["connected"] + ended["accepted"]
            tracer.count_connections()
            walked = taken(tracer.connections, plan.slots)
            # those that the walk met have been counted when they opened
            for name in ("connected", "accepted", "closed"):
                ended[name] = tracer.counters[name][plan.slots]
            # the walk meets all that were open before it and are still open after it
            unmet = (opened - ended["closed"]).astype("i8") > walked["connections"].astype("i8")
        # a closed connection's bytes without those of the open ones would be less than was published
        known = self._merged_without_tcp if plan.has_open and walked is None else self._merged
        lived_before = table.rows["process_live"][plan.runs]
        known.merge(table.rows, table.state["offset"], plan.runs, (ended, living, walked))
        if at_end and "process_forked" not in tracer.unknown:
            table.rows["process_live"][plan.runs] = left(ended, lived_before)
        self.reading = Reading(plan.runs, plan.slots, ended, walked, unmet)

    def rebase(self, run: int) -> None:
        """What the tracer has counted of its slot by now is not added to its totals."""
        tracer, table = self._node.tracer, self._node.runs
        slots = table.state["kernel_slot"][[run]]
        tracer.count_living()
        tracer.count_connections()
        found = columns(tracer.counters[slots], tracer.living[slots], tracer.connections[slots])
        known = {column: values for column, values in found.items() if column not in tracer.unknown}
        totals.rebase(table.rows, table.state["offset"], run, known)

    def reset(self, run: int) -> None:
        """The kernel itself begins anew, with the job's first instruction: see Tracer.begin_at_next_exec."""

    def forget(self, run: int) -> None:
        """Nothing is kept beside the state."""


def left(ended: np.ndarray, before: np.ndarray) -> np.ndarray:
    """How many processes live on in n slots whose first process has ended, shape (n,) of i8.

    `ended` is of map_layout.COUNTERS, `before` (n,) what lived in the round before. It is all that is known of a slot
    whose job has begun before the programs.
    """
    is_counted = (ended["main_tgid"] > 0) & (ended["main_start_ns"] == 0)
    counted = (ended["forked"] + np.uint64(1) - ended["exited"]).astype("i8")
    found: np.ndarray = np.maximum(np.where(is_counted, counted, before - 1), 0)
    return found


def _nothing(slots: int) -> np.ndarray:
    nothing: np.ndarray = np.zeros(slots, map_layout.LIVING)
    return nothing


def columns(ended: np.ndarray, living: np.ndarray, connections: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of n slots, each of shape (n,).

    `ended` (map_layout.COUNTERS) must have been read *before* the iterators filled `living` and `connections`
    (map_layout.LIVING). Sums wrap as the kernel's do, so that a negative start comes out right.
    """
    found: dict[str, np.ndarray] = {}
    for column, field in COUNTS.items():
        total = ended[field]
        if field in map_layout.TOTALS:
            total = total + living[field] + connections[field]
        found[column] = total.astype("i8")
    found["cpu_run_queue_seconds"] = (ended["run_queue_ns"] + living["run_queue_ns"]).astype("i8") * NANO
    for column, field in LIVING.items():
        found[column] = living[field].astype("i8")
    for column, field in LIVING_PAGES.items():
        found[column] = living[field].astype("i8") * PAGE
    found["memory_resident_bytes"] = found["memory_anon_bytes"] + found["memory_file_bytes"]
    found["memory_resident_peak_bytes"] = found["memory_resident_bytes"]
    peak = np.maximum(ended["ended_peak_pages"], living["peak_pages"])
    found["memory_largest_process_peak_bytes"] = peak.astype("i8") * PAGE
    opened = (ended["connected"] + ended["accepted"] - ended["closed"]).astype("i8")
    found["tcp_open"] = np.maximum(opened, connections["connections"].astype("i8"))
    found["tcp_unsent_bytes"] = connections["unsent_bytes"].astype("i8")
    found["tcp_rtt_seconds"] = _mean_rtt(ended, connections)
    return found


def summed(fields: Mapping[str, str], ended: int, *living: int) -> list[Column]:
    """Counters (column -> field) of the source `ended` (map_layout.COUNTERS), and of the sources `living` (LIVING)."""
    found = []
    for name, field in fields.items():
        parts = [_of_living(field, source) for source in living if field in map_layout.TOTALS]
        found.append(Column(name, COUNTER, (Part(ended, map_layout.COUNTERS, field), *parts)))
    return found


def merged(left_out: frozenset[str]) -> MergedColumns:
    """The same columns in one pass, but those of `left_out`, from ended, living and connections.

    Instead of the last two there may be None, if nothing was looked at.
    """
    pages = {name: [_of_living(field, _LIVE)] for name, field in LIVING_PAGES.items()}
    pages["memory_resident_bytes"] = pages["memory_anon_bytes"] + pages["memory_file_bytes"]
    opened = (_of_ended("connected"), _of_ended("accepted"), _of_ended("closed", -1))
    rtt = [part for field in ("rtt_us", "rtt_count") for part in (_of_ended(field), _of_living(field, _WALKED))]
    gauges = {**LIVING}
    unsent = gauges.pop("tcp_unsent_bytes")
    peak = "memory_largest_process_peak_bytes"
    every = [
        *summed(COUNTS, _ENDED, _LIVE, _WALKED),
        Column("cpu_run_queue_seconds", SECONDS, (_of_ended("run_queue_ns"), _of_living("run_queue_ns", _LIVE))),
        *(Column(name, GAUGE, (_of_living(field, _LIVE),)) for name, field in gauges.items()),
        *(Column(name, GAUGE, tuple(parts), PAGE) for name, parts in pages.items()),
        Column("memory_resident_peak_bytes", GREATEST, tuple(pages["memory_resident_bytes"]), PAGE),
        Column(peak, GREATEST, (_of_ended("ended_peak_pages"),), PAGE),
        Column(peak, GREATEST, (_of_living("peak_pages", _LIVE),), PAGE),
        Column("tcp_open", GAUGE, opened),
        Column("tcp_open", GREATEST, (_of_living("connections", _WALKED),)),
        Column("tcp_unsent_bytes", GAUGE, (_of_living(unsent, _WALKED),)),
        Column("tcp_rtt_seconds", MEAN, tuple(rtt)),
    ]
    return MergedColumns([column for column in every if column.name not in left_out])


_ENDED, _LIVE, _WALKED = range(3)


def _of_ended(field: str, sign: int = 1) -> Part:
    return Part(_ENDED, map_layout.COUNTERS, field, sign=sign)


def _of_living(field: str, source: int) -> Part:
    return Part(source, map_layout.LIVING, field)


def _mean_rtt(ended: np.ndarray, connections: np.ndarray) -> np.ndarray:
    count = ended["rtt_count"] + connections["rtt_count"]
    total = (ended["rtt_us"] + connections["rtt_us"]) * MICRO
    mean: np.ndarray = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return mean


def held_bytes(found: np.ndarray) -> np.ndarray:
    """What the OOM killer's victims held when they were chosen, shape (n,).

    The kernel keeps a part of it per CPU (from 6.2 on) until a process ends. If the exact peak is only a little more
    than the rest, the process was at its peak. An eighth is more than those parts are, except of very small victims.
    """
    held: np.ndarray = found["resident_pages"].astype("i8")
    peak: np.ndarray = found["peak_pages"].astype("i8")
    at_peak = (held == 0) | (peak - held < peak // 8)
    bytes_held: np.ndarray = np.where(at_peak, peak, held) * PAGE
    return bytes_held
