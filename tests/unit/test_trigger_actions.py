"""What triggers have done in joblensd, by the child that really asks them: levels, notes, events, bounds, set aside."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
from trigger_node import TriggerNode

from condor_joblens.agent.levels import level_arbiter
from condor_joblens.agent.triggers import actions, early_events, limits
from condor_joblens.model.events import EVENT, EventKind
from condor_joblens.model.levels import Level


@pytest.fixture
def it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TriggerNode]:
    node = TriggerNode(tmp_path, monkeypatch, max_level=Level.PROFILE)
    yield node
    node.triggers.stop()


def test_without_files_there_is_no_child_and_nobody_listens(it: TriggerNode) -> None:
    it.load(waits=False)
    assert it.client.pid is None and it.made.agent.output.events.listener is None
    it.happen(it.made.begin(), EventKind.EXEC)
    it.triggers.tick()
    assert it.client.lost == 0


def test_an_event_becomes_a_note_in_the_ad(it: TriggerNode) -> None:
    run = it.made.begin()
    text = 'on("exec", {CommandLine = glob "-*"}, function(event, run) run:note("login shell of " .. run.Owner) end)'
    it.load(("10-shell.lua", text))
    it.happen(run, EventKind.EXEC, program=b"bash", text=b"bash -c true")
    it.happen(run, EventKind.EXEC, program=b"bash", text=b"-bash")
    it.settle()
    assert it.note(run) == "login shell of alice"
    assert any("trigger 10-shell.lua:1: login shell of alice" in line for line in it.made.log)


def test_what_happens_before_the_child_is_ready_waits_for_it(it: TriggerNode) -> None:
    """A job that starts right after condor_reconfig on a busy node: its child needs seconds to start."""
    first, second = it.made.begin(), it.made.begin("2.0")
    it.load(("10-shell.lua", 'on("exec", function(event, run) run:note("shell " .. event.Pid) end)'), waits=False)
    it.happen(first, EventKind.EXEC, pid=1)
    it.happen(first, EventKind.EXIT, pid=2)
    it.happen(second, EventKind.EXEC, pid=3)
    assert it.client.loaded is None
    it.until(lambda: it.note(first) and it.note(second))
    assert (it.note(first), it.note(second), it.client.lost) == ("shell 1", "shell 3", 0)


def test_of_what_waits_the_first_are_kept_and_the_others_counted(
    it: TriggerNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_events, "MOST_BYTES", 3 * EVENT.itemsize)
    run = it.made.begin()
    it.load(("10-shell.lua", 'on("exec", function(event, run) run:note("shell " .. event.Pid) end)'), waits=False)
    for pid in range(5):
        it.happen(run, EventKind.EXEC, pid=pid)
    it.until(lambda: it.note(run))
    assert it.note(run).endswith("shell 2")
    it.triggers.tick()
    assert any("triggers were not asked about 2 events" in line for line in it.made.log)


def test_the_same_triggers_read_again_go_on_and_remember(it: TriggerNode) -> None:
    run = it.made.begin()
    count = (
        "10-count.lua",
        'on("exec", function(event, run, memory) memory.n = (memory.n or 0) + 1 run:note(memory.n .. " programs") end)',
    )
    it.load(count)
    child = it.client.pid
    it.happen(run, EventKind.EXEC)
    it.settle()
    it.load(count)
    it.happen(run, EventKind.EXEC)
    it.settle()
    assert it.client.pid == child and it.note(run).endswith("2 programs")
    it.load(("10-count.lua", count[1] + "\n"))
    assert it.client.pid != child


def test_what_is_done_to_a_run_without_a_name_waits_for_it(it: TriggerNode) -> None:
    """A job's first programs can start before its ad has been read."""
    run, over = it.made.begin(), it.made.begin("2.0")
    it.load(("10-shell.lua", 'on("exec", function(event, run) run:note("shell " .. event.Pid) end)'))
    state = it.made.node.runs.state
    state["named"][[run, over]] = False
    for pid in range(actions.ACTIONS.of_run + 2):
        it.happen(run, EventKind.EXEC, pid=pid)
    it.happen(over, EventKind.EXEC)
    it.settle()
    it.triggers.tick()
    assert it.note(run) == ""
    it.made.node.runs.rows["final"][over] = True
    state["named"][[run, over]] = True
    it.triggers.tick()
    assert it.note(run) == "shell 9; shell 10; shell 11" and it.note(over) == ""
    assert not list(it.triggers._actions.held)


