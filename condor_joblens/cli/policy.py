"""`joblens policy`: what the policies say, whether that is what they should, and what it would have cost."""

from __future__ import annotations

import argparse
import importlib
import os
from dataclasses import dataclass

from condor_joblens.common import condor_config, config_parser
from condor_joblens.common.config import Config
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.policy.policy_files import read_policies

VERBS = {
    "check": "mistakes, unknown names, rules that never count, caps that collide, time, levels that triggers need; "
    "exit code 1 where one is wrong",
    "test": "the cases beside policies and triggers, and what is expected; exit code 1 where one fails",
    "explain": "each rule in order for one job: whether it matched, what it read, and what won",
    "simulate": "what the policies would have done with the jobs of a history, and what that would have cost; or what "
    "triggers would have done about recorded events",
}


@dataclass(frozen=True)
class Site:
    """The configuration in force, or the defaults with what is wrong."""

    config: Config
    problem: str = ""


def run(options: argparse.Namespace) -> int:
    """Runs one of the verbs; exit code 0 or 1."""
    return int(importlib.import_module(f"condor_joblens.cli.policy_{options.verb}").run(options))


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The verbs and what they take."""
    verbs = command.add_subparsers(dest="verb", metavar="VERB", required=True)
    parsers = {name: verbs.add_parser(name, help=help, description=help) for name, help in VERBS.items()}
    for parser in parsers.values():
        parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON, for programs")
    for name in ("check", "test"):
        parsers[name].add_argument(
            "folders", nargs="*", metavar="DIR", help="folders of policies, where it is not JOBLENS_POLICY_DIR"
        )
    for name in ("explain", "simulate"):
        help = "instead of JOBLENS_POLICY_DIR; repeatable"
        parsers[name].add_argument("--policies", action="append", dest="folders", metavar="DIR", help=help)
    for name in ("check", "test", "simulate"):
        help = "triggers in this folder, instead of those in JOBLENS_TRIGGERS; repeatable. Policies only if named too"
        parsers[name].add_argument("--triggers", action="append", metavar="DIR", help=help)
    parsers["check"].add_argument("--strict", action="store_true", help="exit code 1 for what is only doubtful, too")
    help = "a job (12.0) of this node or access point, a file with its ad, or - for standard input"
    parsers["explain"].add_argument("job", metavar="JOB|FILE|-", help=help)
    parsers["explain"].add_argument("--now", metavar="'YYYY-MM-DD HH:MM'", help="as if it were then")
    help = "a live number, Cpu.RecentCores=0.01; repeatable"
    parsers["explain"].add_argument("--usage", action="append", default=[], metavar="PATH=NUMBER", help=help)
    source = parsers["simulate"].add_mutually_exclusive_group(required=True)
    source.add_argument("--history", metavar="FILE|-", help="what condor_history -l or -json printed: for policies")
    source.add_argument("--events", metavar="FILE", help="what the sink `file` has recorded: for triggers")


def site() -> Site:
    """The configuration that HTCondor has, or the defaults where it can't be asked."""
    try:
        found = condor_config.read_with_sources()
    except JobLensError as error:
        return Site(Config(), f"{error}; the defaults count")
    parsed, problems = config_parser.parse(condor_config.values(found))
    return Site(parsed, "; ".join(problems[:1]))


def policies(folders: list[str] | None, site: Site) -> tuple[list[tuple[str, str]], list[str]]:
    """(file, text) of the policies in these folders, or in those of the configuration; and what is wrong with them.

    Raises JobLensError where there is none at all, or where one of `folders` is no folder.
    """
    for folder in folders or []:
        if os.path.isfile(folder):
            raise JobLensError(f"{printable(folder)} is a file: name its folder, {os.path.dirname(folder) or '.'}")
        if not os.path.isdir(folder):
            raise JobLensError(f"there is no folder {printable(folder)}")
    read, problems = read_policies(folders or site.config.policy_dir)
    if not read and not problems:
        looked = ", ".join(folders or site.config.policy_dir)
        raise JobLensError(f"there is no policy in {looked}: that is a file whose name ends in .lua")
    return read, problems
