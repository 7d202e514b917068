"""The note about a level that a run is to have, and has not: whether it is coming, or can't be had."""

from __future__ import annotations

from collections.abc import Mapping

from condor_joblens.model.levels import Level
from condor_joblens.tracer.on_demand import LOADING

_COMING = "is coming"


def note(level: Level, why: str) -> str:
    """`why` is the sensor's word. What is only being loaded is given as soon as it is there (sensor_loading.py)."""
    if why == LOADING:
        return f"level {level.word} {_COMING}: it begins as soon as its programs are loaded into the kernel"
    return f"level {level.word} is unavailable: {why}"


def is_coming(level: Level, notes: Mapping[str, str]) -> bool:
    """Whether the run with these notes waits for this level."""
    return any(each.startswith(f"level {level.word} {_COMING}") for each in notes.values())
