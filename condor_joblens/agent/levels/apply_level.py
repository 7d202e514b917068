"""Applies a level to a run: in the kernel, and in the run's numbers."""

from __future__ import annotations

import time

from condor_joblens.agent import before_job, measure
from condor_joblens.agent.levels import missing_level, profile_level, provisional_io, recorder_level
from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.commands.level import LATE_IO
from condor_joblens.model.levels import Level


def set_level(levels: Levels, run: int, level: Level) -> None:
    """Applies `level` to the run, or the closest level that is possible; `off` leaves nothing of it in the kernel."""
    node = levels.node
    row, state = node.runs.rows[run : run + 1], node.runs.state[run : run + 1]
    before = int(row["level_number"][0])
    if level > before == Level.OFF and state["named"][0] and state["kernel_slot"][0] < 0:
        _count_again(levels, run, level)
    slot, wanted = int(state["kernel_slot"][0]), level
    if level < Level.PROFILE:
        profile_level.end(levels, run)  # while io still counts: that tells how many calls did not wait
    level = profile_level.apply(levels, run, slot, _apply_io(levels, run, slot, level))
    row["level"], row["level_number"] = level.word.encode(), int(level)
    recorder_level.apply(levels, run, wanted)
    if before != level or not state["level_changed_at"][0]:
        state["level_changed_at"] = time.monotonic()
    if before != level:
        levels.output.events.level_changed(run)
    if level is Level.OFF:
        if slot >= 0:
            node.tracer.stop(slot)
            set_kernel_slot(levels, run, None)
        measure.forget(node, run)
    elif slot >= 0 and not state["io_provisional"][0]:
        node.tracer.counters["level"][slot] = int(level)
    node.handles[run].notes["level"] = _what_is_missing(levels, level)


def _what_is_missing(levels: Levels, level: Level) -> str:
    """The note about a level that does not do all that its name says."""
    if level > Level.IO and getattr(levels.node, "sampling", None) is None:
        return (
            f"level {level.word} counts what io counts: joblensd can't sample, or JOBLENS_MAX_LEVEL was lower when it "
            "started (joblens restart)"
        )
    return ""


def set_kernel_slot(levels: Levels, run: int, slot: int | None) -> None:
    """The kernel counts the run in this slot of its table; None: it does not count the run."""
    levels.node.runs.state["kernel_slot"][run] = -1 if slot is None else slot


def _count_again(levels: Levels, run: int, level: Level) -> None:
    """The run was at level off, and is counted from now on."""
    node = levels.node
    set_kernel_slot(levels, run, node.tracer.take(int(node.runs.state["cgroup_id"][run]), int(level)))
    node.runs.rows["complete"][run] = False
    node.handles[run].notes["off"] = "it was at level off: what ended by then is not counted, except CPU"
    measure.rebase(node, run)


def _missing_from_io(levels: Levels, run: int, slot: int) -> str:
    """Level io begins to count: the note about what it missed, if the job has started before."""
    node = levels.node
    if node.tracer.counters["awaits_exec"][slot]:
        return ""
    return before_job.late_note(time.monotonic() - float(node.runs.state["began"][run]))


def _start_io(levels: Levels, slot: int) -> bool:
    sensor = levels.node.tracer.sensors["io"]
    return sensor.start(slot) or (provisional_io.make_room(levels) and sensor.start(slot))


def _apply_io(levels: Levels, run: int, slot: int, level: Level) -> Level:
    """Starts or stops level io's counting of the run; returns the level that the run gets."""
    node = levels.node
    tracer, notes = node.tracer, node.handles[run].notes
    notes["io"] = ""
    if level < Level.IO:
        if node.runs.state["io_provisional"][run]:
            return level  # its first decision has the last word: provisional_io.settle
        counted = tracer.sensors["io"].stop(slot) if slot >= 0 else None
        if counted is not None:
            measure.end_io(node, run, counted)
        return level
    if slot >= 0 and tracer.counters["io_key"][slot]:
        if node.runs.state["io_provisional"][run]:
            provisional_io.confirm(levels, run)
        return level
    started = slot >= 0 and _start_io(levels, slot)
    for name, reason in tracer.sensors["io"].missing.items():
        node.log_once(f"level io can't count {name}: {reason}")
    if started:
        measure.begin_io(node, run)
        notes[LATE_IO] = _missing_from_io(levels, run, slot)
        return level
    why = "the kernel's table has no room for this job" if slot < 0 else tracer.sensors["io"].why_not()
    notes["io"] = missing_level.note(level, why)
    return Level.BASIC
