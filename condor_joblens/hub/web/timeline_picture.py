"""A job's time line as SVG, with no script: a lane of runs, and above it a mark for whatever happened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from condor_joblens.hub.web.addresses import job_url
from condor_joblens.hub.web.health import duration, span

WIDTH = 1000.0
"""Of the picture, in its own units."""

LONG = 4
"""Times as long as all of its runs a job has waited, whose axis begins with its first run."""

SHOWN = 40
"""Events in words; its JSON has more."""

_BAD = ("out of memory", "death", "hang", "traceback")


def picture(found: Mapping[str, Any], run: str) -> dict[str, Any]:
    """For a template. run: the one whose page it is."""
    begin, end = float(found["runs"][0]["begin"]), float(found["end"])
    waited = begin - float(found["begin"])
    is_long = waited > LONG * (end - begin)  # its runs would be a stroke: then the axis begins with them
    begin = begin if is_long else float(found["begin"])
    length = max(1.0, end - begin)

    def x(time: float) -> float:
        return WIDTH * min(1.0, max(0.0, (time - begin) / length))

    runs = []
    for place, one in enumerate(found["runs"], 1):
        left = x(one["begin"])
        ended = "ended" if one["is_over"] else "still runs, as far as is known"
        runs.append(
            {
                **{"x": f"{left:.1f}", "width": f"{max(2.0, x(one['end']) - left):.1f}"},
                **{"url": job_url(one["run"]), "is_this": one["run"] == run},
                "text": f"run {place} on {one['node']}: {duration(one['end'] - one['begin'])}, {ended}",
            }
        )
    marks = [
        {
            **{"x": f"{x(mark['time']):.1f}", "is_bad": mark["kind"] in _BAD, "kind": mark["kind"]},
            **{"words": mark["words"], "when": span(mark["time"], mark["time"])},
        }
        for mark in found["marks"]
    ]
    return {
        **{"runs": runs, "marks": marks, "shown": marks[-SHOWN:], "more": max(0, len(marks) - SHOWN)},
        "waited": duration(waited) if waited > 0 else "",
        "is_long": is_long,
        **{"first": span(begin, begin), "last": span(found["end"], found["end"])},
        "unknown": ", ".join(found["unknown"]),
    }
