"""CPU time, pressure and charged memory, as the cgroup's own files have them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from ground import Ground, Slot, until

from condor_joblens.sample.cgroup_files import MEMORY, PRESSURES, CgroupFiles, read_cpu, read_slow

pytestmark = pytest.mark.guest

MIB = 1 << 20


@pytest.fixture
def files(slot: Slot) -> Iterator[CgroupFiles]:
    with files_of(slot) as files:
        yield files


@contextmanager
def files_of(slot: Slot) -> Iterator[CgroupFiles]:
    directory = os.open(slot.path, os.O_RDONLY | os.O_DIRECTORY)
    files = CgroupFiles.open(directory)
    os.close(directory)
    yield files
    files.close()


VERBS = [("burn", 300), ("children", 40), ("threads", 20, 8, "group", 0)]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_cpu_seconds_are_those_of_rusage(ground: Ground, verb: tuple[object, ...]) -> None:
    """In one of three jobs: a machine that stands still for a moment can add that to one of the two alone."""
    assert any(is_of_rusage(ground.slot(f"condor_slot{number}"), verb) for number in range(3))


def is_of_rusage(slot: Slot, verb: tuple[object, ...]) -> bool:
    """Whether there is no more in the files than in the job's rusage; that there is no less is asserted."""
    ended = slot.run(*verb)
    with files_of(slot) as files:
        columns = {name: values[0] for name, values in read_cpu([files]).items()}
    most = ended.usage.ru_utime + ended.usage.ru_stime
    parts = columns["cpu_user_seconds"] + columns["cpu_system_seconds"]
    assert parts == pytest.approx(columns["cpu_seconds"], abs=1e-5)
    # the starter's part is before main; no rusage has a thread's way off the CPU
    ways_off = 0.002 * (1 + ended.said["exited"] * (8 if verb[0] == "threads" else 1))
    assert most - ended.said["cpu_us"] * 1e-6 <= columns["cpu_seconds"]
    return bool(columns["cpu_seconds"] <= most * 1.001 + ways_off)


def test_every_column_is_what_its_file_says(slot: Slot, files: CgroupFiles) -> None:
    slot.run("contend", 5, 100)
    # read before and after: the kernel adds pressure up now and then, also when its cause is over
    before = {name: number_in(slot.path / name) for name in (*PRESSURES, *MEMORY)}
    columns = {name: values[0] for name, values in read_slow([files]).items()}
    after = {name: number_in(slot.path / name) for name in before}
    for name, column in {**PRESSURES, **MEMORY}.items():
        if before[name] is None:
            assert np.isnan(columns[column]) if name in PRESSURES else columns[column] == -1
        else:
            unit = 1e-6 if name in PRESSURES else 1
            least, most = sorted((before[name] * unit, after[name] * unit))
            assert least - unit / 2 <= columns[column] <= most + unit / 2


def number_in(path: Path) -> int | None:
    """The number in a file, or behind its first `total=`; None where this kernel has none, or PSI is off."""
    try:
        return int(path.read_text().splitlines()[0].rpartition("total=")[2])
    except OSError:
        return None


@pytest.mark.controllers
def test_pressure_and_charged_memory_are_there(slot: Slot, files: CgroupFiles) -> None:
    job = slot.start("contend", 5, 300, "peak", 32, 0, "freed")
    job.wait()
    columns = {name: values[0] for name, values in read_slow([files]).items()}
    assert columns["cpu_pressure_some_seconds"] > 0
    assert columns["memory_pressure_some_seconds"] >= 0 and columns["io_pressure_some_seconds"] >= 0
    assert columns["memory_cgroup_bytes"] >= 0
    if (slot.path / "memory.peak").exists():
        assert columns["memory_cgroup_peak_bytes"] >= 32 << 20


@pytest.mark.controllers
def test_what_memory_is_charged_for(slot: Slot, files: CgroupFiles, tmp_path: Path) -> None:
    (slot.path / "memory.max").write_text(str(256 * MIB))
    job = slot.start("store", tmp_path / "file", 8 * MIB, "peak", 48, 60000, "freed")
    until(lambda: read_slow([files])["memory_cgroup_anon_bytes"][0] >= 56 * MIB, 60)
    columns = {name: int(values[0]) for name, values in read_slow([files]).items() if name.startswith("memory_cgroup")}
    anon, file = columns["memory_cgroup_anon_bytes"], columns["memory_cgroup_file_bytes"]
    # 9 MiB to write from, 48 in the child
    assert anon <= 66 * MIB
    assert 7 * MIB <= file <= 24 * MIB  # on tmpfs or not, and the programs; up to a batch of pages a CPU is added late
    # before 5.18 it is made of parts that are added up late as well
    summed = "\nkernel " in (slot.path / "memory.stat").read_text()
    assert (1 if summed else 0) <= columns["memory_cgroup_kernel_bytes"] <= 16 * MIB
    assert columns["memory_cgroup_swap_bytes"] <= 0  # there is no swap
    parts = anon + file + columns["memory_cgroup_kernel_bytes"]
    assert abs(columns["memory_cgroup_bytes"] - parts) <= 4 * MIB
    assert read_slow([files])["memory_limit_bytes"][0] == 256 * MIB
    job.kill()
    job.wait()


def test_a_cgroup_that_is_gone_gives_nothing(ground: Ground) -> None:
    slot = ground.slot()
    directory = os.open(slot.path, os.O_RDONLY | os.O_DIRECTORY)
    files = CgroupFiles.open(directory)
    os.close(directory)
    slot.path.rmdir()
    assert all(np.isnan(values[0]) for values in read_cpu([files]).values())
    assert all(not values[0] >= 0 for values in read_slow([files]).values())
    files.close()
