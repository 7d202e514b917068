"""joblensd's end of the policy child: the one that stands by, rounds, and policies that fail too often."""

from __future__ import annotations

import array
import contextlib
import dataclasses
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from properties import examples
from test_policy_child import drive

from condor_joblens.common import readiness
from condor_joblens.model.levels import Level
from condor_joblens.policy.entry_failures import MOST_ASIDE, REMEMBERED_SECONDS, EntryFailures
from condor_joblens.policy.file_failures import ENOUGH, Faults
from condor_joblens.policy.policy_answers import ActivationRequest, Decision, PolicyAnswer, PolicyFailure
from condor_joblens.policy.policy_client import PolicyClient
from condor_joblens.policy.requests import ChildLimits

PATHS = ("Cpu.RecentCores", "IdleSeconds")
PATIENT = ChildLimits(cpu_seconds=5.0, wall_seconds=60.0, spare_seconds=None)
WITH_SPARE = ChildLimits(cpu_seconds=5.0, wall_seconds=60.0, spare_seconds=0.0)

IDLE = (
    "20-idle.lua",
    'rule "idle" { when = function(job, slot, node, usage) return usage.IdleSeconds > 600 end, level = "io" }',
)
BROKEN = ("30-broken.lua", 'rule "broken" { when = function(job) return job.Owner:sub({}) == "" end, level = "io" }')
PICKY = (
    "30-picky.lua",
    'rule "picky" { when = function(job) return job.Args == "good" or job.Args:sub({}) == "" end, level = "io" }',
)
ENDLESS = (
    "30-endless.lua",
    'rule "endless" { when = function(job) local t = {} '
    'for i = 1, 20000 do t[i] = i % 7 end for i = 1, 100 do table.sort(t) end return true end, level = "io" }',
)


def ad(owner: str = "alice", args: str = "") -> bytes:
    return f'Owner = "{owner}"\nGlobalJobId = "ap#1.0#1"\nArgs = "{args}"\n'.encode()


def question(ad: bytes, **more: Any) -> ActivationRequest:
    return ActivationRequest(ad, {"Name": "slot1"}, Level.BASIC, Level.TRACE, keep=True, **more)


def of(user: str) -> dict[str, Any]:
    """What the kernel says of a job's user."""
    return {"owner": user, "is_user_known": True}


ABOUT = question(b"")


@pytest.fixture
def make() -> Iterator[Callable[..., PolicyClient]]:
    children: list[PolicyClient] = []

    def make(*policies: tuple[str, str], limits: ChildLimits = PATIENT, **more: Any) -> PolicyClient:
        child = PolicyClient(policies, limits, paths=PATHS, **more)
        children.append(child)
        child.start()
        drive(child, lambda: child.ready)
        return child

    yield make
    for child in children:
        child.stop()


def decide(child: PolicyClient, key: str, ad: bytes, **more: Any) -> PolicyAnswer:
    child.submit(key, question(ad, **more))
    outcomes: dict[str, PolicyAnswer] = {}
    while key not in outcomes:
        outcomes.update(drive(child, lambda: bool(child._done) or (child.idle and child._current is None)))
        outcomes.update(child.receive())
    return outcomes[key]


def round_of(child: PolicyClient, numbers: dict[str, tuple[float, float]]) -> dict[str, PolicyAnswer]:
    flat = array.array("d", [value for row in numbers.values() for value in row])
    child.ask_again(list(numbers), flat.tobytes(), time.time(), ABOUT, 1.0)
    outcomes: dict[str, PolicyAnswer] = {}
    deadline = time.monotonic() + 60
    while not child.idle:
        assert time.monotonic() < deadline
        outcomes.update(drive(child, lambda: child.idle))
    return outcomes


# -- rounds ---------------------------------------------------------------------------------------------------


