"""Jobs that forge, borrow, flood and replace: their numbers stay their own, and nobody else's change."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from harness import Ad, Pool

from condor_joblens.publish.updatead import WriteResult

HOSTILE = "executable = /usr/bin/python3\narguments = /usr/src/condor_joblens/tests/pool/hostile.py"
REPLACEMENTS = ("link", "fifo", "gigabyte", "forged")
BORROWED = "inner_slot _var_lib_condor_execute_slot1_2@elsewhere.slice"
LONG = ["late", "elsewhere", BORROWED, *(f"replaced_ad {how}" for how in REPLACEMENTS)]
CONNECTIONS = 10_000
RESTARTS = 200
BEGINS_ANEW = f"""executable = /bin/sh
arguments = "-c 'n=$(cat n || echo 0); n=$((n+1)); echo $n >n; test $n = {RESTARTS} || exit 85'"
checkpoint_exit_code = 85
transfer_checkpoint_files = n
transfer_output_files =
should_transfer_files = YES
queue
"""


@pytest.fixture(scope="module")
def jobs(brisk: Pool) -> Iterator[dict[str, int]]:
    """Bob's hostile jobs, and a good neighbour of alice's, all at the same time."""
    found = {what: brisk.submit(f"{HOSTILE} {what}\nqueue", "bob") for what in LONG}
    found["neighbour"] = brisk.submit("executable = /bin/sleep\narguments = 600\nqueue", "alice")
    yield found


def usage_after_work(pool: Pool, cluster: int, executed: int) -> Ad:
    def done() -> Ad:
        usage = pool.usage(cluster)
        return usage if usage and usage["Process"]["Executed"] >= executed else {}

    return pool.until(done, f"the numbers of job {cluster}")


def rows(pool: Pool) -> dict[str, Ad]:
    return {row["JobId"]: row for row in json.loads(pool.run("joblens", "status", "--json").stdout)["Jobs"]}


@pytest.mark.parametrize("how", REPLACEMENTS)
def test_job_that_replaces_its_ads_keeps_its_own_name(brisk: Pool, jobs: dict[str, int], how: str) -> None:
    cluster = jobs[f"replaced_ad {how}"]
    own = f"{brisk.job(cluster)['GlobalJobId']}#1"

    def on_node() -> Ad:
        row = rows(brisk).get(f"{cluster}.0", {})
        return row if row.get("JobLensUsage", {}).get("Process", {}).get("Executed", 0) >= 11 else {}

    row = brisk.until(on_node, f"the node's numbers of job {cluster}")
    assert (row["Owner"], row["JobLensUsage"]["Run"]) == ("bob", own)
    if how == "gigabyte":  # nobody deletes it for the job: its ad may stay without numbers, and joblensd says so
        brisk.until(
            lambda: brisk.usage(cluster) or WriteResult.TAKEN.value in brisk.log("JobLensdLog"), "the ad, or a reason"
        )
        assert brisk.usage(cluster).get("Run", own) == own
    else:
        assert usage_after_work(brisk, cluster, 11)["Run"] == own


def test_cgroup_with_another_slots_name_is_the_jobs_own(brisk: Pool, jobs: dict[str, int]) -> None:
    assert usage_after_work(brisk, jobs[BORROWED], 11)["Process"]["Executed"] == 11
    assert usage_after_work(brisk, jobs["neighbour"], 1)["Process"]["Executed"] == 1
    # a job that no other test waited for may begin only now: the row of each, and of nothing else, has to come
    expected = {f"{cluster}.0" for cluster in jobs.values()}
    brisk.until(lambda: set(rows(brisk)) >= expected, "a row of each job")
    assert set(rows(brisk)) == expected


def test_counters_are_begun_once(brisk: Pool, jobs: dict[str, int]) -> None:
    assert usage_after_work(brisk, jobs["late"], 11)["Process"]["Executed"] == 11
    assert brisk.output(jobs["late"], "bob") == "joblens/1|refused|reason=the job has started already|\n"


def test_nobody_starts_in_another_slot(brisk: Pool, jobs: dict[str, int]) -> None:
    usage_after_work(brisk, jobs["elsewhere"], 1)
    assert brisk.output(jobs["elsewhere"], "bob") == "joblens/1|refused|reason=this process is in another slot|\n"
    assert all(row["Slot"] != "slot1_15" for row in rows(brisk).values())


def test_numbers_that_the_owner_edits_are_put_right(brisk: Pool, jobs: dict[str, int]) -> None:
    cluster = jobs["late"]
    before = usage_after_work(brisk, cluster, 11)
    forged = '[ Run = "mine"; Process = [ Executed = 0 ] ]'
    brisk.run("condor_qedit", str(cluster), "JobLensUsage", forged, user="bob")
    assert usage_after_work(brisk, cluster, 11)["Run"] == before["Run"]


def test_who_edits_his_jobs_name_gets_no_numbers_of_another(brisk: Pool, jobs: dict[str, int]) -> None:
    """A run goes on from its checkpoint by its name. Most of that is GlobalJobId, which its owner can edit."""
    secret = brisk.submit("executable = /usr/bin/python3\narguments = -c pass\nqueue", "alice")
    (ad,) = brisk.wait_ended(secret)
    cluster = brisk.submit(f"{HOSTILE} late\nhold = true\nqueue", "bob")
    brisk.run("condor_qedit", str(cluster), "GlobalJobId", f'"{ad["GlobalJobId"]}"', user="bob")
    brisk.run("condor_release", str(cluster), user="bob")
    usage = usage_after_work(brisk, cluster, 11)
    assert usage["Process"]["Executed"] == 11
    assert ad["GlobalJobId"] not in usage["Run"] and "GlobalJobId is not this job's" in usage["Note"]


def test_talk_that_is_no_request_is_refused(brisk: Pool, jobs: dict[str, int]) -> None:
    cluster = brisk.submit(f"{HOSTILE} talker\nqueue", "bob")
    (ad,) = brisk.wait_ended(cluster)
    answers = brisk.output(cluster, "bob").splitlines()
    assert (ad["ExitCode"], len(answers)) == (0, 8)
    assert [answer for answer in answers if "traced" in answer] == []
    for answer in answers[1:4]:
        assert answer == "joblens/1|refused|reason=the protocol is joblens/1 or joblens/2|"
    assert brisk.last_usage(cluster)["Final"] is True


def test_ten_thousand_open_connections_disturb_nobody(brisk: Pool, jobs: dict[str, int]) -> None:
    brisk.shell("rm -f /home/bob/stop /home/bob/flooding")
    flood = brisk.submit(f"{HOSTILE} flood {CONNECTIONS}\nqueue", "bob")
    brisk.until(lambda: (brisk.root / "home/bob/flooding").exists(), "ten thousand connections")
    with brisk.shipped_wrappers():
        cluster = brisk.submit("executable = /bin/sh\narguments = \"-c 'exit 3'\"\nqueue 3", "alice")
        ads = brisk.wait_ended(cluster)
    assert [ad["ExitCode"] for ad in ads] == [3, 3, 3]
    for process in range(3):
        # the job itself, and its wrapper's helper where it had to give up waiting
        assert brisk.last_usage(cluster, process)["Process"]["Failed"] in (1, 2)
    assert rows(brisk)[f"{flood}.0"]["JobLensUsage"]["Final"] is False
    brisk.shell("touch /home/bob/stop")
    assert brisk.wait_ended(flood)[0]["ExitCode"] == 0


def test_a_job_that_begins_anew_all_the_time_says_that_it_is_not_counted_each_time(brisk: Pool) -> None:
    cluster = brisk.submit(BEGINS_ANEW, "bob")
    brisk.until(lambda: not brisk.jobs(cluster), f"{RESTARTS} beginnings", 600)
    (ad,) = brisk.wait_ended(cluster)
    usage = brisk.last_usage(cluster)
    assert ad["ExitCode"] == 0
    assert (usage["Complete"], "it began anew so often" in usage["Note"]) == (False, True)
    # each begin runs sh and cat, and none of them is counted twice
    assert 2 * 20 <= usage["Process"]["Executed"] < 2 * RESTARTS
    # none, if it had begun anew each time before its decision was there
    assert brisk.log("JobLensdLog").count(f"run {usage['Run']} of bob is watched at") <= 1
    # who comes after it, in its slot or another, has all of the numbers
    after = brisk.last_usage(brisk.submit("executable = /bin/sleep\narguments = 1\nqueue", "alice"))
    assert (after["Complete"], after["Process"]["Executed"]) == (True, 1)


EDIT = """
import sys
try:
    import htcondor2 as htcondor
except ImportError:
    import htcondor
htcondor.Schedd().edit([sys.argv[1]], "GlobalJobId", '"' + "x" * 6_000_000 + '"')
"""


def test_one_jobs_endless_name_keeps_the_startds_word_from_nobody(brisk: Pool) -> None:
    endless = brisk.submit("executable = /bin/sleep\narguments = 600\nhold = true\nqueue 2", "bob")
    for number in range(2):
        brisk.run("/opt/joblens/bin/python3", "-c", EDIT, f"{endless}.{number}", user="bob")
    brisk.run("condor_release", str(endless), user="bob")
    run = f'JobId is "{endless}.0" || JobId is "{endless}.1"'
    brisk.until(lambda: brisk.run("condor_status", "-constraint", run, "-af", "JobId").stdout.count("\n") == 2, "both")
    # no policy in the way: what a job asks for counts when the startd has confirmed its ad
    honest = brisk.submit('executable = /bin/sleep\narguments = 600\n+JobLensLevel = "io"\nqueue', "alice")
    usage = brisk.until(lambda: (told := brisk.usage(honest)) and told["Level"] == "io" and told, "level io")
    assert "startd" not in usage.get("Note", "")
    brisk.clean()
