"""Who has the last word on a run's level: what all have said (ranks.py), brought together.

Whatever others than root say, a run whose job ad the startd has not confirmed gets no more than
JOBLENS_DEFAULT_LEVEL (agent/lifecycle/startd_truth.py).
After that the node's budgets may lower the level (agent/levels/budgets.py).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from condor_joblens.agent.levels import (
    apply_level,
    missing_level,
    peeking,
    periods,
    python_tracing,
    ranks,
    standing_requests,
)
from condor_joblens.agent.levels.budgets import JobLimits, Over, Quotas, within, within_quotas
from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.agent.levels.ranks import BY_HAND as HAND
from condor_joblens.agent.levels.ranks import NONE_LEAST, NONE_MOST, Rank, Word
from condor_joblens.common.config import Config
from condor_joblens.common.time_of_day import time_of_day
from condor_joblens.control.entries import Entry
from condor_joblens.jobs.run_state import AdTrust
from condor_joblens.model.levels import AS_ASKED, SITE_DEFAULT, Level
from condor_joblens.model.metrics import cut, cut_words, text

BY_HAND = "by hand"
"""The `policy` of a level that a person gave."""

STAFF = 1e6
"""Priority of a level that an entry of the site's staff says: above all that policies can give."""

LOWERED = "level lowered by a budget of the node"
"""How the note begins that a budget causes."""

_ROOT = "root on the job's node"
"""Root of the access point is no more than a queue super user: as the job's owner."""

CHANGES_AT_ONCE = 100
"""Greatest number of levels that change in one round; the others follow in the next."""


