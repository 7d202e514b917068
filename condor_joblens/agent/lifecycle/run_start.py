"""The start of a run: a slot's cgroup is made, the run gets its place in the table, and its sandbox is opened."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

import numpy as np

from condor_joblens.agent import measure
from condor_joblens.agent.agent import Agent
from condor_joblens.agent.levels import apply_level, policy_input
from condor_joblens.agent.lifecycle import checkpoint, death, first_decision, restarts, reuse, run_end, startd_truth
from condor_joblens.agent.lifecycle.start_time import counting_begins, set_start_time
from condor_joblens.agent.node import OWN_CGROUP, Handles, Node, inode_at, open_files
from condor_joblens.common.cgroup_processes import processes_in
from condor_joblens.common.user_names import NAMES
from condor_joblens.jobs import cgroups
from condor_joblens.jobs.sandbox import JobSandbox, is_roots, parent_of
from condor_joblens.model.metrics import cut, text
from condor_joblens.sample.kernel_counters import NANO
from condor_joblens.tracer import map_layout
from condor_joblens.tracer.cgroup_uses import inode_of, jobs_before

MAX_ANCESTORS = 16
"""How far above a process its starter is looked for."""


def cgroup_made(agent: Agent, cgroup_id: int, event: np.void, between: Callable[[], None] = lambda: None) -> None:
    """The kernel reports a new cgroup below a base. `between` two steps of its start other runs may end."""
    node = agent.node
    if cgroup_id in node.runs.by_cgroup:
        return  # recovery.reconcile has found it before, and its slot is that run's
    name = text(bytes(event["name"])) or _name_of(node, inode_of(cgroup_id))
    slot = int(event["slot"])
    before = reuse.end_earlier(agent, cgroup_id) if jobs_before(cgroup_id) else None
    run = None
    if agent.restarts.may_begin(name):
        kernel_slot = None if slot == map_layout.NO_SLOT else slot
        # on a busy node it can be seconds until an event is looked at
        age = max(0.0, (time.monotonic_ns() - int(event["time_ns"])) * NANO)
        run = start_guarded(agent, cgroup_id, name, int(event["pid"]), kernel_slot, age, between)
        if run is not None and jobs_before(cgroup_id):
            node.guard(run, "reuse", reuse.begin, node, run, before)
    else:
        node.log_once(f"{name}: its job begins anew too often to be watched each time; its numbers say so")
    # recovery.reconcile can have given the slot back already, and then it may be another job's
    if run is None and slot != map_layout.NO_SLOT and node.tracer.slot_of(cgroup_id) == slot:
        node.tracer.stop(slot)


def start_guarded(
    agent: Agent,
    cgroup_id: int,
    name: str,
    maker: int,
    kernel_slot: int | None,
    age: float,
    between: Callable[[], None] = lambda: None,
) -> int | None:
    """`start_run`; None also if it raises, which is logged. Nothing of the run is left then."""
    try:
        return start_run(agent, cgroup_id, name, maker, kernel_slot, age, between)
    except Exception as error:
        agent.node.failures.log("start", f"{name}: its job can't be watched; all others are", error)
        run = agent.node.runs.by_cgroup.get(cgroup_id)
        if run is not None:
            run_end.close_run(agent, run)
        return None


def start_run(
    agent: Agent,
    cgroup_id: int,
    name: str,
    maker: int,
    kernel_slot: int | None,
    age: float = 0.0,
    between: Callable[[], None] = lambda: None,
) -> int | None:
    """Starts the run of a slot's cgroup `name`; None if the cgroup isn't a slot's, or has a run.

    `maker` is the process that made it `age` seconds ago (0: unknown), `kernel_slot` its index in the tracer (None: not
    counted). `between` two steps other runs may end.
    """
    node = agent.node
    slot = cgroups.parse_slot(name, node.executes)
    path = path_below_bases(node, name, cgroup_id)
    if slot is None or path is None or cgroup_id in node.runs.by_cgroup or _is_occupied(agent, slot):
        return None
    run = node.runs.add(cgroup_id)
    if run is None:
        node.log_once(f"more than JOBLENS_MAX_JOBS = {node.runs.capacity} jobs: the others are not watched")
        return None
    row, state = node.runs.rows[run : run + 1], node.runs.state[run : run + 1]
    row["run_number"] = node.next_run_number()
    row["slot"], row["execute"] = cut(slot.name, "slot"), cut(slot.execute, "execute")
    row["cgroup"] = cut(os.path.relpath(path, node.tree.mount), "cgroup")
    row["source"] = node.tracer.source
    row["period_seconds"] = node.config.period
    row["update_time"] = int(time.time())
    row["complete"] = kernel_slot is not None and node.tracer.is_exact
    state["is_own_cgroup"] = os.path.dirname(path) == node.tree.path(OWN_CGROUP)
    set_start_time(node, run, time.time() - age)
    measure.rebase_losses(node, run)
    handles = node.handles[run] = Handles(path, open_files(path, cgroup_id), notes={"source": node.tracer.note})
    if agent.restarts.may_miss(name):
        row["complete"], handles.notes["restarts"] = False, restarts.NOTE
    if kernel_slot is None:
        handles.notes["slots"] = "the kernel's table was full: only CPU and pressure are counted (JOBLENS_MAX_JOBS)"
    between()
    policy_input.add_run(agent.levels, run)
    startd_truth.expect(agent, run)
    apply_level.set_kernel_slot(agent.levels, run, kernel_slot)
    apply_level.set_level(agent.levels, run, node.config.default_level)
    between()
    node.guard(run, "sandbox", find_sandbox, agent, run, maker)
    between()
    node.guard(run, "job ad", first_decision.submit_job_ad, agent, run)
    return run


def job_starts(agent: Agent, run: int) -> None:
    """The wrapper has called: counting begins with the next exec in the slot, the job's first instruction."""
    death.clear(agent.node, run)
    agent.crashes.forget(int(agent.node.runs.rows["run_number"][run]))
    measure.reset(agent.node, run)
    counting_begins(agent.node, run)
    agent.node.update_note(run)
    checkpoint.carry_totals(agent, run)


