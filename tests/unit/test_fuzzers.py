"""The fuzzers' targets hold for what they begin with, and for what once failed: the small part of `make fuzz`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FUZZERS = Path(__file__).parents[1] / "fuzzers"
sys.path.append(str(FUZZERS))

import c_programs  # noqa: E402
from targets import C_TARGETS, PYTHON_TARGETS, loaded, seeds  # noqa: E402


@pytest.mark.parametrize("name", PYTHON_TARGETS)
def test_no_input_of_a_parser_in_python_fails(name: str) -> None:
    target = loaded(name)
    for data in [b"", *seeds(name), *target.WORDS]:
        target.check(data)


@pytest.mark.parametrize("name", C_TARGETS)
def test_no_input_of_a_reader_in_c_fails(name: str, tmp_path: Path) -> None:
    program = c_programs.make(name, tmp_path, c_programs.REPLAYING)
    inputs = []
    for number, data in enumerate([b"", *seeds(name)]):
        inputs.append(tmp_path / str(number))
        inputs[-1].write_bytes(data)
    # leaks can't be looked for where the tests run under a debugger or in a container
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    subprocess.run([program, *inputs], check=True, env=environment)
