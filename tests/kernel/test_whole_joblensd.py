"""A whole joblensd, as condor_master starts it: a job calls it by the real wrapper, and is sampled at level profile.

On a kernel that has stacks by frame pointers alone, ad, rows and pictures say so.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import new_name
from ground import guessed_programs, is_native, until
from whole_node import NODE, SECONDS, Job, WholeNode, whole_node

from condor_joblens.common import kernel_limits
from condor_joblens.jobs.cgroups import Tree

pytestmark = [
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="unwind tables are read on x86-64 alone"),
]

ENOUGH = 30
"""Samples; emulated CPUs take them slowly."""

PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")

CALLERS = ["main", "outer", "middle", "middle"]
"""Of profiled.cc, the outermost first."""


@pytest.fixture(scope="module")
def node() -> Iterator[WholeNode]:
    if not is_native():
        PARANOID.write_text("2")  # as the requirements of level profile have it
    with whole_node(new_name(), JOBLENS_MAX_LEVEL="profile") as found:
        yield found


@pytest.fixture(scope="module")
def job(node: WholeNode) -> Iterator[Job]:
    """One that has asked for level profile and has it."""
    program = NODE / "profiled"  # where its owner can reach it
    program.write_bytes(guessed_programs()["profiled"].read_bytes())
    program.chmod(0o755)
    found = node.start(17, str(program), "plain", JobLensLevel="profile")
    until(lambda: any(each["level"] == b"profile" for each in node.rows(found)), SECONDS)
    yield found
    found.clear()


def limits() -> str:
    """What stacks lack here, in words; empty: nothing."""
    return kernel_limits.of_stacks(os.uname().release)


def test_a_job_behind_the_wrapper_is_watched_as_it_asks_and_said_what_the_kernel_lacks(
    node: WholeNode, job: Job
) -> None:
    words = limits().encode()
    until(lambda: words in node.rows(job)[0]["note"], SECONDS)
    assert words or b"frame pointers" not in node.rows(job)[0]["note"]
    until(lambda: 'Level="profile"' in job.usage().replace(" ", "") and limits() in job.usage(), SECONDS)
    page = node.joblens("job", "17.0")
    assert page.returncode == 0 and "profile" in page.stdout, page
    assert limits() in " ".join(page.stdout.split()), page.stdout


def test_its_samples_have_stacks(node: WholeNode, job: Job) -> None:
    """But for those from before joblensd has looked at the job's program, for which an emulated machine takes long.

    The job goes on, so they become few.
    """

    def has_enough() -> bool:
        folded = node.joblens("flame", "17.0", "--format", "folded").stdout
        counts = {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in folded.splitlines()}
        whole = sum(count for stack, count in counts.items() if ";".join(CALLERS) in stack)
        return sum(counts.values()) >= ENOUGH and whole >= 0.8 * sum(counts.values())

    until(has_enough, SECONDS)
    said = node.joblens("flame", "17.0", "--format", "json")
    picture = json.loads(said.stdout)
    assert picture["Samples"] >= ENOUGH and picture["Lacks"] == ([limits()] if limits() else [])
    said = node.joblens("flame", "17.0", "-o", str(NODE / "flame.svg"))
    assert said.returncode == 0 and limits() in said.stdout, said


def test_its_last_ad_says_how_it_ended(node: WholeNode, job: Job) -> None:
    os.kill(job.pid, signal.SIGKILL)
    until(lambda: "Final=true" in job.usage().replace(" ", ""), SECONDS)
    assert "SIGKILL" in job.usage() and 'Level="profile"' in job.usage().replace(" ", ""), job.usage()


def test_joblensd_is_a_user_of_its_own_where_it_can_be(node: WholeNode) -> None:
    """Not where it has to make cgroups for jobs."""
    assert (node.user() == 0) == Tree.find().hybrid, node.log()
