"""What the sinks make of records: the mapping of OpenSearch, the messages of OpenTelemetry; and how knobs are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from condor_joblens.common.errors import JobLensError
from condor_joblens.model.metrics import METRICS, empty_rows
from condor_joblens.sinks import RecordKind, parsers, server_diagnosis
from condor_joblens.sinks.opensearch_mapping import mapping
from condor_joblens.sinks.otlp_messages import convention, encode, length_delimited, resource
from condor_joblens.sinks.row_numbers import numbers
from condor_joblens.sinks.schema import schemas


def leaves(properties: dict[str, Any], before: str = "") -> set[str]:
    found = set()
    for name, what in properties.items():
        inner = what.get("properties")
        found |= leaves(inner, f"{before}{name}.") if inner else {before + name}
    return found


@pytest.mark.parametrize("kind", RecordKind)
def test_the_mapping_has_each_field_of_the_schema_and_no_other(kind: RecordKind) -> None:
    expected = leaves(schemas()[kind]["properties"])
    if kind is RecordKind.JOB:  # of which servers can be searched
        listed = schemas()[kind]["properties"]["Servers"]["items"]["properties"]
        expected = expected - {"Servers"} | {f"Servers.{name}" for name in listed} | {"ServerNames"}
    if kind is RecordKind.PROFILE:  # of which functions can be searched
        listed = schemas()[kind]["properties"]["Functions"]["items"]["properties"]
        expected = expected - {"Functions"} | {f"Functions.{name}" for name in listed}
    assert leaves(mapping(kind)["properties"]) == expected


def test_no_two_metrics_are_the_same_in_opentelemetry() -> None:
    found = [(name, tuple(sorted(labels.items()))) for name, _, labels in map(convention, METRICS)]
    assert len(set(found)) == len(found)
    units = {}
    for metric in METRICS:
        name, unit, _ = convention(metric)
        assert units.setdefault(name, unit) == unit
    peeked = [convention(metric)[:2] for metric in METRICS if metric.group == "Peek"]
    assert set(peeked) == {("htcondor.job.peek.value", "1")}


NUMBERS = st.one_of(st.just(-1), st.integers(0, 2**63 - 1))
TIMES = st.one_of(st.just(float("nan")), st.just(float("inf")), st.floats(0, 1e18), st.just(-1.0))


@given(st.data())
def test_messages_hold_each_number_that_is_known_and_no_other(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(METRICS), min_size=1, max_size=12, unique=True))
    runs = data.draw(st.integers(1, 4))
    rows = empty_rows(runs)
    for metric in chosen:
        values = st.lists(TIMES if metric.is_float else NUMBERS, min_size=runs, max_size=runs)
        rows[metric.column] = data.draw(values)
    start = np.arange(runs, dtype="<i8") + 17 * 10**17
    message = ExportMetricsServiceRequest.FromString(
        b"".join(encode([resource({"run": str(run)}) for run in range(runs)], *numbers(rows), start, start + 5))
    )
    found = {}
    for one in message.resource_metrics:
        run = int(one.resource.attributes[0].value.string_value)
        for metric in one.scope_metrics[0].metrics:
            for point in (metric.sum if metric.HasField("sum") else metric.gauge).data_points:
                labels = tuple(sorted((label.key, label.value.string_value) for label in point.attributes))
                assert (point.start_time_unix_nano, point.time_unix_nano) == (start[run], start[run] + 5)
                value = point.as_double if point.HasField("as_double") else point.as_int
                assert found.setdefault((run, metric.name, labels), value) == value
    wanted = {}
    for metric in chosen:
        name, _, labels = convention(metric)
        for run, value in enumerate(rows[metric.column].tolist()):
            if 0 <= value < (1e18 if metric.is_float else 2**63):
                rounded = np.round(value, 6) if metric.is_float else value
                wanted[run, name, tuple(sorted(labels.items()))] = rounded
    assert found == wanted


@given(st.binary(max_size=20_000))
def test_a_field_is_as_long_as_it_says(content: bytes) -> None:
    made = length_delimited(2, content)
    size, shift, place = 0, 0, 1
    while True:
        size |= (made[place] & 127) << shift
        shift, place = shift + 7, place + 1
        if made[place - 1] < 128:
            break
    assert made[0] == 0x12 and size == len(content) and made[place:] == content


@pytest.mark.parametrize("value", ["", "host:", "host:0", "host:65536", ":9092", "host:port", "a b:1:x"])
def test_what_is_no_server_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        parsers.servers(9092)(value)


def test_servers_have_their_usual_port() -> None:
    assert parsers.servers(9092)("a, b:1 [::1]:2") == ("a:9092", "b:1", "[::1]:2")


@pytest.mark.parametrize(
    "value", ["", "host:9200", "ftp://host", "http://user:secret@host:9200", "http://", "http://h:1?x"]
)
def test_what_is_no_address_of_a_web_server_is_refused_without_its_password(value: str) -> None:
    with pytest.raises(ValueError, match="http://HOST:PORT") as caught:
        parsers.urls(value)
    assert "secret" not in str(caught.value)


@given(st.text(max_size=40))
@example("host:²")
def test_any_text_is_an_address_or_an_error_of_ours(value: str) -> None:
    try:
        host, port = server_diagnosis.split(value, 1)
    except JobLensError:
        return
    assert 0 < port < 65536 and isinstance(host, str)
