"""A job that asks for level io is counted before it is decided: what is published, and what the decision removes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from agent_node import Made, make
from condor_joblens.tracer._bpf import lib

from condor_joblens.agent.levels import apply_level, provisional_io
from condor_joblens.agent.lifecycle import first_decision, process_events, recovery, run_end
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import METRICS
from condor_joblens.policy.policy_answers import Decision, PolicyAnswer, PolicyFailure
from condor_joblens.sample.collectors import Collectors
from condor_joblens.tracer import map_layout

SET_LEVEL = apply_level.set_level  # the real one, before `make` puts another in its place
ASKS = b'GlobalJobId = "ap#1.0#1"\nJobLensLevel = "io"\n'
OPENS = 7
IO_COLUMNS = [metric.column for metric in METRICS if metric.level is Level.IO]


class Sensor:
    """Level io without a kernel: every slot at io has made OPENS system calls of the first class."""

    def __init__(self, counters: np.ndarray) -> None:
        self.room = 2
        self._slots = counters
        self.discarded: list[int] = []
        self.missing: dict[str, str] = {}

    def start(self, slot: int) -> bool:
        if np.count_nonzero(self._slots["io_key"]) >= self.room:
            return False
        self._slots["io_key"][slot] = slot + 1
        return True

    def stop(self, slot: int) -> np.ndarray | None:
        if not self._slots["io_key"][slot]:
            return None
        self._slots["io_key"][slot] = 0
        return self._counted(1)

    def discard(self, slot: int) -> None:
        self.discarded.append(slot)
        self.stop(slot)

    def counters(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        counted = self._slots["io_key"][slots] > 0
        return counted, self._counted(np.count_nonzero(counted))

    def why_not(self) -> str:
        return "no room"

    def lost(self) -> int:
        return 0

    def _counted(self, count: int) -> np.ndarray:
        found: np.ndarray = np.zeros(count, map_layout.IO_COUNTERS)
        found["calls"][:, lib.CALL_RETURNS] = OPENS
        return found


class World:
    """A node on which jobs begin."""

    def __init__(self, made: Made) -> None:
        self.made = made
        self.counters: np.ndarray = np.zeros(8, map_layout.COUNTERS)
        self.counters["awaits_exec"] = 1
        self.sensor = Sensor(self.counters)
        tracer: Any = made.node.tracer
        tracer.counters, tracer.sensors, tracer.missing = self.counters, {"io": self.sensor}, {}
        tracer.servers.room = 0
        made.node.ended.resume.return_value = None  # type: ignore[attr-defined]
        made.node.collectors = Collectors(made.node)
        self.events: list[tuple[str, int]] = []
        emitter = MagicMock()
        for name, what in (("level_changed", "level"), ("run_started", "start")):
            getattr(emitter, name).side_effect = lambda run, what=what: self.events.append((what, run))
        made.agent.output.events = emitter

    def begin(self, ad: bytes = ASKS, default: Level = Level.BASIC) -> int:
        """A job whose ad has just been read."""
        run = self.made.begin(level=Level.OFF, age=0)
        self.made.node.runs.state["named"][run] = False
        self.made.node.runs.state["kernel_slot"][run] = run
        apply_level.set_level(self.made.levels, run, default)
        self.events.clear()
        sandbox: Any = self.made.node.handles[run].sandbox
        sandbox.job_ad.return_value = ad
        first_decision.submit_job_ad(self.made.agent, run)
        return run

    def decide(self, run: int, outcome: PolicyAnswer) -> None:
        self.made.policies.answers.append((self.made.node.key_of(run), outcome))
        first_decision.apply_answers(self.made.agent)

    def published(self, run: int) -> int | None:
        """The system calls in the run's row; None if there is nothing of level io in it."""
        row = self.made.node.runs.rows[run]
        if row["level"] != b"io":
            assert row["level_number"] < Level.IO and all(not row[column] >= 0 for column in IO_COLUMNS)
            return None
        return int(row["syscall_read_calls"])

    def is_counted(self, run: int) -> bool:
        return bool(self.counters["io_key"][run])


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = make(tmp_path, monkeypatch)
    monkeypatch.setattr(apply_level, "set_level", SET_LEVEL)
    monkeypatch.setattr(process_events, "drain", lambda agent: None)
    monkeypatch.setattr(process_events, "take_ahead", lambda agent: None)
    return World(made)


def decision(level: Level) -> Decision:
    return Decision(level, Level.IO, '"io"', "a rule", "", "", identity={"GlobalJobId": "ap#1.0#1"})


def test_it_is_counted_at_once_and_published_with_the_decision(world: World) -> None:
    run = world.begin()
    assert world.is_counted(run) and world.published(run) is None and world.events == []
    assert world.counters["level"][run] == Level.IO
    world.decide(run, decision(Level.IO))
    assert world.published(run) == OPENS and world.events == [("start", run), ("level", run)]
    assert world.made.node.handles[run].notes["late_io"] == ""


