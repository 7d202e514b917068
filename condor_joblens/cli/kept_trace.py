"""`joblens trace ID`: what a trace that stands for a job's life has seen so far: sums of functions, or a call tree."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from condor_joblens.cli.artifacts import fetched, listed, write
from condor_joblens.cli.runs import run_dir
from condor_joblens.cli.terminal import Style, style
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.control import SOCKET
from condor_joblens.profiles import perfetto, traced_calls
from condor_joblens.profiles.traced_calls import Call, Function, TracedCalls
from condor_joblens.shm.artifact_header import Artifact

NOTHING = (
    "no trace of job {job} is kept on this node. One is kept, from some seconds on, of a job at level trace that asks "
    'for it: +JobLensTrace = "FILE:FUNCTION; ..." in its submit file, or a policy does. To trace it now: '
    "joblens trace {job} FILE:FUNCTION"
)
COLUMNS = ("FUNCTION", "CALLS", "UNWOUND", "TOTAL", "MEDIAN", "99 %", "LONGEST", "COUNTED FOR")

_LONGEST = 200
_NUMBERS = slice(1, None)


def run(options: argparse.Namespace) -> int:
    """Prints or writes all that is kept of the job's last run here, the oldest part first; exit code 0."""
    path = os.path.join(run_dir(options.run_dir), SOCKET)
    kept = [each for each in listed(path, options.id) if each.kind == traced_calls.KIND]
    if not kept:
        raise JobLensError(NOTHING.format(job=printable(options.id)))
    found = [_one(path, options.id, each) for each in kept]
    if options.format == "perfetto":
        _write_perfetto(options, found)
    elif options.json:
        print(json.dumps([record(*each) for each in found], indent=2))
    else:
        pages = [(tree if options.tree else page)(each, style()) for _, each in found]
        print("\n\n".join("\n".join(each) for each in pages))
    return 0


def _one(path: str, job: str, artifact: Artifact) -> tuple[Artifact, TracedCalls]:
    about, content = fetched(path, job, artifact.name)
    try:
        return about, traced_calls.decode(content)
    except ValueError as error:
        raise JobLensError(f"{artifact.name}: {printable(str(error))}") from None


def _write_perfetto(options: argparse.Namespace, found: Iterable[tuple[Artifact, TracedCalls]]) -> None:
    made = perfetto.Perfetto(printable(options.id))
    packets = [packet for _, each in found for packet in made.packets(slices(each))]
    output(options.output, b"".join(packets))


def output(path: str | None, content: bytes) -> None:
    """To the file, or to standard output if that is no terminal. Raises JobLensError."""
    if path is not None:
        write(path, content)
        print(f"{path}: open it at https://ui.perfetto.dev", file=sys.stderr)
        return
    if sys.stdout.isatty():
        raise JobLensError(f"this is nothing to read: say with -o job{perfetto.SUFFIX} where to write it")
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def slices(kept: TracedCalls) -> Iterator[perfetto.Slice]:
    """The last calls, as Perfetto shows them."""
    for call in kept.calls:
        yield a_slice(
            printable(kept.functions[call.function].name, _LONGEST), call.pid, call.tid, call.time, call.seconds,
            call.end, call.arguments, call.result,
        )  # fmt: skip


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
        **{f"{name}Seconds": _quantile(function, share) for name, share in _SHARES},
        **function.truths,
    }


_SHARES = (("Median", 0.5), ("Percentile95", 0.95), ("Percentile99", 0.99))


def _quantile(function: Function, share: float) -> float | None:
    """Never more than the longest one: a sketch is not exact."""
    found = function.times.quantile(share)
    return None if found is None else min(found / 1e9, function.seconds["LongestSeconds"])


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


def page(kept: TracedCalls, look: Style) -> list[str]:
    """The sums as a table, the most time first."""
    functions = sorted(kept.functions, key=lambda each: (-each.seconds["TotalSeconds"], -each.counts["Calls"]))
    rows = [COLUMNS, *map(_cells, functions)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = [look.paint(_head(kept), "bold")]
    for number, (name, *others) in enumerate(rows):
        cells = [name.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[_NUMBERS]))]
        lines.append(look.paint(look.fit("  ".join(cells).rstrip()), *(() if number else ("dim",))))
    return [*lines, *_remarks(kept, functions)]


