"""Rows and events -> records: a line of JSON each, made once for all sinks.

The names are those of the metric table, nested as in the job's ad: {"Cpu": {"UserSeconds": 1.5}}. What is absent in the
row (a number that this kernel or level can't give, a text that nobody set) is left out.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from condor_joblens import endpoints
from condor_joblens.events import EventKind
from condor_joblens.levels import Level
from condor_joblens.metrics import FIELDS, METRICS, SCHEMA, Field, text
from condor_joblens.sinks import ENDPOINTS, Kind, Record
from condor_joblens.sinks.numbers import DIGITS, GREATEST, chosen_of, numbers


def _is_text(field: Field) -> bool:
    return field.type.startswith("S")


_TEXTS = [(field.name, field.record_name) for field in FIELDS if _is_text(field)]
_FLAGS = [(field.name, field.record_name) for field in FIELDS if field.type == "?"]
_NUMBERS = [(field.name, field.record_name) for field in FIELDS if not _is_text(field) and field.type != "?"]


class RowEncoder:
    """Makes the records of many rows at a time, column by column. For one thread."""

    def __init__(self, node: str) -> None:
        """node: the machine's name."""
        self._node = node
        self._templates: dict[bytes, tuple[str, np.dtype[Any]]] = {}

    def records(self, rows: np.ndarray, kind: Kind) -> list[Record]:
        """A record a row (metrics.ROW, shape (n,)), in their order."""
        if not len(rows):
            return []
        table, known = numbers(rows)
        masks = [mask.tobytes() for mask in known]
        bodies = [""] * len(rows)
        for mask in set(masks):
            places = [place for place, other in enumerate(masks) if other == mask]
            template, columns = self._template(mask)
            for place, values in zip(places, table[places].view(columns).tolist()):
                bodies[place] = template % values
        heads = _heads(rows)
        return [self._record(row, kind, head, body) for row, head, body in zip(rows, heads, bodies)]

    def _template(self, mask: bytes) -> tuple[str, np.dtype[Any]]:
        """The text of the metrics that are known, with a place for each number, and how to read those out of NUMBERS.

        There are a few, as levels and kernels differ.
        """
        if mask not in self._templates:
            if len(self._templates) > 100:
                self._templates.clear()
            tree: dict[str, Any] = {}
            chosen = [metric for metric, there in zip(METRICS, np.frombuffer(mask, "?")) if there]
            for metric in chosen:
                *groups, name = metric.path.split(".")
                inner = tree
                for group in groups:
                    inner = inner.setdefault(group, {})
                inner[name] = "%s" if metric.is_float else "%d"
            written = json.dumps(tree, separators=(",", ":")).replace('"%s"', "%s").replace('"%d"', "%d")
            self._templates[mask] = written[1:-1], chosen_of(chosen)
        return self._templates[mask]

    def _record(self, row: np.void, kind: Kind, head: dict[str, Any], body: str) -> Record:
        run, sequence = head.get("Run", ""), head["Sequence"]
        identity = f"{run}/{head['RunNumber']}/{sequence}" + ("/final" if kind is Kind.JOB else "")
        time = float(head["UpdateTime"])
        fields = {"Type": kind.value, "Id": identity, "Schema": SCHEMA, "Node": self._node, "Time": time, **head}
        listed = endpoints.records(row["endpoints"])
        if listed:
            fields[ENDPOINTS] = listed
        line = _encode(fields)
        if body:
            line = f"{line[:-1]},{body}}}"
        return Record(kind, identity, head.get("GlobalJobId", self._node), time, line.encode(), sinks_of(row), row)


def sinks_of(row: np.void) -> frozenset[str]:
    """The only sinks that a row goes to; empty: all."""
    return frozenset(part.strip().lower() for part in text(row["sinks"]).split(",") if part.strip())


def _heads(rows: np.ndarray) -> Iterator[dict[str, Any]]:
    texts = [(name, rows[column].tolist()) for column, name in _TEXTS]
    flags = [(name, rows[column].tolist()) for column, name in _FLAGS]
    numbers = [(name, rows[column].tolist()) for column, name in _NUMBERS]
    for place in range(len(rows)):
        head: dict[str, Any] = {name: text(values[place]) for name, values in texts if values[place]}
        head.update((name, values[place]) for name, values in flags)
        head.update((name, values[place]) for name, values in numbers if 0 <= values[place] < math.inf)
        yield head


@dataclass(frozen=True)
class Owner:
    """Whose an event is."""

    run: str
    slot: str

    @functools.cached_property
    def global_job_id(self) -> str:
        """The run's name without its number."""
        return self.run.rpartition("#")[0] or self.run

    @functools.cached_property
    def json(self) -> str:
        """What stands in a record of it, with a comma before."""
        return "," + _encode({"Run": self.run, "GlobalJobId": self.global_job_id, "Slot": self.slot})[1:-1]


