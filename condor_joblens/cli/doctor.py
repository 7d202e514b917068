"""`joblens doctor`: every precondition on a line of its own, with the remedy."""

from __future__ import annotations

import argparse
import collections
import contextlib
import re
import signal
import sys
from collections.abc import Collection, Iterator
from types import FrameType

from condor_joblens.cli import bug_report, units
from condor_joblens.cli.checks import (
    daemons,
    event_log,
    from_afar,
    htcondor,
    kernel,
    programs,
    sinks,
    staff_keys,
    versions,
)
from condor_joblens.cli.checks.checked_node import REPORTED, Check, CheckedNode, Finding, State, fail, warn
from condor_joblens.cli.terminal import Style, style
from condor_joblens.common.errors import JobLensError, printable

PATIENCE = 30
"""Seconds for one check: a file of a dead network file system may never answer."""

Checks = tuple[tuple[str, Check], ...]

ALWAYS: Checks = (("user", kernel.user), ("configuration", htcondor.configuration))
CONFIGURED: Checks = (("HTCondor", htcondor.version), ("knobs", htcondor.knobs))
KERNEL: Checks = (
    ("kernel", kernel.kernel),
    ("BTF", kernel.btf),
    ("capabilities", kernel.capabilities),
    ("lockdown", kernel.lockdown),
    ("SELinux", kernel.selinux),
    ("cgroups", kernel.cgroups),
    ("pressure", kernel.pressure),
    ("bpffs", kernel.bpffs),
    ("unprivileged BPF", kernel.unprivileged_bpf),
    ("looks at jobs", kernel.looks_at_jobs),
    ("failed calls", kernel.failed_calls),
    ("our files", kernel.objects),
)
EXECUTE_NODE: Checks = (
    ("daemons", htcondor.daemons),
    ("wrapper", htcondor.wrapper),
    ("chained wrapper", htcondor.chained_wrapper),
    ("cron hook", htcondor.cron),
    ("usage door", htcondor.usage_door),
    ("startd attributes", htcondor.startd_attributes),
    ("starter interval", htcondor.starter_interval),
    ("policies", htcondor.policies),
    ("triggers", htcondor.triggers),
    ("startd", htcondor.startd),
    ("entries", from_afar.entries),
    ("staff keys", staff_keys.staff_keys),
    ("accounts", daemons.accounts),
    ("joblensd", daemons.joblensd),
    ("versions", versions.versions),
    ("reconfigured", versions.reconfigured),
    ("last row", daemons.freshness),
    ("socket", daemons.activation),
    ("source", programs.source),
    ("level basic", programs.basic),
    ("level io", programs.io),
    ("this kernel gives", programs.gives),
    ("pins", daemons.pins),
    ("cost", programs.costs),
    ("publisher", daemons.publisher),
    ("exporter", daemons.exporter),
    ("sinks", sinks.sinks),
    ("Prometheus page", sinks.open_page),
)
ACCESS_POINT: Checks = (
    ("shadow interval", htcondor.shadow_interval),
    ("job attributes", htcondor.attributes),
    ("sizing", htcondor.sizing),
    ("door", from_afar.door),
    ("event log", event_log.event_log),
)
EITHER: Checks = (("relay", from_afar.relay),)

NOT_FOR_POOL = ("user", "sinks")
"""What only root can say: joblens_publish asks for the rest, as HTCondor's own user."""

Result = tuple[str, Finding]
"""What was looked at, and what was found."""

_COLOURS = {State.OK: "green", State.WARN: "yellow", State.FAIL: "red"}


def run(options: argparse.Namespace) -> int:
    """Prints every finding; exit code 1 where one of them is FAIL."""
    node, look = CheckedNode(options.root, options.run_dir, cost_seconds=options.costs), style()
    results = []
    for result in examine(node, NOT_FOR_POOL if options.for_pool else ()):
        if options.for_pool and result[1].unseen:
            continue
        results.append(result)
        if not options.json:
            # one by one: a check that takes long does not hold up what is known
            print("\n".join(lines(*result, look)))
            sys.stdout.flush()
    print(_json(results) if options.json else summary(results, look))
    if options.bundle:
        plain = [line for result in results for line in lines(*result, Style())]
        names = bug_report.write(options.bundle, node, "\n".join([*plain, summary(results, Style()), ""]))
        what = f"{units.count(len(names), 'file')}, no secret; the logs name jobs: look at them before you send it"
        print(f"{printable(options.bundle, 400)}: {what}", file=sys.stderr)
    return int(any(finding.state is State.FAIL for _, finding in results))


