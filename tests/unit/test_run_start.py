"""Slots' cgroups that joblensd comes to know of."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agent_node import Made, make

from condor_joblens.agent.lifecycle import run_start
from condor_joblens.tracer import map_layout


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """A node whose cgroups are all gone again."""
    made = make(tmp_path, monkeypatch)
    made.node.tree.path.return_value = "/nowhere"  # type: ignore[attr-defined]
    return made


def born(made: Made, cgroup_id: int, slot_now: int | None) -> list[int]:
    """The slots that are given back when the birth of this cgroup in slot 5 is told."""
    tracer: Any = made.node.tracer
    tracer.slot_of.return_value = slot_now
    event: np.ndarray = np.zeros(1, map_layout.EVENT)
    event["slot"], event["name"] = 5, b"_execute_slot1_1@host"
    run_start.cgroup_made(made.agent, cgroup_id, event[0])
    return [call.args[0] for call in tracer.stop.call_args_list]


def test_a_birth_that_is_told_after_its_run_was_found_ends_no_counting(made: Made) -> None:
    """As between the two steps of a look for cgroups of which nobody told."""
    run = made.begin()
    assert born(made, int(made.node.runs.state["cgroup_id"][run]), 5) == []


def test_a_slot_is_given_back_once(made: Made) -> None:
    """Given back twice it would be two jobs'."""
    assert born(made, 4711, None) == []
    assert born(made, 4711, 5) == [5]


def test_a_run_starts_when_its_cgroup_is_made_however_late_that_is_told(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracer: Any = made.node.tracer
    tracer.source, tracer.note, tracer.is_exact = b"bpf", "", True
    tracer.counters = np.zeros(8, map_layout.COUNTERS)
    monkeypatch.setattr(run_start, "path_below_bases", lambda *_: "/nowhere")
    monkeypatch.setattr(run_start.cgroups, "parse_slot", lambda *_: run_start.cgroups.Slot("slot1_1", "/execute"))
    before = time.time()
    event: np.ndarray = np.zeros(1, map_layout.EVENT)
    event["slot"], event["name"], event["time_ns"] = 5, b"_execute_slot1_1@host", time.monotonic_ns() - 90 * 10**9
    run_start.cgroup_made(made.agent, 4711, event[0])
    run = made.node.runs.by_cgroup[4711]
    rows, state = made.node.runs.rows, made.node.runs.state
    started = int(rows["start_time"][run])
    assert before - 91 <= started <= time.time() - 90 and state["began"][run] <= time.monotonic() - 90
    run_start.job_starts(made.agent, run)
    assert rows["start_time"][run] == started, "the wrapper's call begins the counting, and not the job"
