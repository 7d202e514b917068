"""What pages ask the store: always for one viewer, whose scope is part of every question."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from condor_joblens.hub.store.client import Store
from condor_joblens.hub.web.failures import USUAL_HOURS, WINDOW, Ended, Failure, Wave, waves
from condor_joblens.hub.web.gaps import gaps
from condor_joblens.hub.web.health import health
from condor_joblens.hub.web.people import Person
from condor_joblens.hub.web.who_sees import FEWEST, OF_GROUP, OTHERS, OWNER_COLUMNS, WORD_COLUMNS, Seen, visible

LIVE_SECONDS = 120
"""A run whose numbers are older is not called running."""

ROWS = 100
"""Of a page of jobs."""

MOST_FAILURES = 20_000
"""That are looked at; the newest."""

MOST_SERVERS = 10
MOST_NODES = 20
"""That tell of one run, and are named."""

MOST_SIBLINGS = 10_000
"""With which a job is compared; the newest."""

MOST_ASKED = 20_000
"""Bytes of names in a question, which is a line of HTTP: our store takes 64 KiB of one, and nodes may say any names."""

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
    "PeakBytes": "Memory.ResidentPeakBytes",
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
    "cores": "if(Type = 'job', CpuSeconds / (UpdateTime - StartTime), Cores)",
    "memory": "if(Type = 'job', PeakBytes, ResidentBytes)",
    "read": "ReadBytes",
    "written": "WriteBytes",
    "job": "GlobalJobId",
    "node": "Node",
    "owner": "Owner",
}
"""A word in an address -> by what rows are sorted; of a run that is over, by what its page shows."""


HAS_FAILED = "(Death != '' OR Code > 0)"
"""Of a run that is over, beside its exit code."""

_FAILED = "SELECT Run, Node, RunNumber FROM failed_ends FINAL"
CLUSTER = "concat(splitByChar('#', GlobalJobId)[1], '#', splitByChar('.', JobId)[1])"
"""ap1#12: a number of a cluster is one schedd's."""


_ASKED = "arrayMap(x -> JSONExtractString(x, 'Name'), JSONExtractArrayRaw(Servers))"
"""The names of the file servers of a run."""


def failed_ends(since: float) -> str:
    """The events come before the last records, or minutes later."""
    return (
        f"SELECT Run, Node, RunNumber, toNullable(ExitCode) AS Code FROM failed_ends FINAL WHERE Time > {since - 600}"
    )


def _failure(row: Mapping[str, Any]) -> Failure:
    cluster = f"{row['GlobalJobId'].partition('#')[0]}#{row['JobId'].partition('.')[0]}"
    return Failure(
        cause(row), row["Code"], cluster, row["Node"], row["Owner"], tuple(row["Asked"]), row["JobId"], row["Run"]
    )


def cause(row: Mapping[str, Any]) -> str:
    """In words, as its node says."""
    if row["Death"] or not row["FirstFailure"]:
        return str(row["Death"])
    return f"exit code {row['Code']}: {row['FirstFailure']}"


def _portions(names: Sequence[str]) -> list[list[str]]:
    """As many together as fit into a question. One that fits into none is left out: it has no page either."""
    found: list[list[str]] = []
    left = 0
    for name in names:
        size = 2 * len(quote(json.dumps(name), safe=""))  # the store's own escapes double what is one
        if size > MOST_ASKED:
            continue
        if size > left:
            found.append([])
            left = MOST_ASKED
        found[-1].append(name)
        left -= size
    return found


