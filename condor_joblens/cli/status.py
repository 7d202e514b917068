"""`joblens status`: one line a slot, as it is now, and below what is to be noted."""

from __future__ import annotations

import argparse
import contextlib
import os
import time

from condor_joblens.cli import terminal, units
from condor_joblens.cli.runs import Run, living, run_dir
from condor_joblens.cli.terminal import Style, style, table
from condor_joblens.common.errors import printable

HEADERS = ("SLOT", "JOB", "OWNER", "LEVEL", "CORES", "MEMORY", "READ", "WRITTEN", "PROC", "TIME")
LEFT = "SLOT JOB OWNER LEVEL"
SPARE = "WRITTEN READ PROC TIME MEMORY"
"""Columns that go, in this order, where there is no room: who runs there and how closely it is watched stay."""


LEFT_BEHIND = "it is over, and HTCondor has not removed its cgroup yet"


def run(options: argparse.Namespace) -> int:
    """Prints the state of this node's slots; exit code 0."""
    folder = run_dir(options.run_dir)
    runs, taken = living(folder)
    if options.json:
        import json

        print(json.dumps({"Time": taken, "Jobs": [run.record() for run in runs]}))
        return 0
    look = style()
    print("\n".join([*lines(runs, taken, time.time(), look), *(look.fit(line) for line in aside(folder))]))
    return 0


def aside(folder: str) -> list[str]:
    """A line for each policy and trigger that joblensd has set aside, because it failed too often."""
    found = []
    for name, what in (("policies.aside", "policy"), ("triggers.aside", "trigger")):
        with contextlib.suppress(OSError), open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
            lines = file.read(1 << 16).splitlines()
            found += [f"{what} set aside: {printable(line.rstrip(), 300)}" for line in lines]
    return found


def lines(runs: list[Run], taken: float, now: float, look: Style) -> list[str]:
    """What `status` prints for `runs`, taken at `taken` and looked at at `now` (epoch seconds)."""
    summary = headline(runs, taken, now)
    if not runs:
        return [look.paint(summary, "bold")]
    body = table(HEADERS, [cells(run, now) for run in runs], LEFT, look.width, SPARE)
    return [look.paint(look.fit(summary), "bold"), *below_headers(body, look), *notes(runs, look)]


def below_headers(body: list[str], look: Style) -> list[str]:
    """A table with its headers dimmed, no line wider than there is room."""
    return [look.paint(look.fit(body[0]), "dim"), *(look.fit(line) for line in body[1:])]


def notes(runs: list[Run], look: Style) -> list[str]:
    """The notes of `runs`, and which seem to hang, each with the slots that have it."""
    found = [(names(run)[0], run.fact("note")) for run in runs]
    found += [(names(run)[0], hang_of(run)) for run in runs if run.number("Hang.Suspected") and not run.over]
    found += [(names(run)[0], LEFT_BEHIND) for run in runs if is_left_behind(run)]
    return terminal.notes(found, look)


def is_left_behind(run: Run) -> bool:
    """Whether nothing of the run is there but its cgroup, which HTCondor can fail to remove (EBUSY)."""
    return run.over and run.number("Process.Live") == 0


def hang_of(run: Run) -> str:
    """`seems to hang for 14 min: file lock`; one that computes is less sure."""
    seconds, cause = units.duration(run.number("Hang.Seconds") or 0.0), run.fact("hang_cause") or "unknown"
    if cause == "busy":
        return f"may hang: busy in the same places for {seconds}, without reading or writing"
    return f"seems to hang for {seconds}: {cause}"


def headline(runs: list[Run], taken: float, now: float) -> str:
    """`3 jobs, 2.91 cores, 3.4 GiB; 1 more is over; numbers 0.4 s old`."""
    left = sum(map(is_left_behind, runs))
    runs = [run for run in runs if not is_left_behind(run)]
    more = f"; {left}{' more' if runs else ''} {'is' if left == 1 else 'are'} over" if left else ""
    if taken == 0:
        return f"{units.count(len(runs), 'job')}; joblensd has started and has not taken any number yet"
    age = f"{more.lstrip('; ')}{'; ' if more else ''}numbers {units.duration(now - taken)} old"
    if not runs:
        return f"no job runs on this node; {age}"
    busy = sum(run.number("Cpu.RecentCores") or 0.0 for run in runs)
    used = sum(run.memory or 0 for run in runs)
    return f"{units.count(len(runs), 'job')}, {units.cores(busy)} cores, {units.memory(used)}; {age}"


def cells(run: Run, now: float) -> tuple[str, ...]:
    """The columns of one run, as in HEADERS."""
    processes = run.number("Process.Live")
    return (
        *names(run),
        run.fact("level") or "-",
        cores_of(run),
        memory_of(run),
        _volume(run.number("Io.CallReadBytes")),
        _volume(run.number("Io.CallWriteBytes")),
        "-" if processes is None else f"{processes:.0f}",
        units.clock(run.age(now)),
    )


def names(run: Run) -> tuple[str, str, str]:
    """Slot, job and owner, none of them so long that it spoils a table."""
    slot, job, owner = (run.fact(column)[:24] or "-" for column in ("slot", "job_id", "owner"))
    return slot, job, owner


def cores_of(run: Run) -> str:
    """`0.98/1`: the cores of the last seconds and those asked for."""
    recent = run.number("Cpu.RecentCores")
    requested = run.request_cpus
    return ("-" if recent is None else units.cores(recent)) + (f"/{units.amount(requested)}" if requested else "")


def memory_of(run: Run) -> str:
    """`1.2/2.0 GiB`: memory now and what was asked for, in the unit of the latter."""
    used, requested = run.memory, run.request_memory
    if used is None:
        return "-"
    return against(used, requested, "/") if requested else units.memory(used)


def against(used: float, requested: float, between: str) -> str:
    """Bytes of memory beside those asked for, in the unit of the latter: `1.2/2.0 GiB`, `1.2 of 2.0 GiB`."""
    whole, unit = units.memory(requested).split()
    return f"{used / requested * float(whole):.1f}{between}{whole} {unit}"


def _volume(size: float | None) -> str:
    return "-" if size is None else units.volume(size)
