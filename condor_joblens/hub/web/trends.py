"""Trends: what ran and failed over months, and what was asked for and not used; beside the time before it.

All is from the sums by hour (hub/store/rollups.py), of whole hours that are over: of runs that ended in them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from condor_joblens.hub.store.rollups import read
from condor_joblens.hub.web.reads import Reader
from condor_joblens.hub.web.who_sees import FEWEST, seen_of

HOUR, DAY = 3600, 86400

BY: Mapping[str, tuple[str, ...]] = {
    "owner": ("owner", "schedd"),  # an equal name at another schedd may be another person
    "group": ("group",),
    "vo": ("vo",),
    "node": ("node",),
    "schedd": ("schedd",),
}
"""By what sums may be -> the names of COLUMNS that tell one from the others."""

COLUMNS = {"owner": "Owner", "group": "AccountingGroup", "vo": "Vo", "node": "Node", "schedd": "Schedd"}
"""A name in addresses -> its column. With a value, it leaves out all other rows."""

DAYS = (1, 7, 30, 90, 365)

SORTS = ("unused", "asked", "failed", "runs", "share")
"""By what rows can be sorted; the greatest first."""

MOST = 2000
"""Rows of an answer; those with most asked core time."""

FEWEST_FAILED, MORE_POINTS, TIMES_MORE = 10, 0.05, 2.0
"""Failures grew: so many failed, their share rose by so many points of 1, and is so many times what it was."""


@dataclass(frozen=True)
class Asked:
    """Which sums."""

    by: str
    days: int
    sort: str
    only: tuple[tuple[str, str], ...] = ()  # names of COLUMNS, and what each is to be

    def bounds(self, now: float) -> tuple[int, int, int]:
        """Epoch seconds: where the time before begins, where this one does, and where it ends."""
        until = HOUR * math.floor(now / HOUR)
        return until - 2 * self.days * DAY, until - self.days * DAY, until


def trends(reader: Reader, asked: Asked) -> dict[str, Any]:
    """Sums of each, and of each day (of each hour, if it is of one day). Raises JobLensError."""
    before, begin, until = asked.bounds(reader.now)
    (kept,) = reader.ask(read("count() AS hours, min(Hour) AS first"))
    is_comparable = bool(kept["hours"]) and kept["first"] <= before
    rows = _rows(reader, asked, is_comparable)
    return {
        **{"by": asked.by, "days": asked.days, "begin": begin, "until": until, "time": reader.now},
        "before_begin": before if is_comparable else None,
        "rows": sorted(rows[:MOST], key=lambda row: -(row[asked.sort] or 0)),
        "is_cut": len(rows) > MOST,
        "whole": _whole(reader, asked, is_comparable),
        "site": None if reader.sees_others else _site(reader, asked, is_comparable),
        "steps": _steps(reader, asked),
    }


def grew(now: Mapping[str, Any], before: Mapping[str, Any] | None) -> bool:
    """Whether the share of failures did, by far. Failures come in clusters: this is for a look, and for no alarm."""
    if before is None or not before["runs"] or now["failed"] < FEWEST_FAILED:
        return False
    share, was = now["share"] or 0.0, before["share"] or 0.0
    return bool(share - was >= MORE_POINTS and share >= TIMES_MORE * was)


def sums_of(row: Mapping[str, Any], suffix: str = "") -> dict[str, Any]:
    """What a page shows of a row of `_SUMS`. Hours are of one core; None: it was not measured, or nothing was asked."""
    found = {name: row[f"{name}{suffix}"] for name in _SUMS}
    used, asked = found["CpuSeconds"], found["AskedCpuSeconds"]
    return {
        "runs": found["Runs"],
        "failed": found["Failed"],
        "share": found["Failed"] / found["Runs"] if found["Runs"] else None,
        "used": used / HOUR,
        "asked": asked / HOUR,
        "unused": max(0.0, asked - used) / HOUR,
        "efficiency": used / asked if asked else None,
        "memory_efficiency": found["MemoryByteSeconds"] / found["AskedMemoryByteSeconds"]
        if found["AskedMemoryByteSeconds"]
        else None,
        "greatest_bytes": found["GreatestBytes"] or None,
    }


_SUMS = (
    "Runs",
    "Failed",
    "CpuSeconds",
    "AskedCpuSeconds",
    "MemoryByteSeconds",
    "AskedMemoryByteSeconds",
    "GreatestBytes",
)


def _columns(asked: Asked, when: str, suffix: str = "") -> str:
    """The sums of these hours. A run of two nodes is one run, but on each of its nodes one."""
    of_nodes = asked.by == "node" or any(name == "node" for name, _ in asked.only)
    counts = {"Runs": "NodeRuns", "Failed": "NodeFailed"} if of_nodes else {}
    return ", ".join(
        f"{'maxIf' if name == 'GreatestBytes' else 'sumIf'}(h.{counts.get(name, name)}, {when}) AS {name}{suffix}"
        for name in _SUMS
    )


def _both(asked: Asked, reader: Reader) -> str:
    _, begin, _ = asked.bounds(reader.now)
    return f"{_columns(asked, f'h.Hour >= {begin}')}, {_columns(asked, f'h.Hour < {begin}', 'Before')}"


def _hours(reader: Reader, asked: Asked) -> str:
    """The rows of both times, with what a scope asks for: a job's name begins with its schedd."""
    before, _, until = asked.bounds(reader.now)
    rows = read("*, concat(Schedd, '#') AS GlobalJobId", f"Hour >= {before} AND Hour < {until}")
    return f"(SELECT *, {reader.own} AS IsMine FROM ({rows})) AS h"


