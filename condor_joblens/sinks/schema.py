"""The JSON Schema of each kind of record, made from the tables: docs/schema/*.json."""

from __future__ import annotations

from typing import Any

from condor_joblens.model import classes, endpoints, servers
from condor_joblens.model.events import TOLD_TO_TRIGGERS, EventKind
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import FIELDS, METRICS, SCHEMA, Field
from condor_joblens.sinks import CAUSES, ENDPOINTS, SERVERS, RecordKind

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
_NUMBER: dict[str, Any] = {"type": "number", "minimum": 0}
_TEXT: dict[str, Any] = {"type": "string"}


def schemas() -> dict[RecordKind, dict[str, Any]]:
    """Kind of record -> its schema."""
    return {
        RecordKind.SAMPLE: _run(RecordKind.SAMPLE),
        RecordKind.JOB: _run(RecordKind.JOB),
        RecordKind.EVENT: _event(),
        RecordKind.HEALTH: _health(),
        RecordKind.PROFILE: _profile(),
    }


def _object(properties: dict[str, Any], required: list[str], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False, **more}


def _head(kind: RecordKind) -> dict[str, Any]:
    return {
        "Type": {"const": kind.value},
        "Id": {**_TEXT, "description": "the same whenever this record is delivered again, and no other's"},
        "Schema": {"const": SCHEMA},
        "Node": {**_TEXT, "description": "the machine"},
        "Time": {"type": "number", "description": "epoch seconds"},
    }


_ALWAYS = ["Type", "Id", "Schema", "Node", "Time"]


