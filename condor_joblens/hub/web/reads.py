"""What pages ask the store: always for one viewer, whose scope is part of every question."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from condor_joblens.hub.store.client import Store
from condor_joblens.hub.web.gaps import gaps
from condor_joblens.hub.web.health import health
from condor_joblens.hub.web.people import Person
from condor_joblens.hub.web.who_sees import FEWEST, OTHERS, OWNER_COLUMNS, WORD_COLUMNS, Seen

LIVE_SECONDS = 120
"""A run whose numbers are older is not called running."""

ROWS = 100
"""Of a page of jobs."""

POINTS = 2000
"""Of a series, at most; the newest."""

_PLAIN = ("Type", "Run", "RunNumber", "GlobalJobId", "JobId", "Node", "Slot", "Level", "StartTime", "UpdateTime",
          "PeriodSeconds", "Sequence", "Complete", "HangCause", "RequestCpus", "RequestMemoryBytes")  # fmt: skip
_NUMBERS = {
    "Cores": "Cpu.RecentCores",
    "CpuSeconds": "Cpu.Seconds",
    "IdleSeconds": "Cpu.IdleSeconds",
    "ResidentBytes": "Memory.ResidentBytes",
    "CgroupBytes": "Memory.CgroupBytes",
    "PeakBytes": "Memory.CgroupPeakBytes",
    "LimitBytes": "Memory.LimitBytes",
    "ReadBytes": "Io.CallReadBytes",
    "WriteBytes": "Io.CallWriteBytes",
    "SentBytes": "Tcp.SentBytes",
    "ReceivedBytes": "Tcp.ReceivedBytes",
    "Processes": "Process.Live",
    "HangSuspected": "Hang.Suspected",
}
"""A column of pages -> the metric."""

SORTS = {
    "started": "StartTime",
    "updated": "UpdateTime",
    "cores": "Cores",
    "memory": "ResidentBytes",
    "read": "ReadBytes",
    "written": "WriteBytes",
    "job": "GlobalJobId",
    "node": "Node",
    "owner": "Owner",
}
"""A word in an address -> the column by which rows are sorted."""


class Reader:
    """For one viewer, at one moment."""

    def __init__(self, store: Store, viewer: Person) -> None:
        self._store, self._viewer = store, viewer
        self._others = OTHERS[viewer.role]
        self.now = time.time()
        parts, self._own_values = [], {}
        for number, (owner, schedd) in enumerate(viewer.jobs):
            parts.append(f"(Owner = {{owner{number}:String}} AND startsWith(GlobalJobId, {{schedd{number}:String}}))")
            self._own_values.update({f"owner{number}": owner, f"schedd{number}": f"{schedd}#"})
        self._own = f"({' OR '.join(parts)})" if parts else "0"
        self._scope = "1" if Seen.EXISTS in self._others else self._own

    @property
    def sees_others(self) -> bool:
        """Whether others' jobs are on his pages at all."""
        return Seen.EXISTS in self._others

    def site(self) -> dict[str, Any]:
        """Sums of all that runs. They are left out where they would tell of too few people."""
        sums = (
            "count() AS runs, countDistinct(Owner) AS owners, countDistinct(Node) AS nodes, "
            "sum(Cpu.RecentCores) AS cores, sum(RequestCpus) AS asked_cores, "
            "sum(Memory.ResidentBytes) AS memory, sum(RequestMemoryBytes) AS asked_memory, "
            "countIf(Hang.Suspected > 0) AS hanging"
        )
        live = f"FROM latest FINAL WHERE Type = 'sample' AND UpdateTime > {int(self.now) - LIVE_SECONDS}"
        (site,) = self._store.ask(f"SELECT {sums} {live}")
        (mine,) = self._store.ask(f"SELECT {sums} {live} AND {self._own}", **self._own_values)
        silent = self._store.ask(
            "SELECT Node AS node, max(Time) AS time FROM health FINAL GROUP BY Node "
            f"HAVING time < {self.now - 300} ORDER BY time LIMIT {ROWS}"
        )
        (lost,) = self._store.ask(
            f"SELECT sum(Count) AS records FROM events FINAL WHERE Kind = 'Loss' AND Time > {self.now - 3600}"
        )
        died = self._store.ask(
            f"SELECT countIf(Death != '') AS died, count() AS ended FROM jobs FINAL "
            f"WHERE Time > {self.now - 3600} AND {self._scope}",
            **self._own_values,
        )[0]
        is_hidden = not self.sees_others and site["owners"] < FEWEST
        return {
            "site": None if is_hidden else {**site, "owners": site["owners"] if self.sees_others else None},
            "mine": mine,
            "last_hour": died,
            "silent_nodes": silent if self.sees_others else None,
            "lost_records": lost["records"] or 0,
            "time": self.now,
        }

    def jobs(self, words: str = "", sort: str = "-updated", state: str = "running", page: int = 0) -> dict[str, Any]:
        """The newest of each run, a page of them. words: each must be in the job's id, node, owner or executable."""
        descending, name = sort.startswith("-"), sort.lstrip("-")
        order = SORTS.get(name, "UpdateTime")
        values: dict[str, Any] = dict(self._own_values)
        running = f"(Type = 'sample' AND UpdateTime > {int(self.now) - LIVE_SECONDS})"
        states = {"running": running, "ended": "Type = 'job'", "died": "Type = 'job' AND Death != ''", "all": "1"}
        conditions = [self._scope, states.get(state, running)]
        for number, word in enumerate(words.split()[:8]):
            values[f"word{number}"] = word[:100]
            columns = ["JobId", "GlobalJobId", "Node", *(["Owner"] if self._may_name_owners else [])]
            if self._may_search_words:
                columns.append("Executable")
            text = ", ' ', ".join(columns)
            conditions.append(f"positionCaseInsensitiveUTF8(concat({text}), {{word{number}:String}}) > 0")
        where = " AND ".join(conditions)
        way = "DESC" if descending else "ASC"
        rows = self._store.ask(
            f"SELECT {self._columns()} FROM latest FINAL WHERE {where} "
            f"ORDER BY {order} {way} NULLS LAST, Run LIMIT {ROWS} OFFSET {ROWS * page}",
            **values,
        )
        (count,) = self._store.ask(f"SELECT count() AS n FROM latest FINAL WHERE {where}", **values)
        return {"jobs": [self._shown(row) for row in rows], "count": count["n"], "page": page, "time": self.now}

    def job(self, run: str) -> dict[str, Any] | None:
        """One run; None if there is none, or he may not see it: nobody learns which."""
        rows = self._store.ask(
            f"SELECT {self._columns(WORD_COLUMNS)} FROM latest FINAL "
            f"WHERE Run = {{run:String}} AND {self._scope} ORDER BY RunNumber DESC LIMIT 1",
            run=run,
            **self._own_values,
        )
        return self._shown(rows[0]) if rows else None

    def series(self, run: Mapping[str, Any]) -> dict[str, Any]:
        """The samples of a run that `job` gave, in order, by column; with the gaps between them."""
        metrics = ("Cores", "ResidentBytes", "ReadBytes", "WriteBytes", "SentBytes", "ReceivedBytes", "Processes")
        rows = self._store.ask(
            f"SELECT Sequence, Time, {', '.join(f'{_NUMBERS[name]} AS {name}' for name in metrics)} FROM "
            "(SELECT * FROM samples FINAL WHERE GlobalJobId = {job:String} AND Run = {run:String} "
            "AND Node = {node:String} AND RunNumber = {number:UInt64} "
            f"ORDER BY Sequence DESC LIMIT {POINTS}) ORDER BY Sequence",
            job=run["GlobalJobId"], run=run["Run"], node=run["Node"], number=run["RunNumber"],
        )  # fmt: skip
        losses = self._store.ask(
            "SELECT Time FROM events FINAL WHERE Kind = 'Loss' AND Node = {node:String} "
            f"AND Time > {{begin:Float64}} AND (Run = '' OR Run = {{run:String}}) ORDER BY Time LIMIT {POINTS}",
            node=run["Node"], run=run["Run"], begin=rows[0]["Time"] if rows else self.now,
        )  # fmt: skip
        times = [row["Time"] for row in rows]
        found = gaps([row["Sequence"] for row in rows], times, [row["Time"] for row in losses])
        return {
            "time": times,
            "sequence": [row["Sequence"] for row in rows],
            **{name: [row[name] for row in rows] for name in metrics},
            "gaps": [vars(gap) for gap in found],
        }

    # --- what he may see

    @property
    def _may_name_owners(self) -> bool:
        return not self.sees_others or Seen.OWNER in self._others

    @property
    def _may_search_words(self) -> bool:
        """A search that finds tells what is there."""
        return not self.sees_others or Seen.WORDS in self._others

    def _columns(self, more: Sequence[str] = ("Executable", "Death", "Note")) -> str:
        chosen = [*_PLAIN, *OWNER_COLUMNS, *more, f"{self._own} AS IsMine"]
        return ", ".join([*chosen, *(f"{metric} AS {name}" for name, metric in _NUMBERS.items())])

    def _shown(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row without what its viewer may not see, and with its health."""
        row["IsMine"] = bool(row["IsMine"])
        seen = frozenset(Seen) if row["IsMine"] else self._others
        word, why = health(row, self.now)
        if Seen.WORDS not in seen and row["Type"] == "job":
            why = ""
        for columns, what in ((OWNER_COLUMNS, Seen.OWNER), (WORD_COLUMNS, Seen.WORDS), (tuple(_NUMBERS), Seen.NUMBERS)):
            if what not in seen:
                for column in columns:
                    row.pop(column, None)
        return {**row, "Health": word, "Why": why}
