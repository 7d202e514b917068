"""Tokens of people, and who did what: SQLite, in the hub's folder.

A token is kept as its digest, and is never taken away, only ended. Rows of the audit are added and nothing else:
triggers refuse to change or delete one. Whoever is the hub's user on its machine can take the triggers away, and so
does `joblens-hub forget`, which writes another name for a person's.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.common.tokens import digest
from condor_joblens.hub.newer import refuse_newer

VERSION = 1
"""Of the file's tables: SQLite's user_version. Those of the first hubs say 0, and are the same."""

FILE = "access.sqlite3"
"""In the hub's folder."""

JOBS, SUMMARY, ALARM, OWN = "jobs", "summary", "alarm", "own"
SCOPES = {
    JOBS: "runs, their series, and sums",
    SUMMARY: "sums alone",
    ALARM: "to post alarms, which rules tell of",
    OWN: "with one of these: his own jobs alone, whatever his role",
}
"""What a token may be for; all may ask for the schema."""

MOST_DAYS = 366
MOST_TOKENS = 32
"""Of one person, that are not over."""

LOOK_SECONDS = 3600.0
"""The same look is noted once in this time."""

LOGIN_SECONDS = 12 * 3600.0
"""And the same log-in without a session."""

_PREFIX = "joblens_"
_WAIT = 10.0  # seconds for another process that writes
_MOST_TEXT = 400
_MOST_NOTED = 10_000

_TABLES = """
CREATE TABLE IF NOT EXISTS tokens (
    id INTEGER PRIMARY KEY AUTOINCREMENT, digest TEXT NOT NULL UNIQUE, person TEXT NOT NULL, scopes TEXT NOT NULL,
    made REAL NOT NULL, until REAL NOT NULL, ended REAL, note TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, who TEXT NOT NULL, what TEXT NOT NULL,
    about TEXT NOT NULL);
"""
_STAYS = "BEGIN SELECT RAISE(ABORT, 'rows of the audit stay as they are'); END"
_TRIGGERS = {
    "audit_is_not_changed": f"BEFORE UPDATE ON audit {_STAYS}",
    "audit_is_not_deleted": f"BEFORE DELETE ON audit {_STAYS}",
    "audit_is_not_replaced": f"BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE id = NEW.id) {_STAYS}",
}
"""A row that INSERT OR REPLACE takes away fires no trigger of DELETE: https://www.sqlite.org/lang_conflict.html"""


@dataclass(frozen=True)
class Token:
    """One that was made, without what is secret of it."""

    id: int
    person: str
    scopes: frozenset[str]
    made: float  # epoch seconds
    until: float
    ended: float | None
    note: str

    def is_over(self, now: float) -> bool:
        """By its end, or because somebody ended it."""
        return self.ended is not None or now >= self.until


@dataclass(frozen=True)
class Row:
    """Of the audit."""

    time: float
    who: str
    what: str
    about: str


