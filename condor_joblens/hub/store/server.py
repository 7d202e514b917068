"""chDB as a server: ClickHouse's engine in this process, behind ClickHouse's own protocol over HTTP.

It listens on a Unix socket in a folder that is its user's alone: whoever can open that is the hub. One process owns a
chDB folder, and a lock says so. Queries go one after the other.
"""

from __future__ import annotations

import contextlib
import email
import email.policy
import fcntl
import http.server
import os
import re
import signal
import socket
import socketserver
import sys
import tempfile
import threading
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.newer import refuse_newer
from condor_joblens.hub.store import migrations

MOST_BYTES = 512 << 20
"""Of a body."""

_WHERE = "/dev/shm"
"""Bodies lie there until the engine has read them: memory."""

_PACKED_BYTES = 8 << 20
"""On disk, of a part from which on zstd packs it. Inserts are smaller and are merged soon: lz4 is quicker."""

_SETTINGS = f"""<clickhouse>
<backups><allowed_path>/</allowed_path></backups>
<compression><case>
  <min_part_size>{_PACKED_BYTES}</min_part_size><min_part_size_ratio>0</min_part_size_ratio>
  <method>zstd</method><level>1</level>
</case></compression>
</clickhouse>
"""
"""BACKUP and RESTORE may name any folder: who can say such a thing to us is our own user anyway."""


@dataclass(frozen=True)
class GivenTable:
    """Rows that come with a question: https://clickhouse.com/docs/engines/table-engines/special/external-data."""

    name: str
    structure: str  # columns and their types
    form: str  # of the rows


class Engine:
    """chDB on a folder. Raises JobLensError where another process has it."""

    def __init__(self, folder: Path) -> None:
        import chdb

        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock_file = (folder / "lock").open("w")
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise JobLensError(f"{folder} belongs to a store that runs: stop that one, or name another") from None
        self._errors: tuple[type[Exception], ...] = (RuntimeError, chdb.ChdbError)
        (folder / "store.xml").write_text(_SETTINGS)
        self._connection = chdb.connect(f"{folder / 'data'}?max_threads=2&config-file={folder / 'store.xml'}")
        self._one = threading.Lock()

    def query(self, text: str, settings: dict[str, str], parameters: dict[str, str], body: bytes) -> bytes:
        """The answer. Raises JobLensError with what the engine says."""
        with contextlib.ExitStack() as stack:
            if body:
                head, _, form = text.rpartition(" FORMAT ")
                file = stack.enter_context(tempfile.NamedTemporaryFile(dir=_WHERE, prefix="joblens-"))
                file.write(body)
                file.flush()
                chosen = ", ".join(f"{name} = {_quoted(value)}" for name, value in settings.items())
                text = f"{head} FROM INFILE {_quoted(file.name)} SETTINGS {chosen} FORMAT {form}"
                settings = {}
            elif settings and " FORMAT " in text:
                head, _, form = text.rpartition(" FORMAT ")
                chosen = ", ".join(f"{name} = {_quoted(value)}" for name, value in settings.items())
                text = f"{head} SETTINGS {chosen} FORMAT {form}"
            with self._one:
                return self._answer(text, parameters)

    def query_of(
        self, given: GivenTable, text: str, settings: dict[str, str], parameters: dict[str, str], body: bytes
    ) -> bytes:
        """The answer to a question about rows that came with it, in `body`. Raises JobLensError.

        They are a table of memory for as long as it takes. So the question itself may be one that only reads.
        """
        with self._one, tempfile.NamedTemporaryFile(dir=_WHERE, prefix="joblens-") as file:
            file.write(body)
            file.flush()
            self._answer(f"CREATE TEMPORARY TABLE {given.name} ({given.structure})")
            try:
                if body:
                    self._answer(f"INSERT INTO {given.name} FROM INFILE {_quoted(file.name)} FORMAT {given.form}")
                head, _, form = text.rpartition(" FORMAT ")
                chosen = ", ".join(f"{name} = {_quoted(value)}" for name, value in settings.items())
                return self._answer(f"{head}{' SETTINGS ' if chosen else ''}{chosen} FORMAT {form}", parameters)
            finally:
                self._answer(f"DROP TEMPORARY TABLE {given.name}")

    def _answer(self, text: str, parameters: dict[str, str] | None = None) -> bytes:
        """One at a time. Raises JobLensError with what the engine says."""
        try:
            found: Any = self._connection.query(text, "TabSeparated", params=parameters or None)
            return bytes(found.bytes() or b"")
        except self._errors as error:
            raise JobLensError(str(error)) from None

    def refuse_newer(self) -> None:
        """Raises Newer, if a newer hub has made what it keeps."""
        if self.query(f"EXISTS TABLE {migrations.TABLE}", {}, {}, b"").strip() == b"1":
            found = int(self.query(migrations.ASK, {}, {}, b"").strip() or b"0")
            refuse_newer("the store", found, migrations.VERSION)

    def close(self) -> None:
        """Writes what is to be written."""
        with self._one:
            self._connection.close()


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_NO_CODE = re.compile(r"'(?:[^'\\]|\\.|'')*'|--[^\n]*|/\*.*?\*/|[`\"]", re.S)
"""Texts, comments, and the quotes of names."""

