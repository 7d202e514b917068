"""HTCondor can't remove a job's cgroup, and the next job of the slot comes into it: each has numbers of its own.

On a full node that is so if processes of the job are still ending. Here the cgroup's folder is a mount point, which
nobody can remove.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest
from harness import Ad, Pool

CGROUPS = "/sys/fs/cgroup/htcondor"
GO = "/home/alice/go-reuse"
LEFT = 3


def description(programs: int, steps: int = 0) -> str:
    """A job of so many programs, which spends CPU time on `steps`, ends when it is told to, and leaves processes."""
    work = f"i=0; while [ $i -lt {steps} ]; do i=$((i+1)); done; for i in $(seq {programs}); do /bin/true; done"
    end = f"for i in $(seq {LEFT}); do sleep 1000 & done; read go < {GO}; exit 0"
    return f"""
executable = /bin/sh
arguments = "-c '{work}; {end}'"
queue
"""


def executed(programs: int) -> int:
    """How many programs such a job starts: seq twice, in shells of its own that become it."""
    return 1 + programs + LEFT + 2


def on_node(pool: Pool, cluster: int) -> Ad:
    """The process numbers of the job, as its node has them; none if it does not know the job yet."""
    said = pool.run("joblens", "job", f"{cluster}.0", "--json", check=False).stdout
    found: Ad = json.loads(said)["Job"]["JobLensUsage"] if said.strip() else {}
    return found if "Process" in found else {}


def begun(pool: Pool, text: str) -> tuple[int, str]:
    """A job that runs alone on the machine; its cluster, and its slot's name."""

    def dynamic_slots() -> list[str]:
        return [slot["Name"] for slot in pool.slots_of_startd() if slot.get("SlotType") == "Dynamic"]

    pool.until(lambda: not dynamic_slots(), "the slots of earlier jobs to go")
    cluster = pool.submit(text)
    pool.wait_running(cluster)
    return cluster, pool.job(cluster)["RemoteHost"]


def ended(pool: Pool, cluster: int, programs: int) -> Ad:
    """Lets the job end when it has started all of its programs; its last numbers, when its slot was empty."""

    def count(name: str) -> int:
        usage = on_node(pool, cluster)
        return int(usage["Process"][name]) if usage else -1

    pool.until(lambda: count("Executed") == executed(programs), "all of the job's programs")
    pool.shell(f"echo > {GO}")
    pool.last_usage(cluster)
    pool.until(lambda: count("Live") == 0, "an empty slot")
    return on_node(pool, cluster)


@contextlib.contextmanager
def unremovable(pool: Pool, slot: str) -> Iterator[str]:
    """The cgroup of the slot can't be removed; what it is called."""
    found = pool.shell(f"ls -d {CGROUPS}/*{slot} {CGROUPS}/*{slot}.slice 2>/dev/null || true").split()
    folder = found[-1]  # with .slice, if there is one: another test may have left a cgroup without
    pool.shell(f"mount --bind {folder} {folder}")
    try:
        yield folder
    finally:
        pool.shell(f"umount -l {folder}; rmdir {folder}/*.scope {folder} 2>/dev/null || true")


@pytest.mark.soak
def test_jobs_in_one_cgroup_have_numbers_of_their_own(brisk: Pool) -> None:
    pool = brisk
    pool.shell(f"rm -f {GO}; mkfifo -m 666 {GO}")
    first, slot = begun(pool, description(11, steps=500_000))
    with unremovable(pool, slot) as folder:

        def inode() -> str:
            return pool.shell(f"stat -c %i {folder}")

        before, usages = inode(), [ended(pool, first, 11)]
        second, same = begun(pool, description(5))
        assert (same, inode()) == (slot, before)
        usages.append(ended(pool, second, 5))
        with pool.config("USER_JOB_WRAPPER ="):  # nobody calls: the kernel alone knows of the next job
            third, same = begun(pool, description(7))
            assert (same, inode()) == (slot, before)
            usages.append(ended(pool, third, 7))
    for cluster, programs, usage in zip((first, second, third), (11, 5, 7), usages):
        ad, process = pool.job(cluster), usage["Process"]
        assert usage["Run"] == f"{ad['GlobalJobId']}#1"
        assert (usage["Final"], usage["Complete"], usage.get("Note")) == (True, True, None)
        assert (process["Forked"], process["Executed"]) == (executed(programs) - 1, executed(programs))
        assert (process["Exited"], process["Signalled"]) == (process["Forked"] + 1, LEFT)
        assert 0 <= usage["StartTime"] - ad["JobCurrentStartDate"] < 60
    assert all("CgroupPeakBytes" in usage["Uncounted"] for usage in usages[1:])
    assert max(usage["Cpu"]["Seconds"] for usage in usages[1:]) < usages[0]["Cpu"]["Seconds"]
