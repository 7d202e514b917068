"""The end of a run: its first process ends, its slot is empty, its cgroup goes. Its last numbers are out at once."""

from __future__ import annotations

import contextlib
import os

import numpy as np

from condor_joblens.agent import measure
from condor_joblens.agent.agent import Agent
from condor_joblens.agent.lifecycle import death, first_decision, process_events
from condor_joblens.agent.output.emit_events import UNKNOWN_EXIT


def first_process_exited(agent: Agent, ends: dict[int, bool]) -> None:
    """The first processes of these runs have exited (run -> is its slot empty?): publishes their last numbers."""
    if not ends:
        return
    node = agent.node
    measure.sample_final(node, np.array(list(ends), "i8"))
    for run, is_empty in ends.items():
        _finish(agent, run)
        agent.output.job_ads.publish(run)
        if is_empty and node.runs.state["is_own_cgroup"][run]:
            with contextlib.suppress(OSError):
                os.rmdir(node.handles[run].path)
    # now: the slot's next job can start within a second, and must not be shown with these numbers
    agent.output.rows.publish()


def cgroup_gone(agent: Agent, run: int) -> None:
    """The run's cgroup is gone: its numbers are final."""
    node = agent.node
    measure.sample_final(node, np.array([run]))
    _finish(agent, run)
    slot = int(node.runs.state["kernel_slot"][run])
    if slot >= 0:
        node.tracer.stop(slot)
    if node.runs.state["named"][run]:
        node.runs.rows["sequence"][run] += 1
        node.ended.add(node.runs.rows[run])
    agent.output.job_ads.keep_final(run)
    close_run(agent, run)


def close_run(agent: Agent, run: int) -> None:
    """Closes all that is open for the run, and frees its place in the table."""
    handles = agent.node.handles.pop(run)
    agent.node.collectors.forget(run)
    agent.resumed.pop(run, None)
    agent.levels.forget(run)
    agent.output.job_ads.forget(run)
    handles.close()
    agent.node.runs.remove(run)


def _finish(agent: Agent, run: int) -> None:
    """The run's numbers are its last ones; its end is reported once."""
    was_final = bool(agent.node.runs.rows["final"][run])
    agent.node.runs.rows["final"][run] = True
    first_decision.identify_before_end(agent, run)
    if not was_final:
        process_events.drain(agent)
        death.report(agent, run)
        code = death.exit_code(agent.node, run)
        agent.output.events.run_ended(run, UNKNOWN_EXIT if code is None else code)
