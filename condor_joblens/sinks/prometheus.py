"""Serves the Prometheus page: what runs on this node now, made from the shared memory when somebody asks for it."""

from __future__ import annotations

import contextlib
import errno
import http.client
import platform
import re
import resource
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from condor_joblens import __version__
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.knob_values import address as parse_address
from condor_joblens.common.listening import split
from condor_joblens.common.page_address import DEFAULT, RETRY_SECONDS, SINK, cannot_listen
from condor_joblens.model import metrics
from condor_joblens.sinks import Diagnosis, Sink, SinkContext, SinkKnob, kernel_programs, parsers, server_families, tls
from condor_joblens.sinks.prometheus_page import MORE_LABELS, Page

_LOOK_SECONDS = 0.2  # for a socket that another process hands us
_PATIENCE_SECONDS = 5.0  # for a client that connects and says nothing
_REQUESTS = 8  # at a time
_PAGE_BYTES, _PART_BYTES, _LINE_BYTES = 1 << 26, 1 << 16, 512  # of a page in which the version is looked for
_ENOUGH_SECONDS = 1.0  # for a request, where others wait; a page takes some hundredths


def process_families() -> Iterator[Metric]:
    """What joblens-export says of itself."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    with open("/proc/self/statm", encoding="ascii") as file:
        resident = int(file.read().split()[1]) * resource.getpagesize()
    build = {"version": __version__, "schema": str(metrics.SCHEMA), "python": platform.python_version()}
    yield InfoMetricFamily("joblens_build", "the version of JobLens that made this page", build)
    yield CounterMetricFamily(
        "joblens_export_cpu_seconds", "CPU time of joblens-export itself", usage.ru_utime + usage.ru_stime
    )
    yield GaugeMetricFamily("joblens_export_resident_bytes", "memory of joblens-export itself", resident)


_HEALTH: tuple[tuple[str, type[Metric], str, str], ...] = (
    ("Working", GaugeMetricFamily, "working", "1 where the sink's last delivery went through, and none hangs"),
    ("QueuedRecords", GaugeMetricFamily, "queued_records", "records that wait in memory"),
    ("QueuedBytes", GaugeMetricFamily, "queued_bytes", "memory that waiting records take"),
    ("SpooledRecords", GaugeMetricFamily, "spooled_records", "records that wait on the disk"),
    ("SpooledBytes", GaugeMetricFamily, "spooled_bytes", "disk that the spool takes"),
    ("LagSeconds", GaugeMetricFamily, "lag_seconds", "age of the oldest record that waits"),
    ("Delivered", CounterMetricFamily, "delivered_records", "records that the backend confirmed"),
    ("Retried", CounterMetricFamily, "retried_records", "records that were handed to the backend again"),
    ("Refused", CounterMetricFamily, "refused_records", "records that the backend will never take"),
    ("Failures", CounterMetricFamily, "failures", "deliveries that did not go through"),
)


def health_families(health: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    """How the other sinks do."""
    for field, kind, name, help in _HEALTH:
        family: Any = kind(f"joblens_sink_{name}", help, labels=("sink",))  # type: ignore[call-arg]
        for sink in health:
            family.add_metric((sink["Sink"],), sink[field])
        yield family
    dropped = CounterMetricFamily(
        "joblens_sink_dropped_records", "records that were lost on the way to a sink", labels=("sink", "cause")
    )
    for sink in health:
        for cause, count in sink["Dropped"].items():
            dropped.add_metric((sink["Sink"], cause), count)
    yield dropped


def page_version(address: str, by_tls: bool) -> str:
    """The version of the joblens-export whose page is at HOST:PORT; empty if there is none, or it does not tell."""
    host, port = split(address)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    connection: http.client.HTTPConnection
    if by_tls:
        # we ask who it is, and tell it nothing: whose certificate it has does not matter
        connection = http.client.HTTPSConnection(host, port, timeout=_PATIENCE_SECONDS, context=_trusting_anybody())
    else:
        connection = http.client.HTTPConnection(host, port, timeout=_PATIENCE_SECONDS)
    try:
        connection.request("GET", "/metrics")
        return _version_in(connection.getresponse())
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        connection.close()


def _trusting_anybody() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _version_in(page: http.client.HTTPResponse) -> str:
    """The version in a page, of which PAGE_BYTES at most are read, in PATIENCE_SECONDS for each part."""
    until, rest = time.monotonic() + 2 * _PATIENCE_SECONDS, b""
    for _ in range(_PAGE_BYTES // _PART_BYTES):
        part = page.read(_PART_BYTES)
        rest = rest[-_LINE_BYTES:] + part
        found = re.search(rb'^joblens_build_info\{[^}\n]*\bversion="([\w.+-]{1,40})"', rest, re.MULTILINE)
        if found or not part or time.monotonic() > until:
            return found[1].decode("ascii") if found else ""
    return ""


class PrometheusSink(Sink):
    """Serves the page at JOBLENS_SINK_PROMETHEUS_ADDRESS; a thread of its own, and one a request."""

    name = SINK
    takes = frozenset()
    knobs = (
        SinkKnob("ADDRESS", DEFAULT, parse_address, "HOST:PORT", "where the Prometheus page is served", listens=True),
        SinkKnob("CERTIFICATE", "", parsers.file, "PEM file", "our certificate: the page is then served by TLS alone"),
        SinkKnob("KEY", "", parsers.file, "PEM file", "the key of that certificate"),
        SinkKnob(
            "CLIENT_AUTHORITY",
            "",
            parsers.file,
            "PEM file",
            "who signs the certificates of those who may see the page; empty: everybody may",
        ),
        SinkKnob(
            "LABELS",
            "",
            parsers.some_of(*MORE_LABELS),
            "names",
            f"what every series of a job is labelled with besides: {', '.join(MORE_LABELS)}",
        ),
    )

    def __init__(self, settings: Mapping[str, Any], context: SinkContext) -> None:
        super().__init__(settings, context)
        self._address = settings["address"]
        self._log = context.log
        self._page = Page(
            context.rows,
            lambda: [
                *process_families(),
                *kernel_programs.families(context.kernel_programs()),
                *server_families.unattributed(context.unattributed()),
                *health_families(context.health()),
            ],
            settings["labels"],
        )
        self._tls: ssl.SSLContext | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="prometheus", daemon=True)

    def start(self) -> None:
        """Begins to serve. An address that can't be taken is said once, and tried again until it can."""
        self._tls = tls.server(self.name, self.settings)
        self._thread.start()

    @property
    def _url(self) -> str:
        return f"http{'s' if self.settings['certificate'] else ''}://{self._address}/metrics"

    def check(self) -> Iterable[Diagnosis]:
        """Whether the certificates can be used, and the page of the exporter that runs answers."""
        try:
            tls.server(self.name, self.settings)
        except JobLensError as error:
            return [Diagnosis.of(error)]
        try:
            socket.create_connection(split(self._address), _PATIENCE_SECONDS).close()
        except OSError as error:
            return [
                Diagnosis(
                    False,
                    f"{self._url} does not answer: {error.strerror or 'it takes too long'}",
                    "see JobLensExportLog: another program may have that port (JOBLENS_SINK_PROMETHEUS_ADDRESS)",
                )
            ]
        return [Diagnosis(True, f"the page is at {self._url}"), *self._compare_versions()]

    def _compare_versions(self) -> Iterator[Diagnosis]:
        """The joblens-export that made the page is what is installed."""
        if self.settings["client_authority"]:
            return  # it shows the page to none but them
        made_by = page_version(self._address, bool(self.settings["certificate"]))
        if made_by != __version__:
            made = f"the page is made by {made_by}" if made_by else "the page does not say who makes it"
            yield Diagnosis(False, f"{made}, and {__version__} is installed", "joblens restart")

    def close(self, seconds: float) -> None:
        """Ends within half a second; requests that are being answered are not waited for."""
        self._stopped.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        said = ""
        while not self._stopped.is_set():
            try:
                listener = self.context.listen(self._address)
            except (OSError, UnicodeError) as error:  # the latter from a host name that can be none
                reason = cannot_listen(self._address, error)
                if reason != said:
                    self._log(reason)
                said = reason
                self._stopped.wait(RETRY_SECONDS)
                continue
            if listener is None:
                self._stopped.wait(_LOOK_SECONDS)
                continue
            self._log(f"the Prometheus page is at {self._url}")
            with _Server(listener, self._page, self._tls) as server:
                self._serve(server)

    def _serve(self, server: _Server) -> None:
        server.timeout = 0.2
        while not self._stopped.is_set():
            server.handle_request()


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, listener: socket.socket, page: Page, tls: ssl.SSLContext | None) -> None:
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket, self.tls = listener, tls
        # HTTPServer's own asks the name service for our name, which can take a minute
        name, self.server_port = listener.getsockname()[:2]
        self.server_name = str(name)
        self.setup_environ()
        self.set_app(page)
        self._room = threading.BoundedSemaphore(_REQUESTS)
        self._since: dict[Any, float] = {}  # request -> when it came, in order

    def get_request(self) -> tuple[Any, Any]:
        try:
            request, client = super().get_request()
        except OSError as error:
            if error.errno == errno.EINVAL:  # the supervisor has ended it: a new configuration is about to come
                time.sleep(_LOOK_SECONDS)
            raise
        if self.tls is not None:
            # a client that is slow to shake hands keeps its own thread waiting alone
            request = self.tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        return request, client

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self.tls is not None:
            request.settimeout(_PATIENCE_SECONDS)
            request.do_handshake()
        super().finish_request(request, client_address)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._has_room():
            self.shutdown_request(request)
            return
        self._since[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._leave(request)
            raise

    def _has_room(self) -> bool:
        """Waits until a request has ended, or had time enough and is ended; False if that takes too long.

        Who sends a byte now and then could keep the page for himself. Where all cores are busy a page takes long, and
        whoever comes meanwhile waits his turn in the socket's queue.
        """
        if self._room.acquire(timeout=0.1):
            return True
        until = time.monotonic() + _PATIENCE_SECONDS
        while (now := time.monotonic()) < until:
            oldest, since = next(iter(list(self._since.items())), (None, now))
            if oldest is not None and now - since >= _ENOUGH_SECONDS:
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            if self._room.acquire(timeout=min(_ENOUGH_SECONDS, max(0.05, since + _ENOUGH_SECONDS - now))):
                return True
        return False

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


class _Handler(WSGIRequestHandler):
    timeout = _PATIENCE_SECONDS

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            super().handle()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Requests are not logged."""
