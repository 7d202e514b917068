"""What joblensd finds when it starts, and puts right once a minute: cgroups it was not told of, runs that are gone."""

from __future__ import annotations

import os
import re
import time

from condor_joblens.agent import measure
from condor_joblens.agent.levels import apply_level, policy_decisions
from condor_joblens.agent.lifecycle import run_end, run_start, slot_events
from condor_joblens.agent.node import OWN_CGROUP, Handles, Node, open_files
from condor_joblens.agent.output import publishing
from condor_joblens.jobs import cgroups
from condor_joblens.jobs.sandbox import Sandbox
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import text

REPLACED = "joblensd was started anew while this job ran: what ended in between is not counted, bar CPU"


LASTING = re.compile("counting began|the kernel's table|joblensd was started anew|it was at level off|level io began")


def take_over(node: Node) -> None:
    """Goes on where an earlier joblensd left off: its table of runs, and the kernel's counters if they are pinned."""
    present = _slots(node)
    node.kept.keep_only(int(node.runs.state["cgroup_id"][run]) for run in node.runs.living())
    for run in node.runs.living().tolist():
        cgroup_id = int(node.runs.state["cgroup_id"][run])
        row = node.runs.rows[run]
        path = node.tree.path(text(row["cgroup"]))
        handles = node.handles[run] = Handles(path, open_files(path, cgroup_id))
        handles.asked = bool(node.runs.state["named"][run])
        note = text(row["note"])
        handles.notes["before"] = lasting(note) if node.kept.has(cgroup_id) else note
        handles.notes["source"] = node.tracer.note
        row["source"] = node.tracer.source
        starter = int(node.runs.state["starter"][run])
        if starter:
            node.enter(run, Sandbox.open(text(row["execute"]), starter))
        _take_over_counters(node, run, cgroup_id)
        if cgroup_id not in present:
            run_end.gone(node, run)
        else:
            policy_decisions.ask(node, run)
            publishing.set_note(node, run)
    reconcile(node)


def lasting(note: str) -> str:
    """What of a run's note stays true; the rest is said again where the policies are asked again."""
    return "; ".join(part for part in note.split("; ") if LASTING.match(part))


def _take_over_counters(node: Node, run: int, cgroup_id: int) -> None:
    state = node.runs.state
    if node.runs.rows["level_number"][run] == 0:
        return
    known = node.tracer.slot_of(cgroup_id)
    slot = node.tracer.take(cgroup_id, int(node.runs.rows["level_number"][run])) if known is None else known
    state["kernel_slot"][run] = -1 if slot is None else slot
    if known is None:
        node.runs.rows["complete"][run] = False
        node.handles[run].notes["replaced"] = REPLACED
        measure.go_on(node, run)
        # its losses are counted from 0 again; those of pinned programs went on meanwhile
        state["lost_before"][run] = node.tracer.lost() - max(0, int(node.runs.rows["lost"][run]))
    apply_level.set_level(node, run, Level(int(node.runs.rows["level_number"][run])))


def reconcile(node: Node) -> None:
    """Makes the table of runs agree with the cgroups that are there, whatever events were lost."""
    slot_events.take(node)
    present = _slots(node)
    for run in node.runs.living().tolist():
        if int(node.runs.state["cgroup_id"][run]) not in present:
            run_end.gone(node, run)
    for cgroup_id, (name, born) in present.items():
        if cgroup_id not in node.runs.by_cgroup:
            _begin_late(node, cgroup_id, name, born)


def _begin_late(node: Node, cgroup_id: int, name: str, born: float) -> None:
    if cgroups.parse_slot(name, node.executes) is None:
        return
    slot = node.tracer.slot_of(cgroup_id)
    counted_from_birth = slot is not None
    if slot is None:
        slot = node.tracer.take(cgroup_id, int(node.config.default_level))
    maker = 0 if slot is None else int(node.tracer.counters["maker_pid"][slot])
    run = run_start.begin(node, cgroup_id, name, maker, slot)
    if run is None:
        if slot is not None:
            node.tracer.stop(slot)
        return
    age = max(0.0, time.time() - born)
    node.runs.rows["start_time"][run] = int(born)
    node.runs.state["began"][run] = time.monotonic() - age
    if not counted_from_birth:
        node.tracer.count_connections()  # those that it has already will not be seen to open
        node.runs.rows["complete"][run] = False
        node.handles[run].notes["late"] = (
            f"counting began {age:.0f} s after the job: what had ended by then is not counted, bar CPU"
        )
        publishing.set_note(node, run)


def _slots(node: Node) -> dict[int, tuple[str, float]]:
    """The cgroups directly below the bases: id -> name and time of birth (epoch seconds)."""
    found = {}
    for base in [*node.bases, OWN_CGROUP]:
        try:
            with os.scandir(node.tree.path(base)) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        found[status.st_ino] = (entry.name, status.st_ctime)
        except OSError:
            continue
    return found
