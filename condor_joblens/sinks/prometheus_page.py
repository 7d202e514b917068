"""The Prometheus page of the rows: text, made column by column.

prometheus-client makes an object and a line at a time, 6 µs each: over a second for a thousand jobs at level io.
Here a metric is one template in which only the numbers change, kept from page to page while the same jobs run. Families
and types come from the metric table. A job's series vanish with its row. A counter that is 0 has no series: most of
those of level io are never anything else.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from condor_joblens.common.compression import gzipped
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.model import metrics
from condor_joblens.sinks import Rows, server_families
from condor_joblens.sinks.decimals import decimals
from condor_joblens.sinks.row_numbers import FLOATS, numbers

LABELS = ("slot", "job_id", "schedd", "owner")
"""Of every series: what tells apart the jobs that run on a node at a time, and whose they are. All else is in
joblens_job_info, so that a series does not carry it. (Not `job`: Prometheus calls its targets so.)"""

INFO = ("run", "execute", "level", "source", "accounting_group", "vo", "executable")
"""What joblens_job_info says besides."""

MORE_LABELS = ("accounting_group", "vo", "executable")
"""What a site can have as labels of every series, too. They stay what they are while a job runs: no series more."""

_WHO = ("slot", "job_id", "global_job_id", "owner", *INFO, "start_time")
"""The columns that labels and `_about` are made of."""

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_FAMILIES: dict[str, list[int]] = {}  # name -> places in METRICS
for _place, _metric in enumerate(metrics.METRICS):
    _FAMILIES.setdefault(_metric.family, []).append(_place)
_SCALES: np.ndarray = np.array([metric.family_scale for metric in metrics.METRICS])
_COUNTERS: np.ndarray = np.array([metric.kind is metrics.MetricKind.COUNTER for metric in metrics.METRICS])
_INTEGERS, _FLOATS = np.flatnonzero(~FLOATS).tolist(), np.flatnonzero(FLOATS).tolist()

_LONGEST = 100  # characters of a label's value
_KEPT_SECONDS = 1.0  # of a page, where joblensd publishes more rarely: its own numbers change too


class Page:
    """The page, ready to be served from any thread; one that many ask for at a time is made once."""

    def __init__(
        self, rows: Rows, own: Callable[[], Iterable[Metric]] = tuple, more_labels: Sequence[str] = ()
    ) -> None:
        """own: the families of the exporter itself, as prometheus-client has them; more_labels: of MORE_LABELS."""
        self._rows, self._own = rows, own
        self._lock = threading.Lock()
        self._templates = _Templates(more_labels)
        self._pages: dict[tuple[bool, bool], bytes] = {}  # (openmetrics, compressed) -> page
        self._taken: float | None = None
        self._made = 0.0

    def text(self, openmetrics: bool = False, compressed: bool = False) -> bytes:
        """The page in the text format 0.0.4 or as OpenMetrics, as gzip if compressed. Waits while a thread makes it."""
        with self._lock:
            try:
                rows, taken = self._rows()
            except JobLensError:
                rows, taken = None, None
            now = time.monotonic()
            if taken is None or taken != self._taken or now - self._made > _KEPT_SECONDS:
                self._pages.clear()
                self._taken, self._made = taken, now
            if (openmetrics, False) not in self._pages:
                self._pages[openmetrics, False] = b"".join(self._parts(rows, taken, openmetrics))
            if (openmetrics, compressed) not in self._pages:
                self._pages[openmetrics, True] = gzipped(self._pages[openmetrics, False])
            return self._pages[openmetrics, compressed]

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        """As a WSGI application, in the format that the client wants."""
        openmetrics = "application/openmetrics-text" in environ.get("HTTP_ACCEPT", "")
        compressed = "gzip" in environ.get("HTTP_ACCEPT_ENCODING", "")
        page = self.text(openmetrics, compressed)
        headers = [("Content-Type", OPENMETRICS if openmetrics else TEXT), ("Content-Length", str(len(page)))]
        start_response("200 OK", [*headers, ("Content-Encoding", "gzip")] if compressed else headers)
        return [page]

    def _parts(self, rows: np.ndarray | None, taken: float | None, openmetrics: bool) -> Iterator[bytes]:
        live = None if rows is None else self._templates.take(rows[~rows["final"]])
        own = _Families([*self._own(), *_node(live, taken)])
        generate: Callable[[CollectorRegistry], bytes] = generate_openmetrics if openmetrics else generate_latest
        text = generate(own)
        end = b"# EOF\n" if openmetrics else b""
        yield text[: len(text) - len(end)]
        if live is not None:
            yield from self._templates.lines(live, openmetrics)
        yield end


class _Families(CollectorRegistry):
    """Families as the library wants them."""

    def __init__(self, families: list[Metric]) -> None:
        super().__init__(auto_describe=False)
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


def _node(rows: np.ndarray | None, taken: float | None) -> Iterator[Metric]:
    yield GaugeMetricFamily("joblens_up", "1 where joblensd publishes numbers and they can be read", rows is not None)
    if rows is not None and taken is not None:
        yield GaugeMetricFamily("joblens_jobs", "runs of jobs that are being watched on this node", len(rows))
        age = max(0.0, time.time() - taken)
        yield GaugeMetricFamily("joblens_rows_age_seconds", "age of the numbers on this page", age)


class _Templates:
    """A template a metric, for the jobs of the page before."""

    def __init__(self, more_labels: Sequence[str]) -> None:
        self._more = tuple(more_labels)
        self._who: bytes | None = None
        self._jobs: list[str] = []
        self._rows: list[int] = []
        self._about = b""
        self._made: dict[int, tuple[bytes, list[bytes]]] = {}  # metric -> which rows it is of, and what is before each

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The page is to be of these jobs. Returns a row each."""
        who = b"".join(rows[column].tobytes() for column in _WHO)
        if who != self._who:
            jobs, self._rows = _distinct(rows, self._more)
            if jobs != self._jobs:
                self._made.clear()
            self._who, self._jobs = who, jobs
            self._about = "".join(_about(jobs, rows[self._rows], self._more)).encode()
        return rows if len(self._rows) == len(rows) else rows[self._rows]

    def lines(self, rows: np.ndarray, openmetrics: bool) -> Iterator[bytes]:
        """All families of the jobs that `take` gave these rows of, as pieces of text."""
        yield self._about
        words, known = numbers(rows)
        known &= ~_COUNTERS | (words != 0)  # what was never counted has no series
        texts: dict[int, list[bytes]] = {}
        for places, values in ((_INTEGERS, words), (_FLOATS, words.view("f8"))):
            texts.update(zip(places, decimals((values[:, places] * _SCALES[places]).T)))
        for family, places in _FAMILIES.items():
            yield _head_of(family, openmetrics)
            for place in places:
                yield self._values(place, texts[place], known[:, place])
        yield from server_families.of_jobs(self._jobs, rows, openmetrics, _escaped)

    def _values(self, place: int, texts: list[bytes], known: np.ndarray) -> bytes:
        which = known.tobytes()
        kept = self._made.get(place)
        if kept is None or kept[0] != which:
            metric = metrics.METRICS[place]
            name = metric.exposed
            own = f',{metric.label[0]}="{metric.label[1]}"' if metric.label else ""
            jobs = itertools.compress(self._jobs, known.tolist())
            kept = which, [f"{name}{{{job}{own}}} ".encode() for job in jobs]
            self._made[place] = kept
        parts = [b"\n"] * (3 * len(kept[1]))
        parts[::3] = kept[1]
        parts[1::3] = texts if len(texts) == len(kept[1]) else itertools.compress(texts, known.tolist())
        return b"".join(parts)


