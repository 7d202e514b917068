"""An exception while joblensd handles one run costs that run alone: one is raised at every call on a run's way."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from agent_node import Made, make
from test_measure import Tracer

import condor_joblens
from condor_joblens.agent import measure, run_guard
from condor_joblens.agent.levels import level_arbiter, policy_rounds
from condor_joblens.agent.lifecycle import first_decision, process_events, run_end, run_identity, run_start
from condor_joblens.common import user_names
from condor_joblens.common.signals import Stop
from condor_joblens.jobs.run_state import STATE
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import ROW, text
from condor_joblens.owner_files.operations import AdWrite
from condor_joblens.policy.job_identity import NUMBERS, literals
from condor_joblens.policy.policy_answers import Decision
from condor_joblens.sample.cgroup_files import CgroupFiles
from condor_joblens.sample.collectors import Collectors
from condor_joblens.tracer import map_layout

PACKAGE = os.path.dirname(condor_joblens.__file__)

DOORS = {
    *(
        "drain",
        "cgroup_gone",
        "close_run",
        "first_process_exited",
        "tell",
        "start_guarded",
        "__call__",
        "leaves_out",
        "has",
        "knows",
    ),
    *("runs_left_out", "failed", "describe", "log", "log_exception", "living", "remove", "forget", "key_of", "run_of"),
    *(
        "apply_answers",
        "receive",
        "_sample_final",
        "<lambda>",
        "<genexpr>",
        "<listcomp>",
        "<dictcomp>",
        "<setcomp>",
        "__init__",
    ),
}
"""Functions that lead to the guards, or are the guards: an exception there is nobody's who could be named."""


# -- the whole way of some runs ------------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Made]]:
    """Makes nodes with three runs about which nothing has been decided; what they write goes into folders."""
    monkeypatch.setattr(process_events, "drain", lambda agent: 0)
    monkeypatch.setattr(process_events, "take_ahead", lambda agent: None)
    opened = []

    def make_one() -> Made:
        folder = tmp_path / str(len(opened))
        folder.mkdir()
        patches = pytest.MonkeyPatch()
        made = make(folder, patches)
        patches.undo()  # levels are applied, and ads are written
        tracer: Any = Tracer()
        tracer.sensors["io"].start = lambda slot: True
        tracer.sensors["io"].stop = lambda slot: None
        tracer.stop = lambda slot: None
        made.node.tracer = tracer
        made.node.collectors = Collectors(made.node)
        made.node.ended = MagicMock()
        made.node.ended.resume.return_value = None
        for number in range(3):
            run = made.begin(f"{number}.0")
            made.node.runs.state["named"][run] = False
            made.node.runs.state["kernel_slot"][run] = run
            handles = made.node.handles[run]
            handles.files = CgroupFiles({})
            (folder / f"job{number}").mkdir()
            sandbox: Any = handles.sandbox
            sandbox.ads = os.open(folder / f"job{number}", os.O_RDONLY)
            sandbox.job_ad.return_value = f'GlobalJobId = "ap#{run}.0#1"\nOwner = "user{run}"\n'.encode()
            sandbox.uid, sandbox.path = os.getuid(), str(folder / f"job{number}")
            sandbox.usage_write = functools.partial(AdWrite, sandbox.ads, is_users=False)
            opened.append(sandbox.ads)
        tracer.counters["main_exits"], tracer.counters["main_exit_code"] = 1, 256
        return made

    yield make_one
    for descriptor in opened:
        os.close(descriptor)


def decision(number: int) -> Decision:
    identity = literals(f'GlobalJobId = "ap#{number}.0#1"\nOwner = "user{number}"\nClusterId = {number}'.encode())
    return Decision(Level.IO, Level.IO, "io", "rule", "because", "", identity)


def live(made: Made) -> None:
    """The runs are decided about, measured, published, end, and are gone, as joblensd's loop has it."""
    agent, node = made.agent, made.node
    made.policies.answers = [(node.key_of(each), decision(each)) for each in range(3)]
    first_decision.apply_answers(agent)
    for turn in range(2):
        node.tracer.counters["minor_faults"][:3] = np.array([7, 8, 9]) * (turn + 1)
        node.runs.state["next_measure"][:] = node.runs.state["next_ad"][:] = 0
        made.policies.answers = [(node.key_of(each), decision(each)) for each in range(3)]
        first_decision.apply_answers(agent)
        first_decision.give_up_waiting(agent)
        policy_rounds.tick(agent.levels)
        level_arbiter.arbitrate(agent.levels)
        measure.sample_all(node)
        agent.output.job_ads.publish_due(lambda: None)
    for ended, has_died in run_end.first_process_exited(agent, dict.fromkeys(range(3), True)).items():
        run_end.tell(agent, ended, has_died)
    for gone in range(3):
        run_end.cgroup_gone(agent, gone)


