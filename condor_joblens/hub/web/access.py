"""Tokens of people, codes by which browsers log in, and who did what.

A token is kept as its digest, and is never taken away, only ended. Rows of the audit are added and nothing else: the
database refuses to change or delete one. `joblens-hub forget` alone writes another name for a person's.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.common.tokens import digest
from condor_joblens.hub.database import Connection, Database, Sqlite

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

CODE_SECONDS = 300.0
MOST_CODES = 8
"""Of one person; of more, the oldest is over."""

LOOK_SECONDS = 3600.0
"""The same look is noted once in this time."""

LOGIN_SECONDS = 12 * 3600.0
"""And the same log-in without a session."""

_PREFIX = "joblens_"
_MOST_TEXT = 400
_MOST_NOTED = 10_000


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
    """All of it. Any thread and several processes may use it. All methods raise JobLensError if it can't be used."""

    def __init__(
        self,
        kept: Path | Database,
        clock: Callable[[], float] = time.time,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """kept: the hub's folder, or another database. say: is given each new row of the audit, for a log elsewhere."""
        self._database = Sqlite(kept) if isinstance(kept, Path) else kept
        self._clock, self._say = clock, say
        self._noted: dict[tuple[str, str, str], float] = {}
        self._lock = threading.Lock()

    def add(self, person: str, scopes: frozenset[str], days: int, by: str, note: str = "") -> tuple[Token, str]:
        """A new token, and its secret, which is kept nowhere. by: who makes it."""
        if not scopes <= set(SCOPES) or scopes <= {OWN}:
            raise JobLensError(
                f"the scope is {JOBS}, {SUMMARY} or {ALARM}, or some of them and {OWN}, with commas between"
            )
        if not 1 <= days <= MOST_DAYS:
            raise JobLensError(f"a token is good for 1 to {MOST_DAYS} days")
        now, secret = self._clock(), _PREFIX + secrets.token_urlsafe(32)
        with self._database.connection() as connection:
            (living,) = connection.execute(
                "SELECT count(*) FROM tokens WHERE person = ? AND ended IS NULL AND until > ?", (person, now)
            ).fetchone()
            if living >= MOST_TOKENS:
                raise JobLensError(f"{printable(person)} has {living} tokens: end one first")
            values = (digest(secret), person, ",".join(sorted(scopes)), now, now + 86400 * days, printable(note, 200))
            place = connection.insert(
                "INSERT INTO tokens (digest, person, scopes, made, until, note) VALUES (?, ?, ?, ?, ?, ?)", values
            )
            scope = ",".join(sorted(scopes))
            self._add_row(connection, by, "token made", f"{place} of {person}, {scope}, for {days} days")
        return next(token for token in self.tokens() if token.id == place), secret

    def end(self, number: int, by: str) -> Token:
        """From now on nobody is admitted by it."""
        with self._database.connection() as connection:
            done = connection.execute(
                "UPDATE tokens SET ended = ? WHERE id = ? AND ended IS NULL", (self._clock(), number)
            )
            if done.rowcount != 1:
                raise JobLensError(f"there is no token {number}, or it has been ended before")
            self._add_row(connection, by, "token ended", str(number))
        return next(token for token in self.tokens() if token.id == number)

    def tokens(self) -> list[Token]:
        """All that were ever made, in the order in which they were."""
        with self._database.connection() as connection:
            rows = connection.execute(f"{_TOKENS} ORDER BY id").fetchall()
        return [_token(row) for row in rows]

    def by_secret(self, secret: str) -> Token | None:
        """None: there is no such token, or it is over."""
        with self._database.connection() as connection:
            row = connection.execute(f"{_TOKENS} WHERE digest = ?", (digest(secret),)).fetchone()
        found = _token(row) if row else None
        return None if found is None or found.is_over(self._clock()) else found

    # --- codes

    def new_code(self, login: str) -> str:
        """By which a browser can log in so, once, for a few minutes, at any process of this hub."""
        code, now = secrets.token_urlsafe(24), self._clock()
        with self._database.connection() as connection:
            connection.execute("DELETE FROM codes WHERE until <= ?", (now,))
            his = connection.execute("SELECT digest FROM codes WHERE login = ? ORDER BY until", (login,)).fetchall()
            for (old,) in his[: max(len(his) - MOST_CODES + 1, 0)]:
                connection.execute("DELETE FROM codes WHERE digest = ?", (old,))
            values = (digest(code), login, now + CODE_SECONDS)
            connection.execute("INSERT INTO codes (digest, login, until) VALUES (?, ?, ?)", values)
        return code

    def redeem(self, code: str) -> str:
        """Whose the code was, which is over now; empty: nobody's."""
        with self._database.connection() as connection:
            values = (digest(code),)
            row = connection.execute("SELECT login, until FROM codes WHERE digest = ?", values).fetchone()
            is_ours = row and connection.execute("DELETE FROM codes WHERE digest = ?", values).rowcount == 1
        return str(row[0]) if is_ours and self._clock() < row[1] else ""

    # --- the audit

    def note(self, who: str, what: str, about: str, once_in: float = 0.0) -> None:
        """A row: who did what. once_in: seconds in which the same is noted once by this process."""
        now, same = self._clock(), (who, what, about.partition("?")[0] if about.startswith("/api/") else about)
        with self._lock:
            if once_in and now - self._noted.get(same, float("-inf")) < once_in:
                return
        with self._database.connection() as connection:
            self._add_row(connection, who, what, about)
        with self._lock:
            self._noted[same] = now
            while len(self._noted) > _MOST_NOTED:
                del self._noted[next(iter(self._noted))]

    def audit(self, since: float = 0.0) -> Iterator[Row]:
        """Its rows, the oldest first. since: epoch seconds."""
        with self._database.connection() as connection:
            rows = connection.execute("SELECT time, who, what, about FROM audit WHERE time >= ? ORDER BY id", (since,))
            yield from (Row(*row) for row in rows)

    def about(self) -> list[str]:
        """What the audit's rows are about, each once."""
        with self._database.connection() as connection:
            return [text for (text,) in connection.execute("SELECT DISTINCT about FROM audit")]

    def forget(
        self, person: str, anew: Callable[[str], str], by: str, said: Callable[[int, int], str]
    ) -> tuple[int, int]:
        """Takes a person out: his tokens, and his name in the audit, whose rows stay. How many of both there were.

        anew: what stands in the audit -> what stands there from now on. said: of these numbers, the row about it.
        """
        with self._database.connection() as connection:
            self._database.begin_rewrite(connection)
            tokens = connection.execute("DELETE FROM tokens WHERE person = ?", (person,)).rowcount
            changed = 0
            for number, who, about in connection.execute("SELECT id, who, about FROM audit").fetchall():
                if (now := (anew(who), anew(about))) != (who, about):
                    connection.execute("UPDATE audit SET who = ?, about = ? WHERE id = ?", (*now, number))
                    changed += 1
            self._database.end_rewrite(connection)
            self._add_row(connection, by, "person forgotten", said(tokens, changed))
        self._database.purge()
        return tokens, changed

    def _add_row(self, connection: Connection, who: str, what: str, about: str) -> None:
        values = (self._clock(), *(printable(text, _MOST_TEXT) for text in (who, what, about)))
        connection.execute("INSERT INTO audit (time, who, what, about) VALUES (?, ?, ?, ?)", values)
        self._say(f"audit: {values[1]}: {values[2]}: {values[3]}")


_TOKENS = "SELECT id, person, scopes, made, until, ended, note FROM tokens"


def _token(row: tuple[int, str, str, float, float, float | None, str]) -> Token:
    number, person, scopes, made, until, ended, note = row
    return Token(number, person, frozenset(scopes.split(",")), made, until, ended, note)