RAISE = 'on("exec", function(event, run) run:raise("io", 60, "it starts programs") end)'


def test_a_level_is_raised_for_a_time_and_comes_back(it: TriggerNode) -> None:
    run = it.made.begin()
    it.load(("20-raise.lua", RAISE))
    it.happen(run, EventKind.EXEC)
    it.settle()
    row = it.made.node.runs.rows[run]
    assert it.made.level(run) is Level.IO
    assert (row["policy"], row["reason"]) == (b"trigger 20-raise.lua", b"it starts programs")
    assert it.note(run).startswith("io until ")
    it.made.node.runs.state["trigger_until"][run] = time.monotonic()
    level_arbiter.arbitrate(it.made.levels)
    assert it.made.level(run) is Level.BASIC
    row = it.made.node.runs.rows[run]
    assert (row["policy"], it.note(run)) == (b"rule", "")


def test_a_trigger_stays_below_the_policies_cap_and_lowers_nothing(it: TriggerNode) -> None:
    capped, off, roots = it.made.begin("1.0", cap=Level.BASIC), it.made.begin("2.0", Level.OFF), it.made.begin("3.0")
    state = it.made.node.runs.state
    state["override_level"][roots], state["override_until"][roots] = Level.PROFILE, time.monotonic() + 600
    state["override_by_root"][roots] = True
    level_arbiter.arbitrate(it.made.levels)
    it.load(("20-raise.lua", RAISE))
    for run in (capped, off, roots):
        it.happen(run, EventKind.EXEC)
    it.settle()
    assert [it.made.level(run) for run in (capped, off, roots)] == [Level.BASIC, Level.OFF, Level.PROFILE]
    state["override_level"][roots] = Level.BASIC
    level_arbiter.arbitrate(it.made.levels)
    assert it.made.level(roots) is Level.BASIC  # root's word, though a trigger raises it


def test_a_lower_level_does_not_end_a_higher_one(it: TriggerNode) -> None:
    run = it.made.begin()
    both = 'on("exec", function(event, run) run:raise("profile", 300) run:raise("io", 60) end)'
    it.load(("20-both.lua", both))
    it.happen(run, EventKind.EXEC)
    it.settle()
    assert it.made.level(run) is Level.PROFILE
    assert it.made.node.runs.state["trigger_until"][run] > time.monotonic() + 200


def test_numbers_of_the_run_and_those_before(it: TriggerNode) -> None:
    run = it.made.begin()
    it.load(
        (
            "30-full.lua",
            'on("metric", {["Errors.ENOSPC"] = above(0)}, function(event, run)\n'
            '    run:send("disk full at " .. run.usage.Memory.ResidentBytes, {mail = true})\nend)\n',
        )
    )
    rows = it.made.node.runs.rows
    for errors in (-1, 0, 3, 4):
        rows["errors_enospc"][run], rows["memory_resident_bytes"][run] = errors, 1000 + errors
        it.triggers.tick()
        it.settle()
    assert it.sent() == [("30-full.lua", "disk full at 1003.0", 1)]


def test_the_recorder_is_tagged_and_evidence_taken(it: TriggerNode) -> None:
    run = it.made.begin()
    evidence = MagicMock()
    tag = it.triggers._recorder.tag_if_recorded = MagicMock()  # type: ignore[method-assign]
    it.load(("40-core.lua", 'on("exit", {CoreDumped = true}, function(event, run) run:tag() run:evidence() end)'))
    it.triggers._actions._evidence = evidence
    keep = it.made.agent.output.artifacts.keep_about = MagicMock()  # type: ignore[method-assign]
    it.happen(run, EventKind.EXIT, exit_code=11)
    it.happen(run, EventKind.EXIT, 2, exit_code=11 + 128)
    it.settle()
    assert tag.call_args_list[0].args == (run, actions.CAUSE)
    ((of, nobody, look, _),) = (call.args for call in evidence.take.call_args_list)  # not again within a minute
    assert (of, nobody) == (run, None)
    look.send(b'{"part":"threads"}\n')
    look.end({})
    (about, pieces), _ = keep.call_args
    assert about.kind == actions.LOOK and b"".join(pieces).endswith(b'{"part":"threads"}\n')


