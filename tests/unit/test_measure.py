"""Which runs a round measures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
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


def test_what_a_job_gives_back_at_its_end_is_no_part_of_its_growth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = make(tmp_path, monkeypatch)
    for function in ("_kernel", "_finish"):
        monkeypatch.setattr(measure, function, lambda *_, **__: None)
    monkeypatch.setattr(measure.cgroup_files, "read_cpu", lambda files: {})
    monkeypatch.setattr(measure, "_slow", lambda node, files: {"memory_cgroup_anon_bytes": np.array([0])})
    run = it.begin()
    rows, state = it.node.runs.rows, it.node.runs.state
    rows["memory_growth_bytes_per_hour"][run] = 5 << 30
    measure.last(it.node, np.array([run]))
    assert rows["memory_cgroup_anon_bytes"][run] == 0 and rows["memory_growth_bytes_per_hour"][run] == 5 << 30
    assert not state["growth_time"][run].any()
