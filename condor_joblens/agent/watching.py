"""How closely a run is watched: what its level means for the kernel and for its numbers."""

from __future__ import annotations

from condor_joblens.agent import measure, telling
from condor_joblens.agent.node import Node
from condor_joblens.levels import Level


def set_level(node: Node, run: int, level: Level) -> None:
    """Watches the run as closely as `level` says; `off` leaves nothing of it in the kernel."""
    row, state = node.runs.rows[run : run + 1], node.runs.state[run : run + 1]
    before = int(row["level_number"][0])
    row["level"], row["level_number"] = level.word.encode(), int(level)
    if before != level:
        telling.level_changed(node, run)
    slot = int(state["kernel_slot"][0])
    if level is Level.OFF:
        if slot >= 0:
            node.tracer.stop(slot)
            state["kernel_slot"] = -1
        measure.forget(node, run)
    elif slot >= 0:
        node.tracer.counters["level"][slot] = int(level)
    # said as it is: what the closer levels add is not built yet
    node.handles[run].notes["level"] = (
        f"level {level.word} counts what basic counts in this version" if level > Level.BASIC else ""
    )
