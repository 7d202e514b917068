"""`joblens policy test`: the cases beside the policies."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from condor_joblens.cli import trigger_cases
from condor_joblens.cli.policy import policies, site
from condor_joblens.cli.policy_cases import BadCase, Case, parse_cases, problem_of
from condor_joblens.cli.policy_evaluator import PolicyEvaluator, told
from condor_joblens.cli.terminal import style
from condor_joblens.cli.trigger_evaluator import TriggerEvaluator, triggers
from condor_joblens.common.errors import JobLensError, printable

T = TypeVar("T")

GRANTING = ("(granting)", 'rule "as asked" { level = "requested" }')
"""Cases of one policy are judged as if requests were granted, as 10-default.lua does, unless it is that policy."""


@dataclass(frozen=True)
class Result:
    """One case, and what is wrong with it; empty: nothing."""

    file: str
    line: int  # of the case, or where it fails
    case: str  # its name; empty: the file itself
    problem: str


def run(options: argparse.Namespace) -> int:
    """Prints which cases failed, and why; exit code 1 where one did, or where a policy has a mistake."""
    here = site()
    results: list[Result] = []
    problems: list[str] = []
    paths: list[Path] = []
    folders: list[str] = []
    if options.folders or not options.triggers:
        folders += options.folders or here.config.policy_dir
        read, problems = policies(folders, here)
        paths = case_files(folders)
        results += [result for path in paths for result in results_of(path, read)]
    if options.triggers or not options.folders:
        theirs = options.triggers or [folder for folder in here.config.triggers if Path(folder).is_dir()]
        read, more = triggers(theirs, here) if theirs else ([], [])
        folders, problems = [*folders, *theirs], [*problems, *more]
        found = case_files(theirs)
        results += [result for path in found for result in results_of_triggers(path, read)]
        paths += found
    if not results and not problems:
        raise JobLensError(f"there are no cases (NAME.cases beside NAME.lua) in {', '.join(folders)}")
    failed = [result for result in results if result.problem]
    if options.json:
        print(json.dumps({"problems": problems, "cases": [asdict(result) for result in results]}, indent=2))
    else:
        look = style()
        for problem in problems:
            print(f"{look.paint('wrong', 'red')}   {problem}")
        for result in failed:
            case = f"[{result.case}] " if result.case else ""
            print(f"{look.paint('failed', 'red')}  {result.file}:{result.line}: {case}{result.problem}")
        good = len(results) - len(failed)
        print(f"{good} of {len(results)} cases of {len(paths)} files are as expected")
    return 1 if failed or problems else 0


def case_files(folders: Sequence[str]) -> list[Path]:
    """All *.cases in these folders, by name. Raises JobLensError where one can't be listed."""
    try:
        return [path for folder in folders for path in sorted(Path(folder).iterdir()) if path.suffix == ".cases"]
    except OSError as error:
        raise JobLensError(f"{error.filename}: {error.strerror}") from None


def results_of(path: Path, read: Sequence[tuple[str, str]]) -> list[Result]:
    """The cases of a file: by the policy of its name, or by all where there is none of its name."""
    own = [(file, text) for file, text in read if file == f"{path.stem}.lua"]
    cases, unread = _read_cases(path, parse_cases)
    if unread is not None:
        return [unread]
    results = []
    with PolicyEvaluator([GRANTING, *own] if own and not _grants(own[0][1]) else own or read) as evaluator:
        if evaluator.errors:
            return [Result(path.name, 1, "", line) for line in told(evaluator.errors)]
        for case in cases:
            line, problem = _problem(evaluator, case)
            results.append(Result(path.name, line, case.name, problem))
            evaluator.forget_all()
    return results


def results_of_triggers(path: Path, read: Sequence[tuple[str, str]]) -> list[Result]:
    """The same of a file with cases of triggers."""
    own = [(file, text) for file, text in read if file == f"{path.stem}.lua"]
    cases, unread = _read_cases(path, trigger_cases.parse_cases)
    if unread is not None:
        return [unread]
    results = []
    with TriggerEvaluator(own or read) as evaluator:
        if evaluator.loaded.errors:
            return [Result(path.name, 1, "", line) for line in evaluator.loaded.errors]
        for case in cases:
            evaluator.forget_all()
            line, problem = trigger_cases.problem_of(evaluator, case)
            results.append(Result(path.name, line, case.name, problem))
    return results


def _read_cases(path: Path, parse: Callable[[str], Sequence[T]]) -> tuple[Sequence[T], Result | None]:
    """The cases of a file, or why it can't be read."""
    try:
        return parse(path.read_text(encoding="utf-8")), None
    except OSError as error:
        line, why = 1, error.strerror or "can't be read"
    except UnicodeDecodeError as error:
        line, why = error.object[: error.start].count(b"\n") + 1, "is not UTF-8: save it as UTF-8"
    except BadCase as error:
        line, why = error.line, printable(str(error), 300)
    return (), Result(path.name, line, "", why)


def _grants(text: str) -> bool:
    return '"as asked"' in text


def _problem(evaluator: PolicyEvaluator, case: Case) -> tuple[int, str]:
    try:
        return problem_of(evaluator, case)
    except JobLensError as error:
        evaluator.start_again()
        return case.line, str(error)
