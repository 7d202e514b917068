"""Recovery, at start and once a minute: cgroups that have no run, and runs that have no cgroup."""

from __future__ import annotations

import contextlib
import os
import re
import time

import numpy as np

from condor_joblens.agent import before_job, measure
from condor_joblens.agent.agent import Agent
from condor_joblens.agent.levels import apply_level, policy_input, profile_level, provisional_io, python_tracing
from condor_joblens.agent.levels.level_state import PolicyInput
from condor_joblens.agent.lifecycle import first_decision, reuse, run_end, run_start, slot_events
from condor_joblens.agent.node import OWN_CGROUP, Handles, Node, inode_at, open_files
from condor_joblens.commands.level import LATE_IO
from condor_joblens.jobs import cgroups
from condor_joblens.jobs.sandbox import JobSandbox
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import text
from condor_joblens.policy import peek_request, trace_request
from condor_joblens.policy.trace_request import ATTRIBUTE
from condor_joblens.tracer import map_layout
from condor_joblens.tracer.cgroup_uses import inode_of, jobs_before

REPLACED = "joblensd was started anew while this job ran: what ended in between is not counted, except CPU"

LASTING = re.compile(
    "counting began|the kernel's table|joblensd was started anew|it was at level off|it began anew"
    f"|{before_job.LATE}|{ATTRIBUTE}: nothing is traced: the job began"
)


def take_over(agent: Agent) -> None:
    """Goes on from an earlier joblensd's table of runs, and from the kernel's counters if they are pinned."""
    node, levels = agent.node, agent.levels
    present = _slots(node)
    measure.recall_failures(node)
    levels.saved_ads.keep_only(int(node.runs.state["cgroup_id"][run]) for run in node.runs.living())
    for run in node.runs.living().tolist():
        cgroup_id = int(node.runs.state["cgroup_id"][run])
        path = node.tree.path(text(node.runs.rows["cgroup"][run]))
        node.handles[run] = Handles(path, open_files(path, cgroup_id))
        levels.inputs[run] = known_input(node, run)
        profile_level.take_over(levels, run)
        node.guard(run, "start of joblensd", _take_over_run, agent, run, cgroup_id)
        node.guard(run, "job ad", _recall_trace_request, agent, run, cgroup_id)
        if cgroup_id in present:
            node.guard(run, "job ad", first_decision.submit_job_ad, agent, run)
            python_tracing.update(levels, run)
            node.update_note(run)
        elif _is_gone(node, run, set(map(inode_of, present))):
            run_end.cgroup_gone(agent, run)
    reconcile(agent)
    _free_lost_slots(node)


def known_input(node: Node, run: int) -> PolicyInput:
    """What is known of a run until the policies decide again: an entry by an expression holds for it meanwhile."""
    state = node.runs.state[run]
    entry = text(state["entry"])
    known = bool(state["named"])
    return PolicyInput(is_submitted=known, is_decided=known, entries=(entry,) if entry else ())


def _recall_trace_request(agent: Agent, run: int, cgroup_id: int) -> None:
    """What its Pythons tell is heard as before. A run without a decision has its ad read again (first_decision.py)."""
    sent, sandbox = agent.levels.inputs[run], agent.node.handles[run].sandbox
    ad = agent.levels.saved_ads.ad(cgroup_id)
    if ad is None and sandbox is not None and sent.is_decided:
        ad = sandbox.job_ad()
    sent.trace, sent.peek = trace_request.understand(ad or b""), peek_request.understand(ad or b"")


def _free_lost_slots(node: Node) -> None:
    """Gives back what the kernel still counts of cgroups that are gone, whose runs had ended before."""
    runs = node.runs.living()
    gone = np.flatnonzero(np.isin(node.tracer.counters["state"], (map_layout.GONE, map_layout.LEFT)))
    for slot in np.setdiff1d(gone, node.runs.state["kernel_slot"][runs]).tolist():
        node.tracer.stop(slot)


def _take_over_run(agent: Agent, run: int, cgroup_id: int) -> None:
    node = agent.node
    row, notes = node.runs.rows[run], node.handles[run].notes
    note = text(row["note"])
    notes.update(notes_of(lasting(note) if agent.levels.saved_ads.has(cgroup_id) else note))
    notes["source"] = node.tracer.note
    row["source"] = node.tracer.source
    starter = int(node.runs.state["starter"][run])
    if starter:
        run_start.open_sandbox(agent, run, _sandbox_again(node, run, starter))
    agent.levels.saved_ads.assign(cgroup_id, policy_input.owner(agent.levels, run))
    _take_over_counters(agent, run, cgroup_id)


def _sandbox_again(node: Node, run: int, starter: int) -> JobSandbox | None:
    """The run's sandbox, whose user is the same as when the run began, whoever has the folder by now."""
    sandbox = JobSandbox.open(node.files, text(node.runs.rows["execute"][run]), starter)
    known = int(node.runs.state["scratch_uid"][run])
    if sandbox is not None and known:
        sandbox.scratch_uid = known - 1
    return sandbox


