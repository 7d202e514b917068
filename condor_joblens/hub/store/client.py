"""Asks the store, and inserts into it: ClickHouse's protocol over HTTP, also over a Unix socket.

Values never stand in a query's text: they are its parameters, `{job:String}`.
"""

from __future__ import annotations

import base64
import copy
import http.client
import math
import os
import re
import secrets
import socket
import ssl
import sys
import time
import urllib.parse
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.hub.newer import Newer, refuse_newer
from condor_joblens.hub.store import migrations
from condor_joblens.hub.store.schema import TABLES, Table, views
from condor_joblens.hub.strict_json import decoded

SECONDS = 60.0
"""How long the store may take for one question."""

_QUIET_SECONDS = 5.0
"""For which nothing is said of a store that starts beside us."""

MOST_BYTES = 256 << 20
"""Of an answer."""

MOMENT = "moment"
"""The type of a column of epoch seconds, of which `converted` makes times."""

_INSERT = {
    "input_format_skip_unknown_fields": "1",
    "input_format_null_as_default": "1",
    "input_format_json_ignore_unknown_keys_in_named_tuple": "1",
    "input_format_json_defaults_for_missing_elements_in_named_tuple": "1",
    "input_format_json_read_arrays_as_strings": "1",
    "input_format_json_read_objects_as_strings": "1",
    # rows of one insert with one key are left for merges and FINAL, as those of two are: to look for them takes half
    # of an insert's CPU
    "optimize_on_insert": "0",
    # it spreads the CPU that parsing takes, and takes some more, and memory
    "input_format_parallel_parsing": "0",
}
_LEAVE_OUT = {"input_format_allow_errors_num": "1000000", "input_format_allow_errors_ratio": "1"}
_BOUNDS = {"max_execution_time": "30", "max_result_rows": "1000000", "max_memory_usage": str(2 << 30)}


_NO_COLUMN = "nothing"
"""The column of a file that has none: there has to be one."""


class StoreGone(JobLensError):
    """It does not answer, or says that it can't now. What was inserted may be there or not."""


class StoreRefused(JobLensError):
    """It answers that it can't take this, or can't understand it: asking again is no use."""


class StoreTooMuch(StoreRefused):
    """The question takes more time, memory or rows than it may."""


class StoreNoTable(StoreGone):
    """What is asked has no such table now: a passing one is gone."""


