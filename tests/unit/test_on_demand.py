"""A sensor that could not be loaded: for good if the kernel refuses it, else until the next try."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from condor_joblens.common.errors import JobLensError
from condor_joblens.model.levels import Level
from condor_joblens.tracer import on_demand
from condor_joblens.tracer.loader import Part
from condor_joblens.tracer.loader_client import NotLoaded
from condor_joblens.tracer.on_demand import OnDemand


class FakeSensor:
    """Loads as soon as `fails` is None."""

    name, level, max_jobs = "io", Level.IO, 1
    parts = (Part("calls", (), ()),)

    def __init__(self, fails: Exception | None) -> None:
        self.fails, self.loaded, self.is_attached = fails, None, False
        self.missing: dict[str, str] = {}
        self.tries = 0

    def load(self, *_: Any) -> Any:
        self.tries += 1
        if self.fails is not None:
            raise self.fails
        return SimpleNamespace(adopted=False)

    def take(self, loaded: Any) -> None:
        self.loaded, self.missing = loaded, {}

    def attach(self, _folder: Any) -> None:
        self.is_attached = True

    def unload(self) -> None:
        self.loaded, self.is_attached = None, False

    def start(self, _slot: int) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(on_demand, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_what_failed_is_tried_again_and_then_forgotten(clock: SimpleNamespace) -> None:
    sensor = FakeSensor(NotLoaded("what loads programs has failed"))
    demand = OnDemand(sensor, None, {}, 20.0, False)  # type: ignore[arg-type]
    assert not demand.start(1) and not demand.start(1) and sensor.tries == 1
    assert demand.missing == {"calls": "what loads programs has failed"}
    assert demand.why_not() == "its programs could not be loaded just now: what loads programs has failed"
    sensor.fails = None
    clock.now += on_demand.AGAIN_SECONDS
    assert demand.start(1) and demand.missing == {}


def test_what_the_kernel_refuses_is_not_tried_again(clock: SimpleNamespace) -> None:
    sensor = FakeSensor(JobLensError("the kernel refuses jl_switch"))
    demand = OnDemand(sensor, None, {}, 20.0, False)  # type: ignore[arg-type]
    assert not demand.start(1)
    clock.now += 2 * on_demand.AGAIN_SECONDS
    assert not demand.start(1) and sensor.tries == 1
    assert "the kernel refuses" in demand.why_not()