def test_actions_beyond_the_limit_are_counted_by_name(it: TriggerNode) -> None:
    run = it.made.begin()
    it.load(("50-many.lua", 'on("exec", function(event, run, memory) run:note("note " .. event.Pid) end)'))
    for pid in range(actions.ACTIONS.of_run + 7):
        it.happen(run, EventKind.EXEC, pid=pid + 1)
        it.settle()
    assert "trigger 50-many.lua: 7 actions beyond 10 a minute were not taken" in it.note(run)
    assert sum("beyond 10 a minute" in line for line in it.made.log) == 1


def test_events_beyond_the_limit_are_counted_by_name(it: TriggerNode) -> None:
    run = it.made.begin()
    it.load(("50-many.lua", 'on("exec", function(event, run) run:send("here") end)'))
    it.happen(run, EventKind.EXEC, actions.SENT.of_run + 3)
    it.settle()
    assert len(it.sent()) == actions.SENT.of_run
    assert "3 events beyond 5 a second were not sent" in it.note(run)


def test_many_jobs_of_one_user_leave_room_for_those_of_another(it: TriggerNode) -> None:
    runs = [it.made.begin(f"{number}.0") for number in range(12)]
    other = it.made.begin("99.0")
    for run in runs:
        it.made.node.handles[run].sandbox.scratch_uid = 1001  # type: ignore[union-attr]
    it.load(("50-many.lua", 'on("exec", function(event, run) run:note("n" .. event.Pid) end)'))
    for run in runs:
        it.happen(run, EventKind.EXEC, actions.ACTIONS.of_run, pid=np.arange(1, actions.ACTIONS.of_run + 1))
        it.settle()
    it.happen(other, EventKind.EXEC, pid=1)
    it.settle()
    noted = [it.note(run).partition("n10")[1] for run in runs]
    assert noted == ["n10"] * 4 + [""] * 8  # forty actions
    said = "trigger 50-many.lua: 10 actions beyond 40 a minute for all jobs of this user were not taken"
    assert said in it.note(runs[-1])
    assert it.note(other) == "n1"


def test_who_is_beyond_one_bound_uses_up_no_other() -> None:
    now = 0.0
    bounds = limits.Bounds(of_run=3, of_user=4, of_node=20, seconds=60.0, said="beyond {}{}")
    of = limits.Limits(bounds, lambda: now)
    assert [of.why_not(1, 7, "a") for _ in range(100)] == [""] * 3 + ["beyond 3"] * 97
    assert [of.why_not(2, 7, "a") for _ in range(3)] == ["", *["beyond 4 for all jobs of this user"] * 2]
    assert [of.why_not(3, 8, "a") for _ in range(4)] == ["", "", "", "beyond 3"]
    assert of.refused[1, "a", "beyond 3"] == 97
    of.forget(1)
    assert (1, "a", "beyond 3") not in of.refused
    now = 15.0  # one more of the user: what a run that is over has had done is not forgotten
    assert [of.why_not(4, 7, "a") for _ in range(2)] == ["", "beyond 4 for all jobs of this user"]


def test_once_half_of_the_nodes_is_used_up_a_user_has_what_a_run_may_have() -> None:
    now = 0.0
    bounds = limits.Bounds(of_run=2, of_user=6, of_node=12, seconds=60.0, said="beyond {}{}")
    of = limits.Limits(bounds, lambda: now)
    assert [of.why_not(run, 7, "a") for run in (1, 1, 2, 2, 3, 3)] == [""] * 6
    busy = "beyond 2 for all jobs of this user on a busy node"
    assert [of.why_not(run, 8, "a") for run in (4, 5, 6)] == ["", "", busy]
    assert [of.why_not(run, 9, "a") for run in (7, 8)] == ["", ""]
    assert [of.why_not(run, 10, "a") for run in (9, 9)] == ["", ""]
    assert of.why_not(10, 11, "a") == "beyond 12 for all jobs of this node"
    now = 60.0
    assert of.why_not(6, 8, "a") == ""


def test_users_whose_share_is_known_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_USERS", 2)
    bounds = limits.Bounds(of_run=9, of_user=1, of_node=90, seconds=60.0, said="beyond {}{}")
    of = limits.Limits(bounds, lambda: 0.0)
    assert [bool(of.why_not(user, user, "a")) for user in (1, 2, 3, 3, 1)] == [False, False, False, True, False]


def test_of_a_run_that_is_over_an_event_is_sent_and_nothing_else(it: TriggerNode) -> None:
    run = it.made.begin()
    it.load(("60-death.lua", 'on("death", function(event, run) run:note("x") run:send(event.Reason) end)'))
    it.made.node.runs.rows["final"][run] = True
    it.happen(run, EventKind.DEATH, text=b"killed by signal 9")
    it.settle()
    assert (it.note(run), it.sent()) == ("", [("60-death.lua", "killed by signal 9", 0)])


