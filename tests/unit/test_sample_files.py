"""Cgroup files, read by kept descriptors: what they say, and nothing where they say nothing."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from condor_joblens.sample.cgroup_files import NAMES, CgroupFiles, read_cpu, read_slow

CPU_STAT = "usage_usec 3000000\nuser_usec 2000000\nsystem_usec 1000000\ncore_sched.force_idle_usec 0\nnr_periods 0\n"
PRESSURE = "some avg10=0.00 avg60=1.23 avg300=0.50 total=4500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n"


def opened(folder: Path, **texts: str) -> CgroupFiles:
    for name, text in texts.items():
        (folder / name.replace("_", ".")).write_text(text)
    directory = os.open(folder, os.O_RDONLY)
    try:
        return CgroupFiles.open(directory)
    finally:
        os.close(directory)


def test_every_file_is_read_for_what_it_says(tmp_path: Path) -> None:
    files = opened(
        tmp_path, cpu_stat=CPU_STAT, cpu_pressure=PRESSURE, io_pressure=PRESSURE, memory_pressure=PRESSURE,
        memory_current="4096\n", memory_peak="8192\n", memory_swap_current="512\n", memory_max="16384\n",
        memory_events="low 0\noom 7\noom_kill 2\noom_group_kill 1\n",
        memory_stat="inactive_anon 9\nanon 1\nfile 2\nkernel_stack 8\nkernel 3\nactive_file 9\n",
    )  # fmt: skip
    assert {name: values.tolist() for name, values in read_cpu([files]).items()} == {
        "cpu_seconds": [3.0], "cpu_user_seconds": [2.0], "cpu_system_seconds": [1.0],
    }  # fmt: skip
    assert {name: values.tolist() for name, values in read_slow([files]).items()} == {
        "cpu_pressure_some_seconds": [4.5], "memory_pressure_some_seconds": [4.5], "io_pressure_some_seconds": [4.5],
        "memory_cgroup_bytes": [4096], "memory_cgroup_peak_bytes": [8192], "memory_cgroup_swap_bytes": [512],
        "memory_cgroup_anon_bytes": [1], "memory_cgroup_file_bytes": [2], "memory_cgroup_kernel_bytes": [3],
        "memory_limit_bytes": [16384], "memory_oom_kills": [2],
    }  # fmt: skip
    files.close()


def test_what_is_not_there_is_absent(tmp_path: Path) -> None:
    files = opened(tmp_path)
    assert all(np.isnan(values).all() for values in read_cpu([files]).values())
    columns = read_slow([files])
    assert columns["memory_cgroup_bytes"].tolist() == columns["memory_cgroup_peak_bytes"].tolist() == [-1]
    assert all(np.isnan(columns[name]).all() for name in columns if name.endswith("seconds"))


def test_a_file_is_read_anew_each_time_and_each_cgroup_for_itself(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    files = [opened(folder, cpu_stat=CPU_STAT.replace("3000000", str(n * 10**6))) for n, folder in enumerate(folders)]
    assert read_cpu(files)["cpu_seconds"].tolist() == [0, 1, 2]
    (folders[1] / "cpu.stat").write_text(CPU_STAT.replace("3000000", "7000000"))
    assert read_cpu(files)["cpu_seconds"].tolist() == [0, 7, 2]
    files[2].close()
    assert np.isnan(read_cpu(files)["cpu_seconds"][2])


def test_a_kernel_that_does_not_add_its_own_memory_up_has_its_parts_added(tmp_path: Path) -> None:
    files = opened(tmp_path, memory_stat="anon 1\nkernel_stack 10\npercpu 200\nslab_unreclaimable 7\nslab 3000\n")
    assert read_slow([files])["memory_cgroup_kernel_bytes"].tolist() == [3210]


def test_the_lower_of_two_limits_counts(tmp_path: Path) -> None:
    inner = tmp_path / "slot1.scope"
    inner.mkdir()
    for outside, inside, lower in (("4096", "max", 4096), ("max", "512", 512), ("9", "10", 9), ("max", "max", -1)):
        (inner / "memory.max").write_text(inside)
        assert read_slow([opened(tmp_path, memory_max=outside)])["memory_limit_bytes"].tolist() == [lower]


def test_an_inner_limit_that_comes_later_is_found(tmp_path: Path) -> None:
    files = opened(tmp_path, memory_max="4096")
    (tmp_path / "slot1.scope").mkdir()
    (tmp_path / "slot1.scope" / "memory.max").write_text("512")
    directory = os.open(tmp_path, os.O_RDONLY)
    files.look_inside(directory)
    os.close(directory)
    assert read_slow([files])["memory_limit_bytes"].tolist() == [512]


def test_no_cgroups() -> None:
    assert {values.shape for values in [*read_cpu([]).values(), *read_slow([]).values()]} == {(0,)}


def test_no_limit_is_no_number(tmp_path: Path) -> None:
    assert read_slow([opened(tmp_path, memory_current="max\n")])["memory_cgroup_bytes"].tolist() == [-1]


@given(st.binary(max_size=3000))
@example(b"usage_usec ")
@example(b"some total=" + b"9" * 2000)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_file_says_is_survived(tmp_path: Path, said: bytes) -> None:
    for name in NAMES:
        (tmp_path / name).write_bytes(said)
    directory = os.open(tmp_path, os.O_RDONLY)
    files = CgroupFiles.open(directory)
    os.close(directory)
    for columns in (read_cpu([files]), read_slow([files])):
        for values in columns.values():
            assert values.shape == (1,)
    files.close()
