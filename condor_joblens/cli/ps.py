"""`joblens ps ID`: the processes of a running job of this node, each below the one that has started it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from condor_joblens.cli.child_output import messages, record
from condor_joblens.cli.runs import run_dir
from condor_joblens.cli.terminal import Style, style
from condor_joblens.cli.units import duration, memory
from condor_joblens.control import SOCKET
from condor_joblens.control.child_output import CONTENT

FIELDS = {
    "Pid": int,
    "ParentPid": int,
    "State": str,
    "Threads": int,
    "CpuSeconds": float,
    "MemoryBytes": int,
    "WallSeconds": float,
    "Command": str,
}
HEAD = ("PID", "STATE", "THREADS", "CPU", "TIME", "MEMORY", "COMMAND")
DEEPEST = 10
"""Steps of the tree that are shown."""

Process = dict[str, Any]


def run(options: argparse.Namespace) -> int:
    """Asks, and prints; exit code 0."""
    processes, notices = [], []
    for kind, said in messages(os.path.join(run_dir(options.run_dir), SOCKET), "ps", {"job": options.id}):
        if kind == CONTENT:
            processes.append(record(said, FIELDS))
        else:
            notices.append(said.decode())
    if options.json:
        print(json.dumps(processes, indent=2))
    else:
        print("\n".join(page(processes, style())))
    for notice in notices:
        print(f"joblens: {notice}", file=sys.stderr)
    return 0


def page(processes: Sequence[Process], look: Style) -> list[str]:
    """The lines for a person."""
    lines = [HEAD, *(cells(process, depth) for process, depth in tree(processes))]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD) - 1)]
    text = ["  ".join([*(cell.rjust(width) for cell, width in zip(line, widths)), line[-1]]) for line in lines]
    return [look.paint(look.fit(line), *(() if number else ("dim",))) for number, line in enumerate(text)]


def tree(processes: Sequence[Process]) -> list[tuple[Process, int]]:
    """Each process after the one that has started it, and how deep it is below one that is not the job's."""
    known = {process["Pid"]: process for process in processes}
    children: dict[int, list[Process]] = {}
    for process in known.values():
        parent = process["ParentPid"]
        children.setdefault(parent if parent in known and parent != process["Pid"] else 0, []).append(process)
    found: list[tuple[Process, int]] = []
    waiting = [(process, 0) for process in reversed(children.pop(0, []))]
    while waiting or children:
        if not waiting:  # whoever says so has parents in a circle
            waiting = [(process, 0) for process in children.pop(next(iter(children)))]
        process, depth = waiting.pop()
        found.append((process, depth))
        waiting += [(child, depth + 1) for child in reversed(children.pop(process["Pid"], []))]
    return found


def cells(process: Process, depth: int) -> tuple[str, ...]:
    """A line of the list."""
    return (
        str(process["Pid"]),
        process["State"],
        str(process["Threads"]),
        duration(process["CpuSeconds"]),
        duration(process["WallSeconds"]),
        memory(process["MemoryBytes"]),
        "  " * min(depth, DEEPEST) + process["Command"],
    )
