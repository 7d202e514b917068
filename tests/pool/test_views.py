"""Files by the names that a job has for them: in a container, and where it has a /tmp of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import NEWEST, Pool
from test_job_kinds import CONTAINER, MAKE_IMAGE

CONFIG = "SINGULARITY_RUN_TEST_BEFORE_JOB = false\nMOUNT_UNDER_SCRATCH = /tmp\n"
JOB = """
executable = /bin/sh
arguments = "-c 'echo $_CONDOR_SCRATCH_DIR >where; echo of its own >/tmp/own; echo said; exec /bin/sleep 600'"
should_transfer_files = yes
queue
"""


@pytest.fixture(scope="module")
def pool(brisk: Pool) -> Iterator[Pool]:
    with brisk.config(CONFIG):
        brisk.shell(MAKE_IMAGE)
        yield brisk


@pytest.mark.parametrize("kind", ["plain", "container"])
def test_a_file_is_found_by_the_name_that_it_has_in_the_job(pool: Pool, kind: str) -> None:
    if kind == "container" and pool.run("which", "apptainer", check=False).returncode != 0:
        assert pool.suite != NEWEST
        pytest.skip("this suite of Debian has no apptainer: the newest one's pool shows it")
    cluster = pool.submit((CONTAINER if kind == "container" else "") + JOB)
    job = f"{cluster}.0"

    def told(*arguments: str) -> str:
        done = pool.run("joblens", *arguments, user="alice", check=False)
        return done.stdout + done.stderr

    pool.until(lambda: told("tail", job) == "said\n", "what it says")
    where = told("cat", job, "where").strip()
    assert told("cat", job, f"{where}/where") == f"{where}\n"
    assert told("head", job, "/tmp/own") == told("tail", job, "/tmp/own") == "of its own\n"
    assert "own" in told("ls", job, "/tmp") and "where" in told("ls", job, where)
    for outside in ("/etc/passwd", "/usr/tmp/own", "/"):
        assert "it is outside of the job's folder" in told("cat", job, outside)
    pool.run("condor_rm", str(cluster))