_LEAVES = re.compile(
    r"\b(outfile|settings|backup|restore)\b|\b(file|python|executable|url|s3|hdfs|remote(?:secure)?)\w*\s*\(", re.I
)
"""What `readonly` lets through: the function file(), INTO OUTFILE, BACKUP, settings behind ours. And some that it
refuses."""


def leaves_the_tables(query: str) -> str:
    """The first word of it that would read or write something other than the store's tables; empty: there is none."""
    found = _LEAVES.search(_NO_CODE.sub(" ", query))
    return found[0].strip("( ") if found else ""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine: Engine

    def do_POST(self) -> None:
        """One query: in the address, its data in the body."""
        words = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query, keep_blank_values=True))
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            return self._answer(413, b"a body without its length, or too long")
        body = self.rfile.read(int(length))
        query = words.pop("query", "")
        if not query:  # as people type it: the body is the query
            query, body = body.decode("utf-8", "replace").strip(), b""
        parameters = {name[6:]: value for name, value in words.items() if name.startswith("param_")}
        settings = {name: value for name, value in words.items() if not name.startswith("param_")}
        if settings.get("readonly") == "1" and (word := leaves_the_tables(query)):
            return self._answer(400, f"a question that only reads has no {word}".encode())
        if not all(name.isidentifier() and name.isascii() for name in settings):
            return self._answer(400, b"a setting has a strange name")
        try:
            if (kind := self.headers.get("Content-Type", "")).startswith("multipart/form-data"):
                given, rows = _given(kind, settings, body)
                self._answer(200, self.engine.query_of(given, query, settings, parameters, rows))
            else:
                self._answer(200, self.engine.query(query, settings, parameters, body))
        except JobLensError as error:
            self._answer(_status(str(error)), str(error).encode())
        return None

    def do_GET(self) -> None:
        """Whether it is there: ClickHouse's /ping."""
        self._answer(200, b"Ok.\n")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing."""


def _given(kind: str, words: dict[str, str], body: bytes) -> tuple[GivenTable, bytes]:
    """The one table of a question, and its rows; takes its words out of `words`. Raises JobLensError.

    kind: the body's Content-Type, with what its parts have between them.
    """
    whole = email.message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + body, policy=email.policy.HTTP)
    parts = list(whole.iter_parts())
    name = parts[0].get_param("name", "", "content-disposition") if len(parts) == 1 else ""
    if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
        raise JobLensError("a question comes with one table, which has a plain name")
    structure, form = words.pop(f"{name}_structure", ""), words.pop(f"{name}_format", "TabSeparated")
    if not structure or leaves_the_tables(structure) or not form.isalnum():
        raise JobLensError(f"the table {name} has no structure, or a strange format")
    rows = parts[0].get_payload(decode=True)
    return GivenTable(name, structure, form), rows if isinstance(rows, bytes) else b""


def _status(said: str) -> int:
    """As ClickHouse answers: 500 for what may pass, 400 for what is wrong with the query or its data."""
    passing = ("MEMORY_LIMIT", "TOO_MANY_PARTS", "NOT_ENOUGH_SPACE", "TIMEOUT_EXCEEDED", "CANNOT_WRITE", "CANNOT_OPEN")
    return 500 if any(word in said for word in passing) else 400


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked has gone away."""


def run(folder: Path) -> None:
    """Serves until SIGTERM. Raises JobLensError; Newer, if a newer hub has made what is in the folder."""
    os.umask(0o077)
    engine = Engine(folder)
    engine.refuse_newer()
    path = folder / "store.sock"
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    handler = type("Handler", (_Handler,), {"engine": engine})
    with _Server(str(path), handler) as server:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
        print(f"joblens-hub: the store listens at {path}", file=sys.stderr, flush=True)
        server.serve_forever()
    engine.close()


def answers(folder: Path) -> bool:
    """Whether it does."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(folder / "store.sock"))
        except OSError:
            return False
        return True
