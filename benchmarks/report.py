#!/usr/bin/env python3
"""Makes docs/performance.md and its plot from what the benchmarks kept in benchmarks/results.

report.py             after the benchmarks; the plot needs matplotlib (the extra `plots`)
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT / "benchmarks"))

from results import Line, sections  # noqa: E402

PAGE = CHECKOUT / "docs" / "performance.md"
PLOT = CHECKOUT / "docs" / "images" / "performance.svg"

HEAD = """<!-- Made by `python benchmarks/report.py` from benchmarks/results. -->

# What JobLens costs

Look up what JobLens costs, as measured. `make bench` measures it on your machine. A target is the
limit that we aim at; a missed target is marked. [sizing.md](sizing.md) has the cost for a pool.
"""


def table(section: dict[str, Any]) -> str:
    """One section of the page."""
    machine = section["machine"]
    lines = [
        f"## {section['title']}",
        "",
        section["explanation"],
        "",
        f"Measured {section['day']}: {machine['processor']}, {machine['cpus']} CPUs, kernel {machine['kernel']}, "
        f"{machine['architecture']}" + (f", load average {machine['load']}." if "load" in machine else "."),
        "",
    ]
    found = [_line(fields) for fields in section["lines"]]
    if section.get("is_matrix"):
        lines += matrix([line for line in found if ": " in line.what])
        found = [line for line in found if ": " not in line.what]
    if found:
        lines += ["| what | measured | target | |", "|---|---|---|---|", *map(row, found)]
    return "\n".join(lines) + "\n"


def missed(found: list[dict[str, Any]]) -> str:
    """The targets that are missed, of all sections, before everything else; how each is to be measured again."""
    lines = [(section, line) for section in found for line in map(_line, section["lines"]) if line.missed]
    if not lines:
        return "## Missed targets\n\nNone is missed.\n"
    head = [
        "## Missed targets",
        "",
        f"{len(lines)} targets are missed. `benchmarks/README.md` says how each is measured again.",
        "",
        "| where | what | measured | target | day |",
        "|---|---|---|---|---|",
    ]
    rows = (
        f"| {section['title']} | {line.what} | {shown(line)} | {line.goal} {line.unit} | {section['day']} |"
        for section, line in lines
    )
    return "\n".join([*head, *rows]) + "\n"


def _line(fields: dict[str, Any]) -> Line:
    return Line(**fields)


def shown(line: Line) -> str:
    """The value, as it is written on the page."""
    if line.value is None:
        return "–"
    if abs(line.value) >= 1000:
        return f"{line.value:,.0f} {line.unit}"
    return f"{line.value:,.3g} {line.unit}".replace("+03", "")


def row(line: Line) -> str:
    """One number with its target."""
    target = f"{line.goal} {line.unit}" if line.goal else ""
    note = "; ".join(part for part in ("**missed**" if line.missed else "", line.note) if part)
    return f"| {line.what} | {shown(line)} | {target} | {note} |"


def matrix(found: list[Line]) -> list[str]:
    """Lines called ROW: COLUMN as a table; the last row has the targets."""
    cells: dict[str, dict[str, Line]] = {}
    for line in found:
        name, _, column = line.what.partition(": ")
        cells.setdefault(name, {})[column] = line
    columns = list(dict.fromkeys(column for line in cells.values() for column in line))
    rows = [[name, *(_cell(of.get(column)) for column in columns)] for name, of in cells.items()]
    targets = {column: line.target for of in cells.values() for column, line in of.items()}
    rows.append(["at most", *("" if targets[column] is None else f"{targets[column]:g}" for column in columns)])
    rows = [["", *columns], ["---"] * (1 + len(columns)), *rows]
    return [*(f"| {' | '.join(cell)} |" for cell in rows), ""]


def _cell(line: Line | None) -> str:
    if line is None:
        return ""
    return f"**{shown(line)}**" if line.missed else shown(line)


def plot(found: list[dict[str, Any]]) -> bool:
    """How much longer `dd bs=1` takes under each, the worst case there is; false where it was not measured."""
    bars = [
        (line["what"].partition(": ")[2].partition(" / ")[0], line["value"])
        for section in found
        for line in section["lines"]
        if line["what"].startswith("dd bs=1: ") and line["what"].endswith("/ no program") and line["value"]
    ]
    if not bars:
        return False
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "joblens"
    from matplotlib import pyplot

    names = {"watched": "JobLens, the job itself", "unwatched": "JobLens, a neighbour of the job"}
    figure, axes = pyplot.subplots(figsize=(7, 0.5 * len(bars) + 1))
    labels, values = [names.get(name, name) for name, _ in bars][::-1], [value for _, value in bars][::-1]
    drawn = axes.barh(labels, values, color=["#2a78b5" if "JobLens" in label else "#b0b0b0" for label in labels])
    axes.bar_label(drawn, [f"{value:.3g}×" for value in values], padding=3)
    axes.set_xscale("log")
    axes.set_xlim(0.9, max(values) * 2.5)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel("CPU time of dd bs=1 (nothing but system calls), against no program at all")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    PLOT.parent.mkdir(exist_ok=True)
    figure.savefig(PLOT, metadata={"Date": None})
    return True


def main() -> int:
    """Writes both; 1 where there is nothing to write from."""
    found = sections()
    if not found:
        print("report: benchmarks/results is empty: run make bench first", file=sys.stderr)
        return 1
    image = f"\n![dd bs=1 under JobLens and its rivals](images/{PLOT.name})\n" if plot(found) else ""
    PAGE.write_text("\n".join([HEAD + image, missed(found), *map(table, found)]))
    print(f"{PAGE} is made from {len(found)} benchmarks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
