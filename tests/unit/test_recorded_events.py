"""What triggers are told of the flight recorder's rings: failed opens by path and minute, signals, refused connects."""

from __future__ import annotations

import errno
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from condor_joblens.tracer._bpf import lib
from trigger_node import TriggerNode

from condor_joblens.agent.triggers import recorded_events
from condor_joblens.agent.triggers.failed_opens import MOST_TOLD, WINDOW_SECONDS
from condor_joblens.agent.triggers.recorded_events import LOOK_SECONDS, MOST_OF_KIND, RecordedEvents
from condor_joblens.common.system_calls import numbers
from condor_joblens.model.events import EventKind
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

    def happens(self, run: int, count: int = 1, text: bytes = b"", **fields: Any) -> None:
        """Records with these fields."""
        record: np.ndarray = np.zeros(count, map_layout.RECORDED)
        record["time_ns"], record["program"], record["pid"] = self.now * 1e9, b"fit", 44
        record["text_bytes"] = len(text)
        record["text"] = np.frombuffer(text.ljust(record["text"].nbytes // count, b"\0"), record["text"].dtype)[0]
        for name, value in fields.items():
            record[name] = value
        self.new.setdefault(run, []).append(record)

    def _since(self, slot: int, last: tuple[int, int]) -> tuple[np.ndarray, tuple[int, int]]:
        found = self.new.pop(slot, [])
        records = np.concatenate(found) if found else np.zeros(0, map_layout.RECORDED)
        return records, (1, last[1] + len(records))


@pytest.fixture
def it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TriggerNode]:
    node = TriggerNode(tmp_path, monkeypatch, max_level=Level.TRACE)
    yield node
    node.triggers.stop()


@pytest.fixture
def rings(it: TriggerNode) -> Rings:
    return Rings(it)


def look(rings: Rings, opens: RecordedEvents, after: float = LOOK_SECONDS) -> list[tuple[int, str, int]]:
    """Run number, path and count of what is told at the next look."""
    rings.now += after
    told = opens.look(rings.now, {EventKind.FAILED_OPEN})
    return [(int(each["run_number"]), text(each["text"]), int(each["value"])) for each in told]


def test_a_path_is_counted_for_a_minute_and_told_when_it_fails_again(rings: Rings) -> None:
    run, other = rings.begin(), rings.begin("2.0")
    first, second = rings.it.made.node.runs.rows["run_number"][[run, other]].tolist()
    opens = RecordedEvents(rings.it.made.node)
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
    opens = RecordedEvents(rings.it.made.node)
    rings.fails(run, b"/data/a", 7, call=STAT)
    rings.fails(run, b"/data/a", 7, age=WINDOW_SECONDS)
    assert look(rings, opens) == []


def test_of_a_job_that_fails_everywhere_so_many_paths_are_told(rings: Rings) -> None:
    run = rings.begin()
    opens = RecordedEvents(rings.it.made.node)
    for number in range(500):
        rings.fails(run, b"/data/%d" % number)
    rings.fails(run, b"/data/often", 2)
    told = look(rings, opens)
    assert len(told) == MOST_TOLD and told[0][1:] == ("/data/often", 2)


def test_a_path_is_shown_without_secrets_and_escaped(rings: Rings) -> None:
    run = rings.begin()
    opens = RecordedEvents(rings.it.made.node)
    rings.fails(run, b"/data/\x1b[2J")
    rings.fails(run, b"--password=hunter22222")
    paths = sorted(path for _, path, _ in look(rings, opens))
    assert paths[1] == "/data/\\x1b[2J" and "hunter" not in paths[0]


def test_the_trigger_that_ships_notes_it(it: TriggerNode, rings: Rings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_events, "LOOK_SECONDS", 0.0)
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


SIGNAL = {"kind": lib.RECORDED_SIGNAL, "value": signal.SIGTERM}
BY_NAME = {"subject": lib.RECORDED_NAME, "other": 12}
ADDRESS = {"subject": lib.RECORDED_ADDRESS}


def test_a_signal_is_told_with_who_sent_it(rings: Rings) -> None:
    run = rings.begin()
    rings.happens(run, text=b"condor_starter\0\0", **SIGNAL, **BY_NAME)
    rings.happens(run, kind=lib.RECORDED_SIGNAL, value=signal.SIGSEGV)
    first, second = RecordedEvents(rings.it.made.node).look(rings.now + 5, {EventKind.SIGNAL})
    assert (first["pid"], first["parent_pid"], text(first["program"])) == (44, 12, "fit")
    assert text(first["text"]) == "condor_starter" and first["value"] == signal.SIGTERM
    assert (second["value"], second["parent_pid"], text(second["text"])) == (signal.SIGSEGV, 0, "")
    assert abs(float(first["time"]) + 5 - time.time()) < 60


def test_a_connect_that_failed_at_once_or_later_is_told_and_one_within_the_machine_is_not(rings: Rings) -> None:
    run = rings.begin()
    to = b"\x02\0\x01\xbb\xc0\0\x02\0" + bytes(8)  # 192.0.2.0:443
    connect = {"kind": lib.RECORDED_FAILED, "other": numbers()["connect"], **ADDRESS}
    rings.happens(run, text=to, value=errno.ECONNREFUSED, **connect)
    rings.happens(run, text=to, value=errno.ETIMEDOUT, kind=lib.RECORDED_REFUSED, **ADDRESS)
    rings.happens(run, text=b"\x01\0/run/socket", value=errno.ENOENT, **connect)
    rings.fails(run, b"/data/a")
    told = RecordedEvents(rings.it.made.node).look(rings.now + 5, {EventKind.REFUSED})
    assert [(text(each["text"]), each["exit_code"]) for each in told] == [
        ("192.0.2.0:443", errno.ECONNREFUSED),
        ("192.0.2.0:443", errno.ETIMEDOUT),
    ]


def test_of_many_signals_the_last_ones_are_told_and_the_others_are_counted(it: TriggerNode, rings: Rings) -> None:
    run = rings.begin()
    rings.now = time.monotonic()
    rings.happens(run, MOST_OF_KIND + 3, **SIGNAL)
    it.load(("a.lua", 'on("signal", {Signal = "SIGTERM"}, function(event, run) run:send(event.Program) end)'))
    it.triggers.tick()
    it.settle()
    assert it.sent()[0] == ("a.lua", "fit", 0)
    it.triggers.tick()
    assert any("triggers were not asked about 3 events" in line for line in it.made.log)


def test_without_a_trigger_that_wants_them_nobody_looks(it: TriggerNode, rings: Rings) -> None:
    run = rings.begin()
    it.load(("10-exec.lua", 'on("exec", function() end)'))
    rings.fails(run, b"/data/a")
    it.triggers.tick()
    assert rings.new
