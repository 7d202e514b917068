"""Lines of a post -> rows of the store's tables. A line that is wrong is refused by itself, with the reason."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from condor_joblens.analysis.causes import general
from condor_joblens.common import compression
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.common.tokens import NODE, Who
from condor_joblens.hub.ingest import job_events
from condor_joblens.hub.store.schema import BY_TYPE, DAYS, JOB_DAYS, JOB_EVENTS, JOBS, OTHERS, QUEUE_DAYS, Table
from condor_joblens.hub.strict_json import decoded, encoded, has_deep_line
from condor_joblens.model.metrics import SCHEMA

_GZIP = b"\x1f\x8b"
"""How such a file begins."""

MOST_RECORDS = 5000
"""Of a post; a node's exporter hands a sink 2000 at a time."""

MOST_BYTES = 16 << 20
"""Of a post, unpacked; as much as the exporter keeps in memory for a sink."""

MOST_LINE = 256 << 10
_GREATEST = 1e18
_MOST_SCHEMA = 1 << 16
_ADDED = ("Cause", "SinkPeriodSeconds")
"""Names that are the hub's to say."""

_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""An escape of half a character: two of them are one."""

_AHEAD = 3600.0
"""Seconds that a node's clock may be ahead of ours. Rows lie in the store by their own day."""


class Row(NamedTuple):
    """One record, fit to be inserted."""

    position: int  # in its post
    table: Table
    line: bytes
    names: tuple[str, ...]  # of all that the line has


@dataclass
class Post:
    """What one node sent at a time."""

    rows: list[Row] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)  # position -> why

    @property
    def size(self) -> int:
        """Bytes of its rows."""
        return sum(len(row.line) for row in self.rows)


class NotAPost(JobLensError):
    """The body is not lines of JSON, packed by gzip, of a bounded size."""


def unpacked(body: bytes) -> bytes:
    """The lines of a body that gzip packed. Raises NotAPost."""
    unpacker = compression.unpacker()
    try:
        if not body.startswith(_GZIP):
            raise NotAPost("the body is not gzip")
        lines: bytes = unpacker.decompress(body, MOST_BYTES + 1)
    except compression.Error as error:
        raise NotAPost(f"the body is not gzip ({error})") from None
    if len(lines) > MOST_BYTES:
        raise NotAPost(f"the body has more than {MOST_BYTES >> 20} MiB")
    if not unpacker.eof or unpacker.unused_data:
        raise NotAPost("the body is not one whole gzip file")
    return lines


def read(lines: bytes, node: str, now: float | None = None, period: float = 0.0, role: str = NODE) -> Post:
    """Each line's row. Raises NotAPost.

    node: whose token was shown; nobody speaks for another. role: what that machine is. period: seconds, of the node's
    sink; 0: it takes all.
    """
    found, clock, who = Post(), time.time() if now is None else now, Who(role, node)
    those = lines.split(b"\n", MOST_RECORDS + 1)  # bytes have other ends of lines, which are not ours
    if not those[-1]:
        those.pop()
    if len(those) > MOST_RECORDS:
        raise NotAPost(f"more than {MOST_RECORDS} records")

    def why_not(record: dict[str, Any]) -> str:
        named = _text(record, "Node")
        if named != node:
            return f"it is of the node {named!r}, and the token is {node}'s"
        if record["Type"] != job_events.TYPE:
            return "" if who.is_node else "the token is an access point's, which tells of the queue alone"
        if not who.is_access_point:
            return "the token is a node's, which tells nothing of the queue"
        job = _text(record, "GlobalJobId")
        return "" if job_events.is_of(job, node) else "it is of another schedd's job"

    is_flat = not has_deep_line(lines)
    for position, line in enumerate(those):
        take(found, position, line, why_not, clock, period, is_flat)
    return found


