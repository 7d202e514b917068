"""`joblens plot`: a picture of what jobs used over time, from the lines of the sink `file` or a series of prmon's."""

from __future__ import annotations

import argparse
import io
import json
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from condor_joblens.cli.plot_series import PANELS, Panel, Series, line, read
from condor_joblens.common import files
from condor_joblens.common.errors import JobLensError, UsageError, printable

MOST_RUNS = 8
"""That one picture can show: those that ran longest."""

_MINUTE = 60.0


def run(options: argparse.Namespace) -> int:
    """Writes the picture and says where it is."""
    series = read(options.file, options.job)
    output = options.output or f"{options.file}.png"
    if os.path.splitext(output)[1] not in (".png", ".svg"):
        raise UsageError(f"{printable(output)} is neither a .png nor an .svg: name one with -o")
    shown = sorted(series, key=_weight, reverse=True)[:MOST_RUNS]
    draw(shown, output)
    if options.json:
        print(json.dumps({"Picture": output, "Runs": [one.name for one in shown], "Left": len(series) - len(shown)}))
    else:
        left = (
            f" ({len(series) - len(shown)} more are not shown: choose with --job)" if len(series) > len(shown) else ""
        )
        print(f"{printable(output, 400)}: {len(shown)} run{'s' if len(shown) != 1 else ''}{left}")
    return 0


def _weight(series: Series) -> float:
    return max(series.seconds, default=0.0)


def draw(shown: Sequence[Series], output: str) -> None:
    """One panel below another. Raises JobLensError where matplotlib is missing, or the file can't be written."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        remedy = "apt install python3-matplotlib, or make install EXTRAS=plots"
        raise JobLensError(f"joblens plot needs matplotlib: {remedy}") from None
    panels = [panel for panel in PANELS if any(_has(series, panel) for series in shown)]
    if not panels:
        raise JobLensError("these samples have none of the numbers that a picture shows: name another file")
    figure = Figure(figsize=(10, 0.8 + 2.2 * len(panels)), layout="constrained")
    axes: list[Any] = list(figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0])
    minutes = max(max(series.seconds) for series in shown) > 10 * _MINUTE
    for axis, panel in zip(axes, panels):
        _panel(axis, panel, shown, _MINUTE if minutes else 1.0)
    axes[-1].set_xlabel(f"{'minutes' if minutes else 'seconds'} since the start of the run")
    if len(shown) == 1:
        figure.suptitle(_plain(shown[0]), fontsize=11)
        _time_of_day(axes[-1], shown[0], _MINUTE if minutes else 1.0)
    else:
        handles = [axes[0].plot([], [], color=f"C{place}")[0] for place in range(len(shown))]
        names = [_plain(series) for series in shown]
        figure.legend(handles, names, loc="outside lower center", ncols=1 if len(shown) < 5 else 2, fontsize=8)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=120, format=os.path.splitext(output)[1][1:])
    try:
        # beside a file of somebody else's lie his links: what they point to is not written over
        files.write(output, picture.getvalue(), 0o666 & ~_umask())
    except OSError as error:
        raise JobLensError(f"{printable(output)} can't be written: {error.strerror}") from None


def _umask() -> int:
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def _plain(series: Series) -> str:
    """Which run of whom, and when it began."""
    owner = f", {printable(series.owner, 30)}" if series.owner else ""
    began = time.strftime(", began %Y-%m-%d %H:%M:%S %Z", time.localtime(series.started)) if series.started > 0 else ""
    # a $ begins a formula
    return f"{printable(series.name, 90)}{owner}{began}".replace("$", r"\$")


def _time_of_day(axis: Any, series: Series, unit: float) -> None:
    """Under each number of the time scale, what the clock showed."""
    if not series.started > 0:
        return
    form = "%H:%M" if unit == _MINUTE else "%H:%M:%S"

    def label(at: float, _: int) -> str:
        return f"{at:g}\n{time.strftime(form, time.localtime(series.started + at * unit))}"

    axis.xaxis.set_major_formatter(label)


def _has(series: Series, panel: Panel) -> bool:
    return any(bool(np.isfinite(series.values[curve.label]).any()) for curve in panel.curves)


def _panel(axis: Any, panel: Panel, shown: Sequence[Series], unit: float) -> None:
    styles = ("-", "--", ":", "-.")
    handles: dict[str, Any] = {}
    for place, series in enumerate(shown):
        for number, curve in enumerate(panel.curves):
            seconds, values = line(series, curve)
            if not len(seconds):
                continue
            alone = len(shown) == 1
            colour, style = (f"C{number}", "-") if alone else (f"C{place}", styles[number])
            [drawn] = axis.plot(seconds / unit, values, color=colour, linestyle=style, linewidth=1.4, label=curve.label)
            handles.setdefault(curve.label, drawn)
    _request(axis, panel, shown, handles)
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


def _request(axis: Any, panel: Panel, shown: Sequence[Series], handles: dict[str, Any]) -> None:
    """What the job asked for, where one run is shown, or all asked for the same."""
    requests = {series.requests.get(panel.title) for series in shown}
    [request] = requests if len(requests) == 1 else [None]
    if request:
        handles["asked for"] = axis.axhline(request, color="0.5", linestyle=":", linewidth=1.2)
