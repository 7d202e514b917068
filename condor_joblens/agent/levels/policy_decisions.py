"""What the policies have decided about each run, and when a new decision may replace it."""

from __future__ import annotations

import time

import numpy as np

from condor_joblens.agent.levels import level_arbiter, periods, policy_failures
from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.model.metrics import cut, cut_words
from condor_joblens.policy import trace_request
from condor_joblens.policy.policy_answers import Decision, PolicyAnswer, PolicyFailure

NO_SINK = "none"


def record_first(levels: Levels, run: int, outcome: PolicyAnswer) -> None:
    """The first outcome for a run; after a failure it has the default level, and root alone can give it more."""
    levels.node.handles[run].notes["policy"] = outcome.note
    if isinstance(outcome, Decision):
        levels.inputs[run].entries = outcome.entries
        _record(levels, run, outcome)
    else:
        policy_failures.record(levels, run)
        _cap_at_default(levels, run)


def record(levels: Levels, run: int, outcome: PolicyAnswer) -> bool:
    """A later outcome for a run; whether it can change a level."""
    node = levels.node
    if isinstance(outcome, PolicyFailure):
        in_a_row = policy_failures.record(levels, run)
        is_changed = in_a_row >= policy_failures.PATIENCE and _cap_at_default(levels, run)
        end = "it gets no more than the default level" if is_changed else "its level stays as it is"
        node.log(f"{node.describe(run)}: {outcome.note.rpartition(':')[0]}: {end}")
        level_arbiter.explain(levels, run)
        return is_changed
    is_anothers = levels.inputs[run].entries != outcome.entries
    levels.inputs[run].entries = outcome.entries
    if _must_wait(levels, run, outcome):
        levels.round.held[run] = outcome
        return is_anothers
    levels.round.held.pop(run, None)
    policy_failures.forget(levels, run)
    state = node.runs.state[run]
    before, quota = (state["policy_level"], state["policy_cap"], state["policy_priority"]), _quota(state)
    _record(levels, run, outcome)
    node.handles[run].notes["policy"] = outcome.note
    level_arbiter.explain(levels, run)
    after = outcome.level, outcome.cap, outcome.priority
    return bool(is_anothers or before != after or quota != _quota(node.runs.state[run]))


def _quota(state: np.void) -> tuple[int, float, float]:
    return int(state["quota"]), float(state["quota_jobs"]), float(state["quota_share"])


def release_held(levels: Levels) -> None:
    """Records the decisions that had to wait, if they no longer have to."""
    for run, decision in list(levels.round.held.items()):
        if not _must_wait(levels, run, decision):
            record(levels, run, decision)


def expire_entries(levels: Levels, runs: np.ndarray) -> np.ndarray:
    """Those of `runs` (n,) of which a temporary entry has ended since the last call: to be decided about again."""
    state = levels.node.runs.state
    until = state["policy_until"][runs]
    ended: np.ndarray = runs[(until > 0) & (until <= time.time())]
    state["policy_until"][ended] = -1
    return ended


def _must_wait(levels: Levels, run: int, decision: Decision) -> bool:
    """Whether the level of the last decision must stay a little longer, so that no run goes up and down."""
    state = levels.node.runs.state[run]
    before, held = (
        state["policy_level"],
        time.monotonic() - state["policy_decided_at"] >= levels.node.config.policy_hold,
    )
    at_once = state["policy_until"] < 0 or decision.cap < before or bool(state["policy_rule"] == b"")
    return bool(decision.level != before and not held and not at_once)


def _cap_at_default(levels: Levels, run: int) -> bool:
    """Nobody gets more by a failure than without policies; whether that changes anything."""
    state, cap = levels.node.runs.state[run], level_arbiter.undecided_level(levels.node.config)
    before = int(state["policy_level"]), int(state["policy_cap"])
    state["policy_level"] = min(before[0], cap) if state["named"] else cap
    state["policy_cap"] = cap
    return before != (int(state["policy_level"]), int(cap))


def _record(levels: Levels, run: int, decision: Decision) -> None:
    node = levels.node
    row, state = node.runs.rows[run : run + 1], node.runs.state[run : run + 1]
    if not state["named"][0] or decision.level != state["policy_level"][0]:
        state["policy_decided_at"] = time.monotonic()
    state["policy_level"], state["policy_cap"] = decision.level, decision.cap
    state["policy_priority"], state["policy_until"] = decision.priority, decision.until or 0
    quota = decision.quota
    state["quota"] = 0 if quota is None else quota.key
    state["quota_jobs"] = -1 if quota is None or quota.jobs is None else quota.jobs
    state["quota_share"] = -1 if quota is None or quota.share is None else quota.share
    state["policy_rule"], state["policy_reason"] = cut(decision.policy, "policy"), cut_words(decision.reason, "reason")
    state["requested_period"] = decision.period or state["job_period"][0]
    periods.set_periods(levels, np.array([run]))
    state["may_report"] = decision.report is not False
    row["requested"] = cut(decision.written, "requested")
    row["sinks"] = b"" if decision.sinks is None else cut(",".join(decision.sinks) or NO_SINK, "sinks")
    levels.saved_ads.remember(int(state["cgroup_id"][0]), decision.state)
    _want_traced(levels, run, decision)
    for error in map(str, decision.errors):
        levels.round.log_once(error)


def _want_traced(levels: Levels, run: int, decision: Decision) -> None:
    """The functions that the policies want traced; what of it can't be is told to who wrote them."""
    asked = trace_request.of_text(decision.traced)
    if run in levels.inputs:
        levels.inputs[run].policy_trace = asked
    if asked.refused:
        levels.round.log_once(f"policies: trace: {asked.refused}")
    elif asked.python_raises:
        levels.round.log_once("policies: trace: Python is traced only in jobs that ask for it themselves")


def update_periods(levels: Levels) -> None:
    """condor_reconfig: JOBLENS_PERIOD may have changed, which is the shortest period of all runs."""
    periods.set_periods(levels, levels.node.runs.living())
