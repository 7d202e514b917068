"""Which jobs are watched, and what becomes of their numbers: the table in docs/jobs.md names these tests.

The jobs of a pool are submitted together and run side by side; each test looks after its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from harness import Ad, Pool

OLDEST = "trixie"

BUSY = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"

LONG = f"executable = /bin/sh\narguments = \"-c '{BUSY}; exec sleep 600'\"\n"
"""Executes two programs: sh and sleep."""

ROUNDS = 3
CHECKPOINTING = f"""
executable = /bin/sh
arguments = "-c 'n=$(cat n || echo 0); {BUSY}; n=$((n+1)); echo $n >n; sleep 2; test $n = {ROUNDS} || exit 85'"
checkpoint_exit_code = 85
transfer_checkpoint_files = n
transfer_output_files =
should_transfer_files = YES
queue
"""

IN_A_ROW = 8
SHORT = f"""
executable = /bin/sh
arguments = "-c 'for i in $(seq $(Process)); do /bin/true; done'"
request_cpus = 9
priority = 10
queue {IN_A_ROW}
"""
"""Jobs of which the node has room for one at a time: each comes into the slot that the one before has left.

They go first: a job that was vacated meanwhile, and is older, would take that slot for good."""

PILOT = """
executable = /usr/bin/python3
arguments = /usr/src/condor_joblens/tests/pool/hostile.py inner_slot _var_tmp_execute_slot1_1@inner.slice
queue
"""

MAKE_IMAGE = """
image=/var/lib/joblens-test-image
cd "$(mktemp -d)"
mkdir -p bin lib64 tmp var/tmp proc sys dev etc home
cp /bin/sh /bin/sleep bin/
ldd /bin/sh /bin/sleep | grep -o '/[^ :]*' | sort -u | xargs -I{} cp -L --parents {} .
touch etc/passwd etc/group
chmod 755 .
rm -rf $image
mv "$PWD" $image
"""
CONTAINER = "universe = container\ncontainer_image = /var/lib/joblens-test-image\ntransfer_container = false\n"
CONTAINER += "transfer_executable = false\n"

HOSTILE_PROGRAMS = 400
FORGES = "for ad in .job.ad .machine.ad .update.ad; do echo 1 >$ad; done"
STORMS = f"i=0; while test $i -lt {HOSTILE_PROGRAMS}; do /bin/sleep 0; i=$((i+1)); done"
HOSTILE_CONTAINER = f"""{CONTAINER}executable = /bin/sh
arguments = "-c '{FORGES}; {STORMS}; exec /bin/sleep 600'"
queue
"""
"""It writes over what the node's daemons look for in its folder, and starts programs as fast as it can."""
NEIGHBOUR = """
executable = /bin/sh
arguments = "-c 'for i in 1 2 3 4 5 6 7 8 9; do /bin/sleep 0; done; exec /bin/sleep 600'"
queue
"""


@pytest.fixture(scope="module")
def jobs(brisk: Pool) -> Iterator[dict[str, int]]:
    """The clusters of the jobs that most tests here are about, by name."""
    with brisk.config("SINGULARITY_RUN_TEST_BEFORE_JOB = false"):
        brisk.shell(MAKE_IMAGE)
        descriptions = {name: LONG + "queue\n" for name in ("vacated", "held", "suspended", "removed")}
        descriptions["checkpointing"] = CHECKPOINTING
        descriptions["pilot"] = PILOT
        descriptions["local"] = f"universe = local\n{LONG}queue\n"
        descriptions["scheduler"] = f"universe = scheduler\n{LONG}queue\n"
        if brisk.run("which", "apptainer", check=False).returncode == 0:
            descriptions["container"] = CONTAINER + LONG + "queue\n"
        descriptions["in a row"] = SHORT
        yield {name: brisk.submit(description) for name, description in descriptions.items()}


