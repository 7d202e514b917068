"""From a job to condor_q, condor_status, Prometheus, the command and the history: one number, the same everywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from harness import Ad, Pool, slots_soon
from truth import WORKER, check, worked

from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import FIELDS, GROUPS, METRICS, MetricKind

END = "/home/alice/end-of-worker"

# The files of a cgroup that a hybrid machine, without controllers for version 2, doesn't have.
NEEDS_A_CONTROLLER = {
    metric.path for metric in METRICS if metric.group == "Memory" and metric.name.startswith(("Cgroup", "Limit"))
}

# What only minutes of a job's memory can tell.
NEEDS_TIME = {"Memory.GrowthBytesPerHour", "Memory.GrowthErrorBytesPerHour", "Memory.HoursToLimit"}


@dataclass
class Course:
    """What was seen of one job from its start to its end."""

    queue: Ad  # JobLensUsage in condor_q while it ran
    text: str  # the same as the line of condor_q -long
    slot: Ad
    page: str  # of Prometheus
    status: list[Ad]
    output: str  # what the job knows of itself
    history: Ad
    last: Ad  # JobLensUsage as its node knows it
    slots_after: list[Ad]
    page_after: str
    job_page: str  # joblens job, after the end


def prometheus(pool: Pool) -> str:
    script = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9753/metrics').read().decode())"
    return pool.run("python3", "-c", script).stdout


def usages_of(slots: list[Ad], job: str) -> list[Ad]:
    """What slots' ads show of the job with this GlobalJobId."""
    usages = [slot.get("JobLensUsage") or {} for slot in slots]
    return [usage for usage in usages if usage.get("Run", "").startswith(f"{job}#")]


def usage_of_slot(pool: Pool, job: str) -> Ad:
    return next(iter(usages_of(pool.slots(), job)), {})


@pytest.fixture(scope="module")
def course(brisk: Pool) -> Iterator[Course]:
    pool = brisk
    pool.shell(f"rm -f {END}")
    cluster = pool.submit(f"{WORKER}{END}\nqueue")

    queue = pool.until(lambda: worked(pool.usage(cluster)), "numbers of the job's work in condor_q")
    job = pool.job(cluster)["GlobalJobId"]
    with slots_soon(pool):
        slot = pool.until(lambda: worked(usage_of_slot(pool, job)), "the same in the slot's ad")
    long = pool.run("condor_q", "-long", str(cluster)).stdout
    page, status = prometheus(pool), json.loads(pool.run("joblens", "status", "--json").stdout)
    pool.shell(f"touch {END}")
    (history,) = pool.wait_ended(cluster)
    pool.until(lambda: not usages_of(pool.slots_of_startd(), job), "the slot's ad to be withdrawn")
    pool.until(lambda: f'job_id="{cluster}.0"' not in prometheus(pool), "the job to vanish from the page")
    yield Course(
        queue=queue,
        text=next(line for line in long.splitlines() if line.startswith("JobLensUsage")),
        slot=slot,
        page=page,
        status=status,
        output=pool.output(cluster),
        history=history,
        last=pool.last_usage(cluster),
        slots_after=pool.slots_of_startd(),
        page_after=prometheus(pool),
        job_page=pool.run("joblens", "job", f"{cluster}.0", "--json").stdout,
    )


@pytest.mark.every_suite
def test_queue_says_who_when_and_how_well(course: Course) -> None:
    usage = course.queue
    assert usage["Run"] == f"{course.history['GlobalJobId']}#1"
    assert (usage["Schema"], usage["Source"], usage["Level"], usage["LevelNumber"]) == (1, "bpf", "basic", 1)
    assert (usage["Final"], usage["Complete"], usage["Lost"]) == (False, True, 0)
    assert "Requested" not in usage
    assert "Note" not in usage
    assert 0 <= usage["StartTime"] - course.history["JobCurrentStartDate"] < 60
    assert isinstance(usage["StartTime"], int) and isinstance(usage["UpdateTime"], int)


