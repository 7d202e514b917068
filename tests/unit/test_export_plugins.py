"""What a plug-in can do to its channel, method by method: all of it is a failure of this sink, and named as such."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from test_export_channel import LIMITS, Bench, FakeSink, until

from condor_joblens.export import delivery, spooler
from condor_joblens.export.channel import Channel
from condor_joblens.export.cursor import RunIndex
from condor_joblens.sinks import DeliveryResult, Record, SinkContext
from condor_joblens.sinks.registry import SinkConfig, configure


class Sick(FakeSink):
    """Does in each method what the test says, once; a sink is made anew as often as that fails."""

    ails: Callable[[str], None]

    def __init__(self, settings: object, context: SinkContext) -> None:
        type(self).ails("__init__")
        super().__init__(settings, context)

    def start(self) -> None:
        type(self).ails("start")

    def deliver(self, batch: Sequence[Record]) -> DeliveryResult:
        type(self).ails("deliver")
        return super().deliver(batch)

    def close(self, seconds: float) -> None:
        type(self).ails("close")


METHODS = ("__init__", "start", "deliver")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(delivery, "LONGEST_PAUSE", 0.05)
    monkeypatch.setattr(spooler, "SLOW_SECONDS", 0.1)
    monkeypatch.setattr(delivery, "STUCK_SECONDS", 0.3)
    bench = Bench(tmp_path)
    yield bench
    for channel in bench.channels:
        channel.stop(0)


def sick(bench: Bench, ails: Callable[[str], None]) -> Channel:
    """A running channel of such a sink."""
    kind = type("Sick", (Sick,), {"ails": staticmethod(ails)})
    context = SinkContext(bench.said.append, lambda: pytest.fail("not asked for"), tuple, "node")
    channel = Channel(SinkConfig("fake", kind, {}), context, RunIndex(), bench.folder, LIMITS)
    bench.channels.append(channel)
    channel.start()
    return channel


ERRORS = {type(error).__name__: error for error in (ValueError("what now?"), SystemExit(3), MemoryError())}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_whatever_a_method_raises_is_a_failure_for_now(bench: Bench, method: str, error: BaseException) -> None:
    well = threading.Event()

    def ails(where: str) -> None:
        if where == method and not well.is_set():
            raise error

    channel = sick(bench, ails)
    bench.offer(channel, 30)
    until(lambda: channel.health()["Failures"] >= 2 and channel.health()["SpooledRecords"] == 30)
    assert channel.health()["Working"] is False
    assert any(f"the sink fake does not work for now: {type(error).__name__}" in line for line in bench.said)
    well.set()
    until(lambda: channel.health()["Delivered"] == 30)
    until(lambda: channel.health()["Working"] is True)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_that_does_not_return_is_named(bench: Bench, method: str) -> None:
    free = threading.Event()

    def ails(where: str) -> None:
        if where == method:
            free.wait(60)

    channel = sick(bench, ails)
    bench.offer(channel, 30)
    until(lambda: channel.health()["Working"] is False and channel.health()["SpooledRecords"] == 30)
    until(lambda: any("the sink fake has not answered" in line for line in bench.said))
    free.set()
    until(lambda: channel.health()["Working"] is True and channel.health()["Delivered"] == 30)


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_what_its_end_raises_is_said(bench: Bench, error: BaseException) -> None:
    def ails(where: str) -> None:
        if where == "close":
            raise error

    channel = sick(bench, ails)
    bench.offer(channel, 3)
    until(lambda: channel.health()["Delivered"] == 3)
    channel.stop(1)
    assert any("the sink fake could not be closed" in line for line in bench.said)


def test_a_module_that_ends_the_process_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rude-1.dist-info").mkdir()
    (tmp_path / "rude-1.dist-info" / "entry_points.txt").write_text("[condor_joblens.sinks]\nrude = rude_sink:Rude\n")
    (tmp_path / "rude-1.dist-info" / "METADATA").write_text("Name: rude\nVersion: 1\n")
    (tmp_path / "rude_sink.py").write_text("raise SystemExit(4)\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    configs, problems = configure(["rude", "prometheus"], {})
    assert [one.name for one in configs] == ["prometheus"]
    assert any("the sink rude can't be loaded: SystemExit: 4" in line for line in problems), problems
