"""`joblens policy check`: what can be said against policies without a job."""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from condor_joblens.cli import trigger_check
from condor_joblens.cli.job_attributes import JOB_ATTRIBUTES
from condor_joblens.cli.policy import policies, site
from condor_joblens.cli.policy_evaluator import EvaluationFailed, ListedRule, PolicyEvaluator, told
from condor_joblens.cli.policy_findings import DOUBTFUL, FINE, WRONG, PolicyFinding
from condor_joblens.cli.terminal import style
from condor_joblens.cli.trigger_evaluator import triggers
from condor_joblens.model.levels import Level
from condor_joblens.policy.slot_attributes import NAMES as SLOT
from condor_joblens.policy.trace_request import ATTRIBUTE, RAISES, of_text

if TYPE_CHECKING:
    from condor_joblens.common.config import Config

REQUESTED = "requested"
LIVE = ("IdleSeconds", "RunSeconds", "LevelSeconds")
"""What `usage` has beside the metrics."""

NODE = ("Name", "Cpus", "Kernel")
"""What `node` has."""

SAMPLE = b"""GlobalJobId = "ap.example.org#1.0#1700000000"
ClusterId = 1
ProcId = 0
Owner = "alice"
User = "alice@example.org"
AcctGroup = "group_a"
Cmd = "/home/alice/analyse"
JobUniverse = 5
RequestCpus = 8
RequestMemory = ifThenElse(MemoryUsage =!= undefined, MemoryUsage, 2048)
RequestDisk = 1000000
JobLensLevel = "io"
"""
"""A plain job, to see that rules run, and how long they take."""


def run(options: argparse.Namespace) -> int:
    """Prints what was found; exit code 1 where something is wrong."""
    here = site()
    found: list[PolicyFinding] = []
    if here.problem and not (options.folders or options.triggers):
        found.append(PolicyFinding(DOUBTFUL, here.problem))
    if options.folders or not options.triggers:
        read, problems = policies(options.folders, here)
        found += [PolicyFinding(WRONG, problem) for problem in problems]
        with PolicyEvaluator(read) as evaluator:
            found += findings(evaluator, read, here.config)
    if options.triggers or not options.folders:
        read, problems = triggers(options.triggers, here)
        found += [PolicyFinding(WRONG, problem) for problem in problems]
        if read:
            found += trigger_check.findings(read, here.config)
    bad = (WRONG, DOUBTFUL) if options.strict else (WRONG,)
    if options.json:
        print(json.dumps([asdict(finding) for finding in found], indent=2))
    else:
        look, colours = style(), {WRONG: "red", DOUBTFUL: "yellow", FINE: "green"}
        for finding in found:
            print(f"{look.paint(f'{finding.kind:8}', colours[finding.kind])}  {finding.text}")
    return 1 if any(finding.kind in bad for finding in found) else 0


def findings(evaluator: PolicyEvaluator, read: Sequence[tuple[str, str]], config: Config) -> list[PolicyFinding]:
    """All that can be said; the last ones say what is fine."""
    found = [PolicyFinding(WRONG, line) for line in told(evaluator.errors)]
    for file, text in read:
        found += _unknown_numbers(file, text)
        found += _unknown_facts(file, text)
    found += [PolicyFinding(DOUBTFUL, line) for line in _unknown_attributes(read, evaluator.rules)]
    found += [PolicyFinding(DOUBTFUL, line) for line in _literal_globs(read, evaluator.rules)]
    found += [PolicyFinding(WRONG, line) for line in _untraceable(evaluator.rules)]
    found += [PolicyFinding(DOUBTFUL, line) for line in never_counts(evaluator.rules, config.max_level)]
    found += _trial(evaluator, config)
    return found


def _unknown_numbers(file: str, text: str) -> Iterable[PolicyFinding]:
    """Names behind `usage.` that are no metric, and no group of them."""
    for number, line in enumerate(text.splitlines(), 1):
        for path in re.findall(r"\busage\.([A-Za-z][\w.]*)", line.partition("--")[0]):
            if problem := unknown_number(path, groups=True):
                yield PolicyFinding(WRONG, f"{file}:{number}: usage.{problem}")


