"""A job at level trace: its owner sees the calls of a function of it, and nobody else does."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from harness import Pool

FUNCTIONS = "counts:fit(int) -> int; counts:event"
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
COUNTS = """
#include <unistd.h>

volatile int state;

__attribute__((noinline, noclone)) int fit(int number)
{
	state += number;
	usleep(2000);
	return state;
}

__attribute__((noinline, noclone)) void event(int number)
{
	fit(number & 7);
	state++;
}

int main()
{
	for (int number = 0;; number++)
		event(number);
}
"""
FAILS = "-c 'until [ -e /home/alice/go ]; do sleep 0.1; done; cat /nowhere/last; exit 3'"
FAILING_PYTHON = """
import os

print(os.environ.get("PYTHONPATH"))


def load(number):
    raise LookupError(f"no such run: {number}")


load(4711)
"""
FAILS_PATH = "/home/alice/fails.py"
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
    sums: dict[str, Any]  # Trace in the ad of a job that asked by +JobLensTrace for functions
    kept: list[dict[str, Any]]  # `joblens trace ID --json` of it
    tree: str
    kept_to_another: str
    peeked: list[dict[str, Any]]  # `joblens peek --json` of a variable of it
    peeked_by_another: str
    series: list[dict[str, Any]]  # the same again and again
    variables: dict[str, Any]  # Peek in the ad of a job that asked by +JobLensPeek
    note_on_variables: str
    death: str  # of a Python that asked to be traced
    death_of_another: str  # and of one that did not
    paths: tuple[str, str]  # the PYTHONPATH of either
    traceback: str  # what `joblens crash` says of the first one to its owner
    traceback_to_another: str
    tracer: dict[str, str]  # what /proc/PID/status says of the process that starts traces
    last: dict[str, Any]  # what `joblens last --json` said of a job before joblensd was killed
    last_to_another: str  # and what it said to somebody else
    killed_at: float  # epoch seconds
    before_death: dict[str, Any]  # what the job did before it died
    page_of_death: str
    log: str


def traced(pool: Pool, words: str, *ask: str) -> str:
    """What is said to the owner, once there are these words in it: a busy machine may have let the job do nothing."""

    def said() -> str:
        found = pool.run(*ask, user="alice", check=False).stdout
        return found if words in found else ""

    return pool.until(said, words)


def counted_since(pool: Pool, cluster: int, moment: float) -> dict[str, Any]:
    """Sums of a job's functions in its ad, once they are of a trace that was begun after a moment (epoch seconds).

    The greatest comes first. `fit` has its probes before the `event` that calls it, so it may be ahead for some calls.
    """
    sums: dict[str, Any] = pool.usage(cluster).get("Trace", {})
    return sums if sums.get("FromTime", 0) > moment and sums.get("Functions", "").startswith("event ") else {}


def kept_since(pool: Pool, moment: float, *ask: str) -> list[dict[str, Any]]:
    """All that is kept of a job's own trace, once a part of it has begun after a moment (epoch seconds)."""
    parts: list[dict[str, Any]] = json.loads(pool.run(*ask, "--json", user="alice", check=False).stdout or "[]")
    return parts if parts and parts[-1]["Begun"] > moment and parts[-1]["Tree"] else []


