"""Triggers: what files may say, what handlers see, what joblensd believes of the child, and the commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples

from condor_joblens.cli import trigger_events
from condor_joblens.model.events import EVENT, EventKind
from condor_joblens.model.levels import Level
from condor_joblens.policy import trigger_answers, trigger_kinds
from condor_joblens.policy.child_frames import MAX_REPLY, BadFrame
from condor_joblens.policy.trigger_answers import Handler, Verb
from condor_joblens.policy.trigger_engine import Outcome, TriggerEngine
from condor_joblens.policy.trigger_service import TriggerService

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "lua_policies" / "triggers"
HANDLERS = (Handler("a.lua", 1, "exec", ()),)


def engine(text: str, clock: Any = lambda: 0.0) -> TriggerEngine:
    """One file, in force."""
    made = TriggerEngine(trigger_kinds.layout(), clock)
    assert made.load([("a.lua", text)]) == []
    made.begin(1000.0)
    return made


def ask(made: TriggerEngine, kind: EventKind, count: int = 1, **fields: Any) -> Outcome:
    event: np.ndarray = np.zeros(count, EVENT)
    event["kind"] = kind
    for name, value in fields.items():
        event[name] = value
    return made.events([(7, count)], event.tobytes())


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("on('exce', function() end)", 'on takes a kind of event, not "exce": did you mean exec?'),
        ("on('exec', {Programm = 'x'}, function() end)", "event.Programm is not known here: did you mean Program?"),
        (
            "on('metric', {['Cpu.Secnds'] = above(1)}, function() end)",
            "is no number of a job: did you mean Cpu.Seconds?",
        ),
        ("on('exec')", "on's last argument is a function"),
        ("on('exec', 5, function() end)", "on's filter is a table of tests"),
        ("x = 1", "declares no trigger"),
        ("on('exec', {}, 5)", "on's last argument is a function"),
        ("while true do end", "ran for more than"),
        ("on('exec', function() end", "expected"),
        ("pcall(on)", "pcall is not known here"),
    ],
)
def test_a_mistake_is_said_and_nothing_of_the_file_is_in_force(text: str, what: str) -> None:
    made = TriggerEngine(trigger_kinds.layout())
    (error,) = made.load([("a.lua", text)])
    assert what in str(error) and str(error).startswith("a.lua:1: ") and made.handlers == []


def test_a_filter_has_as_many_tests_as_joblensd_believes() -> None:
    layout = trigger_kinds.layout()

    def tests(count: int) -> str:
        named = ", ".join(f'["{path}"] = above(0)' for path in layout["paths"][:count])
        return f"on('metric', {{{named}}}, function() end)"

    answers: list[Any] = []
    service = TriggerService(answers.append)
    for text in (tests(50), tests(51)):
        service.serve(trigger_kinds.load_message([("a.lua", text)], asks=True), b"")
    fits, too_many = (trigger_answers.loaded(answer) for answer in answers)
    assert [len(handler.asks) for handler in fits.handlers] == [50] and fits.errors == ()
    assert too_many.handlers == () and "a filter has at most 50 tests" in too_many.errors[0]
    service.serve(trigger_kinds.load_message([(f"{number:060}", tests(50)) for number in range(100)]), b"")
    assert len(trigger_answers.loaded(answers[2]).handlers) == 100 and len(json.dumps(answers[2])) < MAX_REPLY


def test_strings_of_users_are_data() -> None:
    made = engine("on('exec', function(event, run) run:note(event.Program .. event.CommandLine .. run.Owner) end)")
    made.introduce([(7, "1.0", "\x1f\n]]--é", "slot", "run", "basic")])
    told = ask(made, EventKind.EXEC, program=b"\x1b[31m\xff", text=b'"); run:raise("io", 60) --\x1f\n')
    (act,) = told.acts
    assert (act.run, act.verb, act.second) == (7, "note", "")
    assert act.first == '?[31m?"); run:raise("io", 60) --????]]--??'


@settings(max_examples=examples(60), deadline=None)
@given(content=st.lists(st.binary(min_size=EVENT.itemsize, max_size=EVENT.itemsize), min_size=1, max_size=5))
def test_no_bytes_of_events_confuse_the_child(content: list[bytes]) -> None:
    made = engine(
        "for _, kind in ipairs {'exec', 'exit', 'oom', 'death', 'hang', 'loss'} do\n"
        "on(kind, function(event, run, memory)\n"
        "  memory[event.Program or 'none'] = event.Kind\n"
        "  run:note(tostring(event.Program) .. tostring(event.CommandLine) .. tostring(event.Reason)"
        " .. tostring(event.ExitCode) .. tostring(event.ExitSignal) .. #run:events(5))\nend) end"
    )
    events = np.frombuffer(b"".join(content), EVENT).copy()
    events["kind"] = [int(kind) % 12 for kind in events["kind"]]
    told = made.events([(3, len(events))], events.tobytes())
    wanted = {int(trigger_kinds.KINDS[kind]) for kind in ("exec", "exit", "oom", "death", "hang", "loss")}
    assert told.failed == [] and len(told.acts) == sum(int(kind) in wanted for kind in events["kind"])
    assert all(act.verb == "note" and act.first.isprintable() for act in told.acts)


def test_a_run_that_takes_long_loses_its_own_events_alone() -> None:
    clock = iter(range(10**6))
    made = engine("on('exec', function(event, run) run:note('x') end)", lambda: next(clock) * 0.06)
    event: np.ndarray = np.zeros(300, EVENT)
    event["kind"] = EventKind.EXEC
    told = made.events([(1, 299), (2, 1)], event.tobytes())
    assert told.skipped == {1: 299 - 2 * 64}
    assert made.events([(2, 1)], event[:1].tobytes()).acts[0].run == 2


def test_the_memory_is_small_and_keeps_plain_values() -> None:
    made = engine(
        "on('exec', function(event, run, memory)\n"
        "  for i = 1, 100 do memory['k' .. i] = i end\n"
        "  run:note(#memory .. ' ' .. tostring(memory.k68) .. ' ' .. tostring(memory.k69))\n"
        "  memory.k69 = nil\n  run:note(#memory .. ' ' .. tostring(memory.k100))\n  memory.t = {}\nend)"
    )
    told = ask(made, EventKind.EXEC)
    assert [act.first for act in told.acts] == ["32 nil 69", "31 100"]
    assert "the memory keeps texts, numbers and booleans" in told.failed[0].what


def test_numbers_of_before() -> None:
    made = engine(
        "on('metric', function(event, run)\n"
        "  run:note(tostring(run.usage.Cpu.Seconds) .. ' ' .. tostring(run:ago('Cpu.Seconds', 10)))\nend)"
    )
    notes = []
    for second in range(0, 25, 5):
        made.begin(1000.0 + second)
        notes += [act.first for act in made.rows([(7, "basic")], np.array([float(second)]).tobytes()).acts]
    assert notes == ["0.0 nil", "5.0 nil", "10.0 0.0", "15.0 5.0", "20.0 10.0"]


def test_a_level_has_an_end() -> None:
    made = engine("on('exec', function(event, run) run:raise('io') end)")
    assert "raise takes seconds from 1 to 86400" in ask(made, EventKind.EXEC).failed[0].what


@pytest.mark.parametrize(
    "change",
    [
        {"acts": [[7, 1, "note", "x", ""]]},
        {"acts": [[7, True, "note", "x", ""]]},
        {"acts": [[7, 0, "kill", "x", ""]]},
        {"acts": [[-1, 0, "note", "x", ""]]},
        {"acts": [[7, 0, "note", 5, ""]]},
        {"acts": [[7, 0, "raise", "off 60", ""]]},
        {"acts": [[7, 0, "raise", "io nan", ""]]},
        {"acts": [[7, 0, "raise", "io 1e9", ""]]},
        {"acts": [[7, 0, "note", "x", ""]] * 1000},
        {"failed": [[7, 0]]},
        {"skipped": [[7]]},
        {"dropped": -1},
        {"worked": None},
    ],
)
def test_an_answer_that_is_none_is_refused(change: dict[str, Any]) -> None:
    good = {"acts": [[7, 0, "raise", "io 60.000", "why"]], "failed": [], "worked": [], "dropped": 0, "skipped": []}
    (action,) = trigger_answers.did(good, HANDLERS).actions
    assert (action.verb, action.level, action.seconds, action.words) == (Verb.RAISE, Level.IO, 60.0, "why")
    with pytest.raises(BadFrame):
        trigger_answers.did({**good, **change}, HANDLERS)


def test_the_level_that_feeds_a_handler() -> None:
    assert trigger_kinds.need("metric", ["Cpu.Seconds", "errors.enospc"]).level is Level.IO
    assert trigger_kinds.need("exec", ["usage.Tcp.Refused"]).level is Level.IO
    assert trigger_kinds.need("exec", ["Program"]).level is Level.BASIC
    assert trigger_kinds.need("failed_open", ["Count", "usage.Tcp.Refused"]).level is Level.TRACE
    assert trigger_kinds.need("function", ["Seconds"]).level is Level.TRACE


def joblens(*arguments: str | Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "condor_joblens.cli.main", "policy", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_all_that_ships_is_checked_and_tested() -> None:
    code, told = joblens("check", "--triggers", SHIPPED)
    assert code == 0 and "10 handlers of triggers in 10 files" in told and "which level io feeds" in told
    code, told = joblens("test", "--triggers", SHIPPED)
    assert code == 0 and "of 10 files are as expected" in told
    assert all(path.with_suffix(".cases").exists() for path in SHIPPED.glob("*.lua"))


CASES = """\
[a call]
function Function = "fit(int)", Caller = main, Arguments = "7", Result = 0, Seconds = 2.5, Depth = 1
=> note fit(int)/main/7/0/2.5/returned
function Function = "fit(int)", Ended = unwound
=> note fit(int)/nil/nil/nil/nil/unwound
[a command]
command Words = "xrdcp a b", Script = job.sh, Line = 12, Status = 54, Seconds = 3
=> note job.sh:12: xrdcp a b 54
command Words = true, Line = 13, Ended = background
=> nothing
[an exception]
exception Exception = "std::runtime_error", From = "Reader::next()", Text = "no more, it says"
=> note std::runtime_error/Reader::next()/no more, it says
[a signal]
signal Signal = SIGTERM, Program = fit, Sender = condor_starter, SenderPid = 12
=> note SIGTERM condor_starter 12
signal Signal = SIGSEGV, Program = fit
=> note SIGSEGV nil nil
[a connect]
refused Address = "192.0.2.1:443", Error = ECONNREFUSED, Program = fit
=> note 192.0.2.1:443 ECONNREFUSED
"""
HANDLERS_OF_CASES = """
local function told(...)
    local all = {...}
    for place = 1, select("#", ...) do all[place] = tostring(all[place]) end
    return table.concat(all, "/")
