"""All that a hub keeps, copied to a folder while it runs, and a hub of such a folder.

The engine copies its tables itself (BACKUP and RESTORE), and SQLite its file. Sessions are not copied: whoever has
logged out since would be logged in again.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from condor_joblens import __version__
from condor_joblens.common.errors import JobLensError
from condor_joblens.hub import artifacts, pseudonyms
from condor_joblens.hub.database import FILE, Sqlite
from condor_joblens.hub.newer import refuse_newer
from condor_joblens.hub.postgres import COPIED, Postgres
from condor_joblens.hub.rules import kept
from condor_joblens.hub.store import migrations
from condor_joblens.hub.store.client import Store
from condor_joblens.hub.store.schema import (
    HOUR,
    JOBS,
    LATEST,
    READINGS,
    READINGS_OF_SAMPLES,
    SAMPLES,
    SERVER_READINGS,
    TOUCHED_HOURS,
    VERSION_OF_ROW,
    live_filled,
    server_readings,
)
from condor_joblens.hub.store.snapshots import snapshots

FORMAT = 1
"""Of the folder."""

ABOUT, STORE = "backup.json", "store"
"""A file that is written last, by which a whole backup is known; and the engine's own folder."""

_FILES = (FILE, kept.FILE)

AGAIN_SECONDS = 3600.0
"""Before the backup began: tables are copied one after the other, so what one made of another's rows is made again."""

_POLL = 0.2


def back_up(store: Store, folder: Path, target: Path, database: Postgres | None = None) -> None:
    """folder: the hub's. database: where its tokens and audit are, if not there.

    Raises JobLensError, OSError: nothing that is whole is there then.
    """
    if store.version() is None:
        raise JobLensError(f"{folder} has no store: name the hub's folder by --folder")
    try:
        target.mkdir(mode=0o700)
    except FileExistsError:
        raise JobLensError(f"{target} is there already: name a folder that is not") from None
    about = {"format": FORMAT, "hub": __version__, "store": store.version(), "begin": time.time()}
    passing = snapshots(store)
    but = f" EXCEPT TABLES {', '.join(passing)}" if passing else ""
    _run(store, f"BACKUP DATABASE default{but} TO File({_quoted(target / STORE)})")
    for name in _FILES:
        if name != FILE or database is None:
            _copy_sqlite(folder / name, target / name)
    if database is not None:
        _write_access(database.read_all(), target)
    copy_artifacts(folder, target)
    _copy_key(folder, target)
    os.sync()
    with (target / ABOUT).open("x", encoding="ascii") as file:
        json.dump({**about, "end": time.time()}, file)
        file.flush()
        os.fsync(file.fileno())


def about_of(source: Path) -> dict[str, Any]:
    """What a backup says of itself. Raises JobLensError: it is none that this hub can read."""
    try:
        found = json.loads((source / ABOUT).read_text(encoding="ascii"))
        kind, version, begin = int(found["format"]), int(found["store"]), float(found["begin"])
    except (OSError, ValueError, KeyError, TypeError):
        raise JobLensError(f"{source} is no whole backup: it has no {ABOUT} that can be read") from None
    refuse_newer(str(source), kind, FORMAT)
    refuse_newer(f"the store in {source}", version, migrations.VERSION)
    return {"begin": begin, "store": version}


def refuse_used(folder: Path) -> None:
    """Raises JobLensError, if a hub has kept something there."""
    for name in ("data", *_FILES, artifacts.FOLDER):
        if (folder / name).exists():
            raise JobLensError(f"{folder} has {name} already: restore into a folder that has nothing")


def restore(store: Store, folder: Path, source: Path, database: Postgres | None = None) -> None:
    """store: an empty one, on the hub's folder. database: for tokens and audit, with its tables.

    Raises JobLensError, OSError.
    """
    begin = about_of(source)["begin"]
    _run(store, f"RESTORE DATABASE default FROM File({_quoted(source / STORE)})")
    store.prepare()
    _make_again(store, begin - AGAIN_SECONDS)
    for name in _FILES:
        if name != FILE or database is None:
            _copy_sqlite(source / name, folder / name)
    if database is not None:
        database.write_all(_read_access(source))
    copy_artifacts(source, folder)
    _copy_key(source, folder)