def test_a_round_changes_the_minds_that_its_numbers_change(make: Callable[..., PolicyClient]) -> None:
    child = make(IDLE)
    for key in ("1.1", "2.1", "3.1"):
        decide(child, key, ad())
        assert child.knows(key)
    nan = float("nan")
    outcomes = round_of(child, {"1.1": (0.0, 1000.0), "2.1": (0.9, 0.0), "3.1": (nan, nan)})
    assert {key: outcome.level for key, outcome in outcomes.items()} == {"1.1": Level.IO}
    outcomes = round_of(child, {"1.1": (0.5, 0.0), "2.1": (0.9, 0.0)})
    assert {key: outcome.level for key, outcome in outcomes.items()} == {"1.1": Level.BASIC}


def test_a_round_with_the_same_answers_does_not_make_a_failing_policy_one_that_works(
    make: Callable[..., PolicyClient],
) -> None:
    """Of those the child tells nothing. Without it a policy that always fails stays, if jobs start one by one."""
    child = make(IDLE, BROKEN)
    for number in range(ENOUGH):
        assert not child.aside
        decide(child, f"{number}.1", ad(), **of(f"user {number % 2}"))
        drive(child, lambda: child.ready)
        if not child.aside:
            round_of(child, {f"{each}.1": (0.5, 0.0) for each in range(number + 1)})
    assert list(child.aside) == ["30-broken.lua"]


def test_a_thousand_answers_come_through(make: Callable[..., PolicyClient]) -> None:
    child = make(IDLE)
    keys = [f"{number}.1" for number in range(300)]
    for key in keys:
        decide(child, key, ad())
    outcomes = round_of(child, {key: (0.0, 1000.0) for key in keys})
    assert sorted(outcomes) == sorted(keys)
    assert {outcome.level for outcome in outcomes.values()} == {Level.IO}


def test_a_job_that_is_forgotten_is_not_known(make: Callable[..., PolicyClient]) -> None:
    child = make(IDLE)
    decide(child, "1.1", ad())
    decide(child, "2.1", ad())
    child.forget("1.1")
    assert not child.knows("1.1")
    assert set(round_of(child, {"1.1": (0.0, 1000.0), "2.1": (0.0, 1000.0)})) == {"2.1"}


def test_a_child_that_dies_in_a_round_knows_nobody_and_nothing_is_answered(make: Callable[..., PolicyClient]) -> None:
    said: list[str] = []
    child = make(IDLE, log=said.append)
    decide(child, "1.1", ad())
    lives = child.lives
    assert child.pid is not None
    os.kill(child.pid, signal.SIGSTOP)  # else it may have answered before it is killed
    while Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.001)
    child.ask_again(["1.1"], array.array("d", [0.0, 1000.0]).tobytes(), time.time(), ABOUT, 1.0)
    os.kill(child.pid, signal.SIGKILL)
    assert not drive(child, lambda: child.lives > lives and child.ready), "it is asked anew, with its ad"
    assert not child.knows("1.1")
    assert any("a round over running jobs" in line for line in said)
    assert decide(child, "1.1", ad()).level is Level.BASIC


def test_what_was_remembered_goes_to_the_next_child(make: Callable[..., PolicyClient]) -> None:
    entry = ("20-first.lua", 'rule "first" { level = "io", for_seconds = 100 }')
    child = make(entry)
    now = time.time()
    first = decide(child, "1.1", ad(), now=now, started=now)
    assert isinstance(first, Decision)
    assert (first.level, first.until) == (Level.IO, pytest.approx(now + 100, abs=1))
    again = decide(child, "1.1", ad(), now=now + 150, started=now, state=first.state)
    assert again.level is Level.BASIC


# -- the one that stands by -----------------------------------------------------------------------------------


def with_spare(make: Callable[..., PolicyClient]) -> PolicyClient:
    child = make(IDLE, limits=WITH_SPARE)
    decide(child, "1.1", ad())
    drive(child, lambda: child.spare_pid is not None)
    return child


def test_a_child_that_dies_is_replaced_by_the_one_that_stands_by(make: Callable[..., PolicyClient]) -> None:
    child = with_spare(make)
    before, spare = child.pid, child.spare_pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    assert decide(child, "2.1", ad()).level is Level.BASIC
    assert child.pid == spare
    drive(child, lambda: child.spare_pid is not None)
    assert child.spare_pid not in (before, spare)


