"""The hub's JSON interface with a real store: who sees what, what is wrong in a sentence, and what is bounded."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_server import ALICE, STAFF, Hub, access, answered, ask, token
from sinks import deliver_all, make, runs

from condor_joblens.export.records import RowEncoder
from condor_joblens.hub.web.api.columns import COLUMNS
from condor_joblens.hub.web.api.endpoints import ENDPOINTS
from condor_joblens.hub.web.api.openapi import document
from condor_joblens.sinks import RecordKind
from condor_joblens.sinks.hub import HubSink

PEOPLE = f"""{ALICE}[Mona]
role = manager
login = remote:mona
jobs = mona@ap.example.org
groups = physics@ap.example.org
{STAFF}[Nobody]
login = remote:nobody
"""
JOBS = (
    ("alice", "ap", "physics.muons"),
    ("bob", "ap", "physicsx"),  # the group's name is only the beginning of his
    ("carol", "ap", "physics"),
    ("mona", "ap", "chemistry"),
    ("alice", "other", "physics"),  # equal names at another schedd are nobody's here
)
"""Owner, schedd and accounting group of the jobs 9.0 to 9.4."""

SEEN = {
    "alice": ({0}, {0}, {0}),
    "mona": ({0, 2, 3}, {0, 2, 3}, {3}),
    "olga": ({0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}, set()),
    "adam": ({0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}),
    "nobody": (set(), set(), set()),
}
"""Of which jobs each person sees that they are there, the owner, and words."""


def run_name(number: int) -> str:
    return f"{JOBS[number][1]}.example.org#9.{number}#1700000000#1"


def send(hub: Hub, sequences: Any) -> None:
    """Samples of JOBS, of now. Each job's owner and words are found by a text search."""
    encoder, sink = RowEncoder("node1"), make(HubSink, URL=hub.url, TOKEN_FILE=str(hub.folder / "node1"))
    now, batch = int(time.time()), []
    for sequence in sequences:
        rows = runs(len(JOBS), sequence)
        for number, (owner, _, group) in enumerate(JOBS):
            name = run_name(number)
            rows["global_job_id"][number], rows["run"][number] = name[:-2], name
            rows["job_id"][number], rows["owner"][number] = f"9.{number}", owner
            rows["accounting_group"][number], rows["vo"][number] = group, f"vo-of-{number}"
            for column in ("executable", "note", "user_note", "first_failure", "policy", "execute", "progress"):
                rows[column][number] = f"word-of-{number}"
        rows["level"] = "basic"
        # with such a period they are never silent: what is said of them does not hang on the moment
        rows["start_time"], rows["update_time"], rows["period_seconds"] = now - 600, now, 86400
        rows["cpu_recent_cores"] = sequence
        batch += encoder.records(rows, RecordKind.SAMPLE)
    deliver_all(sink, batch)


@pytest.fixture(scope="module")
def hub(folder: Path, server: Any) -> Iterator[Hub]:
    started = server(Hub, folder / "api")
    started.people.write_text(PEOPLE)
    with started:
        send(started, range(1, 41))
        yield started


def api(hub: Hub, person: str, path: str, **words: Any) -> tuple[int, dict[str, Any], str]:
    return ask(hub, person, f"/api/v1/{path}", **words)


def job(number: int) -> str:
    return "job/" + urllib.parse.quote(run_name(number), safe="")