class StoreUnfit(StoreGone):
    """It answers, and a hub can't use it until somebody has changed something: who asks, what he may, or what it is."""


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: str, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Store:
    """Any thread may ask; each question has a connection of its own."""

    def __init__(self, address: str, password_file: str = "") -> None:
        """address: unix:/path of our own server's socket, or https://user@host:port of ClickHouse."""
        self._address = address
        self._bounds = dict(_BOUNDS)
        self._end = math.inf  # by the monotonic clock
        self._login = ""
        refuse_strange(address)
        if not address.startswith("unix:"):
            user = urllib.parse.urlsplit(address).username or "default"
            password = ""
            if password_file:
                with open(password_file, encoding="utf-8") as file:
                    password = file.read().rstrip("\r\n")
            self._login = base64.b64encode(f"{user}:{password}".encode()).decode()

    def begin(self) -> None:
        """At an address, once, before anything else: that a hub can use it. Raises StoreUnfit, StoreRefused, Newer.

        One that does not answer now is waited for by those who ask.
        """
        try:
            try:
                version = printable(str(self.ask("SELECT version() AS Version")[0]["Version"]))
            except (ValueError, LookupError, TypeError):
                raise StoreUnfit(f"what answers at {self._address} is no ClickHouse: look at the address") from None
            print(f"joblens-hub: the store at {self._address} is ClickHouse {version}", file=sys.stderr, flush=True)
            self.prepare()
        except StoreUnfit:
            raise
        except StoreGone as error:
            print(f"joblens-hub: {error}", file=sys.stderr, flush=True)

    def bounded(self, seconds: int, result_bytes: int) -> Store:
        """The same one, for questions that may take less."""
        found = copy.copy(self)
        found._bounds = {**self._bounds, "max_execution_time": str(seconds), "max_result_bytes": str(result_bytes)}
        return found

    def until(self, end: float) -> Store:
        """The same one, for the questions of one answer: all of them end by then. end: by the monotonic clock."""
        found = copy.copy(self)
        found._end = end
        return found

    def _left(self) -> float:
        """Seconds for the next question. Raises StoreGone."""
        left = min(SECONDS, self._end - time.monotonic())
        if left <= 0:
            raise StoreGone("the store has taken too long for one answer: is it busy?")
        return left

    def ask(self, query: str, **parameters: str | int | float) -> list[dict[str, Any]]:
        """Rows, each by column. Raises StoreGone, StoreRefused."""
        return [
            decoded(line, True) for line in self._asked(f"{query} FORMAT JSONEachRow", parameters).split(b"\n")[:-1]
        ]

    def ask_columns(self, query: str, **parameters: str | int | float) -> dict[str, list[Any]]:
        """The same by column, each with its values of all rows. Raises StoreGone, StoreRefused."""
        found: dict[str, list[Any]] = decoded(self._asked(f"{query} FORMAT JSONColumns", parameters), True)
        return found

    def ask_counted(self, query: str, **parameters: str | int | float) -> tuple[list[dict[str, Any]], int]:
        """The same of a query that ends with LIMIT; and how many rows it would have without that."""
        found = decoded(self._asked(f"{query} FORMAT JSON", parameters, {"exact_rows_before_limit": "1"}), True)
        return found["data"], int(found.get("rows_before_limit_at_least", len(found["data"])))

    def _asked(
        self, query: str, parameters: Mapping[str, str | int | float], more: Mapping[str, str] | None = None
    ) -> bytes:
        given = {f"param_{name}": _escaped(value) for name, value in parameters.items()}
        seconds = math.ceil(min(self._left(), float(self._bounds["max_execution_time"])))
        bounds = {**self._bounds, "max_execution_time": str(seconds)}
        return self._post({"query": query, **bounds, **given, **_ASKING, **(more or {})}, b"")

    def converted(self, columns: Mapping[str, str], lines: Iterable[bytes], form: str) -> bytes:
        """Rows in another format of the store's, such as Parquet; its tables have no part in it.

        columns: types by name, each may be absent; MOMENT is one of them. lines: rows as JSON. Raises StoreGone,
        StoreRefused.
        """
        structure = ", ".join(
            f"{_identifier(name)} Nullable({'Float64' if kind == MOMENT else kind})" for name, kind in columns.items()
        )
        chosen = ", ".join(
            f"fromUnixTimestamp64Milli(toInt64(round(1000 * {_identifier(name)})), 'UTC') AS {_identifier(name)}"
            if kind == MOMENT
            else _identifier(name)
            for name, kind in columns.items()
        )
        mark = secrets.token_hex(16)
        head = f'--{mark}\r\nContent-Disposition: form-data; name="given"; filename="given"\r\n\r\n'
        body = b"".join((head.encode(), b"\n".join(lines), f"\r\n--{mark}--\r\n".encode()))
        words = {
            "query": f"SELECT {chosen or _NO_COLUMN} FROM given FORMAT {form}",
            **{"given_structure": structure or f"{_NO_COLUMN} Nullable(String)", "given_format": "JSONEachRow"},
            **self._bounds,
            "readonly": "1",
        }
        return self._post(words, body, {"Content-Type": f"multipart/form-data; boundary={mark}"})

    def insert(
        self, table: Table, lines: Iterable[bytes], leave_out: bool = False, names: Collection[str] | None = None
    ) -> None:
        """Rows as lines of JSON; they are kept when it returns. Raises StoreGone, StoreRefused.

        leave_out: rows that the store can't take are left out, and nobody says which; else they are an error.

        names: of all that lines have, if that is known. Columns that none has are not looked for in each line.
        """
        more = _LEAVE_OUT if leave_out else {}
        chosen = [f"`{name}`" for name in table.columns if names is not None and name in names]
        into = f"{table.name} ({', '.join(chosen)})" if chosen else table.name
        self._post({"query": f"INSERT INTO {into} FORMAT JSONEachRow", **_INSERT, **more}, b"\n".join(lines))

    def change(self, statement: str, **parameters: str | int | float) -> None:
        """What changes rows by itself. Raises StoreGone, StoreRefused."""
        given = {f"param_{name}": _escaped(value) for name, value in parameters.items()}
        self._post({"query": statement, **given}, b"")

    def version(self) -> int | None:
        """Of what it keeps (migrations.py); None: it has no tables yet. Raises StoreGone, StoreRefused."""
        there = self.tables()
        if not there:
            return None
        rows = self.ask(migrations.ASK) if migrations.TABLE in there else []
        return int(rows[0]["Version"]) if rows else 0

    def tables(self) -> set[str]:
        """Their names. Raises StoreGone, StoreRefused."""
        return {
            str(row["name"]) for row in self.ask("SELECT name FROM system.tables WHERE database = currentDatabase()")
        }

    def prepare(self) -> int | None:
        """Makes the tables, or makes those of an older hub as ours are; which version they were, None: there were none.

        Raises StoreGone, StoreRefused, Newer.
        """
        found = self.version()
        refuse_newer("the store", found or 0, migrations.VERSION)
        for statement in migrations.statements(found, self.tables()):
            self._post({"query": statement}, b"")
        self._make_tables()
        for statement in migrations.filling(found):
            self._post({"query": statement}, b"")
        if found != migrations.VERSION:
            for statement in migrations.DONE:
                self._post({"query": statement}, b"")
        return found

    def _make_tables(self) -> None:
        """And adds columns that a newer metric table has."""
        is_changed = False
        try:
            known: set[str] = {row["name"] for row in self.ask(_SETTINGS)}
        except StoreUnfit:  # a server may keep that table from us
            known = set()
        for table in TABLES:
            self._post({"query": table.statement(known)}, b"")
            self._make_lean(table, known)
            there = {row["name"]: row["type"] for row in self.ask(_COLUMNS, table=table.name)}
            for name, kind in table.columns.items():
                if name in there and (not kind.startswith("Tuple(") or _plain(there[name]) == _plain(kind)):
                    continue
                how = "MODIFY" if name in there else "ADD"
                self._post({"query": f"ALTER TABLE {table.name} {how} COLUMN `{name}` {kind}"}, b"")
                is_changed = True
        for statement in views(anew=is_changed):
            self._post({"query": statement}, b"")

    def _make_lean(self, table: Table, known: Collection[str]) -> None:
        """A table that is there already, as it would be made now."""
        (row,) = self.ask(_ENGINE, table=table.name)
        left = [
            f"{name} = {value}"
            for name, value in table.lean.items()
            if name in known and f" {name} = " not in row["engine_full"]
        ]
        if left:
            self._post({"query": f"ALTER TABLE {table.name} MODIFY SETTING {', '.join(left)}"}, b"")

    def wait_until_prepared(self) -> None:
        """For ever, if need be: the store may start after who asks it. After some seconds it is said why.

        Raises Newer.
        """
        said = ""
        begin = time.monotonic()
        while True:
            try:
                self.prepare()
                return
            except Newer:
                raise
            except JobLensError as error:
                if str(error) != said and time.monotonic() > begin + _QUIET_SECONDS:
                    said = str(error)
                    print(f"joblens-hub: {said}", file=sys.stderr, flush=True)
                time.sleep(0.5)

    def _connection(self) -> tuple[http.client.HTTPConnection, str]:
        kind, _, path = self._address.partition(":")
        if kind == "unix":
            return _Unix(path, self._left()), "/"
        url = urllib.parse.urlsplit(self._address)
        if url.scheme == "https":
            made: http.client.HTTPConnection = http.client.HTTPSConnection(
                url.hostname or "", url.port or 8443, timeout=self._left(), context=ssl.create_default_context()
            )
        else:
            made = http.client.HTTPConnection(url.hostname or "", url.port or 8123, timeout=self._left())
        return made, url.path or "/"

    def _post(self, words: Mapping[str, str], body: bytes, more: Mapping[str, str] | None = None) -> bytes:
        """more: headers."""
        connection, path = self._connection()
        head = {**({"Authorization": f"Basic {self._login}"} if self._login else {}), **(more or {})}
        try:
            connection.request("POST", f"{path}?{urllib.parse.urlencode(words)}", body, head)
            answer = connection.getresponse()
            content = answer.read(MOST_BYTES + 1)
        except ssl.SSLCertVerificationError as error:
            raise StoreUnfit(f"the certificate of {self._address} is not good: {error.verify_message}") from None
        except (OSError, http.client.HTTPException) as error:
            raise StoreGone(f"the store at {self._address} does not answer ({error}): is it running?") from None
        finally:
            connection.close()
        if len(content) > MOST_BYTES:
            raise StoreTooMuch("the store's answer is too long: ask for less")
        if answer.status == 200:
            return content
        whole = content[:100_000].decode("utf-8", "replace")
        raise _error_of(whole)(f"the store answers {answer.status}: {printable(whole, 300)}")


