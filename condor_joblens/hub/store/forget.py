"""Takes the rows of one person's jobs out of the store, with what was made of them.

The engine keeps the text of what deletes rows. So a name does not stand in it: it has a salted digest of the owner.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from condor_joblens.hub.store import schema
from condor_joblens.hub.store.client import Store
from condor_joblens.hub.store.mutations import wait_until_done
from condor_joblens.hub.store.snapshots import drop, snapshots

_WITH_OWNER = (schema.SAMPLES, schema.JOBS, schema.LATEST, schema.LIVE, schema.LIVE_SERVERS)

_ROUNDS = 3
"""Of a job that still runs, rows come for ever."""


class Forgetter:
    """Of the jobs of these owners at these schedds. All methods raise JobLensError."""

    def __init__(self, store: Store, jobs: Iterable[tuple[str, str]]) -> None:
        self._store = store
        self._values: dict[str, str | int | float] = {}
        salt, parts = secrets.token_hex(16), []
        for number, (owner, schedd) in enumerate(jobs):
            digest = hashlib.sha256((salt + owner).encode()).hexdigest()
            self._values |= {f"owner{number}": digest, f"schedd{number}": schedd}
            parts.append((f"{{owner{number}:String}}", f"{{schedd{number}:String}}"))
        self._parts, self._salt = parts, salt

    def count(self) -> dict[str, int]:
        """Rows of him, by table; those that have some."""
        found = {}
        for table, where in self._where().items():
            (row,) = self._store.ask(f"SELECT count() AS n FROM {table} WHERE {where}", **self._values)
            if row["n"]:
                found[table] = int(row["n"])
        return found

    def runs(self, among: Sequence[str]) -> set[str]:
        """Which of these runs or jobs (names without the run's number) are his."""
        if not among:
            return set()
        ids = f"SELECT * FROM ({self._ids('GlobalJobId')}) UNION DISTINCT SELECT * FROM ({self._ids('Run')})"
        values = {f"name{number}": name for number, name in enumerate(among)}
        names = ", ".join(f"{{{name}:String}}" for name in values)
        rows = self._store.ask(
            f"SELECT name FROM (SELECT arrayJoin([{names}]) AS name) WHERE name IN ({ids})", **values, **self._values
        )
        return {row["name"] for row in rows}

    def forget(self) -> dict[str, int]:
        """Takes them out; how many went, by table. What others are found by goes last.

        Roll-ups that are being made meanwhile bring hours back, so it looks again.
        """
        gone: Counter[str] = Counter()
        for _ in range(_ROUNDS):
            found = self.count()
            if not found:
                break
            for table, where in self._where().items():
                if table in found:
                    self._store.change(f"ALTER TABLE {table} DELETE WHERE {where}", **self._values)
                    wait_until_done(self._store, table)
            gone.update(found)
        for name in snapshots(self._store):  # pages ask the tables then, until there is the next one
            drop(self._store, name)
        return dict(gone)

    def _where(self) -> dict[str, str]:
        """Table -> the condition. Events have no owner, and are found by their jobs' names."""
        mine = self._mine("Owner", "GlobalJobId")
        jobs, runs = self._ids("GlobalJobId"), self._ids("Run")
        whole = self._mine(*(f"JSONExtractString(Whole, '{name}')" for name in ("Owner", "GlobalJobId")))
        of_whole = f"({whole} OR JSONExtractString(Whole, 'GlobalJobId') IN ({jobs}))"
        found = {
            schema.EVENTS.name: f"GlobalJobId IN ({jobs})",
            schema.DOUBTED.name: of_whole,
            schema.OTHERS.name: of_whole,
            schema.FAILED_ENDS.name: f"Run IN ({runs})",
            schema.READINGS.name: f"Run IN ({runs})",
            schema.SERVER_READINGS.name: f"Run IN ({runs})",
            **{
                table.name: self._any(lambda owner, at: f"({self._is(owner, 'Owner')} AND Schedd = {at})")
                for table in (schema.HOURS, schema.LIVE_NUMBERS)
            },
        }
        return {**found, **{table.name: mine for table in (schema.JOB_EVENTS, schema.JOB_STATES, *_WITH_OWNER)}}

    def _ids(self, column: str) -> str:
        """The names of his jobs, or runs, as a question."""
        mine = self._mine("Owner", "GlobalJobId")
        return " UNION DISTINCT ".join(f"SELECT {column} FROM {table.name} WHERE {mine}" for table in _WITH_OWNER)

    def _mine(self, owner: str, job: str) -> str:
        return self._any(lambda own, at: f"({self._is(own, owner)} AND startsWith({job}, concat({at}, '#')))")

    def _is(self, digest: str, column: str) -> str:
        return f"lower(hex(SHA256(concat('{self._salt}', {column})))) = {digest}"

    def _any(self, condition: Callable[[str, str], str]) -> str:
        return f"({' OR '.join(condition(*part) for part in self._parts)})" if self._parts else "0"