def checks(node: CheckedNode) -> Iterator[tuple[str, Check]]:
    """What is to be looked at by the machine's roles, and where those can't be known the kernel."""
    yield from ALWAYS
    known, roles = bool(node.words("DAEMON_LIST")), htcondor.roles(node)
    if known:
        yield from CONFIGURED
    if "execute node" in roles or not known:
        yield from KERNEL
    if "execute node" in roles:
        yield from EXECUTE_NODE
    if "access point" in roles:
        yield from ACCESS_POINT
    if roles:
        yield from EITHER


def examine(node: CheckedNode, without: Collection[str] = ()) -> Iterator[Result]:
    """Looks at everything but `without`. Nothing that a check meets ends this, or makes it wait beyond PATIENCE."""
    there = _found_there(node)
    for what, check in checks(node):
        if what in without:
            continue
        node.missed.clear()
        found = _patiently(check, node)
        if node.missed and any(finding.state is not State.OK for finding in found):
            found = there.get(what, [_NOT_THERE])
        for finding in found:
            yield what, finding


_NOT_THERE = Finding(State.WARN, "what this looks at is not in a bug report", unseen=True)


def _found_there(node: CheckedNode) -> dict[str, list[Finding]]:
    """By check, what doctor found on the machine that a bug report is of."""
    found: dict[str, list[Finding]] = {}
    for line in (node.read(f"/{REPORTED}") or "").splitlines() if node.is_report else ():
        if match := _LINE.fullmatch(line):
            state, what, text, remedy = (printable(part or "", 2000) for part in match.groups())
            found.setdefault(what, []).append(Finding(State(state), f"{text} (as it was found there)", remedy))
    return found


_LINE = re.compile(r"(ok|warn|FAIL) +([^:]{1,40}): (.*?)(?:  -> (.*))?")
"""As `lines` makes them."""


def _patiently(check: Check, node: CheckedNode) -> list[Finding]:
    found: list[Finding] = []
    try:
        with _at_most(PATIENCE):
            for finding in check(node):
                found.append(finding)
    except PermissionError as error:
        what = f"{printable(str(error.filename), 200)} may not be read by this user"
        found.append(Finding(State.WARN, what, "run it as root", unseen=True))
    except _TooSlow:
        found.append(warn(f"no answer within {PATIENCE} s", "is a file system or a daemon of HTCondor's stuck?"))
    except JobLensError as error:
        text, _, remedy = str(error).rpartition(": ")  # as every JobLensError that has a remedy
        found.append(fail(text, remedy) if text else fail(remedy, "mend what it names"))
    except OSError as error:
        found.append(warn(printable(str(error), 200), "tell us, with what it says"))
    return found


class _TooSlow(Exception):
    pass


@contextlib.contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    def give_up(number: int, frame: FrameType | None) -> None:
        raise _TooSlow

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def lines(what: str, finding: Finding, look: Style) -> list[str]:
    """`ok    kernel: 6.12.1`, `FAIL  wrapper: ... -> ...`."""
    state = finding.state.value.ljust(6)
    text = f"{what}: {finding.text}"
    line = f"{state}{text}  -> {finding.remedy}" if finding.remedy else state + text
    page = [line]
    if len(line) > look.width:
        page = look.wrapped(text, state) + (look.wrapped(finding.remedy, " " * 6 + "-> ") if finding.remedy else [])
    return [look.paint(state, _COLOURS[finding.state]) + page[0][len(state) :], *page[1:]]


def summary(results: list[Result], look: Style) -> str:
    """`24 ok, 2 warnings, 1 failure`."""
    states = collections.Counter(finding.state for _, finding in results)
    worst = next(state for state in (State.FAIL, State.WARN, State.OK) if states[state] or state is State.OK)
    warnings, failures = units.count(states[State.WARN], "warning"), units.count(states[State.FAIL], "failure")
    words = f"{states[State.OK]} ok, {warnings}, {failures}"
    return look.paint(words, "bold", _COLOURS[worst])


def _json(results: list[Result]) -> str:
    import json

    return json.dumps(
        [
            {"Check": what, "State": finding.state.value, "Finding": finding.text, "Remedy": finding.remedy}
            for what, finding in results
        ],
        indent=2,
    )