@pytest.mark.parametrize("outcome", [decision(Level.BASIC), PolicyFailure(Level.BASIC, "it is broken")])
def test_a_refusal_and_a_failure_remove_it(world: World, outcome: PolicyAnswer) -> None:
    run = world.begin()
    world.decide(run, outcome)
    assert not world.is_counted(run) and world.sensor.discarded == [run]
    assert world.published(run) is None and world.events == [("start", run)]
    assert world.counters["level"][run] == Level.BASIC


def test_a_refusal_by_level_off_leaves_nothing(world: World) -> None:
    run = world.begin()
    world.decide(run, decision(Level.OFF))
    assert not world.made.node.runs.state["io_provisional"][run]
    assert world.made.node.runs.state["kernel_slot"][run] == -1


@pytest.mark.parametrize("ad", [b"", b'JobLensLevel = "basic"\n', b"JobLensLevel = 1\n", b'JobLensNote = "io"\n'])
def test_who_does_not_ask_is_not_counted(world: World, ad: bytes) -> None:
    assert not world.is_counted(world.begin(ad))


@pytest.mark.parametrize("knobs", [{"max_level": Level.BASIC}, {"max_level": Level.OFF}])
def test_what_the_site_does_not_allow_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, knobs: dict[str, Any]
) -> None:
    world = World(make(tmp_path, monkeypatch, **knobs))
    assert not world.is_counted(world.begin())


def test_a_default_of_io_needs_no_confirmation(world: World) -> None:
    run = world.begin(default=Level.IO)
    assert world.published(run) == 0 and not world.made.node.runs.state["io_provisional"][run]


def test_without_programs_or_room_it_is_as_before(world: World) -> None:
    world.sensor.room = 0
    run = world.begin()
    assert not world.made.node.runs.state["io_provisional"][run]
    assert world.counters["level"][run] == Level.BASIC
    world.decide(run, decision(Level.IO))
    assert world.published(run) is None and "no room" in world.made.node.handles[run].notes["io"]


def test_what_was_loaded_meanwhile_begins_with_the_wrappers_call(world: World) -> None:
    world.sensor.room = 0
    run = world.begin()
    world.sensor.room = 1
    provisional_io.job_starts(world.made.levels, run)
    assert world.is_counted(run) and world.published(run) is None


def test_a_job_that_ends_before_the_decision_publishes_nothing_and_says_so(world: World) -> None:
    run = world.begin()
    run_end._finish(world.made.agent, run)
    assert world.published(run) is None and ("level", run) not in world.events
    assert "before its policies had confirmed level io" in world.made.node.handles[run].notes["io"]
    world.decide(run, decision(Level.BASIC))
    assert world.published(run) is None and not world.is_counted(run)


def test_a_job_that_ended_is_published_if_the_decision_still_comes(world: World) -> None:
    run = world.begin()
    run_end._finish(world.made.agent, run)
    world.decide(run, decision(Level.IO))
    assert world.published(run) == OPENS
    assert world.made.node.handles[run].notes["io"] == ""


def test_a_job_of_unreadable_ad_is_not_counted(world: World) -> None:
    run = world.begin()
    other = world.made.begin(level=Level.BASIC)
    world.made.node.runs.state["named"][other] = False
    world.made.node.handles[other].sandbox.job_ad.return_value = None  # type: ignore[union-attr]
    first_decision.give_up_waiting(world.made.agent)
    assert world.is_counted(run) and not world.is_counted(other)


def test_a_budget_that_was_used_up_meanwhile_removes_it(world: World) -> None:
    world.made.node.config = type(world.made.node.config)(max_jobs_io=1)
    first, second = world.begin(), world.begin()
    assert world.is_counted(first) and world.is_counted(second)
    world.decide(first, decision(Level.IO))
    world.decide(second, decision(Level.IO))
    assert world.published(first) == OPENS and world.published(second) is None
    assert not world.is_counted(second)


@pytest.mark.parametrize("is_named", [False, True])
def test_the_next_joblensd_goes_on_if_nothing_was_decided(world: World, is_named: bool) -> None:
    run = world.begin()
    world.made.node.runs.state["named"][run] = is_named
    tracer: Any = world.made.node.tracer
    tracer.slot_of.return_value = run
    recovery._take_over_counters(world.made.agent, run, int(world.made.node.runs.state["cgroup_id"][run]))
    assert world.is_counted(run) != is_named and world.published(run) is None
    if not is_named:
        world.decide(run, decision(Level.IO))
        assert world.published(run) == OPENS


def test_a_job_that_is_found_late_says_by_how_much(world: World) -> None:
    """Its age is known only when its run has begun."""
    world.counters["awaits_exec"] = 0
    run = world.begin()
    world.made.node.runs.state["began"][run] -= 3.2
    world.decide(run, decision(Level.IO))
    assert world.published(run) == OPENS
    said = re.search(r"level io began (\d+) s after the job", world.made.node.handles[run].notes["late_io"])
    assert said and int(said[1]) >= 3, "3, or more on a busy machine"
