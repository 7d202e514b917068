"""Tokens of people, and the audit: a file of SQLite, without a hub."""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub import access_command
from condor_joblens.hub.database import FILE
from condor_joblens.hub.syslog import Syslog
from condor_joblens.hub.web.access import MOST_DAYS, MOST_TOKENS, Access

JOBS = frozenset({"jobs"})


class Clock:
    """Stands still, unless it is moved."""

    def __init__(self) -> None:
        self.now = 1e9

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def access(tmp_path: Path, clock: Clock) -> Access:
    return Access(tmp_path, clock)


@pytest.fixture
def own_umask() -> Iterator[None]:
    """The command sets the umask of its process, which is the tests' here."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit SET who = 'nobody'",
        "DELETE FROM audit",
        "INSERT OR REPLACE INTO audit VALUES (1, 0, 'nobody', 'x', 'y')",
        "REPLACE INTO audit (id, time, who, what, about) VALUES (1, 0, 'nobody', 'x', 'y')",
        "INSERT INTO audit VALUES (1, 0, 'a', 'b', 'c') ON CONFLICT (id) DO UPDATE SET who = 'nobody'",
        "UPDATE OR REPLACE audit SET id = 2 WHERE id = 1",
    ],
)
def test_rows_of_the_audit_stay(tmp_path: Path, access: Access, statement: str) -> None:
    access.note("anna", "look", "/jobs")
    access.note("bert", "look", "/jobs")
    before = list(access.audit())
    with closing(sqlite3.connect(tmp_path / FILE)) as connection, pytest.raises(sqlite3.IntegrityError, match="stay"):
        connection.execute(statement)
    assert list(access.audit()) == before and [row.who for row in before] == ["anna", "bert"]
    access.note("carl", "look", "/jobs")
    assert len(list(access.audit())) == 3, "rows are still added"


def test_a_token_is_kept_as_its_digest_and_ends(tmp_path: Path, access: Access, clock: Clock) -> None:
    token, secret = access.add("anna", JOBS, 30, "unix:root", "a plot")
    assert access.by_secret(secret) == token and access.by_secret(secret + "x") is None
    assert secret.encode() not in (tmp_path / FILE).read_bytes()
    clock.now += 30 * 86400 - 1
    assert access.by_secret(secret)
    clock.now += 1
    assert access.by_secret(secret) is None
    other, secret = access.add("anna", JOBS, 30, "unix:root")
    access.end(other.id, "unix:root")
    assert access.by_secret(secret) is None
    with pytest.raises(JobLensError):
        access.end(other.id, "unix:root")
    assert [row.what for row in access.audit()] == ["token made", "token made", "token ended"]


@pytest.mark.parametrize("scopes", [set(), {"own"}, {"jobs", "all"}, {""}])
def test_a_scope_is_one_of_those_that_are_known(access: Access, scopes: set[str]) -> None:
    with pytest.raises(JobLensError, match="the scope is"):
        access.add("anna", frozenset(scopes), 30, "unix:root")


@pytest.mark.parametrize("days", [0, -1, MOST_DAYS + 1])
def test_every_token_has_an_end(access: Access, days: int) -> None:
    with pytest.raises(JobLensError, match="is good for"):
        access.add("anna", JOBS, days, "unix:root")


def test_a_person_has_a_bounded_number_of_tokens(access: Access, clock: Clock) -> None:
    for _ in range(MOST_TOKENS):
        access.add("anna", JOBS, 1, "unix:root")
    with pytest.raises(JobLensError, match="end one first"):
        access.add("anna", JOBS, 1, "unix:root")
    access.add("bert", JOBS, 1, "unix:root")
    clock.now += 86400
    access.add("anna", JOBS, 1, "unix:root")


def test_the_same_look_is_noted_once_an_hour(access: Access, clock: Clock) -> None:
    for _ in range(3):
        access.note("anna", "look", "/jobs?page=1", 3600)
        access.note("anna", "look", "/jobs?page=2", 3600)
        access.note("bert", "look", "/jobs?page=1", 3600)
        access.note("anna", "look", "/api/v1/jobs?after=1", 3600)
        access.note("anna", "look", "/api/v1/jobs?after=2", 3600)
    assert len(list(access.audit())) == 4
    clock.now += 3600
    access.note("anna", "look", "/jobs?page=1", 3600)
    assert len(list(access.audit(clock.now))) == 1


def test_what_can_t_be_noted_is_an_error(tmp_path: Path, access: Access) -> None:
    (tmp_path / FILE).write_bytes(b"no database at all" * 100)
    with pytest.raises(JobLensError, match="can't be used"):
        access.note("anna", "look", "/jobs")
    with pytest.raises(JobLensError, match="can't be used"):
        access.by_secret("x")


def test_what_was_noted_is_one_line_each(access: Access) -> None:
    access.note("a\nb", "look", "/x\t\x1b[31m")
    (row,) = access.audit()
    assert row.who.isprintable() and row.about.isprintable()


@pytest.mark.usefixtures("own_umask")
def test_a_token_is_made_for_a_known_person_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    people = tmp_path / "people"
    people.write_text("[anna]\nlogin = unix:anna\n")
    words = ["--people", str(people), "--folder", str(tmp_path)]
    assert access_command.main(["token", "add", "bert", *words]) == 1
    assert "does not know bert" in capsys.readouterr().err
    assert access_command.main(["token", "add", "anna", *words, "--note", "a plot"]) == 0
    secret = capsys.readouterr().out.strip()
    assert Access(tmp_path).by_secret(secret)
    assert access_command.main(["token", "list", "--folder", str(tmp_path)]) == 0
    listed = capsys.readouterr().out
    assert "good" in listed and "a plot" in listed and secret not in listed
    assert access_command.main(["token", "end", "1", "--folder", str(tmp_path)]) == 0
    assert Access(tmp_path).by_secret(secret) is None
    capsys.readouterr()
    assert access_command.main(["audit", "--folder", str(tmp_path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_each_row_of_the_audit_is_copied_to_syslog(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.bind(str(tmp_path / "log"))
        log.settimeout(60)
        access = Access(tmp_path, say=Syslog(str(tmp_path / "log")))
        access.note("Adam", "look", "/job/x\n<85>forged")
        said = log.recv(4096).decode()
    assert said.startswith("<8") and "joblens-hub: audit: Adam: look: /job/x" in said
    assert "\n" not in said and said.count("<85>") <= 1 + said.startswith("<85>")
    for _ in range(3):  # nobody listens there any more
        access.note("Adam", "look", "/job/y")
    assert [row.about for row in access.audit()][1:] == ["/job/y"] * 3
    assert capsys.readouterr().err.count("no copy of the audit") == 1


@pytest.mark.parametrize("address", ["log", "host:", ":514", "host:x"])
def test_a_wrong_address_of_syslog_is_refused(address: str) -> None:
    with pytest.raises(JobLensError, match="neither a socket's path nor HOST:PORT"):
        Syslog(address)
