"""What a trace of functions has seen, in lines for a person: sums of functions, or their call tree.

Of what comes from the job all is escaped and cut.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from condor_joblens.common.errors import printable
from condor_joblens.profiles.traced_calls import Function, TracedCalls

COLUMNS = ("FUNCTION", "CALLS", "UNWOUND", "TOTAL", "MEDIAN", "99 %", "LONGEST", "COUNTED FOR")

_LONGEST = 200
_SWITCHED_OFF, _MOST_SWITCHED_OFF = " switched off then: too many calls", 5
_NUMBERS = slice(1, None)


def table(kept: TracedCalls) -> list[str]:
    """The sums, the most time first: a title, names of columns, a line a function, and remarks."""
    functions = sorted(kept.functions, key=lambda each: (-each.seconds["TotalSeconds"], -each.counts["Calls"]))
    rows = [COLUMNS, *map(_cells, functions)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = [_title(kept)]
    for name, *others in rows:
        cells = [name.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[_NUMBERS]))]
        lines.append("  ".join(cells).rstrip())
    return [*lines, *_remarks(kept, functions)]


def tree(kept: TracedCalls) -> list[str]:
    """Each function below the one that called it, the most time first: a title, names of columns, a line a node."""
    children: dict[int, list[int]] = {}
    for number, node in enumerate(kept.tree):
        children.setdefault(node.parent, []).append(number)
    lines = [_title(kept), f"{'CALLS':>10}  {'UNWOUND':>7}  {'TOTAL':>9}  FUNCTION"]
    waiting = _ordered(kept, children.get(-1, []))
    while waiting:
        number = waiting.pop()
        node = kept.tree[number]
        name = "  " * node.depth + printable(kept.functions[node.function].name, _LONGEST)
        took = duration(node.seconds) if node.calls > node.unwound and node.seconds else ""
        lines.append(f"{node.calls:>10}  {node.unwound or '':>7}  {took:>9}  {name}")
        waiting += _ordered(kept, children.get(number, []))
    if kept.folded:
        lines.append(f"{kept.folded:>10}  further calls were too deep, or came too many ways")
    return lines


def _ordered(kept: TracedCalls, numbers: Iterable[int]) -> list[int]:
    """The last one is to be shown first."""
    return sorted(numbers, key=lambda number: (kept.tree[number].seconds, kept.tree[number].calls, -number))


def quantile(function: Function, share: float) -> float | None:
    """Seconds in which so much of its calls were over; never more than the longest one: a sketch is not exact."""
    found = function.times.quantile(share)
    return None if found is None else min(found / 1e9, function.seconds["LongestSeconds"])


def _title(kept: TracedCalls) -> str:
    begun, ended = (time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) for at in (kept.begun, kept.ended))
    return f"Traced from {begun} until {ended}"


def _cells(function: Function) -> tuple[str, ...]:
    counts, seconds = function.counts, function.seconds
    has_ended = counts["Returned"] + counts["LeftByJump"] > 0
    times = (seconds["TotalSeconds"], quantile(function, 0.5), quantile(function, 0.99), seconds["LongestSeconds"])
    return (
        printable(function.name, 60),
        str(counts["Calls"]),
        "" if function.truths["EntriesAlone"] else str(counts["Unwound"]),
        *(duration(each) if has_ended and each is not None else "" for each in times),
        duration(seconds["CoveredSeconds"])
        if function.share == 1.0
        else _part(seconds["CoveredSeconds"], function.share),
    )


def _part(covered: float, share: float) -> str:
    """`2.1 % of 12.00 s`."""
    return f"{100 * share:.1f} % of {duration(covered / share) if share else 'the time'}"


def _remarks(kept: TracedCalls, functions: Sequence[Function]) -> list[str]:
    lines = [remark for function in functions for remark in _of_function(function)]
    switched_off = [remark for remark in lines if remark.endswith(_SWITCHED_OFF)]
    if len(switched_off) > _MOST_SWITCHED_OFF:
        lines = [
            f"{len(switched_off)} functions were{_SWITCHED_OFF}",
            *(each for each in lines if each not in switched_off),
        ]
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
        yield f"{name}: it was{_SWITCHED_OFF}"
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