@pytest.fixture(scope="module")
def course(brisk: Pool) -> Iterator[Course]:
    pool = brisk
    with pool.config("JOBLENS_MAX_LEVEL = trace\nJOBLENS_MAX_JOBS_PROFILE = 8\nJOBLENS_MAX_JOBS_TRACE = 6"):
        pool.run("joblens", "restart")
        before = len(pool.log("JobLensdLog"))
        submit = f'executable = /usr/bin/perl\narguments = "{JOB}"\n+JobLensLevel = "LEVEL"\nqueue'
        cluster, other = (pool.submit(submit.replace("LEVEL", level)) for level in ("trace", "profile"))
        usage = pool.until(lambda: (found := pool.usage(cluster)).get("Level") == "trace" and found, "level trace")
        pool.until(lambda: pool.usage(other).get("Level") == "profile", "level profile")
        thrower = pool.submit(
            f"executable = {program_in(pool, 'thrower', 'c++', THROWS)}\ntransfer_executable = false\n"
            '+JobLensLevel = "trace"\nqueue'
        )
        pool.until(lambda: pool.usage(thrower).get("Level") == "trace", "level trace of what throws")
        counter = pool.submit(
            f"executable = {program_in(pool, 'counts', 'c', COUNTS)}\ntransfer_executable = false\n"
            f'+JobLensLevel = "trace"\n+JobLensTrace = "{FUNCTIONS}"\n'
            '+JobLensPeek = "counts:state as int; counts:stat as int"\nqueue'
        )
        pool.shell("rm -f /home/alice/go")
        failing = pool.submit(f'executable = /bin/sh\narguments = "{FAILS}"\n+JobLensLevel = "trace"\nqueue')
        ask_throws = ("joblens", "trace", f"{thrower}.0", "throws", "--for", "2s")
        thrown = traced(pool, '"What"', *ask_throws, "--json")
        ask = ("joblens", "trace", f"{cluster}.0", SPEC, "--for", "2s")
        said = traced(pool, '"End"', *ask, "--json")
        (pool.root / FAILS_PATH.lstrip("/")).write_text(FAILING_PYTHON)
        fails = f'executable = /usr/bin/python3\narguments = {FAILS_PATH}\n+JobLensLevel = "trace"\n'
        failed = pool.submit(f'{fails}+JobLensTrace = "python:raises"\nqueue')
        plain = pool.submit(f"{fails}queue")
        for each in (failed, plain):
            pool.wait_ended(each)
        of_failed = ("joblens", "crash", f"{failed}.0")
        starter = pool.shell("pgrep -f 'm condor_joblens[.]tracing[.]starter'").split()
        status = pool.shell(f"cat /proc/{starter[0]}/status")
        ask_last = ("joblens", "last", f"{failing}.0", "--json")
        last = json.loads(traced(pool, "/home/alice/go", *ask_last))
        last_to_another = pool.run(*ask_last, user="bob", check=False).stderr
        ask_kept = ("joblens", "trace", f"{counter}.0")
        traced(pool, '"fit"', *ask_kept, "--json")
        with pool.without_joblensd(signal.SIGKILL):
            killed_at = time.time()
        pool.shell("touch /home/alice/go", user="alice")
        sums = pool.until(lambda: counted_since(pool, counter, killed_at), "sums of functions in the ad")
        kept = pool.until(lambda: kept_since(pool, killed_at, *ask_kept), "a trace since joblensd was killed")
        ask_peek = ("joblens", "peek", f"{counter}.0", "counts:state as int")
        series = traced(pool, '"Value"', *ask_peek, "--every", "1s", "--for", "2s", "--json")
        variables = pool.until(lambda: pool.usage(counter).get("Peek"), "its variable in the ad")
        ask_death = ("joblens", "job", f"{failing}.0", "--before-death")
        died = traced(pool, '"Cause": "death"', *ask_death, "--json")
        yield Course(
            level=str(usage["Level"]),
            note=str(usage.get("Note", "")),
            rows=[json.loads(line) for line in said.splitlines()],
            page=traced(pool, "select(0)", *ask),
            throws=[json.loads(line) for line in thrown.splitlines()],
            page_of_throws=traced(pool, "in open_run(int)", *ask_throws),
            to_another=pool.run(*ask, user="bob", check=False).stdout,
            at_profile=pool.run("joblens", "trace", f"{other}.0", SPEC, user="alice", check=False).stderr,
            sums=sums,
            kept=kept,
            tree=traced(pool, "fit", *ask_kept, "--tree"),
            kept_to_another=pool.run(*ask_kept, user="bob", check=False).stdout,
            peeked=json.loads(traced(pool, '"Value"', *ask_peek, "--json")),
            peeked_by_another=pool.run(*ask_peek, user="bob", check=False).stderr,
            series=[json.loads(line) for line in series.splitlines()],
            variables=variables,
            note_on_variables=str(pool.usage(counter).get("Note", "")),
            death=str(pool.last_usage_on_node(failed).get("Death")),
            death_of_another=str(pool.last_usage_on_node(plain).get("Death")),
            paths=(pool.output(failed).strip(), pool.output(plain).strip()),
            traceback=traced(pool, "Traceback", *of_failed),
            traceback_to_another=pool.run(*of_failed, user="bob", check=False).stdout,
            tracer={name: value.strip() for name, _, value in (line.partition(":") for line in status.splitlines())},
            last=last,
            last_to_another=last_to_another,
            killed_at=killed_at,
            before_death=json.loads(died),
            page_of_death=traced(pool, "/nowhere/last", *ask_death),
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


def test_functions_that_a_job_asks_for_are_summed_in_its_ad_for_its_life(course: Course) -> None:
    assert course.sums["Functions"].startswith("event ") and "; fit " in course.sums["Functions"]
    assert course.sums["Unwound"] == 0 and course.sums["Seconds"] > 0 and course.sums["UnseenSeconds"] >= 0


def test_its_owner_sees_the_call_tree_and_nobody_else_does(course: Course) -> None:
    part = course.kept[-1]
    assert {each["Function"] for each in part["Functions"]} == {"event", "fit"}
    by_parent = {(node["Parent"], node["Function"]) for node in part["Tree"]}
    assert (None, "event") in by_parent
    event = [node["Function"] for node in part["Tree"]].index("event")
    assert (event, "fit") in by_parent
    assert "  fit" in course.tree and course.kept_to_another == ""


def test_its_owner_sees_what_a_variable_holds_and_nobody_else_does(course: Course) -> None:
    (found,) = course.peeked
    assert (found["Variable"], found["Type"]) == ("state", "int") and int(found["Value"]) > 0
    assert "only root and the user" in course.peeked_by_another
    assert len(course.series) > 1 and all("Value" in each for each in course.series)


def test_variables_that_a_job_asks_for_are_in_its_ad(course: Course) -> None:
    assert course.variables["Values"] == f"state = {course.variables['First']:.0f}" and course.variables["First"] > 0
    assert "counts:stat as int: no symbol is called stat" in course.note_on_variables
    assert "is it one of these: state" in course.note_on_variables and "Second" not in course.variables


def test_what_was_kept_before_joblensd_was_killed_is_kept_and_the_trace_goes_on(course: Course) -> None:
    first, *_, last = course.kept
    assert first["Ended"] < course.killed_at < last["Begun"]
    assert course.sums["Calls"] >= sum(each["Calls"] for each in first["Functions"])


def program_in(pool: Pool, name: str, language: str, source: str) -> str:
    """The path of a program, in the pool."""
    path = pool.root / "home" / "alice" / name
    command = ["gcc", "-O2", "-x", language, "-o", str(path), "-", "-lstdc++"]
    subprocess.run(command, input=source, text=True, check=True)
    return f"/home/alice/{name}"


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


def test_an_exception_that_ends_a_python_is_its_death_and_its_owner_sees_the_whole_traceback(course: Course) -> None:
    assert course.death.startswith("fails.py exited 1: LookupError: no such run: 4711 (fails.py:8)")
    head, *traceback = course.traceback.splitlines()
    assert head.startswith("An exception ended a Python: process ")
    assert [line.strip() for line in traceback] == [
        "Traceback (most recent call last):",
        f'File "{FAILS_PATH}", line 11, in <module>',
        f'File "{FAILS_PATH}", line 8, in load',
        "LookupError: no such run: 4711",
    ]
    assert course.traceback_to_another == ""


def test_a_python_that_did_not_ask_has_nothing_of_it(course: Course) -> None:
    assert course.death_of_another.startswith("fails.py exited 1") and "LookupError" not in course.death_of_another
    folder, none = course.paths
    assert folder.endswith("/joblens_python") and none == "None"


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


def test_a_job_that_died_shows_what_it_did_last(course: Course) -> None:
    told = course.before_death
    *_, failed, told_end = [event for event in told["Events"] if event.get("About") == "/nowhere/last"] + [
        [event for event in told["Events"] if event["What"] == "exit"][-1]
    ]
    assert (failed["What"], failed["Result"], failed["Program"]) == ("failed", "ENOENT", "cat")
    assert told_end["Result"] == "status 3" and told_end["Program"] == "sh"
    assert "3" in told["Death"] and 0 < told["RareSeconds"] <= told["Tagged"] - told["Since"] + 1e-3
    assert told["Death"].split(",")[0] in course.page_of_death


def test_its_rings_outlive_joblensd(course: Course) -> None:
    assert course.before_death["Since"] < course.killed_at


def test_its_owner_alone_sees_what_it_does(course: Course) -> None:
    assert course.last["Cause"] == "owner" and any(
        event.get("About") == "/home/alice/go" and event["Result"] == "ENOENT" for event in course.last["Events"]
    )
    assert "only root and the user" in course.last_to_another