def others(made: Made) -> list[tuple[Any, ...]]:
    """What is known of the other two runs at their end, without times."""
    rows = [call.args[0] for call in made.node.ended.add.call_args_list]  # type: ignore[attr-defined]
    names = ("job_id", "owner", "level", "memory_minor_faults", "final", "note", "uncounted", "death")
    known = [tuple(row[name].item() for name in names) for row in rows if row["run_number"] != 1]
    return [tuple(re.sub(rb"\d+ s ", b"", it) if isinstance(it, bytes) else it for it in row) for row in known]


def is_of(frame: FrameType, victim: int) -> bool:
    """Whether the call is about the victim, or made by one that is."""
    at: FrameType | None = frame
    while at is not None:
        found = at.f_locals
        if isinstance(run := found.get("run"), (int, np.integer)) and int(run) == victim:
            return True
        runs = found.get("runs")
        if "/sample/" in at.f_code.co_filename and isinstance(runs, np.ndarray) and victim in runs.tolist():
            return True
        at = at.f_back
    return False


def traced(work: Callable[[], None], seen: Callable[[FrameType, str], None]) -> None:
    """Calls `seen` at each call of a function of the product that is no door."""

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name not in DOORS:
            seen(frame, f"{os.path.relpath(code.co_filename, PACKAGE)}:{code.co_name}")

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        # Python takes a trace function away that has raised
        if sys.gettrace() is None:
            sys.settrace(trace)

    sys.setprofile(profile)
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.setprofile(None)
        sys.settrace(None)


class Injected(Exception):
    """What no code expects."""


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("part", range(4))
def test_an_exception_at_any_call_on_a_runs_way_costs_that_run_alone(part: int, made: Callable[[], Made]) -> None:
    """In `make test` at every fourth call."""
    victim = 0
    user_names.nobodys()  # joblensd looks that up at its start, and once
    sound, called = made(), dict[str, None]()
    traced(lambda: live(sound), lambda frame, name: called.update({name: None}) if is_of(frame, victim) else None)
    expected = others(sound)
    assert len(expected) == 2 and len(called) > 60, "the way is walked"
    for name in list(called)[part::4]:
        node = made()

        def fail(frame: FrameType, at: str, name: str = name) -> None:
            if at == name and is_of(frame, victim):
                raise Injected(name)

        traced(lambda node=node: live(node), fail)  # type: ignore[misc]
        assert others(node) == expected, (name, "\n".join(node.log))
        assert not len(node.node.runs.living()) and not node.node.handles, name
        said = [line for line in node.log if "Injected" in line]
        assert said or name.endswith((":_log_once", ":__len__")), f"{name}: its traceback is in the log"


# -- what is made of it --------------------------------------------------------------------------------------------


def broken(*arguments: Any) -> None:
    raise ZeroDivisionError("of one run")


def test_the_note_says_what_failed_and_the_run_is_not_complete(made: Callable[[], Made]) -> None:
    it = made()
    it.node.runs.rows["complete"] = True
    assert it.node.guard(1, "ad", broken) is None
    assert text(it.node.runs.rows["note"][1]) == "joblensd failed at ad (ZeroDivisionError, see JobLensdLog)"
    assert it.node.runs.rows["complete"][:3].tolist() == [True, False, True]
    assert "slot1_2" in it.log[0] and any("in broken" in line for line in it.log)


