"""Sums of runs that have ended, by hour, node, owner, group and VO: made from deduplicated last records.

An hour is made whole, from FINAL, and made again whenever rows of it came: late ones, the same again, corrections. So
what comes twice counts once. Of each hour the version counts that was made last. It comes in one insert, with a row
of no node and no runs, by which an hour that has become empty is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.hub.store.client import Store
from condor_joblens.hub.store.schema import HOUR, HOUR_KEY, HOURS, TOUCHED_HOURS

PERIOD = 60.0
"""Seconds between two looks at what came."""

SETTLED = 120.0
"""Seconds for which an hour is made again after its last row: an insert takes less, whichever of its parts is seen."""

_RUNS_AT_ONCE = 16
"""Hours that are asked about at a time."""

_HAS_FAILED = "(Death != '' OR ifNull(Code, 0) > 0)"
_WALL = "greatest(0, UpdateTime - StartTime)"
_MEMORY = "Memory.ResidentPeakBytes"
_HAS_CPU, _HAS_MEMORY = (
    "(isNotNull(Cpu.Seconds) AND RequestCpus > 0)",
    f"(isNotNull({_MEMORY}) AND RequestMemoryBytes > 0)",
)

_NEWEST = f"SELECT Hour, max(Version) AS Version FROM {HOURS.name} GROUP BY Hour"

SUMS = {
    "Runs": "countIf(IsOne)",
    "Failed": "countIf(IsOne AND RunFailed)",
    "NodeRuns": "count()",
    "NodeFailed": f"countIf({_HAS_FAILED})",
    "WallSeconds": f"sum({_WALL})",
    "CpuSeconds": f"sumIf(Cpu.Seconds, {_HAS_CPU})",
    "AskedCpuSeconds": f"sumIf(RequestCpus * {_WALL}, {_HAS_CPU})",
    "MemoryByteSeconds": f"sumIf({_MEMORY} * {_WALL}, {_HAS_MEMORY})",
    "AskedMemoryByteSeconds": f"sumIf(RequestMemoryBytes * {_WALL}, {_HAS_MEMORY})",
    "GreatestBytes": f"max(ifNull({_MEMORY}, 0))",
}
"""A column of HOURS -> what it is of an hour's rows. A run of two nodes is one of Runs, and two of NodeRuns."""

_COLUMNS = (
    "Run, Node, RunNumber, Sequence, GlobalJobId, Time, StartTime, UpdateTime, Owner, AccountingGroup, Vo, Death, "
    f"RequestCpus, RequestMemoryBytes, Cpu, Memory, splitByChar('#', GlobalJobId)[1] AS Schedd, {HOUR} AS Hour"
)


def of(hours: Iterable[int]) -> str:
    """The rows of these hours (epoch seconds of their begin), as a question: one a run and node, with its exit code."""
    those = ", ".join(str(int(hour)) for hour in hours)
    jobs = f"SELECT GlobalJobId FROM jobs WHERE {HOUR} IN ({those})"
    newest = (
        f"SELECT {_COLUMNS} FROM jobs FINAL WHERE GlobalJobId IN ({jobs}) "
        "ORDER BY Sequence DESC LIMIT 1 BY Run, Node, RunNumber"
    )
    codes = "SELECT Run, Node, RunNumber, toNullable(ExitCode) AS Code FROM failed_ends FINAL"
    whole = f"SELECT * FROM ({newest}) AS j LEFT ANY JOIN ({codes}) AS e USING (Run, Node, RunNumber)"
    return (
        f"SELECT *, row_number() OVER (PARTITION BY Run ORDER BY Node, RunNumber) = 1 AS IsOne, "
        f"max({_HAS_FAILED}) OVER (PARTITION BY Run) AS RunFailed FROM ({whole})"
    )


class Rollups:
    """For one process. Two that make the same hour make the same rows."""

    def __init__(self, store: Store, say: Callable[[str], None], clock: Callable[[], float] = time.time) -> None:
        self._store, self._say, self._clock = store, say, clock
        self._is_first = True

    def run(self, then: Callable[[], None] = lambda: None) -> None:
        """For ever. then: called after each look; it raises JobLensError."""
        said = ""
        while True:
            try:
                self.step()
                then()
                said = ""
            except JobLensError as error:
                if str(error) != said:
                    said = str(error)
                    self._say(f"roll-ups can't be made now: {printable(said, 300)}")
            time.sleep(PERIOD)

    def step(self) -> int:
        """Makes all hours of which rows came since they were made; how many. Raises StoreGone, StoreRefused."""
        begin = self._clock()
        hours = self._stale(begin)
        for hour in hours:
            self._make(hour, int(1e6 * begin))
        self._is_first = False
        return len(hours)

    def _stale(self, now: float) -> list[int]:
        """Those, and those of other records of the same runs: a correction takes a run from another hour to its own."""
        rows = self._store.ask(
            f"SELECT Hour FROM (SELECT Hour, max(At) AS At FROM {TOUCHED_HOURS.name} GROUP BY Hour) AS t "
            f"LEFT ANY JOIN ({_NEWEST}) AS m USING (Hour) "
            f"WHERE At + {SETTLED} >= Version / 1e6 ORDER BY Hour"
        )
        found = {row["Hour"] for row in rows}
        if self._is_first:  # rows of before there were roll-ups have touched nothing
            never = f"SELECT DISTINCT {HOUR} AS Hour FROM jobs WHERE Hour NOT IN (SELECT Hour FROM {HOURS.name})"
            found |= {row["Hour"] for row in self._store.ask(never)}
        touched = sorted(found)
        for begin in range(0, len(touched), _RUNS_AT_ONCE):
            those = ", ".join(map(str, touched[begin : begin + _RUNS_AT_ONCE]))
            ended = f"SELECT Run FROM failed_ends WHERE {HOUR} IN ({those})"
            runs = f"SELECT Run FROM jobs WHERE {HOUR} IN ({those}) UNION DISTINCT {ended}"
            others = self._store.ask(f"SELECT DISTINCT {HOUR} AS Hour FROM jobs WHERE Run IN ({runs})")
            found |= {row["Hour"] for row in others}
        return sorted(found)

    def _make(self, hour: int, version: int) -> None:
        key, sums = ", ".join(HOUR_KEY), ", ".join(f"{how} AS {name}" for name, how in SUMS.items())
        nothing = ", ".join([str(hour), *("''" for _ in HOUR_KEY[1:]), *("0" for _ in SUMS)])
        self._store.change(
            f"INSERT INTO {HOURS.name} ({key}, {', '.join(SUMS)}, Version) SELECT *, {version} FROM ("
            f"SELECT {key}, {sums} FROM ({of([hour])}) WHERE Hour = {hour} GROUP BY {key} UNION ALL SELECT {nothing})"
        )


def read(columns: str, where: str = "1") -> str:
    """A question for roll-ups as they were made last. where: a condition on them."""
    return f"SELECT {columns} FROM {HOURS.name} FINAL WHERE (Hour, Version) IN ({_NEWEST}) AND Node != '' AND {where}"
