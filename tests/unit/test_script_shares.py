"""Scripts at their limit take no more of joblensd's CPU than leaves all jobs' levels as they are."""

from __future__ import annotations

import pytest

from condor_joblens.agent import peeks, script_shares
from condor_joblens.agent.levels.budgets import OwnCpu
from condor_joblens.agent.script_shares import ScriptShares
from condor_joblens.agent.trace_places import Place
from condor_joblens.tracing.reading_share import FIRST_COST_SECONDS, LEAST_COMMANDS, MOST_COMMANDS, ReadingShare
from condor_joblens.tracing.standing import LOOK_SHARE, StandingTrace

MAX_CPU = 0.05
COST_SECONDS = 15e-6
TURN_SECONDS = 0.05


class Clock:
    """The time of joblensd."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(script_shares, "time", clock)
    return clock


class Script:
    """A trace of one that does so many commands a second; what its reader takes of CPU."""

    def __init__(self, share: dict[str, float], saved: float, now: float) -> None:
        self.share, self.seconds, self._room = ReadingShare(share["reading"], now, saved), 0.0, 0
        self.told = 0
        self._turn(now, 0)

    def _turn(self, now: float, commands: int) -> None:
        self.seconds += commands * COST_SECONDS
        self.told += commands
        self.share.spend(commands * COST_SECONDS, commands)
        self._room = self.share.room(now, self._room - commands > 0)

    def run(self, now: float, commands: int) -> None:
        self._turn(now, min(commands, self._room))


def places(*whose: str) -> dict[int, Place]:
    return {number: Place(number, user, ()) for number, user in enumerate(whose)}


def test_three_scripts_at_their_limit_lower_nobodys_level(clock: Clock) -> None:
    """Two of one user's, one of another's: 5,000 commands a second each, that took a quarter of a core."""
    having, all_shares, own = places("alice", "alice", "bob"), ScriptShares(), OwnCpu()
    shares = script_shares.shares(having, MAX_CPU)
    assert sum(share["reading"] for share in shares.values()) <= script_shares.OF_COMMANDS * MAX_CPU
    scripts = [Script(shares[at], all_shares.saved(having[at].whose, 1 + at % 2), clock.now) for at in having]
    own.measure(0.0, clock.now)
    for turn in range(int(600 / TURN_SECONDS)):
        clock.now += TURN_SECONDS
        for script in scripts:
            script.run(clock.now, int(5000 * TURN_SECONDS))
        if turn % 20 == 0:
            own.measure(sum(script.seconds for script in scripts), clock.now)
            own.adapt(MAX_CPU, 3, 10)
            assert own.steps == 0 and own.cores < 0.4 * MAX_CPU
    alice, bob = sum(script.told for script in scripts[:2]), scripts[2].told
    assert alice == pytest.approx(bob, rel=0.2) and alice > 100_000


def test_jobs_that_follow_each_other_have_no_more_than_one_that_goes_on(clock: Clock) -> None:
    all_shares, own, seconds = ScriptShares(), OwnCpu(), 0.0
    own.measure(0.0, clock.now)
    for _ in range(300):
        script = Script(script_shares.shares(places("alice"), MAX_CPU)[0], all_shares.saved("alice", 1), clock.now)
        for _ in range(40):
            clock.now += TURN_SECONDS
            script.run(clock.now, 1000)
        seconds += script.seconds
        own.measure(seconds, clock.now)
        assert own.cores < 0.4 * MAX_CPU


def test_what_is_asked_for_has_a_share_too() -> None:
    assert sum(script_shares.asked(count, MAX_CPU)["reading"] for count in range(1, 9)) < 0.3 * MAX_CPU


def test_all_shares_together_leave_some_of_the_cpu_to_joblensd_itself() -> None:
    """Scripts, functions and throws that stand, what is asked for, and peeks."""
    having = places(*(f"user{at % 5}" for at in range(16)))
    scripts = sum(sum(share.values()) for share in script_shares.shares(having, MAX_CPU).values())
    functions = sum(share["looking"] for share in script_shares.looking(having, MAX_CPU).values())
    asked = sum(script_shares.asked(count, MAX_CPU)["reading"] for count in range(1, 9))
    assert functions <= 1.001 * script_shares.OF_LOOKS * MAX_CPU
    assert (
        scripts + 2 * functions + asked + (peeks.FILES_SHARE + peeks.LOOKS_SHARE + script_shares.OF_RINGS) * MAX_CPU
        < 0.95 * MAX_CPU
    )


def test_a_trace_takes_the_share_that_it_is_told_and_never_more_than_its_own_limit() -> None:
    trace = StandingTrace.__new__(StandingTrace)
    trace.hear_more({"looking": 0.001})
    assert trace.look_share == 0.001
    trace.hear_more({"looking": 1.0})
    assert trace.look_share == LOOK_SHARE


def test_a_script_within_its_share_has_all_told_and_one_beyond_it_pieces_of_some_length() -> None:
    share = ReadingShare(0.01, 0.0)
    assert share.room(0.0, told=True) == MOST_COMMANDS
    for turn in range(1000):
        share.spend(20 * COST_SECONDS, 20)
        assert share.room(turn * TURN_SECONDS, told=True) > 1000
    share.spend(1.0, 0)
    assert share.room(50.0, told=False) == 0
    few = ReadingShare(LEAST_COMMANDS * FIRST_COST_SECONDS / 2, 0.0, saved=0.0)
    assert (few.room(1.9, told=False), few.room(1.9, told=True) > 0, few.room(2.1, told=False) > 0) == (0, True, True)


def test_a_smaller_share_is_kept_to_at_once() -> None:
    share = ReadingShare(0.01, 0.0)
    share.set(1e-5, 0.0)
    assert share.room(0.0, told=True) == int(30 * 1e-5 / FIRST_COST_SECONDS)
