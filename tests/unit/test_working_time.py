"""The clock that stands still while its thread waits for a core."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from condor_joblens.common import working_time
from condor_joblens.common.working_time import WorkingTime


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the machine's clock says."""
    now = [1000.0]
    monkeypatch.setattr(working_time.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def clock(tmp_path: Path) -> Iterator[WorkingTime]:
    (tmp_path / "schedstat").write_text("500000000 2000000000 77\n")
    clock = WorkingTime(str(tmp_path / "schedstat"))
    yield clock
    clock.close()


def test_the_wait_for_a_core_is_left_out(clock: WorkingTime, at: list[float], tmp_path: Path) -> None:
    began = clock()
    at[0] += 5
    (tmp_path / "schedstat").write_text("600000000 6000000000 99\n")
    assert clock() - began == pytest.approx(1)


def test_a_thread_that_blocks_or_works_goes_on(clock: WorkingTime, at: list[float]) -> None:
    began = clock()
    at[0] += 5
    assert clock() - began == pytest.approx(5)


@pytest.mark.parametrize("said", ["", "1\n", "a b c\n"])
def test_a_kernel_that_does_not_say_it_leaves_the_time_as_it_is(at: list[float], tmp_path: Path, said: str) -> None:
    (tmp_path / "schedstat").write_text(said)
    clock = WorkingTime(str(tmp_path / "schedstat"))
    assert clock() == at[0]
    clock.close()
    assert clock() == at[0]
    assert WorkingTime(str(tmp_path / "nothing"))() == at[0]


def test_this_kernels_file_has_the_wait_of_this_thread() -> None:
    clock, since = WorkingTime(), time.monotonic()
    began = clock()
    time.sleep(0.01)
    took = clock() - began
    assert took <= time.monotonic() - since
    clock.close()
