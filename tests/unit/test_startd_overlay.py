"""What the startd holds, laid over a job's ad: policies see it, whatever the file says."""

from __future__ import annotations

import json
import time

import pytest

from condor_joblens.policy.jobad import JobAd
from condor_joblens.startd.overlay import Overlaid, lay_over, truth_of
from condor_joblens.startd.startd_answers import parse

SLOT = {
    "Name": "slot1_1@node",
    "JobId": "12.0",
    "GlobalJobId": "ap#12.0#1700000000",
    "RemoteUser": "bob@pool",
    "RemoteOwner": "bob@pool",
    "JobUniverse": 5,
    "Cpus": 4,
    "Memory": 4096,
    "GPUs": 0,
}
HONEST = b"""AcctGroupUser = "bob"
ClusterId = 12
Cmd = "/bin/sleep"
GlobalJobId = "ap#12.0#1700000000"
JobLensLevel = "io"
JobUniverse = 5
MemoryUsage = 100
Owner = "bob"
ProcId = 0
User = "bob@pool"
RequestCpus = 2
RequestMemory = ifThenElse(MemoryUsage isnt undefined,MemoryUsage,1)
"""


def laid(ad: bytes, startds_lines: bytes = b"", **slot: object) -> Overlaid:
    (job,) = parse(json.dumps([{**SLOT, **slot}], indent=1).encode() + b"\n= 1 0 /a\n").jobs
    truth = truth_of(job, startds_lines)
    assert truth is not None
    return lay_over(ad, job, truth)


def value(overlaid: Overlaid, name: str) -> object:
    return JobAd(overlaid.ad).value(name)


def test_an_honest_ad_stays_as_it_is() -> None:
    overlaid = laid(HONEST)
    assert overlaid.contradictions == ()
    before, after = JobAd(HONEST), JobAd(overlaid.ad)
    assert {name: after.value(name) for name in before} == {name: before.value(name) for name in before}


def test_a_slot_without_a_job_confirms_nothing() -> None:
    (job,) = parse(b'[\n{"Name": "slot1_1@node"}]\n= 1 0 /a\n').jobs
    assert truth_of(job, b"") is None


@pytest.mark.parametrize(
    ("line", "name", "true"),
    [
        (b'GlobalJobId = "ap#1.0#1"', "GlobalJobId", SLOT["GlobalJobId"]),
        (b'globaljobid = "ap#1.0#1"', "GlobalJobId", SLOT["GlobalJobId"]),
        (b"ClusterId = 1", "ClusterId", 12),
        (b"ProcId = 7", "ProcId", 0),
        (b"JobUniverse = 7", "JobUniverse", 5),
        (b'Owner = "alice"', "Owner", "bob"),
        (b'User = "alice@pool"', "User", "bob@pool"),
        (b'User = "bob@elsewhere"', "User", "bob@pool"),
        (b"RequestCpus = 64", "RequestCpus", 4),
        (b"RequestMemory = 99999999.5", "RequestMemory", 4096),
        (b"RequestGPUs = 8", "RequestGPUs", 0),
        (b'AcctGroup = "group_cms"', "AcctGroup", None),
    ],
)
def test_a_contradiction_is_named_and_what_the_startd_holds_counts(line: bytes, name: str, true: object) -> None:
    overlaid = laid(HONEST + line + b"\n")
    assert overlaid.contradictions == (name,)
    assert value(overlaid, name) == true


@pytest.mark.parametrize(
    ("line", "name", "true"),
    [
        (b'Owner = strcat("al", "ice")', "Owner", "bob"),
        (b'User = strcat("alice", "@pool")', "User", "bob@pool"),
        (b"RequestCpus = 32 + 32", "RequestCpus", 4),
        (b"RequestCpus = 64}) + sum({0", "RequestCpus", 4),
        (b"RequestCpus\t=\t64 + 0", "RequestCpus", 4),
        (b"RequestCpus = 1 + 1", "RequestCpus", 2),
        (b"RequestGPUs = 2 * 4", "RequestGPUs", 0),
        (b'AcctGroup = strcat("group", "_cms")', "AcctGroup", None),
    ],
)
def test_an_expression_is_no_way_around(line: bytes, name: str, true: object) -> None:
    overlaid = laid(HONEST + line + b"\n")
    found = value(overlaid, name)
    assert found == true or not isinstance(found, (int, float, str)), "error is no number"
    assert JobAd(overlaid.ad).eval(f"{name} > 4") is not True


def test_lines_without_an_end_and_strange_ends() -> None:
    for end in (b"", b"\r\n", b"\r", b"\n\n"):
        assert value(laid(b'GlobalJobId = "mine"' + end), "GlobalJobId") == SLOT["GlobalJobId"]


def test_an_ad_that_lacks_who_the_job_is() -> None:
    overlaid = laid(b'JobLensLevel = "io"\n')
    assert set(overlaid.contradictions) == {"GlobalJobId", "ClusterId", "ProcId", "JobUniverse"}
    assert value(overlaid, "Owner") == "bob"


def test_a_group_that_the_startd_knows() -> None:
    group = "group_cms.prod.bob@pool"
    honest = laid(HONEST + b'AcctGroup = "group_cms.prod"\n', AccountingGroup=group)
    assert honest.contradictions == () and value(honest, "AcctGroup") == "group_cms.prod"
    silent = laid(HONEST, AccountingGroup=group)
    assert silent.contradictions == () and value(silent, "AcctGroup") == "group_cms.prod"
    other = laid(HONEST + b'AcctGroup = "group_atlas"\n', AccountingGroup=group)
    assert other.contradictions == ("AcctGroup",) and value(other, "AcctGroup") == "group_cms.prod"


def test_an_owner_under_another_users_name_in_the_claim() -> None:
    """A claim is its submitter's, who can be another user than the job's owner by name only."""
    assert laid(HONEST, RemoteUser="nice-user.bob@pool").contradictions == ()
    assert laid(HONEST, RemoteUser="group.bob@pool", RemoteOwner="bob@pool").contradictions == ()


def test_the_sites_own_attributes_count_over_the_file() -> None:
    lines = b'NumShadowStarts = 3\nProject = "blue"\n'
    overlaid = laid(HONEST + b'Project = "red"\nNumShadowStarts = 9\n', lines, NumShadowStarts=3)
    assert overlaid.contradictions == ()
    assert (value(overlaid, "Project"), value(overlaid, "NumShadowStarts")) == ("blue", 3)


def test_a_name_that_a_nul_byte_breaks_is_no_way_around() -> None:
    ad = HONEST + b'Acct\0Group = "physics"\n'
    overlaid = laid(ad.replace(b"RequestCpus = 2", b"Request\0Cpus = 999"))
    assert (value(overlaid, "RequestCpus"), value(overlaid, "AcctGroup")) == (4, None)
    assert set(overlaid.contradictions) == {"AcctGroup", "RequestCpus"}


@pytest.mark.parametrize("name", [b"AcctGroup", b"RequestCpus", b"RequestMemory", b"Other"])
@pytest.mark.parametrize("line", [b'%b = "a%bb"', b"%b = %b1", b"%b%b= 1 + ", b"%b = 1 %b+ 1", b"%b%b"])
def test_a_megabyte_of_blanks_takes_no_time(line: bytes, name: bytes) -> None:
    """joblensd itself does this, with real-time priority."""
    began = time.thread_time()
    laid(HONEST + line % (name, b" \t" * (1 << 19)) + b"\n")
    assert time.thread_time() - began < 1
