"""Backup, restore, migration and a person who is forgotten, by the commands, on a hub with its real store."""

from __future__ import annotations

import contextlib
import http.cookiejar
import json
import os
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from artifact_node import Node
from hub_server import Hub, ask, store_files
from sinks import deliver, make, runs, until

from condor_joblens.export.records import RowEncoder
from condor_joblens.hub import pseudonyms
from condor_joblens.hub.store import migrations
from condor_joblens.hub.store.client import Store, socket_of
from condor_joblens.hub.store.forget import Forgetter
from condor_joblens.hub.store.rollups import Rollups
from condor_joblens.hub.store.schema import DOUBTED, HOURS, JOB_EVENTS, SNAPSHOTS, TABLES
from condor_joblens.model.servers import Scope
from condor_joblens.sinks import Record, RecordKind
from condor_joblens.sinks.hub import HubSink

PEOPLE = """
[Annika]
login = remote:annika, unix:games
jobs = azebra@ap.example.org
[Bob]
login = remote:bob
jobs = bob@ap.example.org
[Adam]
role = administrator
login = remote:adam
"""
JOBS = (("azebra", "ap"), ("bob", "ap"), ("azebra", "other"))
"""Owner and schedd of the jobs 9.0 to 9.2: of equal names at another schedd nobody is meant."""

TIME = int(time.time()) - 7200


@pytest.fixture(scope="module")
def hub(folder: Path, server: Any) -> Iterator[Hub]:
    started = server(Hub, folder / "care")
    (folder / "care/people.d").mkdir()
    os.chown(folder / "care/people.d", 65534, 65534)
    started.people = folder / "care/people.d/people"
    started.people.write_text(PEOPLE)
    with started:
        send(started)
        yield started


def job(number: int) -> str:
    return f"{JOBS[number][1]}.example.org#9.{number}#1700000000"


def send(hub: Hub) -> None:
    """Of each job a sample, a last record, its end by both who tell of it, a record of another schema, one of doubt."""
    rows = runs(len(JOBS), 1)
    for number, (owner, _) in enumerate(JOBS):
        rows["global_job_id"][number], rows["run"][number] = job(number), f"{job(number)}#1"
        rows["owner"][number], rows["executable"][number] = owner, f"/home/{owner}/run"
    rows["start_time"], rows["update_time"], rows["period_seconds"] = TIME - 600, TIME, 3600
    rows["servers"][:, 0]["name"], rows["servers"][:, 0]["scope"] = "fs1", Scope.SERVER
    encoder = RowEncoder("node1")
    batch = [*encoder.records(rows, RecordKind.SAMPLE), *encoder.records(rows, RecordKind.JOB)]
    for number, (owner, _) in enumerate(JOBS):
        names = {"Run": f"{job(number)}#1", "GlobalJobId": job(number), "RunNumber": number + 1}
        said = {"Type": "event", "Id": f"node1/e/{number}", "Schema": 1, "Node": "node1", "Time": TIME, **names}
        said |= {"Kind": "RunEnd", "ExitCode": 3}
        strange = {**said, "Id": f"node1/o/{number}", "Type": "sample", "Schema": 99, "Owner": owner}
        for one in (said, strange):
            line = json.dumps(one).encode()
            batch.append(Record(RecordKind.EVENT, str(one["Id"]), names["Run"], float(TIME), line, frozenset()))
        doubt = {name: strange[name] for name in ("Id", "Type", "Schema", "Node", "Time", "GlobalJobId")}
        doubt |= {"Digest": "d", "Moment": TIME, "Judged": 2, "Why": "elsewhere", "Whole": json.dumps(strange)}
        store(hub).insert(DOUBTED, [json.dumps(doubt).encode()])
        step = {name: strange[name] for name in ("Id", "Node", "Time", "GlobalJobId", "Owner")}
        step |= {"Type": "job_event", "Schema": 1, "Sequence": 1, "Kind": "end", "State": "ended"}
        store(hub).insert(JOB_EVENTS, [json.dumps(step).encode()])
    deliver(make(HubSink, URL=hub.url, TOKEN_FILE=str(hub.folder / "node1")), batch)
    Rollups(store(hub), print).step()


def store(hub: Hub) -> Store:
    return Store(socket_of(f"{hub.folder}/kept"))


