"""The next job in a cgroup that HTCondor could not remove: the run of the job before ends, and a new one begins.

The kernel tells both jobs apart (jl_slot_entered): a starter brings a process into the cgroup of a job that has ended.
Each job has a slot of its own in the kernel. The files of the cgroup go on, so the new run takes off what they
said when the slot was empty. If something of the job before was still there, both runs say so.
"""

from __future__ import annotations

import numpy as np

from condor_joblens.agent.agent import Agent
from condor_joblens.agent.lifecycle import run_end
from condor_joblens.agent.lifecycle.leftovers import FILES, Earlier, read_totals
from condor_joblens.agent.lifecycle.settling import is_open
from condor_joblens.agent.node import Node
from condor_joblens.sample import totals
from condor_joblens.sample.collector import declare_uncounted
from condor_joblens.tracer import map_layout
from condor_joblens.tracer.cgroup_uses import inode_of

FOLLOWED = "the next job came into its cgroup before all of it had ended: what it did after that is not counted"

FOLLOWS = "the job before had not ended when this one came into its cgroup: CPU, pressure and TCP can be that one's too"

PEAK = "Memory.CgroupPeakBytes (its cgroup is an earlier job's)"


def end_earlier(agent: Agent, cgroup_id: int) -> Earlier | None:
    """The job with this id is in the cgroup: ends the run of the job before. None if nothing is known of that one."""
    node, inode = agent.node, inode_of(cgroup_id)
    same = [run for known, run in node.runs.by_cgroup.items() if known != cgroup_id and inode_of(known) == inode]
    found = [end(agent, run) for run in same]
    empty = agent.leftovers.entered(node, inode)
    return found[-1] if found else empty


def end(agent: Agent, run: int) -> Earlier:
    """Ends the run, in whose cgroup the next job is."""
    node = agent.node
    state, row, slot = node.runs.state, node.runs.rows[run], int(node.runs.state["kernel_slot"][run])
    if slot >= 0:
        node.tracer.counters["state"][slot] = map_layout.LEFT
    has_ended = node.handles[run].is_counted_to_end and slot >= 0 and not is_open(node, slot)
    if not has_ended:
        row["complete"] = False
        node.handles[run].notes["reuse"] = FOLLOWED
        node.update_note(run)
    used = {column: float(row[column] - state["offset"][column][run]) for column in FILES if row[column] >= 0}
    run_end.cgroup_gone(agent, run)
    return Earlier(used, has_ended)


def begin(node: Node, run: int, earlier: Earlier | None) -> None:
    """The run's job is in the cgroup of another one: its totals begin at zero. None: what that one had is not known."""
    rows, state, handles = node.runs.rows, node.runs.state, node.handles[run]
    slot = int(state["kernel_slot"][run])
    used = {**read_totals(handles.files), **(earlier.used if earlier else {})}
    totals.rebase(rows, state["offset"], run, {column: np.array([value]) for column, value in used.items()})
    handles.cpu_before = used.get("cpu_seconds", 0.0)
    declare_uncounted(rows, run, [PEAK])
    is_shared = slot >= 0 and bool(node.tracer.counters["entered_shared"][slot])
    if earlier is None or not earlier.has_ended or is_shared:
        rows["complete"][run] = False
        handles.notes["reuse"] = FOLLOWS
        node.update_note(run)
