"""Where programs in the kernel can't be had, numbers come from /proc: less exact, and it is said."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator

import pytest
from harness import Ad, Pool, started
from truth import WORKER, worked

from condor_joblens.model.metrics import METRICS
from condor_joblens.tracer.procfs import UNKNOWN

END = "/home/alice/end-of-procfs-worker"
WITHOUT_BPF = "/usr/local/sbin/joblensd-without-bpf"
SCRIPT = """#!/bin/sh
exec setpriv --bounding-set -bpf,-perfmon,-sys_admin /usr/libexec/condor/joblensd "$@"
"""
BRISK = """
STARTER_INITIAL_UPDATE_INTERVAL = 2
STARTER_UPDATE_INTERVAL = 3
SHADOW_QUEUE_UPDATE_INTERVAL = 2
JOBLENS_AD_PERIOD = 2
JOBLENS_PRESSURE_PERIOD = 2
"""

JOBS = 200

SMALL = 20_000
"""Bytes that a process may have read before its last moments were not seen."""


@contextlib.contextmanager
def joblensd_with(pool: Pool, lines: str) -> Iterator[None]:
    """The pool with these lines in its configuration, and a joblensd that was started with them."""
    with pool.config(BRISK + lines):
        restart(pool)
        yield
        pool.clean()


def restart(pool: Pool) -> None:
    said = pool.log("JobLensdLog").count("watches jobs below")
    pool.run("condor_off", "-subsystem", "joblensd")
    pool.until(lambda: pool.log("JobLensdLog").rstrip().endswith("stopped"), "joblensd to stop")
    pool.run("condor_on", "-subsystem", "joblensd")
    pool.until(lambda: pool.log("JobLensdLog").count("watches jobs below") > said, "joblensd to start")


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with started(f"{os.environ.get('POOL') or 'test'}-procfs") as pool:
        pool.make_wrappers_patient()
        yield pool


@pytest.fixture(params=["by the knob", "by itself"])
def without_bpf(pool: Pool, request: pytest.FixtureRequest) -> Iterator[Pool]:
    """The pool without programs in the kernel: because its administrator says so, or because they are refused."""
    (pool.root / WITHOUT_BPF.lstrip("/")).write_text(SCRIPT)
    pool.run("chmod", "755", WITHOUT_BPF)
    knob = "JOBLENS_SOURCE = procfs" if request.param == "by the knob" else f"JOBLENSD = {WITHOUT_BPF}"
    with joblensd_with(pool, knob):
        yield pool


def test_a_job_s_numbers_come_from_proc_and_say_so(without_bpf: Pool, request: pytest.FixtureRequest) -> None:
    pool = without_bpf
    pool.shell(f"rm -f {END}", user="alice")
    cluster = pool.submit(WORKER + f"{END}\nqueue")
    running = pool.until(lambda: worked(pool.usage(cluster)), "numbers of the running job")
    assert (running["Source"], running["Complete"], running["Final"]) == ("procfs", False, False)
    assert running["Note"].startswith("numbers are from /proc, less exact")
    assert (running["Process"]["Live"], running["Level"]) == (1, "basic")
    assert running["Memory"]["ResidentBytes"] > 5 << 20
    pool.shell(f"touch {END}", user="alice")
    (ended,) = pool.wait_ended(cluster)
    usage = ended.get("JobLensUsage")
    if not usage or not is_final(usage):  # on a busy node the starter can look first: its node has the last numbers
        usage = pool.last_usage_on_node(cluster)
    check(usage, json.loads(pool.output(cluster)))
    told = pool.run("joblens", "doctor", check=False).stdout
    assert "source: " in told and "level io: not to be had from /proc" in told
    # joblensd's own user can't remove the folder, which is root's to make
    assert pool.shell("find /sys/fs/bpf/joblens -mindepth 1 || true") == "", "nothing of ours is in the kernel"


def check(final: Ad, truth: Ad) -> None:
    """What is exact is equal, what is seen now and then is near, and what can't be seen is absent."""
    assert (final["Source"], final["Final"], final["Complete"]) == ("procfs", True, False)
    seconds = truth["Cpu"]["Seconds"]
    assert seconds - 0.02 <= final["Cpu"]["Seconds"] <= 1.1 * seconds + 0.05, "its children's are in it"
    assert 100 * 65536 <= final["Io"]["CallWriteBytes"] <= truth["Io"]["CallWriteBytes"]
    read = truth["Io"]["CallReadBytes"]
    assert read - SMALL <= final["Io"]["CallReadBytes"] <= read
    assert final["Process"] == {"Live": 0, "Threads": 0, "Runnable": 0, "Uninterruptible": 0}
    assert 0 < final["Memory"]["LargestProcessPeakBytes"] <= truth["Memory"]["LargestProcessPeakBytes"]
    absent = [metric for metric in METRICS if metric.column in UNKNOWN]
    assert not [metric.path for metric in absent if metric.name in final.get(metric.group, {})]


