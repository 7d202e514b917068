"""The OTLP sink with a real OpenTelemetry collector, which hands on what it took to a receiver of the test's."""

from __future__ import annotations

import http.server
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from servers import Collector, certificate, free_port
from sinks import complaints, deliver, make, record, samples, until

from condor_joblens.model.metrics import METRICS, MetricKind
from condor_joblens.sinks import RecordKind
from condor_joblens.sinks.otlp import OtlpSink
from condor_joblens.sinks.otlp_messages import convention


class Web(http.server.BaseHTTPRequestHandler):
    """Answers every POST alike."""

    protocol_version = "HTTP/1.1"
    status, body = 200, b""

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.took(data)
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    do_GET = do_POST

    def took(self, data: bytes) -> None:
        """For those who want it."""

    def log_message(self, format: str, *arguments: Any) -> None:
        """Not a word."""


class Received:
    """What came out of the collector."""

    def __init__(self) -> None:
        self.metrics: list[Any] = []
        self.logs: list[Any] = []

    def points(self) -> dict[tuple[Any, ...], float]:
        """(run, time, name, attributes) -> value, each once."""
        found: dict[tuple[Any, ...], float] = {}
        for request in list(self.metrics):
            for resource in request.resource_metrics:
                run = attributes(resource.resource)["service.instance.id"]
                for metric in resource.scope_metrics[0].metrics:
                    for point in (metric.sum if metric.HasField("sum") else metric.gauge).data_points:
                        value = point.as_double if point.HasField("as_double") else point.as_int
                        labels = tuple(sorted(attributes(point).items()))
                        found[run, point.time_unix_nano, metric.name, labels] = value
        return found

    def events(self) -> dict[str, Any]:
        """Record id -> log record."""
        return {
            attributes(one)["log.record.uid"]: one
            for request in list(self.logs)
            for resource in request.resource_logs
            for one in resource.scope_logs[0].log_records
        }


def attributes(message: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in message.attributes}


@pytest.fixture(scope="module")
def received(serve: Any) -> tuple[str, Received]:
    kept = Received()

    class Receiver(Web):
        def took(self, data: bytes) -> None:
            if self.path.endswith("metrics"):
                kept.metrics.append(ExportMetricsServiceRequest.FromString(data))
            else:
                kept.logs.append(ExportLogsServiceRequest.FromString(data))

    return serve(Receiver), kept


@pytest.fixture(scope="module")
def collector(folder: Path, server: Any, received: tuple[str, Received]) -> Iterator[Collector]:
    with server(Collector, folder / "collector", received[0]) as started:
        yield started


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_every_number_of_every_run_arrives_equal(
    collector: Collector, received: tuple[str, Received], compression: str
) -> None:
    kept = received[1]
    kept.metrics.clear()
    sink = make(OtlpSink, URL=collector.url, COMPRESSION=compression)
    sink.start()
    batch = [*samples(130, 1), *samples(130, 2), *samples(2, 3, RecordKind.JOB)]
    assert deliver(sink, batch) == []
    sink.close(1)
    found = until(lambda: len(kept.points()) >= 262 * len(METRICS) and kept.points(), "all numbers")
    for one in batch:
        fields = one.fields()
        for metric in METRICS:
            name, _, labels = convention(metric)
            value: Any = fields
            for part in metric.path.split("."):
                value = value[part]
            nanoseconds = fields["UpdateTime"] * 10**9 + fields["Sequence"]
            assert found.pop((fields["Run"], nanoseconds, name, tuple(sorted(labels.items())))) == value
    assert not found


def test_a_run_is_a_resource_and_a_counter_a_cumulative_monotonic_sum(
    collector: Collector, received: tuple[str, Received]
) -> None:
    kept = received[1]
    kept.metrics.clear()
    sink = make(OtlpSink, URL=collector.url)
    sink.start()
    assert deliver(sink, samples(1)) == []
    sink.close(1)
    (resource,) = until(lambda: kept.metrics, "a request")[0].resource_metrics
    said = attributes(resource.resource)
    assert said["service.name"] == "htcondor.job" and said["host.name"] == "node1"
    assert said["service.instance.id"] == said["htcondor.job.global_id"] + "#1"
    by_name = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    assert by_name["process.cpu.time"].unit == "s"
    assert [attributes(point) for point in by_name["process.cpu.time"].sum.data_points] == [
        {"cpu.mode": "user"},
        {"cpu.mode": "system"},
    ]
    for metric in METRICS:
        message = by_name[convention(metric)[0]]
        assert message.HasField("sum") == (metric.kind is MetricKind.COUNTER)
        if metric.kind is MetricKind.COUNTER:
            assert message.sum.is_monotonic and message.sum.aggregation_temporality == 2
            assert message.sum.data_points[0].start_time_unix_nano == 1_700_000_000 * 10**9