def care(
    hub: Hub, *words: str, folder: str = "kept", program: str = "care_command"
) -> subprocess.CompletedProcess[str]:
    """`joblens-hub WORD ...`, as the hub's user."""
    command = [os.path.realpath(sys.executable), "-m", f"condor_joblens.hub.{program}", *words]
    return subprocess.run(
        ["setpriv", *hub.as_user(), *command, "--folder", f"{hub.folder}/{folder}"],
        env={**os.environ, **hub.environment()}, capture_output=True, text=True, timeout=300, cwd="/", check=False,
    )  # fmt: skip


def whole(name: str) -> str:
    """A question for all rows of a table. The hub makes recent hours anew each minute: their version is no content."""
    columns = "* EXCEPT (Version)" if name == HOURS.name else "*"
    return f"SELECT {columns} FROM {name} FINAL"


def content(asked: Any) -> dict[str, list[str]]:
    """Of each table all rows, as text; those of `doubted` and the like too."""
    return {
        table.name: sorted(json.dumps(row) for row in asked(whole(table.name)))
        for table in TABLES
        if table.name != "touched_hours"
    }


def of(hub: Hub, name: str, final: str = "") -> dict[str, int]:
    """In how many rows of each table a text stands; with FINAL those that the store has yet to merge are one."""
    found = {}
    for table in TABLES:
        where = "position(toString(tuple(*)), {name:String}) > 0"
        (row,) = hub.ask(f"SELECT count() AS n FROM {table.name} {final} WHERE {where}", name=name)
        found[table.name] = row["n"]
    return found


def own_hub(hub: Hub, folder: str, *more: str) -> subprocess.CompletedProcess[str]:
    """A hub on another folder, which is to end by itself."""
    words = [
        "run",
        "--folder",
        f"{hub.folder}/{folder}",
        "--tokens",
        f"{hub.folder}/tokens",
        "--records",
        "127.0.0.1:0",
    ]
    return subprocess.run(
        ["setpriv", *hub.as_user(), os.path.realpath(sys.executable), "-m", "condor_joblens.hub", *words, *more],
        env={**os.environ, **hub.environment()}, capture_output=True, text=True, timeout=300, cwd="/", check=False,
    )  # fmt: skip


