"""`joblens policy explain`: each rule for one job, in order: whether it matched, what it read, and what won."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from condor_joblens.cli import accesspoint, units
from condor_joblens.cli.job_attributes import JOB_ATTRIBUTES
from condor_joblens.cli.policy import Site, policies, site
from condor_joblens.cli.policy_ads import MAX_AD, ads
from condor_joblens.cli.policy_cases import epoch
from condor_joblens.cli.policy_check import LIVE, unknown_number
from condor_joblens.cli.policy_evaluator import EvaluationFailed, PolicyEvaluator, told
from condor_joblens.cli.terminal import Style, style
from condor_joblens.common.condor_commands import ask
from condor_joblens.common.errors import JobLensError, UsageError, printable
from condor_joblens.model.levels import SITE_DEFAULT

KINDS = {"j": "", "e": "", "s": "slot.", "n": "node.", "u": "usage."}


def run(options: argparse.Namespace) -> int:
    """Prints what each rule says to a job; exit code 0."""
    here = site()
    read, problems = policies(options.folders, here)
    ad, usage, source = find(options.job)
    usage.update(dict(map(_number, options.usage)))
    with PolicyEvaluator(read) as evaluator:
        facts = _facts(here, options.now, usage)
        try:
            answer = evaluator.decide(ad, **facts, trace=True)
        except EvaluationFailed as error:
            raise JobLensError(f"{printable(source)}: {error}") from None
        mistakes = problems + told(evaluator.errors)
    if options.json:
        print(json.dumps({"Source": source, "Mistakes": mistakes, "Decision": answer}, indent=2))
    else:
        print("\n".join(lines(answer, source, mistakes, here, style())))
    return 0


def find(job: str) -> tuple[bytes, dict[str, float], str]:
    """The ad that JOB, FILE or - means, its live numbers where they are known, and where it was found.

    Raises JobLensError where there is none.
    """
    if job == "-":
        return _first(sys.stdin.buffer.read(16 * MAX_AD), "standard input"), {}, "standard input"
    if os.path.exists(job):
        try:
            with Path(job).open("rb") as file:
                return _first(file.read(16 * MAX_AD), job), {}, job
        except OSError as error:
            raise JobLensError(f"{printable(job)}: {error.strerror}") from None
    return _of_job(job)


def _first(text: bytes, source: str) -> bytes:
    ad = next(ads(io.BytesIO(text)), None)
    if ad is None:
        raise JobLensError(f"{printable(source)} has no ad")
    return ad


def _of_job(job: str) -> tuple[bytes, dict[str, float], str]:
    """The ad from the access point's queue or history; the live numbers from this node, where it runs here."""
    selection = accesspoint.selection(job)
    if selection is None:
        raise UsageError(f"{printable(job)} is no file, and no job's name: 12.0, or a GlobalJobId")
    for command in (["condor_q", "-allusers", "-l"], ["condor_history", "-match", "1", "-l"]):
        told_ads = ask(command[0], *command[1:], *selection, timeout=30)
        ad = next(ads(io.BytesIO(told_ads.encode())), None)
        if ad is not None:
            return ad, _live(job), command[0]
    raise JobLensError(f"no job {printable(job)} in this access point's queue or history: give a file with its ad")


def _live(job: str) -> dict[str, float]:
    """The numbers that this node has of it; none where it does not run here."""
    from condor_joblens.cli.job import names_run
    from condor_joblens.cli.runs import living, run_dir

    try:
        runs = [run for run in living(run_dir(None))[0] if names_run(job, run)]
    except JobLensError:
        return {}
    return dict(runs[-1].numbers) if runs else {}


def _facts(here: Site, now: str | None, usage: dict[str, float]) -> dict[str, Any]:
    try:
        clock = epoch(now) if now else time.time()
    except ValueError:
        raise UsageError(f"--now {printable(now or '')} is no time: write '2026-11-21 23:30'") from None
    config = here.config
    facts: dict[str, Any] = {"slot": {}, "default": config.default_level.word, "max": config.max_level.word}
    return {**facts, "now": clock, **({"usage": usage} if usage else {})}


def _number(text: str) -> tuple[str, float]:
    path, equals, value = text.partition("=")
    try:
        number = float(value if equals else "")
    except ValueError:
        raise UsageError(f"--usage {printable(text)}: write Cpu.RecentCores=0.01") from None
    if problem := unknown_number(path.strip()):
        raise UsageError(f"--usage {printable(text)}: {printable(problem, 200)}")
    return path.strip(), number


def lines(answer: dict[str, Any], source: str, mistakes: list[str], here: Site, look: Style) -> list[str]:
    """The story of one decision."""
    from condor_joblens.model.metrics import METRICS

    said = [look.paint(f"wrong     {line}", "red") for line in mistakes]
    if here.problem:
        said.append(f"note      {here.problem}")
    said.append(f"ad        from {source}")
    written = {name.lower(): name for name in (*JOB_ATTRIBUTES, *(metric.path for metric in METRICS), *LIVE)}
    width = max((len(rule["rule"]) for rule in answer["trace"]), default=0)
    winner = "" if answer["reason"] == SITE_DEFAULT else answer["policy"]
    for rule in answer["trace"]:
        mark = look.paint("matches ", "green") if rule["matched"] else "       -"
        won = look.paint("  <- has the last word", "bold") if rule["rule"] == winner else ""
        why = f"  ({rule['why']})" if rule["why"] else ""
        said.append(f"{mark}  {rule['rule']:{width}}  {rule['file']}:{rule['line']}{why}{won}")
        said += [
            f"{'':10}{'':{width}}  {_read(key, written)} = {value}" for key, value in rule["reads"] if value != "..."
        ]
    wish = f" (asked: {answer['written']})" if answer["written"] else ""
    by = f' by "{winner}"' if winner else ""
    said.append(f"decision  {look.paint(answer['level'], 'bold')}{by}: {answer['reason'] or 'no reason given'}{wish}")
    said.append(f"cap       {answer['cap']} (JOBLENS_MAX_LEVEL = {here.config.max_level.word})")
    for name in ("period", "sinks", "report", "traced", "quota", "until"):
        if answer[name] is not None:
            said.append(f"{name:8}  {_shown(name, answer[name])}")
    return said


def _read(key: str, written: dict[str, str]) -> str:
    """What a rule has read, as people write it."""
    kind, name = key[0], key[2:]
    if kind == "k":
        days, _, what = name.partition(":")
        return f'seen("{printable(what, 80)}", {days})'
    return printable(KINDS.get(kind, "") + written.get(name, name))


def _shown(name: str, value: Any) -> str:
    if name == "until":
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value)) + ": asked again then"
    if name == "quota":
        return _quota(value)
    if name == "traced":
        return printable(value, 1000) or "no function"
    if name == "report":
        return "true" if value else "false"
    return ", ".join(value) if isinstance(value, list) else f"{value:g} s"


def _quota(quota: dict[str, Any]) -> str:
    """`at most 4 jobs of alice closer than basic, by rule few a user`."""
    whose = f" of {quota['whose'] or 'no ' + quota['per']}" if quota["per"] else ""
    parts = [units.count(int(quota["jobs"]), "job")] if quota["jobs"] is not None else []
    parts += [f"{100 * quota['share']:g} % of the node's jobs"] if quota["share"] is not None else []
    return f"at most {' and '.join(parts)}{whose} closer than basic, by rule {quota['rule']}"
