"""Level io is loaded aside: who waits for it has it as soon as it is there."""

from __future__ import annotations

import selectors
import threading
from pathlib import Path

import pytest
from agent_node import make

from condor_joblens.agent.levels import apply_level, level_arbiter
from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.agent.levels.sensor_loading import SensorLoading
from condor_joblens.model.levels import Level


def test_a_run_that_waits_for_io_has_it_when_it_is_loaded_and_one_that_was_withdrawn_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = make(tmp_path, monkeypatch)
    best = Level.BASIC  # until the thread is done

    def set_level(levels: Levels, run: int, level: Level) -> None:
        level = min(level, best)
        rows = levels.node.runs.rows
        rows["level"][run], rows["level_number"][run] = level.word.encode(), level

    monkeypatch.setattr(apply_level, "set_level", set_level)
    waits, withdrawn, ended = it.begin("1.0"), it.begin("2.0"), it.begin("3.0")
    it.node.runs.state["policy_level"][[waits, withdrawn, ended]] = Level.IO
    selector = selectors.DefaultSelector()
    SensorLoading(it.levels, selector)
    level_arbiter.arbitrate(it.levels)
    it.node.runs.state["policy_level"][withdrawn] = Level.BASIC
    level_arbiter.arbitrate(it.levels)
    it.node.runs.remove(ended)
    assert it.level(waits) == Level.BASIC and not selector.select(0)

    best = Level.IO
    (done,) = it.node.tracer.load_aside.call_args.args  # type: ignore[attr-defined]
    thread = threading.Thread(target=done)
    thread.start()
    thread.join()
    ((key, _),) = selector.select(0)
    key.data()
    assert it.level(waits) == Level.IO and it.level(withdrawn) == Level.BASIC
    assert not selector.select(0), "once"
