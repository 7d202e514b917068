"""All numbers of some rows at once, as they leave the node.

A row's metrics are words of eight bytes, one behind the other. So a thousand rows are one matrix and some operations of
numpy's. Column by column it would be two hundred times as many, each through all of the memory.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from condor_joblens.model.metrics import ABSENT, FIELDS, METRICS, ROW, cut, empty_rows
from condor_joblens.sinks import Record

DIGITS = 6  # microseconds
GREATEST = 1e18  # beyond this it is no number of seconds or cores

_FIRST: int = ROW.fields[METRICS[0].column][1] // 8  # type: ignore[index]  # it has fields
FLOATS: np.ndarray = np.array([metric.is_float for metric in METRICS])
"""Which metrics are no integers, shape (metrics,)."""


def numbers(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The metrics of rows (metrics.ROW, shape (n,)) as words, i8 of shape (n, metrics), and which of them are known.
    Words of FLOATS are a rounded double's."""
    words: np.ndarray = np.ascontiguousarray(rows).view("i8").reshape(len(rows), ROW.itemsize // 8)
    words = words[:, _FIRST : _FIRST + len(METRICS)].copy()
    floats: np.ndarray = words.view("f8")
    with np.errstate(all="ignore"):  # what is too great is not known below
        floats[:, FLOATS] = np.round(floats[:, FLOATS], DIGITS)
        known = np.where(FLOATS, (floats >= 0) & (floats < GREATEST), words >= 0)
    return words, known


def only(rows: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """A copy of rows (metrics.ROW, shape (n,)) in which all metrics but the wanted ones (metrics,) are absent."""
    kept: np.ndarray = np.array(rows, order="C")
    words: np.ndarray = kept.view("i8").reshape(len(kept), ROW.itemsize // 8)[:, _FIRST : _FIRST + len(METRICS)]
    words[:, ~wanted & ~FLOATS] = ABSENT
    words.view("f8")[:, ~wanted & FLOATS] = math.nan
    return kept


def alike(known: np.ndarray) -> dict[bytes, list[int]]:
    """The rows of which the same metrics are known (n, metrics): that row of `known` -> their places. There are few."""
    found: dict[bytes, list[int]] = {}
    for place, mask in enumerate(known):
        found.setdefault(mask.tobytes(), []).append(place)
    return found


def rows_of(records: Sequence[Record]) -> np.ndarray:
    """The rows (metrics.ROW, shape (n,)) of which samples or last records were made.

    What has been on the disk has its JSON alone: all but endpoints is made anew from that.
    """
    kept = [record.row.tobytes() for record in records if record.row is not None]
    rows: np.ndarray = np.frombuffer(b"".join(kept), ROW)
    if len(rows) == len(records):
        return rows
    found = [record.fields() for record in records]
    rows = empty_rows(len(records))
    for field in FIELDS:
        values = [one.get(field.record_name, "" if field.type[0] == "S" else 0) for one in found]
        rows[field.name] = [cut(value, field.name) for value in values] if field.type[0] == "S" else values
    for groups, members in _GROUPS.items():
        inner = [functools.reduce(_inside, groups, fields) for fields in found]
        for name, column, absent in members:
            rows[column] = [fields.get(name, absent) for fields in inner]
    return rows


_GROUPS: dict[tuple[str, ...], list[tuple[str, str, float]]] = {}  # groups -> name, column, its value where absent
for _metric in METRICS:
    *_path, _name = _metric.path.split(".")
    _absent = math.nan if _metric.is_float else ABSENT
    _GROUPS.setdefault(tuple(_path), []).append((_name, _metric.column, _absent))


def _inside(fields: dict[str, Any], group: str) -> dict[str, Any]:
    inner: dict[str, Any] = fields.get(group, {})
    return inner
