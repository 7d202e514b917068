"""How closely a run is watched: what its level means for the kernel and for its numbers."""

from __future__ import annotations

import time

from condor_joblens.agent import measure
from condor_joblens.agent.node import Node
from condor_joblens.agent.output import emit_events
from condor_joblens.model.levels import Level


def set_level(node: Node, run: int, level: Level) -> None:
    """Watches the run as closely as `level` says, or as can be; `off` leaves nothing of it in the kernel."""
    row, state = node.runs.rows[run : run + 1], node.runs.state[run : run + 1]
    before = int(row["level_number"][0])
    if level > before == Level.OFF and state["named"][0] and state["kernel_slot"][0] < 0:
        _count_again(node, run, level)
    slot = int(state["kernel_slot"][0])
    level = _follow(node, run, slot, level)
    row["level"], row["level_number"] = level.word.encode(), int(level)
    if before != level:
        emit_events.level_changed(node, run)
    if level is Level.OFF:
        if slot >= 0:
            node.tracer.stop(slot)
            state["kernel_slot"] = -1
        measure.forget(node, run)
    elif slot >= 0:
        node.tracer.counters["level"][slot] = int(level)
    # said as it is: what the closest levels add is not built yet
    node.handles[run].notes["level"] = (
        f"level {level.word} counts what io counts in this version" if level > Level.IO else ""
    )


def _count_again(node: Node, run: int, level: Level) -> None:
    """A run that was off is counted from now on."""
    slot = node.tracer.take(int(node.runs.state["cgroup_id"][run]), int(level))
    node.runs.state["kernel_slot"][run] = -1 if slot is None else slot
    node.runs.rows["complete"][run] = False
    node.handles[run].notes["off"] = "it was at level off: what ended by then is not counted, bar CPU"
    measure.go_on(node, run)


def _what_io_lacks(node: Node, run: int, slot: int) -> str:
    """Level io begins to count: what is to be said of that, where the job has begun before."""
    if node.tracer.counters["awaits_exec"][slot]:
        return ""
    age = time.monotonic() - float(node.runs.state["began"][run])
    return f"level io began {age:.0f} s after the job: what it did at other levels is not in the numbers of io"


def _follow(node: Node, run: int, slot: int, level: Level) -> Level:
    """Level io's programs count the run, or do no longer; the level that comes of it."""
    tracer, notes = node.tracer, node.handles[run].notes
    notes["io"] = ""
    if level < Level.IO:
        counted = tracer.sensors["io"].stop(slot) if slot >= 0 else None
        if counted is not None:
            measure.end_io(node, run, counted)
        return level
    if slot >= 0 and tracer.counters["io_key"][slot]:
        return level
    started = slot >= 0 and tracer.sensors["io"].start(slot)
    for name, reason in tracer.missing.items():
        node.say_once(f"level io can't count {name}: {reason}")
    if started:
        measure.begin_io(node, run)
        notes["late_io"] = _what_io_lacks(node, run, slot)
        return level
    why = "the kernel's table has no room for this job" if slot < 0 else tracer.sensors["io"].why_not()
    notes["io"] = f"level {level.word} is not to be had: {why}"
    return Level.BASIC
