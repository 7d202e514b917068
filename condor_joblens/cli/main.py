"""The command `joblens`: takes its arguments, starts one command, and turns errors into one line.

Commands are imported, and their arguments made, when they are called for. A person waits for the first line,
and most of that time is Python reading modules.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
import re
import sys
from collections.abc import Sequence

from condor_joblens.cli import arguments
from condor_joblens.common.errors import JobLensError, UsageError

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


def main(given: Sequence[str] | None = None) -> int:
    """Runs one command. Returns the exit code: 0, 1 (it failed), 2 (wrong usage)."""
    # numpy's linear algebra starts a thread a core when it is imported; nothing here multiplies matrices
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    words = _as_options(sys.argv[1:] if given is None else given)
    options = parser(words[:1]).parse_args(words)
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


def parser(called: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The arguments of every command; or of one alone, if it is the first of the words that were given."""
    from condor_joblens import __version__

    top = argparse.ArgumentParser(prog="joblens", description="What the jobs of a machine do, live.")
    top.add_argument("--version", action="version", version=f"joblens {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in [name for name in called if name in COMMANDS] or COMMANDS:
        help = COMMANDS[name]
        arguments.add(name, commands.add_parser(name, help=help, description=help[0].upper() + help[1:] + "."))
    return top


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


if __name__ == "__main__":
    sys.exit(main())
