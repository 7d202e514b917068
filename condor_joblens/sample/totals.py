"""From what the sources say to what is published: totals that never go backwards."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from condor_joblens.model.metrics import METRICS, MetricKind

KINDS = {metric.column: metric.kind for metric in METRICS}


def merge(rows: np.ndarray, offsets: np.ndarray, runs: np.ndarray, columns: dict[str, np.ndarray]) -> None:
    """Puts measured `columns`, each of shape (n,), into `rows` at the indices `runs` (n,).

    A counter gets its offset added and never goes backwards, a peak keeps its greatest, a gauge is as it is. A
    value that is absent in `columns` (-1 or NaN) leaves a counter and a peak as they were.
    """
    if len(runs) == 1:  # a job's end, for which its starter does not wait: numpy takes as long for one as for a hundred
        _merge_one(rows[runs[0]], offsets[runs[0]], columns)
        return
    for column, measured in columns.items():
        kind = KINDS[column]
        if kind is MetricKind.GAUGE:
            rows[column][runs] = measured
            continue
        known = measured >= 0 if kind is MetricKind.PEAK else ~_absent(measured)
        total = measured + offsets[column][runs] if kind is MetricKind.COUNTER else measured
        before = rows[column][runs]
        # what is absent in the row is less than anything measured: -1, and NaN by fmax
        rows[column][runs] = np.where(known, np.fmax(before, total), before)


def _merge_one(row: np.void, offset: np.void, columns: dict[str, np.ndarray]) -> None:
    """`merge` for one run: its row and its offset, into which nothing is put."""
    for column, measured in columns.items():
        kind = KINDS[column]
        value: float = measured.item()
        if kind is not MetricKind.GAUGE:
            if value != value or (kind is MetricKind.PEAK and value < 0):
                continue
            if kind is MetricKind.COUNTER:
                value += offset[column].item()
            if row[column].item() >= value:
                continue
        row[column] = value


def _absent(measured: np.ndarray) -> np.ndarray:
    # a whole number can be below 0 here: the kernel's sums begin there until the first thread is added
    return np.isnan(measured) if measured.dtype.kind == "f" else np.zeros(len(measured), "?")


def rebase(rows: np.ndarray, offsets: np.ndarray, run: int, columns: dict[str, np.ndarray]) -> None:
    """From now on the run's counters go on from where they are, whatever the sources say at this moment.

    `columns` have shape (1,). For a source that does not begin with the run: a cgroup that is older than the
    job, or a tracer that was loaded later.
    """
    for column, measured in columns.items():
        if KINDS[column] is MetricKind.COUNTER and not _absent(measured)[0]:
            if not rows[column][run] >= 0:
                rows[column][run] = 0
            offsets[column][run] = rows[column][run] - measured[0]


def carry_on(rows: np.ndarray, offsets: np.ndarray, run: int, before: np.void, columns: Iterable[str]) -> None:
    """The run goes on from the row `before`: its totals in `columns` are added to what is counted from now on."""
    for column in columns:
        value = before[column]
        if value >= 0:  # false for NaN and -1, which are absent
            offsets[column][run] += value
            current = rows[column][run]
            rows[column][run] = value + (current if current >= 0 else 0)


def clear(offsets: np.ndarray, run: int) -> None:
    """The run's sources begin with it: what they say from now on is the run's."""
    offsets[run : run + 1].view("u1")[:] = 0
