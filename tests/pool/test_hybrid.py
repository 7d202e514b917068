"""A machine with version 1 and 2 of cgroups mixed: HTCondor makes no cgroups there, so joblensd makes one a job."""

from __future__ import annotations

import os

import pytest
from harness import started

CHILDREN = 200

JOB = f"""
executable = /bin/sh
arguments = "-c 'i=0; while [ $i -lt {CHILDREN} ]; do /bin/true; i=$((i+1)); done; echo 1'"
queue 2
"""


def test_jobs_are_counted_in_cgroups_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CGROUPS", "hybrid")
    with started(f"{os.environ.get('POOL') or 'test'}-hybrid") as pool:
        assert "joblensd stays root: HTCondor makes no cgroups on this machine" in pool.log("JobLensdLog")
        pool.make_wrappers_patient()
        cluster = pool.submit(JOB)
        for process in range(2):
            usage = pool.last_usage(cluster, process)
            assert (usage["Process"]["Forked"], usage["Process"]["Exited"]) == (CHILDREN, CHILDREN + 1)
            assert usage["Complete"]
        find = "find /sys/fs/cgroup/unified/joblens -ignore_readdir_race -mindepth 1 -type d"
        pool.until(lambda: pool.shell(find) == "", "a job's cgroup to be removed with its last process")
        assert "Cannot" not in pool.output(cluster) and pool.output(cluster) == "1\n"
