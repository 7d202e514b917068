"""Columns that are sums of the sources' words: all of them are put into the rows in one pass, in C.

totals.merge does the same for whatever is measured, column by column. The end of a job has no time for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

from condor_joblens.jobs.run_state import OFFSETS
from condor_joblens.model.metrics import ROW
from condor_joblens.sample._merge import ffi, lib  # type: ignore[import-not-found]

COUNTER, SECONDS, GAUGE = lib.MERGE_COUNTER, lib.MERGE_SECONDS, lib.MERGE_GAUGE
GREATEST, MEAN = lib.MERGE_GREATEST, lib.MERGE_MEAN


@dataclass(frozen=True)
class Part:
    """A word of a source: an element's field, of it the word at `index`. It is added, or taken off (`sign` -1)."""

    source: int
    struct: np.dtype[Any]
    field: str
    index: int = 0
    sign: int = 1

    @property
    def place(self) -> int:
        """In the element, in bytes."""
        return _place_of(self.struct, self.field) + 8 * self.index


@dataclass(frozen=True)
class Column:
    """One column of the row; its kind says what becomes of the sum of its parts."""

    name: str
    kind: int
    parts: tuple[Part, ...]
    factor: int = 1


class MergedColumns:
    """Columns that are merged together."""

    def __init__(self, columns: Sequence[Column]) -> None:
        """In their order: a later one of the same name goes on from what the one before has put there."""
        self._count = len(columns)
        self._columns = ffi.new("struct merged_column[]", max(1, len(columns)))
        for its, column in zip(self._columns, columns):
            its.kind, its.factor, its.parts = column.kind, column.factor, len(column.parts)
            its.row = _place_of(ROW, column.name)
            is_counter = column.kind in (COUNTER, SECONDS)
            its.offset = _place_of(OFFSETS, column.name) if is_counter else 0
            for number, part in enumerate(column.parts):
                its.source[number], its.place[number], its.sign[number] = part.source, part.place, part.sign

    def merge(
        self, rows: np.ndarray, offsets: np.ndarray, runs: np.ndarray, sources: Sequence[Optional[np.ndarray]]
    ) -> None:
        """Into `rows` (metrics.ROW) at `runs` (n,), with `offsets` (run_state.OFFSETS), as totals.merge does it.

        Each of `sources` has shape (n,), and None has nothing. Raises IndexError for a run that is not there.
        """
        which = _which(runs, min(len(rows), len(offsets)))
        if any(source is not None and len(source) != len(runs) for source in sources):
            raise ValueError("a source has not one element for each run")
        places = ffi.new("struct merge_source[]", [_place(source) for source in sources])
        at = ffi.from_buffer("int64_t[]", which)
        lib.merge_columns(_place(rows), _place(offsets), at, len(which), self._columns, self._count, places)


class GatheredColumns:
    """Columns of one type that are read together."""

    def __init__(self, names: Sequence[str]) -> None:
        """Of metrics.ROW."""
        (self._type,) = {ROW[name] for name in names}
        self._count, self._places = len(names), ffi.new("uint32_t[]", [_place_of(ROW, name) for name in names])

    def of(self, rows: np.ndarray, runs: np.ndarray) -> np.ndarray:
        """What they are in `rows` at `runs` (n,): shape (n, columns). Raises IndexError for a run that is not there."""
        which = _which(runs, len(rows))
        found: np.ndarray = np.empty((len(which), self._count), self._type)
        to = ffi.from_buffer("uint64_t[]", found, require_writable=True)
        at = ffi.from_buffer("int64_t[]", which)
        lib.gather_words(_place(rows), at, len(which), self._places, self._count, to)
        return found


def _which(runs: np.ndarray, room: int) -> np.ndarray:
    """The same as C reads them. Raises IndexError for a run that is not there."""
    if len(runs) and (runs.min() < 0 or runs.max() >= room):
        raise IndexError("no such run")
    which: np.ndarray = np.ascontiguousarray(runs, "i8")
    return which


def _place_of(struct: np.dtype[Any], field: str) -> int:
    """In bytes, from the struct's beginning."""
    fields: Any = struct.fields
    return int(fields[field][1])


def _place(table: Optional[np.ndarray]) -> tuple[Any, int]:
    if table is None:
        return ffi.NULL, 0
    return ffi.cast("char *", table.ctypes.data), table.strides[0]
