"""Trends over months: jobs that ended and failed, and what they asked for and left unused, against the period before.

All is from the sums by hour (hub/store/rollups.py), of whole hours that are over: of runs that ended in them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from condor_joblens.hub.pseudonyms import SHAPE, quarters
from condor_joblens.hub.store.rollups import read
from condor_joblens.hub.store.schema import HOURS
from condor_joblens.hub.web import filters
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

COLUMNS = {**{name: filters.EQUAL[name] for name in ("owner", "group", "vo", "node")}, "schedd": "Schedd"}
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
    sums = _Sums(reader, asked)
    rows = sums.rows()
    return {
        **{"by": asked.by, "days": asked.days, "begin": sums.begin, "until": sums.until, "time": reader.now},
        "before_begin": sums.before if sums.is_comparable else None,
        "rows": _sorted(rows, asked),
        "is_cut": len(rows) > MOST,
        "whole": sums.whole(),
        "site": None if reader.sees_others else sums.site(),
        "whose": "" if reader.sees_others else "groups" if reader.has_groups else "own",
        "steps": sums.steps(),
    }


def stamp(reader: Reader) -> tuple[int, ...]:
    """Another one, once an hour that is over has other sums, or one more is over. Raises JobLensError.

    With the number of rows: a person who is forgotten leaves the versions as they are. Merges of rows change it too.
    """
    *_, until = Asked(next(iter(BY)), DAYS[0], SORTS[0]).bounds(reader.now)
    (row,) = reader.ask(f"SELECT max(Version) AS version, count() AS rows FROM {HOURS.name} WHERE Hour < {until}")
    return until, int(row["version"] or 0), int(row["rows"])


def sorted_rows(reader: Reader, asked: Asked) -> list[dict[str, Any]]:
    """The sums of each alone. Raises JobLensError."""
    return _sorted(_Sums(reader, asked).rows(), asked)


def _sorted(rows: list[dict[str, Any]], asked: Asked) -> list[dict[str, Any]]:
    return sorted(rows[:MOST], key=lambda row: -(row[asked.sort] or 0))


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


class _Sums:
    """Asks for the sums of one question, for its viewer, at one moment. Its methods raise JobLensError."""

    def __init__(self, reader: Reader, asked: Asked) -> None:
        self._reader, self._asked = reader, asked
        self.before, self.begin, self.until = asked.bounds(reader.now)
        parts, self._values = filters.conditions(reader, dict(asked.only))
        self._where = " AND ".join([reader.scope, *parts])
        # a scope asks by a job's name, which begins with its schedd
        columns = f"* REPLACE ({reader.own_names('Owner')} AS Owner), concat(Schedd, '#') AS GlobalJobId"
        hours = f"SELECT {columns} FROM ({read('*', f'Hour >= {self.before} AND Hour < {self.until}')})"
        self._hours = f"(SELECT *, {reader.own} AS IsMine FROM ({hours})) AS h"
        earlier = reader.ask(read("Hour", f"Hour <= {self.before}") + " LIMIT 1")
        self.is_comparable = bool(earlier)

    def rows(self) -> list[dict[str, Any]]:
        """Each with a name and numbers; those with most asked core time, one more than MOST if there are more."""
        names = BY[self._asked.by]
        named, grouped = ", ".join(f"{self._shown(COLUMNS[name])} AS {name}" for name in names), ", ".join(names)
        found = self._ask(
            f"{named}, {self._both(self._is_of_nodes)}",
            f"{self._where} GROUP BY {grouped} HAVING Runs > 0 "
            f"ORDER BY AskedCpuSeconds DESC, {grouped} LIMIT {MOST + 1}",
        )
        return [
            {
                "name": "@".join(row[name] for name in names),
                "key": {name: row[name] for name in names},
                **self._compared(row, self.is_comparable),
            }
            for row in found
        ]

    def whole(self) -> dict[str, Any]:
        """Of all rows that the viewer may see."""
        (row,) = self._ask(self._both(self._is_of_nodes), self._where)
        return self._compared(row, self.is_comparable)

    def site(self) -> dict[str, Any] | None:
        """Of all jobs of the site, whatever else is asked for: None if they are of too few people."""
        people = ", ".join(
            f"{self._people(f'Hour {when} {self.begin}')} AS {name}"
            for name, when in (("People", ">="), ("PeopleBefore", "<"))
        )
        (row,) = self._ask(f"{self._both(False)}, {people}", "1")
        if row["People"] < FEWEST:
            return None
        return self._compared(row, self.is_comparable and row["PeopleBefore"] >= FEWEST)

    def _people(self, when: str) -> str:
        """How many there are in these hours, at least: who has other pseudonyms in other quarters counts once."""
        is_old = f"match(Owner, '{SHAPE}')"
        parts = [f"uniqExactIf(Owner, {when} AND NOT {is_old})"]
        for one in quarters(self.before, self.until):
            parts.append(f"uniqExactIf(Owner, {when} AND {is_old} AND Hour >= {one.begin} AND Hour < {one.end})")
        return f"greatest({', '.join(parts)})"

    def steps(self) -> list[dict[str, Any]]:
        """The time in equal steps, the oldest first."""
        seconds = HOUR if self._asked.days == 1 else DAY
        found = self._ask(
            f"intDiv(Hour - {self.begin}, {seconds}) AS place, {_columns(self._is_of_nodes, '1')}",
            f"Hour >= {self.begin} AND {self._where} GROUP BY place",
        )
        by_place = {row["place"]: row for row in found}
        nothing = dict.fromkeys(_SUMS, 0)
        return [
            {"begin": begin, "until": begin + seconds, **sums_of(by_place.get(place, nothing))}
            for place, begin in enumerate(range(self.begin, self.until, seconds))
        ]

    @property
    def _is_of_nodes(self) -> bool:
        """Whether a run of two nodes counts on each of them."""
        return self._asked.by == "node" or any(name == "node" for name, _ in self._asked.only)

    def _ask(self, columns: str, where: str) -> list[dict[str, Any]]:
        return self._reader.ask(f"SELECT {columns} FROM {self._hours} WHERE {where}", **self._values)

    def _both(self, of_nodes: bool) -> str:
        """The sums of this period, and of the one before."""
        now, before = f"h.Hour >= {self.begin}", f"h.Hour < {self.begin}"
        return f"{_columns(of_nodes, now)}, {_columns(of_nodes, before, 'Before')}"

    def _shown(self, column: str) -> str:
        """A column of the rows of which the viewer may see it."""
        sees = self._reader.sees(seen_of(column))
        return f"h.{column}" if sees == "1" else f"if({sees}, h.{column}, '')"

    @staticmethod
    def _compared(row: Mapping[str, Any], is_comparable: bool) -> dict[str, Any]:
        now, before = sums_of(row), sums_of(row, "Before") if is_comparable else None
        return {**now, "before": before, "grew": grew(now, before)}


def _columns(of_nodes: bool, when: str, suffix: str = "") -> str:
    """The sums of these hours. of_nodes: a run of two nodes is one on each of them, and not one in all."""
    counts = {"Runs": "NodeRuns", "Failed": "NodeFailed"} if of_nodes else {}
    return ", ".join(
        f"{'maxIf' if name == 'GreatestBytes' else 'sumIf'}(h.{counts.get(name, name)}, {when}) AS {name}{suffix}"
        for name in _SUMS
    )
