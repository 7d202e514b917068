"""What benchmarks found, kept for docs/performance.md: a JSON file each in benchmarks/results, with the machine."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import time
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).with_name("results")


@dataclass
class Line:
    """One measured number, beside what it is compared with and what it should be."""

    what: str
    value: float | None  # None: could not be measured here
    unit: str
    target: float | None = None  # at most this
    note: str = ""
    is_least: bool = False  # at least this instead

    @property
    def missed(self) -> bool:
        """Whether there is a target, and it is missed."""
        if self.target is None or self.value is None:
            return False
        return self.value < self.target if self.is_least else self.value > self.target

    @property
    def goal(self) -> str:
        """The target as text, without its unit; empty if there is none."""
        return "" if self.target is None else f"{'≥' if self.is_least else '≤'} {self.target:g}"


@dataclass
class Section:
    """What one benchmark found."""

    name: str  # of its file
    title: str
    explanation: str
    lines: list[Line] = field(default_factory=list)
    is_matrix: bool = False  # lines are called ROW: COLUMN, and are shown as a table of them

    def add(
        self,
        what: str,
        value: float | None,
        unit: str,
        target: float | None = None,
        note: str = "",
        *,
        is_least: bool = False,
    ) -> None:
        """One more line, printed at once."""
        line = Line(what, value, unit, target, note, is_least)
        self.lines.append(line)
        print(shown(line), flush=True)

    def write(self) -> None:
        """Keeps it, with the machine and the day."""
        FOLDER.mkdir(exist_ok=True)
        content = {**dataclasses.asdict(self), "machine": machine(), "day": time.strftime("%Y-%m-%d")}
        (FOLDER / f"{self.name}.json").write_text(json.dumps(content, indent=1) + "\n")

    @property
    def missed(self) -> list[str]:
        """The lines whose target is missed."""
        return [line.what for line in self.lines if line.missed]


def verdict(missed: list[str]) -> int:
    """Says which targets are missed; the exit code of a benchmark, 1 where one is."""
    for what in missed:
        print(f"Target missed: {what}")
    return int(bool(missed))


def shown(line: Line) -> str:
    """A line as text."""
    value = "not measured" if line.value is None else f"{line.value:.3g} {line.unit}".strip()
    target = f"  (target {line.goal}{', MISSED' if line.missed else ''})" if line.goal else ""
    return f"{line.what:58} {value}{target}{'  ' + line.note if line.note else ''}"


def machine() -> dict[str, str]:
    """What it ran on."""
    model = ""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as cpuinfo:
        for text in cpuinfo:
            if text.startswith(("model name", "CPU part")):
                model = text.partition(":")[2].strip()
                break
    return {
        "processor": model,
        "cpus": str(os.cpu_count()),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "load": f"{os.getloadavg()[1]:.1f}",  # over five minutes: what else went on
    }


def sections() -> list[dict[str, object]]:
    """Everything that is kept, by name."""
    return [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]
