"""A run in a word, with its reason: well, suspect, failing, ended, not watched or unknown."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from condor_joblens.hub.store.schema import IDLE_SECONDS, NEARLY
from condor_joblens.hub.web.states import patience


def health(run: Mapping[str, Any], now: float) -> tuple[str, str]:
    """By a record's columns as `reads` has them."""
    if run.get("Level") == "off":
        return "not watched", "no numbers are taken at level off"
    if run["Type"] == "job":
        if run.get("Death"):
            return "failing", str(run["Death"])
        return ("failing", f"exit code {run['ExitCode']}") if run.get("ExitCode") else ("ended", "")
    silent = now - (run["UpdateTime"] or 0)
    if silent >= patience(run.get("PeriodSeconds"), run.get("SinkPeriodSeconds")):
        return "unknown", f"no numbers for {duration(silent)}"
    if run.get("HangSuspected"):
        return "suspect", f"seems to hang: {run.get('HangCause') or 'cause unknown'}"
    limit, used = run.get("LimitBytes") or 0, run.get("CgroupBytes") or 0
    if limit and used > NEARLY * limit:
        return "suspect", f"uses {100 * used / limit:.0f} % of its memory limit"
    idle = run.get("IdleSeconds") or 0
    if idle > IDLE_SECONDS:
        return "suspect", f"has used next to no CPU for {duration(idle)}"
    return "well", ""


def duration(seconds: float) -> str:
    """3 s, 12 min, 5.2 h, 3.1 d."""
    for size, unit, digits in ((86400, "d", 1), (3600, "h", 1), (60, "min", 0)):
        if seconds >= size:
            return f"{seconds / size:.{digits}f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def moment(seconds: float) -> str:
    """2026-11-26 06:00 UTC."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def span(begin: float, end: float) -> str:
    """2026-11-26 06:00:10 to 06:01:12 UTC; with the second day, if it is another one. A moment is one."""
    first, second = (time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(moment)) for moment in (begin, end))
    if first == second:
        return f"{first} UTC"
    return f"{first} to {second[11:] if first[:10] == second[:10] else second} UTC"


def size(number: float | None) -> str:
    """3.2 GiB; a dash for what is not known."""
    if number is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(number) < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"