def test_one_that_dies_standing_by_costs_nothing(make: Callable[..., PolicyClient]) -> None:
    child = with_spare(make)
    before, spare = child.pid, child.spare_pid
    assert spare is not None
    os.kill(spare, signal.SIGKILL)
    drive(child, lambda: child.spare_pid is None)
    assert isinstance(decide(child, "2.1", ad()), Decision)
    assert child.pid == before
    assert child.knows("1.1")


def test_with_other_policies_both_are_other_children(make: Callable[..., PolicyClient]) -> None:
    child = with_spare(make)
    pids = {child.pid, child.spare_pid}
    child.reload([("20-all.lua", 'rule "all" { level = "io" }')])
    assert decide(child, "2.1", ad()).level is Level.IO
    drive(child, lambda: child.spare_pid is not None)
    assert not pids & {child.pid, child.spare_pid}


# -- files that fail ------------------------------------------------------------------------------------------


def test_a_policy_that_fails_three_times_in_a_row_is_set_aside_until_the_next_reconfig(
    make: Callable[..., PolicyClient],
) -> None:
    said: list[str] = []
    child = make(IDLE, BROKEN, log=said.append)
    for number in range(ENOUGH):
        outcome = decide(child, f"{number}.1", ad(), **of(f"user {number % 2}"))
        assert isinstance(outcome, Decision), "the others go on"
        assert [error.file for error in outcome.errors] == ["30-broken.lua"]
    drive(child, lambda: child.ready)
    assert list(child.aside) == ["30-broken.lua"]
    (line,) = said
    assert line.startswith("policy 30-broken.lua failed 3 times in a row and is set aside until condor_reconfig: 30-")
    assert ":1: " in line
    assert 'rule "broken"' in line
    outcome = decide(child, "9.1", ad(), usage={"IdleSeconds": 1000.0})
    assert isinstance(outcome, Decision)
    assert (outcome.level, outcome.errors) == (Level.IO, ())
    child.reload([IDLE, BROKEN])
    assert not child.aside
    drive(child, lambda: child.ready)
    outcome = decide(child, "10.1", ad())
    assert isinstance(outcome, Decision)
    assert outcome.errors


def test_a_user_can_not_have_a_policy_set_aside_that_works_for_others(make: Callable[..., PolicyClient]) -> None:
    child = make(PICKY)
    assert decide(child, "1.1", ad("bob", "good"), **of("user 1")).level is Level.IO
    for number in range(2 * ENOUGH):
        decide(child, f"{number}.2", ad("mallory", "bad"), **of("user 2"))
    assert not child.aside
    decide(child, "3.3", ad("bob", "bad"), **of("user 1"))
    assert list(child.aside) == ["30-picky.lua"], "it fails for everybody"


@pytest.mark.parametrize("known", [True, False])
def test_a_user_can_not_have_a_policy_set_aside_that_has_not_worked_yet(
    make: Callable[..., PolicyClient], known: bool
) -> None:
    """Whatever his ads say of their owner, and in however many slots his jobs run as nobody."""
    said: list[str] = []
    child = make(PICKY, log=said.append)
    for number in range(4 * ENOUGH):
        owner = "user 2" if known else f"slot1_{number}"
        decide(child, f"{number}.2", ad(f"mallory{number}", "bad"), owner=owner, is_user_known=known)
    assert not child.aside
    assert said == ["policy 30-picky.lua fails on all jobs of one user, and stays in force until it does for another"]
    assert decide(child, "1.1", ad("bob", "good"), **of("user 1")).level is Level.IO


