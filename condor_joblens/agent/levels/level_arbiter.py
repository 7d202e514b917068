"""Who has the last word on a run's level. The order of all sources is here, and nowhere else.

    1. JOBLENS_MAX_LEVEL             no level is above it
    2. root, by hand                 up or down, for a time
    3. the job's owner, by hand      up, and not above the policies' cap, for a time
    4. the policies                  they know what the job requests; policy/precedence.py combines their rules
    5. JOBLENS_DEFAULT_LEVEL         until the policies have decided; if they can't, nobody but root gets more

Whatever owner and policies say, a run whose job ad the startd has not confirmed gets no more than
JOBLENS_DEFAULT_LEVEL (agent/lifecycle/startd_truth.py).
After that the node's budgets may lower the level (agent/levels/budgets.py).
"""

from __future__ import annotations

import time

import numpy as np

from condor_joblens.agent.levels import apply_level
from condor_joblens.agent.levels.budgets import JobLimits, Over, Quotas, within, within_quotas
from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.common.config import Config
from condor_joblens.jobs.run_state import AdTrust
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import cut, text

BY_HAND = "by hand"
"""The `policy` of a level that a person gave."""

LOWERED = "level lowered by a budget of the node"
"""How the note begins that a budget causes."""

CHANGES_AT_ONCE = 100
"""Greatest number of levels that change in one round; the others follow in the next."""


def precedence(
    state: np.ndarray, runs: np.ndarray, cap: Level, undecided: Level, now: float
) -> tuple[np.ndarray, np.ndarray]:
    """The level of each of `runs` (n,) by the order above, before budgets, and whether a person gave it.

    `cap` is JOBLENS_MAX_LEVEL, `undecided` JOBLENS_DEFAULT_LEVEL within it, `now` CLOCK_MONOTONIC. Both results have
    shape (n,).
    """
    bound = np.where(state["ad_trust"][runs] == AdTrust.SETTLED, cap, undecided)
    policies = np.minimum(state["policy_level"][runs], bound)
    override = np.minimum(state["override_level"][runs], cap)
    owners = np.minimum(override, np.minimum(state["policy_cap"][runs], bound))
    by_root = state["override_by_root"][runs]
    is_given = state["override_until"][runs] > now
    by_hand = is_given & (by_root | (owners > policies))
    return np.where(by_hand, np.where(by_root, override, owners), policies), by_hand


def refusal(levels: Levels, run: int, level: Level | None, by_root: bool) -> str:
    """Why root (or, if not `by_root`, the job's owner) may not give the run this level by hand; empty: it is allowed.

    `level` None: the override that is in force is to be taken back.
    """
    state, cap = levels.node.runs.state[run], levels.node.config.max_level
    if level is not None and level > cap:
        return f"{level.word} is above this site's JOBLENS_MAX_LEVEL = {cap.word}"
    if by_root:
        return ""
    if state["override_by_root"] and state["override_until"] > time.monotonic():
        return f"root has set this job's level, {text(state['override_reason'])}: only root may change it"
    undecided = undecided_level(levels.node.config)
    if level is not None and level > undecided and state["ad_trust"] != AdTrust.SETTLED:
        return f"the startd has not confirmed this job's ad: only root may give it more than {undecided.word}"
    if level is not None and level > state["policy_cap"]:
        return f"this site's policies allow this job no more than {Level(int(state['policy_cap'])).word}"
    if level is not None and level < state["policy_level"]:
        decided = Level(int(state["policy_level"])).word
        return f"this site's policies watch this job at {decided}: only root may go below"
    return ""


def enter(levels: Levels, run: int) -> None:
    """The policies have decided about the run for the first time: until now it had the default level."""
    levels.node.runs.state["target_level"][run] = levels.node.runs.rows["level_number"][run]


def arbitrate(levels: Levels, starting: int | None = None) -> None:
    """Gives every run its level by the order above and the budgets. The caller logs the level of the `starting` run."""
    node = levels.node
    rows, state, now = node.runs.rows, node.runs.state, time.monotonic()
    runs = node.runs.living()
    # one that has ended before any decision keeps its level, and with it its numbers
    is_undecided = (
        rows["final"][runs] & (state["policy_level"][runs] == Level.OFF) & (state["policy_rule"][runs] == b"")
    )
    runs = runs[state["named"][runs] & ~is_undecided]
    if not len(runs):
        return
    wanted, by_hand = precedence(state, runs, node.config.max_level, undecided_level(node.config), now)
    # a level that root gave is the last that a budget lowers
    by_root = by_hand & state["override_by_root"][runs]
    priority = np.where(by_root, np.inf, state["policy_priority"][runs])
    began = state["began"][runs]
    # nor does a quota of the policies, which root is above
    keys = np.where(by_root, 0, state["quota"][runs])
    quotas = Quotas(keys, state["quota_jobs"][runs], state["quota_share"][runs])
    wanted, over_quota = within_quotas(wanted, priority, began, quotas)
    wanted, over = within(wanted, priority, began, job_limits(node.config), levels.own_cpu.steps)
    over = np.where(over == Over.NONE, over_quota, over)
    has, was_over = state["target_level"][runs], state["budget_exceeded"][runs]
    # a run that a budget lowered comes back, but no sooner than JOBLENS_POLICY_HOLD later
    waits = (wanted > has) & (was_over != Over.NONE) & (now - state["level_changed_at"][runs] < node.config.policy_hold)
    wanted, over = np.where(waits, has, wanted), np.where(waits, was_over, over)
    changed = np.flatnonzero((wanted != has) | (over != was_over) | (by_hand != state["is_overridden"][runs]))
    # runs that go down make room for runs that go up
    changed = changed[np.argsort(wanted[changed] - rows["level_number"][runs[changed]], kind="stable")]
    for index in changed[:CHANGES_AT_ONCE].tolist():
        run = int(runs[index])
        state["budget_exceeded"][run], state["is_overridden"][run] = over[index], by_hand[index]
        node.guard(run, "level", _change, levels, run, Level(int(wanted[index])), run != starting)


