"""Curves of what a job used, for its time line: of the last hour on its node, or of a file of the sink `file`."""

from __future__ import annotations

import os
from collections.abc import Iterator

from condor_joblens.cli import plot_series
from condor_joblens.cli.plot_series import Panel, Series
from condor_joblens.common.errors import JobLensError
from condor_joblens.profiles.timeline import Curve

_MINUTE = 60.0
_GIB, _MB = 1 / (1 << 30), 1e-6
_OF_HISTORY = (("CPU", "cores", 1.0), ("Memory", "GiB", _GIB), ("I/O by calls", "MB/s", _MB), ("Network", "MB/s", _MB))
"""As history.SERIES."""

_TITLES = {"CPU": "CPU", "Memory": "Memory", "Input and output": "I/O", "Network": "Network"}
"""Of the panels of plot_series that are taken."""


def of_history(folder: str, run: str) -> list[Curve]:
    """A point a minute of the last hour; none if this user may not read it, or nobody has kept it."""
    from condor_joblens.shm import history

    try:
        records, latest = history.read(os.path.join(folder, "history"))
    except JobLensError:
        return []
    found = records["values"][records["run"] == run.encode()]
    if not len(found):
        return []
    times = [latest - (history.MINUTES - 1 - minute) * _MINUTE for minute in range(history.MINUTES)]
    curves = []
    for (title, unit, scale), values in zip(_OF_HISTORY, found[0].T.tolist()):
        points = [(at, value * scale) for at, value in zip(times, values) if value == value]
        if any(value for _, value in points):
            curves.append(Curve(title, unit, points))
    return curves


def of_file(path: str, job: str) -> tuple[list[Curve], str]:
    """Of the job's last run there, as often as it was sampled; and which run that is. Raises JobLensError."""
    series = max(plot_series.read(path, job), key=lambda each: each.started if each.started > 0 else 0.0)
    return [
        curve for panel in plot_series.PANELS if panel.title in _TITLES for curve in _of(panel, series)
    ], series.name


def _of(panel: Panel, series: Series) -> Iterator[Curve]:
    start = series.started if series.started > 0 else 0.0
    for curve in panel.curves:
        seconds, values = plot_series.line(series, curve)
        if len(seconds) and values.any():
            points = [(start + at, value) for at, value in zip(seconds.tolist(), values.tolist())]
            yield Curve(f"{_TITLES[panel.title]}, {curve.label}", panel.unit, points)
