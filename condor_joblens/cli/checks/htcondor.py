"""What HTCondor's configuration must say, and the files that it names."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator

from condor_joblens.cli.checks.checked_node import CheckedNode, Finding, fail, ok, warn
from condor_joblens.common import condor_config, config, config_parser
from condor_joblens.common import sizing as sizing_figures
from condor_joblens.common.errors import JobLensError, printable

EP_SNIPPET, AP_SNIPPET = "50-joblens-ep.conf", "50-joblens-ap.conf"
CHAINED_WRAPPER = "/etc/joblens/chained_wrapper"
WRAPPER, HELPER = "joblens_wrapper", "joblens_activate"
_FOLDER = "joblens_python"
_AND_CALLS = "joblens_python_calls"
IN_PYTHONS = (
    *(_FOLDER, f"{_FOLDER}/sitecustomize.py", f"{_FOLDER}/{_FOLDER}.so"),
    *(_AND_CALLS, f"{_AND_CALLS}/sitecustomize.py", f"{_AND_CALLS}/{_FOLDER}.so", f"{_AND_CALLS}/joblens_calls.so"),
)
"""What is loaded into Pythons of jobs that ask for it, beside the wrapper."""

STARTD_ATTRIBUTES = ("CondorScratchDir", "NumShadowStarts")

STARTER_INTERVAL = float(sizing_figures.HTCONDORS_STARTER_INTERVAL)
"""STARTER_UPDATE_INTERVAL where nobody sets it, seconds."""

SHADOW_INTERVAL = float(sizing_figures.HTCONDORS_SHADOW_INTERVAL)
"""SHADOW_QUEUE_UPDATE_INTERVAL where nobody sets it, seconds."""

STARTER_FIRST = 8.0
"""STARTER_INITIAL_UPDATE_INTERVAL where nobody sets it, seconds."""

SLOW = 90.0
"""Seconds of an interval beyond which a person thinks that nothing comes."""


def configuration(node: CheckedNode) -> Iterator[Finding]:
    """Whether HTCondor can be asked, and what it runs here."""
    daemons = [printable(word) for word in node.words("DAEMON_LIST")]
    if not daemons:
        why = node.trouble or "DAEMON_LIST is not set"
        yield fail(f"HTCondor can't be asked: {why}", "install it, or put its commands into the PATH")
    elif roles(node):
        yield ok(f"{' and '.join(sorted(roles(node)))} (DAEMON_LIST: {' '.join(daemons)})")
    else:
        yield warn(
            f"neither STARTD nor SCHEDD is in DAEMON_LIST ({' '.join(daemons)}): JobLens has no use here",
            "install JobLens on execute nodes and access points",
        )


def roles(node: CheckedNode) -> set[str]:
    """`execute node`, `access point`, both or none, by what DAEMON_LIST has."""
    daemons = node.words("DAEMON_LIST")
    names = {"STARTD": "execute node", "SCHEDD": "access point"}
    return {role for daemon, role in names.items() if daemon in daemons}


def version(node: CheckedNode) -> Iterator[Finding]:
    """The shadow accepts `JobLensUsage` from the starter in every version that was looked at: 23 and on."""
    told = node.ask("condor_version")
    match = re.search(r"CondorVersion: (\d+)\.(\d+)\.(\d+)", told)
    if match is None:
        yield warn(f"condor_version says {printable(told)}", "see docs/admin.md for the versions that were tried")
    elif int(match[1]) >= 23:
        yield ok(".".join(match.groups()))
    else:
        yield warn(
            f"{'.'.join(match.groups())}: whether its shadow accepts JobLensUsage was not tried",
            "take 23 or later",
        )


def knobs(node: CheckedNode) -> Iterator[Finding]:
    """What config_parser finds wrong with ours."""
    problems = config_parser.parse(condor_config.values(node.macros))[1]
    for problem in problems:
        text, _, remedy = problem.rpartition(": ")
        yield warn(text + where_set(node, problem), remedy)
    if not problems:
        ours = sum(name.startswith(config.PREFIX) for name in node.macros)
        yield ok(f"{ours} macros of ours, all understood")


def where_set(node: CheckedNode, problem: str) -> str:
    """` (/etc/condor/config.d/60-site.conf, line 3)`: where the macro that begins a sentence is set."""
    name = re.match(r"\w+", problem)
    macro = node.macros.get(name[0].upper()) if name else None
    return f" ({printable(macro.source, 200)})" if macro is not None and macro.source else ""


def daemons(node: CheckedNode) -> Iterator[Finding]:
    """condor_master starts both."""
    listed = node.words("DAEMON_LIST")
    if "JOBLENSD" not in listed:
        yield fail("JOBLENSD is not in DAEMON_LIST", f"install {EP_SNIPPET}, then condor_reconfig")
        return
    program = node.macro("JOBLENSD")
    if not program:
        yield fail("JOBLENSD is in DAEMON_LIST and not defined", f"install {EP_SNIPPET}, then condor_reconfig")
    elif why := unusable(node, program):
        yield fail(f"JOBLENSD = {printable(program)}: {why}", "make install")
    elif "JOBLENS_EXPORT" not in listed:
        yield warn("JOBLENSD alone: there is no Prometheus page", f"install {EP_SNIPPET} for JOBLENS_EXPORT")
    else:
        yield ok("JOBLENSD and JOBLENS_EXPORT")


def unusable(node: CheckedNode, program: str) -> str:
    """Why a program that everybody's jobs depend on can't be used; nothing where it can."""
    try:
        status = os.stat(node.path(program))
    except (FileNotFoundError, NotADirectoryError):
        return "is missing"
    if not stat.S_ISREG(status.st_mode):
        return "is no file"
    if status.st_mode & 0o111 != 0o111:
        return f"can't be executed by everybody (mode {status.st_mode & 0o7777:o})"
    return _unsafe(node, status)


def _unsafe(node: CheckedNode, status: os.stat_result) -> str:
    if status.st_uid != node.administrator:
        return f"belongs to uid {status.st_uid}, who is not root"
    if status.st_mode & 0o022:
        return f"can be written by others than root (mode {status.st_mode & 0o7777:o})"
    return ""


def wrapper(node: CheckedNode) -> Iterator[Finding]:
    """In place, executable and configured. A wrapper that is missing makes every job start again for ever."""
    program = node.macro("USER_JOB_WRAPPER")
    if not program:
        yield warn(
            "USER_JOB_WRAPPER is not set: jobs are counted from their cgroup's birth, not from a handshake",
            f"install {EP_SNIPPET}, then condor_reconfig",
        )
    elif why := unusable(node, program):
        yield fail(
            f"USER_JOB_WRAPPER = {printable(program, 160)}: {why}, so that no job can start",
            "make install, or take the macro away, then condor_reconfig",
        )
    elif os.path.basename(program) != WRAPPER:
        chained = program == _first_line(node.read(CHAINED_WRAPPER))
        yield warn(
            f"USER_JOB_WRAPPER = {printable(program, 160)} ({printable(node.macros['USER_JOB_WRAPPER'].source, 200)}) "
            "is not ours",
            "take that line away, so that ours runs it, then condor_reconfig"
            if chained
            else f"name it in {CHAINED_WRAPPER} and {WRAPPER} in its place, then condor_reconfig",
        )
    elif why := unusable(node, os.path.join(os.path.dirname(program), HELPER)):
        yield warn(f"{HELPER} beside {printable(program, 160)} {why}: the jobs run, untold of", "make install")
    elif why := _unloadable(node, os.path.dirname(program)):
        yield warn(
            f"{why}: of Pythons whose jobs ask for +JobLensTrace nothing is told, or more than ours", "make install"
        )
    else:
        yield ok(printable(program, 160))


def _unloadable(node: CheckedNode, folder: str) -> str:
    """What is wrong with what is loaded into Pythons; nothing if all is there, and root's alone."""
    for name in IN_PYTHONS:
        try:
            status = os.stat(node.path(os.path.join(folder, name)))
        except (FileNotFoundError, NotADirectoryError):
            return f"{name} beside {WRAPPER} is missing"
        if why := _unsafe(node, status):
            return f"{name} beside {WRAPPER} {why}"
    return ""