def find_sandbox(agent: Agent, run: int, maker: int) -> None:
    """Opens the starter's folder. The cgroup's maker is the starter, or its child (before HTCondor 24.8).

    If the maker is not known: the first process of the slot is a descendant of its starter.
    """
    node = agent.node
    known = text(node.runs.rows["execute"][run])
    process = maker or next(processes_in(node.handles[run].path), 0)
    for _ in range(MAX_ANCESTORS):
        if process <= 1:
            return
        for execute in ([known] if known else node.executes) if is_roots(process) else []:
            sandbox = JobSandbox.open(node.files, execute, process)
            if sandbox is not None:
                open_sandbox(agent, run, sandbox)
                node.runs.state["starter"][run] = process
                return
        process = parent_of(process)


def open_sandbox(agent: Agent, run: int, sandbox: JobSandbox | None) -> None:
    """The run's sandbox is known: from now on its `.update.ad` is watched."""
    agent.node.handles[run].sandbox = sandbox
    if sandbox is not None:
        agent.node.runs.state["scratch_uid"][run] = sandbox.scratch_uid + 1
        NAMES.name_of(sandbox.scratch_uid)  # known by the time that somebody asks for something
    agent.output.job_ads.watch(run)


def _is_occupied(agent: Agent, slot: cgroups.Slot) -> bool:
    """Whether the slot's job lives, so that this cgroup is not its next one's: condor_ssh_to_job makes such."""
    node = agent.node
    runs, rows = node.runs.living(), node.runs.rows
    same = (rows["slot"][runs] == cut(slot.name, "slot")) & (rows["execute"][runs] == cut(slot.execute, "execute"))
    for run in runs[same].tolist():
        inode = inode_at(node.handles[run].path)
        if inode is not None and node.cgroup_id(inode) == int(node.runs.state["cgroup_id"][run]):
            return True
        run_end.cgroup_gone(agent, run)
    return False


def path_below_bases(node: Node, name: str, cgroup_id: int) -> str | None:
    """Where the cgroup is that has this name and id; None if it is not there any more."""
    for base in [*node.bases, OWN_CGROUP]:
        path = node.tree.path(os.path.join(base, name))
        if inode_at(path) == inode_of(cgroup_id):
            return path
    return None


def _name_of(node: Node, inode: int) -> str:
    """The name of the slot's cgroup with this inode, of which no event tells if jobs were in it before; or nothing."""
    for base in [*node.bases, OWN_CGROUP]:
        with contextlib.suppress(OSError), os.scandir(node.tree.path(base)) as entries:
            for entry in entries:
                if entry.inode() == inode:
                    return entry.name
    return ""