def test_a_job_that_asks_for_more_gets_basic_and_is_told(pool: Pool) -> None:
    with joblensd_with(pool, "JOBLENS_SOURCE = procfs"):
        cluster = pool.submit('executable = /bin/sleep\narguments = 1000\n+JobLensLevel = "io"\nqueue')
        said = "level io is unavailable"  # after what the startd has confirmed, which a busy one does late
        usage = pool.until(lambda: found if said in (found := pool.usage(cluster)).get("Note", "") else {}, "the note")
        assert usage["Level"] == "basic"
        assert not {"Syscall", "Fs", "Wait", "Errors"} & set(usage)


def test_jobs_are_counted_when_their_wrapper_calls(pool: Pool) -> None:
    """The wrapper is answered at once, and what it did itself is not its job's."""
    with joblensd_with(pool, "JOBLENS_SOURCE = procfs"):
        cluster = pool.submit("executable = /bin/sh\narguments = \"-c 'sleep 6; head -c 1000000 /dev/zero'\"\nqueue 3")
        pool.wait_ended(cluster)
        usages = [pool.last_usage_on_node(cluster, process) for process in range(3)]
        assert len({usage["Run"] for usage in usages}) == 3
        for usage in usages:
            # the shell read its own libraries after the answer; the wrapper's shell and helper read more than that
            assert usage["Io"]["CallReadBytes"] < 2_000_000
            assert is_final(usage)


def is_final(usage: Ad) -> bool:
    """Whether these are a job's last numbers. The ad of a job that has ended says so if they are not."""
    assert usage["Source"] == "procfs" and "without Final the last ones are missing" in usage["Note"]
    return bool(usage["Final"])


@pytest.mark.soak
def test_last_numbers_of_nineteen_of_twenty_jobs_that_end_together_are_in_the_history(pool: Pool) -> None:
    with joblensd_with(pool, "JOBLENS_SOURCE = procfs"):
        cluster = pool.submit(f"executable = /bin/sleep\narguments = 3\nqueue {JOBS}")
        pool.until(lambda: not pool.jobs(cluster), "the jobs to end", seconds=600)
        ads = pool.until(lambda: len(found := pool.history(cluster)) == JOBS and found, "all of them in the history")
        final = sum(is_final(ad["JobLensUsage"]) for ad in ads)
        print(f"{final} of {JOBS} jobs have their last numbers in the history")
        assert final >= 0.95 * JOBS


def test_back_to_programs_in_the_kernel_a_running_job_goes_on(pool: Pool) -> None:
    pool.shell(f"rm -f {END}", user="alice")
    with joblensd_with(pool, "JOBLENS_SOURCE = procfs"):
        cluster = pool.submit(WORKER + f"{END}\nqueue")
        before = pool.until(lambda: worked(pool.usage(cluster)), "numbers of the running job")
        with pool.config("JOBLENS_SOURCE = bpf"):
            restart(pool)
            after = pool.until(
                lambda: (usage := pool.usage(cluster)).get("Source") == "bpf" and usage, "numbers from the kernel"
            )
        assert after["Run"] == before["Run"] and after["Complete"] is False
        for group, name in (("Cpu", "Seconds"), ("Io", "CallReadBytes"), ("Io", "CallWriteBytes")):
            assert after[group][name] >= before[group][name]
        pool.shell(f"touch {END}", user="alice")
        pool.wait_ended(cluster)
