"""Files that are hard to trace: thousands of names, names that are long or odd, instructions that nothing may probe."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from traced_samples import calls, function, told

from condor_joblens.agent.function_traces import described
from condor_joblens.common.errors import JobLensError
from condor_joblens.profiles import traced_calls
from condor_joblens.tracing import file_reader, standing_messages
from condor_joblens.tracing.functions import MOST_FUNCTIONS, Found

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="functions are traced on x86-64 alone")

FUNCTION = ".type {0}, @function\n{0}:\n{1}\n\tret\n\t.size {0}, . - {0}\n"
LONG = 8000
ODD = b'\x1b[2J\n"\xff'


def library(folder: Path, code: str) -> Path:
    """A library with this code and nothing else."""
    path = folder / "library.so"
    subprocess.run(
        ["cc", "-nostdlib", "-shared", "-x", "assembler", "-o", path, "-"], input=code, text=True, check=True
    )
    return path


def functions(*names: str, first: str = "nop") -> str:
    """Code of functions that do nothing; `first` is their first instruction."""
    return "".join(FUNCTION.format(name, f"\t{first}") for name in names)


def read(path: Path, spec: str) -> Found:
    with open(path, "rb") as file:
        return file_reader.read(file.fileno(), spec)


def test_a_name_of_ten_thousand_functions_is_refused_with_their_number(tmp_path: Path) -> None:
    path = library(tmp_path, functions(*(f"fit_{number}" for number in range(10_000))))
    with pytest.raises(JobLensError, match=f"has 10000 functions of this name: at most {MOST_FUNCTIONS} are traced"):
        read(path, "library.so:fit*")
    assert [each.name for each in read(path, "library.so:fit_4711").functions] == ["fit_4711"]
    assert read(path, "library.so:fit_471x").nearest


def test_a_function_that_begins_with_a_lock_is_refused_and_others_are_not(tmp_path: Path) -> None:
    locks = functions("step_locked", first="lock orl $0, (%rsp)")
    found = read(library(tmp_path, locks + functions("step")), "library.so:step*")
    assert [each.name for each in found.functions] == ["step"]
    assert found.refused == ["step_locked has an instruction with a lock where a probe has to be"]


def test_a_name_of_eight_thousand_odd_characters_is_cut_and_escaped(tmp_path: Path) -> None:
    """All bytes but 0 are possible in one."""
    name = "f" * LONG
    path = library(tmp_path, functions(name))
    odd = ODD + b"f" * (LONG - len(ODD))
    path.write_bytes(path.read_bytes().replace(name.encode(), odd))
    (found,) = read(path, "library.so:*").functions
    assert len(found.name) == file_reader.MOST_NAME and "\x1b" in found.name
    listed = standing_messages.Listed(found.name[: standing_messages.MOST_NAME], 1, 0, 0.5, False, 1.0)
    (heard,) = standing_messages.understood(
        standing_messages.packed(standing_messages.Sums(1, 0, 0.5, 1.0, 0.0, (listed,)))[1:]
    ).functions
    assert described(heard).isprintable() and described(heard).isascii() and len(described(heard)) < 130


def test_sixteen_such_names_leave_room_for_what_is_kept() -> None:
    kept = traced_calls.encode(told(*(function("\x1b" * 1000) for _ in range(MOST_FUNCTIONS))), calls())
    assert len(traced_calls.decode(kept).functions) == MOST_FUNCTIONS
    assert len(kept) <= traced_calls.MOST_BYTES