def _titled(kind: RecordKind, title: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": _DRAFT, "title": f"JobLens: {title}", **schema}


def _run(kind: RecordKind) -> dict[str, Any]:
    properties = _head(kind)
    properties.update({field.record_name: _field(field) for field in FIELDS})
    for metric in METRICS:
        *groups, name = metric.path.split(".")
        inner = properties
        for group in groups:
            inner = inner.setdefault(group, _object({}, []))["properties"]
        inner[name] = {**(_NUMBER if metric.is_float else _COUNT), "description": f"{metric.help} ({metric.unit})"}
    properties[ENDPOINTS] = {"type": "array", "maxItems": endpoints.LISTED + 1, "items": _endpoint()}
    properties[SERVERS] = {"type": "array", "maxItems": servers.LISTED + 1, "items": _server()}
    title = "what a run has used so far" if kind is RecordKind.SAMPLE else "the last numbers of a run"
    return _titled(kind, title, _object(properties, [*_ALWAYS, "Run", "RunNumber", "Sequence", "UpdateTime"]))


def _field(field: Field) -> dict[str, Any]:
    kind = {"?": {"type": "boolean"}, "f8": _NUMBER}.get(field.type, _TEXT if field.type[0] == "S" else _COUNT)
    return {**kind, "description": field.help}


def _endpoint() -> dict[str, Any]:
    numbers = {"".join(word.capitalize() for word in name.split("_")): _COUNT for name in endpoints.NUMBERS}
    return _object(
        {
            "Name": _TEXT,
            "Address": _TEXT,
            "Port": {"type": "integer", "minimum": 1, "maximum": 65535},
            "Scope": {"enum": [scope.name.lower() for scope in endpoints.Scope if scope.value]},
            **numbers,
            "Failed": _COUNT,
            "RttSeconds": _NUMBER,
        },
        ["Scope", *numbers, "Failed"],
    )


def _server() -> dict[str, Any]:
    numbers = {"Requests": _COUNT, "SentBytes": _COUNT, "ReceivedBytes": _COUNT, "Seconds": _NUMBER, "Errors": _COUNT}
    return _object({"Name": _TEXT, "Class": {"enum": list(classes.SERVERS)}, **numbers}, [*numbers])


def _event() -> dict[str, Any]:
    recorded = [kind for kind in EventKind if kind not in TOLD_TO_TRIGGERS]
    kinds = ["".join(word.capitalize() for word in kind.name.split("_")) for kind in recorded]
    properties = {
        **_head(RecordKind.EVENT),
        "Kind": {"enum": kinds},
        "Sequence": {**_COUNT, "description": "in the node's ring; absent where the exporter tells of a loss"},
        "RunNumber": {**_COUNT, "description": "the run's number on this node"},
        "Run": {**_TEXT, "description": "GlobalJobId, `#` and the number of this start of the job"},
        "GlobalJobId": _TEXT,
        "Slot": _TEXT,
        "Pid": _COUNT,
        "ParentPid": _COUNT,
        "Program": _TEXT,
        "CommandLine": {**_TEXT, "description": "Exec: redacted"},
        "ExitCode": {"type": "integer", "minimum": 0, "maximum": 255},
        "ExitSignal": {"type": "integer", "minimum": 1, "maximum": 127},
        "CoreDumped": {"type": "boolean"},
        "LivedSeconds": _NUMBER,
        "MemoryBytes": {**_COUNT, "description": "Oom: of the process that was killed"},
        "LimitBytes": {**_COUNT, "description": "Oom: of the cgroup"},
        "Level": {"enum": [level.word for level in Level]},
        "LevelNumber": _COUNT,
        "Reason": _TEXT,
        "Count": {**_COUNT, "description": "Loss: records that never came"},
        "Where": _TEXT,
        "Sink": {**_TEXT, "description": "Loss: to which they never came"},
        "Artifact": {**_TEXT, "description": "Artifact: its name on the node, a sequence number and its kind"},
        "ArtifactKind": {**_TEXT, "description": "Artifact: profile, trace, hang ..."},
        "Bytes": {**_COUNT, "description": "Artifact: of its content"},
        "Cause": {"enum": list(CAUSES)},
        "HangSuspected": {"type": "boolean", "description": "Hang: false if the job no longer seems to hang"},
        "HangCause": {**_TEXT, "description": "Hang: what it waits for"},
        "Exception": {**_TEXT, "description": "Traceback: what ended a Python, and where it was raised"},
        "Trigger": {**_TEXT, "description": "Trigger: the file of triggers that sends it"},
        "Message": {**_TEXT, "description": "Trigger: what it says"},
        "Mail": {"type": "boolean", "description": "Trigger: whether it asks to be mailed"},
    }
    return _titled(RecordKind.EVENT, "what happened", _object(properties, [*_ALWAYS, "Kind"]))


PRESSURE = "percent of the last 10 seconds in which something waited for it; -1 if the kernel does not tell"
_PRESSURES = ("CpuPressure", "MemoryPressure", "IoPressure")
_ROOM = ("ExecuteBytes", "ExecuteFreeBytes")


def _health() -> dict[str, Any]:
    sink: dict[str, Any] = {
        "Sink": _TEXT,
        "Working": {"type": "boolean"},
        "LagSeconds": {**_NUMBER, "description": "age of the oldest record that waits"},
        "Dropped": {"type": "object", "additionalProperties": _COUNT, "propertyNames": {"enum": list(CAUSES)}},
    }
    for name in ("Queued", "Spooled"):
        sink.update({f"{name}Records": _COUNT, f"{name}Bytes": _COUNT})
    sink.update({name: _COUNT for name in ("Delivered", "Retried", "Refused", "Failures")})
    properties = {
        **_head(RecordKind.HEALTH),
        "CpuSeconds": _NUMBER,
        "ResidentBytes": _COUNT,
        "Sinks": {"type": "array", "items": _object(sink, sorted(sink))},
    }
    texts, counts = ("Kernel", "JobLens"), ("UptimeSeconds", "Cpus", "MemoryBytes", "MemoryAvailableBytes")
    pressures = {name: {"type": "number", "description": PRESSURE} for name in _PRESSURES}
    node = {**dict.fromkeys(texts, _TEXT), **dict.fromkeys(counts, _COUNT), "Load": _NUMBER, **pressures}
    room = {name: {**_COUNT, "description": "of the file system of EXECUTE"} for name in _ROOM}
    properties["Machine"] = {**_object({**node, **room}, sorted(node)), "description": "the node, just then"}
    title = "how joblens-export, its sinks and the node do"
    return _titled(RecordKind.HEALTH, title, _object(properties, [*_ALWAYS, "CpuSeconds", "ResidentBytes", "Sinks"]))


def _profile() -> dict[str, Any]:
    unit = "samples, or nanoseconds: see Unit"
    functions = {
        "Function": _TEXT,
        "File": {**_TEXT, "description": "of the program: a library, or a file of Python"},
        "Self": {**_COUNT, "description": f"where it was the innermost; {unit}"},
        "Total": {**_COUNT, "description": f"where it was anywhere in the path; {unit}"},
    }
    paths = {
        "Path": {**_TEXT, "description": "functions with `;` between, the outermost first"},
        "Value": {**_COUNT, "description": unit},
    }
    times = {name: {"type": "number", "description": "epoch seconds"} for name in ("BeginTime", "EndTime")}
    properties = {
        **_head(RecordKind.PROFILE),
        "Run": {**_TEXT, "description": "GlobalJobId, `#` and the number of this start of the job"},
        "GlobalJobId": _TEXT,
        "RunNumber": {**_COUNT, "description": "the run's number on this node"},
        "Owner": _TEXT,
        "Slot": _TEXT,
        "Artifact": {**_TEXT, "description": "the whole profile, as a file of the node (`joblens artifacts`)"},
        "View": {"enum": ["OnCpu", "OffCpu"], "description": "what its threads ran, or what they waited for"},
        "Unit": {"enum": ["samples", "nanoseconds"]},
        "BeginTime": {"type": "number", "description": "epoch seconds"},
        "EndTime": {"type": "number", "description": "epoch seconds"},
        "Frequency": {**_NUMBER, "description": "samples a second and CPU"},
        "Total": {**_COUNT, "description": f"all that was seen; {unit}"},
        "Lost": {**_COUNT, "description": f"that no path stands for: it could not be kept; {unit}"},
        "Guessed": {**_COUNT, "description": f"whose stack follows frame pointers without knowing; {unit}"},
        "Broken": {**_COUNT, "description": f"whose stack ends too early; {unit}"},
        "NotOurs": {**_COUNT, "description": "of processes that are left alone: another user's, or not dumpable"},
        "Unplaced": {**_COUNT, "description": f"with code of a file for which there was no place; {unit}"},
        "Lacks": {"type": "array", "items": _TEXT, "description": "what no profile of this view or kernel has"},
        "Unseen": {
            "type": "array",
            "maxItems": 64,
            "items": _object(times, sorted(times)),
            "description": "when nobody looked at the run, as what counts samples had ended; some is before BeginTime",
        },
        "Functions": {"type": "array", "maxItems": 50, "items": _object(functions, sorted(functions))},
        "Paths": {"type": "array", "maxItems": 200, "items": _object(paths, sorted(paths))},
        "OtherPaths": {**_COUNT, "description": f"of paths that had no room here; {unit}"},
    }
    required = [name for name in properties if name not in ("Owner", "Slot")]
    return _titled(RecordKind.PROFILE, "where a run spent its time", _object(properties, required))
