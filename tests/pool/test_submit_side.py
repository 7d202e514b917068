"""What a submit file can ask of JobLens, and what an access point makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Ad, Pool

SLEEP = "executable = /bin/sleep\narguments = 600\n"
TRANSFORMS = Path(__file__).resolve().parents[2] / "condor_config.d" / "60-joblens-transforms.conf.example"

JOBS = {
    "everything": ("alice", '+JobLensLevel = "io"\n+JobLensPeriod = 20\n+JobLensNote = "calibration v3"\n'),
    "too much": ("alice", '+JobLensLevel = "trace"\n+JobLensPeriod = 0.001\n'),
    "nonsense": ("alice", '+JobLensLevel = "all"\n+JobLensPeriod = "often"\n+JobLensNote = {1, 2}\n'),
    "hostile": ("alice", '+JobLensNote = "\\x1b[31m\\"; rm -rf / \\n' + "x" * 5000 + '"\n'),
    "production": ("alice", "accounting_group = group_production.mc\n"),
    "stripped": ("bob", '+JobLensLevel = "io"\n'),
    "long": ("bob", f'+JobLensNote = "{"n" * 100}"\n'),
}


@pytest.fixture(scope="module")
def pool(brisk: Pool) -> Iterator[Pool]:
    names = ("condor_config_val", "-schedd", "JOB_TRANSFORM_NAMES")
    with brisk.config(TRANSFORMS.read_text()):
        brisk.until(
            lambda: "JobLensClean" in brisk.run(*names, check=False).stdout, "the schedd to have the transforms"
        )
        yield brisk


@pytest.fixture(scope="module")
def jobs(pool: Pool) -> dict[str, int]:
    return {name: pool.submit(f"{SLEEP}{text}queue", user) for name, (user, text) in JOBS.items()}


def usage(pool: Pool, cluster: int, level: str, note: str = "") -> Ad:
    """JobLensUsage once it has been decided about: the first numbers can come before that."""

    def decided() -> Ad:
        found = pool.usage(cluster)
        return found if found.get("Level") == level and note in found.get("Note", "") else {}

    return pool.until(decided, f"job {cluster} at level {level}, and the note: {note}")


def row(pool: Pool, cluster: int) -> Ad:
    """What joblensd says of the job on its node."""

    def found() -> Ad:
        told = json.loads(pool.run("joblens", "status", "--json").stdout)["Jobs"]
        return next((job for job in told if f'"{cluster}.0"' in json.dumps(job)), {})

    return pool.until(found, f"job {cluster} on its node")


def test_level_period_and_note_are_taken(pool: Pool, jobs: dict[str, int]) -> None:
    ad = usage(pool, jobs["everything"], "io")
    assert (ad["Level"], ad["Requested"], ad["PeriodSeconds"]) == ("io", '"io"', 20.0)
    assert (ad["Policy"], ad["Reason"]) == ("as asked", "the job asked for it")
    assert "calibration v3" in json.dumps(row(pool, jobs["everything"]))


def test_who_asks_for_more_than_allowed_gets_what_is_allowed_and_is_told(pool: Pool, jobs: dict[str, int]) -> None:
    ad = usage(pool, jobs["too much"], "io")
    assert (ad["Level"], ad["Requested"]) == ("io", '"trace"')
    assert ad["Note"].startswith('JobLensLevel = "trace" is above this site\'s JOBLENS_MAX_LEVEL = io: capped')
    assert ad["PeriodSeconds"] == 1.0, "never more often than the node"


def test_nonsense_is_as_if_nothing_was_asked(pool: Pool, jobs: dict[str, int]) -> None:
    ad = usage(pool, jobs["nonsense"], "basic", 'JobLensLevel = "all" is not a level')
    assert ad["PeriodSeconds"] == 1.0


def test_a_note_is_bounded_and_reaches_no_terminal_as_it_is(pool: Pool, jobs: dict[str, int]) -> None:
    told = json.dumps(row(pool, jobs["hostile"]))
    assert "x" * 200 not in told
    said = pool.run("joblens", "status").stdout + pool.run("joblens", "job", f"{jobs['hostile']}.0").stdout
    assert "\x1b" not in said


def test_an_access_point_sets_and_strips_what_jobs_ask_for(pool: Pool, jobs: dict[str, int]) -> None:
    usage(pool, jobs["production"], "io")
    assert pool.job(jobs["stripped"])["JobLensLevelAsked"] == "io"
    ad = usage(pool, jobs["stripped"], "basic")
    assert (ad["Level"], "Requested" in ad, "not a level" in ad.get("Note", "")) == ("basic", False, False)
    assert pool.job(jobs["long"])["JobLensNote"] == "n" * 80


def test_a_job_in_the_queue_keeps_what_it_asked_for(pool: Pool, jobs: dict[str, int]) -> None:
    refused = pool.run("condor_qedit", f"{jobs['nonsense']}.0", "JobLensLevel", '"io"', user="alice", check=False)
    assert refused.returncode != 0
    assert pool.job(jobs["nonsense"])["JobLensLevel"] == "all"