def tree(kept: TracedCalls, look: Style) -> list[str]:
    """The call tree: each function below the one that called it, the most time first."""
    children: dict[int, list[int]] = {}
    for number, node in enumerate(kept.tree):
        children.setdefault(node.parent, []).append(number)
    lines = [
        look.paint(_head(kept), "bold"),
        look.paint(f"{'CALLS':>10}  {'UNWOUND':>7}  {'TOTAL':>9}  FUNCTION", "dim"),
    ]
    waiting = _ordered(kept, children.get(-1, []))
    while waiting:
        number = waiting.pop()
        node = kept.tree[number]
        name = "  " * node.depth + printable(kept.functions[node.function].name, _LONGEST)
        took = duration(node.seconds) if node.calls > node.unwound and node.seconds else ""
        lines.append(look.fit(f"{node.calls:>10}  {node.unwound or '':>7}  {took:>9}  {name}"))
        waiting += _ordered(kept, children.get(number, []))
    if kept.folded:
        lines.append(f"{kept.folded:>10}  further calls were too deep, or came too many ways")
    return lines


def _ordered(kept: TracedCalls, numbers: Iterable[int]) -> list[int]:
    """The last one is to be shown first."""
    return sorted(numbers, key=lambda number: (kept.tree[number].seconds, kept.tree[number].calls, -number))


def _head(kept: TracedCalls) -> str:
    begun, ended = (time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) for at in (kept.begun, kept.ended))
    return f"Traced from {begun} until {ended}"


def _cells(function: Function) -> tuple[str, ...]:
    counts, seconds = function.counts, function.seconds
    has_ended = counts["Returned"] + counts["LeftByJump"] > 0
    times = (seconds["TotalSeconds"], _quantile(function, 0.5), _quantile(function, 0.99), seconds["LongestSeconds"])
    return (
        printable(function.name, 60),
        str(counts["Calls"]),
        "" if function.truths["EntriesAlone"] else str(counts["Unwound"]),
        *(duration(each) if has_ended and each is not None else "" for each in times),
        duration(seconds["CoveredSeconds"]),
    )


def _remarks(kept: TracedCalls, functions: Sequence[Function]) -> list[str]:
    lines = [remark for function in functions for remark in _of_function(function)]
    lines += [printable(note, _LONGEST) for note in kept.notes]
    return ["", *lines] if lines else []


def _of_function(function: Function) -> Iterator[str]:
    """What is to be known about its numbers."""
    counts, truths, name = function.counts, function.truths, printable(function.name, 60)
    if not function.begun:
        yield f"{name}: no process of the job has had it so far"
    if function.unseen is None:
        yield f"{name}: for how long its processes ran before it was traced is not known"
    elif function.unseen:
        yield f"{name}: its processes ran for up to {duration(function.unseen)} before it was traced"
    if truths["SwitchedOff"]:
        yield f"{name}: it was switched off then, because it is called too often"
    if truths["EntriesAlone"]:
        yield f"{name}: a function of Go: a call whose stack has to grow is entered again, and no end is looked for"
    if counts["LostHits"]:
        yield f"{name}: {counts['LostHits']} hits of probes were lost: these numbers are too small"
    if counts["NotOurs"]:
        yield f"{name}: {counts['NotOurs']} hits in processes that are not the job owner's alone were not looked at"
    if counts["EndUnknown"] and not truths["EntriesAlone"]:
        yield f"{name}: {counts['EndUnknown']} calls ended in a way that is not known"
    if counts["EndNotSeen"]:
        yield f"{name}: {counts['EndNotSeen']} calls of which no end was seen so far"
    if truths["SwitchesStacks"]:
        yield f"{name}: the program has several stacks for a thread: which calls were unwound is not known"


def duration(seconds: float) -> str:
    """`12.3 us`, `4.5 ms`, `12.30 s`."""
    for limit, scale, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if seconds < limit:
            return f"{seconds * scale:.1f} {unit}"
    return f"{seconds:.2f} s"
