"""Artifacts of nodes: profiles, hang reports and traces, each a file in a folder, and what they are about in SQLite.

All together have so much room. If there is none left, the person who has most loses his oldest. Whose one is, its node
says. So if nodes have more than their share of the room, one goes of the node that has most.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.newer import refuse_newer
from condor_joblens.hub.store.schema import DAYS

FOLDER, INDEX = "artifacts", "index.sqlite3"
"""In the hub's folder, and in that one."""

VERSION = 1
"""Of the index."""

MOST_CHUNK = 512 << 10
MOST_LENGTH = 8 << 20
"""Bytes of one; a node makes none that is larger than half of it."""

MOST_KEPT = 100_000
LEAST_SHARES = 4
"""One takes at most this part of all the room."""

NODE_SHARES = 8
"""Of the nodes with more than this part of all the room, by bytes or by number, the greatest makes room."""

_WAIT = 10.0
_NAME = re.compile(r"[1-9][0-9]{0,19}\.[a-z][a-z0-9_]{0,31}")
_TEXTS = {"ContentType": 100, "ContentEncoding": 20, "Run": 300, "Owner": 200}
"""What a node says of one, and how long that may be."""

_TABLES = """
CREATE TABLE IF NOT EXISTS artifacts (
    id INTEGER PRIMARY KEY AUTOINCREMENT, node TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL,
    run TEXT NOT NULL, owner TEXT NOT NULL, schedd TEXT NOT NULL, type TEXT NOT NULL, encoding TEXT NOT NULL,
    begun REAL NOT NULL, ended REAL NOT NULL, length INTEGER NOT NULL, sha256 TEXT NOT NULL, have INTEGER NOT NULL,
    whole INTEGER NOT NULL, came REAL NOT NULL, UNIQUE (node, name));
CREATE INDEX IF NOT EXISTS of_run ON artifacts (run);
"""
_COLUMNS = "id, node, kind, run, owner, schedd, type, encoding, begun, ended, length"


