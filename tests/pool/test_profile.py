"""A job at level profile: where it spends its time is kept each minute and when it ends, and its owner may see it."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jsonschema
import pytest
from harness import Pool

from condor_joblens.sinks import RecordKind
from condor_joblens.sinks.schema import schemas


@dataclass
class Course:
    note: str  # of the job while it ran
    level: str
    hottest: str
    folded: str  # what `joblens flame` said to its owner
    waits: str  # the same of what it waited for
    to_another: str
    removed: str  # what `joblens crash` said of it to its owner, when condor_rm had ended it
    crash: str  # and of another one, which got SIGSEGV
    crash_to_another: str
    death: str  # of that one, on its node
    of_reporter: dict[str, object]  # the ad of a job that ends when its report is there
    report: str  # what came back with its output
    reader: dict[str, str]  # what /proc/PID/status says of the reader of samples
    reader_user: str
    sent: list[dict[str, Any]]  # what a sink got of its profiles
    log: str


REPORTER = """\
executable = /bin/sh
arguments = "-c 'until test -s flame.svg; do openssl speed -seconds 1 -evp sha256 >/dev/null 2>&1; done'"
should_transfer_files = YES
when_to_transfer_output = ON_EXIT
+JobLensLevel = "profile"
+JobLensReport = true
queue"""
"""It ends as soon as its report is there."""


CONFIG = """
JOBLENS_MAX_LEVEL = trace
JOBLENS_SINKS = prometheus, file
JOBLENS_SINK_FILE_KINDS = profile
"""
RECORDS = "var/lib/joblens/records/records.jsonl"


def sent(pool: Pool, cluster: int) -> list[dict[str, Any]]:
    """The profiles of a job that a sink has; none until there are those of what it waited for too."""
    path = pool.root / RECORDS
    lines = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []  # the last may be half there
    found = [json.loads(line) for line in lines]
    mine = [record for record in found if record["Type"] == "profile" and f"#{cluster}.0#" in record["Run"]]
    return mine if {record["View"] for record in mine} == {"OnCpu", "OffCpu"} else []


@pytest.fixture(scope="module")
def course(brisk: Pool) -> Iterator[Course]:
    pool = brisk
    with pool.config(CONFIG):
        pool.run("joblens", "restart")
        before = len(pool.log("JobLensdLog"))
        cluster = pool.submit(
            "executable = /bin/sh\n"
            "arguments = \"-c 'openssl speed -seconds 3600 -evp sha256 & while :; do sleep 0.2; done'\"\n"
            '+JobLensLevel = "profile"\nqueue'
        )
        crashing = pool.submit(
            "executable = /usr/bin/openssl\narguments = speed -seconds 3600 -evp sha256\n"
            '+JobLensLevel = "profile"\nqueue'
        )
        usage = pool.until(
            lambda: (found := pool.usage(cluster)).get("Profile", {}).get("Hottest") and found, "what is hottest"
        )
        pool.until(lambda: pool.usage(crashing).get("Profile", {}).get("Hottest"), "that the other one is known")
        pool.run("joblens", "kill", f"{crashing}.0", "-s", "SEGV", user="alice")
        reader = pool.until(
            lambda: pool.shell("pgrep -f 'm condor_joblens[.]profiling[.]sample_reader$' || true").split(), "the reader"
        )
        status = pool.shell(f"cat /proc/{reader[0]}/status")
        pool.run("condor_rm", str(cluster))
        pool.wait_ended(cluster)
        reporter = pool.submit(REPORTER)
        pool.wait_ended(reporter)
        ask = ("joblens", "flame", f"{cluster}.0", "--format", "folded")
        pool.until(lambda: pool.run(*ask, user="alice", check=False).stdout, "its profile")
        waits = (*ask, "--off-cpu")
        pool.until(lambda: "wait4" in pool.run(*waits, user="alice", check=False).stdout, "what it waited for")
        of_crash = ("joblens", "crash", f"{crashing}.0")
        pool.until(lambda: pool.run(*of_crash, user="alice", check=False).stdout, "where it crashed")
        pool.wait_ended(crashing)
        death = pool.until(
            lambda: " at " in (said := str(pool.last_usage_on_node(crashing).get("Death", ""))) and said, "where"
        )
        of_removed = ("joblens", "crash", f"{cluster}.0")
        profiles = pool.until(lambda: sent(pool, cluster), "records of its profiles")
        removed = pool.until(lambda: pool.run(*of_removed, user="alice", check=False).stdout, "where it was removed")
        yield Course(
            sent=profiles,
            removed=removed,
            crash=pool.run(*of_crash, user="alice").stdout,
            crash_to_another=pool.run(*of_crash, user="bob", check=False).stdout,
            death=death,
            note=str(usage.get("Note", "")),
            level=str(usage["Level"]),
            hottest=str(usage["Profile"]["Hottest"]),
            folded=pool.run(*ask, user="alice").stdout,
            waits=pool.run(*waits, user="alice").stdout,
            to_another=pool.run(*ask, user="bob", check=False).stdout,
            reader={name: value.strip() for name, _, value in (line.partition(":") for line in status.splitlines())},
            of_reporter=pool.job(reporter),
            report=(pool.root / "home" / "alice" / "flame.svg").read_text(),
            reader_user=pool.shell("id -u joblens-policy").strip(),
            log=pool.log("JobLensdLog")[before:],
        )
    pool.run("joblens", "restart")


def test_its_owner_sees_where_it_spent_its_time(course: Course) -> None:
    assert course.level == "profile" and "unavailable" not in course.note
    stacks = course.folded.splitlines()
    assert any("libcrypto" in line or "SHA256" in line.upper() or "EVP" in line for line in stacks), course.folded


def test_its_owner_sees_what_it_waited_for(course: Course) -> None:
    """The shell for its children, and these for the time."""
    for leaf in ("waits for a child (wait4)_[k] ", "waits for a timer (clock_nanosleep)_[k] "):
        weights = [int(line.rpartition(" ")[2]) for line in course.waits.splitlines() if leaf in line]
        assert weights and min(weights) >= 1_000_000, course.waits


def test_a_sink_that_asks_for_them_has_its_profiles(course: Course) -> None:
    validator = jsonschema.Draft202012Validator(schemas()[RecordKind.PROFILE])
    for record in course.sent:
        validator.validate(record)
        assert record["Owner"] == "alice" and record["Total"] > 0
    functions = {each["Function"] for record in course.sent for each in record["Functions"]}
    assert any("SHA256" in name.upper() or "crypto" in name or "EVP" in name for name in functions), functions


def test_its_ad_says_what_is_hottest(course: Course) -> None:
    assert re.match(r"\d+% .+", course.hottest) and "crypto" in course.hottest.lower(), course.hottest


def test_a_report_comes_back_with_the_output_of_a_job_that_asks_for_it(course: Course) -> None:
    assert course.of_reporter["ExitCode"] == 0
    assert "written by JobLens" in course.report[:100] and course.report.rstrip().endswith("</svg>")
    assert f"job {course.of_reporter['ClusterId']}.0 on " in course.report


def test_nobody_else_does(course: Course) -> None:
    assert course.to_another == course.crash_to_another == ""


def test_where_it_crashed_is_in_its_death_and_its_owner_sees_the_whole_stack(course: Course) -> None:
    assert re.match(r"SIGSEGV in openssl at \S", course.death), course.death
    head, *frames = course.crash.splitlines()
    assert re.match(r"SIGSEGV, process \d+, thread openssl, ", head)
    assert any(re.search("libcrypto|openssl", frame) for frame in frames), frames


def test_where_it_was_when_htcondor_ended_it_is_kept(course: Course) -> None:
    assert course.removed.startswith("SIGTERM, process ")


def test_the_reader_of_samples_is_a_user_without_any_right(course: Course) -> None:
    assert set(course.reader["Uid"].split()) == {course.reader_user} != {"0"}
    assert int(course.reader["CapEff"], 16) == int(course.reader["CapPrm"], 16) == 0
    assert (course.reader["NoNewPrivs"], course.reader["Seccomp"], course.reader["Groups"]) == ("1", "2", "")


def test_joblensd_has_nothing_to_complain_of(course: Course) -> None:
    for words in ("reader of samples", "may not make the system call", "Traceback"):
        assert words not in course.log


def busy(pool: Pool, name: str) -> int:
    """A job at level profile that is busy until its file is there, and then ends well."""
    pool.shell(f"rm -f /home/alice/end-{name}")
    return pool.submit(
        "executable = /bin/sh\n"
        f"arguments = \"-c 'until test -e /home/alice/end-{name}; do openssl speed -seconds 1 -evp sha256; done'\"\n"
        '+JobLensLevel = "profile"\nqueue'
    )


def profile(pool: Pool, cluster: int) -> dict[str, Any]:
    """Its profile as JSON; empty if there is none yet."""
    said = pool.run("joblens", "flame", f"{cluster}.0", "--format", "json", user="alice", check=False).stdout
    return dict(json.loads(said)) if said else {}


@pytest.mark.soak
def test_what_went_with_a_killed_joblensd_is_declared_and_no_job_is_harmed(brisk: Pool) -> None:
    """What was kept before stays. One job goes on, and is sampled again; one has ended while there was no joblensd."""
    with brisk.config(CONFIG):
        brisk.run("joblens", "restart")
        staying, leaving = busy(brisk, "staying"), busy(brisk, "leaving")
        before = {job: brisk.until(lambda job=job: profile(brisk, job), "a first part") for job in (staying, leaving)}
        with brisk.without_joblensd(signal.SIGKILL):
            killed_at = time.time()
            brisk.shell("touch /home/alice/end-leaving")
            brisk.wait_ended(leaving)
        for job, first_part in before.items():

            def seen_again(job: int = job) -> dict[str, Any]:
                found = profile(brisk, job)
                return found if found.get("Unseen") else {}

            found = brisk.until(seen_again, f"what is unseen of job {job}")
            assert found["BeginTime"] == first_part["BeginTime"] and found["Samples"] >= first_part["Samples"] > 0
            (hole,) = found["Unseen"]
            assert first_part["EndTime"] - 0.01 <= hole["BeginTime"] <= killed_at <= hole["EndTime"] <= time.time()
            svg = brisk.run("joblens", "flame", f"{job}.0", "-o", "-", user="alice").stdout
            assert "not seen from " in svg
        (job,) = brisk.jobs(staying)
        assert (job["JobStatus"], job["NumJobStarts"]) == (2, 1), "it has gone on"
        brisk.shell("touch /home/alice/end-staying")
        for cluster in (staying, leaving):
            (ended,) = brisk.wait_ended(cluster)
            assert (ended["ExitCode"], ended["NumJobStarts"]) == (0, 1)
    brisk.run("joblens", "restart")
