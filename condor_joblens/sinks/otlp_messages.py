"""Runs as OpenTelemetry metrics: names by the semantic conventions, one resource a run, bytes made column by column.

OpenTelemetry's own encoder makes some objects a number. But OTLP's numbers and times are fixed64, sfixed64 and double:
only eight bytes of fixed width change between two numbers of a metric. So 200 runs of the same kind are one serialised
message of OpenTelemetry's classes, copied 200 times. The columns are written into its holes.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, NumberDataPoint, ScopeMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from condor_joblens import __version__
from condor_joblens.model.metrics import METRICS, Metric, MetricKind
from condor_joblens.sinks.row_numbers import alike

_CONVENTIONS: dict[str, tuple[str, str, dict[str, str]]] = {
    "Cpu.UserSeconds": ("process.cpu.time", "s", {"cpu.mode": "user"}),
    "Cpu.SystemSeconds": ("process.cpu.time", "s", {"cpu.mode": "system"}),
    "Memory.ResidentBytes": ("process.memory.usage", "By", {}),
    "Memory.MajorFaults": ("process.paging.faults", "{fault}", {"system.paging.fault.type": "major"}),
    "Memory.MinorFaults": ("process.paging.faults", "{fault}", {"system.paging.fault.type": "minor"}),
    "Io.StorageReadBytes": ("process.disk.io", "By", {"disk.io.direction": "read"}),
    "Io.StorageWriteBytes": ("process.disk.io", "By", {"disk.io.direction": "write"}),
    "Tcp.SentBytes": ("process.network.io", "By", {"network.io.direction": "transmit", "network.transport": "tcp"}),
    "Tcp.ReceivedBytes": ("process.network.io", "By", {"network.io.direction": "receive", "network.transport": "tcp"}),
    "Process.Threads": ("process.thread.count", "{thread}", {}),
}
"""What OpenTelemetry's semantic conventions have a name for. All else is below htcondor.job."""

_PIECE = 10
"""Runs: so that a piece is below what the allocator would map, and the kernel clear, anew each time (256 KiB)."""

_UNITS = {"seconds": "s", "bytes": "By", "hours": "h", "bytes/hour": "By/h", "value": "1"}
_ALONE = {"value": "value"}
"""By unit, the last part of the name of a metric that is its group's only one; that of counts is `calls`."""


def convention(metric: Metric) -> tuple[str, str, dict[str, str]]:
    """Name, unit (UCUM) and attributes of a metric in OpenTelemetry."""
    known = _CONVENTIONS.get(metric.path)
    if known:
        return known
    rest = metric.family[len(f"joblens_job_{metric.group.lower()}") :].strip("_") or _ALONE.get(metric.unit, "calls")
    for suffix, instead in (("seconds", "time"), ("bytes", "size")):
        if rest == suffix or (suffix == "seconds" and rest.endswith("_seconds")):
            rest = rest[: -len(suffix)] + instead
    rest = rest[: -len("_bytes")] if rest.endswith("_bytes") else rest
    attributes = {f"htcondor.job.{metric.label[0]}": metric.label[1]} if metric.label else {}
    return f"htcondor.job.{metric.group.lower()}.{rest}", _UNITS.get(metric.unit, f"{{{metric.unit}}}"), attributes


def attributes(values: Mapping[str, Any]) -> list[KeyValue]:
    """OpenTelemetry's attributes; what is None or an empty text is left out."""
    made = []
    for name, value in values.items():
        if value is None or value == "":
            continue
        kind = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value"}[type(value)]
        made.append(KeyValue(key=name, value=AnyValue(**{kind: value})))
    return made


def resource(values: Mapping[str, Any]) -> bytes:
    """A serialised Resource with these attributes."""
    return bytes(Resource(attributes=attributes(values)).SerializeToString())


def scope() -> InstrumentationScope:
    """Who measured."""
    return InstrumentationScope(name="condor_joblens", version=__version__)


def length_delimited(number: int, content: bytes) -> bytes:
    """A field of a protobuf message that is itself a message."""
    return _head(number, len(content)) + content


