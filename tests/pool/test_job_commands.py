"""ps, tail and kill on a running job: its owner and root on the node, nobody else, and a line in the log for each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from harness import Ad, Pool

SLEEPS = "sleep 100001"
SAYS = "until /opt/joblens/bin/joblens progress 0.3 step 3 of 10 2>/dev/null; do sleep 1; done"
JOB = f"""
executable = /bin/sh
arguments = "-c 'echo began; {SAYS}; echo of a file >$_CONDOR_SCRATCH_DIR/result.txt; {SLEEPS}; echo over'"
environment = "JOBLENS_TEST='of alice' JOBLENS_TEST_TOKEN=hunter2"
queue
"""
FOLLOWED, FETCHED = "/tmp/followed-by-alice", "/tmp/fetched-by-alice"


@dataclass
class Course:
    name: str  # of the job
    processes: list[dict[str, object]]
    processes_to_root: str
    output: str  # the end of what the job wrote
    file: str
    of_root: str  # what is said of a file that is not the job's
    refused: dict[str, str]  # what another user was told, by command
    logged: str  # the ends of what it wrote
    fetched: str
    environment: dict[str, str]
    environment_to_root: list[dict[str, str]]
    machine: dict[str, Any]
    asked_by_program: str  # what root was told, where the site has not allowed it
    said_from_outside: str
    killed: str
    followed: str  # what was told to somebody who followed the job's output to its end
    ended: Ad
    log: str


def sleeping(pool: Pool, name: str) -> list[dict[str, Any]]:
    """The job's processes, once its sleep is one of them. The shell's command line has those words, too."""
    said = pool.run("joblens", "ps", name, "--json", user="alice", check=False).stdout
    processes: list[dict[str, Any]] = json.loads(said or "[]")
    return processes if any(each["Command"] == SLEEPS for each in processes) else []


@pytest.fixture(scope="module")
def course(brisk: Pool) -> Iterator[Course]:
    pool = brisk
    cluster = pool.submit(JOB)
    name = f"{cluster}.0"

    def told(verb: str, *arguments: str, user: str = "alice", check: bool = True) -> str:
        done = pool.run("joblens", verb, name, *arguments, user=user, check=check)
        return done.stdout if check else done.stdout + done.stderr

    try:
        processes = pool.until(lambda: sleeping(pool, name), "its sleep")
        output, file = told("tail"), told("tail", "result.txt")
        pool.shell(f"setsid joblens tail -f {name} >{FOLLOWED} 2>&1 </dev/null &", user="alice")
        pool.until(lambda: "began" in pool.shell(f"cat {FOLLOWED}"), "who follows its output")
        refused = {verb: told(verb, user="bob", check=False) for verb in ("ps", "tail", "env", "kill")}
        sleeps = next(each["Pid"] for each in processes if each["Command"] == SLEEPS)
        course = Course(
            name=name,
            processes=processes,
            processes_to_root=told("ps", user="root"),
            output=output,
            file=file,
            of_root=told("tail", "../../../../../../etc/shadow", check=False),
            refused=refused,
            logged=told("log"),
            fetched=told("get", "result.txt", "-o", FETCHED) + pool.shell(f"cat {FETCHED}; rm {FETCHED}"),
            environment={each["Name"]: each["Value"] for each in json.loads(told("env", str(sleeps), "--json"))},
            environment_to_root=json.loads(told("env", str(sleeps), "--json", user="root")),
            machine=json.loads(told("node", "--json")),
            asked_by_program=told("ask", "/usr/share/joblens/ask/fsync.c", user="root", check=False),
            said_from_outside=pool.run("joblens", "say", "mine", user="alice", check=False).stderr,
            killed=told("kill", str(sleeps)),
            followed="",
            ended=pool.wait_ended(cluster)[0],
            log="",
        )
        course.followed = pool.until(
            lambda: text if "the job has ended" in (text := pool.shell(f"cat {FOLLOWED}")) else "", "its end"
        )
        course.log = "\n".join(line for line in pool.log("JobLensdLog").splitlines() if name in line)
        yield course
    finally:
        pool.shell(f"condor_rm {cluster} || true; rm -f {FOLLOWED}")


def test_its_processes_are_shown_as_a_tree(course: Course) -> None:
    by_command = {each["Command"]: each for each in course.processes}
    sleeps = by_command[SLEEPS]
    assert sleeps["ParentPid"] in [each["Pid"] for each in course.processes]
    assert f"  {SLEEPS}" in course.processes_to_root


def test_its_output_and_a_file_of_its_folder_are_read(course: Course) -> None:
    assert (course.output, course.file) == ("began\n", "of a file\n")


def test_root_asks_by_no_program_of_his_own_unless_the_site_allows_it(course: Course) -> None:
    assert course.asked_by_program.endswith("set JOBLENS_ASK = true\n")


def test_no_other_file_is(course: Course) -> None:
    assert course.of_root == "joblens: it is outside of the job's folder\n"


def test_its_output_is_followed_to_the_end(course: Course) -> None:
    assert course.followed == "began\nover\njoblens: the job has ended\n"


def test_the_process_has_got_the_signal_and_the_job_went_on_to_its_own_end(course: Course) -> None:
    assert course.killed.startswith("SIGTERM to process ") and SLEEPS in course.killed
    assert course.ended["ExitCode"] == 0 and not course.ended["ExitBySignal"]


def test_both_streams_are_shown_and_a_file_is_fetched(course: Course) -> None:
    assert re.fullmatch(r"==> stdout: /\S+ <==\nbegan\n\n==> stderr: /\S+ <==\n", course.logged)
    assert course.fetched == "of a file\n"


def test_its_environment_is_shown_to_its_owner_and_names_to_root(course: Course) -> None:
    assert course.environment["JOBLENS_TEST"] == "of alice" and course.environment["JOBLENS_TEST_TOKEN"] == "***"
    names = {each["Name"] for each in course.environment_to_root}
    assert names == set(course.environment) and all("Value" not in each for each in course.environment_to_root)


def test_its_machine_and_whose_jobs_are_there(course: Course) -> None:
    assert course.name in [job["JobId"] for job in course.machine["Jobs"]]
    assert course.machine["Cpus"] > 0 and course.machine["ScratchBytes"] > 0


def test_what_the_job_says_of_itself_is_in_its_ad(course: Course) -> None:
    assert course.ended["JobLensUsage"]["Progress"] == "30 %: step 3 of 10"
    assert (
        course.said_from_outside
        == "joblens: joblensd refuses: this process is in no slot's cgroup: run it inside a job\n"
    )


@pytest.mark.parametrize("verb", ["ps", "tail", "env", "kill"])
def test_another_user_is_refused(verb: str, course: Course) -> None:
    assert "only root and the user as whom" in course.refused[verb]


def test_each_command_has_a_line_in_the_log_and_no_contents(course: Course) -> None:
    for said in ("alice asked for ps", "alice asked for tail stdout", "alice asked for tail result.txt"):
        assert said in course.log
    for said in ("alice asked for tail -f stdout", "root asked for ps", "alice asked for kill SIGTERM "):
        assert said in course.log
    for verb in ("ps", "tail stdout", "kill SIGTERM"):
        # until another process has looked his name up, he has a number
        assert re.search(rf"(bob|user \d+) asked for {verb}, and was refused: only root", course.log)
    assert "began" not in course.log and "of a file" not in course.log