def test_a_looping_handler_is_set_aside_and_the_others_go_on(it: TriggerNode, tmp_path: Path) -> None:
    first = [it.made.begin(f"{number}.0") for number in range(3)]
    for number, run in enumerate(first):
        it.made.node.handles[run].sandbox.scratch_uid = 1000 + number  # type: ignore[union-attr]
    it.load(
        ("70-loop.lua", 'on("exec", function() while true do end end)'),
        ("71-good.lua", 'on("exec", function(event, run) run:note("seen") end)'),
    )
    for run in first:
        it.happen(run, EventKind.EXEC)
    it.until(lambda: (tmp_path / "triggers.aside").read_text())
    it.settle()
    assert (
        tmp_path / "triggers.aside"
    ).read_text() == "70-loop.lua: 70-loop.lua:1: ran for more than 50000 instructions\n"
    assert any(
        "70-loop.lua failed 3 times in a row and is set aside until condor_reconfig" in line for line in it.made.log
    )
    assert [it.note(run) for run in first] == ["seen"] * 3
    pid = it.client.pid
    it.happen(it.made.begin("9.0"), EventKind.EXEC)
    it.settle()
    assert it.client.pid == pid and "70-loop.lua" in it.triggers._aside


def test_one_users_jobs_set_no_trigger_aside(it: TriggerNode) -> None:
    runs = [it.made.begin(f"{number}.0") for number in range(5)]
    it.load(("70-loop.lua", 'on("exec", function() while true do end end)'))
    for run in runs:
        it.happen(run, EventKind.EXEC, 5)
    it.settle()
    assert not it.triggers._aside
    assert sum("70-loop.lua:1 failed on" in line for line in it.made.log) == 5


def test_a_child_that_dies_is_replaced_and_told_anew(it: TriggerNode) -> None:
    run = it.made.begin()
    it.load(("10-shell.lua", 'on("exec", function(event, run) run:note(run.Owner) end)'))
    it.client._child._process.kill()
    it.until(lambda: it.client.lives == 2)
    assert any("the triggers' child ended (SIGKILL)" in line for line in it.made.log)
    it.happen(run, EventKind.EXEC)
    it.settle()
    assert it.note(run) == "alice"


def test_a_child_that_is_behind_keeps_nobody_waiting(it: TriggerNode) -> None:
    run = it.made.begin()
    it.load(("10-shell.lua", 'on("exec", function() end)'))
    for _ in range(40):  # nobody reads the answers
        it.happen(run, EventKind.EXEC, 1024)
    assert it.client.lost == (40 - 16) * 1024
    it.settle()
    it.triggers.tick()
    assert any(f"were not asked about {it.client.lost} events" in line for line in it.made.log)


def test_an_error_in_what_triggers_do_costs_no_event(it: TriggerNode) -> None:
    emitter = it.made.agent.output.events
    emitter.listener = MagicMock(side_effect=ValueError)
    it.happen(it.made.begin(), EventKind.EXEC)
    assert len(it.events) == 1 and any("triggers were not told of events" in line for line in it.made.log)


def test_batches_of_many_runs_keep_each_runs_order(it: TriggerNode) -> None:
    runs = [it.made.begin(f"{number}.0") for number in range(3)]
    it.load(
        (
            "80-order.lua",
            'on("exec", function(event, run, memory)\n'
            "    memory.n = (memory.n or 0) + 1\n"
            '    if memory.n ~= event.Pid then run:note("out of order") end\n'
            "    if memory.n == 100 then run:note(run.Slot) end\nend)\n",
        )
    )
    events: np.ndarray = np.zeros(300, EVENT)
    events["kind"], events["pid"] = EventKind.EXEC, np.repeat(np.arange(1, 101), 3)
    events["run_number"] = np.tile(it.made.node.runs.rows["run_number"][runs], 100)
    it.made.agent.output.events.append(events)
    it.settle()
    assert [it.note(run) for run in runs] == ["slot1_1", "slot1_2", "slot1_3"]


def test_a_bucket_fills_again() -> None:
    now = 0.0
    bucket = limits.Bucket(2, 60.0, lambda: now)
    assert [bucket.take() for _ in range(3)] == [True, True, False]
    now = 30.0
    assert [bucket.take() for _ in range(2)] == [True, False]