def precedence(
    state: np.ndarray, runs: np.ndarray, cap: Level, undecided: Level, now: float, entries: Sequence[Word] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """The level of each of `runs` (n,), before budgets, and whose word it is (ranks.decide).

    `cap` is JOBLENS_MAX_LEVEL, `undecided` JOBLENS_DEFAULT_LEVEL within it, `now`
    CLOCK_MONOTONIC. Both results have shape (n,).
    """
    bound = _bound(state, runs, cap, undecided)
    hands = _by_hand(state, runs, now)
    found = ranks.bounds([*hands, *entries], len(runs), cap, np.minimum(state["policy_cap"][runs], bound))
    wanted, sources = ranks.decide(found, np.minimum(_by_policies(state, runs, now), bound))
    by_root = state["override_by_root"][runs] & (state["override_until"][runs] > now)
    return wanted, np.where(by_root, HAND, sources)


def _by_policies(state: np.ndarray, runs: np.ndarray, now: float) -> np.ndarray:
    """What policies say of `runs` (n,), raised by triggers up to the policies' cap; shape (n,). `off` stays off."""
    said = state["policy_level"][runs]
    raised = np.where(state["trigger_until"][runs] > now, state["trigger_level"][runs], NONE_LEAST)
    raised = np.minimum(raised, state["policy_cap"][runs])
    levels: np.ndarray = np.where(said == Level.OFF, said, np.maximum(said, raised))
    return levels


def _bound(state: np.ndarray, runs: np.ndarray, cap: Level, undecided: Level) -> np.ndarray:
    """No level of `runs` (n,) is above it but root's by hand, shape (n,)."""
    bound: np.ndarray = np.where(state["ad_trust"][runs] == AdTrust.SETTLED, cap, undecided)
    return bound


def _by_hand(state: np.ndarray, runs: np.ndarray, now: float) -> tuple[Word, Word]:
    """What root and the owners of jobs have said by hand: one of both about each run, if anybody."""
    given, by_root = state["override_until"][runs] > now, state["override_by_root"][runs]
    level = state["override_level"][runs]
    is_roots = given & by_root
    roots = np.where(is_roots, level, NONE_LEAST), np.where(is_roots, level, NONE_MOST)
    owners = np.where(given & ~by_root, level, NONE_LEAST)
    return Word(Rank.ROOT, HAND, *roots), Word(Rank.OWNER, HAND, owners, np.full(len(runs), NONE_MOST))


def _entries(levels: Levels, runs: np.ndarray) -> list[tuple[Entry, np.ndarray, Word]]:
    """Entries that hold, for which of `runs` (n,) each is, and what it says."""
    node, entries = levels.node, levels.entries
    if not entries.holding(node.config):
        return []
    matching = [levels.inputs[run].entries if run in levels.inputs else () for run in runs.tolist()]
    bound = _bound(node.runs.state, runs, node.config.max_level, undecided_level(node.config))
    return list(entries.said(node.config, node.runs, runs, matching, bound))


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
        return f"this job's level is set {text(state['override_reason'])}: only {_ROOT} may change it"
    if level is None:
        return ""
    undecided = undecided_level(levels.node.config)
    if level > undecided and state["ad_trust"] != AdTrust.SETTLED:
        return f"the startd has not confirmed this job's ad: only {_ROOT} may give it more than {undecided.word}"
    if why := _refused_by_entry(levels, run, level):
        return why
    if level > state["policy_cap"]:
        return f"this site's policies allow this job no more than {Level(int(state['policy_cap'])).word}"
    return _held_by_policies(state) if level < state["policy_level"] else ""


def _held_by_policies(state: np.void) -> str:
    """Why the job's owner may not go below the policies' level, and what he can do instead."""
    level, why = Level(int(state["policy_level"])).word, text(state["policy_reason"])
    if why == AS_ASKED:
        held, instead = f"this job asked for {level} (+JobLensLevel)", "submit it with less"
    elif why == SITE_DEFAULT:
        held, instead = f"{level} is this site's default", "ask for less as you submit it"
    else:
        rule = f"rule {text(state['policy_rule'])} of this site's policies" if state["policy_rule"] else "this site"
        held, instead = f"{rule} gives this job {level}{f' ({why})' if why else ''}", "ask the site's staff"
    return f"{held}, and its owner only raises a level: {instead} (or {_ROOT} lowers it)"


def _refused_by_entry(levels: Levels, run: int, level: Level) -> str:
    """Why an entry leaves the run's owner no such level; empty if it does."""
    said = _entries(levels, np.array([run]))
    if not said:
        return ""
    by = ranks.forbidding(_above_owners(said), level, levels.node.config.max_level, _policy_caps(levels, run))
    if by < 0:
        return ""
    name = said[by][0].name
    return f"entry {name} of this site has the last word, {levels.entries.words(name)}"


def kept_low(levels: Levels, run: int) -> str:
    """Which entry keeps the run from a closer level than it has, if its row names another reason; empty if none."""
    said, node = _entries(levels, np.array([run])), levels.node
    if not said:
        return ""
    found = ranks.bounds(_above_owners(said), 1, node.config.max_level, _policy_caps(levels, run))
    by = int(found.most_by[0])
    if by < 0 or found.most[0] != node.runs.state["target_level"][run]:
        return ""
    name = said[by][0].name
    if name == text(node.runs.state["entry"][run]):
        return ""
    return f"entry {name} keeps it from more: {levels.entries.words(name)}"


def _above_owners(said: list[tuple[Entry, np.ndarray, Word]]) -> list[Word]:
    return [word for _, _, word in said if word.rank < Rank.OWNER]


def _policy_caps(levels: Levels, run: int) -> np.ndarray:
    """What the policies allow the run's owner, shape (1,)."""
    state, config = levels.node.runs.state, levels.node.config
    bound = _bound(state, np.array([run]), config.max_level, undecided_level(config))
    caps: np.ndarray = np.minimum(state["policy_cap"][run : run + 1], bound)
    return caps


def preview(levels: Levels, entry: Entry) -> dict[str, Any]:
    """How many running jobs an entry would be for, and what that would change, before budgets (relay/preview.py).

    By its expression, which the policy child alone evaluates, nothing is left out.
    """
    node = levels.node
    runs = node.runs.living()
    runs = runs[node.runs.state["named"][runs] & ~node.runs.rows["final"][runs]]
    said, now = _entries(levels, runs), time.monotonic()
    fits = levels.entries.fits(entry, node.runs, runs, [(entry.name,)] * len(runs))
    bound = _bound(node.runs.state, runs, node.config.max_level, undecided_level(node.config))
    word = levels.entries.word(entry, len(said), fits, node.config, bound)
    (before, _), (after, _) = (_wanted(levels, runs, each, now) for each in (said, [*said, (entry, fits, word)]))
    is_beaten = fits & ((after < word.least) | (after > word.most))
    is_capped = fits & (word.least < (NONE_LEAST if entry.least is None else entry.least))
    counted = {"Jobs": fits, "Raised": after > before, "Lowered": after < before, "Beaten": is_beaten}
    shared = {other.name: fits & theirs for other, theirs, _ in said if entry.contradicts(other)}
    return {
        **{name: int(np.count_nonzero(each)) for name, each in {**counted, "Capped": is_capped}.items()},
        "Before": np.bincount(before, minlength=len(Level)).tolist(),
        "After": np.bincount(after, minlength=len(Level)).tolist(),
        "Begun": len(runs) * (int((after >= Level.IO).any()) - int((before >= Level.IO).any())),
        "Contradicts": {name: int(np.count_nonzero(each)) for name, each in shared.items()},
    }


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
    said = _entries(levels, runs)
    wanted, sources = _wanted(levels, runs, said, now)
    by_hand, names = sources == HAND, _names(said, sources)
    _give_periods(levels, runs, said)
    # a level that root gave is the last that a budget lowers, and before that what an entry of the staff says
    by_root = by_hand & state["override_by_root"][runs]
    # (whom they only kept from more has what others gave him, and no more right to it)
    bound = _bound(state, runs, node.config.max_level, undecided_level(node.config))
    by_staff = wanted != np.minimum(_by_policies(state, runs, now), bound)
    by_staff &= _staffs_least(said, len(runs)) >= wanted
    priority = np.where(by_root, np.inf, np.where(by_staff, STAFF, state["policy_priority"][runs]))
    began = state["began"][runs]
    # nor does a quota of the policies, which both are above
    keys = np.where(by_root | by_staff, 0, state["quota"][runs])
    quotas = Quotas(keys, state["quota_jobs"][runs], state["quota_share"][runs])
    wanted, over_quota = within_quotas(wanted, priority, began, quotas)
    wanted, over = within(wanted, priority, began, job_limits(node.config), levels.own_cpu.steps)
    over = np.where(over == Over.NONE, over_quota, over)
    has, was_over = state["target_level"][runs], state["budget_exceeded"][runs]
    # a run that a budget lowered comes back, but no sooner than JOBLENS_POLICY_HOLD later
    waits = (wanted > has) & (was_over != Over.NONE) & (now - state["level_changed_at"][runs] < node.config.policy_hold)
    wanted, over = np.where(waits, has, wanted), np.where(waits, was_over, over)
    changed = np.flatnonzero((wanted != has) | (over != was_over) | _is_anothers(state, runs, by_hand, names))
    # runs that go down make room for runs that go up
    changed = changed[np.argsort(wanted[changed] - rows["level_number"][runs[changed]], kind="stable")]
    for index in changed[:CHANGES_AT_ONCE].tolist():
        run = int(runs[index])
        state["budget_exceeded"][run], state["is_overridden"][run] = over[index], by_hand[index]
        state["entry"][run] = names[index]
        node.guard(run, "level", _change, levels, run, Level(int(wanted[index])), run != starting)


def _wanted(
    levels: Levels, runs: np.ndarray, said: list[tuple[Entry, np.ndarray, Word]], now: float
) -> tuple[np.ndarray, np.ndarray]:
    config = levels.node.config
    words = [word for _, _, word in said]
    return precedence(levels.node.runs.state, runs, config.max_level, undecided_level(config), now, words)


def _staffs_least(said: list[tuple[Entry, np.ndarray, Word]], count: int) -> np.ndarray:
    """The highest "at least" of the staff about each of `count` runs, -1 where there is none; shape (count,)."""
    found: np.ndarray = np.full(count, -1)
    for _, fits, word in said:
        if word.rank < Rank.MANAGER:
            found = np.maximum(found, np.where(fits, word.least, -1))
    return found


def _names(said: list[tuple[Entry, np.ndarray, Word]], sources: np.ndarray) -> np.ndarray:
    """Of the entries to which the levels are due, shape (n,); empty if that is none."""
    names = np.array([*(entry.name.encode() for entry, _, _ in said), b""], "S16")
    found: np.ndarray = names[np.where(sources >= 0, sources, len(said))]
    return found


def _is_anothers(state: np.ndarray, runs: np.ndarray, by_hand: np.ndarray, names: np.ndarray) -> np.ndarray:
    """Whether somebody else has the word now than the rows of `runs` (n,) tell, shape (n,)."""
    found: np.ndarray = (by_hand != state["is_overridden"][runs]) | (names != state["entry"][runs])
    return found


def _give_periods(levels: Levels, runs: np.ndarray, said: list[tuple[Entry, np.ndarray, Word]]) -> None:
    """The period of the highest rank counts, and of one rank the longest."""
    state, wanted = levels.node.runs.state, np.zeros(len(runs))
    for entry, fits, _ in sorted(said, key=lambda each: (-each[2].rank, each[0].period)):
        if entry.period:
            wanted = np.where(fits, entry.period, wanted)
    changed = runs[wanted != state["entry_period"][runs]]
    if len(changed):
        state["entry_period"][runs] = wanted
        periods.set_periods(levels, changed)


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
            waits = "waits for" if missing_level.is_coming(level, node.handles[run].notes) else "can't have"
            node.log_once(f"{name} {waits} level {level.word}{why}; {text(rows['note'][run])}")


def retry_unavailable(levels: Levels) -> None:
    """Runs whose level could not be applied (the kernel had no room for them) are tried again."""
    runs = levels.node.runs.living()
    levels.node.runs.state["target_level"][runs] = levels.node.runs.rows["level_number"][runs]


def explain(levels: Levels, run: int) -> None:
    """Writes into the run's row who decided its level, why, and for how long."""
    node = levels.node
    row, state = node.runs.rows[run : run + 1], node.runs.state[run]
    name, is_triggers = text(state["entry"]), _is_triggers(state)
    if state["is_overridden"]:
        row["policy"], row["reason"] = cut(BY_HAND, "policy"), state["override_reason"]
    elif name:
        row["policy"] = cut(f"entry {name}", "policy")
        row["reason"] = cut_words(levels.entries.words(name), "reason")
    elif is_triggers:
        row["policy"], row["reason"] = cut(f"trigger {text(state['trigger_name'])}", "policy"), state["trigger_reason"]
    else:
        row["policy"], row["reason"] = state["policy_rule"], state["policy_reason"]
    notes, until = node.handles[run].notes, 0.0
    if not state["is_overridden"] and not name:
        until = float(state["policy_until"])
        if is_triggers:
            until = time.time() + float(state["trigger_until"]) - time.monotonic()
    notes["budget"] = _budget_note(levels, run)
    notes[python_tracing.NOTE] = python_tracing.note(levels, run)
    notes.update({each.name: each.note(levels, run) for each in standing_requests.ALL})
    notes[peeking.NOTE] = peeking.note(levels, run)
    notes["until"] = f"{Level(int(state['target_level'])).word} until {time_of_day(until)}" if until > 0 else ""
    node.update_note(run)


def _is_triggers(state: np.void) -> bool:
    """Whether the run has its level because a trigger has raised it."""
    level = min(int(state["trigger_level"]), int(state["policy_cap"]))
    is_above = int(state["policy_level"]) < int(state["target_level"]) <= level
    return bool(state["trigger_until"] > time.monotonic() and is_above)


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
    wanted, _ = _wanted(levels, runs, _entries(levels, runs), time.monotonic())
    own, budget, before = levels.own_cpu, node.config.max_cpu, levels.own_cpu.steps
    sampled, most = (int(np.maximum(wanted - above, 0).sum()) for above in (Level.IO, Level.BASIC))
    own.adapt(budget, sampled, most)
    uses = f"joblensd uses {own.cores:.2g} cores, JOBLENS_MAX_CPU is {budget:g}"
    if own.steps != before:
        node.log(f"{uses}: {own.steps} steps down from levels above basic, before {before}")
    elif own.cores > budget and not own.steps:
        node.log_once(f"{uses}, and no job has a level above basic: raise JOBLENS_PERIOD or JOBLENS_MAX_CPU")
