"""The rules, and what they decide for one job: the inside of the child."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from condor_joblens.common.errors import printable
from condor_joblens.model.levels import Level
from condor_joblens.policy.child_frames import ENTRY, Message
from condor_joblens.policy.job_identity import BOOLEANS, NUMBERS, STRINGS, Identity, identity
from condor_joblens.policy.jobad import ERROR, JobAd, is_expression
from condor_joblens.policy.level_request import LevelRequest
from condor_joblens.policy.lua_sandbox import (
    GROUP,
    MAX_VALUES,
    LuaSandbox,
    Missing,
    Plain,
    PolicyError,
    Rule,
    text_size,
)
from condor_joblens.policy.precedence import verdict
from condor_joblens.policy.seen_keys import SeenKeys

MAX_REASON = 120  # characters
MAX_ERRORS = 20  # failures of one answer
MAX_LEARNED = 300  # keys that are looked up before a rule asks for them
MAX_READ = 1000  # keys that the rules may read of one job
MAX_WHOSE = 100  # characters of the owner or the group that a quota is for

MAX_ENTRIES = 20  # temporary entries of one run

Doing = Callable[[str], None]
Usage = tuple["Columns", Sequence[float]]


class JobFacts:
    """Where what rules ask of a job is looked up."""

    def __init__(self, ad: JobAd, slot: Mapping[str, Any], node: Mapping[str, Any]) -> None:
        self.ad = ad
        self.slot = {name.lower(): value for name, value in slot.items()}
        self.node = {name.lower(): value for name, value in node.items()}


@dataclass
class Job:
    """What rules can be told of one job, and what they were told already."""

    __slots__ = (
        *("default", "facts", "is_true", "maximum", "request", "started", "state", "strings", "usage", "values"),
    )

    facts: Callable[[], JobFacts]  # read when it is needed
    request: LevelRequest
    default: Level
    maximum: Level
    state: dict[str, Any]  # of the run's last decision; empty at its start
    started: float  # epoch seconds
    usage: Usage | None  # None at the run's start
    values: dict[str, Plain]  # by key, what does not change while it runs
    strings: int  # characters in them
    is_true: dict[str, bool]  # by the expression of an entry


@dataclass(frozen=True)
class RuleTrace:
    """How one rule answered about one job, for explain."""

    rule: Rule
    matched: bool
    why: str  # where it is not plainly its condition
    reads: list[tuple[str, Plain]]


class Engine:
    """Compiled rules, asked in the order of files and lines."""

    def __init__(self) -> None:
        self._sandbox = LuaSandbox()
        self._seen_keys = SeenKeys()
        self._learned: dict[str, None] = {}  # keys that rules have read, in order: an ordered set
        self._numbers = Columns(())

    @property
    def rules(self) -> list[Rule]:
        """All rules that are in force, in order."""
        return self._sandbox.rules

    def load(self, policies: Iterable[tuple[str, str]], doing: Doing, numbers: Iterable[str] = ()) -> list[Message]:
        """Compile (file, text) in this order; a failure for each that is set aside for a mistake in it.

        `numbers` are the paths of all that `usage` can ever have; empty: that is not known.
        """
        self._sandbox, self._learned, self._numbers = LuaSandbox(), {}, Columns(numbers)
        errors = []
        for file, text in policies:
            doing(f"policy {file}")
            try:
                before = len(self.rules)
                self._sandbox.load(file, text)
                self._check(before)
            except PolicyError as error:
                errors.append(failure(error))
        return errors

    def _check(self, first: int) -> None:
        for rule in self.rules[first:]:
            try:
                for path in rule.paths:
                    root, _, name = path.partition(".")
                    if root.lower() == "usage":
                        self._check_number(rule, name)
                if rule.expression is not None and not is_expression(rule.expression):
                    what = f'when = "{rule.expression}" is no ClassAd expression'
                    raise PolicyError(rule.file, rule.line, rule.name, what)
            except PolicyError:
                self._sandbox.unload(first)
                raise
            if rule.expression is not None:
                self._learned[f"e:{rule.expression}"] = None

    def _check_number(self, rule: Rule, path: str) -> None:
        if self._numbers.paths and not self._numbers.knows(path.lower()):
            near = self._sandbox.nearest(path, self._numbers.paths)
            raise PolicyError(rule.file, rule.line, rule.name, f"usage.{path} is no number of a job{near}")

    def decide(self, job: Job, now: float, doing: Doing | None, trace: list[RuleTrace] | None = None) -> Message:
        """The answer for one job: see child_frames.py. `doing` is told before each rule what is asked next."""
        errors: list[Message] = []
        matching, until, entries = self._matching(job, now, doing, errors, trace)
        found = verdict(matching, job.request.level, job.default, job.maximum)
        self._seen_keys.keep_within_bounds()
        seen = {key[2:]: value for key, value in job.values.items() if key.startswith("k:")}
        return {
            "level": found.level.word,
            "cap": found.cap.word,
            "requested": job.request.level.word if job.request.level is not None else None,
            "written": job.request.written,
            "policy": found.rule,
            "reason": printable(found.reason, MAX_REASON),
            "period": found.period,
            "priority": found.priority,
            "sinks": None if found.sinks is None else list(found.sinks),
            "report": found.report,
            "traced": found.trace,
            "quota": None if found.quota is None else self._quota(job, found.quota, now),
            "until": until,
            "state": {"entries": entries, "seen": dict(list(seen.items())[:8])},
            "errors": errors[:MAX_ERRORS],
        }

    def entries(self, job: Job, expressions: Sequence[tuple[str, str]], doing: Doing) -> list[str]:
        """Names of the entries whose expression is true of the job. `doing` is told of each before it is evaluated.

        The values are kept apart from those that rules read: no rule can use up their room. Those of other expressions,
        of entries that have ended, are forgotten.
        """
        before, job.is_true = job.is_true, {}
        for name, expression in expressions:
            if expression not in before:
                doing(f"{ENTRY}{name}")
                before[expression] = job.facts().ad.eval(expression) is True
            job.is_true[expression] = before[expression]
        return [name for name, expression in expressions if job.is_true[expression]]

    def matching(self, job: Job, now: float) -> tuple[list[Rule], list[Message]]:
        """The rules that match a job, and what failed."""
        errors: list[Message] = []
        return self._matching(job, now, None, errors, None)[0], errors

    def _matching(
        self, job: Job, now: float, doing: Doing | None, errors: list[Message], trace: list[RuleTrace] | None
    ) -> tuple[list[Rule], float | None, dict[str, float]]:
        """The matching rules, when the first temporary one ends, and the begin of each temporary entry."""
        self._begin(job, now)
        first, before = not job.state, job.state.get("entries", {})
        matching: list[Rule] = []
        until: list[float] = []
        entries: dict[str, float] = {}
        for rule in self.rules:
            why = ""
            try:
                matched = self._match(job, rule, now, doing, trace is not None)
            except PolicyError as error:
                errors.append(failure(error))
                matched, why = False, str(error)
            if trace is not None and not matched and not why:
                why = self._sandbox.unmet()
            if rule.for_seconds is not None:
                began = before.get(rule.name)
                if began is None and matched and len(entries) < MAX_ENTRIES:
                    began = job.started if first else now
                end = 0.0 if began is None else began + rule.for_seconds
                if began is not None and (matched or now < end):  # else it may begin anew
                    entries[rule.name] = began
                if began is not None:
                    why = f"since {now - began:.0f} s, for {rule.for_seconds:g} s"
                matched = now < end
                if matched:
                    until.append(end)
            if matched:
                matching.append(rule)
            if trace is not None:
                reads = [(key, self._value(job, key, now)) for key in self._sandbox.reads()]
                trace.append(RuleTrace(rule, matched, why, reads))
        return matching, min(until, default=None), entries

    def _match(self, job: Job, rule: Rule, now: float, doing: Doing | None, traced: bool) -> bool:
        """Whether a rule matches. Before the rule and before the ad, `doing` is told what would be to blame."""
        for _ in range(MAX_READ):
            if traced:
                self._sandbox.trace()
            if doing is not None and rule.runs_code:
                doing(f'policy {rule.file}:{rule.line}: rule "{rule.name}"')
            answer = self._sandbox.match(rule)
            if not isinstance(answer, Missing):
                return answer
            if answer.key[0] == "u":
                self._check_number(rule, answer.key[2:])
            if len(self._learned) < MAX_LEARNED and not answer.key.startswith("k:"):
                self._learned[answer.key] = None
            if doing is not None and answer.key[0] in "je":
                doing("the job's ad")
            self._sandbox.put(answer.key, self._value(job, answer.key, now))
        raise PolicyError(rule.file, rule.line, rule.name, f"reads more than {MAX_READ} values")

    def _begin(self, job: Job, now: float) -> None:
        for key in self._learned:
            if key not in job.values and key[0] != "u":
                self._value(job, key, now)
        values = dict(job.values)
        for key in self._learned:
            if key[0] == "u":
                values[key] = _usage(job.usage, key[2:])
        clock = time.localtime(now)
        self._sandbox.begin(values, clock.tm_hour, clock.tm_min, (clock.tm_wday + 1) % 7)

    def _value(self, job: Job, key: str, now: float) -> Plain:
        """The value of a key, kept where it does not change while the job runs."""
        kind, name = key[0], key[2:]
        if kind == "u":
            return _usage(job.usage, name)
        if key in job.values:
            return job.values[key]
        value: Plain = None
        if kind == "j":
            value = job.facts().ad.value(name)
        elif kind == "e":
            value = job.facts().ad.eval(name)
        elif kind == "k":
            value = self._seen(job, name, now)
        else:
            facts = job.facts()
            value = _fact(facts.slot if kind == "s" else facts.node, name)
        job.strings += text_size(value)
        if job.strings > MAX_VALUES:
            value = ERROR
        job.values[key] = value
        return value

    def _quota(self, job: Job, rule: Rule, now: float) -> Message:
        who: Plain = None
        if rule.per is not None:
            who = self._value(job, "j:owner" if rule.per == "owner" else "j:acctgroup", now)
        whose = printable(who, MAX_WHOSE) if isinstance(who, str) else ""
        return {
            "rule": rule.name,
            "per": rule.per or "",
            "whose": whose,
            "jobs": rule.max_jobs,
            "share": rule.max_share,
        }

    def _seen(self, job: Job, name: str, now: float) -> bool:
        days, _, key = name.partition(":")
        known = job.state.get("seen", {}).get(name)
        if isinstance(known, bool):  # this run asked before: the process that knew is gone
            self._seen_keys.learn(key, "", now)
            return known
        return self._seen_keys.seen(key, float(days), str(job.facts().ad.value("GlobalJobId")), now)


def job_of(ad: JobAd, message: Message, now: float) -> Job:
    """The job of an ad and a `decide` message."""
    usage = message.get("usage")
    facts = JobFacts(ad, message["slot"], message.get("node", {}))
    return Job(
        facts=lambda: facts,
        request=ad.request(),
        default=Level[message["default"].upper()],
        maximum=Level[message["max"].upper()],
        state=message.get("state", {}),
        started=message.get("started", now),
        usage=None if usage is None else (Columns(usage), list(usage.values())),
        values={},
        strings=0,
        is_true={},
    )


def identity_of(ad: JobAd) -> Identity:
    """Who the job is, by its evaluated ad."""
    return identity({name: ad.value(name) for name in (*STRINGS, *NUMBERS, *BOOLEANS)})


def failure(error: PolicyError) -> Message:
    """The failure of child_frames.py."""
    return {"file": error.file, "line": error.line, "rule": error.rule, "what": error.what}


def _fact(facts: Mapping[str, Any], name: str) -> Plain:
    value = facts.get(name)
    return value if isinstance(value, (str, int, float)) else None


class Columns:
    """Where a round has which number; Cpu of Cpu.RecentCores is a group, for a rule to go through."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = tuple(paths)
        self._index = {path.lower(): index for index, path in enumerate(self.paths)}
        self._groups = {path[:at] for path in self._index for at, letter in enumerate(path) if letter == "."}

    def knows(self, path: str) -> bool:
        """Whether a path in lower case is that of a number or of a group of them."""
        return path in self._index or path in self._groups

    def value(self, path: str, row: Sequence[float]) -> Plain:
        """The number of a path in lower case; None where it is absent."""
        index = self._index.get(path)
        if index is None:
            return GROUP if path in self._groups else None
        value = row[index]
        return value if value == value else None  # NaN


def _usage(usage: Usage | None, path: str) -> Plain:
    return None if usage is None else usage[0].value(path, usage[1])
