"""`joblens node ID`: the machine on which a job runs, and which other jobs of the same user run there."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from condor_joblens.cli.child_output import messages, record
from condor_joblens.cli.runs import run_dir
from condor_joblens.cli.terminal import Style, style, table
from condor_joblens.cli.units import clock, duration, memory, volume
from condor_joblens.common.errors import JobLensError
from condor_joblens.control import SOCKET
from condor_joblens.control.child_output import CONTENT

MACHINE = {
    "Host": str,
    "Kernel": str,
    "JobLens": str,
    "UptimeSeconds": int,
    "Cpus": int,
    "Load": float,
    "MemoryBytes": int,
    "MemoryAvailableBytes": int,
    "CpuPressure": float,
    "MemoryPressure": float,
    "IoPressure": float,
    "ScratchBytes": int,
    "ScratchFreeBytes": int,
}
JOB = {"JobId": str, "Slot": str, "Level": str, "StartTime": int}
HEADERS = ("JOB", "SLOT", "LEVEL", "TIME")


def run(options: argparse.Namespace) -> int:
    """Asks, and prints; exit code 0."""
    machine: dict[str, Any] = {}
    jobs, notices = [], []
    for kind, said in messages(os.path.join(run_dir(options.run_dir), SOCKET), "node", {"job": options.id}):
        if kind != CONTENT:
            notices.append(said.decode())
        elif not machine:
            machine = record(said, MACHINE)
        else:
            jobs.append(record(said, JOB))
    if not machine:
        raise JobLensError("the node says nothing of itself: install the same version of all parts")
    if options.json:
        print(json.dumps({**machine, "Jobs": jobs}, indent=2))
    else:
        print("\n".join(page(machine, jobs, time.time(), style())))
    for notice in notices:
        print(f"joblens: {notice}", file=sys.stderr)
    return 0


def page(machine: dict[str, Any], jobs: Sequence[dict[str, Any]], now: float, look: Style) -> list[str]:
    """The lines for a person at `now` (seconds since 1970)."""
    pressures = [
        f"{name} {machine[field]:g} %"
        for name, field in (("CPU", "CpuPressure"), ("memory", "MemoryPressure"), ("I/O", "IoPressure"))
        if machine[field] >= 0
    ]
    lines = [
        f"{machine['Host']}: Linux {machine['Kernel']}, JobLens {machine['JobLens']}, "
        f"up for {duration(machine['UptimeSeconds'])}",
        f"{machine['Cpus']} CPUs with a load of {machine['Load']:g}; memory: "
        f"{memory(machine['MemoryAvailableBytes'])} of {memory(machine['MemoryBytes'])} available",
        f"scratch folder: {volume(machine['ScratchFreeBytes'])} of {volume(machine['ScratchBytes'])} free",
    ]
    if pressures:
        lines.append(f"waits of the last 10 s, by all jobs: {', '.join(pressures)}")
    rows = [(job["JobId"], job["Slot"], job["Level"], clock(now - job["StartTime"])) for job in jobs]
    return [look.fit(line) for line in lines] + (table(HEADERS, rows, "JOB SLOT LEVEL", look.width) if rows else [])
