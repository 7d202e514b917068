"""The kernel's tests under other kernels, on pure cgroup v2 with all controllers and PSI.

Emulated CPUs are slow, so GUEST_TESTS says which of them: `core` (unless set) what needs a memory controller,
`marked` those marked `guest`, as `make test-kernels` does, `traces` those of level trace (Linux 6.6 or later),
`all` every one. Under which kernels: those of GUEST_SUITES.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
KERNELS = {"bullseye": r"5\.10\.", "bookworm": r"6\.1\.", "trixie": r"6\.12\.", "sid": r"([7-9]|\d\d)\."}
SUITES = os.environ.get("GUEST_SUITES", "bookworm").split()
CHOSEN = os.environ.get("GUEST_TESTS") or "core"
CORE_FILES = ("memory", "cgroupfiles")
CORE_TESTS = (
    "death.py::test_a_slot_s_own_limit_is_in_the_sentence",
    "death.py::test_the_oom_killer_s_choice_and_what_it_held",
    "death.py::test_a_job_out_of_memory_says_so",
    "death.py::test_a_whole_cgroup_s_kill_has_a_sender",
    "failing.py::test_a_file_system_without_room_for_a_file",
    "failing.py::test_a_limit_of_memory_by_which_a_program_crashes",
)
CORE = [f"tests/kernel/test_{name}" for name in (*(f"{name}.py" for name in CORE_FILES), *CORE_TESTS)]
"""Numbers of the memory controller, and the OOM kill at a job's limit: what many machines that are tested on have no
cgroup for."""

TESTS = {
    "core": ["-m", "guest and not samples", *CORE],
    "marked": ["-m", "guest", "tests/kernel"],
    "traces": ["-m", "traces", "tests/kernel"],
    "all": ["-m", "not disk", "tests/kernel"],
}
LEAST_PASSED = {"core": 18, "marked": 100, "traces": 80, "all": 150}
PYTHONS = ("3.9", "3.11", "3.13", "3.14")
"""Those whose calls are traced, each in a root of its own."""

FSYNC, RMDIR = 74, 84
"""Numbers of system calls on x86-64."""

REFUSALS = {
    "a return probe": "kretprobe__vfs_read is a return probe, and none",
    "a hidden return probe": "kretprobe__vfs_read is a return probe, or does more",
    "no program": "Failed to compile BPF module",
    "an example about no job": "18.0",
    "no file": "no_such.c can't be read",
    "an example, as no root": "only root",
    "an example, and the knob is off": "set JOBLENS_ASK = true",
}
"""Of asked.py: in what words `joblens ask` refuses it, in its last line. Before that the compiler speaks."""


class Answer(NamedTuple):
    """What a command has answered."""

    code: int
    printed: str
    said: str


CODE = 7
"""The exit code of what runs the tests there."""

TEST_SECONDS = 300
"""After that long a test says where it is, which would else not be known of one that never ends."""


@pytest.fixture(scope="session")
def programs() -> None:
    """What the kernel's tests run is compiled here: a guest can't write in the checkout."""
    subprocess.run([sys.executable, "-m", "tests.kernel.ground"], cwd=CHECKOUT, check=True)
    for version in PYTHONS if CHOSEN in ("traces", "all") else ():
        subprocess.run([str(HERE.parent / "pythons"), version], check=True, stdout=subprocess.DEVNULL)


def in_guest(suite: str, command: str) -> subprocess.CompletedProcess[str]:
    """Runs a shell command under the kernel of a Debian suite."""
    run = [str(HERE / "run"), suite, command]
    environment = {"GUEST_SECONDS": "5400", **os.environ, "GUEST_SEES": sys.prefix}
    return subprocess.run(run, capture_output=True, text=True, errors="replace", env=environment)


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("suite", SUITES)
def test_kernel_tests_pass_under(suite: str) -> None:
    options = ["--color=no", "-p", "no:cacheprovider", "-o", f"faulthandler_timeout={TEST_SECONDS}"]
    tests = [sys.executable, "-m", "pytest", "-q", *options, *TESTS[CHOSEN]]
    there = f"cd {shlex.quote(str(CHECKOUT))}; uname -r; export PYTHONDONTWRITEBYTECODE=1"
    # a code that nothing else has: what a guest returns is its command's, which takes no guest of its own to see
    ended = in_guest(suite, f"{there}; {shlex.join(tests)}; echo pytest ended with $?; exit {CODE}")
    said = ended.stdout + ended.stderr
    print(said)
    assert ended.returncode == CODE, f"under the kernel of {suite}:\n{said[-12000:]}"
    assert "pytest ended with 0" in said, f"under the kernel of {suite}:\n{said[-12000:]}"
    assert re.match(KERNELS[suite], said), f"the kernel of {suite} is another one now: {said.splitlines()[0]}"
    passed = re.search(r"(\d+) passed", said)
    assert passed and int(passed.group(1)) >= LEAST_PASSED[CHOSEN] and "skipped" not in said, said[-2000:]


@pytest.mark.usefixtures("programs")
@pytest.mark.skipif(CHOSEN == "core", reason="bcc's compiler takes minutes here: make test-kernels has it")
def test_root_asks_by_a_program_that_bcc_compiles() -> None:
    """With Debian's 6.1, of which there are headers."""
    subprocess.run([str(HERE.parent / "packages"), "python3-bpfcc"], check=True, stdout=subprocess.DEVNULL)
    printed = subprocess.run([str(HERE / "headers"), "bookworm"], check=True, capture_output=True, text=True)
    headers = shlex.quote(printed.stdout.strip())
    there = (
        f"mount -t overlay -o lowerdir={headers}/usr/lib:/usr/lib overlay /usr/lib && "
        f"mount -o bind {headers}/usr/src /usr/src && cd {shlex.quote(str(CHECKOUT))} && "
        f"export PYTHONPATH=.:tests/kernel && exec {shlex.quote(sys.executable)} tests/guest/asked.py"
    )
    ended = in_guest("bookworm", there)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    (times, inode), *lines = (json.loads(line) for line in ended.stdout.splitlines() if line.startswith("["))
    answers = {question: Answer(code, *said) for question, code, *said in lines}
    print(*answers.items(), sep="\n")
    _assert_examples_count_the_job_s_work_alone(answers, times, inode)
    for question, words in REFUSALS.items():
        answer = answers.pop(question)
        assert answer.code != 0 and answer.printed == "", (question, answer)
        assert re.fullmatch(f"joblens: .*{words}.*", answer.said.splitlines()[-1]), (question, answer)
        assert answer.said.count("\n") == 1 or question == "no program", (question, answer)
    assert not answers


def _assert_examples_count_the_job_s_work_alone(answers: dict[str, Answer], times: int, inode: int) -> None:
    tables = {}
    for example in ("directories", "fsync", "syscalls"):
        answer = answers.pop(example)
        assert (answer.code, answer.said) == (0, ""), answer
        said = [json.loads(line) for line in answer.printed.splitlines()]
        tables.update({each["table"]: each["rows"] for each in said if "table" in each})
    # a folder is asked for more names until it has no more
    assert [inode, 2 * times] in [[key["inode"], count] for key, count in tables["listed"]]
    assert sum(count for _, count in tables["microseconds"]) == times and tables["began"] == []
    calls, failed = dict(tables["calls"]), dict(tables["failed"])
    assert (calls[FSYNC], failed[RMDIR], calls[RMDIR]) == (times, times, times) and FSYNC not in failed


def test_a_suite_that_is_not_there_gives_one_line() -> None:
    ended = in_guest("warty", "true")
    assert ended.returncode == 1
    assert "warty" in ended.stderr.splitlines()[-1]
