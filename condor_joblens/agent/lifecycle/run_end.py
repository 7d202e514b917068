"""The end of a run: its first process ends, its slot is empty, its cgroup goes. Its last numbers are out at once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import numpy as np

from condor_joblens.agent import measure
from condor_joblens.agent.agent import Agent
from condor_joblens.agent.levels import profile_level, provisional_io, recorder_level
from condor_joblens.agent.lifecycle import death, first_decision, process_events
from condor_joblens.agent.node import Node
from condor_joblens.agent.output.emit_events import UNKNOWN_EXIT
from condor_joblens.model.metrics import text
from condor_joblens.sample.collector import have_their_cgroups

TOGETHER = 16
"""Runs whose last ads are written in one exchange. The first one's starter looks some milliseconds after the end."""


def first_process_exited(agent: Agent, ends: dict[int, bool]) -> dict[int, bool]:
    """The first processes of these runs have exited (run -> is its slot empty?): publishes their last numbers.

    Returns the runs that `tell` is to tell of, and whether each has died.
    """
    node = agent.node
    for run, is_empty in ends.items():
        node.guard(run, "last numbers", _remember_counted, node, run, is_empty)
    _sample_final(node, list(ends))
    for run, is_empty in ends.items():
        if is_empty:
            node.guard(run, "last numbers", _nobody_left, node, run)
            node.guard(run, "last numbers", _counted_to_end, node, run)
    runs, untold = list(ends), {}
    for first in range(0, len(runs), TOGETHER):
        for run in runs[first : first + TOGETHER]:
            has_died = node.guard(run, "end", _finish, agent, run)
            if has_died is not None:
                untold[run] = has_died
        agent.output.job_ads.publish_together(runs[first : first + TOGETHER])
    # their starters are about to kill who lives on, and the ad is written again when all have ended
    agent.output.job_ads.lease([run for run, is_empty in ends.items() if not is_empty])
    for run, is_empty in ends.items():
        if is_empty and node.runs.state["is_own_cgroup"][run]:
            with contextlib.suppress(OSError):
                os.rmdir(node.handles[run].path)
    # now: the slot's next job can start within a second, and must not be shown with these numbers
    agent.output.rows.publish()
    return untold


def tell(agent: Agent, run: int, has_died: bool) -> None:
    """Reports the end, behind all that happened in the run. Its last ad is written by now: this takes its time."""
    agent.node.guard(run, "events", _tell, agent, run, has_died)


def _tell(agent: Agent, run: int, has_died: bool) -> None:
    process_events.drain(agent)
    if agent.node.runs.rows["death"][run]:  # nobody here knows whether it was removed, held or evicted
        cause = "death" if has_died else "ended"
        agent.node.guard(run, "flight recorder", agent.recorder.tag_if_recorded, run, cause)
    if has_died:
        agent.output.events.died(run)
    agent.node.guard(run, "traceback", agent.tracebacks.keep_all, agent.output.artifacts, run)
    code = agent.node.guard(run, "exit code", death.exit_code, agent.node, run)
    agent.output.events.run_ended(run, UNKNOWN_EXIT if code is None else code)
    agent.node.guard(run, "profile", profile_level.finish, agent.levels, run)


def cgroup_gone(agent: Agent, run: int, between: Callable[[], None] = lambda: None) -> None:
    """The run's cgroup is gone: its numbers are final. `between` two steps other runs may end."""
    node = agent.node
    if node.guard(run, "last numbers", _may_have_changed, node, run) is False:
        node.guard(run, "last numbers", measure.finish, node, np.array([run]))
    else:
        _sample_final(node, [run])
    if node.guard(run, "last numbers", _has_its_cgroup, node, run):
        node.guard(run, "last numbers", _nobody_left, node, run)
    between()
    has_died = node.guard(run, "end", _finish, agent, run)
    if has_died is not None:
        tell(agent, run, has_died)
    # what lived on in the slot after the first process has ended by now, and its events have no run from here on
    node.guard(run, "process events", process_events.drain, agent)
    between()
    slot = int(node.runs.state["kernel_slot"][run])
    if node.runs.state["named"][run]:
        node.runs.rows["sequence"][run] += 1
        node.guard(run, "list of ended runs", node.ended.add, node.runs.rows[run])
    if slot >= 0:
        node.guard(run, "counters", _let_go, agent, run, slot)
    between()
    node.guard(run, "last ad", agent.output.job_ads.keep_final, run)
    node.guard(run, "restarts", _expect_restart, agent, run)
    close_run(agent, run)


def _let_go(agent: Agent, run: int, slot: int) -> None:
    if not agent.settling.begin(run):
        agent.node.tracer.stop(slot)


def _expect_restart(agent: Agent, run: int) -> None:
    name = os.path.basename(text(agent.node.runs.rows["cgroup"][run]))
    agent.restarts.ended(name, int(agent.node.runs.state["starter"][run]))


def close_run(agent: Agent, run: int) -> None:
    """Closes all that is open for the run, and frees its place in the table, whatever fails on the way."""
    node = agent.node
    handles = node.handles.get(run)
    for step in (
        lambda run: profile_level.finish(agent.levels, run),
        lambda run: recorder_level.end(agent.levels, run),
        lambda run: agent.tracebacks.end(agent.output.artifacts, run),
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


def _remember_counted(node: Node, run: int, is_empty: bool) -> None:
    """What the kernel has counted of a run whose slot is empty is not measured twice: see `_may_have_changed`."""
    node.handles[run].counted_at_end = _counted(node, run) if is_empty else b""


def _may_have_changed(node: Node, run: int) -> bool:
    """Whether anything can be new since the run's slot was found empty: mostly nothing is, and measuring takes time."""
    if node.collectors.failing or measure.any_open(node, [run]):
        return True
    before = node.handles[run].counted_at_end
    return not before or before != _counted(node, run)


def _counted(node: Node, run: int) -> bytes:
    slot = int(node.runs.state["kernel_slot"][run])
    counted: bytes = node.tracer.counters[slot].tobytes() if slot >= 0 else b""
    return counted


def _nobody_left(node: Node, run: int) -> None:
    """The run's slot is empty, whatever was counted."""
    live = node.runs.rows["process_live"]
    live[run] = min(int(live[run]), 0)  # -1: absent


def _counted_to_end(node: Node, run: int) -> None:
    """The run's slot was empty when its numbers were taken: see jobs that follow it in its cgroup (reuse.py)."""
    node.handles[run].is_counted_to_end = _has_its_cgroup(node, run)


def _has_its_cgroup(node: Node, run: int) -> bool:
    return bool(have_their_cgroups(node, np.array([run]))[0])


def _finish(agent: Agent, run: int) -> bool | None:
    """The run's numbers are its last ones; whether it has died, and None if its end is known already."""
    was_final = bool(agent.node.runs.rows["final"][run])
    agent.node.runs.rows["final"][run] = True
    guard = agent.node.guard
    guard(run, "identity", first_decision.identify_before_end, agent, run)
    provisional_io.job_ends(agent.levels, run)
    if was_final:
        return None
    process_events.take_ahead(agent)
    agent.output.events.share_losses()
    return bool(guard(run, "death", death.report, agent, run))