def _head(number: int, size: int) -> bytes:
    """What stands before a message of so many bytes."""
    made = bytearray([number << 3 | 2])
    while size > 127:
        made.append(size & 127 | 128)
        size >>= 7
    made.append(size)
    return bytes(made)


def encode(
    resources: Sequence[bytes], words: np.ndarray, known: np.ndarray, start: np.ndarray, time: np.ndarray
) -> Iterator[bytes]:
    """A serialised ExportMetricsServiceRequest of n runs, in pieces.

    resources: n serialised Resources; words, known: as numbers() gives them; start, time: int64 nanoseconds since the
    epoch, shape (n,).
    """
    for mask, rows in alike(known).items():
        there = np.flatnonzero(known[rows[0]])
        for begin in range(0, len(rows) if len(there) else 0, _PIECE):
            some = rows[begin : begin + _PIECE]
            scopes = _filled(mask, words[some].take(there, axis=1), start[some], time[some])
            yield b"".join(part for row, content in zip(some, scopes) for part in _of_run(resources[row], content))


def _of_run(resource: bytes, scope: bytes) -> tuple[bytes, ...]:
    """A ResourceMetrics, in parts that need not be copied to be counted."""
    first, second = length_delimited(1, resource), _head(2, len(scope))
    return _head(1, len(first) + len(second) + len(scope)), first, second, scope


def _filled(known: bytes, values: np.ndarray, start: np.ndarray, time: np.ndarray) -> list[bytes]:
    """A serialised ScopeMetrics a run."""
    template, holes, starts, times = _template(known)
    runs = len(values)
    copies = np.tile(np.frombuffer(template, "u1"), (runs, 1))
    eight = np.arange(8)
    for where, numbers in ((holes, values), (starts, start[:, None]), (times, time[:, None])):
        filled = np.broadcast_to(numbers, (runs, len(where))).astype("<i8").view("u1").reshape(runs, -1)
        copies[:, (where[:, None] + eight).reshape(-1)] = filled
    return [copy.tobytes() for copy in copies]


@functools.lru_cache(maxsize=64)
def _template(known: bytes) -> tuple[bytes, np.ndarray, np.ndarray, np.ndarray]:
    """The serialised ScopeMetrics of the metrics that are `known` (a bool each), and where in it their values, starts
    and times are."""
    metrics = list(itertools.compress(METRICS, known))
    made = ScopeMetrics(scope=scope())
    families: dict[str, Any] = {}
    marks = [struct.pack("<q", 0x5AF00D0000000000 | position << 8 | 0xA5) for position in range(len(metrics))]
    starts, times = (struct.pack("<q", mark) for mark in (0x5A57A27100000001, 0x5A71AE0000000002))
    for metric, mark in zip(metrics, marks):
        name, unit, labels = convention(metric)
        family = families.get(name)
        if family is None:
            family = families[name] = made.metrics.add(name=name, unit=unit, description=metric.help)
            if metric.kind is MetricKind.COUNTER:
                family.sum.is_monotonic = True
                family.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
        value: dict[str, Any] = (
            {"as_double": struct.unpack("<d", mark)[0]} if metric.is_float else {"as_int": struct.unpack("<q", mark)[0]}
        )
        point = NumberDataPoint(
            attributes=attributes(labels),
            start_time_unix_nano=struct.unpack("<q", starts)[0],
            time_unix_nano=struct.unpack("<q", times)[0],
            **value,
        )
        (family.sum if metric.kind is MetricKind.COUNTER else family.gauge).data_points.append(point)
    text = bytes(made.SerializeToString())
    holes = np.array([text.index(mark) for mark in marks])
    return text, holes, _all(text, starts), _all(text, times)


def _all(text: bytes, mark: bytes) -> np.ndarray:
    found, position = [], text.find(mark)
    while position >= 0:
        found.append(position)
        position = text.find(mark, position + 8)
    places: np.ndarray = np.array(found)
    return places
