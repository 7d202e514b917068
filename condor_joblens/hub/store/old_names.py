"""Takes people's names out of last records and sums by hour that are some months old: pseudonyms stand there then.

Where a name stands in other texts of its owner's row, as in a path, the pseudonym stands there too. Of a row that comes
late, that is done with the next look.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

from condor_joblens.hub.pseudonyms import SHAPE, Pseudonyms, Quarter, quarters
from condor_joblens.hub.store.client import Store
from condor_joblens.hub.store.mutations import wait_until_done
from condor_joblens.hub.store.rollups import SUMS
from condor_joblens.hub.store.schema import HOUR_KEY, HOURS, JOB_DAYS, JOBS

DAY = 86400
MONTH_DAYS = 30
MOST_MONTHS = JOB_DAYS // MONTH_DAYS

PERIOD = float(DAY)
"""Seconds between two looks."""

_LATE = 35 * DAY
"""For so long before the last look, rows may have come late since; the first look goes over all."""

_NO_NAMES = frozenset(("Id", "Type", "Node", "Run", "GlobalJobId", "JobId", "Slot", "Source", "Level", "Owner", "Vo",
                       "HangCause"))  # fmt: skip
_TEXTS = tuple(name for name, kind in JOBS.columns.items() if kind == "String" and name not in _NO_NAMES)
"""Columns in which a user's name can stand: paths, notes, his accounting group."""

_IS_NAMED = f"(Owner != '' AND NOT match(Owner, '{SHAPE}'))"
_HOURS_AT_ONCE = 24


class OldNames:
    """For one process: the one that makes the roll-ups, between two of these."""

    def __init__(
        self,
        store: Store,
        pseudonyms: Pseudonyms,
        months: int,
        clock: Callable[[], float] = time.time,
        also: Callable[[Pseudonyms, float], object] = lambda pseudonyms, until: None,
    ) -> None:
        """months: of 30 days each, for which names stay.

        also: takes those of before that time out of what is kept elsewhere. It may raise JobLensError.
        """
        self._store, self._pseudonyms, self._clock, self._also = store, pseudonyms, clock, also
        self._seconds = months * MONTH_DAYS * DAY
        self._next, self._done = 0.0, 0.0

    def step_if_due(self) -> None:
        """Once a day. Raises JobLensError."""
        if self._clock() >= self._next:
            self.step()
            self._next = self._clock() + PERIOD

    def step(self) -> None:
        """Changes all that is old enough. What is not done if it ends is done by the next. Raises JobLensError."""
        now = self._clock()
        until = 3600 * math.floor((now - self._seconds) / 3600)
        for quarter in quarters(max(now - DAY * (JOB_DAYS + 1), self._done - _LATE), until):
            self._rename_jobs(quarter, until)
            self._rename_hours(quarter, until)
        self._also(self._pseudonyms, until)
        self._done = float(until)

    def _rename_jobs(self, quarter: Quarter, until: int) -> None:
        where = f"Time >= {quarter.begin} AND Time < {min(quarter.end, until)} AND {_IS_NAMED}"
        if not self._store.ask(f"SELECT 1 AS n FROM {JOBS.name} WHERE {where} LIMIT 1"):
            return
        new = self._pseudonyms.expression("Owner", "splitByChar('#', GlobalJobId)[1]", quarter)
        changes = [f"Owner = {new}", *(f"{name} = {_renamed(name, new)}" for name in _TEXTS)]
        self._store.change(f"ALTER TABLE {JOBS.name} UPDATE {', '.join(changes)} WHERE {where}")
        wait_until_done(self._store, JOBS.name)

    def _rename_hours(self, quarter: Quarter, until: int) -> None:
        """Owner is of the key: so an hour is made anew, with the version after its own, and the old rows go."""
        rows = self._store.ask(
            f"SELECT Hour, max(Version) AS Newest, maxIf(Version, {_IS_NAMED}) AS Named FROM {HOURS.name} "
            f"WHERE Hour >= {quarter.begin} AND Hour < {min(quarter.end, until)} GROUP BY Hour HAVING Named > 0"
        )
        old = []
        for row in rows:
            newest = int(row["Newest"])
            if int(row["Named"]) == newest:  # else it was made anew, and the old rows are still to go
                self._make_anew(int(row["Hour"]), newest, quarter)
                newest += 1
            old.append((int(row["Hour"]), newest))
        for begin in range(0, len(old), _HOURS_AT_ONCE):
            self._delete(old[begin : begin + _HOURS_AT_ONCE])

    def _make_anew(self, hour: int, version: int, quarter: Quarter) -> None:
        new = f"if({_IS_NAMED}, {self._pseudonyms.expression('toString(Owner)', 'toString(Schedd)', quarter)}, Owner)"
        changed = {
            "Owner": new,
            "AccountingGroup": f"if({_IS_NAMED}, {_renamed('AccountingGroup', new)}, AccountingGroup)",
        }
        values = ", ".join(f"{changed.get(name, name)} AS new{place}" for place, name in enumerate(HOUR_KEY))
        self._store.change(
            f"INSERT INTO {HOURS.name} ({', '.join((*HOUR_KEY, *SUMS))}, Version) "
            f"SELECT {values}, {', '.join(SUMS)}, {version + 1} FROM {HOURS.name} FINAL "
            f"WHERE Hour = {hour} AND Version = {version}"
        )

    def _delete(self, hours: Iterable[tuple[int, int]]) -> None:
        """Rows of these hours that are of an older version than this."""
        where = " OR ".join(f"(Hour = {hour} AND Version < {version})" for hour, version in hours)
        self._store.change(f"ALTER TABLE {HOURS.name} DELETE WHERE {where}")
        wait_until_done(self._store, HOURS.name)


def _renamed(column: str, new: str) -> str:
    """A text with the pseudonym where its row's owner stands as a word."""
    return rf"replaceRegexpAll(toString({column}), concat('\\b', regexpQuoteMeta(toString(Owner)), '\\b'), {new})"
