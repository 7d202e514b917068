"""The Prometheus page: what runs on this node now, made from the shared memory when somebody asks for it.

Families and types come from the metric table. A job's series vanish with its row: nothing is kept between two
pages, so that a page can't show a job that is gone.
"""

from __future__ import annotations

import contextlib
import gzip
import platform
import resource
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import numpy as np
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import (
    CollectorRegistry,
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)

from condor_joblens import __version__, metrics
from condor_joblens.config import Config
from condor_joblens.errors import JobLensError, printable
from condor_joblens.sinks import Rows

LABELS = ("slot", "job_id", "schedd", "owner")
"""Of every series: what tells apart the jobs that run on a node at a time, and whose they are. All else is in
joblens_job_info, so that a series does not carry it. (Not `job`: Prometheus calls its targets so.)"""

INFO = ("run", "execute", "level", "source")
"""What joblens_job_info says besides."""

_FAMILIES: dict[str, list[metrics.Metric]] = {}
for _metric in metrics.METRICS:
    _FAMILIES.setdefault(_metric.family, []).append(_metric)

_LONGEST = 100  # characters of a label's value
_RETRY_SECONDS = 10.0
_PATIENCE_SECONDS = 5.0  # for a client that connects and says nothing
_REQUESTS = 8  # at a time
_ENOUGH_SECONDS = 1.0  # for a request, where others wait; a page takes some hundredths


