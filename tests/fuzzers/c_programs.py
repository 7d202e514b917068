"""Makes programs of the fuzzers in C. Those of ours that cffi compiles are taken from where it has them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from targets import FOLDER, REPOSITORY

from condor_joblens.common.scan import scan_table
from condor_joblens.common.secret_names import SIGNS
from condor_joblens.sample import files_build
from condor_joblens.tracer import bpf_build

FUZZING = ["clang", "-fsanitize=fuzzer,address,undefined"]
"""With libFuzzer: Debian has it in libclang-rt-dev."""

REPLAYING = ["gcc", str(FOLDER / "replay.c"), "-fsanitize=address,undefined"]

_FLAGS = ["-g", "-O1", "-std=gnu11", "-fno-sanitize-recover=all", "-Wall", "-Wno-unused-function"]
_QUIET = [
    "-Wno-discarded-qualifiers",
    "-Wno-unknown-warning-option",
    "-Wno-incompatible-pointer-types-discards-qualifiers",
]


def make(name: str, folder: Path, compiler: Sequence[str]) -> Path:
    """The program of this target, in `folder`. Raises CalledProcessError."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_headers(folder)
    package = REPOSITORY / "condor_joblens"
    includes = [folder, package / "shm", package / "profiling", *{path.parent: None for path in bpf_build.HEADERS}]
    program = folder / name
    command = [*compiler, *_FLAGS, *_QUIET, *(f"-I{path}" for path in includes), "-o", str(program)]
    subprocess.run([*command, str(FOLDER / f"{name}.c"), "-lbpf"], check=True)
    return program


def _write_headers(folder: Path) -> None:
    parts = [path.read_text() for path in bpf_build.PARTS]
    table = ",".join(map(str, scan_table(SIGNS).ravel().tolist()))
    texts = {
        "cgroup_readers.h": files_build.SOURCE,
        "tracer_readers.h": bpf_build.INCLUDES + bpf_build.RECORDS + "".join(parts),
        "secret_scan.h": f"static const unsigned short SECRET_SCAN[] = {{{table}}};\n",
    }
    for name, text in texts.items():
        if not (folder / name).exists() or (folder / name).read_text() != text:
            (folder / name).write_text(text)
