"""`joblens trace ID`: what a trace that stands for a job's life has seen so far: sums of functions, or a call tree.

And the commands of its shells, by line.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from condor_joblens.cli.artifacts import fetched, listed, write
from condor_joblens.cli.runs import run_dir
from condor_joblens.cli.terminal import Style, style
from condor_joblens.common.errors import JobLensError, UsageError, printable
from condor_joblens.control import SOCKET
from condor_joblens.profiles import commands_page, perfetto, trace_page, traced_calls, traced_commands
from condor_joblens.profiles.traced_calls import Call, Function, TracedCalls
from condor_joblens.profiles.traced_commands import TracedCommands
from condor_joblens.shm.artifact_header import Artifact

NOTHING = (
    "no trace of job {job} is kept on this node. One is kept, from some seconds on, of a job at level trace that asks "
    'for it: +JobLensTrace = "FILE:FUNCTION; python:calls; bash" in its submit file, or a policy does. To trace it '
    "now: joblens trace {job} FILE:FUNCTION, or joblens trace {job} bash; and what a Python does now: joblens stacks "
    "{job}"
)
_LONGEST = 200
ENTERED, RAISED = "entered", "raised"
"""Ends of calls of Pythons, beside those of other functions: it goes on; and it is no call, but an exception in one."""


def run(options: argparse.Namespace) -> int:
    """Prints or writes all that is kept of the job's last run here, the oldest part first; exit code 0."""
    path = os.path.join(run_dir(options.run_dir), SOCKET)
    artifacts = listed(path, options.id)
    kept = [each for each in artifacts if each.kind == traced_calls.KIND]
    of_shells = [each for each in artifacts if each.kind == traced_commands.KIND]
    if not kept and not of_shells:
        raise JobLensError(NOTHING.format(job=printable(options.id)))
    if not kept and (options.tree or options.format):
        raise JobLensError("only commands of its shells were traced: leave out --tree and --format")
    found = [_one(path, options.id, each) for each in kept]
    if options.format == "perfetto":
        _write_perfetto(options, found)
        return 0
    commands = [] if options.tree else [_commands(path, options.id, each) for each in of_shells]
    if options.json:
        records = [record(*each) for each in found] + [_record_of_commands(*each) for each in commands]
        print(json.dumps(records, indent=2))
        return 0
    page = trace_page.tree if options.tree else trace_page.table
    pages = [page(each) for _, each in found] + [commands_page.table(each) for _, each in commands]
    print("\n\n".join("\n".join(dressed(each, style())) for each in pages))
    return 0


def _commands(path: str, job: str, artifact: Artifact) -> tuple[Artifact, TracedCommands]:
    about, content = fetched(path, job, artifact.name)
    try:
        return about, traced_commands.decode(content)
    except ValueError as error:
        raise JobLensError(f"{artifact.name}: {printable(str(error))}") from None


def _record_of_commands(about: Artifact, kept: TracedCommands) -> dict[str, Any]:
    return {"Run": about.run, "Artifact": about.name, **commands_page.record(kept)}


def _one(path: str, job: str, artifact: Artifact) -> tuple[Artifact, TracedCalls]:
    about, content = fetched(path, job, artifact.name)
    try:
        return about, traced_calls.decode(content)
    except ValueError as error:
        raise JobLensError(f"{artifact.name}: {printable(str(error))}") from None


def _write_perfetto(options: argparse.Namespace, found: Iterable[tuple[Artifact, TracedCalls]]) -> None:
    made = perfetto.Perfetto(printable(options.id))
    output(options.output, b"".join(made.packets(each for _, kept in found for each in slices(kept))))


def output(path: str | None, content: bytes) -> None:
    """To the file, or to standard output if that is no terminal. Raises JobLensError."""
    if path is not None:
        write(path, content)
        print(f"{path}: open it at https://ui.perfetto.dev", file=sys.stderr)
        return
    if sys.stdout.isatty():
        raise UsageError(f"this is nothing to read: say with -o job{perfetto.SUFFIX} where to write it")
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def slices(kept: TracedCalls) -> Iterator[perfetto.Slice]:
    """The last calls, as Perfetto shows them."""
    go_on = _that_go_on(kept)
    for place, call in enumerate(kept.calls):
        made = a_slice(
            printable(kept.functions[call.function].name, _LONGEST), call.pid, call.tid, call.time, call.seconds,
            call.end, call.arguments, call.result,
        )  # fmt: skip
        yield dataclasses.replace(made, goes_on=True) if place in go_on else made