def chained_wrapper(node: CheckedNode) -> Iterator[Finding]:
    """The one that the site had before."""
    try:
        status = os.stat(node.path(CHAINED_WRAPPER))
    except (FileNotFoundError, NotADirectoryError):
        yield ok(f"none ({CHAINED_WRAPPER} is absent)")
        return
    if why := _unsafe(node, status):
        yield fail(f"{CHAINED_WRAPPER} {why}, so that it is not used", f"chown root, chmod 644 {CHAINED_WRAPPER}")
        return
    if not status.st_mode & 0o004:
        what = f"{CHAINED_WRAPPER} can't be read by everybody (mode {status.st_mode & 0o7777:o}): jobs run without it"
        yield fail(what, f"chmod 644 {CHAINED_WRAPPER}")
        return
    program = _first_line(node.read(CHAINED_WRAPPER))
    named = f"{CHAINED_WRAPPER} names {printable(program, 160) or 'nothing'}"
    if not program.startswith("/"):
        yield fail(f"{named}, which is no absolute path", "write the path of the site's wrapper, or remove it")
    elif why := unusable(node, program):
        yield fail(f"{named}, which {why}: jobs run without it", "repair the wrapper, or remove the file")
    elif os.path.basename(program) == WRAPPER and _same_file(node, program, node.macro("USER_JOB_WRAPPER")):
        yield fail(f"{named}, which is our own", f"remove {CHAINED_WRAPPER}, or name the site's wrapper")
    else:
        yield ok(printable(program, 160))


