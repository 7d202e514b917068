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
        self.not_ours, self.lost, self.sampled = 0, 0, False

    def _counted(self) -> np.ndarray:
        counted: np.ndarray = np.zeros(1, map_layout.SAMPLED)
        counted["not_ours"], counted["lost"] = self.not_ours, self.lost
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
    assert "Profile=[NotOurs=16;LostSamples=0]" in usage_ads(it.node.runs.rows[[run]])[0]


def test_a_row_that_is_final_stays_as_it_was_published(it: Made) -> None:
    run, sensor, collector = sampled(it)
    collector.read(np.array([run]), False)
    it.node.runs.rows["final"][run] = True
    sensor.not_ours = 1
    profile_level.end(it.levels, run)
    assert it.node.runs.rows["profile_not_ours"][run] == 0


def test_samples_that_are_lost_are_a_number_of_the_ad(it: Made) -> None:
    """Those for which the ring had no room, and those that went with what reads them."""
    run, sensor, collector = sampled(it)
    rows = it.node.runs.rows
    it.node.sampling.sensor.loaded = None
    profile_level._seen(it.levels, int(rows["run_number"][run]), 1000.0, 30)
    profile_level._seen(it.levels, 4711, 1000.0, 30)  # of a run that is over
    sensor.lost = 2
    collector.read(np.array([run]), False)
    assert rows["profile_lost_samples"][run] == 32 and it.node.runs.state["profile_seen"][run] == 1000.0
    collector.begin(run)  # sampled anew: the kernel counts from nothing on
    sensor.lost = 1
    collector.read(np.array([run]), False)
    assert rows["profile_lost_samples"][run] == 33
    collector.lose(run, 1 << 64)
    collector.read(np.array([run]), False)  # a reader can say anything


def test_a_run_whose_reader_has_ended_says_so(it: Made) -> None:
    run, _, _ = sampled(it)
    profile_level._lost(it.levels, [4711, int(it.node.runs.rows["run_number"][run])])
    assert profile_level.LACKS.encode() in it.node.runs.rows["note"][run]