def unknown_number(path: str, groups: bool = False) -> str:
    """Why this is no path of a live number, with the nearest one; empty where it is one, or a group if those count."""
    from condor_joblens.model.metrics import METRICS

    paths = [metric.path for metric in METRICS] + list(LIVE)
    known = {name.lower() for name in paths}
    if groups:
        known |= {name[:at] for name in known for at, letter in enumerate(name) if letter == "."}
    return "" if path.lower() in known else f"{path} is no number of a job{nearest(path, paths)}"


def _unknown_facts(file: str, text: str) -> Iterable[PolicyFinding]:
    """Names behind `slot.` and `node.` that are no facts; a site may have some of its own (STARTD_ATTRS)."""
    known = {"slot": SLOT, "node": NODE}
    for number, line in enumerate(text.splitlines(), 1):
        for root, name in re.findall(r"\b(slot|node)\.([A-Za-z_]\w*)", line.partition("--")[0]):
            near = nearest(name, known[root])
            if name.lower() not in map(str.lower, known[root]) and (near or root == "node"):
                yield PolicyFinding(DOUBTFUL, f"{file}:{number}: {root}.{name} is no fact of a {root}{near}")


def _unknown_attributes(read: Sequence[tuple[str, str]], rules: Sequence[ListedRule]) -> Iterable[str]:
    """Attributes that HTCondor does not write, but nearly."""
    known = {name.lower() for name in JOB_ATTRIBUTES}
    used: dict[tuple[str, int, str], None] = {}
    for file, text in read:
        for number, line in enumerate(text.splitlines(), 1):
            for name in re.findall(r"\bjob\.([A-Za-z_]\w*)", line.partition("--")[0]):
                used[file, number, name] = None
    for rule in rules:
        of_ad = [path for path in rule.paths if path.partition(".")[0].lower() not in ("usage", "slot", "node")]
        words = re.findall(r"(?<![\w.\"])[A-Za-z_]\w*(?![\w.(\"])", rule.expression or "")
        for name in [path.removeprefix("job.").partition(".")[0] for path in of_ad] + words:
            used[rule.file, rule.line, name] = None
    for file, number, name in used:
        near = nearest(name, JOB_ATTRIBUTES) if name.lower() not in known else ""
        if near:
            yield f"{file}:{number}: {name} is no attribute that HTCondor gives a job{near}"


def _untraceable(rules: Sequence[ListedRule]) -> Iterable[str]:
    """What rules want traced and can't be."""
    for rule in rules:
        asked = of_text(rule.trace or "")
        where = f'{rule.file}:{rule.line}: rule "{rule.name}": trace: '
        if asked.refused:
            yield f"{where}{asked.refused}"
        if asked.python_raises:
            yield f"{where}{RAISES} is for +{ATTRIBUTE} alone: a job has begun when its policies decide"


def _literal_globs(read: Sequence[tuple[str, str]], rules: Sequence[ListedRule]) -> Iterable[str]:
    """Texts with a star or question mark that are compared as they stand, and so match nothing."""
    for rule in rules:
        for path, text in rule.literal_globs:
            remedy = f'write {path} = glob "{text}"' if "." not in path else f'write ["{path}"] = glob "{text}"'
            yield f'{rule.file}:{rule.line}: rule "{rule.name}": {path} = "{text}" has no wildcard: {remedy}'
    for file, source in read:
        for number, line in enumerate(source.splitlines(), 1):
            for path, text in re.findall(r"\bjob\.(\w+)\s*[=~]=\s*\"([^\"]*[*?][^\"]*)\"", line.partition("--")[0]):
                yield f'{file}:{number}: job.{path} == "{text}" has no wildcard: write job.{path}:glob "{text}"'


