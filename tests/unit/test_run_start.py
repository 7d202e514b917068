"""Slots' cgroups that joblensd comes to know of."""

from __future__ import annotations

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
