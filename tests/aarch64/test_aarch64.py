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

UNIT = ("shm_ring", "shm_examples", "artifacts", "job_sandbox", "sample_files", "redact")
"""Of tests/unit: what depends on the order of loads and stores, on numbers of system calls, and on C."""

POLICY = (
    "a_request_is_granted_up_to_the_cap",
    "the_job_is_known_by_its_ad",
    "an_ad_of_a_megabyte_is_decided",
    "any_ad_is_answered",
    "a_confined_process_can_do_nothing_but_compute_and_talk",
    "the_child_is_another_user_without_privilege",
    "no_environment_is_passed_on",
)
"""Of the policy child: Lua, HTCondor's parser, and the filter of system calls. The other tests of it are about budgets
of milliseconds, in which an emulated CPU decides nothing."""

TOO_SLOW = ("test_shm_ring.py::test_eight_readers_see_no_torn_event_while_a_writer_runs_at_full_speed",)
"""Of the files above, what must happen within seconds and takes an emulated CPU minutes."""


def files(layer: str, names: tuple[str, ...]) -> list[str]:
    """Paths of these test files."""
    return [f"tests/{layer}/test_{name}.py" for name in names]


UNIT_TESTS = [*files("unit", UNIT), *(f"tests/unit/test_policy_child.py::test_{name}" for name in POLICY)]


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
        ("unit", [*UNIT_TESTS, *(f"--deselect=tests/unit/{name}" for name in TOO_SLOW)], 150),
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
