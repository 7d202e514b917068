"""What a run did in the last hour, a mark for each minute or two, as its node has kept it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np

from condor_joblens.cli import units
from condor_joblens.cli.runs import Run
from condor_joblens.cli.terminal import Style
from condor_joblens.common.errors import JobLensError
from condor_joblens.shm import history

BLOCKS, PLAIN = "▁▂▃▄▅▆▇█", "_.-~=+*#"

NARROW = 100
"""Columns of a terminal below which a mark is two minutes."""

LEAST_POINTS = 2

_NAMES: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("CPU", units.cores),
    ("Memory", units.memory),
    ("I/O", units.rate),
    ("Network", units.rate),
)
"""As history.SERIES: what it is called, and a value in words."""


def last_hour(folder: str, run: Run) -> np.ndarray | None:
    """The points of the run, shape (MINUTES, len(SERIES)), the latest last; None where its node keeps none."""
    try:
        records, _ = history.read(os.path.join(folder, "history"))
    except JobLensError:
        return None
    name = str(run.facts.get("run", "")).encode()
    found = records["values"][records["run"] == name]
    return found[0] if name and len(found) else None


def lines(points: np.ndarray, run: Run, look: Style) -> list[str]:
    """A line for each number that there are points of; nothing for a run of less than two minutes."""
    known = np.flatnonzero(~np.isnan(points).all(axis=1))
    if len(known) < LEAST_POINTS:
        return []
    step = 2 if look.width < NARROW else 1
    requested = (run.request_cpus, run.request_memory, None, None)
    page = []
    for (name, words), values, whole in zip(_NAMES, points[known[0] :].T, requested):
        if np.isnan(values).all() or np.nanmax(values) <= 0:
            continue
        least, most = float(np.nanmin(values)), float(np.nanmax(values))
        marks = spark(_by(values, step), max(most, whole or 0.0), look.blocks)
        span = words(most) if words(least) == words(most) else f"{words(least)} to {words(most)}"
        page.append(f"{name:<8}{marks}  {span}{' cores' if name == 'CPU' else ''}")
    return page


def _by(values: np.ndarray, step: int) -> list[float]:
    """The mean of each `step` points, the latest whole; NaN where there is none."""
    padded = np.concatenate([np.full(-len(values) % step, np.nan), values]).reshape(-1, step)
    return [float(np.nanmean(group)) if not np.isnan(group).all() else float("nan") for group in padded]


def spark(values: Sequence[float], whole: float, blocks: bool) -> str:
    """A mark for each value, from 0 to `whole`; a blank where there is none."""
    marks = BLOCKS if blocks else PLAIN
    top = len(marks) - 1
    return "".join(" " if value != value else marks[min(top, round(top * value / whole))] for value in values)