def _that_go_on(kept: TracedCalls) -> set[int]:
    """Places of calls that had not ended: none of their thread that began later is outside of them."""
    found: set[int] = set()
    least: dict[tuple[int, int], int] = {}  # depth by process and thread
    for place in sorted(range(len(kept.calls)), key=lambda place: (kept.calls[place].time, place), reverse=True):
        call = kept.calls[place]
        thread = call.pid, call.tid
        if call.end == RAISED:  # no call
            continue
        is_outside = call.depth < least.get(thread, call.depth + 1)
        if call.end == ENTERED and is_outside and not kept.functions[call.function].truths["EntriesAlone"]:
            found.add(place)
        least[thread] = min(call.depth, least.get(thread, call.depth))
    return found


def a_slice(
    name: str,
    pid: int,
    tid: int,
    when: float,
    seconds: float | None,
    end: str,
    arguments: Sequence[str] | None,
    result: str | None,
) -> perfetto.Slice:
    """A call, whose times are epoch seconds and seconds; texts are escaped."""
    if end == RAISED:
        name = printable(f"{result} in {name}", _LONGEST)
        return perfetto.Slice(name, pid, tid, round(when * 1e9), None, category=perfetto.EXCEPTION)
    said = [(f"argument {at}", each) for at, each in enumerate(arguments or (), 1)]
    said += [("result", result)] if result is not None else []
    said += [("end", end)]
    details = tuple((word, printable(value, _LONGEST)) for word, value in said)
    took = None if seconds is None else round(seconds * 1e9)
    return perfetto.Slice(name, pid, tid, round(when * 1e9), took, details)


def record(about: Artifact, kept: TracedCalls) -> dict[str, Any]:
    """A part in JSON; whose it is says joblensd."""
    return {
        "Run": about.run,
        "Artifact": about.name,
        "Begun": kept.begun,
        "Ended": kept.ended,
        "Notes": [printable(note, _LONGEST) for note in kept.notes],
        "Functions": [_function(each) for each in kept.functions],
        "Tree": [
            {
                "Parent": node.parent if node.parent >= 0 else None,
                "Function": printable(kept.functions[node.function].name, _LONGEST),
                "Calls": node.calls,
                "Unwound": node.unwound,
                "TotalSeconds": node.seconds,
            }
            for node in kept.tree
        ],
        "NotInTree": kept.folded,
        "LastCalls": [_call(kept, call) for call in kept.calls],
    }


def _function(function: Function) -> dict[str, Any]:
    return {
        "Function": printable(function.name, _LONGEST),
        "File": printable(function.file, _LONGEST),
        "From": function.begun,
        "UnseenSeconds": function.unseen,
        **function.counts,
        **function.seconds,
        "CoveredShare": function.share,
        **{f"{name}Seconds": trace_page.quantile(function, share) for name, share in _SHARES},
        **function.truths,
    }


_SHARES = (("Median", 0.5), ("Percentile95", 0.95), ("Percentile99", 0.99))


def _call(kept: TracedCalls, call: Call) -> dict[str, Any]:
    return {
        "Time": call.time,
        "Pid": call.pid,
        "Thread": call.tid,
        "Function": printable(kept.functions[call.function].name, _LONGEST),
        "Arguments": None if call.arguments is None else [printable(each, _LONGEST) for each in call.arguments],
        "End": printable(call.end, 20),
        "Seconds": call.seconds,
        "Result": None if call.result is None else printable(call.result, _LONGEST),
        "Depth": call.depth,
    }


def dressed(lines: Sequence[str], look: Style) -> list[str]:
    """A page of a trace as a terminal shows it: its title, the names of its columns, and what belongs to them."""
    title, names, *others = lines
    return [look.paint(title, "bold"), look.paint(look.fit(names), "dim"), *map(look.fit, others)]