def _change(levels: Levels, run: int, level: Level, is_logged: bool) -> None:
    node = levels.node
    rows = node.runs.rows
    before = Level(int(rows["level_number"][run]))
    node.runs.state["target_level"][run] = level
    explain(levels, run)
    if level is not before:
        apply_level.set_level(levels, run, level)
        node.update_note(run)
    levels.output.job_ads.publish_soon(run)
    if level is not before and is_logged:
        name, why = node.describe(run), reason(levels, run)
        if rows["level_number"][run] == level:
            node.log(f"{name} goes from {before.word} to {level.word}{why}")
        else:
            node.log_once(f"{name} can't have level {level.word}{why}; {text(rows['note'][run])}")


def retry_unavailable(levels: Levels) -> None:
    """Runs whose level could not be applied (the kernel had no room for them) are tried again."""
    runs = levels.node.runs.living()
    levels.node.runs.state["target_level"][runs] = levels.node.runs.rows["level_number"][runs]


def explain(levels: Levels, run: int) -> None:
    """Writes into the run's row who decided its level, why, and for how long."""
    node = levels.node
    row, state = node.runs.rows[run : run + 1], node.runs.state[run]
    if state["is_overridden"]:
        row["policy"], row["reason"] = cut(BY_HAND, "policy"), state["override_reason"]
    else:
        row["policy"], row["reason"] = state["policy_rule"], state["policy_reason"]
    notes = node.handles[run].notes
    notes["budget"] = _budget_note(levels, run)
    is_temporary = state["policy_until"] > 0 and not state["is_overridden"]
    notes["until"] = f"{text(row['level'][0])} until {clock(float(state['policy_until']))}" if is_temporary else ""
    node.update_note(run)


def reason(levels: Levels, run: int) -> str:
    """Who decided the run's level and why, for the end of a line of the log; empty if nobody did."""
    row = levels.node.runs.rows[run]
    parts = [text(row["policy"]), text(row["reason"]), _budget_note(levels, run)]
    words = ", ".join(part for part in parts if part)
    return f": {words}" if words else ""


def _budget_note(levels: Levels, run: int) -> str:
    over, config = Over(int(levels.node.runs.state["budget_exceeded"][run])), levels.node.config
    if over is Over.NONE:
        return ""
    if over is Over.QUOTA:
        return f"{LOWERED}: {_quota_in_words(levels.node.runs.state[run])}"
    if over is Over.CPU:
        return f"{LOWERED}: joblensd uses more than JOBLENS_MAX_CPU = {config.max_cpu:g} cores"
    limit = getattr(job_limits(config), Level(over + 1).word)
    return f"{LOWERED}: JOBLENS_MAX_{over.name} = {limit}, and more important jobs have that level"


def _quota_in_words(state: np.void) -> str:
    """`a policy's quota of 4 jobs (10 % of the node's) is used by more important ones`."""
    jobs, share = float(state["quota_jobs"]), float(state["quota_share"])
    parts = [f"{jobs:.0f} {'job' if jobs == 1 else 'jobs'}"] if jobs >= 0 else []
    parts += [f"{100 * share:g} % of the node's jobs"] if share >= 0 else []
    return f"a policy's quota of {' and '.join(parts)} is used by more important ones"


def clock(epoch_seconds: float) -> str:
    """The local time of day, for people: 14:05."""
    return time.strftime("%H:%M", time.localtime(epoch_seconds))


def undecided_level(config: Config) -> Level:
    """The level of a run about which the policies can't decide, and the highest that its owner can give it."""
    return min(config.default_level, config.max_level)


def job_limits(config: Config) -> JobLimits:
    """The site's limits on jobs a level."""
    return JobLimits(config.max_jobs_io, config.max_jobs_profile, config.max_jobs_trace)


def adapt_to_own_cpu(levels: Levels) -> None:
    """Sets how many steps down joblensd's own use of CPU calls for."""
    node = levels.node
    runs = node.runs.living()
    runs = runs[node.runs.state["named"][runs]]
    config = node.config
    wanted, _ = precedence(node.runs.state, runs, config.max_level, undecided_level(config), time.monotonic())
    own, budget, before = levels.own_cpu, node.config.max_cpu, levels.own_cpu.steps
    own.adapt(budget, int(np.maximum(wanted - Level.BASIC, 0).sum()))
    uses = f"joblensd uses {own.cores:.2g} cores, JOBLENS_MAX_CPU is {budget:g}"
    if own.steps != before:
        node.log(f"{uses}: {own.steps} steps down from levels above basic, before {before}")
    elif own.cores > budget and not own.steps:
        node.log_once(f"{uses}, and no job has a level above basic: raise JOBLENS_PERIOD or JOBLENS_MAX_CPU")
