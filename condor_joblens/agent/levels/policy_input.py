"""What the policies see of a run: its ad, the facts of its slot, and its numbers."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence

import numpy as np

from condor_joblens.agent.levels.level_state import Levels, PolicyInput
from condor_joblens.jobs.sandbox import job_uid
from condor_joblens.model.metrics import METRICS, ROW, text
from condor_joblens.policy.policy_answers import ActivationRequest
from condor_joblens.policy.slot_attributes import Fact

IDLE_CORES = 0.01
"""A job that uses less is idle."""

FACTS = {
    "IdleSeconds": "how long the job has used less than 1 % of a core, while it was not suspended",
    "RunSeconds": "time since the run began",
    "LevelSeconds": "time since its level last changed",
}
"""What a policy sees of a run besides its metrics."""

PATHS = [*(metric.path for metric in METRICS), *FACTS]
_SINCE = ("idle_since", "began", "level_changed_at")  # columns of the state: FACTS are the seconds since then
_COLUMNS = [metric.column for metric in METRICS]
_PLACES = [(ROW.names or ()).index(column) for column in _COLUMNS]


def add_run(levels: Levels, run: int) -> None:
    """A run starts: the policies have been sent nothing about it yet."""
    levels.inputs[run] = PolicyInput()
    levels.node.runs.state["idle_since"][run] = time.monotonic()


def request(levels: Levels, run: int, ad: bytes, usage: dict[str, float] | None) -> ActivationRequest:
    """The request for a decision about the run; `usage` is None at its start."""
    node = levels.node
    return ActivationRequest(
        ad=ad,
        slot={**slot_attributes(levels, run), "Name": text(node.runs.rows["slot"][run])},
        default=node.config.default_level,
        cap=node.config.max_level,
        node={"Name": platform.node(), "Cpus": os.cpu_count() or 1, "Kernel": platform.release()},
        usage=usage,
        now=time.time(),
        started=float(node.runs.rows["start_time"][run]),
        state=levels.saved_ads.memory(int(node.runs.state["cgroup_id"][run])),
        keep=True,
        expressions=levels.entries.expressions(node.config),
        owner=owner(levels, run),
        is_user_known=job_uid(node.handles[run].sandbox) is not None,
    )


def owner(levels: Levels, run: int) -> str:
    """Whose share of the policy child and of the saved ads the run takes: its user's, or its slot's if that is nobody.

    The kernel knows the user, and no ad has to be parsed for it.
    """
    uid = job_uid(levels.node.handles[run].sandbox)
    return text(levels.node.runs.rows["slot"][run]) if uid is None else f"user {uid}"


def slot_attributes(levels: Levels, run: int) -> dict[str, Fact]:
    """The facts in the slot's ad: the startd's, or the starter's until the startd has written to the job's folder."""
    seen, sandbox = levels.inputs[run], levels.node.handles[run].sandbox
    if seen.slot_attributes is None and sandbox is not None:
        ad = sandbox.update_ad() or sandbox.machine_ad() or b""
        seen.slot_attributes = levels.slot_attributes.facts(ad)
    return {**(seen.slot_attributes or {}), **seen.startd_facts}


def read_slot_ad(levels: Levels, run: int) -> bool:
    """The startd has written the slot's ad again: whether it tells the policies anything new."""
    seen, sandbox = levels.inputs[run], levels.node.handles[run].sandbox
    if sandbox is None:
        return False
    ad = sandbox.update_ad() or b""
    facts, startd_lines = (
        levels.slot_attributes.facts(ad),
        b"" if sandbox.is_users else levels.slot_attributes.of_job(ad),
    )
    if facts == seen.slot_attributes and startd_lines == seen.startd_lines:
        return False
    cgroup_id = int(levels.node.runs.state["cgroup_id"][run])
    if startd_lines != seen.startd_lines and (saved := levels.saved_ads.ad(cgroup_id)) is not None:
        # of two lines with the same name the later one counts
        levels.saved_ads.keep(cgroup_id, saved + b"\n" + startd_lines, owner(levels, run))
    seen.slot_attributes, seen.startd_lines = facts, startd_lines
    return True


def numbers(levels: Levels, runs: np.ndarray, now: float) -> np.ndarray:
    """The numbers of `runs` (n,): float64 of shape (n, len(PATHS)), NaN if absent."""
    return some_numbers(levels, runs, now, range(len(PATHS)))


def some_numbers(levels: Levels, runs: np.ndarray, now: float, places: Sequence[int]) -> np.ndarray:
    """The same of those at these `places` of PATHS alone: shape (n, len(places))."""
    rows, state = levels.node.runs.rows, levels.node.runs.state
    found: np.ndarray = np.empty((len(places), len(runs)))
    for index, place in enumerate(places):
        if place < len(_COLUMNS):
            found[index] = rows[_COLUMNS[place]][runs]
            found[index][found[index] < 0] = np.nan
        else:
            found[index] = np.maximum(now - state[_SINCE[place - len(_COLUMNS)]][runs], 0.0)
    by_run: np.ndarray = np.ascontiguousarray(found.T)
    return by_run


def numbers_of_one(levels: Levels, run: int, now: float) -> dict[str, float]:
    """The same as `numbers` for one run, by path, without what is absent; for one run this is faster."""
    row, state = levels.node.runs.rows[run].tolist(), levels.node.runs.state
    values = [row[place] for place in _PLACES] + [now - float(state[column][run]) for column in _SINCE]
    return {path: value for path, value in zip(PATHS, values) if value >= 0}  # false for NaN


def update_idle(levels: Levels, now: float) -> None:
    """Records since when each run has been idle, and for how long; a run without a measured rate is not idle."""
    state, rows = levels.node.runs.state, levels.node.runs.rows
    runs = levels.node.runs.living()
    cores = rows["cpu_recent_cores"][runs]
    state["idle_since"][runs[~(cores < IDLE_CORES)]] = now
    rows["cpu_idle_seconds"][runs] = np.where(np.isnan(cores), np.nan, now - state["idle_since"][runs])


def update_suspended(levels: Levels, runs: np.ndarray, now: float) -> None:
    """A suspended job is frozen, not idle."""
    state = levels.node.runs.state
    for run in runs[state["idle_since"][runs] < now].tolist():
        if _is_suspended(levels, run):
            state["idle_since"][run] = now


def _is_suspended(levels: Levels, run: int) -> bool:
    if slot_attributes(levels, run).get("Activity") == "Suspended":
        return True
    try:
        path = os.path.join(levels.node.handles[run].path, "cgroup.events")
        events = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return b"frozen 1" in os.read(events, 4096)
    except OSError:
        return False
    finally:
        os.close(events)
