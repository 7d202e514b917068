"""What a machine says of itself is what its kernel has."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from condor_joblens.common import machine


def test_it_is_the_machine_that_we_are_on() -> None:
    found = machine.machine()
    assert found["Cpus"] == psutil.cpu_count() and found["MemoryBytes"] == psutil.virtual_memory().total
    assert 0 < found["MemoryAvailableBytes"] <= found["MemoryBytes"] and found["Load"] >= 0
    assert found["Kernel"] == f"{os.uname().release} {os.uname().machine}" and found["UptimeSeconds"] > 0


def test_a_disk_has_a_size_and_room(tmp_path: Path) -> None:
    found = machine.disk("Scratch", str(tmp_path))
    assert 0 < found["ScratchFreeBytes"] <= found["ScratchBytes"] == psutil.disk_usage(str(tmp_path)).total
    with pytest.raises(OSError):
        machine.disk("Scratch", f"{tmp_path}/none")


@pytest.mark.parametrize(
    "text, percent",
    [("some avg10=12.34 avg60=0.00 avg300=0.00 total=7\n", 12.34), ("", -1.0), ("some avg10=x avg60", -1.0)],
)
def test_a_kernel_that_tells_no_pressure_is_told_from_one_without(text: str, percent: float) -> None:
    assert machine._pressure(text) == percent