def changed(hub: Hub, folder: str, statement: str) -> None:
    """Says something to the store of a folder, as the hub's user."""
    program = (
        "import pathlib, sys; from condor_joblens.hub.own_store import own_store\n"
        "with own_store(pathlib.Path(sys.argv[1])) as store: store.change(sys.argv[2])"
    )
    command = [os.path.realpath(sys.executable), "-c", program, f"{hub.folder}/{folder}", statement]
    done = subprocess.run(
        ["setpriv", *hub.as_user(), *command],
        env={**os.environ, **hub.environment()}, capture_output=True, text=True, timeout=300, cwd="/", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def content_of(hub: Hub, folder: str, *names: str) -> dict[str, list[str]]:
    """The same of these tables of the store in a folder."""
    program = (
        "import json, pathlib, sys; from condor_joblens.hub.own_store import own_store\n"
        "with own_store(pathlib.Path(sys.argv[1])) as store:\n"
        "    print(json.dumps({n: store.ask(query) for n, query in json.loads(sys.argv[2]).items()}))"
    )
    queries = json.dumps({name: whole(name) for name in names})
    command = [os.path.realpath(sys.executable), "-c", program, f"{hub.folder}/{folder}", queries]
    done = subprocess.run(
        ["setpriv", *hub.as_user(), *command],
        env={**os.environ, **hub.environment()}, capture_output=True, text=True, timeout=300, cwd="/", check=True,
    )  # fmt: skip
    return {name: sorted(json.dumps(row) for row in rows) for name, rows in json.loads(done.stdout).items()}


def test_a_backup_of_a_hub_that_runs_is_restored_equal(hub: Hub) -> None:
    token = care(hub, "token", "add", "Bob", "--people", str(hub.people), program="access_command")
    target = f"{hub.folder}/kept/backup-1"
    passing = f"{SNAPSHOTS}{time.time():.0f}_ab"
    store(hub).change(f"CREATE TABLE {passing} ENGINE = Memory AS SELECT * FROM live")
    done = care(hub, "backup", target)
    assert done.returncode == 0, done.stderr
    kept = {path.stem for path in Path(target).rglob("live*.sql")}
    assert "live" in kept and not any(name.startswith(SNAPSHOTS) for name in kept), "what passes is in no backup"
    store(hub).change(f"DROP TABLE {passing} SYNC")
    assert "is there already" in care(hub, "backup", target).stderr
    assert (
        "a hub runs" in care(hub, "restore", target).stderr or "has data already" in care(hub, "restore", target).stderr
    )
    done = care(hub, "restore", target, folder="kept/restored")
    assert done.returncode == 0, done.stderr
    before = content(hub.ask)
    assert content_of(hub, "kept/restored", *before) == before
    assert all(before[name] for name in ("samples", "jobs", "events", "latest", "failed_ends", "hours", "doubted"))
    listed = care(hub, "token", "list", folder="kept/restored", program="access_command").stdout
    assert "Bob" in listed and token.stdout.strip() not in listed
    assert not (hub.folder / "kept/restored/web.sqlite3").exists()
    key = hub.folder / "kept/restored" / pseudonyms.FILE
    assert key.read_bytes() == (hub.folder / "kept" / pseudonyms.FILE).read_bytes()
    assert key.stat().st_mode & 0o777 == 0o600


def test_an_older_store_is_migrated_and_a_newer_one_refused_in_a_line(hub: Hub) -> None:
    assert care(hub, "backup", f"{hub.folder}/kept/backup-2").returncode == 0
    assert care(hub, "restore", f"{hub.folder}/kept/backup-2", folder="kept/older").returncode == 0
    changed(hub, "kept/older", "DROP TABLE versions")
    changed(hub, "kept/older", "ALTER TABLE samples MODIFY SETTING min_bytes_for_wide_part = 1")
    changed(hub, "kept/older", "ALTER TABLE samples RESET SETTING skip_empty_columns_on_insert")
    changed(hub, "kept/older", "ALTER TABLE events DROP COLUMN Sink")
    for table in ("live", "live_numbers", "live_servers"):
        changed(hub, "kept/older", f"DROP TABLE {table}")
    done = care(hub, "migrate", folder="kept/older")
    assert done.returncode == 0 and "it was 0" in done.stdout, done.stderr
    again = care(hub, "migrate", folder="kept/older")
    assert f"is of version {migrations.VERSION}; it was {migrations.VERSION}" in again.stdout, again.stderr
    assert care(hub, "backup", f"{hub.folder}/kept/backup-3", folder="kept/older").returncode == 0
    made = (hub.folder / "kept/backup-3/store/metadata/default/samples.sql").read_text()
    assert f"min_bytes_for_wide_part = {100 << 20}" in made
    assert "vertical_merge_algorithm_min_rows_to_activate = 32768" in made
    assert "skip_empty_columns_on_insert = 1" in made
    assert "`Sink`" in (hub.folder / "kept/backup-3/store/metadata/default/events.sql").read_text()
    lived = ("live", "live_numbers", "live_servers")
    now = content(hub.ask)
    assert content_of(hub, "kept/older", *lived) == {name: now[name] for name in lived}

    for change in (
        "TRUNCATE TABLE versions",
        "INSERT INTO versions VALUES (3, 0)",
        *map("DROP TABLE {}".format, lived[1:]),
    ):
        changed(hub, "kept/older", change)
    assert "it was 3" in care(hub, "migrate", folder="kept/older").stdout
    assert content_of(hub, "kept/older", *lived) == {name: now[name] for name in lived}

    changed(hub, "kept/older", "INSERT INTO versions VALUES (99, 0)")
    for done in (care(hub, "migrate", folder="kept/older"), own_hub(hub, "kept/older")):
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
        assert done.stderr.startswith("joblens-hub: the store is of version 99, made by a newer hub")


def test_of_a_forgotten_person_nothing_is_found(hub: Hub, place: Path) -> None:
    node = Node(hub, place)
    events = [node.event(f"{job(number)}#1", "traceback", b"azebra\n", JOBS[number][0]) for number in (0, 2)]
    deliver(node.sink, events)
    session = browser(hub, "games")
    assert care(hub, "token", "add", "Annika", "--people", str(hub.people), program="access_command").returncode == 0
    for path, words in (("/jobs", {"owner": "azebra"}), (f"/job/{urllib.parse.quote(job(0) + '#1', safe='')}", {})):
        assert ask(hub, "adam", path, **words)[0] == 200
    assert "Annika" in care(hub, "audit", program="access_command").stdout
    nobodys = ("hours", "live_numbers", "touched_hours", "health", "machines")
    assert all(of(hub, job(0))[table.name] for table in TABLES if table.name not in nobodys)
    assert len(hub.ask("SELECT DISTINCT Schedd FROM live_numbers WHERE Owner = 'azebra'")) == 2
    equal = of(hub, job(2), "FINAL")

    done = care(hub, "forget", "Annika", "--people", str(hub.people))
    assert done.returncode == 0 and "with --yes there go: " in done.stdout and of(hub, job(0))["jobs"] == 1, done.stderr
    done = care(hub, "forget", "Annika", "--people", str(hub.people), "--yes")
    assert done.returncode == 0, done.stderr
    said = (
        "1 rows of samples",
        "1 rows of memory_readings",
        "rows of server_readings",
        "1 rows of jobs",
        "2 rows of events",
        "1 artifacts",
        "1 tokens",
        "1 sessions",
    )
    assert all(part in done.stdout for part in said), done.stdout
    # an hour that was made anew has a row more until the store has merged them
    assert re.search(r" [1-9] rows of hours", done.stdout), done.stdout

    assert not any(of(hub, job(0)).values()) and of(hub, job(2), "FINAL") == equal
    for table in ("hours", "live_numbers"):
        whose = hub.ask(f"SELECT DISTINCT Schedd FROM {table} WHERE Owner = 'azebra'")
        assert whose == [{"Schedd": "other.example.org"}]
    assert ask(hub, "annika", "/jobs.json")[0] == 401 and ask(hub, "bob", "/jobs.json", state="all")[1]["count"] == 1
    until(lambda: session.open(f"{hub.pages}/login").status == 200, "the pages")
    assert "Annika" not in hub.people.read_text() and "Bob" in hub.people.read_text()
    kept = hub.folder / "kept"
    assert len(list(kept.glob("artifacts/*.artifact"))) == 1, "of the equal name at another schedd"
    assert job(0).encode() not in (kept / "artifacts/index.sqlite3").read_bytes()
    files = dict(store_files(hub, "mutation_*.txt", "*.sql"))
    assert any(file.name.startswith("mutation_") for file in files)
    for file in kept.glob("*.sqlite3*"):
        with contextlib.suppress(FileNotFoundError):  # SQLite takes its log away
            files[file] = file.read_bytes()
    for file, text in files.items():
        assert not re.search(rb"annika|azebra|unix:games", text, re.I), file
    audit = care(hub, "audit", program="access_command").stdout
    assert re.search(r"person forgotten\tforgotten-[0-9a-f]{8}: ", audit) and "look\t/job/forgotten-" in audit
    assert "gone: 0 artifacts" in care(hub, "forget", "Annika", "--jobs", "azebra@ap.example.org", "--yes").stdout


class Rolling(Store):
    """One in which roll-ups are made right after rows have gone from theirs."""

    def change(self, query: str, **values: str | float) -> None:
        super().change(query, **values)
        if query.startswith("ALTER TABLE hours DELETE"):
            super().change(f"INSERT INTO touched_hours SELECT DISTINCT Hour, {time.time() + 3600} FROM hours")
            assert Rollups(self, pytest.fail).step()


def test_roll_ups_that_are_made_meanwhile_bring_nobody_back(hub: Hub) -> None:
    of_bob = "SELECT count() AS n FROM hours WHERE Owner = 'bob'"
    assert hub.ask(of_bob)[0]["n"]
    forgetter = Forgetter(Rolling(socket_of(f"{hub.folder}/kept")), [("bob", "ap.example.org")])
    assert forgetter.forget()["jobs"] == 1
    assert forgetter.count() == {} and hub.ask(of_bob) == [{"n": 0}]


def browser(hub: Hub, user: str) -> urllib.request.OpenerDirector:
    """One with a session of that user of the machine."""
    jar = http.cookiejar.CookieJar()
    found = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    address = hub.login_address(user)
    text = found.open(address).read().decode()
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', text)
    assert token, text
    code = urllib.parse.parse_qs(urllib.parse.urlsplit(address).query)["code"][0]
    words = urllib.parse.urlencode({"code": code, "csrfmiddlewaretoken": token[1]}).encode()
    assert found.open(f"{hub.pages}/login", words).status == 200
    assert any(cookie.name == "sessionid" for cookie in jar)
    return found
