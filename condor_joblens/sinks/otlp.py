"""Records to OpenTelemetry over OTLP/HTTP: a run's numbers as metrics of a resource of its own, events as logs."""

from __future__ import annotations

import functools
import re
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import urllib3
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, SeverityNumber

from condor_joblens.common.compression import gzipped_pieces
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.model.metrics import FIELDS, text
from condor_joblens.sinks import (
    DeliveryResult,
    Diagnosis,
    Record,
    RecordKind,
    Sink,
    SinkContext,
    SinkKnob,
    bounded_http,
    macro_of,
    otlp_messages,
    parsers,
    secret,
    server_diagnosis,
    tls,
)
from condor_joblens.sinks.row_numbers import numbers, rows_of

_SECONDS = urllib3.Timeout(connect=5, read=10)
_WHOLE_SECONDS = 20.0  # for a request, from the connection to the end of the answer
_REFUSED = (400, 413, 422)
_REJECTED = "the collector rejected"
_RECORDS = 100  # of a request: a quarter of a megabyte to two
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")

_RESOURCE = {
    "Run": "service.instance.id",
    "Node": "host.name",
    "JobId": "htcondor.job.id",
    "GlobalJobId": "htcondor.job.global_id",
    "Slot": "htcondor.slot.name",
    "Owner": "user.name",
}
_COLUMNS = {field.record_name: field.name for field in FIELDS}
_ATTRIBUTES = {
    "Id": "log.record.uid",
    "Pid": "process.pid",
    "ParentPid": "process.parent_pid",
    "Program": "process.executable.name",
    "CommandLine": "process.command_line",
    "ExitCode": "process.exit.code",
    "ExitSignal": "process.exit.signal",
}
"""What OpenTelemetry has a name for; all else of an event is below htcondor.event."""

_SEVERITIES = {
    "Oom": (SeverityNumber.SEVERITY_NUMBER_ERROR, "ERROR"),
    "Death": (SeverityNumber.SEVERITY_NUMBER_ERROR, "ERROR"),
    "Loss": (SeverityNumber.SEVERITY_NUMBER_WARN, "WARN"),
}
_INFO = (SeverityNumber.SEVERITY_NUMBER_INFO, "INFO")


