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
            os.kill(int((folder / "pid").read_text()), 15)


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


def test_it_runs_as_its_own_user_and_goes_on_after_kill_9(hub: HubPages, brisk: Pool) -> None:
    (before,) = _processes(brisk)
    assert brisk.run("ps", "-o", "user=", "-p", before).stdout.strip() == "joblens"
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
