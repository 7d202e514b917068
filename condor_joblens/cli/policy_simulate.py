"""`joblens policy simulate`: what the policies would have done with the jobs of a history."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from condor_joblens.cli.policy import policies, site
from condor_joblens.cli.policy_ads import MAX_AD, ads
from condor_joblens.cli.policy_costs import COSTS, SWITCHES, SYSCALLS
from condor_joblens.cli.policy_evaluator import EvaluationFailed, ListedRule, PolicyEvaluator, told, wait
from condor_joblens.cli.terminal import Style, bar, style, table
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.model.levels import Level

BATCH_BYTES = 1 << 20
BATCH_JOBS = 100
AHEAD = 2  # batches that a child has been given and has not answered
CPU_OF_A_JOB = 0.1  # seconds, at most, on average over a batch


MAX_NAMES = 100_000  # owners and nodes that are told apart; the rest is one
SHOWN_NAMES = 10  # of them in a table
OTHERS = "(others)"


@dataclass
class Tally:
    """What became of the jobs."""

    jobs: int = 0
    matched: Counter[int] = field(default_factory=Counter)  # by rule
    at_level: Counter[Level] = field(default_factory=Counter)  # jobs by the closest level they had
    by_rule: Counter[tuple[int, Level]] = field(default_factory=Counter)  # jobs that a rule matched, by that level
    seconds: Counter[Level] = field(default_factory=Counter)
    owners: dict[str, Share] = field(default_factory=dict)
    nodes: dict[str, Share] = field(default_factory=dict)
    unusable: int = 0
    errors: dict[str, int] = field(default_factory=dict)  # a line -> jobs

    def add(self, result: dict[str, Any]) -> None:
        """One job, as policy/replay.py has it."""
        self.jobs += 1
        if "failed" in result:
            self.unusable += 1
            return
        closest = Level(max((level for level, _ in result["levels"]), default=0))
        self.at_level[closest] += 1
        for index in result["rules"]:
            self.matched[index] += 1
            self.by_rule[index, closest] += 1
        for level, seconds in result["levels"]:
            self.seconds[Level(level)] += seconds
        for names, name in ((self.owners, result["owner"]), (self.nodes, result["node"])):
            _share_of(names, name).add(result["levels"], closest)
        for line in told(result["errors"]):
            if line in self.errors or len(self.errors) < 20:
                self.errors[line] = self.errors.get(line, 0) + 1

    def core_seconds(self, level: Level) -> float:
        """What the time at a level would have cost the nodes."""
        return self.seconds[level] * COSTS[level].cores


@dataclass
class Share:
    """What became of the jobs of one owner, or of one node."""

    jobs: int = 0
    close: int = 0  # jobs that had a level above basic
    seconds: float = 0.0
    core_seconds: float = 0.0  # that their levels would have cost

    def add(self, levels: Sequence[tuple[int, float]], closest: Level) -> None:
        """One job more: [level's number, seconds] in turn."""
        self.jobs += 1
        self.close += closest > Level.BASIC
        for level, seconds in levels:
            self.seconds += seconds
            self.core_seconds += seconds * COSTS[Level(level)].cores


def _share_of(names: dict[str, Share], name: str) -> Share:
    name = printable(name, 60) or "(unknown)"
    return names.setdefault(name if name in names or len(names) < MAX_NAMES else OTHERS, Share())


def run(options: argparse.Namespace) -> int:
    """Prints a table of rules and levels, and the cost; exit code 0."""
    if options.events is not None:
        from condor_joblens.cli import trigger_simulate

        return trigger_simulate.run(options)
    here = site()
    read, problems = policies(options.folders, here)
    defaults = {"default": here.config.default_level.word, "max": here.config.max_level.word}
    tally = Tally()
    with ExitStack() as stack:
        evaluators = [stack.enter_context(PolicyEvaluator(read)) for _ in range(max(1, min(4, os.cpu_count() or 1)))]
        stream = stack.enter_context(_open(options.history))
        problems += told(evaluators[0].errors)
        for result in simulate(evaluators, ads(stream), defaults):
            tally.add(result)
        rules = evaluators[0].rules
    if tally.unusable > tally.jobs // 2 or not tally.jobs:
        few = "hardly any ads" if tally.jobs else "no ads"
        raise JobLensError(f"{printable(options.history)} has {few}: it takes what condor_history -l or -json prints")
    if options.json:
        print(json.dumps(record(tally, rules), indent=2))
        return 0
    look = style()
    for problem in [*problems, *([here.problem] if here.problem else [])]:
        print(f"{look.paint('note', 'yellow')}  {problem}")
    print("\n".join(lines(tally, rules, look)))
    return 0


def _open(path: str) -> BinaryIO:
    if path == "-":
        return sys.stdin.buffer
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise JobLensError(f"{printable(path)}: {error.strerror}") from None


def simulate(
    evaluators: Sequence[PolicyEvaluator], jobs: Iterable[bytes], defaults: dict[str, str]
) -> Iterator[dict[str, Any]]:
    """What policy/replay.py says of each job, in no order. A batch that kills its child is tried again job by job."""
    waiting: dict[PolicyEvaluator, list[list[bytes]]] = {evaluator: [] for evaluator in evaluators}
    for batch in _batches(jobs):
        free = next((evaluator for evaluator in evaluators if len(waiting[evaluator]) < AHEAD), None)
        while free is None:
            for evaluator in wait(evaluators):
                yield from _answer(evaluator, waiting[evaluator], defaults)
            free = next((evaluator for evaluator in evaluators if len(waiting[evaluator]) < AHEAD), None)
        waiting[free].append(batch)
        _send(free, batch, defaults)
    for evaluator in evaluators:
        while waiting[evaluator]:
            yield from _answer(evaluator, waiting[evaluator], defaults)


def _batches(jobs: Iterable[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for ad in jobs:
        if batch and (size + len(ad) > BATCH_BYTES or len(batch) == BATCH_JOBS):
            yield batch
            batch, size = [], 0
        batch.append(ad[:MAX_AD])
        size += len(ad)
    if batch:
        yield batch


def _send(evaluator: PolicyEvaluator, batch: list[bytes], defaults: dict[str, str]) -> None:
    message = {"verb": "replay", "id": 1, "cpu": CPU_OF_A_JOB * len(batch), "lengths": [len(ad) for ad in batch]}
    evaluator.send({**message, **defaults}, b"".join(batch))


def _answer(
    evaluator: PolicyEvaluator, waiting: list[list[bytes]], defaults: dict[str, str]
) -> Iterator[dict[str, Any]]:
    """The answer to the first batch that waits."""
    try:
        results = evaluator.answer()["results"]
        waiting.pop(0)
        yield from results
    except EvaluationFailed:
        batches, waiting[:] = list(waiting), []
        for batch in batches:
            yield from _one_by_one(evaluator, batch, defaults)


def _one_by_one(evaluator: PolicyEvaluator, batch: list[bytes], defaults: dict[str, str]) -> Iterator[dict[str, Any]]:
    evaluator.start_again()
    for ad in batch:
        try:
            _send(evaluator, [ad], defaults)
            yield from evaluator.answer()["results"]
        except EvaluationFailed as error:
            evaluator.start_again()
            yield {"failed": str(error)}


def record(tally: Tally, rules: Sequence[ListedRule]) -> dict[str, Any]:
    """All of it, for programs."""
    return {
        "Jobs": tally.jobs,
        "Unusable": tally.unusable,
        "Levels": {
            level.word: {
                "Jobs": tally.at_level[level],
                "Seconds": tally.seconds[level],
                "CoreSeconds": tally.core_seconds(level),
            }
            for level in Level
        },
        "Rules": [
            {
                "Name": rule.name,
                "File": rule.file,
                "Line": rule.line,
                "Jobs": tally.matched[rule.index],
                "Levels": {level.word: tally.by_rule[rule.index, level] for level in Level},
            }
            for rule in rules
        ],
        "Owners": _shares(tally.owners),
        "Nodes": _shares(tally.nodes),
        "Errors": tally.errors,
        "QuotasNotApplied": [rule.name for rule in with_quota(rules)],
    }


def with_quota(rules: Sequence[ListedRule]) -> list[ListedRule]:
    """Those that bound how many jobs of a node are watched closely: a history does not tell which ran side by side."""
    return [rule for rule in rules if rule.max_jobs is not None or rule.max_share is not None]


def _shares(names: dict[str, Share]) -> dict[str, dict[str, float]]:
    return {
        name: {
            "Jobs": share.jobs,
            "AboveBasic": share.close,
            "Seconds": share.seconds,
            "CoreSeconds": share.core_seconds,
        }
        for name, share in sorted(names.items(), key=lambda item: -item[1].core_seconds)
    }


def lines(tally: Tally, rules: Sequence[ListedRule], look: Style) -> list[str]:
    """The story, in two tables."""
    usable = max(1, tally.jobs - tally.unusable)
    said = [
        f"{tally.jobs} jobs" + (f", {tally.unusable} of them with an ad that can't be used" if tally.unusable else "")
    ]
    said += ["", *_levels(tally, usable, look), "", *_rules(tally, rules, usable, look)]
    said += ["", *_by_name("OWNER", tally.owners, look), "", *_by_name("NODE", tally.nodes, look)]
    if tally.errors:
        said += ["", *(look.paint(f"{count} jobs: {line}", "red") for line, count in tally.errors.items())]
    said += [
        "",
        f"cost: of a job with {SYSCALLS:,} syscalls and {SWITCHES:,} context switches a second, by docs/policies.md",
    ]
    said.append("rules that need live numbers (usage) don't match here, for the past has none")
    if quotas := with_quota(rules):
        names = ", ".join(rule.name for rule in quotas[:SHOWN_NAMES])
        said.append(f"quotas (max_jobs, max_share) are not applied, so fewer jobs would be above basic: {names}")
    return said


def _levels(tally: Tally, usable: int, look: Style) -> list[str]:
    whole = sum(tally.seconds.values()) or 1.0
    rows = []
    for level in Level:
        if tally.at_level[level] or tally.seconds[level]:
            hours, cost = tally.seconds[level] / 3600, tally.core_seconds(level)
            rows.append([
                level.word, str(tally.at_level[level]), f"{hours:,.1f}", f"{cost / 3600:,.3f}",
                f"{bar(tally.seconds[level] / whole, 40)} {tally.seconds[level] / whole:.1%}",
            ])  # fmt: skip
    cost = sum(map(tally.core_seconds, Level))
    rows.append(
        ["all", str(usable), f"{whole / 3600:,.1f}", f"{cost / 3600:,.3f}", f"{cost / whole:.4%} of a core a job"]
    )
    return table(["LEVEL", "JOBS", "HOURS", "CORE HOURS", "SHARE OF THE TIME"], rows, "LEVEL", look.width)


def _by_name(header: str, names: dict[str, Share], look: Style) -> list[str]:
    """The owners or nodes whose jobs would have cost most."""
    whole = sum(share.core_seconds for share in names.values()) or 1.0
    most = sorted(names.items(), key=lambda item: (-item[1].core_seconds, item[0]))
    rows = [
        [
            name,
            str(share.jobs),
            str(share.close),
            f"{share.seconds / 3600:,.1f}",
            f"{share.core_seconds / 3600:,.3f}",
            f"{bar(share.core_seconds / whole, 20)} {share.core_seconds / whole:.1%}",
        ]
        for name, share in most[:SHOWN_NAMES]
    ]
    said = table([header, "JOBS", "ABOVE BASIC", "HOURS", "CORE HOURS", "SHARE OF THE COST"], rows, header, look.width)
    return said + ([f"and {len(most) - SHOWN_NAMES} more: --json has all"] if len(most) > SHOWN_NAMES else [])


def _rules(tally: Tally, rules: Sequence[ListedRule], usable: int, look: Style) -> list[str]:
    used = [level for level in Level if tally.at_level[level]]
    rows = [
        [
            rule.name,
            f"{rule.file}:{rule.line}",
            str(tally.matched[rule.index]),
            *(str(tally.by_rule[rule.index, level]) for level in used),
            f"{bar(tally.matched[rule.index] / usable, 20)} {tally.matched[rule.index] / usable:.1%}",
        ]
        for rule in rules
    ]
    headers = ["RULE", "WHERE", "MATCHED", *(level.word for level in used), "SHARE OF THE JOBS"]
    return table(headers, rows, "RULE WHERE", look.width, spare="WHERE")
