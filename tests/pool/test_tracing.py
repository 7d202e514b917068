"""A job at level trace: its owner sees the calls of a function of it, and nobody else does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from harness import Pool

SPEC = "libc.so*:select(int)"
JOB = "-e 'while (1) { select(undef, undef, undef, 0.05) }'"


@dataclass
class Course:
    level: str
    note: str
    rows: list[dict[str, Any]]  # what `joblens trace --json` said to its owner
    page: str  # and without --json
    to_another: str
    at_profile: str  # said to the owner of a job at level profile
    tracer: dict[str, str]  # what /proc/PID/status says of the process that starts traces
    log: str


@pytest.fixture(scope="module")
def course(brisk: Pool) -> Iterator[Course]:
    pool = brisk
    with pool.config("JOBLENS_MAX_LEVEL = trace"):
        pool.run("joblens", "restart")
        before = len(pool.log("JobLensdLog"))
        submit = f'executable = /usr/bin/perl\narguments = "{JOB}"\n+JobLensLevel = "LEVEL"\nqueue'
        cluster, other = (pool.submit(submit.replace("LEVEL", level)) for level in ("trace", "profile"))
        usage = pool.until(lambda: (found := pool.usage(cluster)).get("Level") == "trace" and found, "level trace")
        pool.until(lambda: pool.usage(other).get("Level") == "profile", "level profile")
        ask = ("joblens", "trace", f"{cluster}.0", SPEC, "--for", "2s")
        said = pool.until(lambda: pool.run(*ask, "--json", user="alice", check=False).stdout, "calls of select")
        starter = pool.shell("pgrep -f 'm condor_joblens[.]tracing[.]starter'").split()
        status = pool.shell(f"cat /proc/{starter[0]}/status")
        yield Course(
            level=str(usage["Level"]),
            note=str(usage.get("Note", "")),
            rows=[json.loads(line) for line in said.splitlines()],
            page=pool.run(*ask, user="alice").stdout,
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
