"""A job's wrapper calls: which run it means, and what its call begins."""

from __future__ import annotations

import contextlib
import os

from condor_joblens.agent import measure
from condor_joblens.agent.agent import Agent
from condor_joblens.agent.levels import provisional_io
from condor_joblens.agent.lifecycle import first_decision, reuse, run_start, slot_events
from condor_joblens.agent.node import OWN_CGROUP, inode_at
from condor_joblens.control.verbs import Refused
from condor_joblens.jobs import cgroups
from condor_joblens.jobs.sandbox import is_roots, parent_of
from condor_joblens.model.metrics import text


def run_of_process(agent: Agent, pid: int, slot: str, scratch: str) -> int:
    """The run in whose cgroup the process is; `slot` and `scratch` are what it claims. Raises Refused."""
    slot_events.drain(agent)
    node = agent.node
    cgroup = node.tree.cgroup_of(pid)
    found = None if cgroup is None else cgroups.slot_cgroup(cgroup, [*node.bases, OWN_CGROUP])
    if found is None and node.tree.hybrid:
        found = _make_cgroup(agent, pid, slot, scratch)
    if found is None:
        raise Refused("this process is in no slot's cgroup: run it inside a job")
    inode = inode_at(node.tree.path(found))
    run = None if inode is None else node.runs.by_cgroup.get(node.cgroup_id(inode))
    if run is None:
        raise Refused("this slot is not watched")
    return run


def next_job(agent: Agent, run: int, pid: int) -> bool:
    """Another starter's job in the same cgroup, of which the kernel has not told: the job before has not ended for it.

    A job that can't be killed keeps its cgroup, and HTCondor goes on in it (reuse.py has all other cases).

    The run of the one before is over, and a new one begins. False if it is the same starter's.
    """
    node = agent.node
    starter = parent_of(parent_of(pid))
    execute = text(node.runs.rows["execute"][run])
    if starter == int(node.runs.state["starter"][run]) or not os.path.isdir(f"{execute}/dir_{starter}"):
        return False
    # a dead starter's folder may be there, and its process id the job's own by now
    if not is_roots(starter):
        return False
    path, cgroup_id = node.handles[run].path, node.tracer.next_use(int(node.runs.state["cgroup_id"][run]))
    before = reuse.end(agent, run)
    slot = node.tracer.take(cgroup_id, int(node.config.default_level))
    new = run_start.start_run(agent, cgroup_id, os.path.basename(path), starter, slot)
    if new is None:
        return False
    measure.rebase(node, new)
    reuse.begin(node, new, before)
    return True


def begin_counting(agent: Agent, run: int, pid: int) -> None:
    """The wrapper, which is this process, starts the job now: all counters begin at zero."""
    if agent.node.handles[run].sandbox is None:
        run_start.find_sandbox(agent, run, pid)
    first_decision.submit_job_ad(agent, run)
    if agent.node.runs.state["kernel_slot"][run] >= 0:
        run_start.job_starts(agent, run)
        agent.node.guard(run, "level io", provisional_io.job_starts, agent.levels, run)


def _make_cgroup(agent: Agent, pid: int, claimed: str, scratch: str) -> str | None:
    """A cgroup of our own for the wrapper that calls, if its starter has made none.

    The kernel tells who calls: the wrapper's helper. Its parent is the wrapper, whose parent must be a starter of ours
    with the folder that is claimed.
    """
    node = agent.node
    wrapper = parent_of(pid)
    starter = parent_of(wrapper)
    for execute in node.executes:
        folder = os.path.join(execute, f"dir_{starter}")
        if not (starter > 1 and is_roots(starter)):
            return None
        if (scratch == folder or scratch.startswith(folder + "/")) and os.path.isdir(folder):
            break
    else:
        return None
    slot = claimed.partition("@")[0]
    if not slot.replace("_", "").isalnum():
        return None
    name = f"{execute.replace('/', '_')}_{slot}@{starter}"
    path = node.tree.path(os.path.join(OWN_CGROUP, name))
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o755)
        for process in (wrapper, pid):
            with open(os.path.join(path, "cgroup.procs"), "w", encoding="ascii") as procs:
                procs.write(str(process))
    except OSError as error:
        node.log_once(f"{path}: {error.strerror}: jobs of this machine can't be put into cgroups of their own")
        return None
    slot_events.drain(agent)
    inode = inode_at(path)
    if inode is not None and (run := node.runs.by_cgroup.get(node.cgroup_id(inode))) is not None:
        run_start.find_sandbox(agent, run, starter)
    return os.path.join(OWN_CGROUP, name)
