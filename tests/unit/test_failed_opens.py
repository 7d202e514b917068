"""Failed opens of one path, for triggers: from the flight recorder's rings, counted by path and minute."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from condor_joblens.tracer._bpf import lib
from trigger_node import TriggerNode

from condor_joblens.agent.triggers import failed_opens
from condor_joblens.agent.triggers.failed_opens import LOOK_SECONDS, MOST_TOLD, WINDOW_SECONDS, FailedOpens
from condor_joblens.common.system_calls import numbers
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import text
from condor_joblens.tracer import map_layout
from condor_joblens.tracer.sensors import Recorder

SHIPPED = Path(__file__).resolve().parents[2] / "lua_policies" / "triggers" / "90-failed-opens.lua"
ENOENT = 2
OPENAT, STAT = (numbers()[name] for name in ("openat", "newfstatat"))


class Rings:
    """The recorder, as far as it is asked what is new of a run."""

    def __init__(self, it: TriggerNode) -> None:
        self.it, self.now = it, 1000.0
        self.new: dict[int, list[Any]] = {}
        sensor: Any = MagicMock(spec=Recorder)
        sensor.rare_since = self._since
        it.made.node.tracer.sensors = {"recorder": MagicMock(sensor=sensor)}  # type: ignore[misc]

    def begin(self, job: str = "1.0") -> int:
        """A job that is recorded."""
        run = self.it.made.begin(job, Level.TRACE)
        self.it.made.node.runs.state["kernel_slot"][run] = run
        return run

    def fails(self, run: int, path: bytes, count: int = 1, call: int = OPENAT, age: float = 0.0) -> None:
        """Calls about a path fail."""
        record: np.ndarray = np.zeros(count, map_layout.RECORDED)
        record["kind"], record["subject"] = lib.RECORDED_FAILED, lib.RECORDED_PATH
        record["value"], record["other"], record["text_bytes"] = ENOENT, call, len(path)
        record["time_ns"], record["program"] = (self.now - age) * 1e9, b"fit"
        behind = path + b"\0left by another"
        record["text"] = np.frombuffer(behind.ljust(record["text"].nbytes // count, b"\0"), record["text"].dtype)[0]
        self.new.setdefault(run, []).append(record)

    def _since(self, slot: int, number: int) -> tuple[np.ndarray, int]:
        found = self.new.pop(slot, [])
        records = np.concatenate(found) if found else np.zeros(0, map_layout.RECORDED)
        return records, number + len(records)


@pytest.fixture
def it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TriggerNode]:
    node = TriggerNode(tmp_path, monkeypatch, max_level=Level.TRACE)
    yield node
    node.triggers.stop()


@pytest.fixture
def rings(it: TriggerNode) -> Rings:
    return Rings(it)


def look(rings: Rings, opens: FailedOpens, after: float = LOOK_SECONDS) -> list[tuple[int, str, int]]:
    """Run number, path and count of what is told at the next look."""
    rings.now += after
    told = opens.look(rings.now)
    return [(int(each["run_number"]), text(each["text"]), int(each["value"])) for each in told]


def test_a_path_is_counted_for_a_minute_and_told_when_it_fails_again(rings: Rings) -> None:
    run, other = rings.begin(), rings.begin("2.0")
    first, second = rings.it.made.node.runs.rows["run_number"][[run, other]].tolist()
    opens = FailedOpens(rings.it.made.node)
    rings.fails(run, b"/data/a", 40)
    rings.fails(run, b"/data/b")
    rings.fails(other, b"/data/a", 3)
    assert look(rings, opens) == [(first, "/data/a", 40), (first, "/data/b", 1), (second, "/data/a", 3)]
    assert look(rings, opens) == []
    rings.fails(run, b"/data/a", 60)
    assert look(rings, opens) == [(first, "/data/a", 100)]
    rings.fails(run, b"/data/a", 5, age=-WINDOW_SECONDS)
    assert look(rings, opens, WINDOW_SECONDS) == [(first, "/data/a", 5)]


def test_what_is_no_open_or_long_ago_is_not_counted(rings: Rings) -> None:
    run = rings.begin()
    opens = FailedOpens(rings.it.made.node)
    rings.fails(run, b"/data/a", 7, call=STAT)
    rings.fails(run, b"/data/a", 7, age=WINDOW_SECONDS)
    assert look(rings, opens) == []


def test_of_a_job_that_fails_everywhere_so_many_paths_are_told(rings: Rings) -> None:
    run = rings.begin()
    opens = FailedOpens(rings.it.made.node)
    for number in range(500):
        rings.fails(run, b"/data/%d" % number)
    rings.fails(run, b"/data/often", 2)
    told = look(rings, opens)
    assert len(told) == MOST_TOLD and told[0][1:] == ("/data/often", 2)


def test_a_path_is_shown_without_secrets_and_escaped(rings: Rings) -> None:
    run = rings.begin()
    opens = FailedOpens(rings.it.made.node)
    rings.fails(run, b"/data/\x1b[2J")
    rings.fails(run, b"--password=hunter22222")
    paths = sorted(path for _, path, _ in look(rings, opens))
    assert paths[1] == "/data/\\x1b[2J" and "hunter" not in paths[0]


def test_the_trigger_that_ships_notes_it(it: TriggerNode, rings: Rings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_opens, "LOOK_SECONDS", 0.0)
    rings.now = time.monotonic()
    run = rings.begin()
    it.load((SHIPPED.name, SHIPPED.read_text()))
    rings.fails(run, b"/data/run7.root", 99)
    it.triggers.tick()
    it.settle()
    assert it.note(run) == ""
    rings.fails(run, b"/data/run7.root")
    it.triggers.tick()
    it.settle()
    assert it.note(run) == "100 failed opens in a minute: ENOENT /data/run7.root"
    assert it.sent() == [(SHIPPED.name, "fit of alice fails to open one path: ENOENT", 0)]


def test_without_a_trigger_that_wants_them_nobody_looks(it: TriggerNode, rings: Rings) -> None:
    run = rings.begin()
    it.load(("10-exec.lua", 'on("exec", function() end)'))
    rings.fails(run, b"/data/a")
    it.triggers.tick()
    assert rings.new
