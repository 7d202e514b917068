"""The arguments of each command of `joblens`, in the order of its help. What one word means is in argument_types.py."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

from condor_joblens.cli import profile_arguments
from condor_joblens.cli.argument_types import (
    count,
    duration,
    few_seconds,
    function,
    line_count,
    long_duration,
    seconds,
    share,
    signal_number,
    trace_time,
    variable,
)

_RUNNING = "12.0, 12, a GlobalJobId, or the name of a slot (slot1_3)"


def add(name: str, command: argparse.ArgumentParser) -> None:
    """Give the parser of a command what this command takes."""
    command.add_argument("--json", action="store_true", help="print JSON, for programs")
    for part in _PARTS.get(name, ()):
        part(command)


def _run_dir(command: argparse.ArgumentParser) -> None:
    help = "where joblensd's files are, where it is not JOBLENS_RUN_DIR"
    command.add_argument("--run-dir", metavar="FOLDER", help=help)


def _running(command: argparse.ArgumentParser) -> None:
    command.add_argument("id", metavar="ID", help=_RUNNING)


def _kept(command: argparse.ArgumentParser) -> None:
    command.add_argument("id", metavar="ID", help="12.0, 12, a GlobalJobId, a run, or the name of a slot (slot1_3)")


def _file(command: argparse.ArgumentParser) -> None:
    help = "below the job's scratch folder; stdout (the default) or stderr: what the job writes there"
    command.add_argument("file", metavar="FILE", nargs="?", default="stdout", help=help)


def _cluster(command: argparse.ArgumentParser) -> None:
    help = "instead of ID: all jobs of this cluster that run; the exit code is how many failed, 101 for more than 100"
    command.add_argument("--cluster", type=count, metavar="CLUSTER", help=help)


def _following(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-f", dest="follow", action="store_true", help="go on with what is written, until the job ends"
    )
    command.add_argument("-n", type=line_count, metavar="N", dest="lines", default=10, help="the last N lines (10)")


def _via(*ways: str) -> Callable[[argparse.ArgumentParser], None]:
    """Other ways to the same (via.py)."""

    def add_ways(command: argparse.ArgumentParser) -> None:
        help = "instead, by HTCondor's own way; ssh ends an ssh session of yours to this job"
        command.add_argument("--via", choices=ways, help=help)

    return add_ways


def _job(command: argparse.ArgumentParser) -> None:
    help = "12.0, 12, a GlobalJobId, or the name of a slot of this node (slot1_3)"
    command.add_argument("id", metavar="ID", help=help)
    command.add_argument("--summary", action="store_true", help="as much as fits a mail, in plain text")
    command.add_argument("--web", action="store_true", help="the address of its page at the site's hub")
    help = "what it did last before it died: for root and the job's owner"
    command.add_argument("--before-death", action="store_true", help=help)


def _top(command: argparse.ArgumentParser) -> None:
    command.add_argument("id", metavar="ID", nargs="?", help="a running job: its processes, not the jobs of the node")
    command.add_argument("-n", type=count, metavar="N", dest="refreshes", help="stop after N refreshes")
    command.add_argument(
        "-d", type=seconds, metavar="SECONDS", dest="period", default=2.0, help="time between refreshes (2)"
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


def _ps(command: argparse.ArgumentParser) -> None:
    _cluster(command)
    command.add_argument("id", metavar="ID", nargs="?", help=_RUNNING)


def _first_lines(command: argparse.ArgumentParser) -> None:
    command.add_argument("-n", type=line_count, metavar="N", dest="lines", default=10, help="the first N (10)")


def _folder(command: argparse.ArgumentParser) -> None:
    command.add_argument("folder", metavar="FOLDER", nargs="?", default=".", help="below the scratch folder")


def _env(command: argparse.ArgumentParser) -> None:
    command.add_argument("pid", metavar="PID", nargs="?", type=count, help="(the job's first)")


def _get(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE", help="below the job's scratch folder; stdout or stderr")
    command.add_argument("-o", dest="output", metavar="LOCAL", help="write it there: a file, or a folder (this one)")
    command.add_argument("--continue", dest="resume", action="store_true", help="go on with what is there already")


def _kill(command: argparse.ArgumentParser) -> None:
    command.add_argument("pid", metavar="PID", nargs="?", type=count, help="as `joblens ps` tells it (the job's first)")
    help = "TERM (the default), USR1, KILL, a number"
    command.add_argument(
        "-s", metavar="SIGNAL", dest="signal", type=signal_number, action=_Once, default=signal.SIGTERM,
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


def _notify(command: argparse.ArgumentParser) -> None:
    command.add_argument("words", metavar="TEXT", nargs="+", help="what the job is told, in one line")


def _level(command: argparse.ArgumentParser) -> None:
    command.add_argument("id", metavar="ID", nargs="?", help="12.0, 12, a GlobalJobId, or a slot (slot1_3)")
    _cluster(command)
    command.add_argument("level", nargs="?", metavar="LEVEL", help="off, basic, io, profile or trace; without it: ask")
    help = "30s, 10m (the default), 2h; at most 24h"
    command.add_argument("--for", type=duration, metavar="TIME", dest="seconds", default=600, help=help)
    command.add_argument("--clear", action="store_true", help="take a level that was given by hand back")


def _hang(command: argparse.ArgumentParser) -> None:
    command.add_argument("id", metavar="ID", nargs="?", help=_RUNNING)
    help = "every job of this node, those together that wait for the same"
    command.add_argument("--all", action="store_true", help=help)
    help = "what was kept when the job seemed to hang, not what it does now"
    command.add_argument("--kept", action="store_true", help=help)


def _stacks(command: argparse.ArgumentParser) -> None:
    _running(command)
    profile_arguments.add_lines(command, "with lines")


def _trace(command: argparse.ArgumentParser) -> None:
    help = (
        "FILE:FUNCTION, both may have * and ?, for example 'myprog:fit'; with types, arguments and result are shown: "
        "'myprog:fit(int, char*) -> int'. Or throws: the exceptions of C++; or bash: the commands of bash scripts"
    )
    help += ". Without it: what is kept of the trace that the job itself, or a policy, has asked for"
    command.add_argument("spec", metavar="SPEC", nargs="?", type=function, help=help)
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
    command.add_argument("--for", type=trace_time, metavar="TIME", dest="seconds", help=help)


def _ask(command: argparse.ArgumentParser) -> None:
    help = "a program as bcc takes it; JOB() in it is whether the current task is one of the job's"
    command.add_argument("file", metavar="FILE.c", help=help)
    help = "for how long it runs: 30s, 5m, at most 1h (10s)"
    command.add_argument("--for", type=trace_time, metavar="TIME", dest="seconds", default=10, help=help)


def _peek(command: argparse.ArgumentParser) -> None:
    help = (
        "a variable with a fixed place: 'reco:work::state.run[3]', or without debug information 'reco:counter as long'"
    )
    command.add_argument("spec", metavar="FILE:NAME", type=variable, help=help)
    command.add_argument("pid", metavar="PID", nargs="?", type=count, help="(all processes)")
    help = "again and again: 2s, 1m; with --json a line for each value"
    command.add_argument("--every", type=trace_time, metavar="TIME", help=help)
    help = "how long with --every: 30s, 10m, at most 1h (1h, or until the job ends)"
    command.add_argument("--for", type=trace_time, metavar="TIME", dest="seconds", help=help)


def _artifacts(command: argparse.ArgumentParser) -> None:
    command.add_argument("id", metavar="ID", help="12.0, 12, a GlobalJobId, a run, or the name of a slot (slot1_3)")
    command.add_argument("name", nargs="?", metavar="NAME", help="of an artifact, or a kind: the newest of that kind")
    command.add_argument("-o", dest="output", metavar="FILE", help="write it there, not to standard output")


def _watch(command: argparse.ArgumentParser) -> None:
    command.add_argument("id", metavar="ID", help=_RUNNING)
    command.add_argument("-n", type=count, metavar="N", dest="lines", help="stop after N lines")


def _say(command: argparse.ArgumentParser) -> None:
    command.add_argument("words", metavar="WORDS", nargs="+", help="up to 100 bytes: step 3 of 10")


def _progress(command: argparse.ArgumentParser) -> None:
    command.add_argument("share", metavar="SHARE", type=share, help="from 0 to 1 (0.3), or in percent (30%%)")
    command.add_argument("words", metavar="WORDS", nargs="*", help="(those that were said before)")


def _listing(command: argparse.ArgumentParser) -> None:
    command.add_argument("job", nargs="?", metavar="ID", help="5, or one job 5.66; without it: all of yours")
    whose = command.add_mutually_exclusive_group()
    whose.add_argument("--owner", metavar="USER", help="another user's jobs")
    whose.add_argument("--all", action="store_true", help="everybody's jobs")
    command.add_argument("--constraint", metavar="EXPR", help="a ClassAd expression that must be true of the job")


def _history(command: argparse.ArgumentParser) -> None:
    command.add_argument("-n", type=count, metavar="N", dest="jobs", help="the latest N jobs (20)")
    command.add_argument("--since", type=long_duration, metavar="TIME", help="all that left in the last 12h, 2d")


def _jobs(command: argparse.ArgumentParser) -> None:
    command.add_argument("cluster", nargs="?", metavar="CLUSTER", help="5, or one job 5.66; without it: all of yours")
    help = "those that left the queue in the last 12h, 2d (the default: 1d); at most 365d"
    command.add_argument("--since", type=long_duration, metavar="TIME", help=help)
    command.add_argument("--owner", metavar="USER", help="another user's jobs")
    command.add_argument("--constraint", metavar="EXPR", help="a ClassAd expression that must be true of the job")


def _compare(command: argparse.ArgumentParser) -> None:
    command.add_argument("id", metavar="ID", help="a job: 5.66")
    command.add_argument("other", nargs="?", metavar="OTHER", help="another job: 5.67")
    command.add_argument("--siblings", action="store_true", help="with the others of its cluster that ended well")


def _plot(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE", help="lines of the sink file (also gzipped), or a series of prmon's")
    command.add_argument("-o", dest="output", metavar="PICTURE", help="x.png or x.svg (default: FILE.png)")
    command.add_argument("--job", metavar="ID", help="only the runs of this job: 12.0, 12, a GlobalJobId, or a run")


def _pool(command: argparse.ArgumentParser) -> None:
    command.add_argument("--pool", metavar="HOST", help="the central manager, if not this pool's")
    command.add_argument("--constraint", metavar="EXPR", help="only slots of which this is true")


def _size(command: argparse.ArgumentParser) -> None:
    help = "that one access point has at a time, on the busiest day"
    command.add_argument("--running-jobs", type=count, required=True, metavar="N", help=help)
    command.add_argument("--slots", type=count, metavar="N", help="of an execute node: what it costs there, too")
    command.add_argument("--cpus", type=count, metavar="N", default=os.cpu_count() or 1, help="of that execute node")


def _staff(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE", help="where the key is, or is made if it is missing")
    command.add_argument("--name", metavar="NAME", help="of the person, for the nodes' logs (the user's)")
    command.add_argument("--verbs", metavar="VERB,...", default="ps,node", help="what it is good for (%(default)s)")
    command.add_argument("--user", metavar="NAME@DOMAIN,...", help="only jobs of these users; * is any characters")
    command.add_argument("--job", metavar="GLOBALJOBID,...", help="only these jobs, in the same way: ap#12.*")


def _control(command: argparse.ArgumentParser) -> None:
    from condor_joblens.cli.control import add_arguments

    add_arguments(command)


def _policy(command: argparse.ArgumentParser) -> None:
    from condor_joblens.cli.policy import add_arguments

    add_arguments(command)


def _upgrade(command: argparse.ArgumentParser) -> None:
    command.add_argument("folder", metavar="FOLDER", help="in which make bundle has run")
    command.add_argument("settings", metavar="NAME=VALUE", nargs="*", help="as make install takes them")


def _doctor(command: argparse.ArgumentParser) -> None:
    help = "what HTCondor's own user can see, as the nodes' ads have it for `joblens pool`"
    command.add_argument("--for-pool", action="store_true", help=help)
    command.add_argument("--bundle", metavar="FILE", help="make an archive (.tar.gz) for a bug report")
    help = "look at a copy of another machine's files"
    command.add_argument("--root", metavar="FOLDER", default="/", help=help)
    help = "have the kernel measure what each of our programs costs, for 3 s unless said otherwise (root)"
    command.add_argument("--costs", type=few_seconds, metavar="SECONDS", nargs="?", const=3.0, default=0.0, help=help)


_PARTS: Mapping[str, tuple[Callable[[argparse.ArgumentParser], None], ...]] = {
    "status": (_run_dir,),
    "top": (_run_dir, _top),
    "job": (_run_dir, _job),
    "q": (_listing,),
    "history": (_listing, _history),
    "jobs": (_jobs,),
    "compare": (_compare,),
    "watch": (_run_dir, _watch),
    "level": (_run_dir, _level),
    "control": (_control,),
    "staff": (_staff,),
    "hang": (_run_dir, _hang),
    "stacks": (_run_dir, _stacks),
    "last": (_run_dir, _running),
    "ps": (_run_dir, _ps, _via("ssh")),
    "tail": (_run_dir, _running, _file, _following, _via("condor_tail", "ssh")),
    "head": (_run_dir, _running, _file, _first_lines),
    "cat": (_run_dir, _running, _file),
    "log": (_run_dir, _running, _following, _via("ssh")),
    "get": (_run_dir, _running, _get),
    "env": (_run_dir, _running, _env),
    "peek": (_run_dir, _running, _peek),
    "node": (_run_dir, _running),
    "ls": (_run_dir, _running, _folder, _via("ssh")),
    "kill": (_run_dir, _running, _kill),
    "notify": (_run_dir, _running, _notify),
    "trace": (_run_dir, _running, _trace),
    "ask": (_run_dir, _running, _ask),
    "say": (_run_dir, _say),
    "progress": (_run_dir, _progress),
    "artifacts": (_run_dir, _artifacts),
    "flame": (_run_dir, profile_arguments.add_flame),
    "crash": (_run_dir, _kept),
    "hot": (_run_dir, profile_arguments.add_hot),
    "policy": (_policy,),
    "plot": (_plot,),
    "pool": (_pool,),
    "size": (_size,),
    "restart": (_run_dir,),
    "upgrade": (_upgrade,),
    "doctor": (_run_dir, _doctor),
}
"""Of each command that takes more than --json."""