def take(
    found: Post,
    position: int,
    line: bytes,
    why_not: Callable[[dict[str, Any]], str],
    now: float,
    period: float = 0.0,
    is_flat: bool = False,
) -> None:
    """Adds a line's row to `found`, or why there is none.

    why_not: of a record, why its sender may not say it; empty: he may. It may raise ValueError. now: epoch seconds.
    period: as `read` has it. is_flat: it has few brackets, as is known.
    """
    try:
        found.rows.append(_row(position, line, why_not, now, period, is_flat))
    except ValueError as error:
        found.refused[position] = printable(str(error), 200)
    except RecursionError:
        found.refused[position] = "it is nested too deep"


def _row(
    position: int, line: bytes, why_not: Callable[[dict[str, Any]], str], now: float, period: float, is_flat: bool
) -> Row:
    """Raises ValueError, RecursionError."""
    if len(line) > MOST_LINE:
        raise ValueError("a record is too long")
    record: Any = decoded(line, is_flat)
    if not isinstance(record, dict):
        raise ValueError("a record is a JSON object")
    if b"\\u" in line and _HALF.search(line):
        _refuse_halves(record)
    table = BY_TYPE.get(_text(record, "Type"))
    if table is None:
        raise ValueError(f"there is no type of record {record['Type']!r}")
    schema = record.get("Schema")
    if isinstance(schema, bool) or not isinstance(schema, int) or not 0 < schema < _MOST_SCHEMA:
        raise ValueError(f"its schema is {printable(repr(schema), 40)}: it is a number")
    refusal = why_not(record)
    if refusal:
        raise ValueError(refusal)
    days = {JOBS.name: JOB_DAYS, JOB_EVENTS.name: QUEUE_DAYS}.get(table.name, DAYS)
    _check_time("Time", record.get("Time"), now, days)
    identity = _text(record, "Id")
    if schema != SCHEMA:
        kept = {name: record[name] for name in ("Id", "Type", "Schema", "Node", "Time")}
        return row_of(position, OTHERS, {**kept, "Whole": line.decode("utf-8")})
    if record["Type"] in ("sample", "job"):
        if not _text(record, "Run") or not _text(record, "GlobalJobId"):
            raise ValueError("it names no run")
        # by it runs are sorted, and told to be alive
        _check_time("UpdateTime", record.get("UpdateTime"), now, JOB_DAYS)
        last = "/final" if record["Type"] == "job" else ""
        if identity != f"{record['Run']}/{record.get('RunNumber')}/{record.get('Sequence')}{last}":
            raise ValueError("its Id is not that of its run, number and sequence")
        for name in _ADDED:
            record.pop(name, None)
        record |= _added(record, period)
    elif table is JOB_EVENTS:
        record = job_events.cleaned(record)
    elif "Whole" in table.columns:
        record["Whole"] = line.decode("utf-8")
    return row_of(position, table, record)


def row_of(position: int, table: Table, record: dict[str, Any]) -> Row:
    """Written anew: a name that stands twice, or is spelled with escapes, would be read differently by the store."""
    return Row(position, table, encoded(record), tuple(record))


def _refuse_halves(record: dict[str, Any]) -> None:
    """Raises ValueError, if a text of it is none: the store keeps half a character, and no page can be sent with it."""
    try:
        json.dumps(record, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("a text of it has half a character: such an escape comes in pairs") from None


def _added(record: dict[str, Any], period: float) -> dict[str, Any]:
    """What the hub itself says of a run."""
    why = [word for word in (record.get("Death"), record.get("FirstFailure")) if isinstance(word, str) and word]
    cause = {"Cause": general(why[0])} if why and record["Type"] == "job" else {}
    return {**cause, "SinkPeriodSeconds": period} if period else cause


def _text(record: dict[str, Any], name: str) -> str:
    found = record.get(name)
    if not isinstance(found, str) or not found:
        raise ValueError(f"it has no {name}")
    return found


def _check_time(name: str, found: Any, now: float, days: int) -> None:
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not abs(found) < _GREATEST:
        raise ValueError(f"it has no {name}")
    if found > now + _AHEAD:
        raise ValueError(f"its {name} is {found - now:.0f} s ahead of the hub's clock: set the node's")
    if found < now - days * 86400:
        raise ValueError(f"its {name} is more than {days} days ago, and older ones are not kept")
