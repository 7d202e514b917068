"""What a trace of bash scripts has seen, in lines for a person. Of what comes from the job all is escaped and cut."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

from condor_joblens.common.errors import printable
from condor_joblens.profiles.trace_page import duration
from condor_joblens.profiles.traced_commands import Line, Probed, ShellCommand, TracedCommands

COLUMNS = ("RUNS", "FAILED", "TOTAL", "LONGEST", "WHERE", "COMMAND")
MOST_SHOWN = 300
MOST_DEEP = 20
MOST_ROWS = 100

_ENDS = {"background": "in background", "pipe": "into the next one", "trap": "the trap's last one"}


def table(kept: TracedCommands, most: int = MOST_ROWS) -> list[str]:
    """The lines of scripts, the most time first: a title, names of columns, a line each, and remarks."""
    rows = [COLUMNS, *(_cells(line) for line in kept.lines[:most])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    begun, ended = (time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) for at in (kept.begun, kept.ended))
    counts = kept.counts
    lines = [
        f"Commands of bash from {begun} until {ended}: {counts['Commands']} of {counts['Shells']} shells, "
        f"{counts['Failed']} failed"
    ]
    for row in rows:
        numbers = [cell.rjust(width) for cell, width in zip(row[:4], widths)]
        lines.append("  ".join([*numbers, row[4].ljust(widths[4]), row[5]]).rstrip())
    return [*lines, *_remarks(kept, most)]


def _cells(line: Line) -> tuple[str, ...]:
    return (
        str(line.runs), str(line.failed or ""), duration(line.seconds), duration(line.longest),
        place(line.script, line.line), printable(line.text, MOST_SHOWN),
    )  # fmt: skip


def place(script: str, line: int) -> str:
    """`fit.sh:12`; a shell's -c has its own name there."""
    return f"{printable(script.rpartition('/')[2], 40) or 'bash'}:{line}"


def command_line(command: ShellCommand) -> str:
    """One command as it ended."""
    when = time.strftime("%H:%M:%S", time.localtime(command.time)) + f".{int(command.time % 1 * 1e6):06d}"
    text = "  " * min(command.depth, MOST_DEEP) + printable(command.text, MOST_SHOWN)
    return f"{when}  {command.pid}  {place(command.script, command.line)}  {text}  {ended(command)}".rstrip()


def ended(command: ShellCommand) -> str:
    """`exit 1  12.3 ms`."""
    if command.status is None:
        return _ENDS.get(command.end, "its end was not seen")
    took = "" if command.seconds is None else f"  {duration(command.seconds)}"
    return (f"exit {command.status}" if command.status else "ok") + took


def summary(counts: Mapping[str, int], not_shown: int, probed: Probed) -> list[str]:
    """The sums of a trace, for people."""
    head = f"{counts['Commands']} commands of {counts['Shells']} shells in {probed.covered:.1f} s"
    lines = [*_of_counts(counts), *_of_bash(probed, None)]
    if not_shown:
        lines.append(f"{not_shown} were counted, and not shown one by one: the reader was too slow")
    return ["", f"{head}, {counts['Failed']} with another status than 0", *(f"  {line}" for line in lines)]


def _remarks(kept: TracedCommands, most: int) -> list[str]:
    lines = [*_of_counts(kept.counts), *(text for each in kept.probed for text in _of_bash(each, each.unseen))]
    if len(kept.lines) > most:
        lines.append(f"{len(kept.lines) - most} further lines took less time (--json has all)")
    if kept.folded:
        lines.append(f"{kept.folded} commands are in lines for which there was no room")
    if not kept.probed:
        lines.append("no process of the job has been a bash so far")
    lines += [printable(note, MOST_SHOWN) for note in kept.notes]
    return ["", *lines] if lines else []


def _of_counts(counts: Mapping[str, int]) -> Iterator[str]:
    if counts["CountedAlone"]:
        yield f"{counts['CountedAlone']} of the commands were counted alone: to read all would cost the node too much"


def _of_bash(probed: Probed, unseen: Optional[float]) -> Iterator[str]:
    """What is to be known about the numbers."""
    file = printable(probed.file, 80)
    if unseen:
        yield f"{file}: its shells ran for up to {duration(unseen)} in all before they were traced"
    if not probed.for_all:
        yield f"{file}: subshells that end within some tenths of a second are not seen (JOBLENS_TRACE_SHELL)"
    if probed.is_off:
        yield f"{file}: it was switched off after {duration(probed.covered)}, because it executes too many commands"
    if probed.lost:
        yield f"{file}: {probed.lost} commands were lost: these numbers are too small"
    if probed.not_ours:
        yield f"{file}: {probed.not_ours} commands of shells that are not the job owner's alone were not looked at"


def record(kept: TracedCommands) -> dict[str, object]:
    """The same in JSON, whole."""
    return {
        "Begun": kept.begun,
        "Ended": kept.ended,
        "Notes": [printable(note, MOST_SHOWN) for note in kept.notes],
        **kept.counts,
        "Seconds": kept.seconds,
        "Probed": [
            {
                "File": printable(each.file, MOST_SHOWN), "From": each.begun, "Processes": each.processes,
                "UnseenSeconds": each.unseen, "ForAll": each.for_all, "LostHits": each.lost, "NotOurs": each.not_ours,
                "SwitchedOff": each.is_off, "CoveredSeconds": each.covered,
            }
            for each in kept.probed
        ],
        "Lines": [
            {
                "Script": printable(each.script, MOST_SHOWN), "Line": each.line,
                "Command": printable(each.text, MOST_SHOWN), "Runs": each.runs, "Failed": each.failed,
                "TotalSeconds": each.seconds, "LongestSeconds": each.longest,
            }
            for each in kept.lines
        ],
        "NotInLines": kept.folded,
        "LastCommands": records(kept.commands),
    }  # fmt: skip


def records(commands: Sequence[ShellCommand]) -> list[dict[str, object]]:
    """Commands in JSON; texts are escaped."""
    return [
        {
            "Time": each.time, "Pid": each.pid, "Script": printable(each.script, MOST_SHOWN), "Line": each.line,
            "Command": printable(each.text, MOST_SHOWN), "End": printable(each.end, 20), "Status": each.status,
            "Seconds": each.seconds, "Depth": each.depth,
        }
        for each in commands
    ]  # fmt: skip