def _make_again(store: Store, since: float) -> None:
    """What views and roll-ups make of rows: of all hours, and of runs that were there lately."""
    now = "toUnixTimestamp64Micro(now64(6)) / 1e6"
    store.change(f"INSERT INTO {TOUCHED_HOURS.name} SELECT DISTINCT {HOUR}, {now} FROM {JOBS.name}")
    columns = ", ".join(f"`{name}`" for name in SAMPLES.columns)
    for table in (SAMPLES, JOBS):
        rows = f"SELECT {columns}, {VERSION_OF_ROW} FROM {table.name} WHERE Time >= {since:.3f}"
        store.change(f"INSERT INTO {LATEST.name} ({columns}, Version) {rows}")
        store.change(live_filled(table.name, f"Time >= {since:.3f}"))
    store.change(f"INSERT INTO {READINGS.name} {READINGS_OF_SAMPLES} AND Time >= {since:.3f}")
    for table in (SAMPLES, JOBS):
        rows = f"{server_readings(table.name, table is JOBS)} AND Time >= {since:.3f}"
        store.change(f"INSERT INTO {SERVER_READINGS.name} {rows}")


def _run(store: Store, statement: str) -> None:
    """Beside what others ask: the engine works on it by itself. Raises JobLensError."""
    name = f"joblens-{secrets.token_hex(8)}"
    store.change(f"{statement} SETTINGS id = '{name}' ASYNC")
    while True:
        (row,) = store.ask("SELECT status, error FROM system.backups WHERE id = {name:String}", name=name)
        if row["status"] in ("BACKUP_CREATED", "RESTORED"):
            return
        if row["status"] not in ("CREATING_BACKUP", "RESTORING"):
            raise JobLensError(f"the store says: {str(row['error']).splitlines()[0][:300]}")
        time.sleep(_POLL)


def _copy_sqlite(source: Path, target: Path) -> None:
    """As SQLite copies a file that is written meanwhile. Raises JobLensError."""
    if not source.exists():
        return
    try:
        with contextlib.closing(sqlite3.connect(source)) as one, contextlib.closing(sqlite3.connect(target)) as other:
            one.backup(other)
    except sqlite3.Error as error:
        raise JobLensError(f"{source} can't be copied to {target}: {error}") from None


def _write_access(rows: dict[str, list[tuple[Any, ...]]], target: Path) -> None:
    """As a hub without PostgreSQL has them: one kind of backup serves both. Raises JobLensError."""
    with Sqlite(target).connection() as connection:
        for table, columns in COPIED.items():
            places = ", ".join("?" for _ in columns)
            for row in rows[table]:
                connection.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", row)


def _read_access(source: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Raises JobLensError."""
    if not (source / FILE).exists():
        return {table: [] for table in COPIED}
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(str(source / FILE))}?mode=ro", uri=True)) as connection:
            return {
                table: connection.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY id").fetchall()
                for table, columns in COPIED.items()
            }
    except sqlite3.Error as error:
        raise JobLensError(f"{source / FILE} can't be read: {error}") from None


def _copy_key(source: Path, target: Path) -> None:
    """Without it, nobody finds his rows under their pseudonyms. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        key = (source / pseudonyms.FILE).read_bytes()
        (target / pseudonyms.FILE).unlink(missing_ok=True)  # of a hub that has no rows yet
        descriptor = os.open(target / pseudonyms.FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(key)


def copy_artifacts(source: Path, target: Path) -> None:
    """From one hub's folder to another. Those that go away meanwhile, or are still coming, stay out. Raises OSError."""
    old, new = source / artifacts.FOLDER, target / artifacts.FOLDER
    if not (old / artifacts.INDEX).exists():
        return
    new.mkdir(mode=0o700)
    _copy_sqlite(old / artifacts.INDEX, new / artifacts.INDEX)
    with contextlib.closing(sqlite3.connect(new / artifacts.INDEX)) as connection, connection:
        for number, is_whole in connection.execute("SELECT id, whole FROM artifacts").fetchall():
            name = artifacts.file_of(number)
            if is_whole and (old / name).exists():
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(old / name, new / name)
            if not (new / name).exists():
                connection.execute("DELETE FROM artifacts WHERE id = ?", (number,))


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("\\", "\\\\").replace("'", "\\'") + "'"
