"""A job that is over before its startd could confirm its ad: what it told of its end is its owner's all the same."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from harness import Pool

SCRIPT = "/home/alice/fails_at_once.py"
ASKS_STARTD = "joblens_ask_startd 1[0]"
"""Of the command line of what asks the startd; not of the command that looks for it."""


@pytest.fixture
def unconfirmed(brisk: Pool) -> Iterator[str]:
    """The id of such a job of alice, which asked for the traceback of its Python."""
    (brisk.root / SCRIPT.lstrip("/")).write_text('raise LookupError("no such run")\n')
    with brisk.config("JOBLENS_MAX_LEVEL = trace"):
        brisk.run("joblens", "restart")
        brisk.until(lambda: brisk.run("joblens", "status", check=False).returncode == 0, "joblensd")
        asks = brisk.until(lambda: brisk.run("pgrep", "-f", ASKS_STARTD, check=False).stdout.split(), "who asks")
        brisk.run("kill", "-STOP", *asks)
        try:
            cluster = brisk.submit(
                f"executable = /usr/bin/python3\narguments = {SCRIPT}\n"
                '+JobLensLevel = "trace"\n+JobLensTrace = "python:raises"\nqueue'
            )
            brisk.wait_ended(cluster)
        finally:
            brisk.run("kill", "-CONT", *asks)
        yield f"{cluster}.0"
    brisk.run("joblens", "restart")


def test_its_traceback_is_its_owners_who_is_told_that_its_name_is_not_sure(brisk: Pool, unconfirmed: str) -> None:
    ask = ("joblens", "crash", unconfirmed)
    said = brisk.until(lambda: brisk.run(*ask, user="alice", check=False).stdout, "its traceback")
    head, *_, last = said.splitlines()
    assert "of this job by its own ad" in head and last == "LookupError: no such run"
    assert brisk.run(*ask).stdout == said, "root is told the same"
    (told,) = json.loads(brisk.run(*ask, "--json", user="alice").stdout)
    assert f"#{unconfirmed}#" in told["ClaimedRun"] and told["Run"].startswith("slot1_1#?.?#")
    assert "nothing is kept" in brisk.run(*ask, user="bob", check=False).stderr
    # the history has it only if the starter has looked in time, and the node knows no such job
    (slot, *_) = told["Run"].split("#")
    usage = json.loads(brisk.run("joblens", "job", slot, "--json").stdout)["Job"]["JobLensUsage"]
    assert usage["Run"] == told["Run"] and "LookupError: no such run (fails_at_once.py:1)" in usage["Death"]
