"""What startds say, as joblensd reads it: plain lines, whatever is in a slot's ad."""

from __future__ import annotations

import json
import random

import pytest

from condor_joblens.policy.job_identity import literals
from condor_joblens.startd.startd_answers import ATTRIBUTES, MAX_STRING, Answer, parse

AD = {
    "Name": "slot1_1@node",
    "JobId": "12.3",
    "GlobalJobId": "ap#12.3#1700000000",
    "RemoteUser": "alice@pool",
    "Cpus": 4,
    "Memory": 4096,
    "StarterPid": 313,
}


def printed(*ads: object, code: int = 0) -> bytes:
    return json.dumps(list(ads), indent=2).encode() + b"\n\n= 1 %d /var/log/condor/.startd_address\n" % code


def test_a_slot_with_a_job() -> None:
    answer = parse(printed(AD))
    assert answer.faults == ()
    (job,) = answer.jobs
    assert (job.slot, job.starter) == ("slot1_1", 313)
    held = literals(job.ad)
    assert (held["GlobalJobId"], held["ClusterId"], held["ProcId"]) == (AD["GlobalJobId"], 12, 3)


def test_a_node_without_jobs() -> None:
    assert parse(b"\n= 1 0 /startd\n") == Answer((), ())


def test_two_startds_of_which_one_is_silent() -> None:
    said = printed(AD) + b"Error: communication error\n\n= 1 1 /second\n"
    answer = parse(said)
    assert len(answer.jobs) == 1 and answer.faults == ("Error: communication error",)
    assert parse(b"\n= 1 124 /startd\n").faults == ("it did not answer in time",)


@pytest.mark.parametrize(
    "value",
    [
        'a"\nGlobalJobId = "mine',
        "a\nGlobalJobId = 1",
        "back\\slash",
        '/Expr(strcat("a", 1))/',
        "x" * (MAX_STRING + 1),
        1 << 80,
        float("inf"),
        None,
        [1],
        {"a": 1},
    ],
)
def test_what_is_no_plain_literal_is_left_out(value: object) -> None:
    (job,) = parse(printed({**AD, "AccountingGroup": value})).jobs
    assert b"AccountingGroup" not in job.ad
    assert literals(job.ad)["GlobalJobId"] == AD["GlobalJobId"]


def test_a_name_that_is_none_is_left_out() -> None:
    (job,) = parse(printed({**AD, 'a = 1\nGlobalJobId = "mine"\nb': 1})).jobs
    assert literals(job.ad)["GlobalJobId"] == AD["GlobalJobId"]


@pytest.mark.parametrize("pid", [True, -1, 0, 1 << 40, "313", None])
def test_a_starter_that_can_be_none(pid: object) -> None:
    (job,) = parse(printed({**AD, "StarterPid": pid})).jobs
    assert job.starter == 0


@pytest.mark.parametrize(
    "said", [b"[\n nonsense", b"[\n" + b"[" * 100_000, b"[\n{}", b'[\n{"Name": 1}, 2]', b"\xff[\n\x00]"]
)
def test_nonsense_raises_nothing(said: bytes) -> None:
    answer = parse(said + b"\n= 1 0 /startd\n")
    assert answer.jobs == ()


def test_random_bytes_raise_nothing() -> None:
    chance = random.Random(11)
    whole = bytearray(printed(AD))
    for _ in range(2000):
        damaged = bytearray(whole)
        for _ in range(chance.randrange(1, 6)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        parse(bytes(damaged))


def test_what_is_asked_is_what_is_used() -> None:
    assert {"Name", "GlobalJobId", "StarterPid"} <= set(ATTRIBUTES)
