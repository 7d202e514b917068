"""What holds for all tests of this layer: none of them fails because the machine is busy."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from properties import USUAL

FUZZED = int(os.environ.get("HYPOTHESIS_EXAMPLES") or 0)  # see tests/fuzz
settings.register_profile("test", deadline=None, derandomize=True, max_examples=USUAL // 4)
settings.register_profile("fuzz", deadline=None, print_blob=True, max_examples=FUZZED or USUAL)
settings.register_profile("quick", deadline=None, derandomize=True, max_examples=USUAL // 10)
settings.load_profile("fuzz" if FUZZED else "quick" if os.environ.get("HYPOTHESIS_QUICK") else "test")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a disk of its own, of a size as tmpfs takes it."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    folder = tmp_path / "disk"

    def mounted(size: str) -> Path:
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
        return folder

    yield mounted
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def accesspoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Commands in the PATH that print the files queue.json and history.json, and note their arguments."""
    for command, file in (("condor_q", "queue"), ("condor_history", "history")):
        (tmp_path / f"{file}.json").write_text("[]")
        program = tmp_path / command
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/{file}.arguments\ncat {tmp_path}/{file}.json\n')
        program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    yield tmp_path
