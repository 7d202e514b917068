"""`joblens trace ID SPEC`: calls of functions of a running job of this node as they end, then how many there were.

Or what it throws, and in the end from where; or the commands of its bash scripts. Without SPEC it is what is kept of
the job's own trace (kept_trace.py), or with --follow its new calls.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from condor_joblens.cli import kept_trace
from condor_joblens.cli.child_output import messages
from condor_joblens.cli.runs import run_dir
from condor_joblens.common.errors import JobLensError, UsageError, printable
from condor_joblens.control import SOCKET
from condor_joblens.control.child_output import CONTENT
from condor_joblens.control.verbs import MOST_TRACE_SECONDS
from condor_joblens.profiles import commands_page, trace_page, traced_commands
from condor_joblens.profiles.perfetto import Perfetto, Slice

MOST_DEEP = 20
"""Steps by which calls within calls are moved to the right."""

TRACE_SECONDS = 10
"""If nobody says for how long; the job's own trace is followed for as long as can be."""

MOST_SHOWN = 300
MOST_PERFETTO = 1_000_000
"""Calls in a file for Perfetto."""

_NUMBERS = (
    "Calls", "Returned", "LeftByJump", "Unwound", "EndNotSeen", "EndUnknown", "BegunBefore", "LostHits", "NotOurs",
    "NotShown",
)  # fmt: skip
_NUMBERS_OF_THROWS = ("Throws", "OtherPlaces", "LostHits", "NotOurs", "NotShown")
_SECONDS = ("TotalSeconds", "LongestSeconds", "CoveredSeconds")
_WORDS = {
    "Returned": "returned",
    "LeftByJump": "left by a jump to another function",
    "Unwound": "unwound (by an exception, longjmp, or the end of the thread)",
    "EndNotSeen": "of which no end was seen (they go on, or nothing traced was called after they were unwound)",
    "EndUnknown": "ended in a way that is not known",
}

Row = dict[str, Any]


def run(options: argparse.Namespace) -> int:
    """Writes calls and sums as they come, and keeps none of them; exit code 0."""
    if options.timeline:
        from condor_joblens.cli import timeline

        return timeline.run(options)
    if options.source:
        from condor_joblens.cli import annotate

        return annotate.run(options)
    if options.script:
        raise UsageError("--script is of --source: add it, or leave --script out")
    if options.series or options.since is not None or options.until is not None:
        raise UsageError("--series, --since and --until are of --timeline: add it, or leave them out")
    if options.spec is None and not options.follow:
        return kept_trace.run(options)
    if options.spec is not None and options.follow:
        raise UsageError("--follow is of the job's own trace: leave out SPEC, which shows calls as they end too")
    if options.tree:
        raise UsageError("--tree is of what is kept of the job's own trace: leave out SPEC and --follow")
    if options.format == "perfetto":
        return _run_for_perfetto(options)
    arguments = _asked(options)
    for kind, said in messages(os.path.join(run_dir(options.run_dir), SOCKET), "trace", arguments):
        if kind != CONTENT:
            print(f"joblens: {said.decode()}", file=sys.stderr, flush=True)
            continue
        told = _understood(said)
        for row in told["calls"]:
            print(json.dumps(row) if options.json else line(row), flush=True)
        for command in told["commands"]:
            (record,) = commands_page.records([command])
            print(json.dumps(record) if options.json else commands_page.command_line(command), flush=True)
        for row in told["throws"]:
            print(json.dumps(row) if options.json else throw_line(row), flush=True)
        for row in told["places"]:
            print(json.dumps({"Place": row}) if options.json else "\n".join(place_lines(row)))
        for row in told["summary"]:
            print(json.dumps({"Summary": row}) if options.json else "\n".join(page(row)))
    return 0


def _asked(options: argparse.Namespace) -> dict[str, str]:
    """A trace of a SPEC, or the one that stands for the job's life."""
    which = {"follow": "1"} if options.follow else {"spec": options.spec}
    seconds = options.seconds or (MOST_TRACE_SECONDS if options.follow else TRACE_SECONDS)
    return {"job": options.id, **which, "seconds": str(seconds)}


