"""A job at level trace: its owner sees the calls of a function of it, and nobody else does."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from harness import Pool

SPEC = "libc.so*:select(int)"
THROWS = """
#include <stdexcept>
#include <unistd.h>

__attribute__((noinline, noclone)) void open_run(int number)
{
	if (number > 0)
		throw std::runtime_error("no such run");
}

int main()
{
	for (int number = 1;; usleep(50000)) {
		try {
			open_run(number);
		} catch (const std::exception &) {
			number++;
		}
	}
}
"""
JOB = "-e 'while (1) { select(undef, undef, undef, 0.05) }'"


@dataclass
class Course:
    level: str
    note: str
    rows: list[dict[str, Any]]  # what `joblens trace --json` said to its owner
    page: str  # and without --json
    throws: list[dict[str, Any]]  # the same of what a program throws
    page_of_throws: str
    to_another: str
    at_profile: str  # said to the owner of a job at level profile
    tracer: dict[str, str]  # what /proc/PID/status says of the process that starts traces
    log: str


def traced(pool: Pool, words: str, *ask: str) -> str:
    """What is said to the owner, once there are these words in it: a busy machine may have let the job do nothing."""

    def said() -> str:
        found = pool.run(*ask, user="alice", check=False).stdout
        return found if words in found else ""

    return pool.until(said, words)


@pytest.fixture(scope="module")
def course(brisk: Pool) -> Iterator[Course]:
    pool = brisk
    with pool.config("JOBLENS_MAX_LEVEL = trace\nJOBLENS_MAX_JOBS_TRACE = 2"):
        pool.run("joblens", "restart")
        before = len(pool.log("JobLensdLog"))
        submit = f'executable = /usr/bin/perl\narguments = "{JOB}"\n+JobLensLevel = "LEVEL"\nqueue'
        cluster, other = (pool.submit(submit.replace("LEVEL", level)) for level in ("trace", "profile"))
        usage = pool.until(lambda: (found := pool.usage(cluster)).get("Level") == "trace" and found, "level trace")
        pool.until(lambda: pool.usage(other).get("Level") == "profile", "level profile")
        thrower = pool.submit(
            f'executable = {thrower_in(pool)}\ntransfer_executable = false\n+JobLensLevel = "trace"\nqueue'
        )
        pool.until(lambda: pool.usage(thrower).get("Level") == "trace", "level trace of what throws")
        ask_throws = ("joblens", "trace", f"{thrower}.0", "throws", "--for", "2s")
        thrown = traced(pool, '"What"', *ask_throws, "--json")
        ask = ("joblens", "trace", f"{cluster}.0", SPEC, "--for", "2s")
        said = traced(pool, '"End"', *ask, "--json")
        starter = pool.shell("pgrep -f 'm condor_joblens[.]tracing[.]starter'").split()
        status = pool.shell(f"cat /proc/{starter[0]}/status")
        yield Course(
            level=str(usage["Level"]),
            note=str(usage.get("Note", "")),
            rows=[json.loads(line) for line in said.splitlines()],
            page=traced(pool, "select(0)", *ask),
            throws=[json.loads(line) for line in thrown.splitlines()],
            page_of_throws=traced(pool, "in open_run(int)", *ask_throws),
            to_another=pool.run(*ask, user="bob", check=False).stdout,
            at_profile=pool.run("joblens", "trace", f"{other}.0", SPEC, user="alice", check=False).stderr,
            tracer={name: value.strip() for name, _, value in (line.partition(":") for line in status.splitlines())},
            log=pool.log("JobLensdLog")[before:],
        )
    pool.run("joblens", "restart")


def test_its_owner_sees_each_call_and_how_many_there_were(course: Course) -> None:
    *calls, last = course.rows
    summary = last["Summary"]
    assert summary["Function"].startswith("select") and summary["Calls"] >= len(calls) > 0
    assert summary["LostHits"] == summary["NotOurs"] == 0 and not summary["SwitchedOff"]
    assert {(call["End"], tuple(call["Arguments"])) for call in calls} == {("returned", ("0",))}
    assert min(call["Seconds"] for call in calls) >= 0.05
    assert "select(0)" in course.page and "returned" in course.page


def thrower_in(pool: Pool) -> str:
    """The path of a program that throws, in the pool."""
    path = pool.root / "home" / "alice" / "thrower"
    subprocess.run(["gcc", "-O2", "-x", "c++", "-o", str(path), "-", "-lstdc++"], input=THROWS, text=True, check=True)
    return "/home/alice/thrower"


def test_its_owner_sees_what_is_thrown_and_from_where(course: Course) -> None:
    throws = [row for row in course.throws if "What" in row]
    *_, place, last = course.throws
    assert {(row["Type"], row["What"], row["Function"]) for row in throws} == {
        ("std::runtime_error", "no such run", "open_run(int)")
    }
    assert last["Summary"]["Throws"] == len(throws) == place["Place"]["Throws"] and not last["Summary"]["SwitchedOff"]
    assert [function for function, _ in place["Place"]["Stack"][:2]] == ["open_run(int)", "main"]
    assert place["Place"]["StackIsWhole"]
    assert "x std::runtime_error in process" in course.page_of_throws


def test_nobody_else_does_and_at_no_other_level(course: Course) -> None:
    assert course.to_another == ""
    assert "only at level trace" in course.at_profile


def test_what_attaches_probes_has_two_capabilities(course: Course) -> None:
    assert "0" not in course.tracer["Uid"].split()
    assert int(course.tracer["CapEff"], 16) == 1 << 38 | 1 << 39
    assert (course.tracer["NoNewPrivs"], course.tracer["Seccomp"]) == ("1", "2")


def test_the_level_is_what_was_asked_for_and_joblensd_has_nothing_to_complain_of(course: Course) -> None:
    assert course.level == "trace" and "unavailable" not in course.note
    for words in ("may not make the system call", "Traceback"):
        assert words not in course.log, course.log
