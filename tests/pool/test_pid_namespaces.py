"""Jobs with process ids of their own (USE_PID_NAMESPACES): their numbers are those of any job, and so are their deaths.

On the newest HTCondor alone: with cgroups v2, 23.9 cannot start such jobs. It writes the id that a process has in its
own namespace into the slot's cgroup.procs.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import Ad, Pool

OWN_PIDS = "USE_PID_NAMESPACES = true\n"
FORKS = 3
GATE = "/var/lib/joblens-test-pids"
"""A FIFO: a job that reads it waits until somebody writes."""

SHELL = "executable = /bin/sh\n"
JOBS = {
    "well": SHELL + f"arguments = \"-c 'test $$ -le {FORKS} || exit 9; {'/bin/true; ' * FORKS}exit 0'\"\n",
    "at io": SHELL + f'arguments = "-c \'{"/bin/true; " * FORKS}read line <{GATE}; exit 0\'"\n+JobLensLevel = "io"\n',
    "failed": SHELL + "arguments = \"-c '/bin/true; exit 3'\"\n",
    "crashed": SHELL + "arguments = \"-c '/bin/true; kill -SEGV $$'\"\n",
    "removed": SHELL + "arguments = \"-c 'exec sleep 600'\"\n",
}


@pytest.fixture(scope="module")
def jobs(brisk: Pool) -> Iterator[dict[str, int]]:
    """The clusters of the jobs, by name; all have a starter that was started with the knob."""
    brisk.shell(f"rm -f {GATE}; mkfifo {GATE}; chmod 666 {GATE}")
    with brisk.config(OWN_PIDS):
        clusters = {name: brisk.submit(description + "queue\n") for name, description in JOBS.items()}
        brisk.wait_running(clusters["removed"])
        yield clusters


def processes(usage: Ad) -> tuple[int, ...]:
    return tuple(usage["Process"][name] for name in ("Forked", "Executed", "Exited", "Failed", "Signalled"))


@pytest.mark.parametrize("name", ["well", "at io"])
def test_numbers_are_the_jobs_own(brisk: Pool, jobs: dict[str, int], name: str) -> None:
    if name == "at io":
        brisk.until(lambda: brisk.usage(jobs[name]).get("Level") == "io", "its level")
        brisk.shell(f"echo >{GATE}")
    usage = brisk.last_usage(jobs[name])
    assert brisk.job(jobs[name])["ExitCode"] == 0
    assert processes(usage) == (FORKS, 1 + FORKS, 1 + FORKS, 0, 0)
    assert usage["Complete"] and "Note" not in usage and "Death" not in usage


def test_a_job_that_fails_has_a_death(brisk: Pool, jobs: dict[str, int]) -> None:
    usage = brisk.last_usage(jobs["failed"])
    assert usage["Death"] == "sh exited 3" and processes(usage) == (1, 2, 2, 1, 0)
    assert usage["Complete"]


def test_a_signal_is_a_death(brisk: Pool, jobs: dict[str, int]) -> None:
    usage = brisk.last_usage(jobs["crashed"])
    assert usage["Death"] == "SIGSEGV in sh" and "FirstFailure" not in usage
    assert processes(usage) == (1, 2, 2, 0, 1) and usage["Complete"]


def test_a_removed_job_says_so(brisk: Pool, jobs: dict[str, int]) -> None:
    cluster = jobs["removed"]
    usage = brisk.until(lambda: brisk.usage(cluster), "its first numbers")
    assert usage["Process"]["Live"] == 1 and processes(usage)[0] == 0
    brisk.run("condor_rm", str(cluster), user="alice")
    assert str(brisk.last_usage(cluster)["Death"]).startswith("ended by HTCondor")
