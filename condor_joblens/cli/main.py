"""The command `joblens`: takes its arguments, starts one command, and turns errors into one line.

Commands are imported when they are called for: a person waits for the first line, and most of that time
is Python reading modules.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from condor_joblens.common.errors import JobLensError, UsageError
from condor_joblens.control.verbs import MOST_LINES, MOST_TRACE_SECONDS

_RUNNING = "12.0, 12, a GlobalJobId, or the name of a slot (slot1_3)"
_FILE = "below the job's scratch folder; stdout (the default) or stderr: what the job writes there"
_KEPT = "12.0, 12, a GlobalJobId, a run, or the name of a slot (slot1_3)"

_WAYS = {"tail": ("condor_tail", "ssh"), "ps": ("ssh",), "log": ("ssh",), "ls": ("ssh",)}
"""The commands that have other ways (via.py), and which."""

_SIGNAL = re.compile(r"-(?:[0-9]+|[A-Z][A-Z0-9+-]+)")
"""Lower-case letters are options: -s, -h."""

COMMANDS = {
    "status": "one line a slot of this node: what each job uses and asked for",
    "top": "the same, live and sorted, with rates",
    "job": "one job in words and bars: what it uses against what it asked for, or how it ended",
    "q": "the jobs of an access point's queue, a line each: wall time, efficiency, memory, waits",
    "history": "the same of jobs that have left the queue, and how they ended",
    "jobs": "what became of many jobs: how many ended how and why, which differ, what to ask for next time",
    "compare": "where a job differs from another, or from its siblings, in words",
    "watch": "one running job of this node, a line whenever its numbers are taken: for root and the job's owner",
    "level": "changes how closely a running job is watched, for a while: for root and the job's owner",
    "control": "on the relay server's machine: which jobs of the site are watched how closely, for a time",
    "staff": "a key for one of the site's staff, and the line about it for the nodes",
    "hang": "why a running job stands still: one sentence, then what each thread waits for: for root and "
    "the job's owner",
    "stacks": "where each thread of a running job is, function by function: for root and the job's owner",
    "last": "what a running job did last, if it is at level trace: for root and the job's owner",
    "ps": "the processes of a running job: CPU, memory, state, command line: for root and the job's owner",
    "tail": "the last lines of a file of a running job, and what follows: for root and the job's owner",
    "head": "the first lines of a file of a running job: for root and the job's owner",
    "cat": "a file of a running job: for root and the job's owner",
    "log": "the last lines of what a running job writes to stdout and stderr, and what follows: for root and the job's "
    "owner",
    "get": "fetches a file of a running job, page by page: for root and the job's owner",
    "env": "the environment of a process of a running job, without secrets: for the job's owner, and names for root",
    "peek": "what a variable of a running job holds, read while the job goes on: for root and the job's owner",
    "node": "the machine on which a job runs, and your other jobs there: for root and the job's owner",
    "ls": "what is in a folder of a running job: for root and the job's owner",
    "kill": "sends a signal to a process of a running job: for root and the job's owner",
    "notify": "tells a running job something, in a file of its scratch folder: for root and the job's owner",
    "trace": "calls of functions of a running job, at level trace: for root and the job's owner",
    "ask": "a BPF program in C of root's own about a running job, which bcc compiles: for root, if the site allows it",
    "say": "from inside of a job: what it does just now, for its ad and `joblens job`",
    "progress": "from inside of a job: how far it is, and what it does",
    "artifacts": "lists what was kept about a job (profiles, crashes, hang reports), or gets one of "
    "these: for root and the job's owner",
    "flame": "where the time of jobs went, as a flame graph (SVG), or for pprof and speedscope: for root "
    "and the job's owner",
    "crash": "where processes of a job were when signals killed them, function by function: for root and "
    "the job's owner",
    "hot": "the functions, lines or files in which a job spent most time: for root and the job's owner",
    "policy": "checks and tests the policies, explains what they decide, and what they would have cost",
    "metrics": "every number there is: its unit, its meaning, and the level that has it",
    "config": "every knob: its value, where it comes from, and what is wrong with it",
    "plot": "a picture (PNG, SVG) of what jobs used over time, from a file of the sink `file` or a series of prmon's",
    "pool": "the nodes of a pool, the worst first: versions, what doctor found, levels of jobs, losses",
    "size": "which intervals suit so many running jobs, and what JobLens then costs",
    "restart": "joblensd and what belongs to it begin anew on this node, and running jobs lose no number (root)",
    "upgrade": "installs what was built in a folder, and restarts: running jobs lose no number (root)",
    "doctor": "checks every precondition on this machine, and says what to do; exit code 1 where one fails",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns the exit code: 0, 1 (it failed), 2 (wrong usage)."""
    # numpy's linear algebra starts a thread a core when it is imported; nothing here multiplies matrices
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    options = parser().parse_args(_as_options(sys.argv[1:] if arguments is None else arguments))
    try:
        name = "via" if getattr(options, "via", None) else options.command
        code = int(importlib.import_module(f"condor_joblens.cli.{name}").run(options))
        sys.stdout.flush()
        return code
    except JobLensError as error:
        print(f"joblens: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except BrokenPipeError:
        # whoever read our output has had enough; Python would complain once more when it closes the stream
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def parser() -> argparse.ArgumentParser:
    """The arguments of every command."""
    from condor_joblens import __version__

    top = argparse.ArgumentParser(prog="joblens", description="What the jobs of a machine do, live.")
    top.add_argument("--version", action="version", version=f"joblens {__version__}")
    subparsers = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands = {
        name: subparsers.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        for name, help in COMMANDS.items()
    }
    for command in commands.values():
        command.add_argument("--json", action="store_true", help="print JSON, for programs")
    for name in (
        "status",
        "top",
        "job",
        "watch",
        "level",
        "hang",
        "stacks",
        "last",
        "ps",
        "tail",
        "head",
        "cat",
        "log",
        "get",
        "env",
        "peek",
        "node",
        "say",
        "progress",
        "ls",
        "kill",
        "notify",
        "trace",
        "ask",
        "artifacts",
        "flame",
        "hot",
        "crash",
        "restart",
        "doctor",
    ):
        commands[name].add_argument(
            "--run-dir", metavar="FOLDER", help="where joblensd's files are, where it is not JOBLENS_RUN_DIR"
        )
    _add_top(commands["top"])
    _add_policy(commands["policy"])
    commands["job"].add_argument(
        "id", metavar="ID", help="12.0, 12, a GlobalJobId, or the name of a slot of this node (slot1_3)"
    )
    commands["job"].add_argument("--summary", action="store_true", help="as much as fits a mail, in plain text")
    commands["job"].add_argument("--web", action="store_true", help="the address of its page at the site's hub")
    commands["job"].add_argument(
        "--before-death", action="store_true", help="what it did last before it died: for root and the job's owner"
    )
    _add_listing(commands["q"])
    _add_listing(commands["history"])
    _add_history(commands["history"])
    _add_jobs(commands["jobs"])
    _add_compare(commands["compare"])
    _add_watch(commands["watch"])
    _add_level(commands["level"])
    _add_control(commands["control"])
    _add_staff(commands["staff"])
    _add_looks(commands["hang"], commands["stacks"])
    _add_artifacts(commands["artifacts"])
    _add_profiles(commands["flame"], commands["hot"])
    commands["crash"].add_argument("id", metavar="ID", help=_KEPT)
    _add_cluster(commands["ps"])
    commands["ps"].add_argument("id", metavar="ID", nargs="?", help=_RUNNING)
    for name in (
        "tail",
        "head",
        "cat",
        "log",
        "get",
        "env",
        "peek",
        "node",
        "ls",
        "kill",
        "notify",
        "trace",
        "ask",
        "last",
    ):
        commands[name].add_argument("id", metavar="ID", help=_RUNNING)
    _add_tail(commands["tail"])
    _add_following(commands["log"])
    _add_get(commands["get"])
    commands["env"].add_argument("pid", metavar="PID", nargs="?", type=_count, help="(the job's first)")
    _add_peek(commands["peek"])
    for name in ("head", "cat"):
        commands[name].add_argument("file", metavar="FILE", nargs="?", default="stdout", help=_FILE)
    commands["head"].add_argument("-n", type=_whole, metavar="N", dest="lines", default=10, help="the first N (10)")
    commands["ls"].add_argument("folder", metavar="FOLDER", nargs="?", default=".", help="below the scratch folder")
    _add_kill(commands["kill"])
    commands["notify"].add_argument("words", metavar="TEXT", nargs="+", help="what the job is told, in one line")
    _add_trace(commands["trace"])
    _add_ask(commands["ask"])
    for name, ways in _WAYS.items():
        help = "instead, by HTCondor's own way; ssh ends an ssh session of yours to this job"
        commands[name].add_argument("--via", choices=ways, help=help)
    _add_saying(commands["say"], commands["progress"])
    _add_plot(commands["plot"])
    _add_size(commands["size"])
    commands["pool"].add_argument("--pool", metavar="HOST", help="the central manager, if not this pool's")
    commands["pool"].add_argument("--constraint", metavar="EXPR", help="only slots of which this is true")
    commands["upgrade"].add_argument("folder", metavar="FOLDER", help="in which make bundle has run")
    commands["upgrade"].add_argument("settings", metavar="NAME=VALUE", nargs="*", help="as make install takes them")
    help = "what HTCondor's own user can see, as the nodes' ads have it for `joblens pool`"
    commands["doctor"].add_argument("--for-pool", action="store_true", help=help)
    commands["doctor"].add_argument("--bundle", metavar="FILE", help="make an archive (.tar.gz) for a bug report")
    commands["doctor"].add_argument(
        "--root", metavar="FOLDER", default="/", help="look at a copy of another machine's files"
    )
    commands["doctor"].add_argument(
        "--costs", type=_few_seconds, metavar="SECONDS", nargs="?", const=3.0, default=0.0,
        help="have the kernel measure what each of our programs costs, for 3 s unless said otherwise (root)",
    )  # fmt: skip
    return top


def _add_staff(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE", help="where the key is, or is made if it is missing")
    command.add_argument("--name", metavar="NAME", help="of the person, for the nodes' logs (the user's)")
    command.add_argument("--verbs", metavar="VERB,...", default="ps,node", help="what it is good for (%(default)s)")
    command.add_argument("--user", metavar="NAME@DOMAIN,...", help="only jobs of these users; * is any characters")
    command.add_argument("--job", metavar="GLOBALJOBID,...", help="only these jobs, in the same way: ap#12.*")


def _add_looks(hang: argparse.ArgumentParser, stacks: argparse.ArgumentParser) -> None:
    from condor_joblens.cli import profile_arguments

    which = "12.0, 12, a GlobalJobId, or the name of a slot (slot1_3)"
    hang.add_argument("id", metavar="ID", nargs="?", help=which)
    hang.add_argument(
        "--all", action="store_true", help="every job of this node, those together that wait for the same"
    )
    hang.add_argument(
        "--kept", action="store_true", help="what was kept when the job seemed to hang, not what it does now"
    )
    stacks.add_argument("id", metavar="ID", help=which)
    profile_arguments.add_lines(stacks, "with lines")


def _add_profiles(flame_command: argparse.ArgumentParser, hot_command: argparse.ArgumentParser) -> None:
    from condor_joblens.cli import profile_arguments

    profile_arguments.add_flame(flame_command)
    profile_arguments.add_hot(hot_command)


def _add_policy(command: argparse.ArgumentParser) -> None:
    from condor_joblens.cli.policy import add_arguments

    add_arguments(command)


def _add_control(command: argparse.ArgumentParser) -> None:
    from condor_joblens.cli.control import add_arguments

    add_arguments(command, _duration)


def _add_size(command: argparse.ArgumentParser) -> None:
    help = "that one access point has at a time, on the busiest day"
    command.add_argument("--running-jobs", type=_count, required=True, metavar="N", help=help)
    command.add_argument("--slots", type=_count, metavar="N", help="of an execute node: what it costs there, too")
    command.add_argument("--cpus", type=_count, metavar="N", default=os.cpu_count() or 1, help="of that execute node")


def _add_plot(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE", help="lines of the sink file (also gzipped), or a series of prmon's")
    command.add_argument("-o", dest="output", metavar="PICTURE", help="x.png or x.svg (default: FILE.png)")
    command.add_argument("--job", metavar="ID", help="only the runs of this job: 12.0, 12, a GlobalJobId, or a run")


def _add_listing(command: argparse.ArgumentParser) -> None:
    command.add_argument("job", nargs="?", metavar="ID", help="5, or one job 5.66; without it: all of yours")
    whose = command.add_mutually_exclusive_group()
    whose.add_argument("--owner", metavar="USER", help="another user's jobs")
    whose.add_argument("--all", action="store_true", help="everybody's jobs")
    command.add_argument("--constraint", metavar="EXPR", help="a ClassAd expression that must be true of the job")


def _add_history(command: argparse.ArgumentParser) -> None:
    command.add_argument("-n", type=_count, metavar="N", dest="jobs", help="the latest N jobs (20)")
    command.add_argument("--since", type=_long_duration, metavar="TIME", help="all that left in the last 12h, 2d")


def _add_jobs(command: argparse.ArgumentParser) -> None:
    command.add_argument("cluster", nargs="?", metavar="CLUSTER", help="5, or one job 5.66; without it: all of yours")
    help = "those that left the queue in the last 12h, 2d (the default: 1d); at most 365d"
    command.add_argument("--since", type=_long_duration, metavar="TIME", help=help)
    command.add_argument("--owner", metavar="USER", help="another user's jobs")
    command.add_argument("--constraint", metavar="EXPR", help="a ClassAd expression that must be true of the job")


def _add_compare(command: argparse.ArgumentParser) -> None:
    command.add_argument("id", metavar="ID", help="a job: 5.66")
    command.add_argument("other", nargs="?", metavar="OTHER", help="another job: 5.67")
    command.add_argument("--siblings", action="store_true", help="with the others of its cluster that ended well")


def _add_watch(command: argparse.ArgumentParser) -> None:
    command.add_argument("id", metavar="ID", help="12.0, 12, a GlobalJobId, or the name of a slot (slot1_3)")
    command.add_argument("-n", type=_count, metavar="N", dest="lines", help="stop after N lines")


def _add_artifacts(command: argparse.ArgumentParser) -> None:
    command.add_argument("id", metavar="ID", help=_KEPT)
    command.add_argument("name", nargs="?", metavar="NAME", help="of an artifact, or a kind: the newest of that kind")
    command.add_argument("-o", dest="output", metavar="FILE", help="write it there, not to standard output")


def _add_tail(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE", nargs="?", default="stdout", help=_FILE)
    _add_following(command)


def _add_saying(say: argparse.ArgumentParser, progress: argparse.ArgumentParser) -> None:
    say.add_argument("words", metavar="WORDS", nargs="+", help="up to 100 bytes: step 3 of 10")
    progress.add_argument("share", metavar="SHARE", type=_share, help="from 0 to 1 (0.3), or in percent (30%%)")
    progress.add_argument("words", metavar="WORDS", nargs="*", help="(those that were said before)")


def _share(value: str) -> str:
    try:
        share = float(value[:-1]) / 100 if value.endswith("%") else float(value)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{value!r} is no share from 0 to 1: write 0.3, or 30%")
    return f"{share:.6f}"


def _add_get(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE", help="below the job's scratch folder; stdout or stderr")
    command.add_argument("-o", dest="output", metavar="LOCAL", help="write it there: a file, or a folder (this one)")
    command.add_argument("--continue", dest="resume", action="store_true", help="go on with what is there already")


def _add_following(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-f", dest="follow", action="store_true", help="go on with what is written, until the job ends"
    )
    command.add_argument("-n", type=_whole, metavar="N", dest="lines", default=10, help="the last N lines (10)")


def _add_kill(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "pid", metavar="PID", nargs="?", type=_count, help="as `joblens ps` tells it (the job's first)"
    )
    help = "TERM (the default), USR1, KILL, a number"
    command.add_argument(
        "-s", metavar="SIGNAL", dest="signal", type=_signal, action=_Once, default=signal.SIGTERM,
        help=f"{help}; or as in kill(1): -9, -USR1",
    )  # fmt: skip


class _Once(argparse.Action):
    """An option that stands once: of two signals none is meant, and a second number may be a group of processes."""

    def __call__(
        self, parser: argparse.ArgumentParser, options: argparse.Namespace, value: Any, option: str | None = None
    ) -> None:
        if getattr(options, "is_signal_given", False):
            parser.error("two signals: name one, and processes by their numbers")
        setattr(options, self.dest, value)
        options.is_signal_given = True


def _as_options(arguments: Sequence[str]) -> list[str]:
    """The arguments, with signals as kill(1) takes them (-9, -USR1) as argparse does: -s 9, before ID and PID.

    argparse takes no PID that an option stands before and ID before that.
    """
    given = list(arguments)
    if given[:1] != ["kill"]:
        return given
    end = given.index("--") if "--" in given else len(given)
    signals, others = list[str](), list[str]()
    words = iter(given[1:end])
    for word in words:
        if word == "-s":
            signals += [word, *itertools.islice(words, 1)]
        elif _SIGNAL.fullmatch(word):
            signals += ["-s", word[1:]]
        else:
            others.append(word)
    return ["kill", *signals, *others, *given[end:]]


def _add_trace(command: argparse.ArgumentParser) -> None:
    from condor_joblens.cli import profile_arguments

    help = (
        "FILE:FUNCTION, both may have * and ?, for example 'myprog:fit'; with types, arguments and result are shown: "
        "'myprog:fit(int, char*) -> int'. Or throws: the exceptions of C++; or bash: the commands of bash scripts"
    )
    help += ". Without it: what is kept of the trace that the job itself, or a policy, has asked for"
    command.add_argument("spec", metavar="SPEC", nargs="?", type=_function, help=help)
    command.add_argument("--tree", action="store_true", help="of what is kept, which function was called by which")
    command.add_argument("--format", choices=("perfetto",), help="for https://ui.perfetto.dev, instead of text")
    help = "where --format writes (standard output); with --timeline a picture, FILE.svg"
    command.add_argument("-o", metavar="FILE", dest="output", help=help)
    help = "all that is kept of the job on one axis of time: processes, calls, files, connections, and what it used"
    command.add_argument("--timeline", action="store_true", help=help)
    help = "the lines of its scripts beside their calls and times, of what is kept"
    command.add_argument("--source", action="store_true", help=help)
    help = "with --source, the script as you have it: the job's own is gone when the job is over"
    command.add_argument("--script", metavar="FILE", help=help)
    help = "with --timeline, processes and curves from a file of the sink `file`"
    command.add_argument("--series", metavar="FILE", help=help)
    profile_arguments.add_span(command)
    help = "without SPEC: the calls of that trace which end from now on, as they end"
    command.add_argument("--follow", action="store_true", help=help)
    help = "30s, 10m, at most 1h (10s; 1h with --follow)"
    command.add_argument("--for", type=_trace_time, metavar="TIME", dest="seconds", help=help)


def _add_ask(command: argparse.ArgumentParser) -> None:
    help = "a program as bcc takes it; JOB() in it is whether the current task is one of the job's"
    command.add_argument("file", metavar="FILE.c", help=help)
    help = "for how long it runs: 30s, 5m, at most 1h (10s)"
    command.add_argument("--for", type=_trace_time, metavar="TIME", dest="seconds", default=10, help=help)


def _add_peek(command: argparse.ArgumentParser) -> None:
    help = (
        "a variable with a fixed place: 'reco:work::state.run[3]', or without debug information 'reco:counter as long'"
    )
    command.add_argument("spec", metavar="FILE:NAME", type=_variable, help=help)
    command.add_argument("pid", metavar="PID", nargs="?", type=_count, help="(all processes)")
    help = "again and again: 2s, 1m; with --json a line for each value"
    command.add_argument("--every", type=_trace_time, metavar="TIME", help=help)
    help = "how long with --every: 30s, 10m, at most 1h (1h, or until the job ends)"
    command.add_argument("--for", type=_trace_time, metavar="TIME", dest="seconds", help=help)


def _function(value: str) -> str:
    from condor_joblens.model import trace_spec

    return _with_sense(value, trace_spec.parse)


def _variable(value: str) -> str:
    from condor_joblens.model import peek_spec

    return _with_sense(value, peek_spec.parse)


def _with_sense(value: str, parse: Callable[[str], Any]) -> str:
    try:
        parse(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{value!r}: {error}") from None
    return value


def _trace_time(value: str) -> int:
    seconds = _as_seconds(value)
    if not 0 < seconds <= MOST_TRACE_SECONDS:
        raise argparse.ArgumentTypeError(f"{value!r} is no time from 1s to 1h: write 10s or 5m")
    return seconds


def _signal(value: str) -> int:
    name = value.upper()
    number = int(value) if value.isdecimal() and len(value) < 4 else 0
    for each in signal.valid_signals():
        known = getattr(each, "name", "")
        if int(each) == number or (known and name in (known, known[3:])):
            return int(each)
    raise argparse.ArgumentTypeError(f"{value!r} is no signal: write TERM, USR1, KILL or a number")


def _whole(value: str) -> int:
    if not value.isdecimal() or int(value) > MOST_LINES:
        raise argparse.ArgumentTypeError(f"{value!r} is no whole number up to {MOST_LINES}")
    return int(value)


def _add_cluster(command: argparse.ArgumentParser) -> None:
    help = "instead of ID: all jobs of this cluster that run; the exit code is how many failed, 101 for more than 100"
    command.add_argument("--cluster", type=_count, metavar="CLUSTER", help=help)


def _add_level(command: argparse.ArgumentParser) -> None:
    command.add_argument("id", metavar="ID", nargs="?", help="12.0, 12, a GlobalJobId, or a slot (slot1_3)")
    _add_cluster(command)
    command.add_argument("level", nargs="?", metavar="LEVEL", help="off, basic, io, profile or trace; without it: ask")
    help = "30s, 10m (the default), 2h; at most 24h"
    command.add_argument("--for", type=_duration, metavar="TIME", dest="seconds", default=600, help=help)
    command.add_argument("--clear", action="store_true", help="take a level that was given by hand back")


def _duration(value: str) -> int:
    seconds = _as_seconds(value)
    if not 0 < seconds <= 86400:
        raise argparse.ArgumentTypeError(f"{value!r} is no time from 1s to 24h: write 30s, 10m or 2h")
    return seconds


def _long_duration(value: str) -> int:
    seconds = _as_seconds(value)
    if not 0 < seconds <= 365 * 86400:
        raise argparse.ArgumentTypeError(f"{value!r} is no time from 1s to 365d: write 12h or 2d")
    return seconds


def _as_seconds(value: str) -> int:
    unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(value[-1:], 0)
    number = value[:-1] if unit else value
    return int(number) * (unit or 1) if number.isdecimal() and len(number) < 9 else 0


def _few_seconds(value: str) -> float:
    seconds = float(value) if value.replace(".", "", 1).isdecimal() and len(value) < 9 else 0
    if not 0.1 <= seconds <= 20:
        raise argparse.ArgumentTypeError(f"{value!r} is no time from 0.1 to 20 seconds")
    return seconds


def _add_top(command: argparse.ArgumentParser) -> None:
    command.add_argument("id", metavar="ID", nargs="?", help="a running job: its processes, not the jobs of the node")
    command.add_argument("-n", type=_count, metavar="N", dest="refreshes", help="stop after N refreshes")
    command.add_argument(
        "-d", type=_seconds, metavar="SECONDS", dest="period", default=2.0, help="time between refreshes (2)"
    )
    command.add_argument(
        "-s",
        metavar="COLUMN",
        dest="sort",
        default="cores",
        choices=["slot", "job", "owner", "cores", "memory", "read", "write", "net", "proc", "time",
                 "server", "jobs", "requests", "bytes", "waiting", "errors"],
        help="sort by slot, job, owner, cores (the default), memory, read, write, net, proc or time; "
        "of servers by server, owner, jobs, requests, bytes (the default), waiting or errors",
    )  # fmt: skip
    command.add_argument(
        "--by", choices=["job", "server"], default="job", help="a line for each job, or for each owner at a file server"
    )


def _count(value: str) -> int:
    if not value.isdecimal() or int(value) == 0:
        raise argparse.ArgumentTypeError(f"{value!r} is no whole number above 0")
    return int(value)


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{value!r} is no number of seconds from 0.1 to 3600")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