def _conditions(reader: Reader, asked: Asked) -> tuple[str, dict[str, str]]:
    parts, values = [reader.scope], {}
    for name, value in asked.only:
        parts.append(f"({reader.sees(seen_of(COLUMNS[name]))} AND {COLUMNS[name]} = {{only_{name}:String}})")
        values[f"only_{name}"] = value
    return " AND ".join(parts), values


def _row(row: Mapping[str, Any], is_comparable: bool) -> dict[str, Any]:
    now, before = sums_of(row), sums_of(row, "Before") if is_comparable else None
    return {**now, "before": before, "grew": grew(now, before)}


def _rows(reader: Reader, asked: Asked, is_comparable: bool) -> list[dict[str, Any]]:
    where, values = _conditions(reader, asked)
    names = BY[asked.by]
    named = ", ".join(f"{_shown(reader, COLUMNS[name])} AS {name}" for name in names)
    found = reader.ask(
        f"SELECT {named}, {_both(asked, reader)} FROM {_hours(reader, asked)} WHERE {where} "
        f"GROUP BY {', '.join(names)} HAVING Runs > 0 "
        f"ORDER BY AskedCpuSeconds DESC, {', '.join(names)} LIMIT {MOST + 1}",
        **values,
    )
    return [
        {
            "name": "@".join(row[name] for name in names),
            "key": {name: row[name] for name in names},
            **_row(row, is_comparable),
        }
        for row in found
    ]


def _shown(reader: Reader, column: str) -> str:
    """A column of the rows of which the viewer may see it."""
    sees = reader.sees(seen_of(column))
    return f"h.{column}" if sees == "1" else f"if({sees}, h.{column}, '')"


def _whole(reader: Reader, asked: Asked, is_comparable: bool) -> dict[str, Any]:
    """Of all rows that the viewer may see."""
    where, values = _conditions(reader, asked)
    (row,) = reader.ask(f"SELECT {_both(asked, reader)} FROM {_hours(reader, asked)} WHERE {where}", **values)
    return _row(row, is_comparable)


def _site(reader: Reader, asked: Asked, is_comparable: bool) -> dict[str, Any] | None:
    """Of all jobs of the site, whatever else is asked for: None if they are of too few people, in either time."""
    _, begin, _ = asked.bounds(reader.now)
    everything = Asked("schedd", asked.days, asked.sort)
    (row,) = reader.ask(
        f"SELECT {_both(everything, reader)}, uniqExactIf((Owner, Schedd), Hour >= {begin}) AS People, "
        f"uniqExactIf((Owner, Schedd), Hour < {begin}) AS PeopleBefore FROM {_hours(reader, everything)}"
    )
    if row["People"] < FEWEST:
        return None
    return _row(row, is_comparable and row["PeopleBefore"] >= FEWEST)


def _steps(reader: Reader, asked: Asked) -> list[dict[str, Any]]:
    """The time in equal steps, the oldest first."""
    _, begin, until = asked.bounds(reader.now)
    seconds = HOUR if asked.days == 1 else DAY
    where, values = _conditions(reader, asked)
    found = reader.ask(
        f"SELECT intDiv(Hour - {begin}, {seconds}) AS place, {_columns(asked, '1')} FROM {_hours(reader, asked)} "
        f"WHERE Hour >= {begin} AND {where} GROUP BY place",
        **values,
    )
    by_place = {row["place"]: row for row in found}
    nothing = dict.fromkeys(_SUMS, 0)
    return [
        {
            **{"begin": begin + place * seconds, "until": begin + (place + 1) * seconds},
            **sums_of(by_place.get(place, nothing)),
        }
        for place in range((until - begin) // seconds)
    ]