def never_counts(rules: Sequence[ListedRule], maximum: Level) -> list[str]:
    """Rules whose level or cap can't have an effect, by others that always match, or by the site's cap."""
    lines = []
    always = [rule for rule in rules if not rule.conditional and rule.for_seconds is None]
    for rule in rules:
        where = f'{rule.file}:{rule.line}: rule "{rule.name}": '
        later = [other for other in always if other.index > rule.index]
        if rule.level and _all_later(rule, later):
            lines.append(f"{where}never counts: {_name(_all_later(rule, later))} always matches and comes later")
        level = Level[rule.level.upper()] if rule.level and rule.level != REQUESTED else None
        if level is not None and level > maximum:
            above = f"level = {rule.level} is above JOBLENS_MAX_LEVEL = {maximum.word}"
            lines.append(f"{where}{above}: it gives {maximum.word}")
        if level is not None and rule.cap and Level[rule.cap.upper()] < level:
            lines.append(f"{where}level = {rule.level} is above its own cap = {rule.cap}")
        lines += [f"{where}{line}" for line in _caps(rule, level, rules, later)]
        if rule.trace and maximum < Level.TRACE:
            lines.append(f"{where}trace never counts: JOBLENS_MAX_LEVEL = {maximum.word} is below trace")
    return lines


def _all_later(rule: ListedRule, later: Sequence[ListedRule]) -> ListedRule | None:
    """The rule that takes the level of this one away from every job; None where this one says anything else."""
    if any(
        value is not None
        for value in (
            rule.cap,
            rule.period,
            rule.sinks,
            rule.report,
            rule.trace,
            rule.priority,
            rule.max_jobs,
            rule.max_share,
        )
    ):
        return None
    same = [other for other in later if other.level and (other.level == REQUESTED) == (rule.level == REQUESTED)]
    return same[-1] if same else None


def _caps(
    rule: ListedRule, level: Level | None, rules: Sequence[ListedRule], later: Sequence[ListedRule]
) -> Iterable[str]:
    caps = [other for other in rules if other.cap]
    final = caps[-1] if caps and not caps[-1].conditional and caps[-1].for_seconds is None else None
    if level is not None and final is not None and final is not rule and Level[str(final.cap).upper()] < level:
        yield f"level = {rule.level} is never reached: {_name(final)} caps every job at {final.cap}"
    if rule.cap is None:
        return
    for other in later:
        if other.cap:
            yield f"cap = {rule.cap} never counts: {_name(other)} caps every job at {other.cap}, and comes later"
            return
    for other in caps:
        if other.index > rule.index and Level[str(other.cap).upper()] > Level[rule.cap.upper()]:
            yield f"cap = {rule.cap} is taken back by {_name(other)}, cap = {other.cap}, for jobs that match both"


def _name(rule: ListedRule | None) -> str:
    return f'"{rule.name}" ({rule.file}:{rule.line})' if rule else ""


def _trial(evaluator: PolicyEvaluator, config: Config) -> list[PolicyFinding]:
    """The rules on a plain job, with and without live numbers: errors, and time."""
    if not evaluator.rules:
        return []
    from condor_joblens.model.metrics import METRICS

    facts = {"slot": {"Name": "slot1_1@node"}, "default": config.default_level.word, "max": config.max_level.word}
    usage = {**dict.fromkeys([metric.path for metric in METRICS], 1.0), **dict.fromkeys(LIVE, 1.0)}
    lines: dict[str, None] = {}
    seconds = []
    try:
        for number in range(41):
            answer = evaluator.decide(SAMPLE, **facts, **({"usage": usage} if number % 2 else {}), clock=True)
            seconds.append(answer["cpu_seconds"])
            lines.update(dict.fromkeys(told(answer["errors"])))
    except EvaluationFailed as error:
        return [PolicyFinding(WRONG, f"on a plain job: {error}")]
    found = [PolicyFinding(WRONG, f"on a plain job: {line}") for line in lines]
    used, allowed = statistics.median(seconds[1:]) * 1000, config.policy_cpu_milliseconds
    kind = FINE if used < allowed / 4 else DOUBTFUL
    count = "one rule takes" if len(evaluator.rules) == 1 else f"{len(evaluator.rules)} rules take"
    time = f"{count} {used:.2f} ms of CPU a job"
    return [*found, PolicyFinding(kind, f"{time}; JOBLENS_POLICY_CPU_MILLISECONDS allows {allowed}")]


def nearest(wrong: str, names: Iterable[str]) -> str:
    """`: did you mean X?`, where one of these names is near."""
    import difflib

    lowered = {name.lower(): name for name in names}
    near = difflib.get_close_matches(wrong.lower(), lowered, n=1, cutoff=0.8)
    return f": did you mean {lowered[near[0]]}?" if near else ""