def _first_line(text: str | None) -> str:
    return (text or "").partition("\n")[0].strip()


def _same_file(node: CheckedNode, one: str, other: str) -> bool:
    return bool(other) and os.path.realpath(node.path(one)) == os.path.realpath(node.path(other))


def cron(node: CheckedNode) -> Iterator[Finding]:
    """The startd's cron job JOBLENS makes the slot ads."""
    program = node.macro("STARTD_CRON_JOBLENS_EXECUTABLE")
    mode = node.macro("STARTD_CRON_JOBLENS_MODE")
    if "JOBLENS" not in node.words("STARTD_CRON_JOBLIST"):
        yield fail("JOBLENS is not in STARTD_CRON_JOBLIST", f"install {EP_SNIPPET}, then condor_reconfig")
    elif not program:
        yield fail("STARTD_CRON_JOBLENS_EXECUTABLE is not set", f"install {EP_SNIPPET}, then condor_reconfig")
    elif why := unusable(node, program):
        yield fail(f"STARTD_CRON_JOBLENS_EXECUTABLE = {printable(program, 160)} {why}", "make install")
    elif mode.lower() != "waitforexit":
        yield fail(
            f"STARTD_CRON_JOBLENS_MODE = {printable(mode) or '(not set)'}: a copy would start every period",
            "set it to WaitForExit, then condor_reconfig",
        )
    elif node.macro("STARTD_CRON_JOBLENS_PREFIX"):
        yield fail(
            "STARTD_CRON_JOBLENS_PREFIX is set, and is glued to the names that select a slot",
            "take it away, then condor_reconfig",
        )
    else:
        yield ok(printable(program, 160))


