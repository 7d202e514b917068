"""A job that waits for a file lock: its owner is told on the node why it stands still, and who holds it up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from harness import Pool

LOCK, ANOTHER = "/home/alice/lock", "/home/alice/lock2"

REPORTER = f"""\
executable = /usr/bin/flock
arguments = {ANOTHER} true
should_transfer_files = YES
when_to_transfer_output = ON_EXIT
transfer_executable = false
+JobLensReport = true
queue"""


@dataclass
class Course:
    hang: str  # what the commands said to the job's owner
    stacks: str
    record: dict[str, object]
    to_root: str
    of_all: str  # to root, about all jobs of the node
    to_another: str  # what they said to somebody else
    privileges: dict[str, str]  # of the process that starts what looks, by line of its status
    output: str
    noticed: dict[str, object]  # Hang of the job, in the queue
    of_sleeper: dict[str, object]  # and of another one, which sleeps
    top: str
    report: str  # what came back with the output of a job that asked for it
    kept: str  # what was said of the job while it was there, of two looks before
    afterwards: str  # and when it was over


@pytest.fixture(scope="module")
def course(brisk: Pool) -> Iterator[Course]:
    pool = brisk
    with pool.config("JOBLENS_HANG_MINUTES = 0.05"):
        yield from taken(pool)


def taken(pool: Pool) -> Iterator[Course]:
    """What is said of a job that waits for a lock, from its begin to its end."""
    for lock in (LOCK, ANOTHER):
        pool.shell(f"touch {lock}; chown alice: {lock}; setsid flock {lock} sleep 100000 >/dev/null 2>&1 &")
    try:
        cluster = pool.submit(f"executable = /usr/bin/flock\narguments = {LOCK} echo had the lock\nqueue")
        reporter = pool.submit(REPORTER)
        sleeper = pool.submit("executable = /usr/bin/sleep\narguments = 4321\nqueue")
        ask = ("joblens", "hang", f"{cluster}.0")
        pool.until(lambda: pool.usage(cluster).get("Level") == "basic", "the job to be watched")
        pool.until(lambda: "cause: file lock" in pool.run(*ask, user="alice", check=False).stdout, "its wait")
        starter = pool.shell("pgrep -f 'condor_joblens[.]profiling[.]starter'").split()[0]
        status = pool.shell(f"cat /proc/{starter}/status")
        found = Course(
            hang=pool.run(*ask, user="alice").stdout,
            stacks=pool.run("joblens", "stacks", f"{cluster}.0", user="alice").stdout,
            record=json.loads(pool.run(*ask, "--json", user="alice").stdout),
            to_root=pool.run(*ask).stdout,
            of_all=pool.run("joblens", "hang", "--all").stdout,
            to_another=pool.run(*ask, user="bob", check=False).stderr,
            privileges=dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line),
            output="",
            noticed=pool.until(lambda: hang_of(pool, cluster, 1), "the hang to be noticed"),
            of_sleeper=pool.until(lambda: hang_of(pool, sleeper, 0), "the sleeper to be measured"),
            top=pool.run("joblens", "status").stdout,
            report="",
            kept=pool.run(*ask, "--kept", user="alice").stdout,
            afterwards="",
        )
        pool.until(lambda: hang_of(pool, reporter, 1), "that the other one hangs as well")
        pool.run("condor_rm", str(sleeper))
        let_go(pool)
        pool.wait_ended(cluster)
        pool.wait_ended(reporter)
        found.report = (pool.root / "home" / "alice" / "hang.txt").read_text()
        found.output = pool.output(cluster)
        found.afterwards = pool.run(*ask, user="alice").stdout
        yield found
    finally:
        let_go(pool)
        pool.shell(f"rm -f {LOCK} {ANOTHER}")


def hang_of(pool: Pool, cluster: int, suspected: int) -> dict[str, object] | None:
    """What the job's ad says of it, as soon as it has made no progress for longer than is asked for."""
    found = pool.usage(cluster).get("Hang", {})
    return found if found.get("Suspected") == suspected and found.get("Seconds", 0) > 9 else None


def let_go(pool: Pool) -> None:
    """Nobody has the lock any more."""
    pool.shell("pkill -f '^sleep 100000' || true")


def test_its_owner_is_told_in_one_sentence(course: Course) -> None:
    sentence = course.hang.partition("\ncause:")[0].replace("\n", " ")
    assert f"waits for a lock on {LOCK}" in sentence
    assert "held by a process of another user" in sentence
    assert "cause: file lock" in course.hang
    assert course.record["Cause"] == "file lock"
    assert course.record["Whole"] is True


def test_root_is_told_the_same(course: Course) -> None:
    assert f"waits for a lock on {LOCK}" in course.to_root.replace("\n", " ")


def test_root_is_told_of_all_jobs(course: Course) -> None:
    assert f"1 job: file lock: a lock on {LOCK}" in course.of_all


def test_the_stack_is_whole_from_the_kernel_to_main(course: Course) -> None:
    assert "[kernel]" in course.stacks
    assert "flock  libc" in course.stacks
    assert "(guessed)" not in course.stacks
    assert "unknown" not in course.stacks


def test_nobody_else_is_told(course: Course) -> None:
    assert "only root and the user as whom" in course.to_another


def test_the_job_goes_on(course: Course) -> None:
    assert course.output.strip() == "had the lock"


def test_what_becomes_jobs_owners_can_do_no_more_than_that(course: Course) -> None:
    setgid, setuid = 1 << 6, 1 << 7
    assert int(course.privileges["CapPrm"], 16) == setgid | setuid
    assert course.privileges["Uid"].split()[0] != "0"
    assert (course.privileges["NoNewPrivs"].strip(), course.privileges["Seccomp"].strip()) == ("1", "2")


def test_it_is_noticed_without_a_question(course: Course) -> None:
    assert course.noticed["Cause"] == "file lock"
    assert "seems to hang for" in course.top.replace("\n", " ")


def test_it_comes_back_with_the_output_of_a_job_that_asks_for_that(course: Course) -> None:
    assert course.report.startswith("written by JobLens for +JobLensReport: job ")
    assert "cause: file lock" in course.report and ANOTHER in course.report
    assert "      at      flock" in course.report and "this is not all" not in course.report


def test_a_job_that_sleeps_raises_no_alarm(course: Course) -> None:
    assert course.of_sleeper["Suspected"] == 0
    assert "Cause" not in course.of_sleeper


def test_what_was_seen_is_kept_also_when_the_job_is_over(course: Course) -> None:
    for said in (course.kept, course.afterwards):
        assert said.startswith("as it was at ")
        assert "cause: file lock" in said
        assert LOCK in said