def test_a_policy_that_kills_its_child_three_times_is_set_aside(make: Callable[..., PolicyClient]) -> None:
    said: list[str] = []
    child = make(
        IDLE, ENDLESS, limits=ChildLimits(cpu_seconds=0.05, wall_seconds=60.0, spare_seconds=None), log=said.append
    )
    for number in range(ENOUGH):
        outcome = decide(child, f"{number}.1", ad(), **of(f"user {number % 2}"))
        if isinstance(outcome, PolicyFailure):
            assert "30-endless.lua" in outcome.note
    drive(child, lambda: child.ready)
    assert list(child.aside) == ["30-endless.lua"], said
    assert isinstance(decide(child, "9.1", ad()), Decision)


FILES = ("a.lua", "b.lua")


@given(st.lists(st.tuples(st.sampled_from(FILES), st.integers(0, 3), st.sampled_from("xyz"), st.booleans())))
def test_only_failures_in_a_row_count(moments: list[tuple[str, int, str, bool]]) -> None:
    faults = Faults(FILES)
    in_a_row: dict[str, dict[int, str]] = {file: {} for file in FILES}
    for file, job, owner, works in moments:
        if works:
            faults.worked([file])
            in_a_row[file] = {}
            continue
        in_a_row[file][job] = owner
        jobs = in_a_row[file]
        enough = len(jobs) >= ENOUGH and len(set(jobs.values())) > 1
        assert faults.failed(file, job, owner) is enough
        assert faults.fails_for_one(file) is (len(jobs) >= ENOUGH and not enough)


# -- entries --------------------------------------------------------------------------------------------------

SLOW = " && ".join(f'isError(regexp("(a+)+$", "{"a" * 30}!{number}"))' for number in range(10))
"""An expression that takes a second, whatever the job."""


def test_expressions_of_entries_are_evaluated_besides_the_policies(make: Callable[..., PolicyClient]) -> None:
    child = make(IDLE)
    known = [("e1", 'Owner == "alice"'), ("e2", 'Owner == "bob"'), ("e3", "Nothing"), ("e4", ")("), ("e5", "1")]
    outcome = decide(child, "1.1", ad(), expressions=known)
    assert isinstance(outcome, Decision) and outcome.entries == ("e1",), "true, and nothing but true"
    about = dataclasses.replace(ABOUT, expressions=[("e6", 'Owner == "alice"'), ("e2", "true")])
    numbers = array.array("d", [0.9, 0.0]).tobytes()
    child.ask_again(["1.1"], numbers, time.time(), about, 1.0)
    outcomes = drive(child, lambda: child.idle)
    outcomes.update(child.receive())
    assert isinstance(outcomes["1.1"], Decision) and outcomes["1.1"].entries == ("e6", "e2")
    assert round_of(child, {"1.1": (0.9, 0.0)})["1.1"].entries == ()  # type: ignore[union-attr]


def test_an_expression_that_ends_the_child_on_jobs_of_two_users_is_evaluated_no_more(
    make: Callable[..., PolicyClient],
) -> None:
    said: list[str] = []
    child = make(limits=ChildLimits(cpu_seconds=0.1, wall_seconds=60.0, spare_seconds=None), log=said.append)
    hostile = [("e1", SLOW), ("e2", 'Owner == "alice"')]
    for number in range(2):
        outcome = decide(child, f"{number}.1", ad(), **of("user 1"), expressions=hostile)
        assert isinstance(outcome, PolicyFailure) and "entry e1 took more than 100 ms of CPU" in outcome.note
    assert said == [], "his ads may be the cause"
    decide(child, "2.1", ad(), **of("user 2"), expressions=hostile)
    assert said == ["entry e1 has ended the policy child on jobs of two users: it is for no job of this node"]
    outcome = decide(child, "3.1", ad(), **of("user 3"), expressions=hostile)
    assert isinstance(outcome, Decision) and outcome.entries == ("e2",)