def test_events_arrive_as_logs_each_with_its_id(collector: Collector, received: tuple[str, Received]) -> None:
    kept = received[1]
    sink = make(OtlpSink, URL=collector.url)
    sink.start()
    batch = [
        record(1, Kind="Exec", Pid=17, ParentPid=3, Program="python3", CommandLine="python3 a\u0007.py"),
        record(2, Kind="Oom", Pid=17, Program="a\nb", MemoryBytes=5),
        record(3, Kind="Exit", Pid=17, ExitSignal=9, CoreDumped=True, LivedSeconds=1.5),
    ]
    assert deliver(sink, batch) == [] and deliver(sink, batch[:1]) == []
    sink.close(1)
    found = until(lambda: len(kept.events()) == 3 and kept.events(), "the logs")
    exec_, oom, exit_ = (attributes(found[f"event-{number}"]) for number in (1, 2, 3))
    assert (exec_["event.name"], exec_["process.pid"]) == ("htcondor.job.exec", 17)
    assert exec_["process.command_line"] == "python3 a\u0007.py"
    assert found["event-2"].severity_text == "ERROR" and oom["htcondor.event.memory_bytes"] == 5
    assert exit_["process.exit.signal"] == 9 and exit_["htcondor.event.core_dumped"] is True


def test_a_collector_that_is_killed_gets_all_when_it_is_back(
    collector: Collector, received: tuple[str, Received]
) -> None:
    kept = received[1]
    sink = make(OtlpSink, URL=collector.url)
    sink.start()
    collector.kill()
    outcome = sink.deliver(samples(5, 50))
    assert list(outcome.retry) == list(range(5)) and "nothing listens there" in outcome.reason
    collector.start()
    assert deliver(sink, samples(5, 50)) == []
    sink.close(1)
    runs = until(lambda: {key[0] for key in kept.points() if key[1] % 10**9 == 50}, "the runs")
    assert len(runs) == 5


def test_a_collector_whose_own_backend_is_gone_is_asked_again(folder: Path, server: Any) -> None:
    with server(Collector, folder / "stranded", f"http://127.0.0.1:{free_port()}") as stranded:
        sink = make(OtlpSink, URL=stranded.url)
        sink.start()
        outcome = sink.deliver(samples(1))
        sink.close(1)
    assert list(outcome.retry) == [0] and outcome.reason


def test_by_client_certificate(folder: Path, server: Any, received: tuple[str, Received]) -> None:
    theirs, their_key = certificate(folder / "tls", "localhost")
    ours, our_key = certificate(folder / "tls", "joblens")
    stranger, strangers_key = certificate(folder / "tls", "stranger")
    tls = {"cert_file": theirs, "key_file": their_key, "client_ca_file": ours}
    with server(Collector, folder / "mutual", received[0], **tls) as collector:
        trusted = {"URL": collector.url, "AUTHORITY": str(theirs)}
        sink = make(OtlpSink, CERTIFICATE=str(ours), KEY=str(our_key), **trusted)
        assert all(one.ok for one in sink.check())
        sink.start()
        assert deliver(sink, [record(77)]) == []
        sink.close(1)
        assert until(lambda: "event-77" in received[1].events(), "the log")
        for shown in ({}, {"CERTIFICATE": str(stranger), "KEY": str(strangers_key)}):
            sink = make(OtlpSink, **trusted, **shown)
            sink.start()
            outcome = sink.deliver([record(1)])
            assert list(outcome.retry) == [0] and "client certificate" in outcome.reason, outcome
            assert any("client certificate" in line for line in complaints(sink))


def test_a_certificate_that_is_renewed_in_place_is_shown_after_the_next_failure(
    folder: Path, server: Any, received: tuple[str, Received]
) -> None:
    theirs, their_key = certificate(folder / "tls", "localhost")
    ours, our_key = certificate(folder / "tls", "renewed")
    old, old_key = certificate(folder / "tls", "outdated")
    certificate_file, key_file = folder / "node.pem", folder / "node.key"
    certificate_file.write_bytes(old.read_bytes())
    key_file.write_bytes(old_key.read_bytes())
    tls = {"cert_file": theirs, "key_file": their_key, "client_ca_file": ours}
    with server(Collector, folder / "renewing", received[0], **tls) as collector:
        sink = make(
            OtlpSink, URL=collector.url, AUTHORITY=str(theirs), CERTIFICATE=str(certificate_file), KEY=str(key_file)
        )
        sink.start()
        assert list(sink.deliver([record(1)]).retry) == [0]
        certificate_file.write_bytes(ours.read_bytes())
        key_file.write_bytes(our_key.read_bytes())
        assert deliver(sink, [record(1)]) == []
        sink.close(1)


