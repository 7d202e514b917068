"""A trigger that ships, at work on a real job: what it says comes into the job's ad, and its child into nobody's."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Pool

SHIPPED = Path(__file__).resolve().parents[2] / "lua_policies" / "triggers"
READ = "configuration read again"
JOB = """executable = /bin/bash
arguments = "-c 'while sleep 1; do ( exec -a -bash /bin/bash -c true ); done'"
queue
"""
"""A login shell each second: on a busy node, arguments of a few can be withheld (docs/triggers.md)."""


@pytest.fixture(scope="module")
def pool(brisk: Pool) -> Iterator[Pool]:
    """The pool, with all triggers that ship in the folder that counts."""
    folder = brisk.root / "etc/joblens/triggers.d"
    folder.mkdir(parents=True, exist_ok=True)
    for path in SHIPPED.glob("*.lua"):
        shutil.copy(path, folder)
    before = brisk.log("JobLensdLog").count(READ)
    brisk.run("condor_reconfig")
    brisk.until(lambda: brisk.log("JobLensdLog").count(READ) > before, "joblensd to have read the triggers")
    try:
        yield brisk
    finally:
        for path in folder.glob("*.lua"):
            path.unlink()
        brisk.run("condor_reconfig")


def test_a_login_shell_in_a_job_is_noted_in_its_ad(pool: Pool) -> None:
    cluster = pool.submit(JOB)
    words = "a login shell runs in this job: bash"
    usage = pool.until(lambda: found if words in (found := pool.usage(cluster)).get("Note", "") else {}, "the note")
    assert words in usage["Note"]
    log = pool.log("JobLensdLog")
    assert "trigger 70-login-shell.lua:3: a login shell runs in this job" in log
    assert "trigger not in force" not in log and "the triggers' child" not in log
