"""What joblensd remembers of a run beside its row: the columns, what each means and which module writes it."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np

from condor_joblens.jobs.death_sentence import DEATH
from condor_joblens.model.metrics import METRICS, MetricKind
from condor_joblens.model.servers import LISTED, SERVER

HISTORY = 32
"""How many past CPU readings are kept a run: RecentCores is made from them."""

GROWTH_PLACES = 64
"""How many past readings of anonymous memory are kept a run: its growth is made from them."""

COUNTERS = tuple(metric for metric in METRICS if metric.kind is MetricKind.COUNTER)

OFFSETS: np.dtype[Any] = np.dtype([(metric.column, "f8" if metric.is_float else "i8") for metric in COUNTERS])


class AdTrust(enum.IntEnum):
    """Whether the job's ad is known to be the starter's."""

    SETTLED = 0  # the startd has confirmed it, or need not: policies decide
    AWAITED = 1  # nobody has confirmed it yet: no more than the default level
    REFUSED = 2  # it contradicts the startd: the same for good


class StateColumn(NamedTuple):
    """One column of the state."""

    name: str
    type: Any  # its numpy type, with its shape if it has one
    writer: str  # the one module that assigns it, below condor_joblens; a test compares this with the source
    help: str


_TABLE = "jobs.run_table"
_START = "agent.lifecycle.run_start"
_IDENTITY = "agent.lifecycle.run_identity"
_MEASURE = "agent.measure"
_DECISIONS = "agent.levels.policy_decisions"
_ARBITER = "agent.levels.level_arbiter"
_OVERRIDE = "commands.level"
_TRIGGERS = "agent.triggers.actions"
_PROGRESS = "sample.progress"
_PROVISIONAL = "agent.levels.provisional_io"


COLUMNS = (
    StateColumn("used", "?", _TABLE, "there is a run in this place"),
    StateColumn("named", "?", "agent.lifecycle.first_decision", "the job is known: its identity has been decided"),
    StateColumn("activated", "?", "commands.activate", "its wrapper has called"),
    StateColumn("is_own_cgroup", "?", _START, "the cgroup is ours, made because HTCondor makes none on this machine"),
    StateColumn("cgroup_id", "u8", _TABLE, "inode of the cgroup's folder"),
    StateColumn("kernel_slot", "i4", "agent.levels.apply_level", "index in the tracer; -1: not counted"),
    StateColumn("starter", "i4", _START, "process id of its condor_starter; 0: unknown"),
    StateColumn("scratch_uid", "i8", _START, "whose its scratch folder was when it began, plus 1; 0: unknown"),
    StateColumn("began", "f8", "agent.lifecycle.start_time", "CLOCK_MONOTONIC of StartTime"),
    StateColumn("next_ad", "f8", "agent.output.job_ads", "CLOCK_MONOTONIC at which its ad is written again"),
    StateColumn(
        "next_slow", "f8", "sample.cgroup_memory", "CLOCK_MONOTONIC at which pressure and memory are read again"
    ),
    StateColumn("lost_before", "i8", _MEASURE, "events that the node had lost when it began"),
    StateColumn("lost_io_before", "i8", _MEASURE, "the same of events of level io"),
    StateColumn("death", DEATH, "agent.lifecycle.death", "its abnormal exits: jobs/death_sentence.py"),
    StateColumn("checkpoint_code", "i4", _IDENTITY, "the job's exit code that is no end; -1: it has none"),
    StateColumn("command", "S64", _IDENTITY, "the job's executable"),
    StateColumn("due", "?", _MEASURE, "new numbers have been taken since it was published"),
    StateColumn("next_measure", "f8", _MEASURE, "CLOCK_MONOTONIC at which its numbers are taken again"),
    StateColumn(
        "idle_since",
        "f8",
        "agent.levels.policy_input",
        "CLOCK_MONOTONIC; since then the job has used next to no CPU, and was not suspended",
    ),
    StateColumn("user", "S128", _IDENTITY, "User: the owner with the domain of the access point, alice@pool"),
    StateColumn("is_interactive", "?", _IDENTITY, "somebody sits at the job (condor_submit -interactive)"),
    StateColumn("progress_at", "f8", _PROGRESS, "CLOCK_MONOTONIC at which its window began; 0: none has"),
    StateColumn("progress_cpu", "f8", _PROGRESS, "its CPU seconds then"),
    StateColumn("progress_bytes", "f8", _PROGRESS, "the bytes that it had moved then"),
    StateColumn("still_since", "f8", _PROGRESS, "CLOCK_MONOTONIC of the last progress"),
    StateColumn("moved_at", "f8", _PROGRESS, "CLOCK_MONOTONIC at which its window for bytes alone began; 0: none has"),
    StateColumn("moved_before", "f8", _PROGRESS, "the bytes that it had moved then"),
    StateColumn("quiet_since", "f8", _PROGRESS, "CLOCK_MONOTONIC of the last progress by bytes"),
    StateColumn("busy_since", "f8", "agent.busy", "CLOCK_MONOTONIC since when it computes in the same places; 0: no"),
    # who wants which level: agent/levels/level_arbiter.py
    StateColumn("policy_level", "i1", _DECISIONS, "the policies' level"),
    StateColumn("policy_cap", "i1", _DECISIONS, "the highest level that the policies allow its owner"),
    StateColumn(
        "policy_priority", "f8", _DECISIONS, "if the budgets are too small, the run of the lowest one steps down"
    ),
    StateColumn("quota", "u8", _DECISIONS, "policy_answers.Quota.key of the quota that its level counts for; 0: none"),
    StateColumn("quota_jobs", "f8", _DECISIONS, "jobs that this quota allows; -1: it says no number"),
    StateColumn("quota_share", "f8", _DECISIONS, "the share of the node's jobs that it allows; -1: it says none"),
    StateColumn("policy_rule", "S64", _DECISIONS, "the rule that decided"),
    StateColumn("policy_reason", "S128", _DECISIONS, "and why"),
    StateColumn("requested_period", "f8", _DECISIONS, "seconds, by the policies, else by the job; 0: by neither"),
    StateColumn("may_report", "?", _DECISIONS, "the policies do not forbid its report"),
    StateColumn("wants_report", "?", _IDENTITY, "+JobLensReport"),
    StateColumn("job_period", "f8", _IDENTITY, "seconds, +JobLensPeriod; 0: nothing"),
    StateColumn("policy_decided_at", "f8", _DECISIONS, "CLOCK_MONOTONIC of the last change by the policies"),
    StateColumn(
        "policy_until",
        "f8",
        _DECISIONS,
        "epoch seconds at which the policies are asked again; 0: with the others; -1: now",
    ),
    StateColumn("override_level", "i1", _OVERRIDE, "the level that root or the owner gave by hand"),
    StateColumn("override_until", "f8", _OVERRIDE, "CLOCK_MONOTONIC at which it ends; 0: nobody gave one"),
    StateColumn("override_by_root", "?", _OVERRIDE, "it was root"),
    StateColumn("override_reason", "S128", _OVERRIDE, "and why"),
    StateColumn("override_changed_at", "f8", _OVERRIDE, "CLOCK_MONOTONIC of the last command about it"),
    StateColumn("trigger_level", "i1", _TRIGGERS, "the level to which a trigger has raised it"),
    StateColumn("trigger_until", "f8", _TRIGGERS, "CLOCK_MONOTONIC at which that ends; 0: none has"),
    StateColumn("trigger_name", "S64", _TRIGGERS, "the file of that trigger"),
    StateColumn("trigger_reason", "S128", _TRIGGERS, "and why"),
    StateColumn("ad_trust", "i1", "agent.lifecycle.startd_truth", "whether the job's ad is the starter's: AdTrust"),
    StateColumn("target_level", "i1", _ARBITER, "the level that the arbiter gave it; a note says if it has another"),
    StateColumn("is_overridden", "?", _ARBITER, "the level that it has is the one given by hand"),
    StateColumn("entry", "S16", _ARBITER, "the name of the entry whose level it has; empty: it is no entry's"),
    StateColumn("entry_period", "f8", _ARBITER, "seconds, the period that an entry says; 0: none does"),
    StateColumn("budget_exceeded", "i1", _ARBITER, "the budget (budgets.Over) that lowers its level"),
    StateColumn("level_changed_at", "f8", "agent.levels.apply_level", "CLOCK_MONOTONIC of its level's last change"),
    StateColumn("io_provisional", "?", _PROVISIONAL, "level io counts it unpublished: no decision has confirmed it"),
    StateColumn("io_late_since", "f8", _MEASURE, "CLOCK_MONOTONIC of its begin; 0: the job's first instruction"),
    StateColumn(
        "profile_seen", "f8", "agent.levels.profile_level", "epoch seconds: its profile is kept until then; 0: none"
    ),
    StateColumn("offset", OFFSETS, "sample.totals", "by how much the run's total exceeds what its source says"),
    StateColumn(
        "servers_before",
        (SERVER, (LISTED + 1,)),
        "sample.server_lists",
        "the list of servers that it goes on from",
    ),
    StateColumn("growth_time", ("f8", (GROWTH_PLACES,)), "sample.memory_growth", "CLOCK_MONOTONIC; 0: empty"),
    StateColumn("growth_bytes", ("f8", (GROWTH_PLACES,)), "sample.memory_growth", "anonymous memory at those times"),
    StateColumn("history_time", ("f8", (HISTORY,)), "sample.cpu_rates", "CLOCK_MONOTONIC; NaN: empty"),
    StateColumn("history_cpu", ("f8", (HISTORY,)), "sample.cpu_rates", "CPU seconds at those times"),
)

RENAMED = {
    "made_here": "is_own_cgroup",
    "decided_level": "policy_level",
    "decided_cap": "policy_cap",
    "decided_priority": "policy_priority",
    "decided_policy": "policy_rule",
    "decided_reason": "policy_reason",
    "decided_at": "policy_decided_at",
    "decided_until": "policy_until",
    "period_wanted": "requested_period",
    "period_asked": "job_period",
    "hand_level": "override_level",
    "hand_until": "override_until",
    "hand_is_roots": "override_by_root",
    "hand_reason": "override_reason",
    "hand_changed": "override_changed_at",
    "aimed": "target_level",
    "by_hand": "is_overridden",
    "over": "budget_exceeded",
    "changed": "level_changed_at",
}
"""Columns of earlier versions that have another name now: their numbers are taken over under it."""

STATE: np.dtype[Any] = np.dtype([(column.name, column.type) for column in COLUMNS], align=True)


def empty_state(count: int) -> np.ndarray:
    """`count` states of runs that have just begun, in no cgroup yet."""
    state: np.ndarray = np.zeros(count, STATE)
    state["kernel_slot"] = -1
    state["history_time"] = np.nan
    return state
