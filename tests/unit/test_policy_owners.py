"""Each owner has a share of the policy child: what one user's ads do delays his own decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_node import OWNER, Made, make
from hypothesis import given
from hypothesis import strategies as st
from test_policy_child import CRASHING_AD, drive, never

from condor_joblens.agent.levels import policy_input
from condor_joblens.common.user_names import NOBODY
from condor_joblens.model.levels import Level
from condor_joblens.policy import child_pool, owner_failures
from condor_joblens.policy.owner_failures import ENOUGH, FORGET_SECONDS, PAUSE_SECONDS, OwnerFailures
from condor_joblens.policy.policy_answers import ActivationRequest, Decision, PolicyAnswer, PolicyFailure
from condor_joblens.policy.policy_client import PolicyClient
from condor_joblens.policy.request_queue import RequestQueue
from condor_joblens.policy.requests import ChildLimits, JobRequest

RULES = [("10-all.lua", 'rule "all" { level = "io" }')]
GOOD_AD = b'Owner = "somebody"\n'
REFUSED = "jobs of this user or slot have killed the policy child 3 times: watched at the default, basic"


def request(owner: str, ad: bytes = GOOD_AD) -> ActivationRequest:
    return ActivationRequest(ad, {"Name": "slot1"}, Level.BASIC, Level.TRACE, owner=owner)


@pytest.fixture
def begin() -> Iterator[Callable[..., PolicyClient]]:
    """Makes children that are ready, and ends them."""
    children: list[PolicyClient] = []

    def begin(spare_seconds: float | None = None) -> PolicyClient:
        limits = ChildLimits(cpu_seconds=5.0, wall_seconds=60.0, spare_seconds=spare_seconds)
        children.append(PolicyClient(RULES, limits))
        children[-1].start()
        drive(children[-1], lambda: children[-1].ready)
        return children[-1]

    yield begin
    for child in children:
        child.stop()


def answers(child: PolicyClient, count: int) -> dict[Any, PolicyAnswer]:
    """So many answers, in the order in which they came."""
    found: dict[Any, PolicyAnswer] = {}
    while len(found) < count:
        found.update(drive(child, never))
    return found


def crash(child: PolicyClient, owner: str, count: int = ENOUGH) -> None:
    """Jobs of `owner` that kill the child."""
    for number in range(count):
        child.submit(f"{owner} {number}", request(owner, CRASHING_AD))
    answers(child, count)
    drive(child, lambda: child.ready)


# -- whose turn it is -----------------------------------------------------------------------------------------


def test_others_are_decided_about_before_the_rest_of_a_crashing_owners_jobs(
    begin: Callable[..., PolicyClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_pool, "BACKOFF", (0.0, 3600.0))  # one owner's deaths must slow no start of a child
    child = begin()
    crashing, others = [f"mallory {number}" for number in range(30)], [f"user {number}" for number in range(20)]
    for key in crashing:
        child.submit(key, request("mallory", CRASHING_AD))
    for key in others:
        child.submit(key, request(key))
    found = answers(child, len(crashing) + len(others))
    # the first is with the child when the second comes, and the second comes before those of others
    assert list(found) == [*crashing[:2], *others, *crashing[2:]]
    assert all(isinstance(found[key], Decision) for key in others)
    killed, refused = crashing[:ENOUGH], crashing[ENOUGH:]
    for key in killed:
        failure = found[key]
        assert isinstance(failure, PolicyFailure)
        assert failure.note.startswith("the job's ad killed the policy child")
    assert {found[key].note for key in refused} == {REFUSED}
    assert {found[key].level for key in crashing} == {Level.BASIC}
    assert child.lives == 1 + ENOUGH


def test_an_owner_who_goes_on_crashing_kills_no_more_children(begin: Callable[..., PolicyClient]) -> None:
    child = begin()
    for number in range(10):
        for again in range(5):
            child.submit((number, again), request("mallory", CRASHING_AD))
        child.submit("other", request("alice"))
        assert isinstance(answers(child, 6)["other"], Decision)
    assert child.lives == 1 + ENOUGH


def test_a_crashing_owner_is_asked_about_again_while_another_child_stands_by(
    begin: Callable[..., PolicyClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_failures, "PAUSE_SECONDS", 0.0)
    child = begin(spare_seconds=0.0)
    crash(child, "mallory")
    child.submit("alice's", request("alice"))
    answers(child, 1)
    drive(child, lambda: child.spare_pid is not None)
    child.submit("good", request("mallory"))
    assert isinstance(answers(child, 1)["good"], Decision)


def test_other_policies_forgive(begin: Callable[..., PolicyClient]) -> None:
    child = begin()
    crash(child, "mallory")
    child.submit("before", request("mallory"))
    assert answers(child, 1)["before"].note == REFUSED
    child.reload(RULES)
    child.submit("after", request("mallory"))
    assert isinstance(answers(child, 1)["after"], Decision)


def test_the_owner_with_most_waiting_loses() -> None:
    child = PolicyClient(RULES, ChildLimits(queue_bytes=1000))
    for number in range(9):
        child.submit(f"mallory {number}", request("mallory", b"x" * 100))
    child.submit("alice", request("alice", b"x" * 150))
    ((key, outcome),) = child.receive()
    child.stop()
    assert key == "mallory 8"
    assert outcome.note == "too many jobs wait for their policy: watched at the default, basic"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 40), st.booleans())))
def test_owners_take_turns_and_no_request_is_lost(moments: list[tuple[str, int, bool]]) -> None:
    queue, waiting, lost_before = RequestQueue(), [], {owner: 0 for owner in "abc"}
    for number, (owner, size, takes) in enumerate(moments):
        added = JobRequest(str(number), request(owner, b"x" * size), number)
        waiting.append(added)
        for lost in queue.add(added, 100):
            waiting.remove(lost)
        assert sum(len(question.request.ad) for question in waiting) <= 100
        assert queue.waits_since() == [min(question.since for question in waiting)]
        if takes:
            taken = queue.take()
            whose = taken.request.owner
            assert taken is next(question for question in waiting if question.request.owner == whose)
            waiting.remove(taken)
            for other in {question.request.owner for question in waiting} - {whose}:
                lost_before[other] += 1
                assert lost_before[other] <= 2, "each of the two others comes first once at most"
            lost_before[whose] = 0
        assert bool(queue) == bool(waiting)
        if not waiting:
            break
        lost_before.update({o: 0 for o in lost_before if all(question.request.owner != o for question in waiting)})
    expired = queue.take_expired(len(moments) / 2)
    assert {question.key for question in expired} == {q.key for q in waiting if q.since < len(moments) / 2}


# -- how often one may fail -----------------------------------------------------------------------------------


def test_who_kills_child_after_child_has_to_pause() -> None:
    failures = OwnerFailures()
    assert [failures.killed("mallory", second) for second in (0.0, 50.0)] == [1, 2]
    assert not failures.refuses("mallory", 51.0, True)
    assert failures.killed("mallory", 100.0) == ENOUGH
    assert failures.refuses("mallory", 101.0, True)
    assert not failures.refuses("alice", 101.0, False)
    assert not failures.refuses("mallory", 100.0 + PAUSE_SECONDS, True)
    assert failures.refuses("mallory", 100.0 + PAUSE_SECONDS, False), "others would wait for the next child"
    assert not failures.refuses("mallory", 100.0 + FORGET_SECONDS, False)
    assert failures.killed("mallory", 100.0 + FORGET_SECONDS) == 1


# -- who an owner is ------------------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    return make(tmp_path, monkeypatch)


def test_an_owner_is_the_user_that_the_kernel_knows(made: Made) -> None:
    runs = [made.begin(), made.begin("2.0")]
    asked = [policy_input.request(made.levels, run, b'Owner = "bob"', None) for run in runs]
    assert [request.owner for request in asked] == [f"user {OWNER}"] * 2


@pytest.mark.parametrize("uid", [0, NOBODY, None])
def test_jobs_as_nobody_are_told_apart_by_their_slots(made: Made, uid: int | None) -> None:
    run = made.begin()
    handles: Any = made.node.handles[run]
    if uid is None:
        handles.sandbox = None
    else:
        handles.sandbox.scratch_uid = uid
    assert policy_input.owner(made.levels, run) == f"slot1_{run + 1}"
