"""`joblens top`: the jobs of this node live, sorted, with rates formed from successive reads, or processes of one."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from condor_joblens.cli import io_sections, top_processes, top_servers, units
from condor_joblens.cli.runs import Run, living, run_dir, slot_order
from condor_joblens.cli.screen import Screen
from condor_joblens.cli.status import below_headers, cores_of, headline, memory_of, names, notes
from condor_joblens.cli.terminal import Style, style, table

HEADERS = ("SLOT", "JOB", "OWNER", "LEVEL", "CORES", "MEMORY", "READ/s", "WRITE/s", "NET/s", "PROC", "WAITS", "TIME")
LEFT = "SLOT JOB OWNER LEVEL WAITS"
SPARE = "TIME PROC NET/s WRITE/s READ/s MEMORY"
"""Columns that go, in this order, where there is no room."""

RATES = {
    "read": ("Io.CallReadBytes",),
    "write": ("Io.CallWriteBytes",),
    "net": ("Tcp.SentBytes", "Tcp.ReceivedBytes"),
}
"""The totals whose growth a second is shown."""

KEYS = {
    "s": "slot", "j": "job", "o": "owner", "c": "cores", "m": "memory",
    "r": "read", "w": "write", "n": "net", "p": "proc", "t": "time",
}  # fmt: skip
"""What a key sorts by: each is the first letter of a column."""


@dataclass(frozen=True)
class Sample:
    """All runs at one time, with what grew since the one before."""

    runs: list[Run]
    taken: float
    rates: dict[str, dict[str, float]]  # run -> read, write, net -> bytes a second
    waits: dict[str, str] = field(default_factory=dict)  # run -> what it waited for most; of runs at level io

    def of(self, run: Run) -> dict[str, float]:
        """The rates of a run; those that are not known are not there."""
        return self.rates.get(str(run.facts.get("run")), {})


@dataclass(frozen=True)
class View:
    """What is shown: a line for each job, or for each owner at each file server."""

    next_sample: Callable[[str, Any], Any]
    lines: Callable[[Any, float, str, Style], list[str]]
    json: Callable[[Any], str]
    keys: dict[str, str]


def run(options: argparse.Namespace) -> int:
    """Shows the jobs until q is pressed or the refreshes are up; exit code 0."""
    folder, view = run_dir(options.run_dir), VIEWS[options.by]
    if options.id is not None:
        options.period = max(options.period, top_processes.LEAST_PERIOD)
        sample = top_processes.sampler(options.id)
        view = View(sample, top_processes.lines, top_processes.as_json, top_processes.KEYS)
    if options.json or not (sys.stdout.isatty() and sys.stdin.isatty()):
        return _plain(folder, view, options)
    return _live(folder, view, options)


def _plain(folder: str, view: View, options: argparse.Namespace) -> int:
    # the first read only makes rates possible: what is printed says what it will go on to say
    sample = view.next_sample(folder, None)
    shown = 0
    while shown != options.refreshes:
        time.sleep(options.period)
        sample = view.next_sample(folder, sample)
        print(view.json(sample) if options.json else "\n".join(view.lines(sample, time.time(), options.sort, style())))
        if not options.json:
            print()
        sys.stdout.flush()
        shown += 1
    return 0


def _live(folder: str, view: View, options: argparse.Namespace) -> int:
    sort, shown = options.sort, -1  # the first screen has no rates, and is none of the refreshes
    sample = view.next_sample(folder, None)  # an error is told before the screen is taken
    with Screen() as screen:
        while True:
            due = time.monotonic() + options.period
            while (left := due - time.monotonic()) > 0:
                look = style()
                screen.show(view.lines(sample, time.time(), sort, look), _help(view.keys, sort, look))
                for key in screen.keys(left):
                    if key == "q":
                        return 0
                    sort = view.keys.get(key, sort)
            shown += 1
            if shown == options.refreshes:
                return 0
            sample = view.next_sample(folder, sample)


def next_sample(folder: str, before: Sample | None) -> Sample:
    """Reads the rows and forms rates against the sample `before`, which stands while nothing new is there."""
    runs, taken = living(folder)
    if before is None or taken == 0:
        return Sample(runs, taken, {})
    if taken == before.taken:
        return before
    return Sample(runs, taken, rates(before, runs, taken - before.taken), waits(before, runs))


def rates(before: Sample, runs: list[Run], seconds: float) -> dict[str, dict[str, float]]:
    """Bytes a second of each run that was there `before`, `seconds` ago; unknown totals have no rate."""
    old = {run.facts.get("run"): run.numbers for run in before.runs}
    grown: dict[str, dict[str, float]] = {}
    for run in runs:
        name = run.facts.get("run")
        if name is None or name not in old or seconds <= 0:
            continue
        grown[name] = {
            column: sum(run.numbers[total] - old[name][total] for total in totals) / seconds
            for column, totals in RATES.items()
            if all(total in run.numbers and total in old[name] for total in totals)
        }
    return grown


def waits(before: Sample, runs: list[Run]) -> dict[str, str]:
    """What each run at level io has waited for most since the sample `before`: `62% cvmfs`."""
    old = {run.facts.get("run"): run.numbers for run in before.runs}
    found: dict[str, str] = {}
    for run in runs:
        earlier = old.get(run.facts.get("run"))
        waited = {name: value for name, value in run.numbers.items() if name.startswith("Wait.")}
        if waited and earlier is not None:
            grown = {name: max(0.0, value - earlier.get(name, 0.0)) for name, value in waited.items()}
            found[str(run.facts.get("run"))] = io_sections.waiting(replace(run, numbers=grown))
    return found


def lines(sample: Sample, now: float, sort: str, look: Style) -> list[str]:
    """What `top` shows of a sample at `now` (epoch seconds), sorted by a column of KEYS."""
    summary = look.paint(look.fit(headline(sample.runs, sample.taken, now)), "bold")
    if not sample.runs:
        return [summary]
    rows = [_cells(run, sample, now) for run in ordered(sample, now, sort)]
    # where no job is at level io nothing is known of waiting
    headers = HEADERS if sample.waits else tuple(name for name in HEADERS if name != "WAITS")
    body = table(headers, rows, LEFT, look.width, SPARE)
    return [summary, *below_headers(body, look), *notes(sample.runs, look)]


def ordered(sample: Sample, now: float, sort: str) -> list[Run]:
    """The runs of a sample: names upwards, numbers downwards, those without the number last."""
    values: dict[str, Callable[[Run], float | None]] = {
        "cores": lambda run: run.number("Cpu.RecentCores"),
        "memory": lambda run: run.memory,
        "proc": lambda run: run.number("Process.Live"),
        "time": lambda run: run.age(now),
    }
    by_slot = sorted(sample.runs, key=slot_order)
    if sort == "slot":
        return by_slot
    if sort in ("job", "owner"):
        return sorted(by_slot, key=lambda run: _name_order(run.fact("job_id" if sort == "job" else "owner")))
    value = values.get(sort) or (lambda run: sample.of(run).get(sort))
    return sorted(by_slot, key=lambda run: -1.0 if (known := value(run)) is None else known, reverse=True)


def _name_order(name: str) -> tuple[list[int], str]:
    # 9.0 before 10.0
    return [int(part) for part in name.split(".") if part.isdecimal()], name


def _cells(run: Run, sample: Sample, now: float) -> tuple[str, ...]:
    rates = sample.of(run)
    processes = run.number("Process.Live")
    return (
        *names(run),
        run.fact("level") or "-",
        cores_of(run),
        memory_of(run),
        *(units.volume(rates[name]) if name in rates else "-" for name in RATES),
        "-" if processes is None else f"{processes:.0f}",
        *([sample.waits.get(str(run.facts.get("run")), "-")] if sample.waits else []),
        units.clock(run.age(now)),
    )


def _help(keys: dict[str, str], sort: str, look: Style) -> str:
    columns = " ".join(f"[{column}]" if column == sort else column for column in keys.values())
    return look.paint(look.fit(f"q quits, a letter sorts: {columns}"), "dim")


def _json(sample: Sample) -> str:
    import json

    jobs = []
    for run in sample.runs:
        rates = {name.capitalize(): round(value, 1) for name, value in sample.of(run).items()}
        jobs.append({**run.record(), "BytesPerSecond": rates})
    return json.dumps({"Time": sample.taken, "Jobs": jobs})


VIEWS = {
    "job": View(next_sample, lines, _json, KEYS),
    "server": View(top_servers.next_sample, top_servers.lines, top_servers.as_json, top_servers.KEYS),
}
"""By the option --by."""
