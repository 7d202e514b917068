"""`joblens top --by server`: who asks what of which file server, with rates formed from successive reads.

Beside file servers stand the machines to which jobs have connections of their own, by bytes alone.
"""

from __future__ import annotations

import ipaddress
import json
import os
import time
from dataclasses import dataclass, field
from typing import Any

from condor_joblens.cli import io_sections, units
from condor_joblens.cli.runs import Run, living
from condor_joblens.cli.status import headline
from condor_joblens.cli.terminal import Style, table
from condor_joblens.common.errors import printable
from condor_joblens.model.levels import Level

HEADERS = ("SERVER", "CLASS", "OWNER", "JOBS", "REQ/s", "RECV/s", "SENT/s", "WAITING", "ERR/s")
LEFT = "SERVER CLASS OWNER"
SPARE = "ERR/s JOBS CLASS SENT/s"
"""Columns that go, in this order, where there is no room."""

KEYS = {"s": "server", "o": "owner", "j": "jobs", "r": "requests", "b": "bytes", "w": "waiting", "e": "errors"}
"""What a key sorts by."""

NUMBERS = ("Requests", "ReceivedBytes", "SentBytes", "Seconds", "Errors")
CARRIED = ("ReceivedBytes", "SentBytes")
"""What is known of a job's own connections."""

TCP = "TCP"
"""The class of servers to which jobs have connections of their own."""

NOBODY = "(no job)"
OTHERS = "(all others)"

FIRST = "counting has begun: what is a second comes with the next screen"

Who = tuple[str, str, str]  # server, class, owner


@dataclass
class Asked:
    """What one owner asked of one server; what is not known of it is not there."""

    numbers: dict[str, float] = field(default_factory=dict)
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
        # an endpoint may have come up among the listed ones: how much of its bytes is new is not known
        first = numbers if who[1] == TCP else dict.fromkeys(NUMBERS, 0.0)
        if before is None:
            continue
        old, seconds = before.totals.get((run, who), first), taken - before.taken
        for name, number in numbers.items():
            rate = max(0.0, number - old[name]) / seconds if seconds > 0 else 0.0
            asked.numbers[name] = asked.numbers.get(name, 0.0) + rate
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
    for each in runs:
        for endpoint in filter(_is_server, each.endpoints):
            who = printable(io_sections.place_of(endpoint), 64), TCP, each.fact("owner")
            totals[str(each.facts.get("run")), who] = {name: float(endpoint.get(name, 0)) for name in CARRIED}
    return totals


def _is_server(endpoint: dict[str, Any]) -> bool:
    """Whether the job went there, and it is another machine: not who came to the job, nor all others together."""
    return bool(endpoint.get("Port")) and not ipaddress.ip_address(str(endpoint["Address"])).is_loopback


def lines(sample: Sample, now: float, sort: str, look: Style) -> list[str]:
    """What is shown of a sample at `now` (epoch seconds), sorted by a column of KEYS."""
    summary = look.paint(look.fit(headline(sample.runs, sample.taken, now)), "bold")
    if not sample.rates:
        nothing = "no file server has been asked anything that this kernel can count"
        return [summary, nothing, *_about_tcp(sample.runs, look)]
    rows = [_cells(who, sample.rates[who]) for who in ordered(sample, sort)]
    body = table(HEADERS, rows, LEFT, look.width, SPARE)
    page = [summary, look.paint(look.fit(body[0]), "dim"), *(look.fit(line) for line in body[1:])]
    if not any(asked.numbers for asked in sample.rates.values()):
        page += ["", look.paint(look.fit(FIRST), "dim")]
    return [*page, *_about_tcp(sample.runs, look)]


def _about_tcp(runs: list[Run], look: Style) -> list[str]:
    """What the lines of class TCP are, and whose are not there; nothing if there are no jobs."""
    below = sum(1 for run in runs if run.facts.get("level_number", 0) < Level.IO)
    words = "TCP: bytes of connections that jobs at level io have themselves, not requests"
    if below:
        words += f"; {units.count(below, 'job')} below level io can have some that are not here"
    return [look.paint(line, "dim") for line in look.wrapped(words, "", "  ")] if runs else []


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
    if sort == "jobs":
        return float(asked.jobs)
    names = {"requests": ("Requests",), "waiting": ("Seconds",), "errors": ("Errors",)}.get(sort, CARRIED)
    return sum(numbers.get(name, 0.0) for name in names)


def _cells(who: Who, asked: Asked) -> tuple[str, ...]:
    numbers = asked.numbers
    return (
        *who,
        str(asked.jobs) if asked.jobs else "-",
        f"{numbers['Requests']:.0f}" if "Requests" in numbers else "-",
        *(units.volume(numbers[name]) if name in numbers else "-" for name in CARRIED),
        f"{numbers['Seconds']:.1f}" if "Seconds" in numbers else "-",  # a second: so many requests wait at a time
        f"{numbers['Errors']:.0f}" if "Errors" in numbers else "-",
    )


def as_json(sample: Sample) -> str:
    """One document of the sample."""
    asked = [
        {"Server": who[0], "Class": who[1], "Owner": who[2], "Jobs": its.jobs, "PerSecond": its.numbers}
        for who, its in ((who, sample.rates[who]) for who in ordered(sample, "bytes"))
    ]
    return json.dumps({"Time": sample.taken or time.time(), "Servers": asked})