class OtlpSink(Sink):
    """Delivered is what the collector answered with 200, without a word of rejected parts."""

    name = "otlp"
    takes = frozenset({RecordKind.SAMPLE, RecordKind.JOB, RecordKind.EVENT})
    knobs = (
        SinkKnob("URL", None, parsers.urls, "URL", "the collector, without /v1/metrics: http://collector:4318"),
        SinkKnob(
            "HEADERS_FILE",
            "",
            secret.path,
            "file",
            "lines such as `Authorization: Bearer ...` that go with each request: a secret",
        ),
        *tls.client_knobs("collectors"),
        SinkKnob("COMPRESSION", "gzip", parsers.choice("none", "gzip"), "word", "gzip: a tenth of the bytes"),
    )

    def __init__(self, settings: Mapping[str, Any], context: SinkContext) -> None:
        super().__init__(settings, context)
        self._url: str = settings["url"][0]
        self._pool: urllib3.HTTPConnectionPool | None = None
        self._headers: dict[str, str] = {}

    def start(self) -> None:
        """Reads headers and certificates; the collector is looked for with the first batch."""
        given = self.settings
        self._headers = {"Content-Type": "application/x-protobuf", **_read_headers(given["headers_file"])}
        if given["compression"] == "gzip":
            self._headers["Content-Encoding"] = "gzip"
        self._connect()

    def deliver(self, batch: Sequence[Record]) -> DeliveryResult:
        """Metrics and logs in requests of their own, the records of each in order."""
        logs = [position for position, record in enumerate(batch) if record.kind is RecordKind.EVENT]
        runs = [position for position, record in enumerate(batch) if record.kind is not RecordKind.EVENT]
        retry: list[int] = []
        refused: dict[int, str] = {}
        reason, after = "", 0.0
        for positions, send in ((runs, self._send_metrics), (logs, self._send_logs)):
            for begin in range(0, len(positions), _RECORDS):
                part = positions[begin : begin + _RECORDS]
                if reason:
                    retry += part
                    continue
                outcome = send([batch[position] for position in part])
                retry += [part[place] for place in outcome.retry]
                refused.update((part[place], why) for place, why in outcome.refused.items())
                reason, after = outcome.reason, outcome.after
        return DeliveryResult(sorted(retry), refused, reason, after)

    def close(self, seconds: float) -> None:
        """Ends the connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def check(self) -> Iterator[Diagnosis]:
        """The way to the collector, then an empty request."""
        try:
            self.start()
            server_diagnosis.walk(self.name, self._url, self._tls(), "the collector's OTLP/HTTP (4318)")
        except JobLensError as error:
            yield Diagnosis.of(error)
            return
        for path, rejected in (("metrics", _rejected_metrics), ("logs", _rejected_logs)):
            outcome = self._post(path, (), 1, rejected)
            reason = outcome.reason or "".join(outcome.refused.values())
            right = Diagnosis(True, f"{self._url}/v1/{path} takes OTLP")
            yield Diagnosis.of(JobLensError(reason)) if reason else right
        self.close(0)

    # --- requests

    def _connect(self) -> urllib3.HTTPConnectionPool:
        context = self._tls()
        given = {} if context is None else {"ssl_context": context}
        pool = urllib3.connection_from_url(self._url, maxsize=1, timeout=_SECONDS, retries=False, **given)
        self._pool = bounded_http.bind(pool, _WHOLE_SECONDS)
        return pool

    @property
    def _where(self) -> str:
        return f"{macro_of(self.name, 'URL')}: {self._url}"

    def _tls(self) -> ssl.SSLContext | None:
        return tls.client(self.name, self.settings, "" if self._url.startswith("https:") else "URL = http://...")

    def _send_metrics(self, records: Sequence[Record]) -> DeliveryResult:
        def send(part: Sequence[Record]) -> DeliveryResult:
            return self._post("metrics", encode_metrics(part, self.context.node), len(part), _rejected_metrics)

        return self._halving(records, send)

    def _send_logs(self, records: Sequence[Record]) -> DeliveryResult:
        def send(part: Sequence[Record]) -> DeliveryResult:
            return self._post("logs", [encode_logs(part)], len(part), _rejected_logs)

        return self._halving(records, send)

    def _halving(self, records: Sequence[Record], send: Callable[[Sequence[Record]], DeliveryResult]) -> DeliveryResult:
        """What is refused together is tried in halves: one bad record must not take all others with it.

        Not where parts were rejected: the others have been taken.
        """
        outcome = send(records)
        if not outcome.refused or len(records) == 1 or outcome.refused[0].startswith(_REJECTED):
            return outcome
        half = len(records) // 2
        first, second = self._halving(records[:half], send), self._halving(records[half:], send)
        retry = [*first.retry, *(half + place for place in second.retry)]
        refused = {**first.refused, **{half + place: why for place, why in second.refused.items()}}
        return DeliveryResult(retry, refused, first.reason or second.reason, max(first.after, second.after))

    def _post(
        self, path: str, pieces: Iterable[bytes], count: int, rejected: Callable[[bytes], tuple[int, str]]
    ) -> DeliveryResult:
        body = gzipped_pieces(pieces) if self.settings["compression"] == "gzip" else b"".join(pieces)
        try:
            pool = self._pool or self._connect()
            where = urllib3.util.parse_url(f"{self._url}/v1/{path}").request_uri
            answer = pool.request("POST", where, body=body, headers=self._headers)
        except JobLensError as error:
            return DeliveryResult(range(count), reason=str(error))
        except urllib3.exceptions.HTTPError as error:
            self.close(0)  # the next one reads the certificates anew: they may be renewed in place
            return DeliveryResult(range(count), reason=self._why(error))
        if answer.status == 200:
            try:
                parts, said = rejected(answer.data)
            except Exception:  # protobuf's DecodeError has no base of its own
                return DeliveryResult(
                    range(count), reason=f"{self._where} does not answer as a collector does: is it one?"
                )
            if not parts:
                return DeliveryResult()
            why = f"{_REJECTED} {parts} parts of {count} records: {printable(said, 300)}"
            return DeliveryResult(refused=dict.fromkeys(range(count), why))
        said = printable(answer.data[:300].decode("utf-8", "replace"), 200)
        why = f"{self._where}/v1/{path} answers {answer.status} ({said}): look at its log"
        if answer.status in _REFUSED:
            return DeliveryResult(refused=dict.fromkeys(range(count), why))
        if answer.status in (401, 403):
            file = macro_of(self.name, "HEADERS_FILE")
            why = f"{self._where} refuses us ({answer.status}): correct what stands in {file}, or our certificate"
        if answer.status in (404, 405):
            why = f"{self._where} has no /v1/{path}: name the address of OTLP/HTTP, without a path behind the port"
        wait = answer.headers.get("Retry-After", "")
        return DeliveryResult(range(count), reason=why, after=min(60.0, float(wait)) if wait.isdecimal() else 0.0)

    def _why(self, error: Exception) -> str:
        try:
            server_diagnosis.walk(self.name, self._url, self._tls(), "the collector's OTLP/HTTP (4318)")
        except JobLensError as reason:
            return str(reason)
        said = printable(f"{type(error).__name__}: {error}", 200)
        return f"{self._where} does not answer ({said}): look at its log"


def _rejected_metrics(answer: bytes) -> tuple[int, str]:
    partial = ExportMetricsServiceResponse.FromString(answer).partial_success
    return partial.rejected_data_points, partial.error_message


def _rejected_logs(answer: bytes) -> tuple[int, str]:
    partial = ExportLogsServiceResponse.FromString(answer).partial_success
    return partial.rejected_log_records, partial.error_message


def _read_headers(file: str) -> dict[str, str]:
    """Raises JobLensError, never with a header's value in it."""
    headers = {}
    for number, line in enumerate(secret.read(file).splitlines() if file else ()):
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.fullmatch(name.strip()) or not value.strip().isprintable():
            raise JobLensError(f"{file}: line {number + 1} is no header: write `Name: value`")
        headers[name.strip()] = value.strip()
    return headers