WALK: tuple[tuple[str, dict[str, Any]], ...] = (
    ("jobs", {"state": "all", "columns": "JobId,Owner,AccountingGroup,Vo,Executable,Note,UserNote,Policy,Execute"}),
    ("jobs", {"state": "all", "sort": "Executable", "columns": "Executable,FirstFailure,Progress"}),
    ("jobs", {"state": "all", "where": "Executable ~ word", "columns": "JobId"}),
    ("jobs", {"state": "all", "executable": "word-of-1", "columns": "JobId"}),
    ("jobs", {"state": "all", "owner": "bob"}),
    ("nodes", {}),
    ("servers", {}),
    ("leaks", {}),
    ("queue", {}),
    ("queued", {}),
    ("alarms", {}),
    *((job(number), {}) for number in range(len(JOBS))),
    *((f"{job(number)}/series", {"metrics": "Cpu.RecentCores"}) for number in range(len(JOBS))),
    *(
        ("summary", {"state": "all", "by": by})
        for by in ("owner", "group", "vo", "executable", "node", "level", "cluster", "schedd")
    ),
)
"""Each endpoint that tells of jobs, asked for what one might want to know."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("person", SEEN)
def test_each_person_sees_by_every_endpoint_what_pages_show_and_no_more(hub: Hub, person: str) -> None:
    assert {endpoint.name for endpoint in ENDPOINTS} == {
        "schema", "jobs", "job", "series", "summary", "nodes", "servers", "leaks", "queue", "queued", "alarms",
    }, "walk it too"  # fmt: skip
    there, owners, words = SEEN[person]
    texts = {}
    for path, asked in WALK:
        status, _, texts[path, str(asked)] = api(hub, person, path, **asked)
        number = next((number for number in range(len(JOBS)) if path.startswith(job(number))), None)
        assert status == (200 if number is None or number in there else 404), (path, texts[path, str(asked)])
    text = "".join(texts.values())
    pages = ask(hub, person, "/jobs.json", state="all")[1]["jobs"]
    assert {row["JobId"] for row in pages} == {f"9.{number}" for number in there}
    for number, (owner, _, _) in enumerate(JOBS):
        assert (run_name(number) in text) == (number in there)
        assert (f"vo-of-{number}" in text) == (number in owners)
        assert (f"word-of-{number}" in text) == (number in words)
        assert owner in text if number in owners else True
    assert ("bob" in text) == (1 in owners)
    for row in pages:  # and of each job no column that its page has not
        found = api(hub, person, "job/" + urllib.parse.quote(row["Run"], safe=""))[1]["job"]
        page = ask(hub, person, f"/job/{urllib.parse.quote(row['Run'], safe='')}.json")[1]["job"]
        assert ("Owner" in found, "Executable" in found, "Policy" in found) == (
            "Owner" in page, "Executable" in page, "Executable" in page,
        )  # fmt: skip
        assert (found["Health"], found["Why"], found["IsMine"]) == (page["Health"], page["Why"], page["IsMine"])


def test_what_may_not_be_seen_finds_nothing_and_groups_nothing(hub: Hub) -> None:
    for person, path, asked in (
        ("olga", "jobs", {"where": "Executable = word-of-1"}),
        ("olga", "jobs", {"where": "Executable != x"}),
        ("mona", "jobs", {"where": "Note ~ word-of-0", "columns": "JobId"}),
        ("olga", "jobs", {"executable": "word-of-1"}),
    ):
        assert api(hub, person, path, state="all", **asked)[1]["jobs"] == [], (person, asked)
    (group,) = api(hub, "olga", "summary", by="executable", state="all")[1]["groups"]
    assert (group["name"], group["runs"]) == (None, 5)
    groups = api(hub, "mona", "summary", by="executable", state="all")[1]["groups"]
    assert [(group["name"], group["runs"]) for group in groups] == [(None, 2), ("word-of-3", 1)]
    found = api(hub, "mona", "jobs", where="Note ~ WORD", columns="JobId", state="all")[1]["jobs"]
    assert [row["JobId"] for row in found] == ["9.3"], "her own words she may read"


def test_pages_of_runs_follow_each_other(hub: Hub) -> None:
    found, after = [], ""
    for _ in range(9):
        words = {"after": after} if after else {}
        status, answer, text = api(hub, "adam", "jobs", state="all", limit=2, columns="JobId", **words)
        assert status == 200, text
        found += [row["JobId"] for row in answer["jobs"]]
        after = answer["next"]
        if after is None:
            break
    assert found == ["9.0", "9.1", "9.2", "9.3", "9.4"]
    first = api(hub, "adam", "jobs", state="all", limit=2, sort="-Memory.ResidentBytes", columns="JobId")[1]
    assert [row["JobId"] for row in first["jobs"]] == ["9.4", "9.3"] and first["is_cut"] and first["next"] is None


@pytest.mark.parametrize("points", [1, 7, 40, 1000])
def test_a_series_has_the_least_the_greatest_and_the_mean_of_all_samples(hub: Hub, points: int) -> None:
    answer = api(hub, "alice", f"{job(0)}/series", metrics="Cpu.RecentCores,Memory.ResidentBytes", points=points)[1]
    found = answer["metrics"]["Cpu.RecentCores"]
    counts = [point["samples"] for point in answer["points"]]
    assert len(counts) <= points and sum(counts) == 40
    assert (min(found["min"]), max(found["max"])) == (1, 40)
    assert sum(mean * count for mean, count in zip(found["mean"], counts)) == pytest.approx(sum(range(1, 41)))
    for low, high, point in zip(found["min"], found["max"], answer["points"]):
        assert (low, high) == (point["first"], point["last"]), "the value is the sample's number"
    empty = api(hub, "alice", f"{job(0)}/series", metrics="Cpu.RecentCores", since=9e10)[1]
    assert empty["points"] == [] and empty["metrics"]["Cpu.RecentCores"] == {"min": [], "max": [], "mean": []}


def test_a_summary_adds_up(hub: Hub) -> None:
    groups = api(hub, "adam", "summary", by="owner", state="all")[1]["groups"]
    assert [(group["name"], group["runs"]) for group in groups] == [("alice", 2), ("bob", 1), ("carol", 1), ("mona", 1)]
    cut = api(hub, "adam", "summary", by="owner", state="all", limit=1)[1]
    assert len(cut["groups"]) == 1 and cut["is_cut"]


@pytest.mark.parametrize(
    "path, asked, why",
    [
        ("jobs", {"color": "red"}, "there is no parameter color here"),
        ("jobs", {"limit": "100000"}, "limit is a whole number from 1 to 1000"),
        ("jobs", {"limit": "1e3"}, "limit is a whole number"),
        ("jobs", {"columns": "Owner,Wealth"}, "columns can't be Wealth"),
        ("jobs", {"columns": ",".join(list(COLUMNS)[:60])}, "columns is a list of 1 to 40"),
        ("jobs", {"where": "1=1; DROP TABLE latest"}, "where can't be read at"),
        ("jobs", {"where": "Cpu.RecentCores < many"}, "is a number"),
        ("jobs", {"where": "Owner < a"}, "is text"),
        ("jobs", {"where": " and ".join(["Sequence = 1"] * 9)}, "at most 8 comparisons"),
        ("jobs", {"where": "Sequence = 1 and"}, "where can't be read"),
        ("jobs", {"sort": "Owner", "after": "x"}, "leave out sort"),
        ("jobs", {"since": "nan"}, "since is a number"),
        (f"{job(0)}/series", {}, "metrics is missing"),
        (f"{job(0)}/series", {"metrics": "Owner"}, "metrics can't be Owner"),
        ("summary", {"by": "shoe"}, "write owner, group"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(hub: Hub, path: str, asked: dict[str, Any], why: str) -> None:
    status, answer, text = api(hub, "alice", path, **asked)
    assert status == 400 and list(answer) == ["error"] and why in answer["error"], text


def test_strangers_and_other_methods_get_json(hub: Hub) -> None:
    for path in ("/api/v1/jobs", "/api/v1/schema", "/api/v2/jobs", "/api/"):
        status, answer, _ = ask(hub, "mallory", path)
        assert status == 401 and list(answer) == ["error"]
    assert ask(hub, "", "/api/v1/jobs")[0] == 401
    status, answer, _ = ask(hub, "alice", "/api/v2/jobs")
    assert status == 404 and "/api/v1/jobs" in answer["error"]
    assert api(hub, "alice", "job/none")[0] == 404


def test_the_schema_is_that_of_the_records(hub: Hub) -> None:
    _, answer, _ = api(hub, "alice", "schema")
    assert [column["name"] for column in answer["columns"]] == list(COLUMNS)
    metric = next(column for column in answer["columns"] if column["name"] == "Cpu.Seconds")
    assert (metric["unit"], metric["behaviour"], metric["level"], metric["seen"]) == (
        "seconds", "counter", "basic", "numbers",
    )  # fmt: skip
    status, whole, text = api(hub, "alice", job(0))
    assert status == 200 and set(whole["job"]) >= set(COLUMNS), text


# --- tokens, and who did what


def by_token(hub: Hub, secret: str, path: str, **words: Any) -> tuple[int, dict[str, Any], str]:
    return ask(hub, "", f"/api/v1/{path}", secret=secret, **words)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("person", ["Alice", "Mona", "Olga", "Adam"])
def test_a_token_does_what_its_person_may_within_its_scope(hub: Hub, person: str) -> None:
    _, secret = token(hub, person, "jobs")
    for path, asked in (WALK[0], WALK[-1]):
        by_person, told = api(hub, person.lower(), path, **asked), by_token(hub, secret, path, **asked)
        for one in (by_person, told):
            one[1].pop("time")
        assert by_person[:2] == told[:2]
    _, sums = token(hub, person, "summary")
    assert by_token(hub, sums, "summary")[0] == by_token(hub, sums, "schema")[0] == 200
    for path in ("jobs", job(0), f"{job(0)}/series"):
        status, answer, _ = by_token(hub, sums, path, **({"metrics": "Cpu.Seconds"} if "series" in path else {}))
        assert status == 403 and "it is for summary" in answer["error"]


def test_a_token_for_his_own_jobs_shows_a_manager_his_own_alone(hub: Hub) -> None:
    _, secret = token(hub, "Mona", "jobs,own")
    assert [row["JobId"] for row in by_token(hub, secret, "jobs", state="all")[1]["jobs"]] == ["9.3"]
    _, secret = token(hub, "Adam", "jobs,own")
    assert by_token(hub, secret, "jobs", state="all")[1]["jobs"] == []


def test_a_token_is_over_when_it_was_ended_and_when_its_person_is_gone(hub: Hub) -> None:
    number, secret = token(hub, "Alice", "jobs")
    assert by_token(hub, secret, "jobs")[0] == 200
    new = hub.people.with_name("people.new")
    try:
        new.write_text(PEOPLE.replace("[Alice]", "[Alicia]"))
        new.replace(hub.people)
        assert by_token(hub, secret, "jobs")[0] == 401
    finally:
        new.write_text(PEOPLE)
        new.replace(hub.people)
    assert by_token(hub, secret, "jobs")[0] == 200
    assert access(hub, "token", "end", number).returncode == 0
    assert by_token(hub, secret, "jobs")[0] == 401
    assert access(hub, "token", "end", number).returncode == 1
    assert f"{number} over" in access(hub, "token", "list").stdout.replace("  ", " ")


def test_who_shows_a_token_is_nobody_else_and_it_opens_no_page(hub: Hub) -> None:
    _, secret = token(hub, "Alice", "jobs")
    assert ask(hub, "adam", "/api/v1/jobs", secret="wrong")[0] == 401, "whatever the proxy says"
    found = ask(hub, "adam", "/api/v1/jobs", secret=secret, state="all")[1]["jobs"]
    assert [row["JobId"] for row in found] == ["9.0"]
    assert ask(hub, "", "/jobs.json", secret=secret)[0] == 401
    status, answer, _ = api(hub, "alice", "jobs", token=secret)
    assert status == 400 and "never into an address" in answer["error"]
    assert secret.encode() not in (hub.folder / "kept/access.sqlite3").read_bytes()
    assert secret not in hub.log.read_text(errors="replace")


def test_log_ins_tokens_and_administrators_looks_are_noted(hub: Hub) -> None:
    number, secret = token(hub, "Adam", "jobs")
    by_token(hub, secret, "jobs", state="all", owner="bob")
    ask(hub, "adam", "/job/" + urllib.parse.quote(run_name(1), safe=""))
    ask(hub, "olga", "/jobs")
    rows = [line.split("\t")[1:] for line in access(hub, "audit").stdout.splitlines()]
    made = pwd.getpwuid(65534).pw_name
    assert [f"unix:{made}", "token made", f"{number} of Adam, jobs, for 90 days"] in [row[:3] for row in rows]
    assert ["Adam", "log-in", f"token:{number}"] in rows and ["Olga", "log-in", "remote:olga"] in rows
    looks = [about for who, what, about in rows if (who, what) == ("Adam", "look")]
    assert "/job/ap.example.org%239.1%231700000000%231" in looks and any(
        one.startswith("/api/v1/jobs") for one in looks
    )
    assert not any(what == "look" for who, what, _ in rows if who != "Adam")


def test_what_can_t_be_noted_is_not_shown(hub: Hub) -> None:
    file = hub.folder / "kept/access.sqlite3"
    aside = file.with_name("aside")
    _, secret = token(hub, "Alice", "jobs")
    file.rename(aside)
    try:
        file.write_bytes(b"no database at all" * 100)
        status, answer, text = ask(hub, "adam", "/jobs.json", q="never looked at")
        assert (status, answer) == (503, {"error": "the hub can't note who asks for now"}), text
        assert by_token(hub, secret, "jobs")[0] == 503
        assert ask(hub, "adam", "/jobs", q="never seen")[0] == 503
    finally:
        aside.rename(file)
    assert by_token(hub, secret, "jobs")[0] == 200


def test_the_file_of_tokens_is_the_hubs_users_alone(hub: Hub) -> None:
    done = subprocess.run(
        [os.path.realpath(sys.executable), "-m", "condor_joblens.hub.access_command", "token", "list",
         "--folder", f"{hub.folder}/kept"],
        env={**os.environ, **hub.environment()}, capture_output=True, text=True, timeout=120, cwd="/", check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "run this as that user" in done.stderr
    assert (hub.folder / "kept/access.sqlite3").stat().st_mode & 0o777 == 0o600


DOCUMENT = document(ENDPOINTS)


@pytest.mark.parametrize("path", DOCUMENT["paths"])
def test_other_methods_are_refused_and_those_that_are_there_are_named(hub: Hub, path: str) -> None:
    where = path.replace("{run}", urllib.parse.quote(run_name(0), safe=""))
    there = set(DOCUMENT["paths"][path])
    for method in {"PUT", "PATCH", "DELETE", "POST"} - {name.upper() for name in there}:
        status, answer, _, head = answered(hub, "adam", where, method)
        assert (status, list(answer)) == (405, ["error"])
        assert {name.lower() for name in head["Allow"].split(", ")} == there
    if "post" in there:  # without a token nothing is posted
        assert ask(hub, "adam", where, "POST")[0] == 403


def test_the_document_is_there_and_the_one_that_was_tested(hub: Hub) -> None:
    assert ask(hub, "alice", "/api/v1/openapi.json")[1] == json.loads(json.dumps(DOCUMENT))
    assert ask(hub, "mallory", "/api/v1/openapi.json")[0] == 401
