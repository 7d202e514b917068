"""What a site's rules come to for one job, and which of several rules counts.

How far that counts against root, the job's owner and the administrator's cap is decided in one place, when a level is
applied: agent/levels/level_arbiter.py. Here the cap only bounds the answer, so that its reason is right.

- JOBLENS_MAX_LEVEL, the administrator's cap: nothing is above it
- the rules' `cap`, of those that match the last: nothing else is above it
- the rules' `level`, of those that match the last: at least this, and at least this only
- the job's request, if a rule grants it by `level = "requested"`: it raises, and lowers if no rule gives a level
- JOBLENS_DEFAULT_LEVEL

"The last" is by file name, then by line: later files over earlier ones. Period, sinks, priority, trace and quota too
are those of the last matching rule that says one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from condor_joblens.model.levels import AS_ASKED, SITE_DEFAULT, Level

if TYPE_CHECKING:
    from condor_joblens.policy.lua_sandbox import Rule

REQUESTED = "requested"


@dataclass(frozen=True)
class Verdict:
    """What the matching rules come to."""

    level: Level
    cap: Level  # the lowest that stands in the way of a request
    rule: str  # the name of the rule that had the last word; empty: none had
    reason: str
    period: float | None = None
    priority: float = 0.0
    sinks: tuple[str, ...] | None = None
    report: bool | None = None
    trace: str | None = None
    quota: Rule | None = None  # with max_jobs or max_share


def verdict(matching: Sequence[Rule], requested: Level | None, default: Level, maximum: Level) -> Verdict:
    """The level that the rules in `matching`, in their order, give a job that asks for `requested`."""
    raising = _last(matching, lambda rule: rule.level not in (None, REQUESTED))
    granting = _last(matching, lambda rule: rule.level == REQUESTED)
    capping = _last(matching, lambda rule: rule.cap is not None)
    level, rule, reason = default, None, SITE_DEFAULT
    if granting is not None:
        rule = granting
        if requested is not None:
            level, reason = requested, granting.reason or AS_ASKED
    if raising is not None:
        raised = _level(raising.level)
        if granting is None or requested is None or raised >= requested:
            level, rule, reason = raised, raising, raising.reason
    cap = maximum
    if capping is not None:
        cap = min(cap, _level(capping.cap))
        if _level(capping.cap) < level:
            rule, reason = capping, capping.reason
    return Verdict(
        level=min(level, cap),
        cap=cap,
        rule=rule.name if rule else "",
        reason=reason,
        period=_said(matching, "period"),
        priority=_said(matching, "priority") or 0.0,
        sinks=_said(matching, "sinks"),
        report=_said(matching, "report"),
        trace=_said(matching, "trace"),
        quota=_last(matching, lambda rule: rule.max_jobs is not None or rule.max_share is not None),
    )


def _last(matching: Sequence[Rule], fits: Callable[[Rule], bool]) -> Rule | None:
    return next((rule for rule in reversed(matching) if fits(rule)), None)


def _said(matching: Sequence[Rule], field: str) -> Any:
    rule = _last(matching, lambda rule: getattr(rule, field) is not None)
    return None if rule is None else getattr(rule, field)


def _level(word: str | None) -> Level:
    return Level[(word or "").upper()]
