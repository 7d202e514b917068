"""The pool itself: what it promises to tests and to `make pool`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from harness import CACHE, SCRIPTS, Pool, started


def cgroups(name: str) -> list[Path]:
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    top = next(Path(mount[1]) for mount in mounts if mount[2] == "cgroup2")
    return list(top.glob(f"joblens-pool-{name}"))


def mounted(name: str) -> bool:
    """Whether any process still sees a mount of that pool's files."""
    tables = [str(path) for path in Path("/proc").glob("[0-9]*/mountinfo")]
    return subprocess.call(["grep", "-qsF", f"{CACHE}/pools/{name}/", *tables]) == 0


def test_run_passes_input_output_and_exit_code_on(pool: Pool) -> None:
    done = pool.run("sh", "-c", "cat; id -un; exit 7", user="alice", input="from outside\n", check=False)
    assert (done.stdout, done.returncode) == ("from outside\nalice\n", 7)


def test_run_keeps_arguments_as_they_are(pool: Pool) -> None:
    arguments = ["a b", "", "c'd\"e", "f\ng", "$HOME", "*"]
    assert pool.run("printf", "%s\\0", *arguments).stdout.split("\0")[:-1] == arguments


def test_run_in_a_pool_that_does_not_run_says_how_to_start_it() -> None:
    done = subprocess.run([SCRIPTS / "run", "--pool", "nobody", "true"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "run: the pool nobody is not running: start it with: make pool\n"


@pytest.mark.every_suite
def test_reporting_intervals_are_the_stock_ones(pool: Pool) -> None:
    with pool.config("JOBLENS_TEST = $(UPDATE_INTERVAL) $(STARTER_INITIAL_UPDATE_INTERVAL)"):
        assert pool.run("condor_config_val", "JOBLENS_TEST").stdout.split() == ["300", "8"]
    assert pool.run("condor_config_val", "JOBLENS_TEST", check=False).returncode != 0


@pytest.mark.every_suite
def test_a_job_runs_in_a_cgroup_of_its_slot_and_reaches_the_history(pool: Pool) -> None:
    cluster = pool.submit("executable = /bin/cat\narguments = /proc/self/cgroup\nqueue")
    (ad,) = pool.wait_ended(cluster)
    assert ad["ExitCode"] == 0
    assert "execute_slot1_" in pool.output(cluster).splitlines()[-1]


def test_a_second_pool_beside_the_first_and_nothing_left_of_it_after_a_crash(pool: Pool) -> None:
    name = f"{pool.name}-beside"
    with started(name, install=False) as second:
        assert second.shell("hostname") == f"pool-{name}\n"
        assert pool.shell("hostname") == f"pool-{pool.name}\n"
        os.kill(int((CACHE / "pools" / name / "pid").read_text()), 9)
    # and once more, with nothing there
    subprocess.run([SCRIPTS / "stop"], env={**os.environ, "POOL": name}, check=True)
    assert not cgroups(name)
    assert not mounted(name)
    assert pool.shell("hostname") == f"pool-{pool.name}\n"
