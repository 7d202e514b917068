"""What looks after a hub, without its store: other names in the audit, a section of the file of people, versions."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub import backups
from condor_joblens.hub.database import FILE, VERSION
from condor_joblens.hub.forget import Renamer, names_of_jobs, person_of, take_section
from condor_joblens.hub.newer import Newer
from condor_joblens.hub.store import migrations
from condor_joblens.hub.web.access import JOBS, Access

PEOPLE = """# who sees what
[anna]
login = unix:anna, remote:a.zebra@EXAMPLE.ORG
jobs = azebra@ap1

[annabel]
login = unix:annabel
"""
RUN = "ap1#7.0#17#1"


@pytest.mark.parametrize(
    "before, after",
    [
        ("anna", "x"),
        ("annabel", "annabel"),
        ("remote:a.zebra@EXAMPLE.ORG, a browser's session", "x, a browser's session"),
        ("unix:joblens for anna", "unix:joblens for x"),
        ("3 of anna, jobs, for 90 days", "3 of x, jobs, for 90 days"),
        ("/jobs?owner=azebra&state=all", "/jobs?owner=x&state=all"),
        ("/jobs?owner=other&q=&state=all", "/jobs?owner=other&q=&state=all"),
        ("/job/ap1%237.0%2317%231", "/job/x"),
        ("/job/ap1%237.0%2317%231.json", "/job/x"),
        ("/api/v1/job/ap1%237.0%2317%231/series?points=9", "/api/v1/job/x/series?points=9"),
        ("/api/v1/jobs?after=ap1%237.0%2317%231", "/api/v1/jobs?after=x"),
        ("/job/ap1%238.0%2317%231", "/job/ap1%238.0%2317%231"),
    ],
)
def test_another_name_stands_in_the_audit(before: str, after: str) -> None:
    anew = Renamer("x", ["anna", "unix:anna", "remote:a.zebra@EXAMPLE.ORG", "azebra"], [RUN])
    assert anew(before) == after


def test_jobs_that_rows_are_about_are_known() -> None:
    assert list(names_of_jobs("/job/ap1%237.0%2317%231.json")) == [RUN]
    assert list(names_of_jobs("/api/v1/jobs?after=ap1%237.0%2317%231&state=all")) == [RUN]
    assert list(names_of_jobs("3 of anna, jobs")) == []


def test_one_section_goes_and_all_else_stays(tmp_path: Path) -> None:
    file = tmp_path / "people"
    file.write_text(PEOPLE)
    file.chmod(0o640)
    person = person_of(file, "anna", ["azebra@ap2"])
    assert person.jobs == (("azebra", "ap1"), ("azebra", "ap2"))
    assert take_section(file, "anna")
    assert file.read_text() == "# who sees what\n[annabel]\nlogin = unix:annabel\n"
    assert file.stat().st_mode & 0o777 == 0o640
    assert not take_section(file, "anna") and list(tmp_path.iterdir()) == [file]
    assert person_of(file, "anna", ["azebra@ap2"]).jobs == (("azebra", "ap2"),)
    with pytest.raises(JobLensError, match="say whose jobs go"):
        person_of(file, "anna", [])


def test_of_a_forgotten_person_no_byte_is_left(tmp_path: Path) -> None:
    access = Access(tmp_path)
    access.add("anna", frozenset({JOBS}), 9, "unix:root for anna", "anna's plot")
    access.note("anna", "look", "/jobs?owner=azebra")
    access.note("adam", "look", "/jobs")
    assert access.forget("anna", Renamer("x", ["anna", "azebra"], []), "adam", lambda *counts: f"x {counts}") == (1, 2)
    assert [(row.who, row.what, row.about) for row in access.audit()] == [
        ("unix:root for x", "token made", "1 of x, jobs, for 9 days"),
        ("x", "look", "/jobs?owner=x"),
        ("adam", "look", "/jobs"),
        ("adam", "person forgotten", "x (1, 2)"),
    ]
    content = (tmp_path / FILE).read_bytes()
    assert b"anna" not in content and b"azebra" not in content
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection:
        for statement in ("DELETE FROM audit", "UPDATE audit SET who = 'y'"):
            with pytest.raises(sqlite3.DatabaseError, match="stay as they are"):
                connection.execute(statement)


def test_a_file_of_a_newer_hub_is_refused(tmp_path: Path) -> None:
    Access(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(Newer, match="made by a newer hub"):
        Access(tmp_path)


def test_a_backup_is_whole_and_no_newer_hub_s(tmp_path: Path) -> None:
    with pytest.raises(JobLensError, match="no whole backup"):
        backups.about_of(tmp_path)
    whole = {"format": backups.FORMAT, "store": migrations.VERSION, "begin": 1.0}
    (tmp_path / backups.ABOUT).write_text(json.dumps(whole))
    assert backups.about_of(tmp_path)["begin"] == 1.0
    for name in ("format", "store"):
        (tmp_path / backups.ABOUT).write_text(json.dumps({**whole, name: 99}))
        with pytest.raises(Newer, match="of version 99"):
            backups.about_of(tmp_path)


def test_steps_are_those_since_the_store_s_version() -> None:
    assert migrations.statements(None, set()) == []
    assert migrations.statements(migrations.VERSION, {"samples"}) == []
    assert migrations.statements(0, {"samples", "other"})[0].startswith("ALTER TABLE samples ")
