"""Cases of policies: what a job is like, and what is decided.

[its name]
RequestCpus = 8                         a line of the job's ad, in ClassAd syntax
@slot Name = slot1_3                    a fact of the slot; @node likewise
@usage Cpu.RecentCores = 0.01           a live number, from now on
@now 2026-11-21 23:30                   the clock (noon of a Thursday, until it is said)
@max io                                 JOBLENS_MAX_LEVEL (trace); @default likewise (basic)
=> io by suspected hang                 what is expected; `by` and the rule may be left out
+61 s                                   time goes by
=> basic                                and now
@next job                               another job, whose ad begins as this one's is
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Any

from condor_joblens.cli.policy_check import unknown_number
from condor_joblens.cli.policy_evaluator import PolicyEvaluator, told
from condor_joblens.common.errors import printable
from condor_joblens.model.levels import CHOICES, parse_level

NOON = "2026-01-01 12:00"

_STEP = re.compile(
    r"=>\s*(?P<level>\w+)(?:\s+by\s+(?P<rule>.+))?"
    r"|\+\s*(?P<seconds>\d+)\s*s"
    r"|@(?P<fact>usage|slot|node)\s+(?P<path>[\w.]+)\s*=\s*(?P<value>.+)"
    r"|@(?P<bound>max|default)\s+(?P<word>\w+)"
    r"|@now\s+(?P<now>.+)"
    r"|@(?P<next>next job)"
    r"|(?P<name>[A-Za-z_]\w*)\s*=\s*(?P<expression>.+)"
)


LINES = "write [name], Attribute = value, @usage Path = number, @slot Name = value, @now time, +N s or => level"
EXPRESSIONS = "write a number, a text in quotes or RequestCpus * 2"


class BadCase(ValueError):
    """A line that says nothing."""

    def __init__(self, line: int, what: str) -> None:
        self.line = line
        super().__init__(what)


@dataclass(frozen=True)
class Step:
    """One line of a case."""

    line: int
    said: dict[str, str]  # what of _STEP it has


@dataclass
class Case:
    """One case."""

    line: int
    name: str
    steps: list[Step] = field(default_factory=list)


def parse_cases(text: str) -> list[Case]:
    """The cases in a file. Raises BadCase."""
    cases: list[Case] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        title = re.fullmatch(r"\[([^\]]+)\]", line)
        step = _STEP.fullmatch(line)
        if title:
            cases.append(Case(number, title.group(1).strip()))
        elif step and cases:
            said = {name: value.strip() for name, value in step.groupdict().items() if value is not None}
            cases[-1].steps.append(Step(number, _checked(number, said)))
        else:
            raise BadCase(number, f'"{line}" is {"no line of a case" if cases else "before the first case"}: {LINES}')
    for case in cases:
        if not any("level" in step.said for step in case.steps):
            raise BadCase(case.line, f"[{case.name}] expects nothing: add a line such as => io")
    return cases


def epoch(text: str) -> float:
    """Epoch seconds of `YYYY-MM-DD HH:MM`, local time. Raises ValueError."""
    return time.mktime(time.strptime(text, "%Y-%m-%d %H:%M"))


def problem_of(evaluator: PolicyEvaluator, case: Case) -> tuple[int, str]:
    """The first line that is not as the case expects it, and why; empty where all is. Raises Failed."""
    expressions = {step.said["expression"] for step in case.steps if "expression" in step.said}
    wrong = evaluator.wrong_values(expressions) if expressions else set()
    job = _Job()
    for step in case.steps:
        said = step.said
        if said.get("expression") in wrong:
            written = f"{said['name']} = {said['expression']}"
            return step.line, printable(f"{written} is no ClassAd expression: {EXPRESSIONS}", 300)
        if "level" not in said:
            job.take(said)
            continue
        answer = job.decide(evaluator)
        expected = parse_level(said["level"]).word
        rule = said["rule"].strip('"') if "rule" in said else answer["policy"]
        if (answer["level"], answer["policy"]) != (expected, rule) or answer["errors"]:
            by = f' by "{answer["policy"]}"' if answer["policy"] else ""
            wanted = f' by "{rule}"' if "rule" in said else ""
            why = "; ".join(told(answer["errors"])) or answer["reason"]
            got = f"{answer['level']}{by} ({why})" if why else f"{answer['level']}{by}"
            return step.line, f"expected {expected}{wanted}, got {got}"
    return case.line, ""


class _Job:
    """What the lines so far have said."""

    def __init__(self) -> None:
        self.ad = {"globaljobid": 'GlobalJobId = "case#1.0#1"'}
        self.facts: dict[str, dict[str, Any]] = {"slot": {"Name": "slot1_1@node"}, "node": {}, "usage": {}}
        self.bounds = {"default": "basic", "max": "trace"}
        self.now = self.started = epoch(NOON)
        self.state: dict[str, Any] = {}
        self.number = 1

    def take(self, said: dict[str, str]) -> None:
        """One line."""
        if "name" in said:
            self.ad[said["name"].lower()] = f"{said['name']} = {said['expression']}"
        elif "fact" in said:
            self.facts[said["fact"]][said["path"]] = _value(said["value"])
        elif "seconds" in said:
            self.now += int(said["seconds"])
        elif "now" in said:
            self.now = epoch(said["now"])
        elif "bound" in said:
            self.bounds[said["bound"]] = parse_level(said["word"]).word
        else:
            self.state, self.started = {}, self.now
            self.facts["usage"] = {}
            self.number += 1
            self.ad["globaljobid"] = f'GlobalJobId = "case#{self.number}.0#1"'

    def decide(self, evaluator: PolicyEvaluator) -> dict[str, Any]:
        """What the policies say now."""
        usage = {"usage": self.facts["usage"]} if self.facts["usage"] else {}
        facts = {"slot": self.facts["slot"], "node": self.facts["node"], **usage, **self.bounds}
        if not self.state:
            self.started = self.now
        ad = "\n".join(self.ad.values()).encode()
        answer = evaluator.decide(ad, **facts, now=self.now, started=self.started, state=self.state)
        self.state = answer["state"]
        return answer


def _checked(line: int, said: dict[str, str]) -> dict[str, str]:
    for name, value in said.items():
        try:
            if name in ("level", "word"):
                parse_level(value)
            elif name == "now":
                epoch(value)
            elif name == "value" and said["fact"] == "usage":
                float(value)
        except ValueError:
            right = {"now": "time: write 2026-11-21 23:30", "value": "number"}.get(name, f"level ({CHOICES})")
            raise BadCase(line, f'"{value}" is no {right}') from None
    if said.get("fact") == "usage" and (problem := unknown_number(said["path"])):
        raise BadCase(line, problem)
    return said


def _value(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text.strip('"')
