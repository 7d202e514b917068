"""A moment as people read it on any machine."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from condor_joblens.common.time_of_day import time_of_day


@pytest.fixture(autouse=True)
def rome(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_what_is_near_has_its_zone_and_what_is_far_its_day(monkeypatch: pytest.MonkeyPatch) -> None:
    noon = 1_796_040_000.0  # 2026-11-30 12:00 UTC
    monkeypatch.setattr(time, "time", lambda: noon)
    assert time_of_day(noon + 600) == "13:10 CET"
    assert time_of_day(noon + 86400) == "2026-12-01 13:00 CET"
    assert time_of_day(noon + 200 * 86400) == "2027-06-18 14:00 CEST"
