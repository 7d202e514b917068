"""Tests of the kernel layer and of the unit layer on aarch64: in an emulated machine, under Debian 12's kernel.

BPF objects, C modules and programs are compiled for it on this machine. GUEST_TESTS=marked takes every kernel test
that is marked `guest`, otherwise those of the files below.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
EVERYTHING = os.environ.get("GUEST_TESTS") == "marked"
TEST_SECONDS = 300
"""After that long a test says where it is."""

KERNEL = ("slots", "pins", "processes", "syscalls", "storage", "levels", "death", "cgroupfiles")
"""Of tests/kernel: registers and numbers of system calls, and what is counted in one place by many."""

UNIT = ("shm_ring", "shm_examples", "artifacts", "job_sandbox", "sample_files", "policy_child", "redact")
"""Of tests/unit: what depends on the order of loads and stores, on numbers of system calls, and on C or Lua."""

TOO_SLOW = (
    "test_shm_ring.py::test_eight_readers_see_no_torn_event_while_a_writer_runs_at_full_speed",
    "test_policy_child.py::test_where_no_child_can_be_had_jobs_get_the_default_and_the_log_says_why_once",
)
"""Of those, tests that do something within seconds for which an emulated CPU takes minutes."""


def files(layer: str, names: tuple[str, ...]) -> list[str]:
    """Paths of these test files."""
    return [f"tests/{layer}/test_{name}.py" for name in names]


def in_guest(command: str) -> subprocess.CompletedProcess[str]:
    """Runs a shell command on aarch64."""
    environment = {"GUEST_SECONDS": "3600", **os.environ}
    return subprocess.run(
        [HERE / "run", command], capture_output=True, text=True, errors="replace", env=environment, check=False
    )


@pytest.mark.parametrize(
    ("layer", "tests", "least_passed"),
    [
        ("kernel", ["-m", "guest", *(["tests/kernel"] if EVERYTHING else files("kernel", KERNEL))], 60),
        ("unit", [*files("unit", UNIT), *(f"--deselect=tests/unit/{name}" for name in TOO_SLOW)], 200),
    ],
    ids=["kernel", "unit"],
)
def test_tests_pass_on_aarch64(layer: str, tests: list[str], least_passed: int) -> None:
    options = ["-v", "--color=no", "-p", "no:cacheprovider", "-o", f"faulthandler_timeout={TEST_SECONDS}"]
    ended = in_guest(f"uname -rm; exec {shlex.join(['python3', '-m', 'pytest', *options, *tests])}")
    said = ended.stdout + ended.stderr
    print(said)
    assert ended.returncode == 0, said[-12000:]
    assert re.match(r"6\.1\.\S* aarch64\n", said), said.splitlines()[0]
    passed = re.search(r"(\d+) passed", said)
    assert passed and int(passed.group(1)) >= least_passed and "skipped" not in said, said[-2000:]


def test_a_guest_returns_its_commands_exit_code() -> None:
    ended = in_guest("uname -m; exit 7")
    assert (ended.returncode, ended.stdout) == (7, "aarch64\n"), ended.stderr
