"""The policies are asked again: who is asked when and with which numbers, and what becomes of the answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agent_node import Made, make
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from condor_joblens.agent.levels import level_arbiter, policy_decisions, policy_failures, policy_input, policy_rounds
from condor_joblens.agent.levels.policy_input import PATHS
from condor_joblens.agent.levels.policy_rounds import CHUNK
from condor_joblens.agent.lifecycle import first_decision, run_end
from condor_joblens.agent.log_once import REMEMBERED
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import ABSENT
from condor_joblens.policy.policy_answers import Decision, PolicyFailure, RuleFailure
from condor_joblens.policy.slot_attributes import SlotAttributes

AD = b'Owner = "alice"\nGlobalJobId = "ap#1.0#1"\n'


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Made]:
    return lambda **knobs: make(tmp_path, monkeypatch, **{"policy_hold": 60.0, **knobs})


def known(it: Made, count: int = 1, **more: Any) -> list[int]:
    """Runs that the child knows."""
    runs = [it.begin(f"{number}.0", **more) for number in range(count)]
    for run in runs:
        it.levels.saved_ads.keep(int(it.node.runs.state["cgroup_id"][run]), AD, "alice")
        it.policies.kept.add(it.node.key_of(run))
    return runs


def decision(level: Level, cap: Level = Level.TRACE, **more: Any) -> Decision:
    return Decision(level, None, "", "a rule", "its reason", "", cap=cap, **more)


def answer(it: Made, run: int, outcome: Decision | PolicyFailure) -> None:
    it.policies.answers.append((it.node.key_of(run), outcome))
    first_decision.apply_answers(it.agent)


def matrix(it: Made, which: int = 0) -> np.ndarray:
    keys, numbers, _ = it.policies.rounds[which]
    return np.frombuffer(numbers).reshape(len(keys), len(PATHS))


# -- who is asked, and when -----------------------------------------------------------------------------------


def test_a_round_asks_about_every_job_once_in_chunks(made: Callable[..., Made]) -> None:
    it = made()
    runs = known(it, 2 * CHUNK + 5)
    policy_rounds.tick(it.levels)
    for _ in range(5):
        policy_rounds.send_next(it.levels)
    asked = [key for keys, _, _ in it.policies.rounds for key in keys]
    assert sorted(asked) == sorted(it.node.key_of(run) for run in runs)
    assert [len(keys) for keys, _, _ in it.policies.rounds] == [CHUNK, CHUNK, 5]
    assert all(share >= policy_rounds.CHUNK_SHARE for _, _, share in it.policies.rounds)


def test_the_next_round_comes_when_its_time_has_come(made: Callable[..., Made]) -> None:
    it = made(policy_period=30.0)
    known(it)
    policy_rounds.tick(it.levels)
    policy_rounds.tick(it.levels)
    assert len(it.policies.rounds) == 1
    it.levels.round.next_at -= 30
    policy_rounds.tick(it.levels)
    assert len(it.policies.rounds) == 2


def test_they_see_which_jobs_seem_to_hang(made: Callable[..., Made]) -> None:
    it = made()
    runs = known(it, 3)
    it.node.runs.rows["hang_suspected"][runs] = 0, 1, ABSENT
    policy_rounds.tick(it.levels)
    told = dict(zip(it.policies.rounds[0][0], matrix(it)[:, PATHS.index("Hang.Suspected")].tolist()))
    assert [told[it.node.key_of(run)] for run in runs[:2]] == [0, 1]
    assert np.isnan(told[it.node.key_of(runs[2])])


def test_nothing_is_asked_while_the_child_works(made: Callable[..., Made]) -> None:
    it = made()
    known(it)
    it.policies.idle = False
    policy_rounds.tick(it.levels)
    assert not it.policies.rounds
    it.policies.idle = True
    policy_rounds.send_next(it.levels)
    assert len(it.policies.rounds) == 1


def test_a_job_that_ended_meanwhile_is_not_asked_about(made: Callable[..., Made]) -> None:
    it = made()
    first, second = known(it, 2)
    it.policies.idle = False
    policy_rounds.tick(it.levels)
    run_end.close_run(it.agent, first)
    it.policies.idle = True
    policy_rounds.send_next(it.levels)
    assert [keys for keys, _, _ in it.policies.rounds] == [[it.node.key_of(second)]]


def test_a_new_child_is_told_of_every_job_with_its_ad_its_numbers_and_what_was_remembered(
    made: Callable[..., Made],
) -> None:
    it = made()
    (run,) = known(it)
    it.node.runs.rows["cpu_recent_cores"][run] = 0.5
    it.levels.saved_ads.remember(int(it.node.runs.state["cgroup_id"][run]), {"entries": {"hang": 1.0}})
    policy_rounds.tick(it.levels)
    it.policies.kept.clear()
    it.policies.lives += 1
    policy_rounds.tick(it.levels)
    ((key, request),) = it.policies.submitted
    assert (key, request.ad, request.keep) == (it.node.key_of(run), AD, True)
    assert request.state == {"entries": {"hang": 1.0}}
    assert request.usage is not None
    assert request.usage["Cpu.RecentCores"] == 0.5
    assert "Memory.ResidentBytes" not in request.usage, "what is not known is not told"
    policy_rounds.tick(it.levels)
    assert len(it.policies.submitted) == 1, "it is asked once, answered or not"


def test_a_job_on_which_the_policies_failed_is_asked_about_again_after_a_while(
    made: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    it = made(policy_period=0.0)
    (run,) = known(it)
    now = time.monotonic()
    monkeypatch.setattr(policy_failures.time, "monotonic", lambda: now)
    asked = []
    for _ in range(200):
        it.policies.kept.clear()
        policy_rounds.tick(it.levels)
        if it.policies.submitted:
            asked.append(now)
            it.policies.submitted.clear()
            answer(it, run, PolicyFailure(Level.BASIC, "the job's ad can't be parsed: watched at the default, basic"))
        now += 30.0
    assert [round(later - earlier) for earlier, later in zip(asked, asked[1:])] == [30, 60, 120, 240, 480, 960, 1920]
    answer(it, run, decision(Level.IO))
    assert not it.levels.round.failed and it.node.handles[run].notes["policy again"] == ""


def test_who_makes_the_policies_fail_gets_the_default_level_and_no_more(made: Callable[..., Made]) -> None:
    it = made()
    (run,) = known(it)
    it.node.runs.state["named"][run] = False
    it.levels.inputs[run].job_ad = AD
    it.node.ended.resume.return_value = None  # type: ignore[attr-defined]
    answer(it, run, PolicyFailure(Level.BASIC, "the job's ad can't be parsed: watched at the default, basic"))
    assert it.node.runs.state["policy_cap"][run] == Level.BASIC
    assert "no more than basic" in level_arbiter.refusal(it.levels, run, Level.IO, by_root=False)
    note = it.node.runs.rows["note"][run].decode()
    assert "watched at the default, basic; the policies are asked again after 30 s" in note


def test_a_decision_stands_while_the_policies_fail_for_a_moment_and_not_for_ever(made: Callable[..., Made]) -> None:
    it = made()
    (run,) = known(it)
    answer(it, run, decision(Level.IO, cap=Level.IO))
    failure = PolicyFailure(Level.BASIC, "the child died: watched at the default, basic")
    levels = []
    for _ in range(4):
        answer(it, run, failure)
        levels.append(it.level(run))
    assert levels == [Level.IO, Level.IO, Level.BASIC, Level.BASIC]
    assert it.node.runs.state["policy_cap"][run] == Level.BASIC


def test_a_job_on_which_these_policies_failed_is_asked_about_again_at_once_if_others_come(
    made: Callable[..., Made],
) -> None:
    it = made()
    (run,) = known(it)
    it.policies.kept.clear()
    policy_rounds.tick(it.levels)
    answer(it, run, PolicyFailure(Level.BASIC, "the job's ad can't be parsed: watched at the default, basic"))
    it.policies.lives += 1
    policy_rounds.tick(it.levels)
    assert len(it.policies.submitted) == 1
    assert it.level(run) is Level.BASIC
    policy_rounds.reload(it.levels)
    it.policies.lives += 1
    policy_rounds.tick(it.levels)
    assert len(it.policies.submitted) == 2, "other policies may do better"


def test_when_a_temporary_entry_ends_the_job_is_asked_about_before_its_turn(made: Callable[..., Made]) -> None:
    it = made(policy_period=3600.0)
    (run,) = known(it)
    policy_rounds.tick(it.levels)
    answer(it, run, decision(Level.IO, until=time.time() - 1))
    policy_rounds.tick(it.levels)
    assert len(it.policies.rounds) == 2
    answer(it, run, decision(Level.BASIC))
    assert it.level(run) is Level.BASIC, "the end of an entry acts at once, hold or not"


# -- with which numbers ---------------------------------------------------------------------------------------


def test_numbers_have_a_row_a_job_and_what_is_absent_is_nan(made: Callable[..., Made]) -> None:
    it = made()
    first, second = known(it, 2)
    rows = it.node.runs.rows
    rows["cpu_recent_cores"][first], rows["process_live"][second] = 1.5, 7
    rows["memory_resident_bytes"][first] = ABSENT
    policy_rounds.tick(it.levels)
    numbers = matrix(it)
    assert numbers[0, PATHS.index("Cpu.RecentCores")] == 1.5
    assert numbers[1, PATHS.index("Process.Live")] == 7
    assert np.isnan(numbers[0, PATHS.index("Memory.ResidentBytes")])
    assert np.isnan(numbers[1, PATHS.index("Cpu.RecentCores")])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.005, 0.5, None]), min_size=1, max_size=8))
def test_idle_is_the_time_since_the_last_use_of_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: list[float | None]
) -> None:
    it = make(tmp_path, monkeypatch)
    (run,) = known(it, 1, age=0)
    begin = float(it.node.runs.state["idle_since"][run])
    busy_at = begin
    for second, used in enumerate(cores, 1):
        it.node.runs.rows["cpu_recent_cores"][run] = np.nan if used is None else used
        policy_input.update_idle(it.levels, begin + second)
        if used is None or used >= policy_input.IDLE_CORES:
            busy_at = begin + second
        idle = it.node.runs.rows["cpu_idle_seconds"][run]
        assert np.isnan(idle) if used is None else idle == begin + second - busy_at
    assert it.node.runs.state["idle_since"][run] == busy_at


@pytest.mark.parametrize("how", ["frozen", "by the startd's word"])
def test_a_suspended_job_is_not_idle(made: Callable[..., Made], tmp_path: Path, how: str) -> None:
    it = made()
    (run,) = known(it)
    it.node.runs.rows["cpu_recent_cores"][run] = 0.0
    it.node.handles[run].path = str(tmp_path)
    (tmp_path / "cgroup.events").write_text(f"populated 1\nfrozen {int(how == 'frozen')}\n")
    if how != "frozen":
        it.levels.inputs[run].slot_attributes = {"Activity": "Suspended"}
    policy_rounds.tick(it.levels)
    assert matrix(it)[0, PATHS.index("IdleSeconds")] < 100, "it was idle for 1000 s before"
    policy_rounds.tick(it.levels)
    assert it.node.runs.rows["cpu_idle_seconds"][run] < 100, "and the ad says the same"


def test_the_numbers_of_one_are_those_of_many(made: Callable[..., Made]) -> None:
    it = made()
    (run,) = known(it)
    it.node.runs.rows["cpu_recent_cores"][run], it.node.runs.rows["process_live"][run] = 0.25, 3
    now = time.monotonic()
    many = dict(zip(PATHS, policy_input.numbers(it.levels, np.array([run]), now)[0].tolist()))
    known_ones = {path: value for path, value in many.items() if value == value}
    assert policy_input.numbers_of_one(it.levels, run, now) == known_ones


# -- what becomes of the answers ------------------------------------------------------------------------------


def test_a_level_changes_while_the_job_runs_and_the_row_says_by_whom_and_why(made: Callable[..., Made]) -> None:
    it = made()
    (run,) = known(it)
    answer(it, run, decision(Level.IO, priority=5.0, period=10.0, sinks=("kafka",)))
    row, state = it.node.runs.rows[run], it.node.runs.state[run]
    assert it.level(run) is Level.IO
    assert (row["policy"], row["reason"], row["sinks"]) == (b"a rule", b"its reason", b"kafka")
    assert (row["period_seconds"], state["policy_priority"]) == (10.0, 5.0)
    assert any("goes from basic to io: a rule, its reason" in line for line in it.log)


def test_a_level_stands_for_a_minimum_time_and_then_the_last_word_counts(made: Callable[..., Made]) -> None:
    it = made()
    (run,) = known(it)
    answer(it, run, decision(Level.IO))
    answer(it, run, decision(Level.BASIC))
    policy_decisions.release_held(it.levels)
    assert it.level(run) is Level.IO
    it.node.runs.state["policy_decided_at"][run] -= 61
    policy_decisions.release_held(it.levels)
    level_arbiter.arbitrate(it.levels)
    assert it.level(run) is Level.BASIC
    assert not it.levels.round.held


@pytest.mark.parametrize("level", [Level.OFF, Level.BASIC, Level.IO])
def test_the_first_decision_counts_at_once(made: Callable[..., Made], level: Level) -> None:
    it = made()
    run = it.begin()  # at the default level, as every job that nobody has decided about
    it.node.runs.state["named"][run] = False
    it.node.ended.resume.return_value = None
    answer(it, run, decision(level))
    assert it.level(run) is level
    assert any(f"is watched at {level.word}: a rule" in line for line in it.log)


def test_who_changes_his_mind_back_changes_nothing(made: Callable[..., Made]) -> None:
    it = made()
    (run,) = known(it)
    for level in (Level.IO, Level.BASIC, Level.IO):
        answer(it, run, decision(level))
    it.node.runs.state["policy_decided_at"][run] -= 61
    policy_decisions.release_held(it.levels)
    assert it.level(run) is Level.IO


def test_a_cap_acts_at_once(made: Callable[..., Made]) -> None:
    it = made()
    (run,) = known(it)
    answer(it, run, decision(Level.IO))
    answer(it, run, decision(Level.OFF, cap=Level.OFF))
    assert it.level(run) is Level.OFF


def test_sinks_none_is_not_all_of_them(made: Callable[..., Made]) -> None:
    it = made()
    (run,) = known(it)
    answer(it, run, decision(Level.BASIC, sinks=()))
    assert it.node.runs.rows["sinks"][run] == b"none"
    answer(it, run, decision(Level.BASIC, sinks=None))
    assert it.node.runs.rows["sinks"][run] == b""


def test_an_answer_about_a_job_that_is_over_touches_nothing(made: Callable[..., Made]) -> None:
    it = made()
    (run,) = known(it)
    key, cgroup_id = it.node.key_of(run), int(it.node.runs.state["cgroup_id"][run])
    run_end.close_run(it.agent, run)
    again = it.node.runs.add(cgroup_id)
    assert again is not None
    it.node.runs.rows["run_number"][again] = 77
    before = it.node.runs.rows[again].tobytes()
    it.policies.answers.append((key, decision(Level.IO)))
    first_decision.apply_answers(it.agent)
    assert it.node.runs.rows[again].tobytes() == before, "the next run in the same cgroup is another run"


def test_the_period_that_a_job_asks_for_counts_where_no_policy_says_one(made: Callable[..., Made]) -> None:
    it = made(period=1.0)
    (run,) = known(it)
    it.node.runs.state["job_period"][run] = 30.0
    answer(it, run, decision(Level.BASIC))
    assert it.node.runs.rows["period_seconds"][run] == 30.0
    answer(it, run, decision(Level.BASIC, period=5.0))
    assert it.node.runs.rows["period_seconds"][run] == 5.0
    answer(it, run, decision(Level.BASIC, period=0.1))
    assert it.node.runs.rows["period_seconds"][run] == 1.0, "never more often than the node"


# -- the slot's ad --------------------------------------------------------------------------------------------


def test_when_facts_of_the_slot_change_the_job_is_decided_about_anew(made: Callable[..., Made]) -> None:
    it = made()
    (run,) = known(it)
    it.levels.slot_attributes = SlotAttributes(["Rack"], ["JobLensLevel"])
    sandbox: Any = it.node.handles[run].sandbox
    sandbox.update_ad.return_value = b'Activity = "Busy"\nRack = "r1"\nLoadAvg = 0.5\n'
    assert policy_input.slot_attributes(it.levels, run) == {"Activity": "Busy", "Rack": "r1"}
    sandbox.update_ad.return_value = b'Activity = "Busy"\nRack = "r1"\nLoadAvg = 0.7\n'
    policy_rounds.slot_ad_changed(it.levels, run)
    assert not it.levels.round.unknown, "a load that changes is no reason"
    sandbox.update_ad.return_value = b'Activity = "Suspended"\nRack = "r1"\nJobLensLevel = "io"\n'
    policy_rounds.slot_ad_changed(it.levels, run)
    policy_rounds.send_next(it.levels)
    ((_, request),) = it.policies.submitted
    assert request.slot["Activity"] == "Suspended"
    assert request.ad == AD + b'\nJobLensLevel = "io"\n', "what the startd has of the job is newer than its ad"


def test_facts_that_change_while_the_child_is_about_to_be_told_of_the_run_are_told(made: Callable[..., Made]) -> None:
    it = made()
    (run,) = known(it)
    sandbox: Any = it.node.handles[run].sandbox
    for activity in ("Busy", "Suspended"):
        sandbox.update_ad.return_value = f'Activity = "{activity}"\n'.encode()
        policy_rounds.slot_ad_changed(it.levels, run)
    policy_rounds.send_next(it.levels)
    ((_, request),) = it.policies.submitted
    assert request.slot["Activity"] == "Suspended"


def test_who_writes_a_slot_ad_all_the_time_is_looked_at_now_and_then(made: Callable[..., Made]) -> None:
    it = made()
    (run,) = known(it)
    sandbox: Any = it.node.handles[run].sandbox
    for number in range(20):
        sandbox.update_ad.return_value = b"Cpus = %d\n" % number
        it.levels.output.job_ads.startd_wrote.add(run)
        policy_rounds.tick(it.levels)
        it.policies.kept.add(it.node.key_of(run))
    assert len(it.policies.submitted) == 1
    it.levels.inputs[run].slot_ad_read_at -= policy_rounds.SLOT_AD_EVERY
    policy_rounds.tick(it.levels)
    assert it.policies.submitted[-1][1].slot["Cpus"] == 19, "and the last word is heard"


@given(st.binary(max_size=300))
def test_any_slot_ad_has_facts(ad: bytes) -> None:
    facts = SlotAttributes(["Rack"], ["JobLensLevel"])
    assert all(isinstance(value, (str, int, float)) for value in facts.facts(ad).values())
    assert facts.facts(facts.of_job(ad)) == {}


def test_facts_are_literals_of_known_names() -> None:
    ad = b'Memory = 128\nCpus = 1.5\nDynamicSlot = true\nName = "slot1_1@a"\nStart = true && x\nDisk = 1 + 1\n'
    assert SlotAttributes().facts(ad) == {"Memory": 128, "Cpus": 1.5, "DynamicSlot": True, "Name": "slot1_1@a"}


# -- what was set aside ---------------------------------------------------------------------------------------


def test_what_is_set_aside_stands_in_a_file_until_it_is_in_force_again(
    made: Callable[..., Made], tmp_path: Path
) -> None:
    it = made()
    it.policies.aside = {"20-site.lua": "20-site.lua:3: it fails"}
    policy_rounds.tick(it.levels)
    assert (tmp_path / policy_rounds.DISABLED).read_text() == "20-site.lua: 20-site.lua:3: it fails\n"
    it.policies.aside = {}
    policy_rounds.tick(it.levels)
    assert (tmp_path / policy_rounds.DISABLED).read_text() == ""


# -- what is said once ----------------------------------------------------------------------------------------


def test_a_thousand_lines_that_one_job_after_the_other_causes_silence_no_other(made: Callable[..., Made]) -> None:
    it = made()
    for number in range(2500):
        it.node.log_once(f"dir_{number}: the directory may not be written")
    for _ in range(3):
        it.node.log_once("more than JOBLENS_MAX_JOBS")
    assert it.log.count("more than JOBLENS_MAX_JOBS") == 1 and len(it.log) == 2501
    assert len(it.node.log_once) <= REMEMBERED


def test_a_rule_that_fails_otherwise_on_each_job_takes_no_more_and_more_memory(made: Callable[..., Made]) -> None:
    it = made()
    (run,) = known(it)
    for number in range(REMEMBERED + 10):
        wrong = RuleFailure("20-site.lua", 1, "a rule", f"no such thing: {number}")
        answer(it, run, decision(Level.BASIC, errors=(wrong, wrong)))
    assert sum("no such thing" in line for line in it.log) == REMEMBERED + 10
    assert len(it.levels.round.log_once) <= REMEMBERED
