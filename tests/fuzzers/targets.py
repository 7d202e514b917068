"""The fuzzers of this folder: one file a target. A target in Python has `check`, `SEEDS` and `WORDS`; one in C is
libFuzzer's LLVMFuzzerTestOneInput. Inputs that once failed are in inputs/TARGET/."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).resolve().parent
REPOSITORY = FOLDER.parents[1]
_NO_TARGETS = ("c_programs", "c_seeds", "python_fuzzer", "run", "targets")

C_TARGETS = sorted(path.stem for path in FOLDER.glob("*.c") if path.stem != "replay")
PYTHON_TARGETS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in _NO_TARGETS)


def loaded(name: str) -> ModuleType:
    """The module of a target in Python."""
    spec = importlib.util.spec_from_file_location(f"fuzzer_{name}", FOLDER / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def seeds(name: str) -> Sequence[bytes]:
    """What a target begins with: its seeds, and what once failed."""
    made = loaded("c_seeds").SEEDS.get(name, []) if name in C_TARGETS else loaded(name).SEEDS
    return [*made, *(path.read_bytes() for path in sorted((FOLDER / "inputs" / name).glob("*")))]