def wait_for_work(pool: Pool, cluster: int, run: str = "#1", programs: int = 2) -> Ad:
    """The usage of that run of a job, as the queue has it, once so many programs have been started."""

    def working() -> Ad:
        usage = pool.usage(cluster)
        return usage if usage and usage["Run"].endswith(run) and usage["Process"]["Executed"] >= programs else {}

    return pool.until(working, f"numbers of run {run} of job {cluster}")


def on_node(pool: Pool, job: str) -> list[Ad]:
    """What the node knows of a job's runs, the last one first."""
    told = json.loads(pool.run("joblens", "job", job, "--json").stdout)
    return [told["Job"], *told["Others"]]


def final(usage: Ad) -> Ad:
    assert (usage["Final"], usage["Complete"], usage["Process"]["Live"]) == (True, True, 0), usage
    return usage


@pytest.mark.every_suite
def test_job_that_is_vacated_and_comes_back_is_a_new_run(brisk: Pool, jobs: dict[str, int]) -> None:
    cluster = jobs["vacated"]
    first = wait_for_work(brisk, cluster)
    brisk.run("condor_vacate_job", "-fast", str(cluster))
    second = wait_for_work(brisk, cluster, "#2")
    assert second["Run"] == first["Run"][:-1] + "2"
    assert second["StartTime"] >= first["StartTime"]
    assert (second["Process"]["Executed"], second["Process"]["Signalled"], second["Final"]) == (2, 0, False)
    past = [run["JobLensUsage"] for run in on_node(brisk, f"{cluster}.0") if run["JobLensUsage"]["Run"] == first["Run"]]
    assert [final(run)["Process"]["Signalled"] for run in past] == [1]


@pytest.mark.every_suite
def test_job_that_is_held_and_released_is_a_new_run(brisk: Pool, jobs: dict[str, int]) -> None:
    cluster = jobs["held"]
    wait_for_work(brisk, cluster)
    brisk.run("condor_hold", str(cluster))
    brisk.until(lambda: brisk.job(cluster)["JobStatus"] == 5, "the job to be held")
    assert final(brisk.last_usage_on_node(cluster))["Run"].endswith("#1")
    brisk.run("condor_release", str(cluster))
    assert wait_for_work(brisk, cluster, "#2")["Process"]["Executed"] == 2


@pytest.mark.every_suite
def test_suspended_job_is_frozen_and_not_at_its_end(brisk: Pool, jobs: dict[str, int]) -> None:
    cluster = jobs["suspended"]
    before = wait_for_work(brisk, cluster)
    brisk.suspend(cluster)

    def activity() -> set[str]:
        return {slot["Activity"] for slot in brisk.slots() if slot.get("JobId") == f"{cluster}.0"}

    brisk.until(lambda: activity() == {"Suspended"}, "the job's slot to be suspended")
    suspended = int(time.time()) + 1  # the starter is told of it a moment later

    def measured_after(moment: int) -> Ad:
        rows = json.loads(brisk.run("joblens", "status", "--json").stdout)["Jobs"]
        (usage,) = [row["JobLensUsage"] for row in rows if row["JobId"] == f"{cluster}.0"]
        return usage if usage["UpdateTime"] > moment else {}

    frozen = brisk.until(lambda: measured_after(suspended), "numbers of the suspended job")
    later = brisk.until(lambda: measured_after(frozen["UpdateTime"]), "its next numbers")
    for usage in (frozen, later):
        assert (usage["Run"], usage["Final"], usage["Process"]["Live"]) == (before["Run"], False, 1)
    assert later["Cpu"]["Seconds"] == frozen["Cpu"]["Seconds"]
    brisk.run("condor_rm", str(cluster))
    assert final(brisk.last_usage(cluster))["Run"] == before["Run"]


@pytest.mark.every_suite
def test_removed_job_has_its_final_numbers(brisk: Pool, jobs: dict[str, int]) -> None:
    cluster = jobs["removed"]
    wait_for_work(brisk, cluster)
    brisk.run("condor_rm", str(cluster))
    assert final(brisk.last_usage(cluster))["Process"]["Signalled"] == 1