def _told(wave: Wave) -> dict[str, Any]:
    """As JSON has it."""
    found = {name: value for name, value in vars(wave).items() if name != "example"}
    return {**found, "example_job": wave.example.job, "example_run": wave.example.run}


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
        self.own = f"({' OR '.join(parts)})" if parts else "0"
        for number, (group, schedd) in enumerate(viewer.groups):
            # what is below a group begins with its name and a dot
            of_group = f"startsWith(concat(AccountingGroup, '.'), {{group{number}:String}})"
            parts.append(f"({of_group} AND startsWith(GlobalJobId, {{at{number}:String}}))")
            self._own_values.update({f"group{number}": f"{group}.", f"at{number}": f"{schedd}#"})
        self.scope = "1" if self.sees_others else f"({' OR '.join(parts)})" if parts else "0"
        self._not_mine = self._others | OF_GROUP if viewer.groups else self._others

    def sees(self, what: Seen) -> str:
        """In a question with his scope and IsMine: of which rows he may see it, as a condition."""
        has_others = self.sees_others or bool(self._viewer.groups)
        return "IsMine" if has_others and what not in self._not_mine else "1"

    def seen(self, row: Mapping[str, Any]) -> frozenset[Seen]:
        """What of a row in his scope he may see."""
        return frozenset(Seen) if row["IsMine"] else self._not_mine

    def ask(self, query: str, **values: str | float) -> list[dict[str, Any]]:
        """What another room of pages asks, with `scope` in it. Raises JobLensError."""
        return self._store.ask(query, **values, **self._own_values)

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
        (mine,) = self._store.ask(f"SELECT {sums} {live} AND {self.own}", **self._own_values)
        silent = self._store.ask(
            "SELECT Node AS node, max(Time) AS time FROM health FINAL GROUP BY Node "
            f"HAVING time < {self.now - 300} AND time > {self.now - 86400} ORDER BY time LIMIT {ROWS}"
        )
        (lost,) = self._store.ask(
            f"SELECT sum(Count) AS records FROM events FINAL WHERE Kind = 'Loss' AND Time > {self.now - 3600}"
        )
        failures, ended = self._failures()
        is_hidden = not self.sees_others and site["owners"] < FEWEST
        return {
            "site": None if is_hidden else {**site, "owners": site["owners"] if self.sees_others else None},
            "mine": mine,
            "last_hour": {"ended": sum(ended.by_node.values()), "failed": len(failures)},
            "failures": [_told(wave) for wave in self._waves(failures, ended)],
            "servers": self._servers(live),
            "silent_nodes": silent if self.sees_others else None,
            "lost_records": lost["records"] or 0,
            "time": self.now,
        }

    def _failures(self) -> tuple[list[Failure], Ended]:
        """Of the window, within the viewer's scope."""
        since = f"Time > {self.now - WINDOW} AND {self.scope}"
        ends = failed_ends(self.now - WINDOW)
        rows = self._store.ask(
            "SELECT Run, JobId, Node, Owner, Death, FirstFailure, Code, Asked, GlobalJobId FROM "
            f"(SELECT Run, JobId, Node, RunNumber, Owner, Death, FirstFailure, {_ASKED} AS Asked, GlobalJobId, Time "
            f"FROM jobs FINAL WHERE {since}) AS j LEFT ANY JOIN ({ends}) AS e USING (Run, Node, RunNumber) "
            f"WHERE {HAS_FAILED} ORDER BY Time DESC LIMIT {MOST_FAILURES}",
            **self._own_values,
        )
        counts = {
            name: {row["name"]: row["n"] for row in self._store.ask(query, **self._own_values)}
            for name, query in {
                "by_node": f"SELECT Node AS name, count() AS n FROM jobs FINAL WHERE {since} GROUP BY name",
                "by_cluster": f"SELECT {CLUSTER} AS name, count() AS n FROM jobs FINAL WHERE {since} GROUP BY name "
                f"ORDER BY n DESC LIMIT {MOST_FAILURES}",
                "by_server": f"SELECT arrayJoin(arrayDistinct({_ASKED})) AS name, count() AS n FROM jobs FINAL "
                f"WHERE {since} AND Servers != '' GROUP BY name ORDER BY n DESC "
                f"LIMIT {MOST_FAILURES}",
            }.items()
        }
        return [_failure(row) for row in rows], Ended(**counts)

    def _waves(self, failures: Sequence[Failure], ended: Ended) -> list[Wave]:
        """By cause, against the day before."""
        begin = self.now - WINDOW - USUAL_HOURS * 3600
        rows = self._store.ask(
            "SELECT Death, FirstFailure, Code, count() AS n FROM "
            f"(SELECT Run, Node, RunNumber, Death, FirstFailure FROM jobs FINAL WHERE Time > {begin} "
            f"AND Time <= {self.now - WINDOW} AND {self.scope}) AS j "
            f"LEFT ANY JOIN ({failed_ends(begin)}) AS e USING (Run, Node, RunNumber) "
            f"WHERE {HAS_FAILED} GROUP BY Death, FirstFailure, Code ORDER BY n DESC LIMIT {MOST_FAILURES}",
            **self._own_values,
        )
        before: Counter[str] = Counter()
        for row in rows:
            before[Failure(cause(row), row["Code"], "", "", "").words] += row["n"]
        return waves(failures, before, ended, self.may_read_words, self._may_name_owners)

    def _servers(self, live: str) -> list[dict[str, Any]]:
        """File servers of what runs, those that are waited for most first; a user's own jobs alone."""
        if not self.may_read_words:
            return []
        each = (
            "SELECT arrayJoin(JSONExtractArrayRaw(Servers)) AS one, JSONExtractString(one, 'Name') AS name, "
            "JSONExtractString(one, 'Class') AS class, JSONExtractInt(one, 'Requests') AS requests, "
            "JSONExtractFloat(one, 'Seconds') AS waited, JSONExtractInt(one, 'Errors') AS wrong, "
            f"greatest(1, UpdateTime - StartTime) AS lived {live} AND Servers != '' AND {self.scope}"
        )
        return self._store.ask(
            "SELECT name, class, count() AS runs, sum(requests / lived) AS requests_per_second, "
            f"sum(waited) / greatest(1, sum(requests)) AS wait_seconds, sum(wrong) AS errors FROM ({each}) "
            f"WHERE name != '' GROUP BY name, class ORDER BY sum(waited) DESC LIMIT {MOST_SERVERS}",
            **self._own_values,
        )

    def jobs(self, words: str = "", sort: str = "-updated", state: str = "running", page: int = 0) -> dict[str, Any]:
        """The newest of each run, a page of them. words: each must be in the job's id, node, owner or executable."""
        descending, name = sort.startswith("-"), sort.lstrip("-")
        order = SORTS.get(name, "UpdateTime")
        values: dict[str, Any] = dict(self._own_values)
        conditions = [self.scope, self.states.get(state, self.states["running"])]
        for number, word in enumerate(words.split()[:8]):
            values[f"word{number}"] = word[:100]
            columns = ["JobId", "GlobalJobId", "Node", *(["Owner"] if self._may_name_owners else [])]
            if self.may_read_words:
                columns += ["Executable", "Death"]
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
        self._add_exit_codes(rows)
        return {"jobs": [self._shown(row) for row in rows], "count": count["n"], "page": page, "time": self.now}

    @property
    def states(self) -> dict[str, str]:
        """A word for what runs are -> the condition."""
        return {
            "running": f"(Type = 'sample' AND UpdateTime > {int(self.now) - LIVE_SECONDS})",
            "ended": "(Type = 'job')",
            "failed": f"(Type = 'job' AND (Death != '' OR (Run, Node, RunNumber) IN ({_FAILED})))",
            "all": "1",
        }

    def runs(
        self, columns: Sequence[str], where: str, order: str, most: int, values: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """The newest record of each run within his scope: `columns` of it, as far as he may see them, and its health.

        columns: names of the store's columns, from its table; where, order: conditions with the parameters `values`.
        """
        named = ", ".join(f"{name} AS c{place}" for place, name in enumerate(columns))
        rows = self.ask(
            f"SELECT {self._columns()}, {named} FROM latest FINAL WHERE {self.scope} AND {where} ORDER BY {order} "
            f"LIMIT 1 BY Run LIMIT {most}",
            **values,
        )
        self._add_exit_codes(rows)
        found = []
        for row in rows:
            chosen = {name: row[f"c{place}"] for place, name in enumerate(columns)}
            shown = self._shown(row)
            always = {name: shown[name] for name in ("Run", "Health", "Why", "IsMine", "ExitCode")}
            found.append({**always, **visible(chosen, self.seen(shown), {})})
        return found

    def jobs_of_node(self, node: str, most: int) -> list[dict[str, Any]]:
        """What runs there, and he may see; those with most cores first."""
        live = f"Type = 'sample' AND UpdateTime > {int(self.now) - LIVE_SECONDS}"
        rows = self.ask(
            f"SELECT {self._columns()} FROM latest FINAL WHERE {live} AND Node = {{node:String}} AND {self.scope} "
            f"ORDER BY Cores DESC NULLS LAST, Run LIMIT {most}",
            node=node,
        )
        return [self._shown(row) for row in rows]

    def job(self, run: str) -> dict[str, Any] | None:
        """One run; None if there is none, or he may not see it: nobody learns which."""
        rows = self._store.ask(
            f"SELECT {self._columns(WORD_COLUMNS)} FROM latest FINAL "
            f"WHERE Run = {{run:String}} AND {self.scope} ORDER BY RunNumber DESC LIMIT {MOST_NODES + 1}",
            run=run,
            **self._own_values,
        )
        if not rows:
            return None
        self._add_exit_codes(rows[:1])
        others = sorted({row["Node"] for row in rows} - {rows[0]["Node"]})
        return {**self._shown(rows[0]), "OtherNodes": others}

    def _add_exit_codes(self, rows: Sequence[dict[str, Any]]) -> None:
        """Of those that ended with one."""
        codes = {
            (one["Run"], one["Node"], one["RunNumber"]): one["ExitCode"]
            for names in _portions([row["Run"] for row in rows if row["Type"] == "job"])
            for one in self._store.ask(
                "SELECT Run, Node, RunNumber, ExitCode FROM failed_ends FINAL "
                "WHERE Run IN (SELECT arrayJoin(JSONExtract({runs:String}, 'Array(String)')))",
                runs=json.dumps(names),
            )
        }
        for row in rows:
            row["ExitCode"] = codes.get((row["Run"], row["Node"], row["RunNumber"]))

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

    def siblings(self, run: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The other runs of its cluster that he may see, and that are over as this is, or run as this does."""
        schedd, _, rest = run["GlobalJobId"].partition("#")
        cluster = f"{schedd}#{rest.partition('.')[0]}."
        return self._store.ask(
            "SELECT Run, JobId, Type, UpdateTime - StartTime AS Seconds, Memory.ResidentPeakBytes AS PeakBytes, "
            "Cpu.Seconds AS CpuSeconds, Io.CallReadBytes AS ReadBytes, Io.CallWriteBytes AS WriteBytes "
            "FROM latest FINAL WHERE startsWith(GlobalJobId, {cluster:String}) AND Type = {type:String} "
            f"AND {self.scope} ORDER BY UpdateTime DESC LIMIT {MOST_SIBLINGS}",
            cluster=cluster, type=run["Type"], **self._own_values,
        )  # fmt: skip

    # --- what he may see

    @property
    def _may_name_owners(self) -> bool:
        return self.sees(Seen.OWNER) == "1"

    @property
    def may_read_words(self) -> bool:
        """A search that finds tells what is there."""
        return self.sees(Seen.WORDS) == "1"

    def _columns(self, more: Sequence[str] = ("Executable", "Death", "Note")) -> str:
        chosen = [*_PLAIN, *OWNER_COLUMNS, *more, f"{self.own} AS IsMine"]
        return ", ".join([*chosen, *(f"{metric} AS {name}" for name, metric in _NUMBERS.items())])

    def _shown(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row without what its viewer may not see, and with its health."""
        row["IsMine"] = bool(row["IsMine"])
        seen = self.seen(row)
        word, why = health(row, self.now)
        if Seen.WORDS not in seen and row["Type"] == "job":
            why = ""
        return {**visible(row, seen, _NUMBERS), "Health": word, "Why": why}