end
on("function", function(event, run)
    run:note(told(event.Function, event.Caller, event.Arguments, event.Result, event.Seconds, event.Ended))
end)
on("command", {Status = above(0)}, function(event, run)
    run:note(event.Script .. ":" .. event.Line .. ": " .. event.Words .. " " .. event.Status)
end)
on("exception", {Exception = "std::runtime_error"}, function(event, run)
    run:note(told(event.Exception, event.From, event.Text))
end)
on("signal", function(event, run)
    run:note(event.Signal .. " " .. tostring(event.Sender) .. " " .. tostring(event.SenderPid))
end)
on("refused", function(event, run) run:note(event.Address .. " " .. event.Error) end)
"""


def test_cases_of_what_traces_and_the_flight_recorder_tell(tmp_path: Path) -> None:
    (tmp_path / "a.lua").write_text(HANDLERS_OF_CASES)
    (tmp_path / "a.cases").write_text(CASES)
    code, told = joblens("test", "--triggers", tmp_path)
    assert code == 0 and "5 of 5 cases" in told, told
    code, told = joblens("check", "--triggers", tmp_path)
    assert code == 0
    assert "which level trace feeds if +JobLensTrace or a policy names FILE:FUNCTION" in told
    lines = [{"Type": "event", "Kind": "Signal", "Time": 1.0, "RunNumber": 5, "GlobalJobId": "j", "Signal": "SIGTERM"}]
    (tmp_path / "records").write_text("\n".join(map(json.dumps, lines)))
    code, told = joblens("simulate", "--events", tmp_path / "records", "--triggers", tmp_path)
    assert code == 0 and "note SIGTERM nil nil" in told


@pytest.mark.parametrize(
    "fields",
    [{"kind": "function", "Ended": "gone"}, {"kind": "signal", "Signal": "SIGNO"}, {"kind": "command", "Wrds": "a"}],
)
def test_a_field_that_is_none_is_named(fields: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="is no "):
        trigger_events.event_of(fields)


def test_a_case_that_fails_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.lua").write_text("on('exec', function(event, run) run:note('x') end)")
    (tmp_path / "a.cases").write_text("[one]\nexec\n=> nothing\n[two]\nexec * 2\n=> note x\n=> tag\n")
    code, told = joblens("test", "--triggers", tmp_path)
    assert code == 1
    assert "a.cases:3: [one] expected nothing, got note x" in told
    assert "a.cases:7: [two] expected tag, got note x" in told


def test_what_was_recorded_is_simulated(tmp_path: Path) -> None:
    common = {"Schema": 1, "Node": "n", "RunNumber": 5, "GlobalJobId": "ap#1.0#1", "Run": "ap#1.0#1#1"}
    records = [
        {**common, "Type": "sample", "Time": 10.0, "Owner": "bob", "Level": "io", "Errors": {"ENOSPC": 3}},
        {
            **common,
            "Type": "event",
            "Kind": "Exit",
            "Time": 11.0,
            "Program": "fit",
            "ExitSignal": 11,
            "CoreDumped": True,
        },
        {**common, "Type": "event", "Kind": "Exec", "Time": 12.0, "Program": "bash", "CommandLine": "-bash"},
    ]
    (tmp_path / "records").write_text("\n".join([*map(json.dumps, records), "no record"]))
    code, told = joblens("simulate", "--events", tmp_path / "records", "--triggers", SHIPPED)
    assert code == 0 and "2 events and 1 samples; 1 lines are none" in told
    assert "ap#1.0#1: 10-disk-full.lua:3: note a file system of this job is full (ENOSPC)" in told
    assert "ap#1.0#1: 70-login-shell.lua:5: send a login shell in a job of bob" in told
    assert "60-core-dump.lua:3" in told and "note core dump of fit by signal 11" in told