class Refused(JobLensError):
    """It will never be taken. `status`: of HTTP."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True)
class Kept:
    """One that is there whole."""

    id: int
    node: str
    kind: str
    run: str
    owner: str
    schedd: str
    type: str
    encoding: str
    begun: float  # epoch seconds, as its node says
    ended: float
    length: int


class Artifacts:
    """The folder. Any thread may ask; one process alone puts in. All methods raise JobLensError if it can't be used."""

    def __init__(self, folder: Path, most_bytes: int, clock: Callable[[], float] = time.time) -> None:
        """folder: the hub's. most_bytes: of all together."""
        self._folder, self._most, self._clock = folder / FOLDER, most_bytes, clock
        self._lock = threading.Lock()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._connection() as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            refuse_newer(str(self._folder / INDEX), version, VERSION)
            connection.executescript(f"{_TABLES} PRAGMA user_version = {VERSION};")

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """What is done with it is kept whole, or not at all."""
        path = self._folder / INDEX
        try:
            with contextlib.closing(sqlite3.connect(path, timeout=_WAIT)) as connection, connection:
                connection.execute("PRAGMA secure_delete = ON")
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise JobLensError(f"{self._folder} can't be used: {error}") from None

    # --- in

    def put(self, node: str, head: Mapping[str, Any], chunk: bytes) -> tuple[int, bool]:
        """A chunk of one: how much of it is there now, and whether that is all. Raises Refused.

        A chunk of another place than the one that is wanted changes nothing.
        """
        about = _checked(head, chunk)
        with self._lock, self._connection() as connection:
            row = connection.execute(
                "SELECT id, length, sha256, have, whole FROM artifacts WHERE node = ? AND name = ?",
                (node, about["name"]),
            ).fetchone()
            if row is None:
                self._make_room(connection, node, about)
                number = self._begin(connection, node, about)
                row = (number, about["length"], about["sha256"], 0, 0)
            number, length, digest, have, is_whole = row
            if (length, digest) != (about["length"], about["sha256"]):
                raise Refused(422, "another artifact has this name")
            if is_whole or about["offset"] != have:
                return have, bool(is_whole)
            have = self._append(number, have, chunk)
            if have == length:
                self._finish(connection, number, digest)
            connection.execute(
                "UPDATE artifacts SET have = ?, whole = ?, came = ? WHERE id = ?",
                (have, have == length, self._clock(), number),
            )
        if have == length and not self.of_ids([number]):
            raise Refused(422, "its content is not what its checksum says")
        return have, have == length

    def _begin(self, connection: sqlite3.Connection, node: str, about: Mapping[str, Any]) -> int:
        names = ("name", "kind", "run", "owner", "schedd", "type", "encoding", "begun", "ended", "length", "sha256")
        values = (node, *(about[name] for name in names), self._clock())
        return int(
            connection.execute(
                f"INSERT INTO artifacts (node, {', '.join(names)}, have, whole, came) "
                f"VALUES (?, {', '.join('?' for _ in names)}, 0, 0, ?)",
                values,
            ).lastrowid
            or 0
        )

    def _append(self, number: int, have: int, chunk: bytes) -> int:
        """What a hub that was killed has written beyond `have` is written again. Raises OSError."""
        descriptor = os.open(self._path(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, have)
            place = have
            while place < have + len(chunk):
                place += os.pwrite(descriptor, chunk[place - have :], place)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return place

    def _finish(self, connection: sqlite3.Connection, number: int, digest: str) -> None:
        """One whose content is wrong is taken away again."""
        if hashlib.sha256(self._path(number).read_bytes()).hexdigest() != digest:
            self._delete(connection, [number])

    def _make_room(self, connection: sqlite3.Connection, node: str, about: Mapping[str, Any]) -> None:
        """Raises Refused."""
        length = about["length"]
        if length > self._most // LEAST_SHARES:
            raise Refused(413, f"it has more than a part in {LEAST_SHARES} of all the room")
        old = connection.execute("SELECT id FROM artifacts WHERE came < ?", (self._clock() - 86400 * DAYS,)).fetchall()
        self._delete(connection, [number for (number,) in old])
        while True:
            count, total = connection.execute("SELECT count(*), coalesce(sum(length), 0) FROM artifacts").fetchone()
            if count < MOST_KEPT and total + length <= self._most:
                return
            self._delete(connection, [self._to_go(connection, node, about)])

    def _to_go(self, connection: sqlite3.Connection, node: str, about: Mapping[str, Any]) -> int:
        """Which one makes room for this one of a node: parts of all the room are compared, with the new one in them."""
        part = "max(sum(length) * 1.0 / :room, count(*) * 1.0 / :most)"
        values = {
            **{"room": max(1, self._most), "most": MOST_KEPT, "node": node},
            **{"owner": about["owner"], "schedd": about["schedd"]},
            "new": max(about["length"] / max(1, self._most), 1 / MOST_KEPT),
        }
        ((greatest, share),) = connection.execute(
            f"SELECT node, {part} + (node = :node) * :new AS share FROM artifacts GROUP BY node "
            "ORDER BY share DESC LIMIT 1",
            values,
        ).fetchall()
        where = "node = :greatest" if share > 1 / NODE_SHARES else "1"
        ((oldest,),) = connection.execute(
            f"SELECT min(id) FROM artifacts WHERE {where} GROUP BY owner, schedd "
            f"ORDER BY {part} + (owner = :owner AND schedd = :schedd) * :new DESC LIMIT 1",
            {**values, "greatest": greatest},
        ).fetchall()
        return int(oldest)

    def _delete(self, connection: sqlite3.Connection, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._path(number).unlink(missing_ok=True)
            connection.execute("DELETE FROM artifacts WHERE id = ?", (number,))

    # --- out

    def of_run(self, run: str, nodes: Iterable[str]) -> list[Kept]:
        """Those of a run, as these nodes have sent them, the oldest first."""
        with self._connection() as connection:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM artifacts WHERE run = ? AND whole ORDER BY begun, id", (run,)
            ).fetchall()
        those = frozenset(nodes)
        return [kept for kept in (Kept(*row) for row in rows) if kept.node in those]

    def of_ids(self, numbers: Iterable[int]) -> list[Kept]:
        """Those that are there whole."""
        with self._connection() as connection:
            rows = [
                connection.execute(f"SELECT {_COLUMNS} FROM artifacts WHERE id = ? AND whole", (number,)).fetchone()
                for number in numbers
            ]
        return [Kept(*row) for row in rows if row]

    def content(self, number: int) -> bytes:
        """Its bytes as the node sent them."""
        try:
            return self._path(number).read_bytes()
        except OSError as error:
            raise JobLensError(f"artifact {number} can't be read: {error.strerror}") from None

    # --- care

    def forget(self, jobs: Iterable[tuple[str, str]], is_to_be_done: bool = True) -> int:
        """Takes out those of these owners at these schedds; how many there were."""
        with self._lock, self._connection() as connection:
            found = [
                number
                for owner, schedd in jobs
                for (number,) in connection.execute(
                    "SELECT id FROM artifacts WHERE owner = ? AND schedd = ?", (owner, schedd)
                ).fetchall()
            ]
            if is_to_be_done:
                self._delete(connection, found)
        if found and is_to_be_done:
            with self._connection() as connection:
                connection.execute("VACUUM")
        return len(found)

    def _path(self, number: int) -> Path:
        return self._folder / file_of(number)


def file_of(number: int) -> str:
    """The name of its file."""
    return f"{number}.artifact"


def _checked(head: Mapping[str, Any], chunk: bytes) -> dict[str, Any]:
    """What a node says of one, by our names. Raises Refused."""
    try:
        texts = {name: head[name] for name in _TEXTS}
        numbers = {name: float(head[name]) for name in ("BeginTime", "EndTime")}
        name, kind, digest = head["Artifact"], head["ArtifactKind"], head["Sha256"]
        length, offset = int(head["Length"]), int(head["Offset"])
        is_right = (
            isinstance(name, str)
            and _NAME.fullmatch(name) is not None
            and name.endswith(f".{kind}")
            and re.fullmatch(r"[0-9a-f]{64}", digest) is not None
            and all(isinstance(text, str) and len(text) <= _TEXTS[name] for name, text in texts.items())
            and all(math.isfinite(number) and 0 <= number < 1e11 for number in numbers.values())
            and 0 <= offset <= length
            and offset + len(chunk) <= length
            and (chunk or not length)
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        is_right = False
    if not is_right or not texts["Run"]:
        raise Refused(422, "the head of the artifact makes no sense")
    if length > MOST_LENGTH or len(chunk) > MOST_CHUNK:
        raise Refused(413, f"an artifact has {MOST_LENGTH} bytes at most, and a chunk {MOST_CHUNK}")
    run = texts["Run"]
    return {
        **{"name": name, "kind": kind, "run": run, "owner": texts["Owner"], "schedd": run.partition("#")[0]},
        **{"type": texts["ContentType"], "encoding": texts["ContentEncoding"]},
        **{"begun": numbers["BeginTime"], "ended": numbers["EndTime"]},
        **{"length": length, "sha256": digest, "offset": offset},
    }
