"""Whose last events are recorded: those of jobs at level trace, the most important first, as far as there is room."""

from __future__ import annotations

import numpy as np

from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.model.levels import Level
from condor_joblens.tracer.sensors import Recorder, recorder_of

NOTE = "recorder"


def apply(levels: Levels, run: int, wanted: Level) -> None:
    """Begins or ends recording the run. Its note says if it is to be recorded and is not.

    `wanted` is the level that it is to have: recording needs nothing of what level profile takes, and may lack.
    """
    node = levels.node
    sensor, slot = _sensor(levels), int(node.runs.state["kernel_slot"][run])
    if sensor is None or slot < 0:
        return
    notes = node.handles[run].notes
    notes[NOTE] = ""
    if wanted < Level.TRACE:
        node.tracer.sensors["recorder"].stop(slot)
        return
    sandbox = node.handles[run].sandbox
    if sandbox is None:
        notes[NOTE] = "its last events are not recorded: the job's folder is unknown"
        return
    sensor.describe(slot, sandbox.scratch_uid)
    counted = node.tracer.sensors["recorder"]
    if counted.start(slot) or (_make_room(levels, run) and counted.start(slot)):
        return
    for reason in counted.missing.values():
        node.log_once(f"no job's last events are recorded: {reason}")
    if counted.missing:
        notes[NOTE] = "its last events are not recorded: the kernel refuses that, see JobLensdLog"
    elif sensor.loaded is not None:
        notes[NOTE] = f"its last events are not recorded: there is room for {sensor.rows} jobs (JOBLENS_RECORDER_BYTES)"


def end(levels: Levels, run: int) -> None:
    """The run is over: nobody asks for its last events any more."""
    slot = int(levels.node.runs.state["kernel_slot"][run])
    if _sensor(levels) is not None and slot >= 0:
        levels.node.tracer.sensors["recorder"].stop(slot)


def retry(levels: Levels) -> None:
    """Once a round: records those that could not be recorded before, the most important first."""
    sensor, node = _sensor(levels), levels.node
    if sensor is None:
        return
    runs = node.runs.living()
    runs = runs[(node.runs.state["target_level"][runs] >= Level.TRACE) & ~node.runs.rows["final"][runs]]
    slots = node.runs.state["kernel_slot"][runs]
    runs = runs[slots >= 0]
    if not len(runs):
        return
    recorded, _ = sensor.counters(node.runs.state["kernel_slot"][runs])
    for run in _by_importance(levels, runs[~recorded])[::-1].tolist():
        node.guard(run, "flight recorder", apply, levels, run, Level.TRACE)
        node.update_note(run)


def _sensor(levels: Levels) -> Recorder | None:
    """None if this node records nothing."""
    sensor = recorder_of(levels.node.tracer.sensors)
    return sensor if sensor is not None and sensor.rows else None


def _by_importance(levels: Levels, runs: np.ndarray) -> np.ndarray:
    """The least important first: as for budgets, by priority and, among equals, by who started last."""
    state = levels.node.runs.state
    ordered: np.ndarray = runs[np.lexsort((-state["began"][runs], state["policy_priority"][runs]))]
    return ordered


def _make_room(levels: Levels, run: int) -> bool:
    """Ends recording the least important run, if this one is more important."""
    sensor, node = _sensor(levels), levels.node
    assert sensor is not None
    runs = node.runs.living()
    runs = runs[node.runs.state["kernel_slot"][runs] >= 0]
    recorded, _ = sensor.counters(node.runs.state["kernel_slot"][runs])
    runs = runs[recorded]
    if len(runs) < sensor.rows or not len(runs):
        return False
    least = int(_by_importance(levels, np.append(runs, run))[0])
    if least == run:
        return False
    sensor.stop(int(node.runs.state["kernel_slot"][least]))
    node.handles[least].notes[NOTE] = "its last events are not recorded any more: more important jobs have the room"
    node.update_note(least)
    return True