_ABOUT_DATA = ("CANNOT_PARSE", "INCORRECT_DATA", "TYPE_MISMATCH", "ILLEGAL_TYPE", "VALUE_IS_OUT_OF_RANGE")
"""ClickHouse's names of errors that come again whenever the same rows come. All others may pass."""

_TOO_MUCH = ("TIMEOUT_EXCEEDED", "TOO_MANY_ROWS", "TOO_MANY_ROWS_OR_BYTES", "MEMORY_LIMIT_EXCEEDED")
_UNFIT = ("AUTHENTICATION_FAILED", "REQUIRED_PASSWORD", "WRONG_PASSWORD", "UNKNOWN_USER", "ACCESS_DENIED", "READONLY",
          "UNKNOWN_DATABASE", "UNKNOWN_SETTING", "UNKNOWN_FUNCTION", "SYNTAX_ERROR", "NOT_IMPLEMENTED")  # fmt: skip
"""Of whom asks and what he may; and of a server that is too old for what we say."""

_NO_TABLE = ("UNKNOWN_TABLE", "FUNCTION_THROW_IF_VALUE_IS_NON_ZERO")
"""Of a snapshot (hub/web/live_snapshots.py)."""

_NAME = re.compile(r"\(([A-Z][A-Z_0-9]+)\)")