def lasting(note: str) -> str:
    """The parts of a run's note that stay true; the others are written again when the policies decide again."""
    return "; ".join(part for part in note.split("; ") if LASTING.match(part))


def notes_of(note: str) -> dict[str, str]:
    """The notes by cause of a row's note, of which the row has only the words."""
    parts = note.split("; ")
    late = [part for part in parts if part.startswith(before_job.LATE)]
    return {"before": "; ".join(part for part in parts if part not in late), LATE_IO: "; ".join(late)}


def reconcile(agent: Agent) -> None:
    """Makes the table of runs agree with the cgroups that exist, whatever events were lost."""
    slot_events.drain(agent)
    node = agent.node
    present = _slots(node)
    inodes = set(map(inode_of, present))
    for run in node.runs.living().tolist():
        if _is_gone(node, run, inodes):
            run_end.cgroup_gone(agent, run)
    agent.leftovers.keep_only(node, inodes)
    for cgroup_id, (name, made) in present.items():
        if cgroup_id not in node.runs.by_cgroup:
            _start_late(agent, cgroup_id, name, made)


def _is_gone(node: Node, run: int, present: set[int]) -> bool:
    """Whether the run's cgroup is not among those `present` (inodes), and not where it was either."""
    inode = inode_of(int(node.runs.state["cgroup_id"][run]))
    return inode not in present and inode_at(node.handles[run].path) != inode


def _slot_of(node: Node, run: int, cgroup_id: int) -> int | None:
    """The slot that counts the run, or did so until the next job came into its cgroup."""
    slot, tracer = int(node.runs.state["kernel_slot"][run]), node.tracer
    if tracer.adopted and slot >= 0 and int(tracer.counters["cgroup_id"][slot]) == cgroup_id:
        return slot
    return tracer.slot_of(cgroup_id)


def _take_over_counters(agent: Agent, run: int, cgroup_id: int) -> None:
    node = agent.node
    level = int(node.runs.rows["level_number"][run])
    if level == 0:
        return
    known = _slot_of(node, run, cgroup_id)
    apply_level.set_kernel_slot(agent.levels, run, node.tracer.take(cgroup_id, level) if known is None else known)
    if known is None:
        if node.runs.state["kernel_slot"][run] < 0 and node.cgroup_id(inode_of(cgroup_id)) != cgroup_id:
            return  # the next job is in its cgroup: reconcile ends it
        node.runs.rows["complete"][run] = False
        node.handles[run].notes["replaced"] = REPLACED
        measure.rebase(node, run)
        # the run's losses are counted from 0 again; the losses of pinned programs went on meanwhile
        measure.rebase_losses(node, run)
    provisional_io.take_over(agent.levels, run)
    apply_level.set_level(agent.levels, run, Level(level))


def _start_late(agent: Agent, cgroup_id: int, name: str, made: float) -> None:
    """A slot's cgroup exists since `made` (epoch seconds), and no event told of it."""
    node = agent.node
    if cgroups.parse_slot(name, node.executes) is None:
        return
    path = run_start.path_below_bases(node, name, cgroup_id)
    if path is not None and agent.leftovers.set_aside(node, cgroup_id, path):
        return
    before = reuse.end_earlier(agent, cgroup_id)
    slot = node.tracer.slot_of(cgroup_id)
    is_counted_from_start = slot is not None
    if slot is None:
        slot = node.tracer.take(cgroup_id, int(node.config.default_level))
    maker = 0 if slot is None else int(node.tracer.counters["maker_pid"][slot])
    age = max(0.0, time.time() - made)
    run = run_start.start_guarded(agent, cgroup_id, name, maker, slot, age)
    if run is None:
        if slot is not None:
            node.tracer.stop(slot)
        return
    if jobs_before(cgroup_id):
        node.guard(run, "reuse", reuse.begin, node, run, before)
    if not is_counted_from_start:
        node.tracer.count_connections()  # those that it has already will not be seen to open
        node.runs.rows["complete"][run] = False
        node.handles[run].notes["late"] = (
            f"counting began {age:.0f} s after the job: what had ended by then is not counted, except CPU"
        )
        node.update_note(run)


def _slots(node: Node) -> dict[int, tuple[str, float]]:
    """The cgroups directly below the bases: id -> name, and when it was made (epoch seconds).

    One that goes meanwhile is left out, and so is all of a base that can't be listed.
    """
    found = {}
    for base in [*node.bases, OWN_CGROUP]:
        with contextlib.suppress(OSError), os.scandir(node.tree.path(base)) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        found[node.cgroup_id(status.st_ino)] = (entry.name, status.st_ctime)
    return found
