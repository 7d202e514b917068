"""The strict mapping of our records in OpenSearch and Elasticsearch, from the same tables as the records."""

from __future__ import annotations

from typing import Any

from condor_joblens.model.metrics import FIELDS, METRICS
from condor_joblens.model.servers import MEANINGS
from condor_joblens.sinks import ENDPOINTS, SERVERS, RecordKind

_KEYWORD, _LONG, _DOUBLE, _FLAG = ({"type": kind} for kind in ("keyword", "long", "double", "boolean"))
_SECONDS = {"type": "date", "format": "epoch_second"}
_EVERY = {"Type": _KEYWORD, "Id": _KEYWORD, "Schema": _LONG, "Node": _KEYWORD, "Time": _SECONDS}
_UNSEARCHED = {"type": "object", "enabled": False}

SERVER_NAMES = "ServerNames"
"""A field that documents of jobs can be found by, and do not show: the names in their list of servers."""


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
    # who reads it has its parts; nobody searches for a server's bytes in each sample
    properties[ENDPOINTS] = properties[SERVERS] = _UNSEARCHED
    return properties


def _of_jobs() -> dict[str, Any]:
    """As of samples, but what a run asked of each server can be found and added up, a run at a time."""
    kinds = {"Name": {**_KEYWORD, "copy_to": SERVER_NAMES}, "Class": _KEYWORD, "Seconds": _DOUBLE}
    listed = {name: kinds.get(name, _LONG) for name in MEANINGS}
    nested = {"type": "nested", "dynamic": "strict", "properties": listed}
    return {**_of_rows(), SERVERS: nested, SERVER_NAMES: _KEYWORD}


def without_servers(mapping: dict[str, Any]) -> dict[str, Any]:
    """The mapping for an index that was made when servers could not be searched: that stays so."""
    ours = {SERVERS, SERVER_NAMES}
    return {**mapping, "properties": {name: kind for name, kind in mapping["properties"].items() if name not in ours}}


def _number(numpy_type: str) -> dict[str, str]:
    return _DOUBLE if numpy_type.startswith("f") else _LONG


def _of_events() -> dict[str, Any]:
    words = (
        "Kind", "Run", "GlobalJobId", "Slot", "Program", "CommandLine", "Level", "Reason", "Where", "Sink", "Cause",
        "Artifact", "ArtifactKind", "HangCause", "Exception", "Trigger", "Message",
    )  # fmt: skip
    numbers = (
        "Sequence", "RunNumber", "Pid", "ParentPid", "ExitCode", "ExitSignal", "MemoryBytes", "LimitBytes",
        "LevelNumber", "Count", "Bytes",
    )  # fmt: skip
    made: dict[str, Any] = {word: _KEYWORD for word in words}
    made.update({number: _LONG for number in numbers})
    return {**made, "LivedSeconds": _DOUBLE, "CoreDumped": _FLAG, "HangSuspected": _FLAG, "Mail": _FLAG}


def _of_health() -> dict[str, Any]:
    longs = ("UptimeSeconds", "Cpus", "MemoryBytes", "MemoryAvailableBytes", "ExecuteBytes", "ExecuteFreeBytes")
    doubles = ("Load", "CpuPressure", "MemoryPressure", "IoPressure")
    node = {**dict.fromkeys(("Kernel", "JobLens"), _KEYWORD), **dict.fromkeys(longs, _LONG)}
    node |= dict.fromkeys(doubles, _DOUBLE)
    return {
        **{"CpuSeconds": _DOUBLE, "ResidentBytes": _LONG, "Sinks": {"type": "object", "enabled": False}},
        "Machine": {"properties": node},
    }


def _of_profiles() -> dict[str, Any]:
    """Functions can be found and added up, a profile at a time; paths are there for who reads it."""
    words = ("Run", "GlobalJobId", "Owner", "Slot", "Artifact", "View", "Unit", "Lacks")
    numbers = ("RunNumber", "Total", "Lost", "Guessed", "Broken", "NotOurs", "Unplaced", "OtherPaths")
    made: dict[str, Any] = {**dict.fromkeys(words, _KEYWORD), **dict.fromkeys(numbers, _LONG)}
    listed = {"Function": _KEYWORD, "File": _KEYWORD, "Self": _LONG, "Total": _LONG}
    functions = {"type": "nested", "dynamic": "strict", "properties": listed}
    times = {"BeginTime": _SECONDS, "EndTime": _SECONDS, "Frequency": _DOUBLE}
    return {**made, **times, "Functions": functions, "Paths": _UNSEARCHED, "Unseen": _UNSEARCHED}


_OF_KIND = {
    RecordKind.SAMPLE: _of_rows,
    RecordKind.JOB: _of_jobs,
    RecordKind.EVENT: _of_events,
    RecordKind.HEALTH: _of_health,
    RecordKind.PROFILE: _of_profiles,
}
