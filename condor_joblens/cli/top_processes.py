"""`joblens top ID`: the processes of a running job live, sorted, with what each uses of a core."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from condor_joblens.cli.child_output import messages, record
from condor_joblens.cli.ps import FIELDS, Process
from condor_joblens.cli.terminal import Style, table
from condor_joblens.cli.units import clock, cores, count, duration, memory
from condor_joblens.control import SOCKET
from condor_joblens.control.child_output import CONTENT

KEYS = {"c": "cores", "m": "memory", "t": "time"}
"""What a key sorts by."""

_COLUMNS = {"memory": "MemoryBytes", "time": "WallSeconds"}

LEAST_PERIOD = 1.0
"""Seconds: a node takes no more commands of a user in the long run (control/audit.py)."""

HEADERS = ("PID", "STATE", "THREADS", "CORES", "CPU", "TIME", "MEMORY", "COMMAND")


@dataclass(frozen=True)
class Sample:
    """The processes at one time, and the cores that each has used since the sample before."""

    processes: list[Process]
    taken: float  # CLOCK_MONOTONIC
    cores: dict[int, float]  # by process id
    notices: tuple[str, ...] = ()


def sampler(job: str) -> Callable[[str, Sample | None], Sample]:
    """What asks about this job, of the joblensd in a folder or else from afar. It raises JobLensError."""

    def next_sample(folder: str, before: Sample | None) -> Sample:
        processes, notices = [], []
        for kind, said in messages(os.path.join(folder, SOCKET), "ps", {"job": job}):
            if kind == CONTENT:
                processes.append(record(said, FIELDS))
            else:
                notices.append(said.decode())
        now = time.monotonic()
        return Sample(processes, now, {} if before is None else used(before, processes, now), tuple(notices))

    return next_sample


def used(before: Sample, processes: list[Process], now: float) -> dict[int, float]:
    """Cores of each process that was there `before`; one that has its id since then has begun anew."""
    old, seconds = {each["Pid"]: each for each in before.processes}, now - before.taken
    found: dict[int, float] = {}
    for each in processes:
        earlier = old.get(each["Pid"])
        if earlier is not None and seconds > 0 and each["WallSeconds"] >= earlier["WallSeconds"]:
            found[each["Pid"]] = max(0.0, each["CpuSeconds"] - earlier["CpuSeconds"]) / seconds
    return found


def lines(sample: Sample, now: float, sort: str, look: Style) -> list[str]:
    """What is shown of it, sorted by a column of KEYS."""

    def value(each: Process) -> float:
        if sort in _COLUMNS:
            return float(each[_COLUMNS[sort]])
        return sample.cores.get(each["Pid"], -1.0)

    rows = [_cells(each, sample) for each in sorted(sample.processes, key=lambda each: (-value(each), each["Pid"]))]
    total = sum(sample.cores.values())
    head = f"{count(len(rows), 'process', 'processes')}, {cores(total)} cores"
    body = table(HEADERS, rows, "COMMAND", look.width, "THREADS TIME CPU")
    return [look.paint(look.fit(head), "bold"), *map(look.fit, body), *map(look.fit, sample.notices)]


def _cells(process: Process, sample: Sample) -> tuple[str, ...]:
    own = sample.cores.get(process["Pid"])
    return (
        str(process["Pid"]),
        process["State"],
        str(process["Threads"]),
        "-" if own is None else cores(own),
        duration(process["CpuSeconds"]),
        clock(process["WallSeconds"]),
        memory(process["MemoryBytes"]),
        process["Command"],
    )


def as_json(sample: Sample) -> str:
    """The same for programs; a process that was not there before has no `Cores`."""
    found = sample.cores
    return json.dumps(
        [
            {**each, **({"Cores": round(found[each["Pid"]], 3)} if each["Pid"] in found else {})}
            for each in sample.processes
        ]
    )