def test_entries_that_have_ended_are_no_reason_to_evaluate_none_for_ever() -> None:
    failures, now = EntryFailures(), 1000.0
    held = [(f"e{number}", "true") for number in range(MOST_ASIDE + 1)]
    said = [line for name, _ in held[1:] for user in ("user 1", "user 2") for line in failures.killed(name, user, now)]
    assert len(said) == MOST_ASIDE + 1 and said[-1] == "5 entries have: none is by its expression for any job"
    assert list(failures.evaluated(held, now)) == []
    assert list(failures.evaluated(held[:1], now)) == [], "whoever says new ones all the time gets no further"
    later = now + REMEMBERED_SECONDS
    assert list(failures.evaluated(held, later)) == [], "they hold still"
    assert list(failures.evaluated(held[:3], later)) == held[:1]
    assert failures.killed("e9", "user 1", later) == [] and failures.killed("e9", "user 1", later) == []
    assert list(failures.evaluated([*held[:3], ("e9", "1")], later)) == [held[0], ("e9", "1")]


def test_an_answer_that_waits_when_joblensd_stood_still_is_in_time(make: Callable[..., PolicyClient]) -> None:
    child = make(limits=ChildLimits(cpu_seconds=5.0, wall_seconds=100.0, spare_seconds=None))
    child.submit("1.1", question(ad()))
    deadline = time.monotonic() + 60
    while b'"decided"' not in said_by(child):
        assert time.monotonic() < deadline
    child.expire(time.monotonic() + 1000)
    outcomes = drive(child, lambda: child.idle)
    outcomes.update(child.receive())
    assert isinstance(outcomes["1.1"], Decision)


def said_by(child: PolicyClient) -> bytes:
    """What the child has sent, and joblensd has not read."""
    readiness.readable([child], 0.1)
    assert child._pool.serving is not None
    with (
        socket.socket(fileno=os.dup(child._pool.serving.process.fileno())) as channel,
        contextlib.suppress(BlockingIOError),
    ):
        return channel.recv(1 << 16, socket.MSG_PEEK)
    return b""


# -- killed at any moment -------------------------------------------------------------------------------------


class KilledAtAnyMoment(RuleBasedStateMachine):
    """Whatever befalls the children, each question is answered once."""

    def __init__(self) -> None:
        super().__init__()
        self.child = PolicyClient([IDLE], WITH_SPARE, paths=PATHS)
        self.child.start()
        self.asked: list[str] = []
        self.answers: dict[str, int] = {}

    def take(self) -> None:
        for key, outcome in self.child.receive():
            # an answer of a round has no identity, and may come again
            if isinstance(outcome, PolicyFailure) or outcome.identity:
                self.answers[key] = self.answers.get(key, 0) + 1

    @rule()
    def submit(self) -> None:
        key = f"{len(self.asked)}.1"
        self.asked.append(key)
        self.child.submit(key, question(ad()))

    @rule()
    def ask_again(self) -> None:
        # no precondition: it depends on how fast the child is, and Hypothesis repeats what it once could do
        keys = [key for key in self.asked if self.child.knows(key)] if self.child.idle else []
        if keys:
            numbers = array.array("d", [0.0, 1000.0] * len(keys))
            self.child.ask_again(keys, numbers.tobytes(), time.time(), ABOUT, 1.0)

    @rule(which=st.sampled_from(["pid", "spare_pid"]))
    def kill(self, which: str) -> None:
        pid = getattr(self.child, which)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)

    @rule()
    def reload(self) -> None:
        self.child.reload([IDLE])

    @rule(turns=st.integers(1, 5))
    def advance(self, turns: int) -> None:
        for _ in range(turns):
            time.sleep(0.01)
            self.child.expire(time.monotonic())
            self.take()

    @invariant()
    def nothing_is_answered_twice(self) -> None:
        assert all(count == 1 for count in self.answers.values())

    def teardown(self) -> None:
        deadline = time.monotonic() + 60
        while set(self.answers) != set(self.asked):
            assert time.monotonic() < deadline, f"asked {self.asked}, answered {self.answers}"
            time.sleep(0.01)
            self.child.expire(time.monotonic())
            self.take()
        self.nothing_is_answered_twice()
        self.child.stop()


TestKilledAtAnyMoment = KilledAtAnyMoment.TestCase
TestKilledAtAnyMoment.settings = settings(max_examples=examples(10), stateful_step_count=20)
