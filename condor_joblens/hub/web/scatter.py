"""Two metrics against each other: a point for each job that the page of jobs has, and which lie far from the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_joblens.hub.web.reads import Reader

MOST_POINTS = 2000
"""Of more jobs, so many are drawn at random: always the same ones, so that a renewed picture stays the same."""

MOST_FAR = 10
"""That are named."""

EDGES = 20
"""Jobs with the most and with the least of each metric, which are looked at whatever chance has drawn."""

FEWEST = 10
"""Jobs, below which nothing is far from the others."""

FAR = 5.0
"""Times as far from the median as nine in ten jobs are, is far."""

WIDE = 20.0
"""An axis is logarithmic if its greatest value is more than so many times its median."""


@dataclass(frozen=True)
class Question:
    """Two metrics, and of which jobs."""

    x: str
    y: str
    words: str
    state: str
    exact: tuple[tuple[str, Any], ...]  # parameters of `filters`, and `mine`


def scatter(reader: Reader, asked: Question) -> dict[str, Any]:
    """Points within the viewer's scope, those that lie far from the others, and how many there are. Raises
    JobLensError.
    """
    metrics = (asked.x, asked.y)
    count, rows = reader.pairs(metrics, asked.words, asked.state, dict(asked.exact), MOST_POINTS, EDGES)
    rows.sort(key=lambda row: row["Run"])
    x, y = (np.array([row[axis] for row in rows], "f8") for axis in ("x", "y"))
    is_log = {axis: is_wide(values) for axis, values in (("x", x), ("y", y))}
    return {
        **{"x": asked.x, "y": asked.y, "count": count, "points": rows, "is_log": is_log},
        **{"far": [rows[place]["Run"] for place in farthest(x, y)], "time": reader.now},
    }


def is_wide(values: npt.NDArray[np.float64]) -> bool:
    """Whether an axis of these is better logarithmic."""
    positive = values[values > 0]
    return bool(len(positive)) and bool(values.min() >= 0) and float(positive.max() / np.median(positive)) > WIDE


def farthest(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> list[int]:
    """Places of points that lie far from the others, the farthest first.

    A point is far by one of its values, or by how they are to each other. Then it has much more of one than others
    with as much of the other. How far nine in ten are from the median is what is usual.
    """
    if len(x) < FEWEST:
        return []
    logs = [np.log1p(np.maximum(values, 0) / _middle(values)) for values in (x, y)]
    distance: npt.NDArray[np.float64] = np.max([_distances(values) for values in (*logs, logs[1] - logs[0])], axis=0)
    order = np.argsort(-distance, kind="stable")[:MOST_FAR]
    return [int(place) for place in order if distance[place] > FAR]


def _middle(values: npt.NDArray[np.float64]) -> float:
    positive = values[values > 0]
    return float(np.median(positive)) if len(positive) else 1.0


def _distances(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """How many times as far from the median as what is usual: a tenth of the value, at least."""
    away = np.abs(values - np.median(values))
    found: npt.NDArray[np.float64] = away / max(float(np.quantile(away, 0.9)), 0.1)
    return found


def as_rows(found: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """For CSV: under the names that metrics have in records."""
    far = set(found["far"])
    return [
        {"JobId": row["JobId"], "Run": row["Run"], found["x"]: row["x"], found["y"]: row["y"], "Far": row["Run"] in far}
        for row in found["points"]
    ]