def answering(status: int, body: bytes = b"") -> type[Web]:
    return type("Answering", (Web,), {"status": status, "body": body})


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_what_a_busy_collector_does_not_take_is_sent_again(serve: Any, status: int) -> None:
    sink = make(OtlpSink, URL=serve(answering(status)))
    sink.start()
    outcome = sink.deliver([*samples(2), record(1)])
    assert sorted(outcome.retry) == [0, 1, 2] and str(status) in outcome.reason


@pytest.mark.parametrize("wait, seconds", [("7", 7.0), ("9999", 60.0), ("\xb2", 0.0), ("soon", 0.0)])
def test_a_busy_collector_says_when_to_come_again(serve: Any, wait: str, seconds: float) -> None:
    class Busy(Web):
        status = 503

        def end_headers(self) -> None:
            self.send_header("Retry-After", wait)
            super().end_headers()

    sink = make(OtlpSink, URL=serve(Busy))
    sink.start()
    outcome = sink.deliver(samples(1))
    assert (list(outcome.retry), outcome.after) == ([0], seconds)


def test_what_is_rejected_is_never_called_delivered(serve: Any) -> None:
    answer = ExportMetricsServiceResponse()
    answer.partial_success.rejected_data_points = 3
    answer.partial_success.error_message = "too old"
    sink = make(OtlpSink, URL=serve(answering(200, answer.SerializeToString())))
    sink.start()
    outcome = sink.deliver(samples(2))
    assert list(outcome.refused) == [0, 1] and "too old" in outcome.refused[0]


def test_one_bad_record_does_not_take_others_with_it(serve: Any) -> None:
    class Picky(Web):
        def took(self, data: bytes) -> None:
            bad = b"#3.0#" in data
            type(self).status, type(self).body = (400, b"rejected: one of them is bad") if bad else (200, b"")

    sink = make(OtlpSink, URL=serve(Picky), COMPRESSION="none")
    sink.start()
    outcome = sink.deliver(samples(8))
    assert list(outcome.refused) == [3] and not outcome.retry


@pytest.mark.parametrize(
    "case, cause",
    [
        ("name", "does not resolve"),
        ("port", "nothing listens there"),
        ("tls", "does not speak TLS"),
        ("password", "refuses us (401)"),
        ("path", "has no /v1/metrics"),
        ("web", "does not answer as a collector does"),
    ],
)
def test_a_wrong_setting_is_named_by_its_cause(
    case: str, cause: str, serve: Any, collector: Collector, folder: Path
) -> None:
    url = {
        "name": lambda: "http://no-such-host.invalid:4318",
        "port": lambda: f"http://127.0.0.1:{free_port()}",
        "tls": lambda: collector.url.replace("http:", "https:"),
        "password": lambda: serve(answering(401)),
        "path": lambda: f"{collector.url}/v1/metrics",
        "web": lambda: serve(answering(200, b"<html>Welcome</html>")),
    }[case]()
    sink = make(OtlpSink, URL=url)
    sink.start()
    outcome = sink.deliver(samples(1))
    sink.close(1)
    assert list(outcome.retry) == [0] and cause in outcome.reason, outcome
    if case != "web":
        assert any(cause in line for line in complaints(make(OtlpSink, URL=url)))


def test_what_is_right_is_said_to_be(collector: Collector) -> None:
    found = list(make(OtlpSink, URL=collector.url).check())
    assert len(found) == 2 and all(one.ok for one in found), found


def test_headers_are_a_secret(folder: Path, serve: Any) -> None:
    seen: list[str] = []

    class Listening(Web):
        def took(self, data: bytes) -> None:
            seen.append(self.headers["Authorization"])

    file = folder / "headers"
    file.write_text("Authorization: Bearer swordfish\n")
    file.chmod(0o640)
    sink = make(OtlpSink, URL=serve(Listening), HEADERS_FILE=str(file))
    sink.start()
    assert deliver(sink, [record(1)]) == [] and seen == ["Bearer swordfish"]
    file.write_text("Authorization Bearer swordfish\n")
    with pytest.raises(Exception, match="line 1 is no header") as caught:
        make(OtlpSink, URL="http://127.0.0.1:1", HEADERS_FILE=str(file)).start()
    assert "swordfish" not in str(caught.value)
