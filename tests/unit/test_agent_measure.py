"""Which runs a round measures."""

from __future__ import annotations

from pathlib import Path

import pytest
from agent_node import make

from condor_joblens.agent import measure


@pytest.mark.parametrize(
    ("slot", "living", "is_measured"),
    [(0, -1, True), (0, 2, True), (0, 0, False), (-1, -1, False)],
    ids=["not looked yet", "some live on", "empty", "never counted"],
)
def test_a_run_whose_first_process_has_ended_is_measured_until_its_cgroup_is_known_to_be_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slot: int, living: int, is_measured: bool
) -> None:
    it = make(tmp_path, monkeypatch)
    measured: list[int] = []
    monkeypatch.setattr(measure, "_counted", lambda node, runs: runs)
    monkeypatch.setattr(measure, "_kernel", lambda node, runs, tasks, connections: None)
    monkeypatch.setattr(measure, "_files", lambda node, runs, now: None)
    monkeypatch.setattr(measure, "_finish", lambda node, runs, now: measured.extend(runs.tolist()))
    run = it.begin()
    it.node.runs.rows["final"][run] = True
    it.node.runs.rows["process_live"][run] = living
    it.node.runs.state["kernel_slot"][run] = slot
    measure.everything(it.node)
    assert measured == ([run] if is_measured else [])
