"""What is known of all commands of a job's shells: how many, and by the line of which script."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from condor_joblens.profiles.traced_commands import MOST_LINES
from condor_joblens.tracing.commands import Command, End


@dataclass
class Line:
    """One line of a script, or one of its commands if it has several."""

    runs: int = 0
    failed: int = 0
    total_ns: int = 0
    longest_ns: int = 0


@dataclass
class ShellSums:
    """Of one trace."""

    commands: int = 0
    failed: int = 0
    """With another status than 0: also what a script expects, as in `if` and `||`."""
    by_end: dict[End, int] = field(default_factory=lambda: dict.fromkeys(End, 0))
    total_ns: int = 0
    """Of the outermost ones of each shell that have ended: what they call is in them."""
    lines: dict[tuple[bytes, int, bytes, bool], Line] = field(default_factory=dict)
    """By script, line, words, and whether there were more of them."""
    folded: int = 0
    """Commands of lines for which there is no room."""

    def add(self, command: Command) -> None:
        """It has ended, or nobody will know how."""
        hit = command.hit
        self.commands += 1
        self.by_end[command.end] += 1
        is_failed = bool(command.status)
        self.failed += is_failed
        took = command.took_ns or 0
        self.total_ns += took if command.depth == 0 else 0
        key = hit.script, hit.line, hit.text, command.is_cut
        line = self.lines.get(key)
        if line is None:
            if len(self.lines) >= MOST_LINES:
                self.folded += 1
                return
            line = self.lines[key] = Line()
        line.runs += 1
        line.failed += is_failed
        line.total_ns += took
        line.longest_ns = max(line.longest_ns, took)

    def told(self) -> dict[str, Any]:
        """As it is kept."""
        return {
            "Commands": self.commands,
            "Failed": self.failed,
            "InBackground": self.by_end[End.IN_BACKGROUND],
            "IntoPipes": self.by_end[End.IN_PIPE],
            "InTraps": self.by_end[End.IN_TRAP],
            "EndNotSeen": self.by_end[End.NOT_SEEN],
            "Seconds": self.total_ns / 1e9,
        }