class Page:
    """Makes the page anew whenever it is asked for.

    The text of the jobs' families is written here, with the labels of a job put together once: a page of a thousand
    jobs has 45,000 series, for which the library takes a third of a second. All else is the library's.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def text(self) -> bytes:
        """The page in the text format 0.0.4."""
        families = [*_process_families()]
        try:
            rows, taken = self._rows()
        except JobLensError:
            return generate_latest(_Families([*families, _up(0)]))
        rows = _distinct(rows[~rows["final"]])
        age = max(0.0, time.time() - taken)
        families += [
            _up(1),
            GaugeMetricFamily("joblens_jobs", "runs of jobs that are being watched on this node", len(rows)),
            GaugeMetricFamily("joblens_rows_age_seconds", "age of the numbers on this page", age),
        ]
        return generate_latest(_Families(families)) + "".join(_job_families(rows)).encode()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        """As a WSGI application; compressed for a client that can read it."""
        page, headers = self.text(), [("Content-Type", CONTENT_TYPE_LATEST)]
        if "gzip" in environ.get("HTTP_ACCEPT_ENCODING", ""):
            # the least effort makes it a fifteenth as long, and greater effort takes longer than the page
            page, headers = gzip.compress(page, 1), [*headers, ("Content-Encoding", "gzip")]
        start_response("200 OK", headers)
        return [page]


class _Families(CollectorRegistry):
    """Families as the library wants them."""

    def __init__(self, families: list[Metric]) -> None:
        super().__init__(auto_describe=False)
        self._made = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._made)


def _up(value: int) -> Metric:
    return GaugeMetricFamily("joblens_up", "1 where joblensd publishes numbers and they can be read", value)


def _process_families() -> Iterator[Metric]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    with open("/proc/self/statm", encoding="ascii") as file:
        resident = int(file.read().split()[1]) * resource.getpagesize()
    build = {"version": __version__, "schema": str(metrics.SCHEMA), "python": platform.python_version()}
    yield InfoMetricFamily("joblens_build", "the version of JobLens that made this page", build)
    yield CounterMetricFamily(
        "joblens_export_cpu_seconds", "CPU time of joblens-export itself", usage.ru_utime + usage.ru_stime
    )
    yield GaugeMetricFamily("joblens_export_resident_bytes", "memory of joblens-export itself", resident)


def _distinct(rows: np.ndarray) -> np.ndarray:
    """One row for each set of labels: where two had the same, Prometheus would refuse the whole page."""
    positions = {labels(row): position for position, row in enumerate(rows)}
    return rows[sorted(positions.values())]


def labels(row: np.void) -> tuple[str, ...]:
    """The values of LABELS: printable ASCII, bounded."""
    schedd = row["global_job_id"].partition(b"#")[0]
    return tuple(_label(value) for value in (row["slot"], row["job_id"], schedd, row["owner"]))


def _label(value: bytes) -> str:
    return printable(metrics.text(value), _LONGEST)


def _pairs(names: Sequence[str], values: Sequence[str]) -> str:
    escaped = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return ",".join(f'{name}="{value}"' for name, value in zip(names, escaped))


def _job_families(rows: np.ndarray) -> Iterator[str]:
    """The text of the families: of each the head, then a line a job."""
    jobs = [_pairs(LABELS, labels(row)) for row in rows]
    yield _head("joblens_job_info", "gauge", "which run of which job it is")
    for job, row in zip(jobs, rows):
        more = _pairs(INFO, [printable(metrics.text(row[name]), 200) for name in INFO])
        yield f"joblens_job_info{{{job},{more}}} 1\n"
    yield _head("joblens_job_start_time_seconds", "gauge", "when counting began (epoch)")
    for job, seconds in zip(jobs, rows["start_time"].tolist()):
        yield f"joblens_job_start_time_seconds{{{job}}} {seconds}\n"
    for family, members in _FAMILIES.items():
        is_counter = members[0].kind is metrics.Kind.COUNTER
        name = family + "_total" if is_counter else family
        yield _head(name, "counter" if is_counter else "gauge", _help(members))
        for metric in members:
            values = rows[metric.column]
            known = np.flatnonzero((values >= 0) & (values < np.inf)).tolist()  # false for a NaN too
            if known:
                own = "," + _pairs(metric.label[:1], metric.label[1:]) if metric.label else ""
                found = values.tolist()
                yield "".join([f"{name}{{{jobs[position]}{own}}} {found[position]!r}\n" for position in known])


def _head(name: str, kind: str, help: str) -> str:
    return f"# HELP {name} {help}\n# TYPE {name} {kind}\n"


def _help(members: Sequence[metrics.Metric]) -> str:
    if len({metric.help for metric in members}) == 1:
        return members[0].help
    return "; ".join(f"{metric.label[1]}: {metric.help}" for metric in members if metric.label)


class PrometheusSink:
    """Serves the page at JOBLENS_PROMETHEUS_ADDRESS; a thread of its own, and one a request."""

    def __init__(self, config: Config, rows: Rows, log: Callable[[str], None]) -> None:
        self._address = config.prometheus_address
        self._log = log
        self._page = Page(rows)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="prometheus", daemon=True)

    def start(self) -> None:
        """Begins to serve. An address that can't be taken is said once, and tried again until it can."""
        self._thread.start()

    def stop(self) -> None:
        """Ends within half a second; requests that are being answered are not waited for."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        said = ""
        while not self._stopped.is_set():
            try:
                server = self._listen()
            except (OSError, UnicodeError) as error:  # the latter from a host name that can be none
                reason = getattr(error, "strerror", None) or str(error)
                if reason != said:
                    self._log(
                        f"JOBLENS_PROMETHEUS_ADDRESS = {self._address} can't be listened at: {reason}; "
                        f"choose another, or end what uses it (tried again every {_RETRY_SECONDS:g} s)"
                    )
                said = reason
                self._stopped.wait(_RETRY_SECONDS)
                continue
            self._log(f"the Prometheus page is at http://{self._address}/metrics")
            with server:
                self._serve(server)

    def _listen(self) -> WSGIServer:
        host, _, port = self._address.rpartition(":")
        kind = _Server6 if ":" in host else _Server
        return make_server(host.strip("[]"), int(port), self._page, kind, _Handler)

    def _serve(self, server: WSGIServer) -> None:
        server.timeout = 0.2
        while not self._stopped.is_set():
            server.handle_request()


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._room = threading.BoundedSemaphore(_REQUESTS)
        self._since: dict[Any, float] = {}  # request -> when it came, in order

    def server_bind(self) -> None:
        # HTTPServer's own asks the name service for our name, which can take a minute
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(timeout=0.1) and not self._make_room():
            self.shutdown_request(request)
            return
        self._since[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._leave(request)
            raise

    def _make_room(self) -> bool:
        """Ends the oldest request: who sends a byte now and then could keep the page for himself."""
        oldest, since = next(iter(list(self._since.items())), (None, 0.0))
        if oldest is None or time.monotonic() - since < _ENOUGH_SECONDS:
            return False
        with contextlib.suppress(OSError):
            oldest.shutdown(socket.SHUT_RDWR)
        return self._room.acquire(timeout=1)

    def _leave(self, request: Any) -> None:
        del self._since[request]
        self._room.release()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _PATIENCE_SECONDS

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            super().handle()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Requests are not logged."""
