"""What pages ask the store of jobs: always for one viewer, whose scope is part of every question."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from urllib.parse import quote

from condor_joblens.hub.store.client import Store
from condor_joblens.hub.store.schema import DAYS, LATEST, LIVE, LIVE_METRICS, LIVE_SERVERS, NUMBERS, SUSPECT
from condor_joblens.hub.web import filters, states
from condor_joblens.hub.web.ended import with_code
from condor_joblens.hub.web.failures import WINDOW
from condor_joblens.hub.web.gaps import gaps
from condor_joblens.hub.web.health import health
from condor_joblens.hub.web.live_snapshots import Snapshot
from condor_joblens.hub.web.people import Person
from condor_joblens.hub.web.picked import BY_PATH
from condor_joblens.hub.web.who_sees import OF_GROUP, OTHERS, OWNER_COLUMNS, WORD_COLUMNS, Seen, visible

ROWS = 100
"""Of a page of jobs."""

MOST_NODES = 20
"""That tell of one run, and are named."""

MOST_SIBLINGS = 10_000
"""With which a job is compared; the newest."""

MOST_ASKED = 38_000
"""Bytes of names in a question, which is a line of HTTP: our store takes 64 KiB of one, and nodes may say any names."""

POINTS = 2000
"""Of a series, at most; the newest."""

OF_ONE_RUN = (
    "samples WHERE GlobalJobId = {job:String} AND Run = {run:String} AND Node = {node:String} "
    "AND RunNumber = {number:UInt64}"
)
"""Where the samples of a run are. Who asks takes one of each Sequence (LIMIT 1 BY): that is all that FINAL would do,
and FINAL reads more columns, of more rows."""

_PLAIN = ("Type", "Run", "RunNumber", "GlobalJobId", "JobId", "Node", "Slot", "Level", "StartTime", "UpdateTime",
          "PeriodSeconds", "SinkPeriodSeconds", "Sequence", "Complete", "HangCause", "RequestCpus",
          "RequestMemoryBytes")  # fmt: skip
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

STATES = ("running", "suspect", "hanging", "silent", "ended", "failed", "all")
"""What runs can be asked for by."""

LIVES = ("running", "suspect", "hanging")
"""Those of STATES whose numbers come."""

HEALTH = "health"
"""By what runs can be sorted, beside SORTS and metrics: those that are not well first, or last."""


_T = TypeVar("_T")
_KEY = ("GlobalJobId", "Run", "Node")
"""Of a row of `latest`."""

_LIVE_KEY = ("RunHash", "Node", "JobHash")
"""Of a row of LIVE."""

_LIVE_ROW = (*_LIVE_KEY, "Version")
"""Of the newest one."""

_MOST_NUMBERS = 700
"""Of runs, with their versions, in a question, which is a line of HTTP."""

_LIVE_SORTS = {
    **{"started": "StartTime", "updated": "UpdateTime", "cores": "Cpu.RecentCores", "memory": "Memory.ResidentBytes"},
    **{"read": "Io.CallReadBytes", "written": "Io.CallWriteBytes", "owner": "Owner", HEALTH: "IsSuspect"},
}
"""Of runs whose numbers come, those orders that NUMBERS tells."""

_SORTS_BY_NUMBERS = ("cores", "memory", "read", "written")
"""Those in which it does not matter how runs are ordered that have the same."""


_BEGINNINGS = frozenset(("cluster", "schedd"))
"""Parameters that say how a job's name begins."""

_NUMBERED = frozenset(("owner", "group", "node", "mine", "since", "until"))
"""Those of which NUMBERS has all columns."""


@dataclass(frozen=True)
class _Question:
    """Which runs, in which order, and how many."""

    named: str  # what the rest has names for
    where: str
    order: str
    most: int
    page: int


def _portions(names: Sequence[_T]) -> list[list[_T]]:
    """As many together as fit into a question. One that fits into none is left out: it has no page either."""
    found: list[list[_T]] = []
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


_FEW = 3
"""Columns of one group that are asked for one by one."""


def _element(groups: Mapping[str, Any], path: str) -> Any:
    """A metric of a group, which the store has as a tuple of tuples."""
    found: Any = groups
    for word in path.split("."):
        found = found[word]
    return found