def usage_door(node: CheckedNode) -> Iterator[Finding]:
    """The one line that makes the starter copy JobLensUsage from .update.ad to the shadow."""
    metrics = node.macro("STARTER.STARTD_CRON_JOBLENS_METRICS")
    if "SUM:JOBLENS" in metrics.upper().replace(" ", "").split(","):
        yield ok("the starter passes JobLensUsage on to the shadow")
    elif node.macro("STARTD_CRON_JOBLENS_METRICS"):
        yield fail(
            "STARTD_CRON_JOBLENS_METRICS is set for the startd too, which would add ads up as numbers",
            "set STARTER.STARTD_CRON_JOBLENS_METRICS = SUM:JobLens alone",
        )
    else:
        yield fail(
            "STARTER.STARTD_CRON_JOBLENS_METRICS = SUM:JobLens is missing: no number reaches condor_q",
            f"install {EP_SNIPPET}; jobs that start after condor_reconfig have it",
        )


def startd_attributes(node: CheckedNode) -> Iterator[Finding]:
    """What the startd must tell of a job, in a file that the job can't write."""
    missing = [name for name in STARTD_ATTRIBUTES if name.upper() not in node.words("STARTD_JOB_ATTRS")]
    if missing:
        yield warn(
            f"STARTD_JOB_ATTRS lacks {' '.join(missing)}: what a job's own files say can't be checked",
            f"add them to STARTD_JOB_ATTRS, as {EP_SNIPPET} does, then condor_reconfig",
        )
    else:
        yield ok(f"STARTD_JOB_ATTRS has {' '.join(STARTD_ATTRIBUTES)}")


def starter_interval(node: CheckedNode) -> Iterator[Finding]:
    """How soon and how often the starter passes numbers on."""
    first = seconds_of(node, "STARTER_INITIAL_UPDATE_INTERVAL", STARTER_FIRST)
    seconds = seconds_of(node, "STARTER_UPDATE_INTERVAL", STARTER_INTERVAL)
    text = f"STARTER_UPDATE_INTERVAL = {seconds:g}: numbers go to the shadow after {first:g} s, then that often"
    yield _prompt(seconds, text, EP_SNIPPET)


def shadow_interval(node: CheckedNode) -> Iterator[Finding]:
    """How often the shadow writes what it was told into the queue."""
    seconds = seconds_of(node, "SHADOW_QUEUE_UPDATE_INTERVAL", SHADOW_INTERVAL)
    first = seconds_of(node, "STARTER_INITIAL_UPDATE_INTERVAL", STARTER_FIRST) + seconds
    text = f"SHADOW_QUEUE_UPDATE_INTERVAL = {seconds:g}: first numbers in condor_q after about {first:.0f} s"
    yield _prompt(seconds, text, AP_SNIPPET)


def _prompt(seconds: float, text: str, snippet: str) -> Finding:
    if seconds <= SLOW:
        return ok(text)
    return warn(text, f"install {snippet}, then condor_reconfig: jobs that start later have it")


def seconds_of(node: CheckedNode, name: str, default: float) -> float:
    """A macro that is a number of seconds; `default` where it is not set or an expression."""
    try:
        return float(node.macro(name, str(default)))
    except ValueError:
        return default


def attributes(node: CheckedNode) -> Iterator[Finding]:
    """A shadow-published attribute that is protected: finished jobs then never leave the queue."""
    traps = [name for name in ("PROTECTED_JOB_ATTRS", "IMMUTABLE_JOB_ATTRS") if "JOBLENSUSAGE" in node.words(name)]
    for name in traps:
        yield fail(
            f"{name} has JobLensUsage: finished jobs never leave the queue",
            f"take it out of {name}, then condor_reconfig",
        )
    if not traps:
        yield ok("JobLensUsage is neither protected nor immutable")


