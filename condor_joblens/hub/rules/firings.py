"""Firings: an alarm of a rule, with its evidence, for as long as it lasts, and who was told.

An alarm that is seen again within an hour is the same firing. One that comes back later is another, of which mail goes
once in a day at most.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from condor_joblens.hub.pseudonyms import SHAPE, Pseudonyms, quarter_of
from condor_joblens.hub.rules.alarms import Alarm
from condor_joblens.hub.rules.kept import KEPT_SECONDS, Kept
from condor_joblens.hub.rules.settings import OUTSIDE

SAME_SECONDS = 3600.0
"""Within which an alarm that is seen again is the same firing."""

LASTS_SECONDS = 300.0
"""After it was seen last, an alarm is over: the hub looks once a minute."""

TOLD_SECONDS = 86400.0
"""In which one cause is told once to an address, and after which a firing that is over is told no more."""

MOST_OPEN = 1000
"""Firings of one look that are kept; of more, those of the least."""

_WORDS = ("cause", "title", "sentence", "own", "evidence")
"""In which an owner's name can stand; the last one is JSON."""

_COLUMNS = "id, rule, kind, cause, red, begun, seen, count, title, sentence, own, owner, schedd, evidence"


@dataclass(frozen=True)
class Firing:
    """One of them. Times are epoch seconds."""

    id: int
    rule: str
    kind: str
    cause: str
    red: bool
    begun: float
    seen: float
    count: int  # the greatest
    title: str  # without a word of a job's
    sentence: str
    own: str  # what its owner is told instead
    owner: str
    schedd: str
    evidence: dict[str, Any]

    def lasts(self, now: float) -> bool:
        """Whether it goes on."""
        return now - self.seen < LASTS_SECONDS


