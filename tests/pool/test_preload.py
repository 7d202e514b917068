"""A library in a job's LD_PRELOAD works in the wrapper's shell: that is counted and said; honest jobs are exact."""

from __future__ import annotations

import subprocess

import pytest
from harness import SCRIPTS, Ad, Pool

CHECKOUT = SCRIPTS.parents[1]
INSIDE = "/usr/src/condor_joblens"
LIBRARY = "build/test_preload.so"


@pytest.fixture(scope="module", autouse=True)
def library() -> None:
    source, built = CHECKOUT / "tests/kernel/preload.c", CHECKOUT / LIBRARY
    part = built.with_suffix(".part")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-pthread", source, "-o", part, "-ldl"], check=True)
    part.rename(built)


def ended(pool: Pool, **environment: str) -> Ad:
    """What is told of a job of one program, after its end."""
    words = " ".join(f"{name}={value}" for name, value in environment.items())
    cluster = pool.submit(f'executable = /bin/true\nenvironment = "{words}"\nqueue')
    (ad,) = pool.wait_ended(cluster)
    assert ad["ExitCode"] == 0
    return pool.last_usage(cluster)


def processes(usage: Ad) -> tuple[int, int, int]:
    return usage["Process"]["Forked"], usage["Process"]["Executed"], usage["Process"]["Exited"]


@pytest.mark.parametrize("environment", [{}, {"LD_PRELOAD": f"{INSIDE}/{LIBRARY}"}], ids=["none", "harmless"])
def test_an_honest_job_is_complete(brisk: Pool, environment: dict[str, str]) -> None:
    usage = ended(brisk, **environment)
    assert processes(usage) == (0, 1, 1)
    assert usage["Complete"] and "Note" not in usage


@pytest.mark.parametrize("late", [{}, {"JOBLENS_PRELOAD_LATE": "1"}], ids=["before the call", "after it"])
def test_what_a_preload_forks_in_the_wrapper_is_counted_and_said(brisk: Pool, late: dict[str, str]) -> None:
    usage = ended(brisk, LD_PRELOAD=f"{INSIDE}/{LIBRARY}", JOBLENS_PRELOAD="fork", **late)
    # five of the library's; the helper; and the job, in the shell's process
    assert processes(usage) == (6, 3, 7)
    assert not usage["Complete"] and "more than its wrapper ran before the job" in usage["Note"]


def test_cpu_time_of_a_preload_is_not_hidden(brisk: Pool) -> None:
    usage = ended(brisk, LD_PRELOAD=f"{INSIDE}/{LIBRARY}", JOBLENS_PRELOAD="spin")
    assert usage["Cpu"]["Seconds"] >= 1 and not usage["Complete"]


def test_programs_that_a_preload_starts_are_counted(brisk: Pool) -> None:
    usage = ended(brisk, LD_PRELOAD=f"{INSIDE}/{LIBRARY}", JOBLENS_PRELOAD="exec")
    # two of the library's, a shell and what it becomes
    assert processes(usage) == (2, 5, 3) and not usage["Complete"]