@pytest.mark.every_suite
def test_self_checkpointing_job_goes_on_in_its_run(brisk: Pool, jobs: dict[str, int]) -> None:
    cluster = jobs["checkpointing"]
    (ad,) = brisk.wait_ended(cluster)
    usage = final(brisk.last_usage(cluster))
    assert (ad["ExitCode"], ad["NumShadowStarts"]) == (0, 1)
    assert usage["Run"] == f"{ad['GlobalJobId']}#1"
    # cat, sleep and the shell itself in every round; the one of the first round finds no file
    process = usage["Process"]
    assert (process["Executed"], process["Exited"]) == (3 * ROUNDS, process["Forked"] + ROUNDS)
    assert ad["JobCurrentStartDate"] <= usage["StartTime"] <= usage["UpdateTime"] - 2 * ROUNDS
    (run,) = on_node(brisk, f"{cluster}.0")
    assert run["JobLensUsage"]["Process"] == process


def test_jobs_in_one_slot_within_a_second_have_numbers_of_their_own(brisk: Pool, jobs: dict[str, int]) -> None:
    ads = brisk.wait_ended(jobs["in a row"])
    assert len(ads) == IN_A_ROW
    assert len({ad["LastRemoteHost"] for ad in ads}) < IN_A_ROW
    for ad in ads:
        usage = final(brisk.last_usage(ad["ClusterId"], ad["ProcId"]))
        assert usage["Run"].startswith(f"{ad['GlobalJobId']}#")
        # the shell, seq, and as many programs as the job was asked for
        assert usage["Process"]["Executed"] == 2 + ad["ProcId"]


def test_jobs_of_a_pilot_belong_to_the_pilots_slot(brisk: Pool, jobs: dict[str, int]) -> None:
    """An inner startd makes cgroups that are called like slots, in the slot that it was given."""
    usage = wait_for_work(brisk, jobs["pilot"], programs=11)
    assert (usage["Process"]["Executed"], usage["Process"]["Live"]) == (11, 1)
    ids = [row["JobId"] for row in json.loads(brisk.run("joblens", "status", "--json").stdout)["Jobs"]]
    assert ids.count(f"{jobs['pilot']}.0") == 1
    brisk.run("condor_rm", str(jobs["pilot"]))
    assert final(brisk.last_usage(jobs["pilot"]))["Process"]["Signalled"] == 1


def test_container_is_watched_from_its_launcher_on(brisk: Pool, jobs: dict[str, int]) -> None:
    """Apptainer's own processes are in the slot as well."""
    if "container" not in jobs:
        pytest.skip("this suite of Debian has no apptainer: the newest one's pool shows it")
    usage = wait_for_work(brisk, jobs["container"])
    assert (usage["Complete"], usage["Process"]["Executed"] > 2) == (True, True)
    brisk.run("condor_rm", str(jobs["container"]))
    assert final(brisk.last_usage(jobs["container"]))["Run"] == usage["Run"]


def test_a_hostile_container_has_its_own_name_and_numbers_and_changes_nobody_elses(
    brisk: Pool, jobs: dict[str, int]
) -> None:
    if "container" not in jobs:
        pytest.skip("this suite of Debian has no apptainer: the newest one's pool shows it")
    hostile, neighbour = brisk.submit(HOSTILE_CONTAINER, "bob"), brisk.submit(NEIGHBOUR, "alice")
    usage = wait_for_work(brisk, hostile, programs=HOSTILE_PROGRAMS + 1)
    assert (usage["Run"], usage["Complete"]) == (f"{brisk.job(hostile)['GlobalJobId']}#1", True)
    assert "startd" not in usage.get("Note", "")
    assert on_node(brisk, f"{hostile}.0")[0]["Owner"] == "bob"
    beside = wait_for_work(brisk, neighbour, programs=11)
    assert (beside["Complete"], beside["Process"]["Executed"]) == (True, 11)  # sh, nine, and what sh became
    for cluster in (hostile, neighbour):
        brisk.run("condor_rm", str(cluster))
        assert final(brisk.last_usage(cluster))["Run"].endswith("#1")


