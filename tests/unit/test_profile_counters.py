"""Samples that are left alone, in a run's row: a total over all the times at which the run was sampled."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from agent_node import Made, make

from condor_joblens.agent.levels import profile_level
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import ABSENT
from condor_joblens.publish.classad import usage_ads
from condor_joblens.sample.profile_counters import ProfileCounters
from condor_joblens.tracer import map_layout


class Sensor:
    """Level profile of the kernel: what it has counted of one slot, if it samples that."""

    def __init__(self) -> None:
        self.not_ours, self.sampled = 0, False

    def _counted(self) -> np.ndarray:
        counted: np.ndarray = np.zeros(1, map_layout.SAMPLED)
        counted["not_ours"] = self.not_ours
        return counted

    def counters(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = np.full(len(slots), self.sampled)
        return found, np.repeat(self._counted(), int(found.sum()))

    def stop(self, slot: int) -> np.ndarray | None:
        was_sampled, self.sampled = self.sampled, False
        return self._counted() if was_sampled else None


@pytest.fixture
def it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    return make(tmp_path, monkeypatch)


def sampled(it: Made) -> tuple[int, Sensor, Any]:
    """A run that is sampled from now on, the kernel, and the node's collector."""
    run, sensor = it.begin("1.0", Level.IO), Sensor()
    it.node.runs.state["kernel_slot"][run] = 3
    it.node.tracer.sensors = {"profile": sensor}
    collector = it.node.collectors.profile = ProfileCounters(it.node)
    sampling = SimpleNamespace(
        sensor=SimpleNamespace(loaded=object()), begun=set(), waits=Mock(), profiles=Mock(), kept=Mock()
    )
    it.node.sampling = sampling
    sensor.sampled = True
    collector.begin(run)
    return run, sensor, collector


def test_a_run_that_is_not_sampled_has_no_such_number(it: Made) -> None:
    run, sensor, collector = sampled(it)
    other = it.begin("2.0", Level.IO)
    sensor.sampled = False
    collector.read(np.array([run, other]), False)
    assert it.node.runs.rows["profile_not_ours"][other] == ABSENT
    assert "NotOurs" not in usage_ads(it.node.runs.rows[[other]])[0]


def test_the_total_goes_on_when_the_run_is_sampled_again(it: Made) -> None:
    run, sensor, collector = sampled(it)
    sensor.not_ours = 5
    collector.read(np.array([run]), False)
    assert it.node.runs.rows["profile_not_ours"][run] == 5
    sensor.not_ours = 7  # since then, until the level is another one
    profile_level.end(it.levels, run)
    assert it.node.runs.rows["profile_not_ours"][run] == 7
    profile_level.end(it.levels, run)  # does nothing
    sensor.sampled, sensor.not_ours = True, 0
    collector.begin(run)
    sensor.not_ours = 9  # more than before
    collector.read(np.array([run]), False)
    assert it.node.runs.rows["profile_not_ours"][run] == 16
    assert "Profile=[NotOurs=16]" in usage_ads(it.node.runs.rows[[run]])[0]


def test_a_row_that_is_final_stays_as_it_was_published(it: Made) -> None:
    run, sensor, collector = sampled(it)
    collector.read(np.array([run]), False)
    it.node.runs.rows["final"][run] = True
    sensor.not_ours = 1
    profile_level.end(it.levels, run)
    assert it.node.runs.rows["profile_not_ours"][run] == 0
