"""What the schedd writes of a job's life is on the hub's pages: of a real job that waits, is held, runs and ends."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from harness import CHECKOUT, SCRIPTS, Pool
from hub_pages import HubPages

EXAMPLE = CHECKOUT / "condor_config.d/60-joblens-eventlog.conf.example"
JOB = """
executable = /bin/sh
arguments = "-c 'exit 3'"
should_transfer_files = yes
requirements = false
queue
"""


@pytest.fixture(scope="module")
def hub(brisk: Pool) -> Iterator[HubPages]:
    """With the product's own example as the pool's configuration."""
    with tempfile.TemporaryDirectory(prefix="joblens-hub-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        subprocess.run([SCRIPTS / "demo_hub", folder], env={**os.environ, "POOL": brisk.name}, check=True)
        try:
            address = (folder / "demo/records").read_text().strip()
            carried = [sys.executable, SCRIPTS / "network.py", brisk.root.parent.name, address]
            token, lines = "/etc/joblens/hub.token", f"JOBLENS_SINK_HUB_URL = http://{address}"
            with subprocess.Popen(carried) as bridge:
                put = ("install", "-m", "640", "-g", "joblens", "/dev/stdin", token)
                brisk.run(*put, input=(folder / "demo/node.token").read_text())
                with brisk.config(f"{EXAMPLE.read_text()}\n{lines}"):
                    yield HubPages(str(folder / "demo"))
                bridge.terminate()
        finally:
            process = int((folder / "pid").read_text())
            os.kill(process, 15)
            brisk.until(lambda: not Path(f"/proc/{process}").exists(), "the hub to end")


def test_a_job_s_life_from_its_submission_to_its_end(hub: HubPages, brisk: Pool) -> None:
    cluster = str(brisk.submit(JOB))
    name = brisk.job(int(cluster))["GlobalJobId"]

    def is_in(state: str) -> Any:
        return brisk.until(lambda: _found(hub, name, state), f"the hub to know that it is {state}")

    is_in("idle")
    brisk.run("condor_hold", cluster, "-reason", "<b>wait</b>", user="alice")
    held = is_in("held")
    assert held["job"]["Owner"] == "alice" and "<b>wait</b>" in held["job"]["Reason"]
    assert f"{cluster}.0" in {row["JobId"] for row in hub.ask("/jobs.json?state=held")["jobs"]}
    assert hub.ask("/site.json")["queue"]["site"]["held"] >= 1
    brisk.run("condor_release", cluster, user="alice")
    is_in("idle")
    brisk.run("condor_qedit", cluster, "Requirements", "true", user="alice")
    steps = is_in("ended")["life"]
    kinds = [step["kind"] for step in steps]
    assert kinds[:3] == ["submit", "hold", "release"] and kinds[-1] == "end", kinds
    assert "execute" in kinds and "input transfer" in kinds and kinds == list(dict.fromkeys(kinds)), kinds
    assert steps[-1]["words"] == "exit code 3"


MANY = """
executable = /bin/sleep
arguments = 600
requirements = {requirements}
hold = {hold}
queue {jobs}
"""
STATES = {"idle": 1, "held": 5}
"""As condor_q has them: JobStatus."""


def test_the_hub_counts_as_condor_q_does(hub: HubPages, brisk: Pool) -> None:
    """Of these clusters: what was in the queue before the log began, the hub can't know."""
    clusters = [
        str(brisk.submit(MANY.format(requirements=requirements, hold=hold, jobs=jobs)))
        for requirements, hold, jobs in (("false", "false", 3), ("true", "true", 4), ("true", "false", 2))
    ]

    def in_queue() -> dict[str, set[str]]:
        lines = brisk.run("condor_q", "-all", *clusters, "-af:j", "JobStatus").stdout.splitlines()
        jobs = [line.split() for line in lines]
        return {state: {job for job, status in jobs if status == str(number)} for state, number in STATES.items()}

    def on_hub() -> dict[str, set[str]]:
        return {state: {job for job in listed(hub, state) if job.split(".")[0] in clusters} for state in STATES}

    def are_as_many(held: int, idle: int) -> bool:
        before = in_queue()
        counted = {state: len(jobs) for state, jobs in before.items()}
        return counted == {"held": held, "idle": idle} and before == on_hub() == in_queue()

    try:
        brisk.until(lambda: are_as_many(held=4, idle=3), "the hub to have what condor_q has")
        sums = hub.ask("/api/v1/queue")["site"]
        assert {state: sums[state] for state in STATES} == {state: len(listed(hub, state)) for state in STATES}
        brisk.run("condor_hold", clusters[2], user="alice")
        brisk.until(lambda: are_as_many(held=6, idle=3), "both to know of other holds")
    finally:
        brisk.run("condor_rm", *clusters, user="alice")
    brisk.until(lambda: are_as_many(held=0, idle=0), "both to know that they are gone")


def listed(hub: HubPages, state: str) -> list[str]:
    """Jobs that the hub has in it, by JobId."""
    return [row["JobId"] for row in hub.ask(f"/api/v1/queued?state={state}")["jobs"]]


def test_it_runs_as_its_own_user_and_goes_on_after_kill_9(hub: HubPages, brisk: Pool) -> None:
    (before,) = _processes(brisk)
    assert brisk.run("ps", "-o", "user=", "-p", before).stdout.strip() == "joblens"
    doctor = brisk.run("joblens", "doctor", check=False).stdout
    assert f"ok    event log: runs as process {before}, and" in doctor, doctor
    brisk.run("kill", "-9", before)
    cluster = brisk.submit(JOB)
    name = brisk.job(cluster)["GlobalJobId"]
    brisk.until(lambda: _found(hub, name, "idle"), "the hub to know the job")
    assert _processes(brisk) != [before]
    brisk.run("condor_rm", str(cluster), user="alice")
    removed = brisk.until(lambda: _found(hub, name, "removed"), "the hub to know that it is gone")
    assert [step["kind"] for step in removed["life"]] == ["submit", "remove"]


def _found(hub: HubPages, name: str, state: str) -> Any:
    """The job's page as JSON, once it has that state."""
    try:
        found = hub.ask(f"/queued/{quote(name, safe='')}.json")
    except AssertionError:  # it is not there yet
        return None
    return found if found["job"]["State"] == state else None


def _processes(pool: Pool) -> list[str]:
    return pool.run("pgrep", "-f", "condor_joblens[.]eventlog", check=False).stdout.split()