class Firings(Kept):
    """Those of all rules."""

    def see(self, rule: str, red: bool, found: Iterable[Alarm], now: float) -> None:
        """What a rule has found in one look."""
        those = sorted(found, key=lambda alarm: -alarm.count)[:MOST_OPEN]
        with self._connection() as connection:
            for alarm in those:
                row = connection.execute(
                    "SELECT id, count FROM firings WHERE rule = ? AND kind = ? AND cause = ? AND seen > ? "
                    "ORDER BY seen DESC LIMIT 1",
                    (rule, alarm.when, alarm.key, now - SAME_SECONDS),
                ).fetchone()
                if row is None:
                    self._begin(connection, rule, red, alarm, now)
                else:
                    self._go_on(connection, row, red, alarm, now)

    def _begin(self, connection: sqlite3.Connection, rule: str, red: bool, alarm: Alarm, now: float) -> None:
        values = (rule, alarm.when, alarm.key, red, now, now, alarm.count, alarm.title, alarm.sentence)
        more = (alarm.own, alarm.owner, alarm.schedd, json.dumps(alarm.evidence))
        names = _COLUMNS.partition(", ")[2]
        marks = ", ".join("?" for _ in (*values, *more))
        connection.execute(f"INSERT INTO firings ({names}) VALUES ({marks})", (*values, *more))

    def _go_on(self, connection: sqlite3.Connection, row: tuple[int, int], red: bool, alarm: Alarm, now: float) -> None:
        """The evidence is that of the worst moment."""
        number, count = row
        connection.execute("UPDATE firings SET seen = ?, red = ? WHERE id = ?", (now, red, number))
        if alarm.count > count:
            values = (alarm.count, alarm.title, alarm.sentence, alarm.own, json.dumps(alarm.evidence), number)
            connection.execute(
                "UPDATE firings SET count = ?, title = ?, sentence = ?, own = ?, evidence = ? WHERE id = ?", values
            )

    def looked(self, now: float, trouble: Iterable[str]) -> None:
        """The site was looked at. trouble: what could not be read, found or told, a line each. Old firings go."""
        with self._connection() as connection:
            connection.execute("INSERT OR REPLACE INTO looks VALUES (1, ?, ?)", (now, "\n".join(trouble)))
            gone = connection.execute("DELETE FROM firings WHERE seen < ?", (now - KEPT_SECONDS,)).rowcount
            if gone:
                connection.execute("DELETE FROM told WHERE firing NOT IN (SELECT id FROM firings)")

    def last_look(self) -> tuple[float, list[str]]:
        """When that was, and the trouble; 0: never."""
        with self._connection() as connection:
            row = connection.execute("SELECT time, trouble FROM looks").fetchone()
        return (row[0], row[1].splitlines()) if row else (0.0, [])

    def since(self, moment: float, most: int = 1000) -> list[Firing]:
        """Those that were seen then or later; the newest first."""
        with self._connection() as connection:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM firings WHERE seen >= ? ORDER BY begun DESC, id DESC LIMIT ?", (moment, most)
            ).fetchall()
        return [_firing(row) for row in rows]

    def untold(self, way: str, rule: str, address: str, now: float) -> list[Firing]:
        """Of a rule, what this address has not been told in this way, nor of the same cause within a day.

        way: mail or webhook.
        """
        told = "SELECT 1 FROM told WHERE firing = {} AND way = :way AND address = :address"
        same = "SELECT 1 FROM firings AS g WHERE g.kind = f.kind AND g.cause = f.cause"
        with self._connection() as connection:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM firings AS f WHERE rule = :rule AND seen > :since "
                f"AND NOT EXISTS ({told.format('f.id')}) "
                f"AND NOT EXISTS ({same} AND EXISTS ({told.format('g.id')} AND time > :since)) "
                "ORDER BY begun, id LIMIT 100",
                {"rule": rule, "since": now - TOLD_SECONDS, "way": way, "address": address},
            ).fetchall()
        return [_firing(row) for row in rows]

    def last_told(self, way: str, address: str) -> float:
        """When this address was told last; 0: never."""
        with self._connection() as connection:
            (moment,) = connection.execute(
                "SELECT max(time) FROM told WHERE way = ? AND address = ?", (way, address)
            ).fetchone()
        return float(moment or 0.0)

    def tell(self, way: str, address: str, firings: Iterable[Firing], now: float) -> None:
        """It has been told."""
        with self._connection() as connection:
            for firing in firings:
                connection.execute("INSERT OR IGNORE INTO told VALUES (?, ?, ?, ?)", (firing.id, way, address, now))

    def untell(self, way: str, address: str, firing: Firing) -> None:
        """It has not been told after all."""
        with self._connection() as connection:
            connection.execute(
                "DELETE FROM told WHERE firing = ? AND way = ? AND address = ?", (firing.id, way, address)
            )

    def told_since(self, way: str, address: str, moment: float) -> int:
        """How many were told there since then."""
        with self._connection() as connection:
            (count,) = connection.execute(
                "SELECT count(*) FROM told WHERE way = ? AND address = ? AND time > ?", (way, address, moment)
            ).fetchone()
        return int(count)

    def told(self, firings: Iterable[Firing]) -> dict[int, dict[str, int]]:
        """Of each: way -> to how many addresses."""
        found: dict[int, dict[str, int]] = {firing.id: {} for firing in firings}
        with self._connection() as connection:
            rows = connection.execute(
                "SELECT firing, way, count(*) FROM told WHERE firing >= ? GROUP BY firing, way",
                (min(found, default=0),),
            )
            for number, way, count in rows:
                if number in found:
                    found[number][way] = count
        return found

    def rename(self, pseudonyms: Pseudonyms, until: float) -> int:
        """Of firings that were seen last before then: their owners have pseudonyms, and who was told has no address.

        Posted alarms of that age go: they are over. Returns how many firings have another name now.
        """
        with self._connection() as connection:
            rows = connection.execute(
                f"SELECT id, begun, owner, schedd, {', '.join(_WORDS)} FROM firings WHERE owner != '' AND seen < ?",
                (until,),
            ).fetchall()
            named = [row for row in rows if not re.match(SHAPE, row[2])]
            for number, begun, owner, schedd, *texts in named:
                new = pseudonyms.of(owner, schedd, quarter_of(begun))
                word = re.compile(rf"(?<!\w){re.escape(owner)}(?!\w)")
                changed = [word.sub(new, text) for text in texts[:-1]]
                changed.append(json.dumps(_in_texts(json.loads(texts[-1]), word, new)))
                connection.execute(
                    f"UPDATE firings SET owner = ?, {', '.join(f'{name} = ?' for name in _WORDS)} WHERE id = ?",
                    (new, *changed, number),
                )
            connection.execute(
                "UPDATE told SET address = hex(randomblob(8)) WHERE address LIKE '%@%' "
                "AND firing IN (SELECT id FROM firings WHERE seen < ?)",
                (until,),
            )
            connection.execute("DELETE FROM posted WHERE time < ?", (until,))
        return len(named)

    def forget(self, person: str, jobs: Iterable[tuple[str, str]], addresses: Iterable[str] = ()) -> int:
        """Takes out the firings of these owners at these schedds, what the person posted, and his addresses.

        What he posted has firings, too, whose cause begins with his name.
        """
        gone = 0
        with self._connection() as connection:
            for owner, schedd in jobs:
                gone += connection.execute(
                    "DELETE FROM firings WHERE owner = ? AND schedd = ?", (owner, schedd)
                ).rowcount
            gone += connection.execute("DELETE FROM posted WHERE who = ?", (person,)).rowcount
            gone += connection.execute(
                "DELETE FROM firings WHERE kind = ? AND substr(cause, 1, ?) = ?",
                (OUTSIDE, len(person) + 1, f"{person}/"),
            ).rowcount
            connection.execute("DELETE FROM posts WHERE who = ?", (person,))
            for address in addresses:
                connection.execute("DELETE FROM told WHERE address = ?", (address,))
            connection.execute("DELETE FROM told WHERE firing NOT IN (SELECT id FROM firings)")
        with self._connection() as connection:
            connection.execute("VACUUM")
        return gone


def _in_texts(value: Any, word: re.Pattern[str], new: str) -> Any:
    """JSON in whose texts something else stands for a word. Its names and numbers stay, whatever an owner is called."""
    if isinstance(value, str):
        return word.sub(new, value)
    if isinstance(value, list):
        return [_in_texts(one, word, new) for one in value]
    return {name: _in_texts(one, word, new) for name, one in value.items()} if isinstance(value, dict) else value


def _firing(row: tuple[Any, ...]) -> Firing:
    values = dict(zip(_COLUMNS.split(", "), row))
    return Firing(**{**values, "red": bool(values["red"]), "evidence": json.loads(values["evidence"])})