def _run_for_perfetto(options: argparse.Namespace) -> int:
    """Writes a file when the trace is over. Raises JobLensError."""
    if options.output is None and sys.stdout.isatty():
        kept_trace.output(None, b"")  # says so before, not after
    slices: list[Slice] = []
    arguments = _asked(options)
    for kind, said in messages(os.path.join(run_dir(options.run_dir), SOCKET), "trace", arguments):
        if kind != CONTENT:
            print(f"joblens: {said.decode()}", file=sys.stderr, flush=True)
            continue
        for row in _understood(said)["calls"]:
            slices.append(_slice(row))
            if len(slices) > MOST_PERFETTO:
                raise JobLensError(f"that are more than {MOST_PERFETTO:,} calls: trace for a shorter time")
    kept_trace.output(options.output, b"".join(Perfetto(printable(options.id)).packets(slices)))
    return 0


def _slice(row: Row) -> Slice:
    return kept_trace.a_slice(
        row["Function"], row["Pid"], row["Thread"], row["Time"], row["Seconds"], row["End"], row["Arguments"],
        row["Result"],
    )  # fmt: skip


def _understood(said: bytes) -> dict[str, list[Any]]:
    """Calls and sums of a message, whose texts are fit to print. Raises JobLensError."""
    try:
        told = json.loads(said)
        return {
            "calls": [_call(*each) for each in told.get("calls", [])],
            "commands": [traced_commands.command(*each) for each in told.get("commands", [])],
            "throws": [_throw(*each) for each in told.get("throws", [])],
            "places": [_place(*each) for each in told.get("places", [])],
            "summary": [_sums(each) for each in told.get("summary", [])],
        }
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise JobLensError("what was seen of the job makes no sense: install the same version of all parts") from None


def _call(
    when: float,
    pid: int,
    tid: int,
    function: str,
    arguments: list[str] | None,
    end: str,
    took: float | None,
    result: str | None,
    depth: int,
) -> Row:
    return {
        "Time": float(when),
        "Pid": int(pid),
        "Thread": int(tid),
        "Function": printable(str(function), MOST_SHOWN),
        "Arguments": None if arguments is None else [printable(str(each), MOST_SHOWN) for each in arguments],
        "End": printable(str(end), 20),
        "Seconds": None if took is None else float(took),
        "Result": None if result is None else printable(str(result), MOST_SHOWN),
        "Depth": int(depth),
    }


def _throw(when: float, pid: int, tid: int, kind: str, text: str | None, function: str, place: int) -> Row:
    return {
        "Time": float(when),
        "Pid": int(pid),
        "Thread": int(tid),
        "Type": printable(str(kind), MOST_SHOWN),
        "What": None if text is None else printable(str(text), MOST_SHOWN),
        "Function": printable(str(function), MOST_SHOWN),
        "Place": int(place),
    }


def _place(number: int, pid: int, kind: str, text: str, count: int, frames: list[list[str]], is_whole: bool) -> Row:
    return {
        "Place": int(number),
        "Pid": int(pid),
        "Type": printable(str(kind), MOST_SHOWN),
        "FirstWhat": printable(str(text), MOST_SHOWN),
        "Throws": int(count),
        "Stack": [[printable(str(each), MOST_SHOWN) for each in (function, file)] for function, file in frames],
        "StackIsWhole": bool(is_whole),
    }


def _sums(told: Row) -> Row:
    if "Commands" in told:
        return _sums_of_shells(told)
    is_of_throws = "Throws" in told
    return {
        "Function": printable(str(told["Function"]), MOST_SHOWN),
        "File": printable(str(told["File"]), MOST_SHOWN),
        **{name: int(told[name]) for name in (_NUMBERS_OF_THROWS if is_of_throws else _NUMBERS)},
        **{name: float(told[name]) for name in (("CoveredSeconds",) if is_of_throws else _SECONDS)},
        "SwitchedOff": bool(told["SwitchedOff"]),
        **({} if is_of_throws else {name: bool(told[name]) for name in ("SwitchesStacks", "EntriesAlone")}),
    }


def _sums_of_shells(told: Row) -> Row:
    numbers = (*traced_commands.COUNTS, "LostHits", "NotOurs", "NotShown")
    return {
        "File": printable(str(told["File"]), MOST_SHOWN),
        **{name: int(told[name]) for name in numbers},
        **{name: float(told[name]) for name in ("Seconds", "CoveredSeconds")},
        "ForAll": bool(told["ForAll"]),
        "SwitchedOff": bool(told["SwitchedOff"]),
    }


