"""Jobs that transfer a `.job.ad` of their own, or folders named like the starter's: nobody believes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from harness import Ad, Pool
from test_policies import policy

OLDEST, HELD = "trixie", 5
FOLDER = "/home/bob/forged"
FORGED = """GlobalJobId = "elsewhere#4711.0#1"
ClusterId = 4711
ProcId = 0
Owner = "alice"
User = "alice@elsewhere"
NumShadowStarts = 1
JobUniverse = 5
RequestCpus = 64
RequestMemory = 32 * 1024 * 1024
AcctGroup = "group_favoured"
Cmd = "/bin/sleep"
JobLensLevel = "io"
"""
FILES = f"""
rm -rf {FOLDER}
mkdir -p {FOLDER}/htcondor {FOLDER}/scratch
cat >{FOLDER}/.job.ad <<'end'
{FORGED}end
cp {FOLDER}/.job.ad {FOLDER}/scratch/.job.ad
printf 'GlobalJobId = "elsewhere#4711.0#1"\\nRemoteUser = "alice@elsewhere"\\n' >{FOLDER}/htcondor/.update.ad
"""
WAYS = {
    "file": f"{FOLDER}/.job.ad",
    "folders": f"{FOLDER}/htcondor, {FOLDER}/scratch",
    "all": f"{FOLDER}/.job.ad, {FOLDER}/htcondor, {FOLDER}/scratch",
    "nothing": "",
}
RULES = """
rule "not bob" { when = { Owner = "bob" }, cap = "basic", reason = "bob may not" }
rule "favoured" { when = { AcctGroup = under "group_favoured" }, level = "io", reason = "a favoured group" }
rule "whole node" { when = "RequestCpus >= 64", level = "io", reason = "it has a whole node" }
rule "nothing above alice" { when = { Owner = "alice" }, level = "requested" }
"""


def sleeps(files: str, more: str = "") -> str:
    return (
        "executable = /bin/sleep\narguments = 600\nshould_transfer_files = YES\nwhen_to_transfer_output = ON_EXIT\n"
        f"transfer_input_files = {files}\ntransfer_output_files =\n{more}queue"
    )


@pytest.fixture(scope="module")
def jobs(brisk: Pool) -> Iterator[dict[str, int]]:
    """Bob's jobs, one for each way, all at the same time, and an honest one of alice's."""
    brisk.shell(FILES, user="bob")
    with policy(brisk, RULES, "80-forged.lua"):
        clusters = {way: brisk.submit(sleeps(files, '+JobLensLevel = "io"\n'), "bob") for way, files in WAYS.items()}
        clusters["honest"] = brisk.submit(sleeps("", '+JobLensLevel = "io"\n'), "alice")
        yield clusters


def numbers(pool: Pool, cluster: int) -> Ad:
    return pool.until(lambda: pool.usage(cluster), f"the numbers of job {cluster}")


def levels(pool: Pool, cluster: int) -> list[str]:
    """Every level that the job's run ever had, as joblensd logged them."""
    said = rf"#{cluster}\.0#\S+ (?:of \w* ?is watched at|goes from \w+ to) (\w+)"
    return re.findall(said, pool.log("JobLensdLog"))


@pytest.mark.parametrize("way", WAYS)
def test_a_capped_user_forges_neither_a_level_nor_a_name(brisk: Pool, jobs: dict[str, int], way: str) -> None:
    if brisk.suite == OLDEST and way in ("file", "all"):  # the starter can't overwrite the file that is HTCondor's own
        brisk.until(lambda: brisk.job(jobs[way])["JobStatus"] == HELD, "HTCondor to hold the job")
        assert levels(brisk, jobs[way]) == []
        return
    usage = numbers(brisk, jobs[way])
    assert usage["Run"].startswith(f"{brisk.job(jobs[way])['GlobalJobId']}#")
    assert usage["Level"] == "basic" and set(levels(brisk, jobs[way])) == {"basic"}
    rows = {row["JobId"]: row for row in json.loads(brisk.run("joblens", "status", "--json").stdout)["Jobs"]}
    assert rows[f"{jobs[way]}.0"]["Owner"] == "bob"
    assert "4711.0" not in rows


def test_an_honest_job_gets_what_it_asks_for(brisk: Pool, jobs: dict[str, int]) -> None:
    usage = brisk.until(lambda: io(brisk.usage(jobs["honest"])), "the honest job at level io")
    assert "confirmed" not in usage.get("Note", "") and "starter's" not in usage.get("Note", "")


def io(usage: Ad) -> Ad:
    return usage if usage.get("Level") == "io" else {}
