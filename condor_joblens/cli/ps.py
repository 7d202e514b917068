"""`joblens ps ID`: the processes of a running job, each below the one that has started it.

With `--cluster` those of every running job of a cluster (many.py).
"""

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
from condor_joblens.common.errors import UsageError
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
    """Asks, and prints; exit code 0. Of a cluster it is the number of jobs that failed."""
    if (options.id is None) == (options.cluster is None):
        raise UsageError("name a job: joblens ps 12.0, or all of a cluster by --cluster 12")
    path = os.path.join(run_dir(options.run_dir), SOCKET)
    if options.cluster is not None:
        return _of_cluster(options, path)
    processes, notices = ask(path, options.id)
    if options.json:
        print(json.dumps(processes, indent=2))
    else:
        print("\n".join(page(processes, style())))
    for notice in notices:
        print(f"joblens: {notice}", file=sys.stderr)
    return 0


def _of_cluster(options: argparse.Namespace, path: str) -> int:
    """Raises JobLensError."""
    from condor_joblens.cli import many

    look = style()

    def shown(job: str, slot: str, answer: tuple[list[Process], list[str]]) -> str:
        processes, notices = answer
        lines = [f"job {job} in {slot}", *page(processes, look), *(f"joblens: {notice}" for notice in notices)]
        return "\n".join([*lines, ""])

    fields = (lambda answer: {"Processes": answer[0], "Notices": answer[1]}) if options.json else None
    return many.run(options.cluster, lambda job: ask(path, job), shown, fields)


def ask(path: str, job: str) -> tuple[list[Process], list[str]]:
    """The job's processes, and sentences about what is missing. Raises JobLensError."""
    processes, notices = [], []
    for kind, said in messages(path, "ps", {"job": job}):
        if kind == CONTENT:
            processes.append(record(said, FIELDS))
        else:
            notices.append(said.decode())
    return processes, notices


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
