"""`joblens plot`: a picture of what jobs used over time, from the lines of the sink `file` or a series of prmon's."""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.sinks.prmon import WALL, read_series

MOST_RUNS = 8
"""That one picture can show: those that used most CPU."""

_MINUTE = 60.0


@dataclass(frozen=True)
class Curve:
    """One line of a panel."""

    label: str
    path: str  # in a record: Cpu.Seconds
    column: str  # in a series of prmon's; empty: it has none
    scale: float = 1.0  # from the record's unit to the panel's
    column_scale: float = 1.0
    rate: bool = False  # show its growth a second


@dataclass(frozen=True)
class Panel:
    """One picture below another, with a common time."""

    title: str
    unit: str
    curves: tuple[Curve, ...]


_GIB = 1.0 / (1 << 30)
_MIB = 1.0 / (1 << 20)

PANELS = (
    Panel(
        "CPU", "cores",
        (
            Curve("user", "Cpu.UserSeconds", "utime", rate=True),
            Curve("system", "Cpu.SystemSeconds", "stime", rate=True),
        ),
    ),
    Panel(
        "Memory", "GiB",
        (
            Curve("resident", "Memory.ResidentBytes", "rss", _GIB, 1024 * _GIB),
            Curve("swapped", "Memory.SwapBytes", "swap", _GIB, 1024 * _GIB),
            Curve("charged", "Memory.CgroupBytes", "", _GIB),
        ),
    ),
    Panel(
        "Input and output", "MiB/s",
        (
            Curve("read by calls", "Io.CallReadBytes", "rchar", _MIB, _MIB, True),
            Curve("written by calls", "Io.CallWriteBytes", "wchar", _MIB, _MIB, True),
            Curve("from storage", "Io.StorageReadBytes", "read_bytes", _MIB, _MIB, True),
            Curve("to storage", "Io.StorageWriteBytes", "write_bytes", _MIB, _MIB, True),
        ),
    ),
    Panel(
        "Network", "MiB/s",
        (
            Curve("received", "Tcp.ReceivedBytes", "rx_bytes", _MIB, _MIB, True),
            Curve("sent", "Tcp.SentBytes", "tx_bytes", _MIB, _MIB, True),
        ),
    ),
    Panel(
        "Processes", "",
        (Curve("processes", "Process.Live", "nprocs"), Curve("threads", "Process.Threads", "nthreads")),
    ),
)  # fmt: skip


@dataclass
class Series:
    """What is known of one run: a value a time, NaN where there is none."""

    name: str
    seconds: list[float] = field(default_factory=list)  # since the run's start
    values: dict[str, list[float]] = field(default_factory=dict)  # label -> values

    def add(self, seconds: float, found: Mapping[str, float]) -> None:
        """One more point in time."""
        self.seconds.append(seconds)
        for label in _LABELS:
            self.values.setdefault(label, []).append(found.get(label, float("nan")))


_LABELS = [curve.label for panel in PANELS for curve in panel.curves]


def run(options: argparse.Namespace) -> int:
    """Writes the picture and says where it is."""
    series = read(options.file, options.job)
    output = options.output or f"{options.file}.png"
    if os.path.splitext(output)[1] not in (".png", ".svg"):
        raise JobLensError(f"{printable(output)} is neither a .png nor an .svg: name one with -o")
    shown = sorted(series, key=_weight, reverse=True)[:MOST_RUNS]
    draw(shown, output)
    if options.json:
        print(json.dumps({"Picture": output, "Runs": [one.name for one in shown], "Left": len(series) - len(shown)}))
    else:
        left = (
            f" ({len(series) - len(shown)} more are not shown: choose with --job)" if len(series) > len(shown) else ""
        )
        print(f"{output}: {len(shown)} run{'s' if len(shown) != 1 else ''}{left}")
    return 0


def _weight(series: Series) -> float:
    return max(series.seconds, default=0.0)


def read(path: str, job: str | None = None) -> list[Series]:
    """The series in a file. Raises JobLensError where there are none."""
    try:
        with _opened(path) as file:
            first = file.readline(1 << 20)
        if first.startswith("Time\t"):
            found = [_of_prmon(path)]
        else:
            with _opened(path) as file:
                found = list(_of_records(file, job).values())
    except (OSError, EOFError) as error:
        raise JobLensError(f"{printable(path)} can't be read: {getattr(error, 'strerror', None) or error}") from None
    found = [series for series in found if len(series.seconds) > 1]
    if not found:
        what = f"two samples of job {printable(job)}" if job else "two samples of a run"
        raise JobLensError(
            f"{printable(path)} has no {what}: name a file of the sink `file`, or a .prmon.txt (its .json has no times)"
        )
    return found


@contextlib.contextmanager
def _opened(path: str) -> Iterator[IO[str]]:
    opener: Any = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8", errors="replace") as file:
        yield file


