"""Rows as Parquet, for analysis: columns have types and units. The store writes it, of rows that a viewer was found.

So who may see what is decided where it is for JSON and CSV.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from condor_joblens.hub.store.client import MOMENT, Store

KIND = "application/vnd.apache.parquet"
"""https://www.iana.org/assignments/media-types"""

_MOMENTS = frozenset(("Time", "StartTime", "UpdateTime", "begin", "finish", "told", "since", "until"))
"""Columns of epoch seconds, which become times in UTC."""

_LATEST = 253402300800.0
"""The year 10000. The store knows no later time, and nodes say when runs began: what is none is absent."""

_UNITS = {
    **{name: f"{name}_core_hours" for name in ("used", "asked", "unused")},
    **{f"before_{name}": f"before_{name}_core_hours" for name in ("used", "asked", "unused")},
    **{name: f"{name}_bytes" for name in ("memory", "asked_memory")},
    **{"waiting": "waiting_requests", "first": "first_sequence", "last": "last_sequence"},
}
"""Names of columns that have no unit in JSON -> those that have one."""

_TEXTS = frozenset(("Owner", "AccountingGroup", "Vo", "Executable", "Death", "Note", "Why", "HangCause", "HoldReason"))
"""Columns that are texts even where no row has one."""


def written(store: Store, rows: Sequence[Mapping[str, Any]], types: Mapping[str, str] | None = None) -> bytes:
    """A file. types: of columns, as JSON Schema has them, where they are known. Raises JobLensError."""
    known = types or {}
    names = list(dict.fromkeys(name for row in rows for name in row)) or list(known)
    kinds = {name: _kind(name, known.get(name), (row.get(name) for row in rows)) for name in names}
    lines = (
        json.dumps({_UNITS.get(name, name): _cell(row.get(name), kinds[name]) for name in names}).encode()
        for row in rows
    )
    return store.converted({_UNITS.get(name, name): kind for name, kind in kinds.items()}, lines, "Parquet")


def types_of(schema: Mapping[str, Any]) -> dict[str, str]:
    """Of columns, by the JSON Schema of a row."""
    found = {}
    for name, one in schema["properties"].items():
        kinds = one.get("type", "string")
        found[name] = next((kind for kind in kinds if kind != "null"), "string") if isinstance(kinds, list) else kinds
    return found


def _kind(name: str, known: str | None, cells: Iterable[Any]) -> str:
    """The store's type of a column. Numbers of which nothing else is known are floating: their type must not change
    from file to file."""
    if name in _MOMENTS:
        return MOMENT
    if known is None:
        seen = next((cell for cell in cells if cell is not None), None)
        is_text = name in _TEXTS if seen is None else not isinstance(seen, (bool, int, float))
        known = "string" if is_text else "boolean" if isinstance(seen, bool) else "number"
    return {"number": "Float64", "integer": "Int64", "boolean": "Bool"}.get(known, "String")


def _cell(cell: Any, kind: str) -> Any:
    if cell is None or (isinstance(cell, float) and not math.isfinite(cell)):
        return None
    if kind == MOMENT:
        return cell if isinstance(cell, (int, float)) and 0 <= cell < _LATEST else None
    if kind == "String":
        return cell if isinstance(cell, str) else json.dumps(cell)
    return cell