def line(row: Row) -> str:
    """A call, for people."""
    function = row["Function"]
    if row["Arguments"] is not None:
        function = f"{function.partition('(')[0]}({', '.join(row['Arguments'])})"
    if row["Result"] is not None:
        function += f" = {row['Result']}"
    ended = {"unwound": "unwound", "entered": "", "left": f"{_took(row['Seconds'])}, left by a jump"}.get(
        row["End"], _took(row["Seconds"])
    )
    return f"{_begin(row)}  {'  ' * min(max(0, row['Depth']), MOST_DEEP)}{function}  {ended}".rstrip()


def _begin(row: Row) -> str:
    clock = time.strftime("%H:%M:%S", time.localtime(row["Time"])) + f".{int(row['Time'] % 1 * 1e6):06d}"
    return f"{clock}  {row['Pid']}/{row['Thread']}"


def throw_line(row: Row) -> str:
    """What was thrown, for people."""
    what = "" if row["What"] is None else f": {row['What']}"
    where = f"  in {row['Function']}" if row["Function"] else ""
    return f"{_begin(row)}  {row['Type'] or 'an exception of a type that is not known'}{what}{where}"


def place_lines(row: Row) -> Sequence[str]:
    """From where a type was thrown, for people."""
    first = f", the first one with: {row['FirstWhat']}" if row["FirstWhat"] else ""
    frames = [f"    {function or '(no name)'} ({os.path.basename(file)})" for function, file in row["Stack"]]
    more = [] if row["StackIsWhole"] else ["    and what called that is not known"]
    kind = row["Type"] or "an exception of a type that is not known"
    return ["", f"{row['Throws']} x {kind} in process {row['Pid']}{first}", *frames, *more]


def _took(seconds: float | None) -> str:
    return "" if seconds is None else trace_page.duration(seconds)


def page(row: Row) -> Sequence[str]:
    """The sums of a function, or of shells, for people."""
    if "Commands" in row:
        return commands_page.summary(row, row["NotShown"], _probed(row))
    if "Throws" in row:
        head = f"{row['Throws']} exceptions were thrown by {row['File']} in {row['CoveredSeconds']:.1f} s"
        return ["", head, *_remarks(row)]
    if row["EntriesAlone"]:
        head = f"  {row['Calls']} entries in {row['CoveredSeconds']:.1f} s"
        return ["", f"{row['Function']} in {row['File']}", head, *_remarks(row)]
    ends = [f"{row[name]} {words}" for name, words in _WORDS.items() if row[name]]
    lines = [
        "",
        f"{row['Function']} in {row['File']}",
        f"  {row['Calls']} calls in {row['CoveredSeconds']:.1f} s" + (f": {', '.join(ends)}" if ends else ""),
    ]
    ended = row["Returned"] + row["LeftByJump"]
    if ended:
        mean = _took(row["TotalSeconds"] / ended)
        lines.append(f"  from entry to exit {mean} on average, {_took(row['LongestSeconds'])} at most")
    return [*lines, *_remarks(row)]


def _probed(row: Row) -> traced_commands.Probed:
    return traced_commands.Probed(
        row["File"], 0.0, 0, None, row["ForAll"], row["LostHits"], row["NotOurs"], row["SwitchedOff"],
        row["CoveredSeconds"],
    )  # fmt: skip


def _remarks(row: Row) -> list[str]:
    """What is to be known about the numbers."""
    said = (
        (
            row.get("EntriesAlone"),
            "it is a function of Go: a call whose stack has to grow is entered again, and no end is looked for",
        ),
        (row.get("BegunBefore"), f"{row.get('BegunBefore')} calls ended that had begun before they were traced"),
        (row.get("OtherPlaces"), f"{row.get('OtherPlaces')} were thrown from other places: too many to look up all"),
        (row["SwitchedOff"], "it was switched off then, because it is called too often"),
        (row["LostHits"], f"{row['LostHits']} hits of probes were lost: these numbers are too small"),
        (row["NotOurs"], f"{row['NotOurs']} hits in processes that are not the job owner's alone were not looked at"),
        (row["NotShown"], f"{row['NotShown']} were counted, and not shown one by one: the reader was too slow"),
        (
            row.get("SwitchesStacks"),
            "the program has several stacks for a thread: which calls were unwound is not known",
        ),
    )
    return [f"  {text}" for is_so, text in said if is_so]
