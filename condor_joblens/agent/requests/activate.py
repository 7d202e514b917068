"""The wrapper of a job calls: the job is about to start, and counting begins with its first instruction."""

from __future__ import annotations

import contextlib
import os

from condor_joblens.agent import measure
from condor_joblens.agent.agent import Agent
from condor_joblens.agent.lifecycle import first_decision, run_end, run_start, slot_events
from condor_joblens.agent.node import OWN_CGROUP, cgroup_id_of
from condor_joblens.agent.requests import level_override
from condor_joblens.jobs import cgroups
from condor_joblens.jobs.activation import Refused, Request
from condor_joblens.jobs.sandbox import is_roots, parent_of
from condor_joblens.model.metrics import text

WRAPPERS_EXECS = 2
"""Programs that can have been started in a slot when its wrapper calls: a shell and the helper. With a third it could
be the job, which calls to begin anew and hide what it did, where its wrapper was not answered."""


def answer(agent: Agent, request: Request) -> dict[str, str]:
    """Grants what is asked over the activation socket. Raises Refused."""
    return level_override.change(agent, request) if request.verb == "level" else activate(agent, request)


def activate(agent: Agent, request: Request) -> dict[str, str]:
    """The wrapper of a job says that the job is about to start. Raises Refused."""
    node = agent.node
    slot_events.drain(agent)
    run = _run_of(agent, request)
    claimed = request.claims.get("slot")
    row, state = node.runs.rows[run : run + 1], node.runs.state[run : run + 1]
    if claimed and claimed.partition("@")[0] != text(row["slot"][0]):
        raise Refused("this process is in another slot")
    sandbox = node.handles[run].sandbox
    if sandbox is not None and request.uid != sandbox.scratch_uid:
        raise Refused("this process is not the job's user's")
    if state["activated"][0] and _next_job(agent, run, request):
        return activate(agent, request)
    slot = int(state["kernel_slot"][0])
    if state["activated"][0] or (slot >= 0 and node.tracer.counters["executed"][slot] > WRAPPERS_EXECS):
        raise Refused("the job has started already")
    state["activated"] = True
    if node.handles[run].sandbox is None:
        run_start.find_sandbox(agent, run, request.pid)
    first_decision.submit_job_ad(agent, run)
    if slot >= 0:
        run_start.job_starts(agent, run)
    return {"level": text(row["level"][0])}


def _next_job(agent: Agent, run: int, request: Request) -> bool:
    """Another starter's job in the same cgroup: HTCondor goes on in one that a job which can't be killed keeps.

    The run of the one before is over, and a new one begins. False where it is the same starter's.
    """
    node = agent.node
    starter = parent_of(parent_of(request.pid))
    execute = text(node.runs.rows["execute"][run])
    if starter == int(node.runs.state["starter"][run]) or not os.path.isdir(f"{execute}/dir_{starter}"):
        return False
    # a dead starter's folder may be there, and its process id the job's own by now
    if not is_roots(starter):
        return False
    path, cgroup_id = node.handles[run].path, int(node.runs.state["cgroup_id"][run])
    run_end.cgroup_gone(agent, run)
    slot = node.tracer.take(cgroup_id, int(node.config.default_level))
    new = run_start.start_run(agent, cgroup_id, os.path.basename(path), starter, slot)
    if new is None:
        return False
    measure.go_on(node, new)
    return True


def _run_of(agent: Agent, request: Request) -> int:
    node = agent.node
    cgroup = node.tree.cgroup_of(request.pid)
    slot = None if cgroup is None else cgroups.slot_cgroup(cgroup, [*node.bases, OWN_CGROUP])
    if slot is None and node.tree.hybrid:
        slot = _make_cgroup(agent, request)
    if slot is None:
        raise Refused("this process is in no slot's cgroup")
    cgroup_id = cgroup_id_of(node.tree.path(slot))
    run = None if cgroup_id is None else node.runs.by_cgroup.get(cgroup_id)
    if run is None:
        raise Refused("this slot is not watched")
    return run


def _make_cgroup(agent: Agent, request: Request) -> str | None:
    """A cgroup of our own for the wrapper that calls, where its starter has made none.

    Who calls is known (the wrapper's helper, its parent the wrapper, whose parent must be a starter of ours with
    the folder that it claims); what it claims is checked against that.
    """
    node = agent.node
    wrapper = parent_of(request.pid)
    starter = parent_of(wrapper)
    for execute in node.executes:
        folder = os.path.join(execute, f"dir_{starter}")
        scratch = request.claims.get("scratch", "")
        if not (starter > 1 and is_roots(starter)):
            return None
        if (scratch == folder or scratch.startswith(folder + "/")) and os.path.isdir(folder):
            break
    else:
        return None
    slot = request.claims.get("slot", "").partition("@")[0]
    if not slot.replace("_", "").isalnum():
        return None
    name = f"{execute.replace('/', '_')}_{slot}@{starter}"
    path = node.tree.path(os.path.join(OWN_CGROUP, name))
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o755)
        for pid in (wrapper, request.pid):
            with open(os.path.join(path, "cgroup.procs"), "w", encoding="ascii") as procs:
                procs.write(str(pid))
    except OSError as error:
        node.log_once(f"{path}: {error.strerror}: jobs of this machine can't be put into cgroups of their own")
        return None
    slot_events.drain(agent)
    cgroup_id = cgroup_id_of(path)
    if cgroup_id is not None and (run := node.runs.by_cgroup.get(cgroup_id)) is not None:
        run_start.find_sandbox(agent, run, starter)
    return os.path.join(OWN_CGROUP, name)
