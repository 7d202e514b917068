"""What is written wrongly, by an administrator or a user, costs one clear line; jobs run all the same."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from harness import Ad, Pool

MANY_TERMS = "+".join(["1"] * 10_000)
"""condor_submit itself dies of some tens of thousands."""

BY_A_NAME = 'ifThenElse(NameOfMine =?= undefined, "io", "basic")'

# what a submit file says -> the level, and what the ad's Note has of it
LEVELS = {
    "7": ("basic", "JobLensLevel = 7 is not a level"),
    '"IO "': ("io", ""),
    '"io; rm -rf /"': ("basic", 'JobLensLevel = "io; rm -rf /" is not a level'),
    "{1,2}": ("basic", "is not a level"),
    '"profile"': ("io", "above this site's JOBLENS_MAX_LEVEL = io: capped"),
    'strcat("i", "o")': ("io", ""),
    BY_A_NAME: ("io", ""),
    "NoSuchAttribute + 1": ("basic", "is not a level"),
    "undefined": ("basic", ""),
    MANY_TERMS: ("basic", "is not a level"),
}


@pytest.fixture(scope="module")
def jobs(brisk: Pool) -> Iterator[dict[str, int]]:
    sleep = "executable = /bin/sleep\narguments = 600\n"
    yield {asked: brisk.submit(f"{sleep}+JobLensLevel = {asked}\nqueue") for asked in LEVELS}


def is_begun(usage: Ad) -> bool:
    """Whether it is of the job's one process. Its first numbers may be of its wrapper, which has not called yet."""
    return bool(usage) and usage["Process"]["Live"] == 1


@pytest.mark.parametrize("asked", LEVELS, ids=lambda asked: str(asked)[:24])
def test_job_runs_whatever_level_it_asks_for(brisk: Pool, jobs: dict[str, int], asked: str) -> None:
    level, note = LEVELS[asked]

    def decided() -> Ad:
        """The first numbers can come before the decision."""
        usage = brisk.usage(jobs[asked])
        said = usage.get("Note", "")
        # ten thousand terms can take a busy machine more than a decision's budget
        is_said = note in said or (asked == MANY_TERMS and "took more than 400 ms of CPU" in said)
        return usage if usage.get("Level") == level and is_said and is_begun(usage) else {}

    assert brisk.until(decided, f"level {level}, and the note: {note}, of one process")


def test_no_expression_of_a_job_is_in_a_slots_ad(brisk: Pool, jobs: dict[str, int]) -> None:
    """What it refers to would be significant to the negotiator: ProcId, say, and it matches each job by itself."""

    def slots() -> str:
        run = brisk.usage(jobs[BY_A_NAME]).get("Run", "none yet")
        said = brisk.run("condor_status", "-l").stdout
        return said if f'"{run}"' in said else ""

    outside_of_strings = re.sub(r'"(?:\\.|[^"\\])*"', "", brisk.until(slots, "the slot's numbers"))
    assert "NameOfMine" not in outside_of_strings


def test_no_number_that_a_user_writes_ends_joblensd(brisk: Pool) -> None:
    """8589934592 fits no exit code: it once ended joblensd, as long as the job ran."""
    process = brisk.run("pgrep", "-f", "condor_joblens.agent").stdout
    numbers = "".join(
        f"+{name} = 8589934592\n" for name in ("CheckpointExitCode", "JobLensPeriod", "NumShadowStarts", "MyNumber")
    )
    job = brisk.submit(f"executable = /bin/sleep\narguments = 600\n{numbers}queue")
    usage = brisk.until(lambda: is_begun(told := brisk.usage(job)) and told, "the job's numbers, of one process")
    assert "failed" not in usage.get("Note", "")
    assert brisk.run("pgrep", "-f", "condor_joblens.agent").stdout == process


def doctor(pool: Pool) -> str:
    return pool.run("joblens", "doctor", check=False).stdout


def said(pool: Pool, before: int, what: str) -> str:
    """The one line with `what` that joblensd has logged since its log had `before` characters."""

    def lines() -> list[str]:
        return [line for line in pool.log("JobLensdLog")[before:].splitlines() if what in line]

    found = pool.until(lines, f"a line with {what}")
    # a busy joblensd can read it for the reconfiguration before as well, which ended the test before
    assert len({line[len("01/31/26 12:00:00 ") :] for line in found}) == 1, found
    return found[0]


@pytest.mark.parametrize("value", ["banana", "0", "-1"])
def test_wrong_period_is_named_and_the_default_stands(brisk: Pool, value: str) -> None:
    before = len(brisk.log("JobLensdLog"))
    with brisk.config(f"JOBLENS_PERIOD = {value}"):
        line = said(brisk, before, f"JOBLENS_PERIOD = {value} ")
        assert line.endswith(
            "is not a number from 0.1 to 60: the default 1 is used; correct it and run condor_reconfig"
        )
        assert f"JOBLENS_PERIOD = {value} " in doctor(brisk)


def test_unknown_knob_is_named_with_the_nearest(brisk: Pool) -> None:
    before = len(brisk.log("JobLensdLog"))
    with brisk.config("JOBLENS_PERIODE = 5"):
        line = said(brisk, before, "JOBLENS_PERIODE")
        assert line.endswith("is no knob of JobLens and has no effect: did you mean JOBLENS_PERIOD?")
        assert "did you mean JOBLENS_PERIOD?" in doctor(brisk)


POLICIES = """
rm -rf /etc/joblens/wrong
mkdir -p /etc/joblens/wrong/policies.d
cd /etc/joblens/wrong
touch no-folder
echo 'return function( level end' >policies.d/20-broken.lua
echo 'return function(job, slot, level) return level + 1 end' >policies.d/30-fails.lua
"""
WRONG = [f"/etc/joblens/wrong/{name}" for name in ("lost", "no-folder", "policies.d")]
FOLDERS = " ".join(["/usr/share/joblens/policies", *WRONG])


def test_job_runs_at_the_default_where_everything_is_wrong(brisk: Pool) -> None:
    """A folder that isn't there, one that is none, a policy that is no Lua, one that fails, a period that is none."""
    brisk.shell(POLICIES)
    before = len(brisk.log("JobLensdLog"))
    with brisk.config(f"JOBLENS_POLICY_DIR = {FOLDERS}\nJOBLENS_PERIOD = banana"):
        for named in ("/wrong/lost", "/wrong/no-folder", "20-broken.lua"):
            said(brisk, before, named)
            assert named in doctor(brisk)
        cluster = brisk.submit("executable = /bin/sleep\narguments = 600\nqueue")
        usage = brisk.until(lambda: is_begun(told := brisk.usage(cluster)) and told, "a new job's numbers")
        assert (usage["Level"], usage["PeriodSeconds"]) == ("basic", 1.0)
        said(brisk, before, "30-fails.lua")