def _heads(columns: Sequence[str]) -> Sequence[str]:
    """What is asked for so that these columns are known: elements of a group take as long as the whole of it, each."""
    counts = Counter(name.partition(".")[0] for name in columns)
    return [*dict.fromkeys(head if counts[head := name.partition(".")[0]] > _FEW else name for name in columns)]


def _as_named(columns: Sequence[str]) -> str:
    """These columns in a question."""
    return ", ".join(f"{name} AS c{place}" for place, name in enumerate(_heads(columns)))


def _table(state: str, exact: Mapping[str, Any], *metrics: str) -> str:
    """The table of fewest columns that tells which runs are chosen, and in which order. metrics: those of the order."""
    is_live = state in LIVES and not exact.get("cause") and not set(metrics) & (BY_PATH.keys() - set(LIVE_METRICS))
    return LIVE.name if is_live else LATEST.name


class Reader:
    """For one viewer, at one moment.

    snapshot: of live runs, by which questions about all of them are answered. Then that is the moment.

    `hour` is since when something is of late: an hour, from a full minute on, so that a link to it stays the same.
    """

    def __init__(
        self, store: Store, viewer: Person, then: float | None = None, snapshot: Snapshot | None = None
    ) -> None:
        """then: the moment, epoch seconds, of which runs that ended are asked for; None: now."""
        self._store, self._viewer = store, viewer
        self._others = OTHERS[viewer.role]
        self._snapshot = snapshot
        if snapshot:
            self.now = snapshot.time
        else:
            self.now = time.time() if then is None else then
        # now, a node's clock may be ahead of ours
        self.is_past = "1" if then is None else f"Time <= {then}"
        self.oldest = self.now - DAYS * 86400
        self.hour = 60 * math.floor((self.now - WINDOW) / 60)
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

    @property
    def numbers(self) -> str:
        """NUMBERS of live runs, as a question's table."""
        return self._snapshot.source if self._snapshot else NUMBERS

    @property
    def live(self) -> str:
        """Live runs with all columns of LIVE, the same."""
        return self._snapshot.source if self._snapshot else f"{LIVE.name} FINAL"

    @property
    def live_with_servers(self) -> str:
        """Those of them that have asked file servers, at least, with columns of LIVE_SERVERS."""
        return self._snapshot.source if self._snapshot else f"{LIVE_SERVERS.name} FINAL"

    @property
    def is_of_snapshot(self) -> bool:
        """Whether live runs are as they were at its moment."""
        return self._snapshot is not None

    @property
    def tells_each_once(self) -> bool:
        """Whether these surely have no run of which two nodes tell."""
        return self._snapshot is not None and self._snapshot.is_unique

    def sees(self, what: Seen) -> str:
        """In a question with his scope and IsMine: of which rows he may see it, as a condition."""
        has_others = self.sees_others or bool(self._viewer.groups)
        return "IsMine" if has_others and what not in self._not_mine else "1"

    def seen(self, row: Mapping[str, Any]) -> frozenset[Seen]:
        """What of a row in his scope he may see."""
        return frozenset(Seen) if row["IsMine"] else self._not_mine

    def owns(self, owner: str, schedd: str) -> bool:
        """Whether jobs of this owner at this schedd are his; old ones have a pseudonym of his as their owner."""
        jobs = self._viewer.jobs
        was = any(owner == name and schedd == jobs[place][1] for name, place in self._viewer.former)
        return was or (owner, schedd) in jobs

    def own_names(self, column: str) -> str:
        """A column of owners with his own names, where old rows have his pseudonyms."""
        former = self._viewer.former
        if not former:
            return column
        pseudonyms = ", ".join(f"'{pseudonym}'" for pseudonym, _ in former)
        names = ", ".join(f"{{owner{number}:String}}" for _, number in former)
        return f"transform(toString({column}), [{pseudonyms}], [{names}], toString({column}))"

    def ask(self, query: str, **values: str | float) -> list[dict[str, Any]]:
        """What another room of pages asks, with `scope` in it. Raises JobLensError."""
        return self._store.ask(query, **values, **self._own_values)

    @property
    def viewer_scope(self) -> tuple[Any, ...]:
        """For whom it asks: who has the same sees the same."""
        return self._viewer.scope

    @property
    def near(self) -> str:
        """Jobs that are his own, or of his groups, as a condition."""
        return self.scope if self.has_groups else self.own

    @property
    def has_groups(self) -> bool:
        """Whether he manages groups."""
        return bool(self._viewer.groups) and not self.sees_others

    @property
    def has_jobs(self) -> bool:
        """Whether any jobs can be his own; of who sees no others, always."""
        return bool(self._viewer.jobs) or not self.sees_others

    @property
    def sees_others(self) -> bool:
        """Whether others' jobs are on his pages at all."""
        return Seen.EXISTS in self._others

    def states(self, since: float) -> dict[str, str]:
        """A word of STATES -> the condition. since: epoch seconds, before which nothing is asked for."""
        running = states.running(self.now)
        failed = f"(Type = 'job' AND (Death != '' OR {with_code(since)}))"
        suspect, hanging = f"({running} AND {SUSPECT})", f"({running} AND Hang.Suspected > 0)"
        found = (running, suspect, hanging, states.silent(self.now), "(Type = 'job')", failed, "1")
        return dict(zip(STATES, found))

    def conditions(self, state: str, asked: Mapping[str, Any]) -> tuple[str, dict[str, str | float]]:
        """Which runs: by a word of STATES, and exact parameters (`filters`); with the parameters' values."""
        parts, values = filters.conditions(self, asked)
        return " AND ".join([self.states(asked.get("since") or self.oldest)[state], *parts]), values

    def jobs(
        self,
        words: str = "",
        sort: str = "-updated",
        state: str = "running",
        page: int = 0,
        most: int = ROWS,
        columns: Sequence[str] = (),
        **exact: Any,
    ) -> dict[str, Any]:
        """The newest of each run, a page of them.

        columns: paths of metrics that each row has too, by which it can be sorted. exact: as for `chosen`.
        """
        name, way = sort.lstrip("-"), "DESC" if sort.startswith("-") else "ASC"
        where, values = self.chosen(words, state, exact)
        table = self._table_of(name, state, exact)
        named = ", ".join(f"{metric} AS {name}" for name, metric in _NUMBERS.items())
        order = self._order(name, way, state, table)
        question = _Question(f"{self.own} AS IsMine, {named}", where, order, most, page)
        picked = [f", {self._metric(path)} AS c{place}" for place, path in enumerate(columns)]
        found, is_live = f"{self._columns()}{''.join(picked)}", _table(state, exact, *columns) == LIVE.name
        if self._snapshot and _table(state, exact, name) == LIVE.name:
            rows, count = self._of_snapshot(question, values, found, is_live)
        elif table == LATEST.name:
            rows, count = self._of_latest(question, values, found)
        else:
            if table == NUMBERS:
                where = self._where_of_numbers(words, state, exact)
                question = replace(question, named=f"{self.own} AS IsMine", where=where)
            source = table if table == NUMBERS else f"{table} FINAL"
            keys, count = self._first(question, values, source, _LIVE_ROW, "RunHash")
            rows = self._of_live(keys, found if is_live else ", ".join(_KEY))
            rows = rows if is_live else self._of_keys(rows, found)
        for row in rows:
            row.update({path: row.pop(f"c{place}") for place, path in enumerate(columns)})
        self._add_exit_codes(rows)
        return {"jobs": [self._shown(row) for row in rows], "count": count, "page": page, "time": self.now}

    def _order(self, name: str, way: str, state: str, table: str) -> str:
        """Of a page of runs, which `table` tells."""
        if table == NUMBERS:
            then = "" if name in _SORTS_BY_NUMBERS else "Schedd, Job, "
            return f"{_LIVE_SORTS[name]} {way} NULLS LAST, {then}RunHash, Node"
        order = self._rank(state) if name == HEALTH else SORTS.get(name, "UpdateTime")
        order = self._metric(name) if name in BY_PATH else order
        # of what is alike the order stays while it lives, and of what is over the newest comes first
        then = "UpdateTime DESC, Run" if name == HEALTH and state not in LIVES else "Run"
        if table != LATEST.name and (name in BY_PATH or name in _SORTS_BY_NUMBERS):
            then = "RunHash"
        return f"{order} {way} NULLS LAST, {then}, Node"

    def _of_snapshot(
        self, asked: _Question, values: Mapping[str, Any], columns: str, is_live: bool
    ) -> tuple[list[dict[str, Any]], int]:
        """Rows of a page of live runs, in order, and how many runs there are. is_live: it has all of these columns."""
        assert self._snapshot is not None
        # to put all rows in order, for leaving one out of two, takes fifty times as long
        one_each = "" if self._snapshot.is_unique else "LIMIT 1 BY RunHash "
        rows, count = self._store.ask_counted(
            f"WITH {asked.named} SELECT {columns if is_live else ', '.join(_KEY)} FROM {self._snapshot.source} "
            f"WHERE {asked.where} ORDER BY {asked.order} "
            f"{one_each}LIMIT {asked.most} OFFSET {asked.most * asked.page}",
            **values,
            **self._own_values,
        )
        return rows if is_live else self._of_keys(rows, columns), count

    def _of_latest(self, asked: _Question, values: Mapping[str, Any], columns: str) -> tuple[list[dict[str, Any]], int]:
        """The same of all runs: first which and how many there are, by few columns; then all columns of these."""
        keys, count = self._first(asked, values, f"{LATEST.name} FINAL", _KEY, "Run")
        return self._of_keys(keys, columns), count

    def _table_of(self, sort: str, state: str, exact: Mapping[str, Any]) -> str:
        """The table that tells soonest which runs are chosen, and in which order."""
        given = {name for name, value in exact.items() if value}
        if not self.sees_others or given & _BEGINNINGS:
            return LATEST.name  # its key begins with a job's schedd
        table = _table(state, exact, sort)
        of_numbers = not given or (state == LIVES[0] and given <= _NUMBERED)
        return NUMBERS if table == LIVE.name and sort in _LIVE_SORTS and of_numbers else table

    def _where_of_numbers(self, words: str, state: str, exact: Mapping[str, Any]) -> str:
        """Which runs, as a condition on NUMBERS; its values are those of `chosen`.

        Texts by which runs are found are the same in all records of one that lives. So they are looked for in LIVE
        without FINAL, and what it does not have to compare takes half of the time.
        """
        where = self.chosen("", state, exact)[0] if state == LIVES[0] else self._live_states()[state]
        by_words, _ = self._by_words(words)
        if not by_words:
            return where
        found = f"WITH {self.own} AS IsMine SELECT RunHash FROM {LIVE.name} WHERE {' AND '.join(by_words)}"
        return f"{where} AND RunHash IN ({found})"

    def _live_states(self) -> dict[str, str]:
        """A word of LIVES -> the condition on NUMBERS."""
        running = states.running(self.now)
        return dict(zip(LIVES, (running, f"({running} AND IsSuspect)", f"({running} AND IsHanging)")))

    def _first(
        self, asked: _Question, values: Mapping[str, Any], table: str, key: Sequence[str], run: str
    ) -> tuple[list[dict[str, Any]], int]:
        """The first runs of a table by the columns `key`, and how many there are. run: the column that tells a run.

        A run of which two nodes tell is one, but there is next to none. To put all rows in order, for leaving one out,
        takes more than to find the first ones. So that is done where there are some.
        """
        counts = f"count() OVER () AS n, uniqExact({run}) OVER () AS runs"
        begin = f"WITH {asked.named} SELECT {', '.join(key)}, {counts} "
        of_these = f"FROM {table} WHERE {asked.where}"
        page = f"LIMIT {asked.most} OFFSET {asked.most * asked.page}"
        keys = self.ask(f"{begin}{of_these} ORDER BY {asked.order} {page}", **values)
        if keys and keys[0]["n"] != keys[0]["runs"]:
            keys = self.ask(f"{begin}{of_these} ORDER BY {asked.order} LIMIT 1 BY {run} {page}", **values)
        if keys or not asked.page:
            return keys, keys[0]["runs"] if keys else 0
        (beyond,) = self.ask(f"WITH {asked.named} SELECT uniqExact({run}) AS runs {of_these}", **values)
        return [], beyond["runs"]

    def _of_keys(self, rows: Sequence[Mapping[str, Any]], columns: str) -> list[dict[str, Any]]:
        """Rows of `latest` within his scope, in the order of those with its keys. columns: with Run and Node."""
        keys = [tuple(row[name] for name in _KEY) for row in rows]
        found = {
            (row["Run"], row["Node"]): row
            for some in _portions(keys)
            for row in self.ask(
                f"SELECT {columns} FROM latest FINAL PREWHERE ({', '.join(_KEY)}) IN (SELECT k.1, k.2, k.3 FROM "
                "(SELECT arrayJoin(JSONExtract({keys:String}, 'Array(Tuple(String, String, String))')) AS k)) "
                f"WHERE {self.scope}",
                keys=json.dumps(some),
            )
        }
        return [found[run, node] for _, run, node in keys if (run, node) in found]

    def _of_live(self, keys: Sequence[Mapping[str, Any]], columns: str) -> list[dict[str, Any]]:
        """Rows of LIVE within his scope, in the order of these keys, each with the Version that was found.

        Without FINAL, which here takes half as much again: the newest of each is chosen of the few that there are.
        Older ones, which merges have left, are not read: each of their granules takes as long.
        """
        found: dict[tuple[Any, ...], tuple[int, dict[str, Any]]] = {}
        more = "RunHash AS k1, Node AS k2, JobHash AS k3, Version AS k4"
        for begin in range(0, len(keys), _MOST_NUMBERS):
            some = keys[begin : begin + _MOST_NUMBERS]
            oldest: dict[int, int] = {}  # of a run that two nodes tell of
            for key in some:
                run, version = int(key["RunHash"]), int(key["Version"])
                oldest[run] = min(version, oldest.get(run, version))
            for row in self.ask(
                f"SELECT {columns}, {more} FROM {LIVE.name} PREWHERE RunHash IN {[*oldest]} AND "
                f"Version >= transform(RunHash, {[*oldest]}, {[*oldest.values()]}, toUInt64(0)) WHERE {self.scope}"
            ):
                *named, newer = (row.pop(f"k{number}") for number in range(1, 5))
                if newer >= found.get(tuple(named), (0,))[0]:
                    found[tuple(named)] = newer, row
        ordered = (found.get(tuple(key[name] for name in _LIVE_KEY)) for key in keys)
        return [one[1] for one in ordered if one]

    def _rank(self, state: str) -> str:
        """How ill a run is, the worst with the greatest number. state: of STATES, by which runs are asked for."""
        if state in LIVES:
            return f"toUInt8({SUSPECT})"
        states = self.states(self.oldest)
        return f"multiIf({states['failed']}, 3, Type = 'job', 0, {states['silent']}, 2, {SUSPECT}, 1, 0)"

    def _metric(self, path: str) -> str:
        """Of rows whose numbers he may see."""
        sees = self.sees(Seen.NUMBERS)
        return path if sees == "1" else f"if({sees}, {path}, NULL)"

    def pairs(
        self, metrics: tuple[str, str], words: str, state: str, exact: Mapping[str, Any], most: int, far: int
    ) -> tuple[int, list[dict[str, Any]]]:
        """Of how many of those runs both metrics are known; and `most` of them at random, always the same ones.

        The `far` greatest and least of each metric are always there. exact: as for `chosen`.
        """
        where, values = self.chosen(words, state, exact)
        table = _table(state, exact, *metrics)
        source, run_hash = (self.live, "RunHash") if table == LIVE.name else (f"{table} FINAL", "sipHash64(Run)")
        x, y = (f"toFloat64({self._metric(path)})" for path in metrics)

        def asked(chosen: str, names: str = "") -> list[dict[str, Any]]:
            return self.ask(
                f"SELECT {chosen} FROM (WITH {self.own} AS IsMine SELECT {names}{run_hash} AS Hash, "
                f"intHash64(Hash) AS Chance, ifNull({x}, nan) AS x, ifNull({y}, nan) AS y "
                f"FROM {source} WHERE {where} AND isFinite(x) AND isFinite(y))",
                **values,
            )

        # by numbers alone, which are sorted in a fifth of the time: the bounds; then who lies within them
        ends = (("x", "x", "<"), ("-x", "x", ">"), ("y", "y", "<"), ("-y", "y", ">"))
        bounds = [
            f"reinterpretAsUInt64(groupArraySorted({far})({by})[-1]) AS b{at}" for at, (by, _, _) in enumerate(ends)
        ]
        chance = f"groupArraySorted({most})(Chance)[-1] AS chance"
        (found,) = asked(f"uniqExact(Hash) AS n, {chance}, {', '.join(bounds)}")
        if not found["n"]:
            return 0, []
        exactly = [f"reinterpretAsFloat64(toUInt64({found[f'b{at}']}))" for at in range(len(ends))]
        exactly = [f"-{each}" if by.startswith("-") else each for each, (by, _, _) in zip(exactly, ends)]
        beyond = [f"{axis} {than} {each}" for each, (_, axis, than) in zip(exactly, ends)]
        one = "tuple(Run, JobId, x, y)"
        kept = [f"groupArrayIf(tuple(0, {one}), Chance <= {found['chance']} OR {' OR '.join(beyond)})"]
        # of many that are the same at a bound, no more than are wanted, and always the same ones
        kept += [
            f"groupArraySortedIf({far})(tuple(Chance, {one}), Chance > {found['chance']} AND {axis} = {each})"
            for each, (_, axis, _) in zip(exactly, ends)
        ]
        (points,) = asked(", ".join(f"{each} AS k{place}" for place, each in enumerate(kept)), "Run, JobId, ")
        rows = {one[0]: one for place in range(len(kept)) for _, one in points[f"k{place}"]}
        names = ("Run", "JobId", "x", "y")
        return found["n"], [dict(zip(names, one)) for one in rows.values()]

    def chosen(self, words: str, state: str, exact: Mapping[str, Any]) -> tuple[str, dict[str, str | float]]:
        """Which runs within his scope, as a condition in which IsMine is known, and the values of its parameters.

        words: each must be in the job's id, node, owner, executable or death, as far as he may see these.

        exact: the parameters of `filters`, and `mine`: his own jobs alone.
        """
        where, values = self.conditions(state if state in STATES else "running", exact)
        by_words, more = self._by_words(words)
        return " AND ".join([self.own if exact.get("mine") else self.scope, where, *by_words]), {**values, **more}

    def _by_words(self, words: str) -> tuple[list[str], dict[str, str]]:
        """The same of words alone, for records that have all texts."""
        conditions, values = list[str](), dict[str, str]()
        # of each job by itself: he finds his own by all that is known of them, and others' by what he may see
        seen = {
            "Owner": self.sees(Seen.OWNER), "Executable": self.sees(Seen.WORDS), "Death": self.sees(Seen.WORDS),
        }  # fmt: skip
        hidden = [name if sees == "1" else f"if({sees}, {name}, '')" for name, sees in seen.items()]
        text = ", ' ', ".join(["JobId", "GlobalJobId", "Node", *hidden])
        for number, word in enumerate(words.split()[:8]):
            values[f"word{number}"] = word[:100]
            conditions.append(f"positionCaseInsensitiveUTF8(concat({text}), {{word{number}:String}}) > 0")
        return conditions, values

    def runs(
        self, columns: Sequence[str], where: str, order: str, most: int, values: Mapping[str, Any]
    ) -> tuple[list[dict[str, Any]], str | None]:
        """The newest record of each run within his scope: `columns` of it, as far as he may see them, and its health.

        columns: names of the store's columns, from its table; where, order: conditions with the parameters `values`.
        At most `most` of them; if there are more, also the name of the last one.
        """
        asked = _Question(f"{self.own} AS IsMine", f"{self.scope} AND {where}", order, most + 1, 0)
        keys, _ = self._first(asked, values, f"{LATEST.name} FINAL", _KEY, "Run")
        rows = self._of_keys(keys[:most], f"{self._columns()}, {_as_named(columns)}")
        return self._with_columns(columns, rows), keys[most - 1]["Run"] if len(keys) > most else None

    def newest(self, run: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        """The same of one run: none or one.

        Without FINAL, which reads all columns of each part that may have the run. Only the newest row's are read.
        """
        found = self.of_run(
            run,
            lambda where, values: self.ask(
                f"SELECT {', '.join(_KEY)}, max(Version) AS Newest, argMax({self.scope}, Version) AS IsHis "
                f"FROM {LATEST.name} WHERE {where} GROUP BY {', '.join(_KEY)} HAVING IsHis "
                "ORDER BY argMax(RunNumber, Version) DESC LIMIT 1",
                **values,
            ),
        )
        if not found:
            return []
        job, name, node, version = (found[0][column] for column in (*_KEY, "Newest"))
        # a newer one may have come meanwhile, and the other be gone
        where = " AND ".join(f"{column} = {{key{place}:String}}" for place, column in enumerate(_KEY))
        where += f" AND Version >= {int(version)} AND {self.scope}"
        values = {"key0": job, "key1": name, "key2": node}
        named = f"{self._columns()}, {_as_named(columns)}"
        rows = self.ask(f"SELECT {named} FROM {LATEST.name} WHERE {where} ORDER BY Version DESC LIMIT 1", **values)
        return self._with_columns(columns, rows)

    def _with_columns(self, columns: Sequence[str], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Rows that were asked for with them (`_as_named`), as `runs` has them."""
        self._add_exit_codes(rows)
        found, heads = [], _heads(columns)
        for row in rows:
            kept = {name: row[f"c{place}"] for place, name in enumerate(heads)}
            chosen = {name: kept[name] if name in kept else _element(kept, name) for name in columns}
            shown = self._shown(row)
            always = {name: shown[name] for name in ("Run", "Health", "Why", "IsMine", "ExitCode")}
            found.append({**always, **visible(chosen, self.seen(shown), {})})
        return found

    def jobs_named(self, runs: Sequence[str]) -> list[dict[str, Any]]:
        """The newest record of each of these runs that were there of late, as far as he may see them."""
        named = "SELECT arrayJoin(JSONExtract({runs:String}, 'Array(String)')) AS Named"
        keys = [
            row
            for names in _portions(runs)
            for row in self.ask(
                f"SELECT {', '.join(_LIVE_ROW)} FROM {LIVE.name} FINAL "
                f"PREWHERE RunHash IN (SELECT sipHash64(Named) FROM ({named}))"
                f" WHERE Run IN ({named}) AND {self.scope} ORDER BY Run, RunNumber DESC LIMIT 1 BY Run",
                runs=json.dumps(names),
            )
        ]
        return [self._shown(row) for row in self._of_live(keys, self._columns())]

    def jobs_of_node(self, node: str, most: int) -> list[dict[str, Any]]:
        """What runs there, and he may see; those with most cores first."""
        these = f"WHERE {states.running(self.now)} AND Node = {{node:String}} AND {self.scope}"
        first = f"ORDER BY {_NUMBERS['Cores']} DESC NULLS LAST, RunHash LIMIT {most}"
        if self._snapshot:
            rows = self.ask(f"SELECT {self._columns()} FROM {self._snapshot.source} {these} {first}", node=node)
        else:
            keys = self.ask(f"SELECT {', '.join(_LIVE_ROW)} FROM {NUMBERS} {these} {first}", node=node)
            rows = self._of_live(keys, self._columns())
        return [self._shown(row) for row in rows]

    def job(self, run: str) -> dict[str, Any] | None:
        """One run; None if there is none, or he may not see it: nobody learns which."""
        rows = self.of_run(
            run,
            lambda where, values: self.ask(
                f"SELECT {self._columns(WORD_COLUMNS)} FROM latest FINAL "
                f"WHERE {where} AND {self.scope} ORDER BY RunNumber DESC LIMIT {MOST_NODES + 1}",
                **values,
            ),
        )
        if not rows:
            return None
        self._add_exit_codes(rows[:1])
        others = sorted({row["Node"] for row in rows} - {rows[0]["Node"]})
        return {**self._shown(rows[0]), "OtherNodes": others}

    def of_run(self, run: str, find: Callable[[str, Mapping[str, str]], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        """What `find` gives by a condition with its parameters: of one run's rows in `latest`.

        A run is called by its job and a number. So it is looked for among that job's rows, which lie together, and
        among all only if a node calls it otherwise.
        """
        job = run.rpartition("#")[0]
        rows = find("GlobalJobId = {job:String} AND Run = {run:String}", {"job": job, "run": run}) if job else []
        return rows or find("Run = {run:String}", {"run": run})

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

    def series(self, run: Mapping[str, Any], more: Sequence[str] = ()) -> dict[str, Any]:
        """The samples of a run that `job` gave, in order, by column; with the gaps between them.

        more: paths of metrics that it has too.
        """
        metrics = ("Cores", "ResidentBytes", "ReadBytes", "WriteBytes", "SentBytes", "ReceivedBytes", "Processes")
        named = [f"{_NUMBERS[name]} AS {name}" for name in metrics]
        picked = [f"{path} AS c{place}" for place, path in enumerate(more)]
        first = max(0, run["Sequence"] - POINTS + 1)
        found = self._samples(run, [*named, *picked], first)
        if first and len(found["Time"]) < POINTS / 2:  # its node's sink leaves some out
            found = self._samples(run, [*named, *picked], 0)
        times, numbers = found["Time"], found["Sequence"]
        losses = self._store.ask(
            "SELECT Time FROM events FINAL WHERE Kind = 'Loss' AND Node = {node:String} "
            f"AND Time > {{begin:Float64}} AND (Run = '' OR Run = {{run:String}}) ORDER BY Time LIMIT {POINTS}",
            node=run["Node"], run=run["Run"], begin=times[0] if times else self.now,
        )  # fmt: skip
        for place in reversed(range(len(times))):  # nothing lives any more: the job has no memory of which 0 is told
            if found["Processes"][place] != 0:
                break
            found["ResidentBytes"][place] = None
        return {
            "time": times,
            "sequence": numbers,
            **{name: found[name] for name in metrics},
            **{path: found[f"c{place}"] for place, path in enumerate(more)},
            "gaps": [vars(gap) for gap in gaps(numbers, times, [row["Time"] for row in losses])],
        }

    def _samples(self, run: Mapping[str, Any], columns: Sequence[str], first: int) -> dict[str, list[Any]]:
        """The newest POINTS samples of a run, in order, by column. first: those from this Sequence on."""
        return self._store.ask_columns(
            f"SELECT * FROM (SELECT Sequence, Time, {', '.join(columns)} FROM {OF_ONE_RUN} "
            f"AND Sequence >= {{first:UInt64}} ORDER BY Sequence DESC LIMIT 1 BY Sequence LIMIT {POINTS}) "
            "ORDER BY Sequence",
            first=first, job=run["GlobalJobId"], run=run["Run"], node=run["Node"], number=run["RunNumber"],
        )  # fmt: skip

    def siblings(self, run: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The runs of its cluster that he may see, of which MOST_SIBLINGS are asked for.

        First are those that are over as this is, or run as this does: `IsAlike`.
        """
        schedd, _, rest = run["GlobalJobId"].partition("#")
        cluster = f"{schedd}#{rest.partition('.')[0]}."
        return self._store.ask(
            "SELECT Run, JobId, Type = {type:String} AS IsAlike, UpdateTime - StartTime AS Seconds, "
            "Memory.ResidentPeakBytes AS PeakBytes, "
            "Cpu.Seconds AS CpuSeconds, Io.CallReadBytes AS ReadBytes, Io.CallWriteBytes AS WriteBytes "
            "FROM latest FINAL WHERE startsWith(GlobalJobId, {cluster:String}) "
            f"AND {self.scope} ORDER BY IsAlike DESC, UpdateTime DESC LIMIT {MOST_SIBLINGS}",
            cluster=cluster, type=run["Type"], **self._own_values,
        )  # fmt: skip

    # --- what he may see

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