class EventEncoder:
    """Makes the records of events: text where it is always the same, for there can be thousands a second."""

    def __init__(self, node: str) -> None:
        """node: the machine's name."""
        self._node = node
        self._json = _encode({"Schema": SCHEMA, "Node": node})[1:-1]

    def record(self, event: np.void, identity: int, owner: Owner | None) -> Record:
        """`identity` is the ring's numbering. No owner: it is the whole node's, or nobody knows the run's name."""
        number, time, run_number, kind, *rest = event.item()
        if not math.isfinite(time):
            time = 0.0
        record_id = f"{self._node}/{identity:016x}/{number}"
        name = _KIND_NAMES.get(kind) or f"Kind{kind}"
        line = f'{{"Type":"event","Id":{_quote(record_id)},{self._json},"Time":{time!r},"Kind":"{name}"'
        line += f',"Sequence":{number}'
        if run_number:
            line += f',"RunNumber":{run_number}'
        if owner is not None:
            line += owner.json
        details = _details(kind, *rest)
        line = f"{line},{_encode(details)[1:]}" if details else line + "}"
        key = owner.global_job_id if owner else self._node
        return Record(_EVENT, record_id, key, time, line.encode())


_encode = json.JSONEncoder(separators=(",", ":")).encode
_quote = json.encoder.encode_basestring_ascii
_EVENT = Kind.EVENT
_KIND_NAMES = {int(kind): "".join(word.capitalize() for word in kind.name.split("_")) for kind in EventKind}
_RUN_START, _RUN_END, _EXEC, _EXIT, _OOM, _LEVEL, _LOSS = (
    int(kind)
    for kind in (
        *(EventKind.RUN_START, EventKind.RUN_END, EventKind.EXEC, EventKind.EXIT),
        *(EventKind.OOM, EventKind.LEVEL, EventKind.LOSS),
    )
)


def _line(fields: Mapping[str, Any]) -> bytes:
    return _encode(fields).encode()


def _details(
    kind: int,
    pid: int,
    parent_pid: int,
    status: int,
    value: int,
    limit: int,
    lived: float,
    program: bytes,
    words: bytes,
) -> dict[str, Any]:
    """What the fields of events.EVENT mean for this kind."""
    process: dict[str, Any] = {"Pid": pid} if pid > 0 else {}
    if parent_pid > 0:
        process["ParentPid"] = parent_pid
    if program:
        process["Program"] = text(program)
    said = text(words)
    if kind == _RUN_START:
        return {}
    if kind == _RUN_END:
        return _ended(status)
    if kind == _EXEC:
        return {**process, "CommandLine": said} if said else process
    if kind == _EXIT:
        seconds = {"LivedSeconds": round(lived, DIGITS)} if 0 <= lived < GREATEST else {}
        return {**process, **_ended(status), **seconds}
    if kind == _OOM:
        return {**process, "MemoryBytes": value, **({"LimitBytes": limit} if limit >= 0 else {})}
    if kind == _LEVEL:
        level = Level(value).word if value in Level.__members__.values() else str(value)
        return {"Level": level, "LevelNumber": value, **({"Reason": said} if said else {})}
    if kind == _LOSS:
        return {"Count": value, "Where": said}
    return {**process, "Reason": said} if said else process


def _ended(status: int) -> dict[str, Any]:
    """As wait(2) has it; nothing where nobody saw the end."""
    if status < 0:
        return {}
    signal = status & 0x7F
    if not signal:
        return {"ExitCode": status >> 8 & 0xFF}
    return {"ExitSignal": signal, "CoreDumped": bool(status & 0x80)}


def loss(node: str, sink: str, cause: str, count: int, identity: str, time: float) -> Record:
    """The event that so many records did not come to this sink."""
    fields = {"Type": Kind.EVENT.value, "Id": identity, "Schema": SCHEMA, "Node": node, "Time": time, "Kind": "Loss"}
    fields.update({"Count": count, "Where": "on the way to the sink", "Sink": sink, "Cause": cause})
    return Record(Kind.EVENT, identity, node, time, _line(fields), frozenset({sink}))


def health(
    node: str, sinks: Sequence[Mapping[str, Any]], process: Mapping[str, Any], identity: str, time: float
) -> Record:
    """How the exporter does."""
    fields = {"Type": Kind.HEALTH.value, "Id": identity, "Schema": SCHEMA, "Node": node, "Time": time}
    fields.update({**process, "Sinks": list(sinks)})
    return Record(Kind.HEALTH, identity, node, time, _line(fields))


def from_line(line: bytes) -> Record:
    """The record whose JSON this is. Raises ValueError where it is none of ours."""
    try:
        fields = json.loads(line)
        key = str(fields.get("GlobalJobId", fields["Node"]))
        return Record(Kind(fields["Type"]), str(fields["Id"]), key, float(fields["Time"]), line)
    except (KeyError, TypeError, AttributeError):
        raise ValueError("no record") from None
