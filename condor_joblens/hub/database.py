"""Where tokens, codes and the audit are kept: SQLite in the hub's folder, or PostgreSQL at an address.

Statements are SQL that both take, with a ? for each value.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.newer import refuse_newer


class Connection(Protocol):
    """What is done with it is kept whole, or not at all."""

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """A cursor: fetchone, fetchall, rowcount."""

    def insert(self, statement: str, values: Sequence[Any]) -> int:
        """A row; its id."""


class Database(Protocol):
    """Any thread and several processes may use it. All methods raise JobLensError if it can't be used."""

    def connection(self) -> AbstractContextManager[Connection]:
        """A new one."""

    def begin_rewrite(self, connection: Connection) -> None:
        """From here on nobody else writes, and rows of the audit can be changed by whoever may."""

    def end_rewrite(self, connection: Connection) -> None:
        """They can't be any more."""

    def purge(self) -> None:
        """What was deleted is in no file any more."""


VERSION = 1
"""Of the tables: SQLite's user_version. Those of the first hubs say 0, and are the same."""

FILE = "access.sqlite3"
"""In the hub's folder."""

_WAIT = 10.0  # seconds for another process that writes

_TABLES = """
CREATE TABLE IF NOT EXISTS tokens (
    id INTEGER PRIMARY KEY AUTOINCREMENT, digest TEXT NOT NULL UNIQUE, person TEXT NOT NULL, scopes TEXT NOT NULL,
    made REAL NOT NULL, until REAL NOT NULL, ended REAL, note TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, who TEXT NOT NULL, what TEXT NOT NULL,
    about TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS codes (digest TEXT PRIMARY KEY, login TEXT NOT NULL, until REAL NOT NULL);
"""
_STAYS = "BEGIN SELECT RAISE(ABORT, 'rows of the audit stay as they are'); END"
_TRIGGERS = {
    "audit_is_not_changed": f"BEFORE UPDATE ON audit {_STAYS}",
    "audit_is_not_deleted": f"BEFORE DELETE ON audit {_STAYS}",
    "audit_is_not_replaced": f"BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE id = NEW.id) {_STAYS}",
}
"""A row that INSERT OR REPLACE takes away fires no trigger of DELETE: https://www.sqlite.org/lang_conflict.html"""


class SqliteConnection:
    """As sqlite3 has it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        return self._connection.execute(statement, values)

    def insert(self, statement: str, values: Sequence[Any]) -> int:
        return int(self._connection.execute(statement, values).lastrowid or 0)


class Sqlite:
    """A file, with triggers that keep rows of the audit; whoever may write it can take the triggers away."""

    def __init__(self, folder: Path) -> None:
        """Makes the tables. Raises JobLensError."""
        self._path = folder / FILE
        with self._opened() as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            refuse_newer(str(self._path), version, VERSION)
            connection.executescript(f"{_TABLES} PRAGMA user_version = {VERSION};")
            _make_triggers(connection)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            with contextlib.closing(sqlite3.connect(self._path, timeout=_WAIT)) as connection, connection:
                yield connection
        except sqlite3.Error as error:
            raise JobLensError(f"{self._path} can't be used: {error}") from None

    @contextlib.contextmanager
    def connection(self) -> Iterator[SqliteConnection]:
        with self._opened() as connection:
            yield SqliteConnection(connection)

    def begin_rewrite(self, connection: Connection) -> None:
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("BEGIN IMMEDIATE")
        for name in _TRIGGERS:
            connection.execute(f"DROP TRIGGER {name}")

    def end_rewrite(self, connection: Connection) -> None:
        _make_triggers(connection)

    def purge(self) -> None:
        with self._opened() as connection:
            connection.execute("VACUUM")


def _make_triggers(connection: Any) -> None:
    for name, what in _TRIGGERS.items():
        connection.execute(f"CREATE TRIGGER IF NOT EXISTS {name} {what}")