def sizing(node: CheckedNode) -> Iterator[Finding]:
    """Every update of a shadow is a transaction of the schedd's."""
    told = node.ask("condor_q", "-allusers", "-totals")
    match = re.search(r"(\d+) running", told)
    if match is None:
        yield warn("condor_q -totals tells no number of running jobs", "see whether the schedd runs")
        return
    running = int(match[1])
    shadow = seconds_of(node, "SHADOW_QUEUE_UPDATE_INTERVAL", SHADOW_INTERVAL)
    # execute nodes set it, whose configuration is not here if this is none
    starter = seconds_of(node, "STARTER_UPDATE_INTERVAL", sizing_figures.STARTER_INTERVAL)
    load = sizing_figures.access_point_load(running, starter, shadow)
    text = (
        f"{running:,} running jobs, {load.updates_per_second:.1f} queue updates a second, if "
        f"STARTER_UPDATE_INTERVAL is {starter:g} on the execute nodes"
    )
    if sizing_figures.suits(load):
        yield ok(text)
    else:
        yield warn(
            f"{text}: {100 * load.schedd_cores:.1f} % of a core for the schedd",
            f"set it to {sizing_figures.starter_interval(running)} there: joblens size --running-jobs {running}",
        )


def policies(node: CheckedNode) -> Iterator[Finding]:
    """The files that decide about levels, read and compiled as joblensd would."""
    from condor_joblens.policy.policy_files import read_policies

    read, problems = read_policies([node.path(folder) for folder in node.config.policy_dir])
    problems += _mistakes(read)
    aside = node.read(os.path.join(node.config.run_dir, "policies.aside")) or ""
    problems += [f"set aside: {line}; correct it, then condor_reconfig" for line in aside.splitlines()]
    for problem in problems:
        text, _, remedy = problem.rpartition("; ")
        yield warn(text or problem, remedy if text else "correct it, then condor_reconfig")
    if not read:
        yield warn("there is none: every job gets JOBLENS_DEFAULT_LEVEL", "make install puts one there")
    elif not problems:
        yield ok(", ".join(printable(name) for name, _ in read))


def triggers(node: CheckedNode) -> Iterator[Finding]:
    """The files that are asked when something happens, read and compiled as joblensd would."""
    from condor_joblens.policy.policy_files import read_triggers

    folders = [node.path(folder) for folder in node.config.triggers]
    read, problems = read_triggers([folder for folder in folders if os.path.isdir(folder)])
    if read:
        from condor_joblens.policy import trigger_engine, trigger_kinds

        problems += [str(error) for error in trigger_engine.TriggerEngine(trigger_kinds.layout()).load(read)]
    aside = node.read(os.path.join(node.config.run_dir, "triggers.aside")) or ""
    problems += [f"set aside: {line}; correct it, then condor_reconfig" for line in aside.splitlines()]
    for problem in problems:
        text, _, remedy = problem.rpartition("; ")
        yield warn(text or problem, remedy if text else "correct it, then condor_reconfig")
    if read and not problems:
        yield ok(", ".join(printable(name) for name, _ in read))


def startd(node: CheckedNode) -> Iterator[Finding]:
    """joblensd asks the startd whether a job's ad is the starter's, and says here what came of the last question."""
    fault = node.read(os.path.join(node.config.run_dir, "startd"))
    if fault is None:
        return  # joblensd is not there, or has just begun
    if fault:
        level = node.config.default_level.word
        yield warn(
            f"it can't be asked about jobs ({printable(fault, 200)}): no job gets a level above {level}",
            "make this work as HTCondor's own user: condor_status -pool \"$(head -1 $(condor_config_val "
            'STARTD_ADDRESS_FILE))"',
        )
    else:
        yield ok("answers whose jobs its slots run")


def _mistakes(read: list[tuple[str, str]]) -> list[str]:
    try:
        from condor_joblens.policy.lua_sandbox import LuaSandbox, PolicyError
    except ImportError as error:
        raise JobLensError(f"no policy can run ({error}): make install") from None
    sandbox, mistakes = LuaSandbox(), []
    for name, text in read:
        try:
            sandbox.load(name, text)
        except PolicyError as error:
            mistakes.append(str(error))
    return mistakes
