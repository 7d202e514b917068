"""`joblens top --by server`: who asks what of which file server, with rates formed from successive reads."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from typing import Any

from condor_joblens.cli import units
from condor_joblens.cli.runs import Run, living
from condor_joblens.cli.status import headline
from condor_joblens.cli.terminal import Style, table
from condor_joblens.common.errors import printable

HEADERS = ("SERVER", "CLASS", "OWNER", "JOBS", "REQ/s", "RECV/s", "SENT/s", "WAITING", "ERR/s")
LEFT = "SERVER CLASS OWNER"
SPARE = "ERR/s JOBS CLASS SENT/s"
"""Columns that go, in this order, where there is no room."""

KEYS = {"s": "server", "o": "owner", "j": "jobs", "r": "requests", "b": "bytes", "w": "waiting", "e": "errors"}
"""What a key sorts by."""

NUMBERS = ("Requests", "ReceivedBytes", "SentBytes", "Seconds", "Errors")
NOBODY = "(no job)"
OTHERS = "(all others)"

Who = tuple[str, str, str]  # server, class, owner


@dataclass
class Asked:
    """What one owner asked of one server."""

    numbers: dict[str, float] = field(default_factory=lambda: dict.fromkeys(NUMBERS, 0.0))
    jobs: int = 0


@dataclass(frozen=True)
class Sample:
    """Everything that was asked until one time, and a second since the sample before."""

    runs: list[Run]
    taken: float
    totals: dict[tuple[str, Who], dict[str, float]]  # by run too: a run that ends takes nothing away from others
    rates: dict[Who, Asked]


def next_sample(folder: str, before: Sample | None) -> Sample:
    """Reads rows and what is nobody's, and forms rates against the sample `before`."""
    runs, taken = living(folder)
    if before is not None and taken == before.taken:
        return before
    totals = _totals(runs, unattributed(folder))
    rates: dict[Who, Asked] = {}
    for (run, who), numbers in totals.items():
        asked = rates.setdefault(who, Asked())
        asked.jobs += bool(run)
        old = before.totals.get((run, who), dict.fromkeys(NUMBERS, 0.0)) if before else numbers
        seconds = taken - before.taken if before else 1.0
        for name in NUMBERS:
            asked.numbers[name] += max(0.0, numbers[name] - old[name]) / seconds if seconds > 0 else 0.0
    return Sample(runs, taken, totals, rates)


def unattributed(folder: str) -> list[dict[str, Any]]:
    """What joblensd wrote about requests of nobody; nothing if there were none."""
    try:
        with open(os.path.join(folder, "servers"), encoding="utf-8") as file:
            found = json.load(file)["Unattributed"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def _totals(runs: list[Run], nobodys: list[dict[str, Any]]) -> dict[tuple[str, Who], dict[str, float]]:
    totals: dict[tuple[str, Who], dict[str, float]] = {}
    named = [(str(run.facts.get("run")), run.fact("owner"), run.servers) for run in runs]
    for run, owner, entries in (*named, ("", NOBODY, nobodys)):
        for entry in entries:
            server, kind = str(entry.get("Name", OTHERS)), str(entry.get("Class", ""))
            who = printable(server, 64), printable(kind, 16), owner
            totals[run, who] = {name: float(entry.get(name, 0)) for name in NUMBERS}
    return totals


def lines(sample: Sample, now: float, sort: str, look: Style) -> list[str]:
    """What is shown of a sample at `now` (epoch seconds), sorted by a column of KEYS."""
    summary = look.paint(look.fit(headline(sample.runs, sample.taken, now)), "bold")
    if not sample.rates:
        return [summary, "no file server has been asked anything that this kernel can count"]
    rows = [_cells(who, sample.rates[who]) for who in ordered(sample, sort)]
    body = table(HEADERS, rows, LEFT, look.width, SPARE)
    return [summary, look.paint(look.fit(body[0]), "dim"), *(look.fit(line) for line in body[1:])]


def ordered(sample: Sample, sort: str) -> list[Who]:
    """Names upwards, numbers downwards; by bytes unless one of KEYS is asked for."""
    names = sorted(sample.rates)
    if sort == "server":
        return names
    if sort == "owner":
        return sorted(names, key=lambda who: who[2])
    return sorted(names, key=lambda who: _amount(sample.rates[who], sort), reverse=True)


def _amount(asked: Asked, sort: str) -> float:
    numbers = asked.numbers
    known = {"jobs": float(asked.jobs), "requests": numbers["Requests"], "waiting": numbers["Seconds"]}
    known["errors"] = numbers["Errors"]
    return known.get(sort, numbers["ReceivedBytes"] + numbers["SentBytes"])


def _cells(who: Who, asked: Asked) -> tuple[str, ...]:
    numbers = asked.numbers
    return (
        *who,
        str(asked.jobs) if asked.jobs else "-",
        f"{numbers['Requests']:.0f}",
        units.volume(numbers["ReceivedBytes"]),
        units.volume(numbers["SentBytes"]),
        f"{numbers['Seconds']:.1f}",  # seconds a second: so many requests wait at a time
        f"{numbers['Errors']:.0f}",
    )


def as_json(sample: Sample) -> str:
    """One document of the sample."""
    asked = [
        {"Server": who[0], "Class": who[1], "Owner": who[2], "Jobs": its.jobs, "PerSecond": its.numbers}
        for who, its in ((who, sample.rates[who]) for who in ordered(sample, "bytes"))
    ]
    return json.dumps({"Time": sample.taken or time.time(), "Servers": asked})