class Access:
    """The file. Any thread and several processes may use it. All methods raise JobLensError if it can't be used."""

    def __init__(
        self, folder: Path, clock: Callable[[], float] = time.time, say: Callable[[str], None] = lambda line: None
    ) -> None:
        """say: is given each new row of the audit, for a log elsewhere."""
        self._path, self._clock, self._say = folder / FILE, clock, say
        self._noted: dict[tuple[str, str, str], float] = {}
        self._lock = threading.Lock()
        with self._connection() as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            refuse_newer(str(self._path), version, VERSION)
            connection.executescript(f"{_TABLES} PRAGMA user_version = {VERSION};")
            _make_triggers(connection)

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """What is done with it is kept whole, or not at all."""
        try:
            with contextlib.closing(sqlite3.connect(self._path, timeout=_WAIT)) as connection, connection:
                yield connection
        except sqlite3.Error as error:
            raise JobLensError(f"{self._path} can't be used: {error}") from None

    def add(self, person: str, scopes: frozenset[str], days: int, by: str, note: str = "") -> tuple[Token, str]:
        """A new token, and its secret, which is kept nowhere. by: who makes it."""
        if not scopes <= set(SCOPES) or scopes <= {OWN}:
            raise JobLensError(
                f"the scope is {JOBS}, {SUMMARY} or {ALARM}, or some of them and {OWN}, with commas between"
            )
        if not 1 <= days <= MOST_DAYS:
            raise JobLensError(f"a token is good for 1 to {MOST_DAYS} days")
        now, secret = self._clock(), _PREFIX + secrets.token_urlsafe(32)
        with self._connection() as connection:
            (living,) = connection.execute(
                "SELECT count(*) FROM tokens WHERE person = ? AND ended IS NULL AND until > ?", (person, now)
            ).fetchone()
            if living >= MOST_TOKENS:
                raise JobLensError(f"{printable(person)} has {living} tokens: end one first")
            values = (digest(secret), person, ",".join(sorted(scopes)), now, now + 86400 * days, printable(note, 200))
            place = connection.execute(
                "INSERT INTO tokens (digest, person, scopes, made, until, note) VALUES (?, ?, ?, ?, ?, ?)", values
            ).lastrowid
            scope = ",".join(sorted(scopes))
            self._add_row(connection, by, "token made", f"{place} of {person}, {scope}, for {days} days")
        return next(token for token in self.tokens() if token.id == place), secret

    def end(self, number: int, by: str) -> Token:
        """From now on nobody is admitted by it."""
        with self._connection() as connection:
            done = connection.execute(
                "UPDATE tokens SET ended = ? WHERE id = ? AND ended IS NULL", (self._clock(), number)
            )
            if done.rowcount != 1:
                raise JobLensError(f"there is no token {number}, or it has been ended before")
            self._add_row(connection, by, "token ended", str(number))
        return next(token for token in self.tokens() if token.id == number)

    def tokens(self) -> list[Token]:
        """All that were ever made, in the order in which they were."""
        with self._connection() as connection:
            rows = connection.execute(f"{_TOKENS} ORDER BY id").fetchall()
        return [_token(row) for row in rows]

    def by_secret(self, secret: str) -> Token | None:
        """None: there is no such token, or it is over."""
        with self._connection() as connection:
            row = connection.execute(f"{_TOKENS} WHERE digest = ?", (digest(secret),)).fetchone()
        found = _token(row) if row else None
        return None if found is None or found.is_over(self._clock()) else found

    # --- the audit

    def note(self, who: str, what: str, about: str, once_in: float = 0.0) -> None:
        """A row: who did what. once_in: seconds in which the same is noted once by this process."""
        now, same = self._clock(), (who, what, about.partition("?")[0] if about.startswith("/api/") else about)
        with self._lock:
            if once_in and now - self._noted.get(same, float("-inf")) < once_in:
                return
        with self._connection() as connection:
            self._add_row(connection, who, what, about)
        with self._lock:
            self._noted[same] = now
            while len(self._noted) > _MOST_NOTED:
                del self._noted[next(iter(self._noted))]

    def audit(self, since: float = 0.0) -> Iterator[Row]:
        """Its rows, the oldest first. since: epoch seconds."""
        with self._connection() as connection:
            rows = connection.execute("SELECT time, who, what, about FROM audit WHERE time >= ? ORDER BY id", (since,))
            yield from (Row(*row) for row in rows)

    def about(self) -> list[str]:
        """What the audit's rows are about, each once."""
        with self._connection() as connection:
            return [text for (text,) in connection.execute("SELECT DISTINCT about FROM audit")]

    def forget(
        self, person: str, anew: Callable[[str], str], by: str, said: Callable[[int, int], str]
    ) -> tuple[int, int]:
        """Takes a person out: his tokens, and his name in the audit, whose rows stay. How many of both there were.

        anew: what stands in the audit -> what stands there from now on. said: of these numbers, the row about it.
        """
        with self._connection() as connection:
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("BEGIN IMMEDIATE")
            tokens = connection.execute("DELETE FROM tokens WHERE person = ?", (person,)).rowcount
            for name in _TRIGGERS:
                connection.execute(f"DROP TRIGGER {name}")
            changed = 0
            for number, who, about in connection.execute("SELECT id, who, about FROM audit").fetchall():
                if (now := (anew(who), anew(about))) != (who, about):
                    connection.execute("UPDATE audit SET who = ?, about = ? WHERE id = ?", (*now, number))
                    changed += 1
            _make_triggers(connection)
            self._add_row(connection, by, "person forgotten", said(tokens, changed))
        with self._connection() as connection:
            connection.execute("VACUUM")
        return tokens, changed

    def _add_row(self, connection: sqlite3.Connection, who: str, what: str, about: str) -> None:
        values = (self._clock(), *(printable(text, _MOST_TEXT) for text in (who, what, about)))
        connection.execute("INSERT INTO audit (time, who, what, about) VALUES (?, ?, ?, ?)", values)
        self._say(f"audit: {values[1]}: {values[2]}: {values[3]}")


def _make_triggers(connection: sqlite3.Connection) -> None:
    for name, what in _TRIGGERS.items():
        connection.execute(f"CREATE TRIGGER IF NOT EXISTS {name} {what}")


_TOKENS = "SELECT id, person, scopes, made, until, ended, note FROM tokens"


def _token(row: tuple[int, str, str, float, float, float | None, str]) -> Token:
    number, person, scopes, made, until, ended, note = row
    return Token(number, person, frozenset(scopes.split(",")), made, until, ended, note)
