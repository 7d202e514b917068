"""The birth of a run: a slot's cgroup is there, and its starter's folder is looked for."""

from __future__ import annotations

import contextlib
import itertools
import os
import time

import numpy as np

from condor_joblens.agent.levels import apply_level, policy_decisions
from condor_joblens.agent.lifecycle import run_end
from condor_joblens.agent.node import OWN_CGROUP, Handles, Node, cgroup_id_of, open_files
from condor_joblens.agent.output import emit_events
from condor_joblens.jobs import cgroups
from condor_joblens.jobs.sandbox import Sandbox, is_roots, parent_of
from condor_joblens.model.metrics import cut, text
from condor_joblens.tracer import map_layout

MAX_ANCESTORS = 16
"""How far above a process its starter is looked for."""

MAX_CGROUPS = 100
"""In how many of a slot's cgroups a process is looked for."""


def born(node: Node, cgroup_id: int, event: np.void) -> None:
    if cgroup_id in node.runs.by_cgroup:
        return  # a look for cgroups has found it before, and its slot is that run's
    name = text(bytes(event["name"]))
    slot = int(event["slot"])
    run = begin(node, cgroup_id, name, int(event["pid"]), None if slot == map_layout.NO_SLOT else slot)
    # a look for cgroups can have given it back already, and then it may be another job's
    if run is None and slot != map_layout.NO_SLOT and node.tracer.slot_of(cgroup_id) == slot:
        node.tracer.stop(slot)


def begin(node: Node, cgroup_id: int, name: str, maker: int, kernel_slot: int | None) -> int | None:
    """A slot's cgroup `name` is there: its run, or None where the cgroup isn't a slot's or is known.

    `maker` is the process that made it (0: unknown), `kernel_slot` its index in the tracer (None: not counted).
    """
    slot = cgroups.parse_slot(name, node.executes)
    path = _path_below_bases(node, name, cgroup_id)
    if slot is None or path is None or cgroup_id in node.runs.by_cgroup or _is_occupied(node, slot):
        return None
    run = node.runs.add(cgroup_id)
    if run is None:
        node.say_once(f"more than JOBLENS_MAX_JOBS = {node.runs.capacity} jobs: the further ones are not watched")
        return None
    now = time.monotonic()
    row, state = node.runs.rows[run : run + 1], node.runs.state[run : run + 1]
    row["run_number"] = emit_events.next_run_number(node)
    row["slot"], row["execute"] = cut(slot.name, "slot"), cut(slot.execute, "execute")
    row["cgroup"] = cut(os.path.relpath(path, node.tree.mount), "cgroup")
    row["source"] = node.tracer.source
    row["period_seconds"] = node.config.period
    row["start_time"] = row["update_time"] = int(time.time())
    row["complete"] = kernel_slot is not None and node.tracer.is_exact
    state["kernel_slot"] = -1 if kernel_slot is None else kernel_slot
    state["began"] = state["next_slow"] = state["idle_since"] = state["changed"] = now
    state["lost_before"] = node.tracer.lost()
    state["made_here"] = os.path.dirname(path) == node.tree.path(OWN_CGROUP)
    handles = node.handles[run] = Handles(path, open_files(path, cgroup_id), notes={"source": node.tracer.note})
    if kernel_slot is None:
        handles.notes["slots"] = "the kernel's table was full: only CPU and pressure are counted (JOBLENS_MAX_JOBS)"
    apply_level.set_level(node, run, node.config.default_level)
    find_sandbox(node, run, maker)
    policy_decisions.ask(node, run)
    return run


def _is_occupied(node: Node, slot: cgroups.Slot) -> bool:
    """Whether the slot's job lives, so that this cgroup is not its next one's: condor_ssh_to_job makes such."""
    runs, rows = node.runs.living(), node.runs.rows
    same = (rows["slot"][runs] == cut(slot.name, "slot")) & (rows["execute"][runs] == cut(slot.execute, "execute"))
    for run in runs[same].tolist():
        if cgroup_id_of(node.handles[run].path) == int(node.runs.state["cgroup_id"][run]):
            return True
        run_end.gone(node, run)
    return False


def _path_below_bases(node: Node, name: str, cgroup_id: int) -> str | None:
    for base in [*node.bases, OWN_CGROUP]:
        path = node.tree.path(os.path.join(base, name))
        if cgroup_id_of(path) == cgroup_id:
            return path
    return None


def find_sandbox(node: Node, run: int, maker: int) -> None:
    """Opens the starter's folder. The cgroup's maker is the starter, or its child (before HTCondor 24.8).

    Where the maker is not known, the first process of the slot is a descendant of its starter.
    """
    known = text(node.runs.rows["execute"][run])
    process = maker or _first_process(node.handles[run].path)
    for _ in range(MAX_ANCESTORS):
        if process <= 1:
            return
        for execute in ([known] if known else node.executes) if is_roots(process) else []:
            sandbox = Sandbox.open(execute, process)
            if sandbox is not None:
                node.enter(run, sandbox)
                node.runs.state["starter"][run] = process
                return
        process = parent_of(process)


def _first_process(path: str) -> int:
    # a job can make as many cgroups of its own as it likes
    for folder, _, files in itertools.islice(os.walk(path), MAX_CGROUPS):
        if "cgroup.procs" in files:
            with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, "cgroup.procs")) as procs:
                return int(procs.readline())
    return 0
