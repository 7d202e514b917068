"""Policies at work on running jobs: raised and lowered, within the node's budgets, by hand, and when they fail."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Iterator

import pytest
from harness import Ad, Pool

FOLDER = "/etc/joblens/policies.d"

BRISKLY = """
JOBLENS_POLICY_PERIOD = 1
JOBLENS_POLICY_HOLD = 0
"""

RULES = """
rule "production" { when = "JobLensNote == \\"production\\"", level = "io", reason = "watched closely" }
rule "flip" {
    when = function(job, slot, node, usage) return job.JobLensNote == "flip" and usage.RunSeconds // 2 % 2 == 1 end,
    level = "io"
}
rule "hang" {
    when = function(job, slot, node, usage) return job.JobLensNote == "hang" and usage.IdleSeconds > 6 end,
    level = "io", for_seconds = 3, reason = "no CPU"
}
rule "away" {
    when = function(job, slot) return job.JobLensNote == "away" and slot.Activity == "Suspended" end,
    cap = "off"
}
rule "first seconds" { when = { JobLensNote = "rounds" }, level = "io", for_seconds = 3 }
"""

LESS = "level lowered by a budget of the node"
SLEEP = "executable = /bin/sleep\narguments = 600\n"
WORKS = "executable = /bin/sh\narguments = \"-c 'while :; do :; done'\"\n"
FORKS = 500
FORKING = f"""executable = /bin/sh
arguments = "-c 'i=0; while [ $i -lt {FORKS} ]; do /bin/sleep 0.02; i=$((i+1)); done; exit 0'"
"""
CHECKPOINTING = """executable = /bin/sh
arguments = "-c 'sleep 6; test -e first || { touch first; exit 85; }'"
checkpoint_exit_code = 85
transfer_checkpoint_files = first
transfer_output_files =
should_transfer_files = YES
"""
JOBS = {
    "plain": f"{SLEEP}queue",
    "other": f"{SLEEP}queue",
    "production": f'{SLEEP}+JobLensNote = "production"\nqueue',
    "flip": f'{FORKING}+JobLensNote = "flip"\nqueue',
    "hangs": f'{SLEEP}+JobLensNote = "hang"\nqueue',
    "suspended": f'{WORKS}+JobLensNote = "hang"\nqueue',
    "away": f'{SLEEP}+JobLensNote = "away"\nqueue',
    "rounds": f'{CHECKPOINTING}+JobLensNote = "rounds"\nqueue',
}


@pytest.fixture(scope="module")
def pool(brisk: Pool) -> Iterator[Pool]:
    """The pool, whose policies are asked every second and whose word need not stand."""
    with brisk.config(BRISKLY):
        yield brisk


@contextlib.contextmanager
def policy(pool: Pool, text: str, name: str) -> Iterator[None]:
    """A policy of the site, in force within the block."""
    path = pool.root / FOLDER.lstrip("/") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    # what the first call hears of may have begun before: a condor_reconfig of somebody else's
    reconfigure(pool)
    reconfigure(pool)
    try:
        yield
    finally:
        path.unlink()
        reconfigure(pool)


def reconfigure(pool: Pool) -> str:
    """What joblensd has to say when it reads its configuration again."""
    before = len(pool.log("JobLensdLog"))
    pool.run("condor_reconfig")
    pool.until(lambda: "configuration read again" in pool.log("JobLensdLog")[before:], "joblensd to have read it")
    return pool.log("JobLensdLog")[before:]


def reconfigure_until_it_says(pool: Pool, words: str, since: int | None = None) -> None:
    """What joblensd does about it comes a moment after it has read its configuration.

    `since` is the length of its log before what it is to speak of; None: as it is now.
    """
    before = len(pool.log("JobLensdLog")) if since is None else since

    def says() -> bool:
        reconfigure(pool)
        return words in pool.log("JobLensdLog")[before:]

    pool.until(says, f"joblensd to say{words}")


@pytest.fixture(scope="module")
def jobs(pool: Pool) -> Iterator[dict[str, int]]:
    """The jobs of JOBS, all at a time, under RULES."""
    with policy(pool, RULES, "50-test.lua"):
        clusters = {"suspended": pool.submit(JOBS["suspended"])}  # busy until then: an idle one would be raised
        pool.wait_running(clusters["suspended"])
        pool.suspend(clusters["suspended"])
        clusters.update({name: pool.submit(text) for name, text in JOBS.items() if name != "suspended"})
        yield clusters


def watched(pool: Pool, cluster: int, level: str, note: str = "") -> Ad:
    """JobLensUsage of the cluster's job, when its ad says this level, and this in its note.

    A run can be at that level for another reason before.
    """

    def said() -> Ad:
        usage = is_at(pool.usage(cluster), level)
        return usage if note in usage.get("Note", "") else {}

    return pool.until(said, f"job {cluster} at level {level}, and the note: {note}")


def is_at(usage: Ad, level: str) -> Ad:
    return usage if usage.get("Level") == level else {}


def changes(pool: Pool, cluster: int) -> list[str]:
    """The levels that a job went to, in order, as joblensd logged them."""
    return re.findall(rf"#{cluster}\.0#\S+ goes from \w+ to (\w+)", pool.log("JobLensdLog"))


@pytest.mark.every_suite
def test_a_site_raises_a_group_and_the_ad_says_which_rule_and_why(pool: Pool, jobs: dict[str, int]) -> None:
    usage = watched(pool, jobs["production"], "io")
    assert (usage["Policy"], usage["Reason"]) == ("production", "watched closely")
    pool.until(lambda: is_at(pool.usage(jobs["plain"]), "basic").get("Policy") == "as asked", "what a policy decided")


def test_levels_change_while_a_job_runs_and_no_count_is_lost_or_doubled(pool: Pool, jobs: dict[str, int]) -> None:
    usage = pool.last_usage(jobs["flip"])
    process = usage["Process"]
    assert len(changes(pool, jobs["flip"])) >= 2, "it went up and down"
    counted = (process["Forked"], process["Executed"], process["Exited"])
    assert counted == (FORKS, FORKS + 1, FORKS + 1)
    assert usage["Complete"] is True


def test_an_idle_job_is_raised_for_a_while_and_a_suspended_one_is_not(pool: Pool, jobs: dict[str, int]) -> None:
    pool.until(lambda: changes(pool, jobs["hangs"]) == ["io", "basic"], "the idle job to be raised and lowered")
    (line,) = re.findall(rf"#{jobs['hangs']}\.0#.* goes from basic to io: (.*)", pool.log("JobLensdLog"))
    assert line == "hang, no CPU"
    watched(pool, jobs["hangs"], "basic")
    assert changes(pool, jobs["hangs"]) == ["io", "basic"], "once, though it is still idle"
    assert changes(pool, jobs["suspended"]) == []


def test_a_temporary_level_does_not_begin_anew_when_the_job_goes_on_from_its_checkpoint(
    pool: Pool, jobs: dict[str, int]
) -> None:
    pool.wait_ended(jobs["rounds"])
    said = rf"#{jobs['rounds']}\.0#\S+ (?:of alice is watched at|goes from \w+ to) (\w+)"
    levels = [level for level, _ in itertools.groupby(re.findall(said, pool.log("JobLensdLog")))]
    # the first job at io of a node is at basic while that is loaded
    assert levels[-2:] == ["io", "basic"] and levels[:-2] in ([], ["basic"]), "once, in its two rounds"


@pytest.mark.every_suite
def test_what_the_startd_says_of_the_slot_counts_at_once(pool: Pool, jobs: dict[str, int]) -> None:
    watched(pool, jobs["away"], "basic")
    pool.suspend(jobs["away"])
    pool.until(lambda: changes(pool, jobs["away"]) == ["off"], "the suspended job to be let alone")


def test_a_level_by_hand_is_the_owners_and_roots_and_outlives_joblensd(pool: Pool, jobs: dict[str, int]) -> None:
    job, other = f"{jobs['plain']}.0", f"{jobs['other']}.0"
    watched(pool, jobs["other"], "basic")
    said = pool.run("joblens", "level", job, "io", "--for", "3s", user="alice").stdout
    assert re.match(rf"job {job} in slot1_\d+ is watched at io: by hand, by alice until \d\d:\d\d \S+\n", said)
    pool.run("joblens", "level", other, "io", "--for", "10m")
    refused = pool.run("joblens", "level", job, "off", user="bob", check=False)
    assert (refused.returncode, "only root and the user as whom" in refused.stderr) == (1, True)
    refused = pool.run("joblens", "level", job, "trace", check=False)
    assert "above this site's JOBLENS_MAX_LEVEL = io" in refused.stderr
    pool.until(lambda: changes(pool, jobs["plain"]) == ["io", "basic"], "the level to be gone by itself")

    pool.run("joblens", "level", job, "off", "--for", "3s")
    pool.until(lambda: changes(pool, jobs["plain"]) == ["io", "basic", "off", "basic"], "the job to be watched again")

    def noted() -> Ad:
        usage = pool.usage(jobs["plain"])
        return usage if "it was at level off" in usage.get("Note", "") and "Process" in usage else {}

    usage = pool.until(noted, "its numbers, and what they lack")
    assert (usage["Process"]["Live"], usage["Complete"]) == (1, False)

    pool.shell("kill -9 $(ps ax -o pid,args | awk '/[c]ondor_joblens.agent$/ {print $1}')")
    pool.until(lambda: pool.run("joblens", "level", other, check=False).stdout, "joblensd to come back")
    usage = watched(pool, jobs["other"], "io")
    assert usage["Policy"] == "by hand"
    assert re.fullmatch(r"by root until \d\d:\d\d \S+", usage["Reason"])
    pool.run("joblens", "level", other, "--clear")
    assert watched(pool, jobs["other"], "basic")["Policy"] == "as asked"


def test_the_owner_and_root_watch_a_job_row_by_row_and_nobody_else_does(pool: Pool, jobs: dict[str, int]) -> None:
    run = watched(pool, jobs["other"], "basic")["Run"]
    for user in ("alice", "root"):
        seen = pool.run("joblens", "watch", f"{jobs['other']}.0", "-n", "3", "--json", user=user).stdout.splitlines()
        rows = [json.loads(line)["JobLensUsage"] for line in seen]
        assert [row["Run"] for row in rows] == [run] * 3
        times = [row["UpdateTime"] for row in rows]
        assert times == sorted(times) and times[0] < times[-1]
    refused = pool.run("joblens", "watch", f"{jobs['other']}.0", user="bob", check=False)
    assert (refused.returncode, "only root and the user as whom" in refused.stderr) == (1, True)


def test_over_the_budget_the_youngest_steps_down_says_so_and_comes_back(pool: Pool, jobs: dict[str, int]) -> None:
    """Of the two one is at level io already, and is older."""
    young = pool.submit(f'{SLEEP}+JobLensLevel = "io"\nqueue')
    with pool.config("JOBLENS_MAX_JOBS_IO = 1"):
        watched(pool, young, "basic", f"{LESS}: JOBLENS_MAX_JOBS_IO = 1, and more important jobs have that level")
        pool.run("condor_rm", str(jobs["production"]))
        assert LESS not in watched(pool, young, "io").get("Note", "")


def test_a_quota_is_each_owners_and_the_youngest_steps_down_says_so_and_comes_back(pool: Pool) -> None:
    pool.clean()  # older jobs would have the quota
    quota = 'rule "one for each user" { max_jobs = 1, per = "owner" }'
    asks = f'{SLEEP}+JobLensLevel = "io"\nqueue'
    with policy(pool, quota, "60-quota.lua"):
        first, other = pool.submit(asks), pool.submit(asks, "bob")
        watched(pool, first, "io")
        watched(pool, other, "io")
        second = pool.submit(asks)
        watched(pool, second, "basic", f"{LESS}: a policy's quota of 1 job is used by more important ones")
        assert is_at(pool.usage(other), "io"), "another owner has a quota of his own"
        pool.run("condor_rm", str(first))
        assert LESS not in watched(pool, second, "io").get("Note", "")
        pool.run("condor_rm", str(second), str(other))


def told(pool: Pool, command: str) -> str:
    return pool.run("joblens", command, check=False).stdout


def test_a_policy_that_fails_is_set_aside_and_jobs_run_at_the_default(pool: Pool) -> None:
    before = len(pool.log("JobLensdLog"))
    broken = '-- fails\nrule "broken" { when = function(job) return job.Owner:sub({}) == "" end, level = "io" }\n'
    with policy(pool, broken, "60-broken.lua"):
        cluster, _ = pool.submit(f"{SLEEP}queue 2"), pool.submit(f"{SLEEP}queue 1", "bob")
        line = "policy 60-broken.lua failed 3 times in a row and is set aside until condor_reconfig: 60-broken.lua:2: "
        pool.until(lambda: line in pool.log("JobLensdLog")[before:], "the policy to be set aside")
        pool.until(lambda: "set aside: 60-broken.lua" in told(pool, "doctor"), "joblens doctor to tell of it")
        assert "policy set aside: 60-broken.lua" in told(pool, "status")
        watched(pool, cluster, "basic")
    pool.until(lambda: "set aside" not in pool.run("joblens", "status").stdout, "nothing to be set aside")


def test_a_folder_that_others_can_write_is_refused_with_the_remedy(pool: Pool) -> None:
    pool.shell(f"chmod o+w {FOLDER}")
    try:
        said = reconfigure(pool)
    finally:
        pool.shell(f"chmod o-w {FOLDER}")
    assert f"{FOLDER} is not used: everybody can write it" in said
    assert "chmod o-w it" in said


ONE_STEP_A_RECONFIG = """
JOBLENS_PERIOD = 0.1
JOBLENS_POLICY_PERIOD = 600
JOBLENS_MAX_CPU = 64
"""


def test_over_its_budget_of_cpu_the_least_important_steps_down_first_and_comes_back_last(pool: Pool) -> None:
    """joblensd looks at its CPU when it asks the policies again: here at condor_reconfig, and at no other time."""
    pool.clean()
    close = f'{SLEEP}+JobLensLevel = "io"\n'
    rule = 'rule "dear" { when = { JobLensNote = "dear" }, priority = 10 }'
    with policy(pool, rule, "70-dear.lua"), pool.config(ONE_STEP_A_RECONFIG):
        dear = pool.submit(f'{close}+JobLensNote = "dear"\nqueue')
        watched(pool, dear, "io")
        before = len(pool.log("JobLensdLog"))  # it may act on the new budget at once
        with pool.config("JOBLENS_MAX_CPU = 0.001"):
            reconfigure_until_it_says(pool, ": 1 steps down", before)
            watched(pool, dear, "basic")
            cheap = pool.submit(f"{close}queue")
            told = f"{LESS}: joblensd uses more than JOBLENS_MAX_CPU = 0.001 cores"
            watched(pool, cheap, "basic", told)
            assert LESS not in watched(pool, dear, "io").get("Note", ""), "one step, and somebody less important"
            reconfigure_until_it_says(pool, ": 2 steps down")
            watched(pool, dear, "basic", told)
        watched(pool, dear, "io")
        assert is_at(pool.usage(cheap), "basic"), "one step comes back at a time"
        reconfigure(pool)
        watched(pool, cheap, "io")