@pytest.mark.every_suite
def test_every_number_has_its_place_and_no_other_is_there(course: Course) -> None:
    basic = [metric for metric in METRICS if metric.level <= Level.BASIC]
    known = {metric.path for metric in basic}
    told = {f"{group}.{name}" for group in GROUPS for name in course.queue.get(group, ())}
    assert told <= known
    # it asks no file server, and names no variable
    missing = known - told - {metric.path for metric in basic if metric.group in ("Server", "Peek")}
    assert missing <= NEEDS_A_CONTROLLER | NEEDS_TIME | {"Tcp.RttSeconds"}
    attributes = {field.attribute for field in FIELDS if field.attribute and not field.group} | {"Schema", *GROUPS}
    assert set(course.queue) <= attributes


@pytest.mark.every_suite
def test_ad_has_at_most_two_kilobytes(course: Course) -> None:
    assert len(course.text) <= 2048


@pytest.mark.every_suite
def test_slot_and_command_and_page_tell_of_the_same_run(course: Course) -> None:
    assert course.slot["Run"] == course.queue["Run"]
    assert course.slot["Process"]["Executed"] == course.queue["Process"]["Executed"]
    assert course.queue["Run"] in json.dumps(course.status)
    executed = re.search(r"^joblens_job_process_executed_total\{.*\} (\S+)$", course.page, re.M)
    assert executed and float(executed[1]) == course.queue["Process"]["Executed"]


@pytest.mark.every_suite
def test_nothing_of_the_job_is_left_in_slot_and_page(course: Course) -> None:
    assert not usages_of(course.slots_after, course.history["GlobalJobId"])
    assert "joblens_up 1.0" in course.page_after
    assert not re.findall(r"^joblens_job_\w+\{.*", course.page_after, re.M)


@pytest.mark.every_suite
def test_last_numbers_are_what_the_job_knows_of_itself(course: Course) -> None:
    check(course.last, course.output)
    in_history = course.history["JobLensUsage"]
    if in_history["Final"]:  # nearly always: test_many_jobs.py
        check(in_history, course.output)


@pytest.mark.every_suite
def test_totals_never_went_backwards(course: Course) -> None:
    final = course.last
    for metric in METRICS:
        if metric.level > Level.BASIC or metric.kind is MetricKind.GAUGE:
            continue
        if metric.name in course.queue.get(metric.group, ()):
            # an ad has fewer digits than the node's record
            least = course.queue[metric.group][metric.name] * (1 - 1e-6)
            assert final[metric.group][metric.name] >= least, metric


@pytest.mark.every_suite
def test_command_knows_the_ended_run_exactly(course: Course) -> None:
    told = json.loads(course.job_page)
    run = told[-1] if isinstance(told, list) else told
    assert f'"{course.queue["Run"]}"' in json.dumps(run)
    for group in ("Process", "Io", "Tcp"):
        for name, value in course.last[group].items():
            if name != "RttSeconds" and isinstance(value, int):
                assert f'"{name}": {value}' in course.job_page, (group, name)


@pytest.mark.every_suite
def test_first_numbers_come_at_the_second_look_with_the_shipped_snippets(pool: Pool) -> None:
    """Stock: the starter looks after 8 s; ours: the shadow tells the queue within 15 s. HTCondor's own 300 and 900 s
    would let this fail: a test that waits for longer than ours could take proves the snippets to be in force."""
    cluster = pool.submit("executable = /bin/sleep\narguments = 600\nqueue")
    pool.wait_running(cluster)
    usage = pool.until(lambda: pool.usage(cluster), "the first numbers", seconds=120)
    ad = pool.job(cluster)
    print(f"{ad['ServerTime'] - ad['JobCurrentStartDate']} s from the job's start to its first numbers in condor_q")
    assert usage["Process"]["Live"] == 1