@pytest.mark.every_suite
def test_local_universe_is_watched_and_seen_on_the_machine_alone(brisk: Pool, jobs: dict[str, int]) -> None:
    """Its starter has no startd behind it and looks for no .update.ad.

    In 23.9 its ad is a file of the user's from the beginning, and so not believed: the slot alone is known.
    """
    job = f"{jobs['local']}.0"
    known = brisk.suite != OLDEST

    def row() -> Ad:
        """Once it has come to its last program, and is known by its name where that can be."""
        rows = json.loads(brisk.run("joblens", "status", "--json").stdout)["Jobs"]
        seen = next((row for row in rows if row["Slot"].startswith("local_")), {})
        has_begun = seen and seen["JobLensUsage"].get("Process", {}).get("Executed", 0) >= 2
        return seen if has_begun and (seen["JobId"] == job or not known) else {}

    seen = brisk.until(row, "the job of the local universe")
    assert (seen["JobId"], seen.get("Owner", "")) == ((job, "alice") if known else ("?.?", ""))
    assert ("known by its slot alone" in seen["JobLensUsage"].get("Note", "")) is not known
    assert (seen["JobLensUsage"]["Process"]["Live"], seen["JobLensUsage"]["Final"]) == (1, False)
    brisk.run("condor_rm", job)
    (ad,) = brisk.wait_ended(jobs["local"])
    assert not ad.get("JobLensUsage")
    if known:
        assert final(brisk.last_usage_on_node(jobs["local"]))["Process"]["Executed"] == 2


@pytest.mark.every_suite
def test_scheduler_universe_is_not_watched_and_not_disturbed(brisk: Pool, jobs: dict[str, int]) -> None:
    """The schedd itself starts it: there is neither starter nor cgroup nor wrapper."""
    cluster = jobs["scheduler"]
    brisk.wait_running(cluster)
    assert brisk.run("joblens", "job", f"{cluster}.0", check=False).returncode != 0
    assert not brisk.usage(cluster)
    brisk.run("condor_rm", str(cluster))
    assert not brisk.wait_ended(cluster)[0].get("JobLensUsage")


SECOND_STARTD = """
DAEMON_LIST = $(DAEMON_LIST) STARTD2
STARTD2 = $(STARTD)
STARTD2_ARGS = -f -local-name STARTD2
STARTD2.STARTD_NAME = second
STARTD2.EXECUTE = /var/lib/condor/execute2
STARTD2.STARTD_LOG = $(LOG)/StartLog2
STARTD2.STARTER_LOG = $(LOG)/StarterLog2
STARTD2.STARTD_ADDRESS_FILE = $(LOG)/.startd2_address
"""


@pytest.mark.soak
def test_slots_of_one_name_at_two_startds_have_their_own_jobs(brisk: Pool) -> None:
    brisk.clean()  # both begin with slot1_1
    brisk.shell("install -d -o condor -g condor /var/lib/condor/execute2")
    with brisk.config(SECOND_STARTD):

        def startd_of(slot: Ad) -> str:
            return str(slot["Name"]).split("@")[1]

        here, second = f"pool-{brisk.name}", "second"
        brisk.until(lambda: {startd_of(slot) for slot in brisk.slots()} == {here, second}, "a second startd")
        runs, slots = {}, {}
        for startd in (here, second):
            where = f'requirements = regexp("^[^@]*@{startd}", TARGET.Name)\n'
            cluster = brisk.submit(where + LONG + "request_cpus = 9\nqueue\n")
            runs[startd] = wait_for_work(brisk, cluster)["Run"]
            slots[startd] = brisk.job(cluster)["RemoteHost"].partition("@")[0]
        assert slots[here] == slots[second]

        def shown() -> dict[str, str]:
            told = {slot["Name"]: (slot.get("JobLensUsage") or {}).get("Run") for slot in brisk.slots()}
            # the collector can still have an ad of a slot in which another test's job was
            return {name.split("@")[1]: run for name, run in told.items() if run in runs.values()}

        assert brisk.until(lambda: len(found := shown()) == 2 and found, "both slots' numbers") == runs
