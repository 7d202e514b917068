"""Rows and events -> records: a line of JSON each, made once for all sinks.

The names are those of the metric table, nested as in the job's ad: {"Cpu": {"UserSeconds": 1.5}}. What is absent in the
row (a number that this kernel or level can't give, a text that nobody set) is left out.
"""

from __future__ import annotations

import functools
import json
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from condor_joblens.model import endpoints, servers
from condor_joblens.model.events import EventKind
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import FIELDS, METRICS, ROW, SCHEMA, Field, text
from condor_joblens.sinks import ENDPOINTS, SERVERS, Record, RecordKind
from condor_joblens.sinks.decimals import decimals
from condor_joblens.sinks.row_numbers import DIGITS, FLOATS, GREATEST, alike, numbers

_HOLE = "@"  # in no name


def _is_text(field: Field) -> bool:
    return field.type.startswith("S")


_TEXTS = [(field.name, field.record_name) for field in FIELDS if _is_text(field)]
_FLAGS = [(field.name, field.record_name) for field in FIELDS if field.type == "?"]
_MOVING = ("update_time", "sequence")
"""What all else of a row may stay the same for; records say these themselves."""

_NUMBERS = [
    (field.name, field.record_name)
    for field in FIELDS
    if not _is_text(field) and field.type != "?" and field.name not in _MOVING
]
_KNOWN = 2048
"""Heads of rows that are kept, of 3 KB each; what a run says of itself changes a few times."""


_PLACES: Any = ROW.fields
_HEAD: np.dtype[Any] = np.dtype(
    {
        "names": _MOVING,
        "formats": [ROW[column] for column in _MOVING],
        "offsets": [_PLACES[column][1] for column in _MOVING],
        "itemsize": _PLACES[METRICS[0].column][1],
    }
)
"""What stands before a row's metrics: FIELDS."""


class RowEncoder:
    """Makes the records of many rows at a time. For one thread."""

    def __init__(self, node: str) -> None:
        """node: the machine's name."""
        self._node = node
        self._json = _encode({"Schema": SCHEMA, "Node": node})[1:-1]
        self._known: dict[bytes, _Known] = {}
        self._templates: dict[bytes, _Template] = {}

    def records(self, rows: np.ndarray, kind: RecordKind) -> list[Record]:
        """A record a row (metrics.ROW, shape (n,)), in their order."""
        if not len(rows):
            return []
        words, known = numbers(rows)
        bodies = [b""] * len(rows)
        for mask, places in alike(known).items():
            for place, body in zip(places, self._template(mask).fill(words[places])):
                bodies[place] = body
        # of a run that is over nothing will be said again
        heads = map(_Known.of, rows) if kind is RecordKind.JOB else self._heads(rows)
        return [self._record(row, kind, head, body) for row, head, body in zip(rows, heads, bodies)]

    def _template(self, mask: bytes) -> _Template:
        """There are a few, as levels and kernels differ."""
        if mask not in self._templates:
            if len(self._templates) > 100:
                self._templates.clear()
            self._templates[mask] = _Template(np.frombuffer(mask, "?"))
        return self._templates[mask]

    def _heads(self, rows: np.ndarray) -> list[_Known]:
        """What rows (n,) say of their runs: most of it is what they said before."""
        heads: np.ndarray = np.ascontiguousarray(rows).view("u1").reshape(len(rows), -1)[:, : _HEAD.itemsize].copy()
        moving = heads.reshape(-1).view(_HEAD)
        for column in _MOVING:
            moving[column] = 0
        texts = [head.tobytes() for head in heads]
        unknown = [place for place, head in enumerate(texts) if head not in self._known]
        if len(self._known) + len(unknown) > _KNOWN:
            self._known.clear()
            unknown = list(range(len(rows)))
        for place, row in zip(unknown, rows[unknown]):
            self._known[texts[place]] = _Known.of(row)
        return [self._known[head] for head in texts]

    def _record(self, row: np.void, kind: RecordKind, head: _Known, body: bytes) -> Record:
        sequence, updated = int(row["sequence"]), int(row["update_time"])
        identity = f"{head.identity}/{sequence}" + ("/final" if kind is RecordKind.JOB else "")
        line = f'{{"Type":"{kind.value}","Id":{_quote(identity)},{self._json},"Time":{float(updated)!r}'
        line += f',"UpdateTime":{updated},"Sequence":{sequence}{head.json}'
        listed = endpoints.records(row["endpoints"])
        if listed:
            line += f',"{ENDPOINTS}":{_encode(listed)}'
        asked = servers.records(row["servers"])
        if asked:
            line += f',"{SERVERS}":{_encode(asked)}'
        whole = b"%b%b%b}" % (line.encode(), b"," if body else b"", body)
        return Record(kind, identity, head.key or self._node, float(updated), whole, head.sinks, row)


