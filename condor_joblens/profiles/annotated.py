"""The lines of a job's scripts beside their times: calls of functions, how they were left, and samples on the CPU."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from condor_joblens.profiles.profile import Kind, Profile, View
from condor_joblens.profiles.text import clean
from condor_joblens.profiles.traced_calls import TracedCalls

MOST_FILES, MOST_LINES, MOST_OF_FUNCTION = 20, 1000, 60
"""Files, lines of one, and lines of a function, that are shown."""

_NAME = re.compile(r"(.{1,300}) \(([^()/]{1,200}):([0-9]{1,7})\)")
_LEFT = re.compile(r"left at line ([0-9]{1,7})")
_RAISED = re.compile(r"(.*) at line ([0-9]{1,7})")
_LONGEST = 200


@dataclass
class Line:
    """What is known of a line. Of a function it is the line where it begins."""

    calls: int = 0  # of the functions that begin here
    seconds: float = 0.0  # from begin to end of these calls
    unwound: int = 0
    left: int = 0  # of the last calls: those that ended here
    raised: int = 0  # of the last exceptions: those that arose here
    cpu: float = 0.0  # seconds on a CPU in this line, and in what it called, by samples


@dataclass
class Source:
    """A file, and its lines by their numbers."""

    path: str
    lines: defaultdict[int, Line] = field(default_factory=lambda: defaultdict(Line))
    functions: dict[int, str] = field(default_factory=dict)  # line -> name, of those that begin there
    text: Optional[list[str]] = None  # None: it was not read
    why: str = ""  # it was not

    @property
    def weight(self) -> tuple[float, float]:
        """What is shown first."""
        return max(line.seconds for line in self.lines.values()), max(line.cpu for line in self.lines.values())


def sources(traces: Iterable[TracedCalls], profile: Optional[Profile] = None) -> list[Source]:
    """Those with most time first. The traces are of one run, the profile is on the CPU."""
    found: dict[str, Source] = {}

    def of(path: str) -> Source:
        return found.setdefault(path, Source(path))

    for trace in traces:
        places = [_place(each.name, each.file) for each in trace.functions]
        for place, function in zip(places, trace.functions):
            if place is not None:
                path, name, number = place
                line = of(path).lines[number]
                line.calls += function.counts["Calls"]
                line.unwound += function.counts["Unwound"]
                line.seconds += function.seconds["TotalSeconds"]
                of(path).functions[number] = name
        for call in trace.calls:
            place = places[call.function]
            if place is not None and call.result:
                _take_end(of(place[0]), call.end, call.result)
    if profile is not None and profile.view is View.ON_CPU and profile.hz > 0:
        for stack, count in profile.stacks.items():
            lines = {(frame.file, frame.line) for frame in stack.frames if frame.line and frame.kind in _WITH_LINES}
            for file, number in lines:
                of(file).lines[number].cpu += count / profile.hz
    return sorted(found.values(), key=lambda each: each.weight, reverse=True)


_WITH_LINES = (Kind.PYTHON, Kind.NATIVE)


def _place(name: str, file: str) -> Optional[tuple[str, str, int]]:
    """Path, function and line of a function of a script; None for one of a program."""
    found = _NAME.fullmatch(name)
    if found is None or not file.endswith(found[2]):
        return None
    return file, found[1], int(found[3])


def _take_end(source: Source, end: str, result: str) -> None:
    left = _LEFT.fullmatch(result)
    if left is not None:
        source.lines[int(left[1])].left += 1
    elif end == "raised" and (raised := _RAISED.fullmatch(result)) is not None:
        source.lines[int(raised[2])].raised += 1


def fits(source: Source) -> bool:
    """Whether the text can be that which ran: each function's name is where it begins, or below its decorators."""
    assert source.text is not None
    for number, name in source.functions.items():
        last = name.rpartition(".")[2]
        near = source.text[number - 1 : number + 9]
        if not near or (last.isidentifier() and not any(re.search(rf"\b{last}\b", line) for line in near)):
            return False
    return True


def shown(source: Source) -> list[int]:
    """The numbers of lines to show, in order: functions whole if they are short, and lines with a number.

    Of `<module>` and the like it is the first line alone.
    """
    if source.text is None:
        return sorted(source.lines)[:MOST_LINES]
    chosen = {number for number in source.lines if 1 <= number <= len(source.text)}
    for number in (number for number, name in source.functions.items() if not name.startswith("<")):
        chosen.update(range(number, _end(source.text, number) + 1))
    return sorted(chosen)[:MOST_LINES]


def _end(text: Sequence[str], begin: int) -> int:
    """The last line of a function that begins there: before the next one that is not further to the right."""
    if not 1 <= begin <= len(text):
        return 0
    indent = _indent(text[begin - 1])
    last, is_in_head = begin, True
    for number in range(begin + 1, min(len(text), begin + MOST_OF_FUNCTION) + 1):
        line = text[number - 1]
        if not line.strip():
            continue
        if _indent(line) <= indent and not is_in_head:
            break
        is_in_head = is_in_head and _indent(line) <= indent and number < begin + 10
        last = number
    return last


def _indent(line: str) -> int:
    return len(line.expandtabs()) - len(line.expandtabs().lstrip())


def record(source: Source) -> dict[str, Any]:
    """In JSON."""
    return {
        "File": clean(source.path, _LONGEST),
        "NotRead": source.why,
        "Lines": [
            {
                "Line": number,
                "Function": clean(source.functions.get(number, ""), _LONGEST),
                "Text": None if source.text is None else clean(source.text[number - 1].expandtabs(), _LONGEST),
                **_numbers(source.lines.get(number, _NOTHING)),
            }
            for number in shown(source)
        ],
    }


_NOTHING = Line()


def _numbers(line: Line) -> dict[str, Any]:
    return {
        "Calls": line.calls,
        "TotalSeconds": line.seconds,
        "Unwound": line.unwound,
        "Left": line.left,
        "Raised": line.raised,
        "CpuSeconds": line.cpu,
    }
