"""The strict mapping of our records in OpenSearch and Elasticsearch, from the same tables as the records."""

from __future__ import annotations

from typing import Any

from condor_joblens.model.metrics import FIELDS, METRICS
from condor_joblens.sinks import ENDPOINTS, SERVERS, RecordKind

_KEYWORD, _LONG, _DOUBLE, _FLAG = ({"type": kind} for kind in ("keyword", "long", "double", "boolean"))
_SECONDS = {"type": "date", "format": "epoch_second"}
_EVERY = {"Type": _KEYWORD, "Id": _KEYWORD, "Schema": _LONG, "Node": _KEYWORD, "Time": _SECONDS}


def mapping(kind: RecordKind) -> dict[str, Any]:
    """The mapping of one kind of records: a document with any other field, or one of another type, is refused."""
    made: dict[str, Any] = {"dynamic": "strict", "properties": dict(_EVERY)}
    made["properties"].update(_OF_KIND[kind]())
    return made


def _of_rows() -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for field in FIELDS:
        kind = _FLAG if field.type == "?" else _KEYWORD if field.type[0] == "S" else _number(field.type)
        properties[field.record_name] = _SECONDS if field.name.endswith("_time") else kind
    for metric in METRICS:
        *groups, name = metric.path.split(".")
        inner = properties
        for group in groups:
            inner = inner.setdefault(group, {"properties": {}})["properties"]
        inner[name] = _DOUBLE if metric.is_float else _LONG
    # who reads it has its parts; nobody searches for a server's bytes among a run's
    properties[ENDPOINTS] = properties[SERVERS] = {"type": "object", "enabled": False}
    return properties


def _number(numpy_type: str) -> dict[str, str]:
    return _DOUBLE if numpy_type.startswith("f") else _LONG


def _of_events() -> dict[str, Any]:
    words = (
        "Kind", "Run", "GlobalJobId", "Slot", "Program", "CommandLine", "Level", "Reason", "Where", "Sink", "Cause",
        "Artifact", "ArtifactKind", "HangCause",
    )  # fmt: skip
    numbers = (
        "Sequence", "RunNumber", "Pid", "ParentPid", "ExitCode", "ExitSignal", "MemoryBytes", "LimitBytes",
        "LevelNumber", "Count", "Bytes",
    )  # fmt: skip
    made: dict[str, Any] = {word: _KEYWORD for word in words}
    made.update({number: _LONG for number in numbers})
    return {**made, "LivedSeconds": _DOUBLE, "CoreDumped": _FLAG, "HangSuspected": _FLAG}


def _of_health() -> dict[str, Any]:
    return {"CpuSeconds": _DOUBLE, "ResidentBytes": _LONG, "Sinks": {"type": "object", "enabled": False}}


_OF_KIND = {
    RecordKind.SAMPLE: _of_rows,
    RecordKind.JOB: _of_rows,
    RecordKind.EVENT: _of_events,
    RecordKind.HEALTH: _of_health,
}
