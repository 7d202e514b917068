"""Names that are some months old are pseudonyms in what a hub keeps: who still sees what, and who can be forgotten."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_server import Hub, ask, store_files
from sinks import deliver, make, runs, until

from condor_joblens.export.records import RowEncoder
from condor_joblens.hub.pseudonyms import FILE, SHAPE, of_folder, quarter_of
from condor_joblens.hub.store.client import Store, socket_of
from condor_joblens.hub.store.old_names import OldNames
from condor_joblens.hub.store.rollups import Rollups, read
from condor_joblens.hub.store.schema import TABLES
from condor_joblens.sinks import RecordKind
from condor_joblens.sinks.hub import HubSink

PEOPLE = """
[Alice]
login = remote:alice
jobs = azebra@ap.example.org
[Bob]
login = remote:bob
jobs = bob@ap.example.org
[Olga]
role = operator
login = remote:olga
"""
OWNERS = (("azebra", "ap"), ("bob", "ap"), ("azebra", "other"))
"""Each with a job that ended at each of TIMES: equal names at another schedd are another person's."""

NOW = time.time()
DAYS = (195, 100, 5)  # of which the first two are old, and in different quarters: none has more than 92 days
TIMES = tuple(int(NOW - 86400 * days) // 3600 * 3600 + 1800 for days in DAYS)
MONTHS = 3


def run_of(number: int, place: int) -> str:
    return f"{OWNERS[number][1]}.example.org#{place}.{number}#1700000000#1"


@pytest.fixture(scope="module")
def hub(folder: Path, server: Any) -> Iterator[Hub]:
    started = server(Hub, folder / "names")
    started.people.write_text(PEOPLE)
    with started:
        for place in range(len(TIMES)):
            send(started, place)
        until(lambda: (started.folder / "kept" / FILE).exists(), "the key of pseudonyms")
        yield started


def send(hub: Hub, place: int, sequence: int = 1) -> None:
    """The last records of the jobs that ended at this one of TIMES."""
    rows = runs(len(OWNERS), sequence)
    for number, (owner, _) in enumerate(OWNERS):
        name = run_of(number, place)
        rows["global_job_id"][number], rows["run"][number], rows["job_id"][number] = (
            name[:-2],
            name,
            f"{place}.{number}",
        )
        rows["owner"][number], rows["executable"][number] = owner, f"/home/{owner}/{owner}s/run"
        rows["accounting_group"][number], rows["user_note"][number] = f"physics.{owner}", f"{owner}: azebraic"
    rows["start_time"], rows["update_time"], rows["request_cpus"] = TIMES[place] - 600, TIMES[place], 1
    deliver(
        make(HubSink, URL=hub.url, TOKEN_FILE=str(hub.folder / "node1")),
        RowEncoder("node1").records(rows, RecordKind.JOB),
    )


def store(hub: Hub) -> Store:
    return Store(socket_of(f"{hub.folder}/kept"))


def roll_up_and_rename(hub: Hub) -> None:
    Rollups(store(hub), pytest.fail).step()
    pseudonyms = of_folder(hub.folder / "kept")
    assert pseudonyms
    OldNames(store(hub), pseudonyms, MONTHS, lambda: NOW).step()


def owners(hub: Hub) -> dict[tuple[int, int], str]:
    """Of each job its owner, as the last records say."""
    rows = {row["Run"]: row["Owner"] for row in hub.ask("SELECT Run, Owner FROM jobs FINAL")}
    return {(number, place): rows[run_of(number, place)] for number in range(3) for place in range(len(TIMES))}


def seen(hub: Hub, person: str) -> dict[str, int]:
    """How many jobs each owner has had in a year, as his page of trends has it."""
    status, answer, text = ask(hub, person, "/trends.json", by="owner", days=365)
    assert status == 200, text
    return {row["name"]: row["runs"] for row in answer["rows"]}


def test_a_quarter_is_of_the_calendar() -> None:
    begins = [
        time.strftime("%Y-%m-%d", time.gmtime(quarter_of(NOW - 86400 * days).begin)) for days in range(0, 400, 10)
    ]
    assert {begin[5:] for begin in begins} == {"01-01", "04-01", "07-01", "10-01"}
    quarter = quarter_of(NOW)
    assert quarter.begin <= NOW < quarter.end and quarter_of(quarter.end).begin == quarter.end


def test_old_names_are_pseudonyms_one_a_person_and_quarter_and_sums_stay(hub: Hub) -> None:
    Rollups(store(hub), pytest.fail).step()
    assert len({quarter_of(moment) for moment in TIMES[:2]}) == 2
    sums = "sum(Runs) AS runs, sum(AskedCpuSeconds) AS asked, count() AS n"
    before = hub.ask(read(sums))
    roll_up_and_rename(hub)
    assert hub.ask(read(sums)) == before and before[0]["runs"] == 9
    found = owners(hub)
    for (number, place), owner in found.items():
        assert bool(re.match(SHAPE, owner)) == (place < 2)
        assert place < 2 or owner == OWNERS[number][0]
    assert len({owner for (_, place), owner in found.items() if place < 2}) == 6, "no two people or quarters have one"
    of_hours = hub.ask(read("Owner, Hour"))
    assert {(row["Owner"], row["Hour"]) for row in of_hours} == {
        (owner, TIMES[place] - 1800) for (_, place), owner in found.items()
    }
    for table in ("jobs", "hours"):  # and no row of before is left there
        old = f"{'Time' if table == 'jobs' else 'Hour'} < {NOW - 30 * 86400}"
        whole = json.dumps(hub.ask(f"SELECT * FROM {table} WHERE {old}"))
        assert not re.search(r"\b(bob|azebra)\b", whole)
    (row,) = hub.ask(
        "SELECT Executable, AccountingGroup, UserNote FROM jobs WHERE Run = {run:String}", run=run_of(0, 0)
    )
    assert row["Executable"] == f"/home/{found[0, 0]}/azebras/run", "what only begins so is another word"
    assert (row["AccountingGroup"], row["UserNote"]) == (f"physics.{found[0, 0]}", f"{found[0, 0]}: azebraic")


def test_what_comes_late_gets_the_same_pseudonyms(hub: Hub) -> None:
    roll_up_and_rename(hub)
    before = owners(hub)
    send(hub, 1, sequence=2)
    assert owners(hub)[0, 1] == "azebra"
    roll_up_and_rename(hub)
    assert owners(hub) == before
    assert not hub.ask(f"SELECT 1 AS n FROM hours WHERE Owner IN ('azebra', 'bob') AND Hour < {NOW - 30 * 86400}")


def test_each_sees_his_own_under_his_name_and_others_see_pseudonyms(hub: Hub) -> None:
    roll_up_and_rename(hub)
    alice, bob, olga = seen(hub, "alice"), seen(hub, "bob"), seen(hub, "olga")
    assert (alice, bob) == ({"azebra@ap.example.org": 3}, {"bob@ap.example.org": 3})
    named = {name: count for name, count in olga.items() if not name.startswith("person-")}
    assert named == {"azebra@ap.example.org": 1, "bob@ap.example.org": 1, "azebra@other.example.org": 1}
    assert len(olga) == 9 and set(olga.values()) == {1}
    status, answer, _ = ask(hub, "alice", "/trends.json", by="node", owner="azebra", days=365)
    assert status == 200 and answer["whole"]["runs"] == 3
    assert ask(hub, "bob", "/trends.json", by="node", owner="azebra", days=365)[1]["whole"]["runs"] == 0


def test_two_quarters_of_three_people_are_not_five_people(hub: Hub) -> None:
    roll_up_and_rename(hub)
    assert len({owner for owner in owners(hub).values()}) > 5
    assert ask(hub, "alice", "/trends.json", by="owner", days=365)[1]["site"] is None


def test_a_person_is_forgotten_under_his_pseudonyms_too(hub: Hub) -> None:
    roll_up_and_rename(hub)
    before = owners(hub)
    done = subprocess.run(
        ["setpriv", *hub.as_user(), os.path.realpath(sys.executable), "-m", "condor_joblens.hub.care_command", "forget",
         "Alice", "--people", str(hub.people), "--yes", "--folder", f"{hub.folder}/kept"],
        env={**os.environ, **hub.environment()}, capture_output=True, text=True, timeout=300, cwd="/", check=False,
    )  # fmt: skip
    assert "gone: " in done.stdout and "4 rows of jobs" in done.stdout, done.stdout + done.stderr
    for table in TABLES:
        whole = json.dumps(hub.ask(f"SELECT * FROM {table.name}"))
        assert not any(before[0, place] in whole for place in (0, 1)), table.name
    assert {row["Owner"] for row in hub.ask("SELECT Owner FROM jobs FINAL")} == {
        owner for (number, _), owner in before.items() if number
    }
    assert {name.partition("@")[0] for name in seen(hub, "olga")} == {
        owner for (number, _), owner in before.items() if number
    }


def test_the_key_is_the_hubs_users_alone_and_in_no_question_of_the_store(hub: Hub) -> None:
    key = hub.folder / "kept" / FILE
    assert key.stat().st_mode & 0o777 == 0o600 and len(key.read_bytes()) == 32
    for file, text in store_files(hub, "mutation_*.txt"):
        assert key.read_bytes().hex().encode() not in text.lower(), file
