"""Failing calls at level basic, where the kernel has programs at the end of functions: what is blamed, and what not."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

import pytest
from ground import Ground, Slot
from test_failures import HEALTHY, MIB, blamed, python, shell

from condor_joblens.jobs import failure_causes

pytestmark = [pytest.mark.guest, pytest.mark.fexit]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An emulated machine is slow: however long after a failure a process ends, it is soon."""
    monkeypatch.setattr(failure_causes, "SOON_SECONDS", 600.0)


WITH_ARGUMENT = "import os, sys\npath = sys.argv[1]\n"


def program(slot: Slot, text: str, argument: object) -> list[str]:
    """Python, with an argument."""
    return blamed(slot, "/usr/bin/python3", "-c", WITH_ARGUMENT + text, str(argument))


def as_nobody() -> None:
    os.setgid(65534)
    os.setuid(65534)


def test_its_programs_are_attached(ground: Ground) -> None:
    assert not ground.tracer.failing.missing
    assert {"jl_exec_after", "jl_map_end"} < set(ground.tracer.attached())
    assert {"jl_open_end", "jl_file_open"} & set(ground.tracer.attached())
    assert not ground.tracer.lost()


# -- what a program was told to open ------------------------------------------------------------------------------


def test_a_missing_file(slot: Slot, tmp_path: Path) -> None:
    assert blamed(slot, "/bin/cat", f"{tmp_path}/events.root") == [f"no such file: {tmp_path}/events.root"]


def test_a_missing_file_that_is_part_of_an_argument(slot: Slot, tmp_path: Path) -> None:
    assert blamed(slot, "/bin/dd", f"if={tmp_path}/in.root") == [f"no such file: {tmp_path}/in.root"]


def test_a_missing_script_whose_path_python_makes_whole(slot: Slot, tmp_path: Path) -> None:
    causes = blamed(slot, "/usr/bin/python3", "payload.py", before_exec=lambda: os.chdir(tmp_path))
    assert [cause.startswith("no such file: ") and cause.endswith("payload.py") for cause in causes] == [True]


def test_a_missing_file_in_a_traceback_after_which_files_are_opened(slot: Slot, tmp_path: Path) -> None:
    script = tmp_path / "reads.py"
    script.write_text("import sys\nopen(sys.argv[1])\n")
    causes = blamed(slot, "/usr/bin/python3", str(script), f"{tmp_path}/conditions.json")
    assert causes == [f"no such file: {tmp_path}/conditions.json"]


def test_a_file_that_may_not_be_read(slot: Slot) -> None:
    closed = Path("/dev/shm") / f"closed-{os.getpid()}"
    closed.touch(0o600)
    try:
        assert blamed(slot, "/bin/cat", str(closed), before_exec=as_nobody) == [f"permission denied: {closed}"]
    finally:
        closed.unlink()


def test_a_file_system_without_room_for_a_file(slot: Slot, tmp_path: Path) -> None:
    """Writes are not seen at this level; what makes a file is."""
    where = tmp_path / "full"
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=1", "tmpfs", where], check=True)
    try:
        text = "try: os.open(path + '/' + 'out.root', os.O_CREAT | os.O_WRONLY)\nexcept OSError: os._exit(4)"
        assert program(slot, text, where) == [f"no space left on {where}/out.root"]
        subprocess.run(["mount", "-o", "remount,ro", where], check=True)
        assert blamed(slot, "/usr/bin/touch", f"{where}/new") == [f"read-only file system: {where}/new"]
    finally:
        subprocess.run(["umount", "-l", where], check=True)


# -- programs, and memory -----------------------------------------------------------------------------------------


def test_a_program_that_is_not_there(slot: Slot) -> None:
    assert shell(slot, "/nowhere/reco --all") == ["no such file: /nowhere/reco"]


def test_a_program_that_is_in_no_folder_of_the_path(slot: Slot) -> None:
    assert blamed(slot, "/usr/bin/env", "reconstruct") == ["no such file: reconstruct"]


def test_a_program_whose_interpreter_is_not_there(slot: Slot, tmp_path: Path) -> None:
    script = tmp_path / "reco"
    script.write_text("#!/nowhere/python3.99\n")
    script.chmod(0o755)
    assert shell(slot, str(script)) == ["no such file: /nowhere/python3.99"]


def test_a_program_that_may_not_be_executed(slot: Slot, tmp_path: Path) -> None:
    (tmp_path / "reco").touch(0o644)
    assert shell(slot, f"{tmp_path}/reco") == [f"permission denied: {tmp_path}/reco"]


def test_a_limit_of_memory_by_which_a_program_crashes(slot: Slot) -> None:
    text = "import mmap, os\ntry: mmap.mmap(-1, 1 << 30)\nexcept OSError: os.abort()"
    limits = (256 * MIB, 256 * MIB)
    causes = python(slot, text, before_exec=lambda: resource.setrlimit(resource.RLIMIT_AS, limits))
    assert causes == ["not allowed to allocate more memory: limit 256 MiB"]


# -- what is not blamed -------------------------------------------------------------------------------------------

OTHERWISE = "\nexcept OSError: "

SOUND = {
    "the file is made afterwards": f"try: open(path, 'r+'){OTHERWISE}open(path, 'w')\nsys.exit(3)",
    "one of that name is found elsewhere": f"try: open(path){OTHERWISE}open('/tmp/hostname', 'w')\nsys.exit(3)",
    "a file that nobody named": f"try: open('/nowhere/rc'){OTHERWISE}sys.exit(3)",
    "a program that is found after all": f"try: os.execv('/nowhere/sh', ['sh']){OTHERWISE}"
    "os.execv('/bin/sh', ['sh', '-c', 'exit 127'])",
    "a program that is not found, and another code": f"try: os.execv('/nowhere/sh', ['sh']){OTHERWISE}sys.exit(3)",
    "ended by a signal": f"try: open(path){OTHERWISE}os.kill(os.getpid(), 15)",
    "more memory than there may be, and no crash": "import mmap\n"
    "try: mmap.mmap(-1, 1 << 62)\nexcept (OSError, OverflowError, ValueError): sys.exit(3)",
    "its child looked for it": "if not os.fork():\n try: open(path)\n except OSError: os._exit(0)\n"
    "os.wait(); sys.exit(3)",
    "another program was told of it": f"try: open(path){OTHERWISE}os.execv('/bin/sh', ['sh', '-c', 'exit 3'])",
}


@pytest.mark.parametrize("name", SOUND)
def test_a_failure_that_is_not_why_a_program_ends_is_not_blamed(slot: Slot, tmp_path: Path, name: str) -> None:
    assert program(slot, SOUND[name], tmp_path / "hostname") == []


def test_what_sound_programs_meet_is_not_blamed(slot: Slot, tmp_path: Path) -> None:
    sound = {**HEALTHY, "a program of that name elsewhere": "env -i PATH=/x:$PATH sh -c 'exit 127'"}
    found = {name: shell(slot, f"cd {tmp_path}; {command}") for name, command in sound.items()}
    assert {name: causes for name, causes in found.items() if causes} == {}


def test_the_next_job_of_a_slot_has_none_of_its_failures(ground: Ground, tmp_path: Path) -> None:
    slot = ground.slot()
    os.waitpid(slot.fork(lambda: os.execv("/bin/cat", ["cat", f"{tmp_path}/events.root"])), 0)
    assert len(ground.tracer.failing.keys("jl_failed_calls", 4)) == 1
    ground.clear()
    assert not ground.tracer.failing.keys("jl_failed_calls", 4)
