"""Files of cgroups of version 1: the same columns, from other names in other places."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from condor_joblens.sample import cgroup_v1
from condor_joblens.sample.cgroup_files import CgroupFiles, read_cpu, read_slow

NAME = "htcondor/condor_var_lib_condor_execute_slot1_1@host"
FILES = {
    "cpu,cpuacct/cpuacct.usage": "2500000000\n",
    "cpu,cpuacct/cpuacct.stat": "user 150\nsystem 100\n",
    "memory/memory.usage_in_bytes": "4096\n",
    "memory/memory.max_usage_in_bytes": "8192\n",
    "memory/memory.limit_in_bytes": "16384\n",
    "memory/memory.kmem.usage_in_bytes": "512\n",
    "memory/memory.stat": "cache 1\nrss 2\ntotal_cache 1000\ntotal_rss 2000\ntotal_swap 3000\n",
}


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        tree, _, file = name.partition("/")
        folder = tmp_path / tree / NAME
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    (tmp_path / "mounts").write_text(
        f"cgroup {tmp_path}/memory cgroup rw,memory 0 0\ncgroup {tmp_path}/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n"
    )
    return tmp_path


def opened(trees: Path) -> CgroupFiles:
    directory = os.open(trees / "cpu,cpuacct" / NAME, os.O_RDONLY)
    try:
        return CgroupFiles(cgroup_v1.open_files(directory, str(trees / "mounts")))
    finally:
        os.close(directory)


def test_every_column_is_what_its_file_says(trees: Path) -> None:
    files = opened(trees)
    cpu = {name: values.tolist() for name, values in read_cpu([files]).items()}
    second = os.sysconf("SC_CLK_TCK")
    assert cpu == {"cpu_seconds": [2.5], "cpu_user_seconds": [150 / second], "cpu_system_seconds": [100 / second]}
    assert {name: values.tolist() for name, values in read_slow([files]).items()} == {
        "memory_cgroup_bytes": [4096], "memory_cgroup_peak_bytes": [8192], "memory_limit_bytes": [16384],
        "memory_cgroup_anon_bytes": [2000], "memory_cgroup_file_bytes": [1000], "memory_cgroup_swap_bytes": [3000],
        "memory_cgroup_kernel_bytes": [512],
    }  # fmt: skip
    files.close()


def test_no_limit_is_absent(trees: Path) -> None:
    (trees / "memory" / NAME / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert read_slow([opened(trees)])["memory_limit_bytes"].tolist() == [-1]


def test_without_the_tree_of_memory_only_its_columns_are_absent(trees: Path) -> None:
    (trees / "mounts").write_text("")
    files = opened(trees)
    assert read_cpu([files])["cpu_seconds"].tolist() == [2.5]
    assert read_slow([files])["memory_cgroup_bytes"].tolist() == [-1]


def test_a_cgroup_that_is_gone_is_absent_among_others(trees: Path) -> None:
    there, gone = opened(trees), CgroupFiles({})
    seconds = read_cpu([gone, there])["cpu_seconds"]
    assert np.isnan(seconds[0]) and seconds[1] == 2.5
    assert read_slow([gone, there])["memory_cgroup_bytes"].tolist() == [-1, 4096]


@pytest.mark.parametrize("nonsense", ["", "x", "user\n", "-"])
def test_a_file_that_says_nothing_is_survived(trees: Path, nonsense: str) -> None:
    for name in FILES:
        tree, _, file = name.partition("/")
        (trees / tree / NAME / file).write_text(nonsense)
    files = opened(trees)
    assert np.isnan(read_cpu([files])["cpu_seconds"][0])
    assert read_slow([files])["memory_limit_bytes"].tolist() == [-1]


def test_a_folder_of_version_2_has_none_of_them(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    assert cgroup_v1.open_files(directory) == {}
    os.close(directory)
