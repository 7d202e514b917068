"""A job's time line in a terminal: a row for each process, and for each function, its files and its connections."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from condor_joblens.cli import sparklines, units
from condor_joblens.cli.terminal import ENDLESS, Style
from condor_joblens.common.errors import printable
from condor_joblens.profiles.timeline import CONNECTIONS, FILES, RARE, Bar, Curve, Mark, Process, Timeline
from condor_joblens.profiles.timeline_picture import number_in_words, seconds_in_words, tick_label, ticks, title

MOST_ROWS, MOST_FUNCTIONS, MOST_EVENTS = 120, 6, 15
"""Rows in all, functions of a process, and events in words."""

WIDE, LEAST_WIDE = 110, 60
"""Columns where there is no terminal, and of the narrowest one."""

_TICK = 16
_UNWOUND = "!"
KEY = "< > begin or end not known, * another command, ! trouble; heights are shares of the time, or counts"


def page(made: Timeline, look: Style) -> list[str]:
    """The lines for a person."""
    width = WIDE if look.width >= ENDLESS else max(LEAST_WIDE, look.width)
    canvas = _Canvas(made, width, look)
    rows = list(canvas.rows())
    lines = [look.paint(look.fit(printable(title(made), 200)), "bold"), *canvas.axis(), *rows[:MOST_ROWS]]
    if len(rows) > MOST_ROWS:
        lines.append(f"... {len(rows) - MOST_ROWS} more rows: -o FILE.svg and --json have all")
    if made.processes:
        lines += [look.paint(line, "dim") for line in look.wrapped(KEY)]
    lines += _troubles(made, look)
    remarks = [line for remark in made.remarks for line in look.wrapped(printable(remark, 400), "", "  ")]
    return [*lines, "", *remarks] if remarks else lines


class _Canvas:
    """Names to the left, an axis of so many columns, and words to the right."""

    def __init__(self, made: Timeline, width: int, look: Style) -> None:
        self._made, self._look = made, look
        self._names = min(30, width // 4)
        self._words = min(24, width // 4)
        self._columns = width - self._names - self._words - 3
        self._step = (made.ended - made.begun) / self._columns

    def axis(self) -> list[str]:
        found = ticks(self._made.begun, self._made.ended, max(1, self._columns // _TICK))
        step = found[1] - found[0] if len(found) > 1 else 1.0
        line = [" "] * (self._columns + _TICK)
        for at in found:
            label, column = f"|{tick_label(at, step)}", self._column(at)
            if column + len(label) <= self._columns + _TICK:
                line[column : column + len(label)] = label
        scale = f"a column: {seconds_in_words(self._step)}"
        return [self._look.paint(self._look.fit(f"{scale:<{self._names}} {''.join(line).rstrip()}"), "dim")]

    def rows(self) -> Iterator[str]:
        for process in self._made.processes:
            yield self._process(process)
            yield from self._functions(process)
            for name, kinds, one, many in (
                ("files", FILES, "opened", "failed"),
                ("connections", CONNECTIONS, "opened", "refused"),
            ):
                marks = [mark for mark in process.marks if mark.kind in kinds]
                if marks:
                    yield self._marks(name, process.depth, marks, one, many)
        for curve in self._made.curves:
            yield self._curve(curve)

    def _row(self, name: str, depth: int, marks: Sequence[str], words: str, *looks: str) -> str:
        shown = f"{'  ' * min(depth, 5)}{printable(name, 100)}"
        shown = shown if len(shown) <= self._names else shown[: self._names - 2] + ".."
        room = self._words if self._look.width < ENDLESS else 200
        words = words if len(words) <= room else words[: room - 2] + ".."
        return f"{self._look.paint(shown.ljust(self._names), *looks)} {''.join(marks)}  {words}".rstrip()

    def _process(self, process: Process) -> str:
        marks = [" "] * self._columns
        first, last = self._column(process.begun), self._column(process.ended)
        marks[first : last + 1] = ("━" if self._look.blocks else "=") * (last + 1 - first)
        for mark in process.commands[1:]:
            marks[self._column(mark.time)] = "*"
        if not process.is_begin_known and process.begun > self._made.begun:
            marks[first] = "<"
        if not process.is_end_known and not process.is_alive:
            marks[last] = ">"
        for mark in process.marks:
            if mark.kind in ("signal", "raised"):
                marks[self._column(mark.time)] = "!"
        words = printable(process.commands[-1].text, 100) if process.commands else ""
        ending = printable(process.ending, 40) or ("runs" if process.is_alive else "")
        who = f"{process.pid} {process.program}" if process.pid else "unknown processes"
        return self._row(who, process.depth, marks, ", ".join(part for part in (ending, words) if part), "bold")

    def _functions(self, process: Process) -> Iterator[str]:
        """Those with the most time, the outermost first where they have as much."""
        bars: dict[str, list[Bar]] = {}
        for thread in process.threads:
            for bar in thread.bars:
                bars.setdefault(bar.name, []).append(bar)
        for name in sorted(bars, key=lambda each: (-_total(bars[each]), bars[each][0].depth))[:MOST_FUNCTIONS]:
            yield self._function(name, process, bars[name])
        if len(bars) > MOST_FUNCTIONS:
            yield self._row(f"{len(bars) - MOST_FUNCTIONS} more functions", process.depth + 1, (), "", "dim")

    def _function(self, name: str, process: Process, bars: Sequence[Bar]) -> str:
        share = [0.0] * self._columns
        unwound = set()
        for bar in bars:
            first, last = self._column(bar.begun), self._column(bar.begun + (bar.seconds or 0.0))
            if bar.is_moment:
                unwound.add(first)
            for column in range(first, last + 1):
                begun = self._made.begun + column * self._step
                covered = min(bar.begun + (bar.seconds or 0.0), begun + self._step) - max(bar.begun, begun)
                share[column] += max(covered, 0.02 * self._step)
        marks = self._spark(share, self._step)
        for column in unwound:
            marks[column] = _UNWOUND
        bad = sum(bar.end in ("raised", "unwound") for bar in bars)
        words = f"{units.count(len(bars), 'call')}, {seconds_in_words(_total(bars))}" + (f", {bad} !" if bad else "")
        return self._row(name, process.depth + 1, marks, words)

    def _marks(self, name: str, depth: int, marks: Sequence[Mark], good: str, bad: str) -> str:
        counts = [0.0] * self._columns
        for mark in marks:
            counts[self._column(mark.time)] += 1
        shown = self._spark(counts, max(counts))
        failed = [mark for mark in marks if mark.kind in RARE]
        for mark in failed:
            if mark.kind in CONNECTIONS:  # most programs look for files where there are none
                shown[self._column(mark.time)] = "!"
        words = [
            f"{number:,} {word}" for number, word in ((len(marks) - len(failed), good), (len(failed), bad)) if number
        ]
        return self._row(name, depth + 1, shown, ", ".join(words))

    def _curve(self, curve: Curve) -> str:
        values = [float("nan")] * self._columns
        before = self._made.begun
        for at, value in curve.points:
            first, last = self._column(before), self._column(min(at, self._made.ended))
            for column in range(first, last + 1):
                values[column] = value if values[column] != values[column] else max(values[column], value)
            before = at
        most = max(value for _, value in curve.points)
        least = min(value for _, value in curve.points)
        marks = list(sparklines.spark(values, most or 1.0, self._look.blocks))
        words = f"{number_in_words(least)} to {number_in_words(most)} {curve.unit}"
        return self._row(curve.title, 0, marks, words.strip(), "bold")

    def _spark(self, values: Sequence[float], whole: float) -> list[str]:
        """A blank where there is nothing at all."""
        known = [value if value else float("nan") for value in values]
        return list(sparklines.spark([min(value, whole) for value in known], whole, self._look.blocks))

    def _column(self, at: float) -> int:
        return min(self._columns - 1, max(0, int((at - self._made.begun) / self._step)))


def _total(bars: Iterable[Bar]) -> float:
    return sum(bar.seconds or 0.0 for bar in bars)


def _troubles(made: Timeline, look: Style) -> list[str]:
    """The last events that tell of trouble, in words."""
    found = [(mark, process) for process in made.processes for mark in process.marks if mark.kind in RARE]
    found += [
        (Mark(bar.begun, "raised", f"{bar.words}: {bar.result or bar.end}"), process)
        for process in made.processes
        for thread in process.threads
        for bar in thread.bars
        if bar.end == "raised"
    ]
    if not found:
        return []
    found.sort(key=lambda each: each[0].time)
    lines = ["", look.paint(f"Trouble ({len(found):,})", "bold")]
    if len(found) > MOST_EVENTS:
        lines.append(look.paint(f"... {len(found) - MOST_EVENTS:,} earlier ones", "dim"))
    return lines + [look.fit(_line(mark, process)) for mark, process in found[-MOST_EVENTS:]]


def _line(mark: Mark, process: Process) -> str:
    clock = time.strftime("%H:%M:%S", time.localtime(mark.time)) + f".{int(mark.time % 1 * 1000):03}"
    who = f"{process.pid or '-':>7} {printable(process.program, 15):<15}"
    return f"{clock}  {who} {mark.kind:<8} {printable(mark.text, 200)}"
