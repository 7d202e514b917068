"""Metrics that a viewer picks from the one table: for columns, axes and charts, with text for their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from condor_joblens.hub.web.api.parameters import WrongRequest
from condor_joblens.hub.web.health import duration, size
from condor_joblens.model.metrics import METRICS, Metric

BY_PATH: Mapping[str, Metric] = {metric.path: metric for metric in METRICS}

MOST_COLUMNS = 8
"""That are picked for one table."""


def metric(path: str) -> Metric:
    """The one of this name, as records have it. Raises WrongRequest."""
    if path not in BY_PATH:
        raise WrongRequest(f"no metric is called {path[:60]!r}: take a name as Cpu.Seconds, from docs/metrics.md")
    return BY_PATH[path]


def metrics(paths: Iterable[str], most: int = MOST_COLUMNS) -> tuple[str, ...]:
    """Each once, in their order. Raises WrongRequest."""
    found = tuple(dict.fromkeys(metric(path).path for path in paths if path))
    if len(found) > most:
        raise WrongRequest(f"{len(found)} metrics are more than a page shows: pick at most {most}")
    return found


def picker(chosen: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Groups of options for a template, without those that are chosen already."""
    groups: dict[str, list[dict[str, str]]] = {}
    for one in METRICS:
        if one.path not in chosen:
            groups.setdefault(one.group, []).append({"path": one.path, "unit": one.unit, "help": one.help})
    return [{"name": name, "metrics": found} for name, found in groups.items()]


def text(path: str, value: float | None) -> str:
    """A value in its unit; a dash for what is not known."""
    if value is None:
        return "–"
    unit = BY_PATH[path].unit
    if unit == "bytes":
        return size(value)
    if unit == "seconds":
        return duration(value) if value >= 10 else f"{value:.3g} s"
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:.4g}"
