"""The pool as its collector has it: what is claimed, versions, and machines of which no numbers come."""

from __future__ import annotations

import json
import math
from typing import Any

from condor_joblens.hub.web.reads import Reader

FRESH_SECONDS = 300.0
"""The collector is asked once a minute: what it has not named for so long is not in the pool any more."""

TELLS_SECONDS = 300.0
"""An exporter tells of its node once a minute."""

MOST_VERSIONS = 20

_MACHINE = {
    **dict.fromkeys(("Kernel", "JobLens"), str),
    **dict.fromkeys(("UptimeSeconds", "Cpus", "MemoryBytes", "MemoryAvailableBytes"), int),
    **dict.fromkeys(("ExecuteBytes", "ExecuteFreeBytes"), int),
    **dict.fromkeys(("Load", "CpuPressure", "MemoryPressure", "IoPressure"), float),
}
"""Of a node's last word of itself (common/machine.py) -> its type."""

_MOST_TEXT = 100
_GREATEST = 1e18


def machines(reader: Reader) -> str:
    """Those of the last answers, as a table of a question."""
    return f"(SELECT * FROM machines FINAL WHERE Time > {reader.now - FRESH_SECONDS})"


def sums(reader: Reader) -> dict[str, Any] | None:
    """Of the whole pool; None if no collector was ever asked. Nobody's jobs are in it. Raises JobLensError."""
    (newest,) = reader.ask("SELECT max(Time) AS time, count() AS n FROM machines FINAL")
    if not newest["n"]:
        return None
    tells = f"SELECT Node FROM health WHERE Time > {reader.now - TELLS_SECONDS}"
    (found,) = reader.ask(
        "SELECT count() AS nodes, sum(Cores) AS cores, sum(ClaimedCores) AS claimed_cores, sum(MemoryBytes) AS memory, "
        f"sum(ClaimedMemoryBytes) AS claimed_memory, countIf(Node NOT IN ({tells})) AS untold FROM {machines(reader)}"
    )
    return {**found, "time": newest["time"]}


def versions(reader: Reader) -> list[dict[str, Any]]:
    """HTCondor's versions and on how many machines, the most frequent first. Raises JobLensError."""
    return reader.ask(
        f"SELECT Version AS version, System AS system, count() AS nodes FROM {machines(reader)} "
        f"GROUP BY version, system ORDER BY nodes DESC, version LIMIT {MOST_VERSIONS}"
    )


def machine_of(reader: Reader, node: str) -> dict[str, Any] | None:
    """What a node has told of itself in the last minutes; None if it did not, as older ones. Raises JobLensError."""
    rows = reader.ask(
        f"SELECT Whole FROM health FINAL WHERE Node = {{node:String}} AND Time > {reader.now - TELLS_SECONDS} "
        "ORDER BY Time DESC LIMIT 1",
        node=node,
    )
    try:
        said = json.loads(rows[0]["Whole"])["Machine"] if rows else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    return {name: value for name, kind in _MACHINE.items() if (value := _fit(said.get(name), kind)) is not None}


def _fit(value: Any, kind: type) -> Any:
    """None if a node says what can't be."""
    if kind is str:
        return value[:_MOST_TEXT] if isinstance(value, str) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return kind(value) if -1 <= value < _GREATEST else None
