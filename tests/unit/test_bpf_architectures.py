"""The BPF programs compile for every architecture that they have numbers of. For this machine's they were built."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "bpf_programs"
PROGRAMS = sorted(SOURCES.glob("*/*.bpf.c"))


ARCHITECTURES = {"x86": "x86_64", "arm64": "aarch64"}
OTHERS = [name for name, machine in ARCHITECTURES.items() if machine != platform.machine()]


@pytest.mark.parametrize("architecture", OTHERS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_compiles_without_a_warning(program: Path, architecture: str, tmp_path: Path) -> None:
    cpu = "v3" if program.name == "recorder.bpf.c" else "v2"
    flags = ["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", f"-mcpu={cpu}", f"-D__TARGET_ARCH_{architecture}"]
    flags += ["-I", str(SOURCES / "lib")]
    done = subprocess.run(
        ["clang", *flags, "-c", program, "-o", tmp_path / "object"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