def _of_prmon(path: str) -> Series:
    series = Series(os.path.basename(path))
    for point in read_series(path):
        found = {
            curve.label: point[curve.column] * curve.column_scale
            for panel in PANELS
            for curve in panel.curves
            if curve.column in point
        }
        series.add(point[WALL], found)
    return series


def _of_records(file: IO[str], job: str | None) -> dict[str, Series]:
    runs: dict[str, Series] = {}
    seen: set[str] = set()
    for line in file:
        try:
            record = json.loads(line)
            if record["Type"] not in ("sample", "job") or record["Id"] in seen:
                continue  # delivered twice
            wanted = not job or job == record.get("JobId") or job in record["Run"]
            if not wanted or record.get("UpdateTime", 0) < record.get("StartTime", 0):
                continue
            seen.add(record["Id"])
            series = runs.setdefault(record["Run"], Series(record["Run"]))
            series.add(record["UpdateTime"] - record["StartTime"], dict(_found(record)))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # the file's last line can be half written, and others' lines can be anything
    return runs


def _found(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for panel in PANELS:
        for curve in panel.curves:
            group, _, name = curve.path.partition(".")
            value = record.get(group, {}).get(name)
            if isinstance(value, (int, float)):
                yield curve.label, value * curve.scale


def draw(shown: Sequence[Series], output: str) -> None:
    """One panel below another. Raises JobLensError where matplotlib is missing, or the file can't be written."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise JobLensError("joblens plot needs matplotlib: pip install 'condor_joblens[plots]'") from None
    panels = [panel for panel in PANELS if any(_has(series, panel) for series in shown)]
    figure = Figure(figsize=(10, 0.8 + 2.2 * len(panels)), layout="constrained")
    axes: list[Any] = list(figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0])
    minutes = max(max(series.seconds) for series in shown) > 10 * _MINUTE
    for axis, panel in zip(axes, panels):
        _panel(axis, panel, shown, _MINUTE if minutes else 1.0)
    axes[-1].set_xlabel(f"{'minutes' if minutes else 'seconds'} since the start of the run")
    if len(shown) == 1:
        figure.suptitle(_plain(shown[0].name), fontsize=11)
    else:
        handles = [axes[0].plot([], [], color=f"C{place}")[0] for place in range(len(shown))]
        names = [_plain(series.name) for series in shown]
        figure.legend(handles, names, loc="outside lower center", ncols=1 if len(shown) < 5 else 2, fontsize=8)
    try:
        figure.savefig(output, dpi=120)
    except OSError as error:
        raise JobLensError(f"{printable(output)} can't be written: {error.strerror}") from None


def _plain(name: str) -> str:
    # a $ begins a formula
    return printable(name, 90).replace("$", r"\$")


def _has(series: Series, panel: Panel) -> bool:
    return any(bool(np.isfinite(series.values[curve.label]).any()) for curve in panel.curves)


def _panel(axis: Any, panel: Panel, shown: Sequence[Series], unit: float) -> None:
    styles = ("-", "--", ":", "-.")
    handles: dict[str, Any] = {}
    for place, series in enumerate(shown):
        for number, curve in enumerate(panel.curves):
            seconds, values = _line(series, curve)
            if not len(seconds):
                continue
            alone = len(shown) == 1
            colour, style = (f"C{number}", "-") if alone else (f"C{place}", styles[number])
            [line] = axis.plot(seconds / unit, values, color=colour, linestyle=style, linewidth=1.4, label=curve.label)
            handles.setdefault(curve.label, line)
    axis.set_title(panel.title, fontsize=10, loc="left")
    axis.set_ylabel(panel.unit)
    axis.set_ylim(bottom=0)
    axis.set_xlim(left=0)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    if len(handles) > 1:
        where: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 1), "frameon": False, "borderaxespad": 0.2}
        legend = axis.legend(handles.values(), handles.keys(), fontsize=8, ncols=len(handles), **where)
        for text in legend.legend_handles if len(shown) > 1 else ():
            text.set_color("0.3")


def _line(series: Series, curve: Curve) -> tuple[np.ndarray, np.ndarray]:
    """Times and values; of a counter its growth a second between two points in time."""
    seconds, values = np.array(series.seconds, "f8"), np.array(series.values[curve.label], "f8")
    known = np.isfinite(values)
    order = np.argsort(seconds[known], kind="stable")
    seconds, values = seconds[known][order], values[known][order]
    if not curve.rate:
        return seconds, values
    later = np.flatnonzero(np.diff(seconds, prepend=-1.0) > 0)  # of several at the same second the first
    seconds, values = seconds[later], values[later]
    if len(seconds) < 2:
        return seconds[:0], values[:0]
    return seconds[1:], np.maximum(np.diff(values), 0) / np.diff(seconds)