@dataclass(frozen=True)
class _Known:
    """What all records of a run say of it."""

    identity: str
    key: str  # GlobalJobId
    sinks: frozenset[str]  # the only ones it goes to; empty: all
    json: str  # with a comma before

    @classmethod
    def of(cls, row: np.void) -> _Known:
        """By a row (metrics.ROW)."""
        head: dict[str, Any] = {name: text(row[column]) for column, name in _TEXTS if row[column]}
        head.update((name, bool(row[column])) for column, name in _FLAGS if row[column] or column != "corrects")
        head.update((name, row[column].item()) for column, name in _NUMBERS if 0 <= row[column] < math.inf)
        identity = f"{head.get('Run', '')}/{head['RunNumber']}"
        return cls(identity, head.get("GlobalJobId", ""), sinks_of(row), f",{_encode(head)[1:-1]}")


class _Template:
    """The text of the metrics that are known, with a place for each number."""

    def __init__(self, known: np.ndarray) -> None:
        """known: which of METRICS, shape (metrics,)."""
        tree: dict[str, Any] = {}
        chosen = np.flatnonzero(known)
        for metric in map(METRICS.__getitem__, chosen.tolist()):
            *groups, name = metric.path.split(".")
            inner = tree
            for group in groups:
                inner = inner.setdefault(group, {})
            inner[name] = _HOLE
        pieces = _encode(tree)[1:-1].split(f'"{_HOLE}"')
        self._parts: list[bytes] = [b""] * (2 * len(pieces) - 1)
        self._parts[::2] = map(str.encode, pieces)
        is_float = FLOATS[chosen]
        self._floats, self._integers = chosen[is_float], chosen[~is_float]
        # the text's order of numbers of which the floats are written first
        order = np.argsort(np.concatenate((self._floats, self._integers))).tolist()
        self._in_order: Callable[[list[bytes]], Sequence[bytes]] = operator.itemgetter(*order) if order[1:] else list

    def fill(self, words: np.ndarray) -> Iterator[bytes]:
        """The text for each row, shape (n, metrics), as numbers() gives them."""
        parts = self._parts
        for floats, integers in zip(decimals(words[:, self._floats].view("f8")), decimals(words[:, self._integers])):
            parts[1::2] = self._in_order(floats + integers)
            yield b"".join(parts)


def sinks_of(row: np.void) -> frozenset[str]:
    """The only sinks that a row goes to; empty: all."""
    return frozenset(part.strip().lower() for part in text(row["sinks"]).split(",") if part.strip())


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
_EVENT = RecordKind.EVENT
_KIND_NAMES = {int(kind): "".join(word.capitalize() for word in kind.name.split("_")) for kind in EventKind}
_RUN_START, _RUN_END, _EXEC, _EXIT, _OOM, _LEVEL, _LOSS, _ARTIFACT, _HANG, _TRIGGER, _TRACEBACK = (
    int(kind)
    for kind in (
        *(EventKind.RUN_START, EventKind.RUN_END, EventKind.EXEC, EventKind.EXIT),
        *(EventKind.OOM, EventKind.LEVEL, EventKind.LOSS, EventKind.ARTIFACT, EventKind.HANG),
        *(EventKind.TRIGGER, EventKind.TRACEBACK),
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
    if kind == _ARTIFACT:
        return {"Artifact": said, "ArtifactKind": said.rpartition(".")[2], "Bytes": value}
    if kind == _HANG:
        return {"HangSuspected": value == 1, **({"HangCause": said} if said else {})}
    if kind == _TRIGGER:
        return {"Trigger": text(program), "Message": said, "Mail": value == 1}
    if kind == _TRACEBACK:
        return {**process, "Exception": said}
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
    fields = {
        "Type": RecordKind.EVENT.value,
        "Id": identity,
        "Schema": SCHEMA,
        "Node": node,
        "Time": time,
        "Kind": "Loss",
    }
    fields.update({"Count": count, "Where": "on the way to the sink", "Sink": sink, "Cause": cause})
    return Record(RecordKind.EVENT, identity, node, time, _line(fields), frozenset({sink}))


def health(
    node: str, sinks: Sequence[Mapping[str, Any]], process: Mapping[str, Any], identity: str, time: float
) -> Record:
    """How the exporter does."""
    fields = {"Type": RecordKind.HEALTH.value, "Id": identity, "Schema": SCHEMA, "Node": node, "Time": time}
    fields.update({**process, "Sinks": list(sinks)})
    return Record(RecordKind.HEALTH, identity, node, time, _line(fields))


def from_line(line: bytes) -> Record:
    """The record whose JSON this is. Raises ValueError where it is none of ours."""
    try:
        fields = json.loads(line)
        key = str(fields.get("GlobalJobId", fields["Node"]))
        return Record(RecordKind(fields["Type"]), str(fields["Id"]), key, float(fields["Time"]), line)
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise ValueError("no record") from None
