"""Tokens, sessions and the audit of the hub in a real PostgreSQL, for two roles."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hub_server import ALICE, STAFF, Hub, access, ask
from servers import Postgres as Server
from sinks import until

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.newer import Newer
from condor_joblens.hub.postgres import Postgres
from condor_joblens.hub.web.access import MOST_CODES, Access

JOBS = frozenset({"jobs"})


@pytest.fixture(scope="module")
def database(folder: Path, server: Any) -> Iterator[Server]:
    with server(Server, folder / "postgres") as started:
        yield started


def as_role(database: Server, role: str, name: str = "joblens") -> Postgres:
    return Postgres(database.address(role, name), str(database.folder / role))


@pytest.fixture
def fresh(database: Server) -> Iterator[str]:
    """A database with its tables, but for sessions, and what the hub may."""
    database.query("DROP DATABASE IF EXISTS fresh", "CREATE DATABASE fresh OWNER owner")
    as_role(database, "owner", "fresh").prepare()
    for table in ("django_session", "django_migrations"):
        database.query(f"CREATE TABLE {table} (x int)", role="owner", database="fresh")
    as_role(database, "owner", "fresh").grant("hub")
    yield "fresh"


def test_the_hubs_role_adds_rows_to_the_audit_and_changes_none(database: Server, fresh: str) -> None:
    hub = as_role(database, "hub", fresh)
    hub.check()
    kept = Access(hub)
    token, secret = kept.add("alice", JOBS, 1, "unix:root")
    kept.note("alice", "log-in", "unix:alice")
    assert kept.by_secret(secret) == token and [row.what for row in kept.audit()] == ["token made", "log-in"]
    for statement in (
        "UPDATE audit SET who = 'mallory'", "DELETE FROM audit", "TRUNCATE audit", "DROP TABLE audit",
        "INSERT INTO audit (id, time, who, what, about) VALUES (1, 0, '', '', '')",
        "ALTER TABLE audit DISABLE TRIGGER ALL", "CREATE TABLE more (x int)", "DELETE FROM tokens",
        "UPDATE tokens SET until = 1e12", "SET ROLE owner",
        "INSERT INTO joblens_version VALUES (9)",
    ):  # fmt: skip
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            database.query(statement, role="hub", database=fresh)
    with pytest.raises(JobLensError, match="name the role that owns the tables in --database"):
        kept.forget("alice", str.upper, "root", lambda tokens, audit: "")
    assert len(list(kept.audit())) == 2
    assert kept.end(token.id, "unix:root").ended and kept.by_secret(secret) is None
    as_owner = Access(as_role(database, "owner", fresh))
    assert as_owner.forget("alice", lambda text: text.replace("alice", "x"), "r", lambda *counts: "") == (1, 2)
    assert [row.who for row in kept.audit()] == ["unix:root", "x", "unix:root", "r"]


def test_a_code_is_good_once_whoever_redeems_it(database: Server, fresh: str) -> None:
    one, other = (Access(as_role(database, "hub", fresh)) for _ in range(2))
    code = one.new_code("unix:alice")
    assert (other.redeem(code), one.redeem(code)) == ("unix:alice", "")
    codes = [one.new_code("unix:bob") for _ in range(MOST_CODES + 1)]
    assert [bool(other.redeem(one)) for one in codes] == [False, *[True] * MOST_CODES]


def test_what_a_hub_can_t_begin_with_is_said_in_a_line(database: Server, fresh: str) -> None:
    with pytest.raises(JobLensError, match="has no tables: run joblens-hub migrate"):
        as_role(database, "hub", "postgres").check()
    for role in ("owner", "postgres"):
        with pytest.raises(JobLensError, match="could change rows of the audit"):
            as_role(database, role, fresh).check()
    for more, less in (
        ("ALTER DATABASE fresh OWNER TO hub", "ALTER DATABASE fresh OWNER TO owner"),
        ("ALTER SCHEMA public OWNER TO hub", "ALTER SCHEMA public OWNER TO pg_database_owner"),
        ("ALTER ROLE hub CREATEROLE", "ALTER ROLE hub NOCREATEROLE"),
        ("GRANT TRIGGER ON audit TO hub", "REVOKE TRIGGER ON audit FROM hub"),
        ("GRANT UPDATE (who) ON audit TO PUBLIC", "REVOKE UPDATE (who) ON audit FROM PUBLIC"),
    ):
        database.query(more, database=fresh)
        with pytest.raises(JobLensError, match="could change rows of the audit"):
            as_role(database, "hub", fresh).check()
        database.query(less, database=fresh)
    database.query("UPDATE joblens_version SET version = 0", role="owner", database=fresh)
    with pytest.raises(JobLensError, match="run joblens-hub migrate as its owner"):
        as_role(database, "hub", fresh).check()
    assert as_role(database, "owner", fresh).prepare() == 0
    as_role(database, "hub", fresh).check()
    database.query("UPDATE joblens_version SET version = 99", role="owner", database=fresh)
    for begin in (as_role(database, "hub", fresh).check, as_role(database, "owner", fresh).prepare):
        with pytest.raises(Newer, match="is of version 99"):
            begin()
    with pytest.raises(JobLensError, match="password authentication failed"):
        Postgres(database.address("hub"), str(database.folder / "owner")).check()
    for address, why in (
        ("postgresql://hub:perch@db/joblens", "is seen in the list of processes"), ("postgresql://db", "no role"),
        ("mysql://hub@db/joblens", "is no address"), ("postgresql://hub@db/joblens?colour=red", "is no address"),
    ):  # fmt: skip
        with pytest.raises(JobLensError, match=why):
            Postgres(address)
    far_ones = ("hub@db.example.org/joblens", "hub@localhost,db/joblens", "hub@/joblens?service=db")
    for address in (*far_ones, "hub@/joblens?hostaddr=192.0.2.1"):
        far = Postgres(f"postgresql://{address}")
        assert far.django()["OPTIONS"]["sslmode"] == "verify-full", "a password goes to nobody else"
    assert "sslmode" not in Postgres("postgresql://hub@localhost/joblens?hostaddr=127.0.0.1").django()["OPTIONS"]
    with pytest.raises(JobLensError, match="no name of a role"):
        as_role(database, "owner", fresh).grant('hub"; DROP TABLE audit; --')


# --- a hub


def care(hub: Hub, database: Server, role: str, *words: str, folder: str = "kept") -> subprocess.CompletedProcess[str]:
    """`joblens-hub backup ...`, as the hub's user."""
    program = [os.path.realpath(sys.executable), "-m", "condor_joblens.hub.care_command", *words]
    given = ["--database", database.address(role), "--database-password", f"{database.folder}/{role}"]
    return subprocess.run(
        ["setpriv", *hub.as_user(), *program, "--folder", f"{hub.folder}/{folder}", *given],
        env={**os.environ, **hub.environment()}, capture_output=True, text=True, timeout=300, cwd="/", check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def hub(folder: Path, server: Any, database: Server) -> Iterator[Hub]:
    made = server(Hub, folder / "hub", packages=("psycopg", "psycopg-binary", "typing_extensions"))
    made.people.write_text(ALICE.replace("remote:alice", "unix:daemon, remote:alice") + STAFF)
    done = care(made, database, "owner", "migrate", "--hub-role", "hub")
    assert done.returncode == 0 and "is of version 1; there was none" in done.stdout, done.stderr
    given = ["--database", database.address("hub"), "--database-password", f"{database.folder}/hub"]
    made.more = [*given, "--web-processes", "2"]
    with made:
        yield made


def test_several_web_processes_share_sessions_codes_and_tokens(hub: Hub, database: Server) -> None:
    assert not (hub.folder / "kept/access.sqlite3").exists() and not (hub.folder / "kept/web.sqlite3").exists()
    assert ask(hub, "adam", "/jobs.json")[0] == 200
    (row,) = database.query("SELECT count(*) FROM audit WHERE who = 'Adam'", role="owner", database="joblens")
    assert row[0] >= 2, "he came, and looked"
    assert hub.process
    children = Path(f"/proc/{hub.process.pid}/task/{hub.process.pid}/children").read_text().split()
    webs = [pid for pid in children if b"\0web\0" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(webs) == 2
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    page = opener.open(hub.login_address("daemon"), timeout=60).read().decode()
    form = dict(re.findall(r'name="(\w+)" value="([^"]+)"', page))
    body = urllib.parse.urlencode(form).encode()
    assert "Alice, user" in opener.open(f"{hub.pages}/login", body, timeout=60).read().decode()
    for _ in range(8):  # whoever answers
        assert "Alice, user" in opener.open(f"{hub.pages}/jobs", timeout=60).read().decode()
    database.stop()
    status, _, text = ask(hub, "olga", "/site.json")
    assert status == 503 and "can't note" in text
    with pytest.raises(urllib.error.HTTPError) as refused:
        opener.open(f"{hub.pages}/jobs", timeout=60)
    assert refused.value.code == 503 and "tell who has logged in for now" in refused.value.read().decode()
    database.start()
    until(lambda: ask(hub, "olga", "/site.json")[0] == 200, "the database is there again")


def test_a_backup_is_restored_into_another_database_or_a_folder(hub: Hub, database: Server) -> None:
    flags = ("--database", database.address("hub"), "--database-password", f"{database.folder}/hub")
    made = access(hub, "token", "add", "Alice", "--people", str(hub.people), *flags)
    assert made.returncode == 0, made.stderr
    target = hub.folder / "kept/backup"
    done = care(hub, database, "hub", "backup", str(target))
    assert done.returncode == 0, done.stderr
    rows = database.query("SELECT time, who, what, about FROM audit ORDER BY id", role="owner", database="joblens")
    refused = care(hub, database, "owner", "restore", str(target), folder="kept/one")
    assert refused.returncode == 1 and "restore into a database that has none" in refused.stderr
    database.query("DROP DATABASE IF EXISTS joblens WITH (FORCE)", "CREATE DATABASE joblens OWNER owner")
    done = care(hub, database, "owner", "restore", str(target), "--hub-role", "hub", folder="kept/two")
    assert done.returncode == 0, done.stderr
    got = database.query("SELECT time, who, what, about FROM audit ORDER BY id", role="owner", database="joblens")
    assert got == rows and rows
    as_role(database, "hub").check()
    kept = Access(as_role(database, "hub"))
    assert kept.by_secret(made.stdout.strip()), "and the token is good"
    kept.note("alice", "log-in", "x")  # ids go on
    assert len(list(kept.audit())) == len(rows) + 1
