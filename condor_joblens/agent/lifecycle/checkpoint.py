"""A job that exited with its checkpoint code and goes on in its slot: the same run in a new cgroup."""

from __future__ import annotations

import os

from condor_joblens.agent.agent import Agent
from condor_joblens.agent.lifecycle.start_time import set_start_time
from condor_joblens.jobs.run_state import COUNTERS
from condor_joblens.model.metrics import METRICS, MetricKind, text
from condor_joblens.sample.totals import carry_on

CARRIED = [metric.column for metric in COUNTERS]
PEAKS = [metric.column for metric in METRICS if metric.kind is MetricKind.PEAK]


def resume(agent: Agent, run: int) -> None:
    """The run has its name: if a run of that name, of the same starter, ended a moment ago, its totals go on."""
    if not _is_same_job(agent, run):
        return
    before = agent.node.ended.resume(agent.node.runs.rows[run])
    if before is not None:
        agent.resumed[run] = before
        carry_totals(agent, run)


def _is_same_job(agent: Agent, run: int) -> bool:
    """Whether the run's starter has had a run in its slot before; a name alone can be another job's by mistake.

    A joblensd that has just started knows no starters: then the job's ad says whether it can go on.
    """
    state = agent.node.runs.state
    name = os.path.basename(text(agent.node.runs.rows["cgroup"][run]))
    is_restart = agent.restarts.is_restart(name, int(state["starter"][run]))
    return bool(state["checkpoint_code"][run] >= 0) if is_restart is None else is_restart


def carry_totals(agent: Agent, run: int) -> None:
    """The totals go on from the row that the run had before its checkpoint, if it had one.

    Call this when that row is found, and again when counting begins. The policies' answer, which gives the run its
    name, can come before its wrapper calls.
    """
    node, before = agent.node, agent.resumed.get(run)
    if before is None:
        return
    rows, state = node.runs.rows, node.runs.state
    carry_on(rows, state["offset"], run, before, CARRIED)
    for column in PEAKS:
        rows[column][run] = max(rows[column][run], before[column])
    rows["lost"][run] = before["lost"]
    set_start_time(node, run, int(before["start_time"]))
    rows["complete"][run] &= before["complete"]
    node.collectors.endpoints.lists.carry(rows, run, int(state["cgroup_id"][run]), before["endpoints"])
    node.collectors.servers.lists.carry(node.runs, run, before["servers"])
