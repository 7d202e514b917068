"""What a whole site has sent in the last minutes, as bodies of posts: rows that look like those of jobs.

Every run has the metrics that each job has at level `basic`. Counters grow by random steps, gauges wander by some
percent, and what is rare stays 0: memory in swap, OOM kills, failed connections. All dice begin at the run's number,
so a post that is made again is the same.
"""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from condor_joblens.export.records import RowEncoder
from condor_joblens.model import metrics
from condor_joblens.model.metrics import MetricKind
from condor_joblens.sinks import RecordKind

PERIOD = 10
"""Seconds between two samples."""

_RARE = ("swap", "oom", "failed", "retransmits", "core_dumps", "events_lost", "signalled", "hang", "limit", "growth",
         "uninterruptible", "accepted", "unsent", "major")  # fmt: skip
_OFTEN = tuple(
    metric
    for metric in metrics.METRICS
    if metric.level.name == "BASIC" and not metric.path.startswith(("Server.", "Peek."))
)
MOVING = tuple(metric for metric in _OFTEN if not any(word in metric.column for word in _RARE))
"""Metrics that change with each sample."""


@dataclass(frozen=True)
class Runs:
    """Some runs of one node, and how their samples are called."""

    node: str
    begin: int  # number of the first
    count: int
    samples: int  # of each run
    until: int  # when the last one was, epoch seconds
    last: int  # its sequence number

    def posts(self, rounds: int = 1) -> Iterator[tuple[str, bytes]]:
        """The node and a body each: so many samples of each run, in the order of time."""
        encoder = RowEncoder(self.node)
        lines: list[bytes] = []
        for number, rows in enumerate(self._rounds()):
            lines += [record.json for record in encoder.records(rows, RecordKind.SAMPLE)]
            if (number + 1) % rounds == 0 or number + 1 == self.samples:
                yield self.node, gzip.compress(b"\n".join(lines), 1)
                lines = []

    def _rounds(self) -> Iterator[np.ndarray]:
        dice = np.random.default_rng(self.begin)
        rows = self._rows()
        scale = {metric.column: 10.0 ** dice.uniform(0, 6 if metric.unit == "bytes" else 3) for metric in MOVING}
        put_numbers(rows, dice)
        for number in range(self.samples):
            rows["update_time"] = self.until - PERIOD * (self.samples - 1 - number)
            rows["sequence"] = self.last - self.samples + 1 + number
            yield rows
            for metric in MOVING:
                value = rows[metric.column].astype("f8")
                if metric.kind is MetricKind.COUNTER:
                    value += dice.exponential(scale[metric.column], self.count)
                elif metric.kind is MetricKind.GAUGE:
                    value *= 1 + dice.normal(0, 0.02, self.count)
                rows[metric.column] = np.round(value, 3) if metric.is_float else value

    def _rows(self) -> np.ndarray:
        rows = metrics.empty_rows(self.count)
        for place, run in enumerate(range(self.begin, self.begin + self.count)):
            rows["global_job_id"][place], rows["run"][place] = name_of(run), f"{name_of(run)}#1"
            rows["job_id"][place], rows["owner"][place] = f"{run}.0", f"user{run % 50}"
        rows["level"], rows["executable"], rows["slot"] = b"basic", b"reconstruct", b"slot1_1"
        rows["run_number"] = np.arange(self.begin + 1, self.begin + self.count + 1)
        rows["start_time"], rows["period_seconds"] = self.until - 86400, PERIOD
        rows["request_cpus"], rows["request_memory_bytes"] = 1, 4 << 30
        return rows


def put_numbers(rows: np.ndarray, dice: np.random.Generator) -> None:
    """What each run has at first, at level `basic`."""
    for metric in _OFTEN:
        rows[metric.column] = 0
    for metric in MOVING:
        first = dice.lognormal(14 if metric.unit == "bytes" else 3, 2, len(rows))
        rows[metric.column] = np.round(first, 3) if metric.is_float else first


def name_of(run: int) -> str:
    """Its GlobalJobId."""
    return f"ap{run // 2000 % 7}.example.org#{run}.0#1700000000"


def bounded(posts: Iterator[tuple[str, bytes]], most: int) -> Iterator[list[tuple[str, bytes]]]:
    """So many at a time."""
    while some := list(itertools.islice(posts, most)):
        yield some
