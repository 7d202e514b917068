"""Who has the last word on a run's level. The order of all sources is here, and nowhere else.

    1. JOBLENS_MAX_LEVEL, above which nobody gets
    2. root, by hand: up or down, for a time
    3. the job's owner, by hand: up, and not above a policy's cap, for a time
    4. the policies, which have heard what the job asks for

What these want the node's budgets then may bring down (agent/levels/budgets.py).
"""

from __future__ import annotations

import time

import numpy as np

from condor_joblens.agent.levels import apply_level
from condor_joblens.agent.levels.budgets import JobLimits, Over, within
from condor_joblens.agent.node import Node
from condor_joblens.agent.output import publishing
from condor_joblens.common.config import Config
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import cut, text

BY_HAND = "by hand"
"""The `policy` of a level that a person gave."""

CHANGES_AT_ONCE = 100
"""Greatest number of levels that change in one go; the others follow a second later."""


def wanted(state: np.ndarray, runs: np.ndarray, cap: Level, now: float) -> tuple[np.ndarray, np.ndarray]:
    """The level that each of `runs` (n,) is to have by the order above, and whether it is one given by hand."""
    policies = np.minimum(state["decided_level"][runs], cap)
    hand = np.minimum(state["hand_level"][runs], cap)
    owners = np.minimum(hand, state["decided_cap"][runs])
    roots = state["hand_is_roots"][runs]
    given = state["hand_until"][runs] > now
    by_hand = given & (roots | (owners > policies))
    return np.where(by_hand, np.where(roots, hand, owners), policies), by_hand


def settle(node: Node, new: int | None = None) -> None:
    """Every run gets the level that is due to it now. Of the `new` one somebody else says so in the log."""
    rows, state, now = node.runs.rows, node.runs.state, time.monotonic()
    runs = node.runs.living()
    runs = runs[state["named"][runs]]
    if not len(runs):
        return
    levels, by_hand = wanted(state, runs, node.config.max_level, now)
    # root's own word is the last to give way
    priority = np.where(by_hand & state["hand_is_roots"][runs], np.inf, state["decided_priority"][runs])
    levels, over = within(levels, priority, state["began"][runs], job_limits(node.config), node.own_cpu.steps)
    has, was_over = state["aimed"][runs], state["over"][runs]
    # who stepped down comes back, but not at every breath
    waits = (levels > has) & (was_over != Over.NONE) & (now - state["changed"][runs] < node.config.policy_hold)
    levels, over = np.where(waits, has, levels), np.where(waits, was_over, over)
    changed = np.flatnonzero((levels != has) | (over != was_over) | (by_hand != state["by_hand"][runs]))
    # who goes down makes room for who goes up
    changed = changed[np.argsort(levels[changed] - rows["level_number"][runs[changed]], kind="stable")]
    for index in changed[:CHANGES_AT_ONCE].tolist():
        run = int(runs[index])
        state["over"][run], state["by_hand"][run] = over[index], by_hand[index]
        _change(node, run, Level(int(levels[index])), run != new)


def _change(node: Node, run: int, level: Level, is_news: bool) -> None:
    rows, state = node.runs.rows, node.runs.state
    before = Level(int(rows["level_number"][run]))
    state["aimed"][run] = level
    explain(node, run)
    if level is not before:
        apply_level.set_level(node, run, level)
        publishing.set_note(node, run)
    state["next_ad"][run] = 0
    if rows["level_number"][run] != before:
        state["changed"][run] = time.monotonic()
    if level is not before and is_news:
        name, why = publishing.describe(node, run), because(node, run)
        if rows["level_number"][run] == level:
            node.log(f"{name} goes from {before.word} to {level.word}{why}")
        else:
            node.say_once(f"{name} was to be watched at {level.word}{why}; {text(rows['note'][run])}")


def try_again(node: Node) -> None:
    """A run that could not have its level (the kernel had no room for it) may have it now."""
    runs = node.runs.living()
    node.runs.state["aimed"][runs] = node.runs.rows["level_number"][runs]


def explain(node: Node, run: int) -> None:
    """Says in the run's row who decided its level, why, and for how long."""
    row, state = node.runs.rows[run : run + 1], node.runs.state[run]
    if state["by_hand"]:
        row["policy"], row["reason"] = cut(BY_HAND, "policy"), state["hand_reason"]
    else:
        row["policy"], row["reason"] = state["decided_policy"], state["decided_reason"]
    notes = node.handles[run].notes
    notes["budget"] = _stepped_down(node, run)
    is_temporary = state["decided_until"] > 0 and not state["by_hand"]
    notes["until"] = f"{text(row['level'][0])} until {clock(float(state['decided_until']))}" if is_temporary else ""
    publishing.set_note(node, run)


def because(node: Node, run: int) -> str:
    """Who decided the run's level and why, for the end of a line of the log; empty where nobody did."""
    row = node.runs.rows[run]
    words = [text(row["policy"]), text(row["reason"]), _stepped_down(node, run)]
    said = ", ".join(word for word in words if word)
    return f": {said}" if said else ""


def _stepped_down(node: Node, run: int) -> str:
    over, config = Over(int(node.runs.state["over"][run])), node.config
    if over is Over.NONE:
        return ""
    less = "watched less closely than it was to be"
    if over is Over.CPU:
        return f"{less}: joblensd uses more than JOBLENS_MAX_CPU = {config.max_cpu:g} cores"
    limit = getattr(job_limits(config), Level(over + 1).word)
    return f"{less}: JOBLENS_MAX_{over.name} = {limit} jobs are watched so closely already"


def clock(time_: float) -> str:
    """A time of day for people, from epoch seconds."""
    return time.strftime("%H:%M", time.localtime(time_))


def job_limits(config: Config) -> JobLimits:
    """The site's limits on jobs a level."""
    return JobLimits(config.max_jobs_io, config.max_jobs_profile, config.max_jobs_trace)


def mind_own_cpu(node: Node) -> None:
    """As many steps down as joblensd's own use of CPU calls for."""
    runs = node.runs.living()
    runs = runs[node.runs.state["named"][runs]]
    levels, _ = wanted(node.runs.state, runs, node.config.max_level, time.monotonic())
    own, budget, before = node.own_cpu, node.config.max_cpu, node.own_cpu.steps
    own.adapt(budget, int(np.maximum(levels - Level.BASIC, 0).sum()))
    uses = f"joblensd uses {own.cores:.2g} cores, JOBLENS_MAX_CPU is {budget:g}"
    if own.steps != before:
        node.log(f"{uses}: {own.steps} steps down from closer levels instead of {before}")
    elif own.cores > budget and not own.steps:
        node.say_once(f"{uses}, and no job is watched closer than basic: raise JOBLENS_PERIOD or JOBLENS_MAX_CPU")
