"""All numbers of some rows at once, as they leave the node.

A row's metrics are words of eight bytes, one behind the other: a thousand rows are one matrix and some operations of
numpy's, where their columns one by one are two hundred times as many, each through all of the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from condor_joblens.metrics import METRICS, ROW, Metric

DIGITS = 6  # microseconds
GREATEST = 1e18  # beyond this it is no number of seconds or cores

NUMBERS: np.dtype[Any] = np.dtype([(metric.column, ROW[metric.column]) for metric in METRICS])
"""The metrics of a row, and nothing else."""

_FIRST: int = ROW.fields[METRICS[0].column][1] // 8  # type: ignore[index]  # it has fields
_FLOATS: np.ndarray = np.array([metric.is_float for metric in METRICS])


def chosen_of(metrics: Sequence[Metric]) -> np.dtype[Any]:
    """NUMBERS without all other metrics: as a view of it, for little."""
    names = [metric.column for metric in metrics]
    fields: Any = NUMBERS.fields
    formats, offsets = [fields[name][0] for name in names], [fields[name][1] for name in names]
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": NUMBERS.itemsize})


def numbers(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The metrics of rows (metrics.ROW, shape (n,)), rounded, in a copy of NUMBERS, shape (n,); and which of them are
    known, shape (n, metrics)."""
    words: np.ndarray = np.ascontiguousarray(rows).view("i8").reshape(len(rows), ROW.itemsize // 8)
    words = words[:, _FIRST : _FIRST + len(METRICS)].copy()
    floats: np.ndarray = words.view("f8")
    with np.errstate(all="ignore"):  # what is too great is not known below
        floats[:, _FLOATS] = np.round(floats[:, _FLOATS], DIGITS)
        known = np.where(_FLOATS, (floats >= 0) & (floats < GREATEST), words >= 0)
    return words.view(NUMBERS).reshape(len(rows)), known
