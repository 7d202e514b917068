"""What an OTLP collector answers, as far as it is ours to read: status, Retry-After and the message in the body."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from condor_joblens.sinks import otlp

_RECORDS = 3
_STATUS = (200, 200, 400, 401, 404, 413, 429, 500, 503, 302)
_PARTS = (("metrics", otlp._rejected_metrics), ("logs", otlp._rejected_logs))
_METRICS = ExportMetricsServiceResponse(partial_success={"rejected_data_points": 3, "error_message": "too old"})
_LOGS = ExportLogsServiceResponse(partial_success={"rejected_log_records": -1})
SEEDS = [
    b"\0\0\n" + _METRICS.SerializeToString(),
    b"\0\1\n" + _LOGS.SerializeToString(),
    b"\6\0" + b"30\n" + b"slow down",
    b"\6\0" + "٣\n".encode() + b"\xff",
    b"\2\1\n<html>",
]
WORDS = [b"\x0a", b"\x12", b"\x08", b"9" * 400 + b"\n", b"Wed, 21 Oct 2026 07:28:00 GMT\n"]


def _sink(answer: Any) -> otlp.OtlpSink:
    settings: Any = {"url": ["http://collector:4318"], "compression": "none", "headers_file": ""}
    context: Any = None
    made = otlp.OtlpSink(settings, context)
    made._pool = SimpleNamespace(request=lambda *arguments, **more: answer, close=lambda: None)  # type: ignore[assignment]
    return made


def check(data: bytes) -> None:
    """Each record is delivered, refused or kept, with a reason on one line; nobody waits for more than a minute."""
    status, path, rejected = _STATUS[data[:1][0] % len(_STATUS)] if data else 200, *_PARTS[sum(data[1:2]) % 2]
    wait, _, body = data[2:].partition(b"\n")
    answer = SimpleNamespace(status=status, data=body, headers={"Retry-After": wait.decode("latin-1")})
    done = _sink(answer)._post(path, (b"x",), _RECORDS, rejected)
    assert set(done.retry) | set(done.refused) <= set(range(_RECORDS))
    assert 0 <= done.after <= 60 and (status == 200 or done.retry or done.refused)
    for reason in (done.reason, *done.refused.values()):
        assert reason.isprintable() and len(reason) < 1000