def test_rare_failures_leave_nothing_out(made: Callable[[], Made], monkeypatch: pytest.MonkeyPatch) -> None:
    it, now, half = made(), [0.0], run_guard.AGAIN_SECONDS / 2
    monkeypatch.setattr(run_guard, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for _ in range(2 * run_guard.STRIKES):
        now[0] += half
        it.node.guard(1, "ad", broken)
        assert it.node.guard(1, "ad", lambda: "tried") == "tried"
    now[0] += half / 2
    it.node.guard(1, "ad", broken)
    assert it.node.guard(1, "ad", lambda: "tried") is None


def test_what_fails_again_and_again_is_left_out_for_that_run_until_later(
    made: Callable[[], Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    it, calls = made(), []

    def work() -> None:
        calls.append(1)
        broken()

    for _ in range(10):
        it.node.guard(1, "ad", work)
    assert len(calls) == run_guard.STRIKES
    assert it.node.guard(1, "end", lambda: "something else") == "something else"
    assert it.node.guard(2, "ad", lambda: "another's") == "another's"
    monkeypatch.setattr(run_guard, "AGAIN_SECONDS", 0.0)
    it.node.guard(1, "ad", work)
    assert len(calls) == run_guard.STRIKES + 1
    assert sum("ad failed" in line for line in it.log) == 1, "one traceback for each kind of error"
    it.node.guard.forget(1)
    assert it.node.guard(1, "ad", lambda: "the next run's") == "the next run's"


def test_a_signal_ends_joblensd_all_the_same(made: Callable[[], Made]) -> None:
    def stop() -> None:
        raise Stop

    with pytest.raises(Stop):
        made().node.guard(0, "ad", stop)


def test_a_run_that_makes_a_collector_fail_is_found_and_soon_no_longer_measured(
    made: Callable[[], Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    it = made()
    kernel: Any = it.node.collectors.kernel
    read, asked = kernel.read, []

    def read_without(runs: np.ndarray, at_end: bool) -> None:
        asked.append(runs.tolist())
        if 1 in kernel.plan.runs:
            raise OverflowError("one number of one run")
        read(runs, at_end)

    monkeypatch.setattr(kernel, "read", read_without)
    it.node.tracer.counters["minor_faults"][:3] = 7, 8, 9
    for _ in range(6):
        asked.clear()
        it.node.runs.state["next_measure"][:] = 0
        measure.sample_all(it.node)
        assert it.node.runs.rows["memory_minor_faults"][:3].tolist() == [7, -1, 9]
    assert asked == [[0, 2]]
    assert "failed at measuring (OverflowError" in text(it.node.runs.rows["note"][1])


def test_a_collector_that_fails_for_all_is_nobodys_fault_until_it_works_for_somebody(
    made: Callable[[], Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    it = made()
    kernel: Any = it.node.collectors.kernel
    read, culprits = kernel.read, {0, 1, 2}

    def read_without(runs: np.ndarray, at_end: bool) -> None:
        if culprits.intersection(kernel.plan.runs.tolist()):
            raise OverflowError
        read(runs, at_end)

    def rounds(count: int) -> None:
        for _ in range(count):
            it.node.runs.state["next_measure"][:] = 0
            measure.sample_all(it.node)

    monkeypatch.setattr(kernel, "read", read_without)
    rounds(5)
    assert not it.node.guard.runs_left_out(measure.MEASURING)
    # an innocent run comes to those of a user who knows how to break the collector
    run = it.begin("3.0")
    it.node.runs.state["kernel_slot"][run] = run
    it.node.handles[run].files = CgroupFiles({})
    rounds(1)
    assert it.node.runs.rows["memory_minor_faults"][run] == 0
    rounds(3)
    assert it.node.guard.runs_left_out(measure.MEASURING) == {0, 1, 2}


def test_a_start_that_fails_leaves_nothing(made: Callable[[], Made], monkeypatch: pytest.MonkeyPatch) -> None:
    it = made()
    before = it.node.runs.living().tolist()
    monkeypatch.setattr(run_start, "path_below_bases", lambda *_: "/nowhere")
    monkeypatch.setattr(run_start.apply_level, "set_level", broken)
    it.node.executes.__class__ = list  # type: ignore[assignment]
    monkeypatch.setattr(run_start.cgroups, "parse_slot", lambda *_: run_start.cgroups.Slot("slot1_9", "/execute"))
    assert run_start.start_guarded(it.agent, 4711, "_execute_slot1_9@host", 0, None, 0.0) is None
    assert it.node.runs.living().tolist() == before and 4711 not in it.node.runs.by_cgroup
    assert any("its job can't be watched" in line for line in it.log)


# -- numbers of a user ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize(
    "number", ["8589934592", "-8589934592", "999999999999999999", "-999999999999999999", "2147483648", "-1", "0"]
)
def test_no_number_in_an_ad_is_too_large_for_its_column(made: Callable[[], Made], name: str, number: str) -> None:
    """`+CheckpointExitCode = 8589934592` once ended joblensd, again and again."""
    it = made()
    it.node.handles[0].sandbox = None
    run_identity.identify(it.node, 0, literals(f'GlobalJobId = "a#1.0#1"\n{name} = {number}'.encode()))
    assert text(it.node.runs.rows["global_job_id"][0]) == "a#1.0#1"


@pytest.mark.parametrize("value", ["-5", "0", '"20 s"', "true", "999999999999999999"])
def test_a_period_that_is_none_is_told(made: Callable[[], Made], value: str) -> None:
    it = made()
    it.node.handles[0].sandbox = None
    for wrong, note in ((value, run_identity.NO_PERIOD), ("20", "")):
        run_identity.identify(it.node, 0, literals(f'GlobalJobId = "a#1.0#1"\nJobLensPeriod = {wrong}'.encode()))
        assert text(it.node.runs.rows["note"][0]) == note
    assert it.node.runs.state["job_period"][0] == 20


def test_the_highest_numbers_fit_their_columns() -> None:
    assert NUMBERS["CheckpointExitCode"][1] <= np.iinfo(STATE["checkpoint_code"]).max
    assert NUMBERS["RequestMemory"][1] * run_identity.MEGABYTE <= np.iinfo(ROW["request_memory_bytes"]).max
    assert map_layout.COUNTERS["main_exit_code"].itemsize >= 4
