"""The file in which firings and posted alarms are kept: SQLite, in the hub's folder."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.newer import refuse_newer

FILE = "rules.sqlite3"
VERSION = 1

KEPT_SECONDS = 400 * 86400.0

_WAIT = 10.0
_TABLES = """
CREATE TABLE IF NOT EXISTS firings (
    id INTEGER PRIMARY KEY AUTOINCREMENT, rule TEXT NOT NULL, kind TEXT NOT NULL, cause TEXT NOT NULL,
    red INTEGER NOT NULL, begun REAL NOT NULL, seen REAL NOT NULL, count INTEGER NOT NULL, title TEXT NOT NULL,
    sentence TEXT NOT NULL, own TEXT NOT NULL, owner TEXT NOT NULL, schedd TEXT NOT NULL, evidence TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS by_cause ON firings (kind, cause, rule, seen);
CREATE INDEX IF NOT EXISTS by_seen ON firings (seen);
CREATE TABLE IF NOT EXISTS told (
    firing INTEGER NOT NULL, way TEXT NOT NULL, address TEXT NOT NULL, time REAL NOT NULL,
    PRIMARY KEY (firing, way, address));
CREATE TABLE IF NOT EXISTS looks (id INTEGER PRIMARY KEY, time REAL NOT NULL, trouble TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS posted (
    who TEXT NOT NULL, cause TEXT NOT NULL, title TEXT NOT NULL, sentence TEXT NOT NULL, count INTEGER NOT NULL,
    evidence TEXT NOT NULL, time REAL NOT NULL, PRIMARY KEY (who, cause));
CREATE TABLE IF NOT EXISTS posts (who TEXT NOT NULL, time REAL NOT NULL);
"""


class Kept:
    """The file. Several processes may use it. All methods raise JobLensError if it can't be used."""

    def __init__(self, folder: Path) -> None:
        """folder: the hub's."""
        self._path = folder / FILE
        with self._connection() as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            refuse_newer(str(self._path), version, VERSION)
            connection.executescript(f"{_TABLES} PRAGMA user_version = {VERSION};")

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """What is done with it is kept whole, or not at all."""
        try:
            with contextlib.closing(sqlite3.connect(self._path, timeout=_WAIT)) as connection, connection:
                connection.execute("PRAGMA secure_delete = ON")
                yield connection
        except sqlite3.Error as error:
            raise JobLensError(f"{self._path} can't be used: {error}") from None