@functools.cache
def _head_of(family: str, openmetrics: bool) -> bytes:
    members = [metrics.METRICS[place] for place in _FAMILIES[family]]
    kind = "counter" if members[0].kind is metrics.MetricKind.COUNTER else "gauge"
    return _head(family if openmetrics else members[0].exposed, kind, _help(members)).encode()


def _about(jobs: list[str], rows: np.ndarray, labels: Sequence[str]) -> Iterator[str]:
    """What is known of each run from its start on."""
    yield _head("joblens_job_info", "gauge", "which run of which job it is")
    besides = [name for name in INFO if name not in labels]
    for job, row in zip(jobs, rows):
        more = (f'{name}="{_escaped(printable(metrics.text(row[name]), 200))}"' for name in besides)
        yield f"joblens_job_info{{{job},{','.join(more)}}} 1\n"
    yield _head("joblens_job_start_time_seconds", "gauge", "when counting began (epoch)")
    for job, seconds in zip(jobs, rows["start_time"].tolist()):
        yield f"joblens_job_start_time_seconds{{{job}}} {seconds}\n"


def _head(name: str, kind: str, help: str) -> str:
    return f"# HELP {name} {help}\n# TYPE {name} {kind}\n"  # no help has a backslash, a quote or a newline


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')  # printable already: no newline in it


def _labels(row: np.void, more: Sequence[str]) -> str:
    """The labels of a run, escaped: printable ASCII, bounded."""
    schedd = row["global_job_id"].partition(b"#")[0]
    values = (row["slot"], row["job_id"], schedd, row["owner"], *(row[name] for name in more))
    return ",".join(
        f'{name}="{_escaped(printable(metrics.text(value), _LONGEST))}"'
        for name, value in zip((*LABELS, *more), values)
    )


def _distinct(rows: np.ndarray, more: Sequence[str]) -> tuple[list[str], list[int]]:
    """Sets of labels, and a row of each: where two had the same, Prometheus would refuse the whole page."""
    positions = {_labels(row, more): position for position, row in enumerate(rows)}
    return list(positions), list(positions.values())


def _help(members: list[metrics.Metric]) -> str:
    if len({metric.help for metric in members}) == 1:
        return members[0].help
    return "; ".join(f"{metric.label[1]}: {metric.help}" for metric in members if metric.label)
