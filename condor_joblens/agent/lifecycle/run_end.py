"""The end of a run: its first process ends, its slot is empty, its cgroup goes. Its last numbers are out at once."""

from __future__ import annotations

import contextlib
import os

import numpy as np

from condor_joblens.agent import measure
from condor_joblens.agent.levels import policy_decisions
from condor_joblens.agent.lifecycle import death, process_events
from condor_joblens.agent.node import Node
from condor_joblens.agent.output import emit_events, publishing


def ended(node: Node, ends: dict[int, bool]) -> None:
    """First processes have exited (False) or slots are empty (True): their last numbers, and into the ads at once."""
    if not ends:
        return
    runs = np.array(list(ends), "i8")
    measure.last(node, runs)
    for run, empty in ends.items():
        _finish(node, run)
        publishing.publish_ad(node, run)
        if empty and node.runs.state["made_here"][run]:
            with contextlib.suppress(OSError):
                os.rmdir(node.handles[run].path)
    # at once: the slot's next job can start within a second, and must not be shown with these numbers
    publishing.rows(node)


def gone(node: Node, run: int) -> None:
    """The run's cgroup is no more: what is known of it now is all there will ever be."""
    measure.last(node, np.array([run]))
    _finish(node, run)
    slot = int(node.runs.state["kernel_slot"][run])
    if slot >= 0:
        node.tracer.stop(slot)
    if node.runs.state["named"][run]:
        node.runs.rows["sequence"][run] += 1
        node.ended.add(node.runs.rows[run])
    publishing.keep_last_ad(node, run)
    node.leave(run)
    node.runs.remove(run)


def _finish(node: Node, run: int) -> None:
    """The run's numbers are its last ones; its end is told once."""
    before = bool(node.runs.rows["final"][run])
    node.runs.rows["final"][run] = True
    policy_decisions.name_before_its_end(node, run)
    if not before:
        process_events.take(node)
        death.tell(node, run)
        code = death.exit_code(node, run)
        emit_events.run_ended(node, run, emit_events.UNKNOWN_EXIT if code is None else code)
