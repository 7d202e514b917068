"""Runs a target in Python under Atheris: python_fuzzer.py TARGET [an option of libFuzzer or a folder ...]"""

from __future__ import annotations

import sys

import atheris
import targets

name = sys.argv.pop(1)
with atheris.instrument_imports(include=["condor_joblens"]):
    target = targets.loaded(name)
check = atheris.instrument_func(target.check)


def one_input(data: bytes) -> None:
    """Whatever it raises is a finding."""
    check(data)


atheris.Setup(sys.argv, one_input)
atheris.Fuzz()