def encode_metrics(records: Sequence[Record], node: str) -> Iterator[bytes]:
    """A serialised ExportMetricsServiceRequest, in pieces.

    The time of a run's numbers is UpdateTime plus its Sequence in nanoseconds. So no two of them have the same time,
    and one that is sent again keeps its time.
    """
    rows = rows_of(records)
    texts = [[node] * len(rows) if field == "Node" else _texts(rows, field) for field in _RESOURCE]
    resources = [_resource(identity) for identity in zip(*texts)]
    start = rows["start_time"].astype("i8").clip(0) * 10**9
    time = rows["update_time"].astype("i8") * 10**9 + rows["sequence"].astype("i8")
    return otlp_messages.encode(resources, *numbers(rows), start, time)


def _texts(rows: np.ndarray, field: str) -> list[str]:
    return [text(value) for value in rows[_COLUMNS[field]].tolist()]


def _identity(fields: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(fields.get(field, "")) for field in _RESOURCE)


@functools.lru_cache(maxsize=4096)
def _resource(identity: tuple[str, ...]) -> bytes:
    return otlp_messages.resource({"service.name": "htcondor.job", **dict(zip(_RESOURCE.values(), identity))})


def encode_logs(records: Sequence[Record]) -> bytes:
    """A serialised ExportLogsServiceRequest."""
    request = ExportLogsServiceRequest()
    by_resource: dict[bytes, Any] = {}
    for record in records:
        fields = record.fields()
        resource = _resource(_identity(fields))
        if resource not in by_resource:
            added: ResourceLogs = request.resource_logs.add()
            added.resource.ParseFromString(resource)
            by_resource[resource] = added.scope_logs.add(scope=otlp_messages.scope()).log_records
        by_resource[resource].append(_log_record(record, fields))
    return bytes(request.SerializeToString())


def _log_record(record: Record, fields: Mapping[str, Any]) -> LogRecord:
    kind = str(fields.get("Kind", ""))
    severity, word = _SEVERITIES.get(kind, _INFO)
    name = f"htcondor.job.{_underscored(kind)}"
    values: dict[str, Any] = {"event.name": name}
    for field, value in fields.items():
        if field not in _RESOURCE and field not in ("Type", "Time", "Kind", "Schema"):
            values[_ATTRIBUTES.get(field, f"htcondor.event.{_underscored(field)}")] = value
    made = LogRecord(
        time_unix_nano=int(record.time * 1e6) * 1000,
        severity_number=severity,
        severity_text=word,
        attributes=otlp_messages.attributes(values),
    )
    made.body.string_value = kind
    return made


def _underscored(words: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", words).lower()
