"""The end of a run: its first process ends, its slot is empty, its cgroup goes. Its last numbers are out at once."""

from __future__ import annotations

import contextlib
import os

import numpy as np

from condor_joblens.agent import measure
from condor_joblens.agent.agent import Agent
from condor_joblens.agent.levels import provisional_io
from condor_joblens.agent.lifecycle import death, first_decision, process_events
from condor_joblens.agent.node import Node
from condor_joblens.agent.output.emit_events import UNKNOWN_EXIT

TOGETHER = 16
"""Runs whose last ads are written in one exchange. The first one's starter looks some milliseconds after the end."""


def first_process_exited(agent: Agent, ends: dict[int, bool]) -> None:
    """The first processes of these runs have exited (run -> is its slot empty?): publishes their last numbers."""
    if not ends:
        return
    node = agent.node
    _sample_final(node, list(ends))
    runs = list(ends)
    for first in range(0, len(runs), TOGETHER):
        for run in runs[first : first + TOGETHER]:
            node.guard(run, "end", _finish, agent, run)
        agent.output.job_ads.publish_together(runs[first : first + TOGETHER])
    for run, is_empty in ends.items():
        if is_empty and node.runs.state["is_own_cgroup"][run]:
            with contextlib.suppress(OSError):
                os.rmdir(node.handles[run].path)
    # now: the slot's next job can start within a second, and must not be shown with these numbers
    agent.output.rows.publish()


def cgroup_gone(agent: Agent, run: int) -> None:
    """The run's cgroup is gone: its numbers are final."""
    node = agent.node
    _sample_final(node, [run])
    node.guard(run, "end", _finish, agent, run)
    # what lived on in the slot after the first process has ended by now, and its events have no run from here on
    node.guard(run, "process events", process_events.drain, agent)
    slot = int(node.runs.state["kernel_slot"][run])
    if slot >= 0:
        node.guard(run, "counters", node.tracer.stop, slot)
    if node.runs.state["named"][run]:
        node.runs.rows["sequence"][run] += 1
        node.guard(run, "list of ended runs", node.ended.add, node.runs.rows[run])
    node.guard(run, "last ad", agent.output.job_ads.keep_final, run)
    close_run(agent, run)


def close_run(agent: Agent, run: int) -> None:
    """Closes all that is open for the run, and frees its place in the table, whatever fails on the way."""
    node = agent.node
    handles = node.handles.get(run)
    for step in (
        node.collectors.forget,
        agent.levels.forget,
        agent.output.job_ads.forget,
        lambda run: None if handles is None else handles.close(),
    ):
        node.guard(run, "closing", step, run)
    node.handles.pop(run, None)
    agent.resumed.pop(run, None)
    node.guard.forget(run)
    node.runs.remove(run)


def _sample_final(node: Node, runs: list[int]) -> None:
    """All at once, which is quicker; if that raises, each on its own."""
    try:
        measure.sample_final(node, np.array(runs, "i8"))
    except Exception:
        for run in runs:
            node.guard(run, "last numbers", measure.sample_final, node, np.array([run]))


def _finish(agent: Agent, run: int) -> None:
    """The run's numbers are its last ones; its end is reported once."""
    was_final = bool(agent.node.runs.rows["final"][run])
    agent.node.runs.rows["final"][run] = True
    guard = agent.node.guard
    guard(run, "identity", first_decision.identify_before_end, agent, run)
    provisional_io.job_ends(agent.levels, run)
    if not was_final:
        process_events.drain(agent)
        agent.output.events.share_losses()
        guard(run, "death", death.report, agent, run)
        code = guard(run, "exit code", death.exit_code, agent.node, run)
        agent.output.events.run_ended(run, UNKNOWN_EXIT if code is None else code)