def _error_of(said: str) -> type[JobLensError]:
    """ClickHouse says the name of an error last, in parentheses; behind it, its version at most."""
    names = _NAME.findall(said)
    if names and names[-1] in _TOO_MUCH:
        return StoreTooMuch
    if names and names[-1] in _UNFIT:
        return StoreUnfit
    if names and names[-1] in _NO_TABLE:
        return StoreNoTable
    return StoreRefused if any(word in said for word in _ABOUT_DATA) else StoreGone


_ASKING = {
    "output_format_json_quote_64bit_integers": "0",
    "output_format_json_quote_denormals": "0",
    "readonly": "1",  # what asks changes nothing, and reaches no file, address or other server by table functions
}
_SETTINGS = "SELECT name FROM system.merge_tree_settings"
_ENGINE = "SELECT engine_full FROM system.tables WHERE database = currentDatabase() AND name = {table:String}"
_COLUMNS = "SELECT name, type FROM system.columns WHERE database = currentDatabase() AND table = {table:String}"


def _plain(kind: str) -> str:
    return kind.replace("`", "").replace(" ", "").replace("\n", "")


def _identifier(name: str) -> str:
    r"""As SQL has it: of any characters, but for ` and \."""
    return "`{}`".format(name.replace("\\", "_").replace("`", "_"))


def _escaped(value: str | int | float) -> str:
    """As the protocol has parameters: https://clickhouse.com/docs/interfaces/http, tab-separated escaping."""
    if not isinstance(value, str):
        return str(value)
    for strange, escaped in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"), ("\0", "\\0")):
        value = value.replace(strange, escaped)
    return value


def refuse_strange(address: str) -> None:
    """Raises JobLensError, if this is no address of a store, or a password that goes there could be read."""
    if address.startswith("unix:"):
        return
    try:
        url = urllib.parse.urlsplit(address)
        host, has_more, _ = url.hostname or "", bool(url.query or url.fragment), url.port
    except ValueError:
        host, has_more = "", True
    if not host or has_more or url.scheme not in ("http", "https"):
        shown = printable(re.sub(r":[^:@/]*@", ":...@", address), 200)
        raise JobLensError(f"--store {shown} is no address: write https://USER@HOST:PORT")
    if url.password is not None:
        raise JobLensError("a password in --store is seen in the list of processes: give --store-password")
    if url.scheme == "http" and host not in ("127.0.0.1", "::1", "localhost"):
        raise JobLensError(f"--store {printable(address, 200)}: records and a password go there in clear: write https")


def socket_of(folder: str) -> str:
    """The address of our own server that keeps this folder."""
    return "unix:" + os.path.join(folder, "store.sock")
