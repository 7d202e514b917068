"""Programs in Go have their functions traced by entries alone, and stripped programs are said to be stripped.

A small program in C with the section that Go's linker writes is one as far as that goes.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from condor_joblens.cli import trace
from condor_joblens.common.errors import JobLensError
from condor_joblens.model.trace_spec import parse
from condor_joblens.profiling.elf import Elf
from condor_joblens.tracing import file_reader
from condor_joblens.tracing.calls import Calls, End, Hit, Kind
from condor_joblens.tracing.exits import ENTRY, RETURN, Place, Unreadable, entry_alone
from condor_joblens.tracing.functions import Found, find

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="functions are traced on x86-64 alone")

SOURCE = """
static const char words[16] __attribute__((section("SECTION"), used)) = "of its linker";
__attribute__((noinline)) int fit(int x) { return x > 3 ? x * 7 : 2; }
int main(int argc, char **argv) { return fit(argc); }
"""


def built(folder: Path, section: str = ".go.buildinfo", *options: str) -> Path:
    (folder / "program.c").write_text(SOURCE.replace("SECTION", section))
    # a jump to its beginning, as each function of Go has it, would be no entry alone in C
    subprocess.run(["cc", "-O1", *options, "-o", folder / "program", folder / "program.c"], check=True)
    return folder / "program"


def found(program: Path, spec: str) -> Found:
    with open(program, "rb") as file:
        return find(Elf(file.fileno()), parse(spec))


def kinds(of: Found) -> list[int]:
    (function,) = of.functions
    return sorted({place.kind for place in function.places})


@pytest.mark.parametrize("section", [".go.buildinfo", ".gopclntab", ".note.go.buildid"])
def test_functions_of_a_program_in_go_are_probed_at_their_entries_alone(tmp_path: Path, section: str) -> None:
    program = built(tmp_path, section)
    of = found(program, "program:fit")
    assert kinds(of) == [ENTRY] and of.functions[0].is_entry_alone
    with open(program, "rb") as file:
        assert file_reader.read(file.fileno(), "program:fit") == of


def test_those_of_any_other_at_their_exits_too(tmp_path: Path) -> None:
    pytest.importorskip("capstone")
    of = found(built(tmp_path, ".go.elsewhere"), "program:fit")
    assert kinds(of) == [ENTRY, RETURN] and not of.functions[0].is_entry_alone


@pytest.mark.parametrize("spec", ["program:fit(int)", "program:fit() -> int"])
def test_arguments_and_results_of_go_are_refused(tmp_path: Path, spec: str) -> None:
    with pytest.raises(Unreadable, match="write the function's name alone"):
        found(built(tmp_path), spec)


def test_an_entry_with_a_lock_is_refused() -> None:
    assert entry_alone(b"\x90\xc3") == [Place(0, ENTRY)]
    for code in (b"\xf0\x0f\xb1\x0f\xc3", b""):
        with pytest.raises(Unreadable):
            entry_alone(code)


@pytest.mark.parametrize("options, is_stripped", [(["-s", "-rdynamic"], True), (["-rdynamic"], False)])
def test_a_program_without_symbols_is_said_to_be_stripped(
    tmp_path: Path, options: list[str], is_stripped: bool
) -> None:
    of = found(built(tmp_path, ".go.elsewhere", *options), "program:fot")
    said = ["has been stripped: it has names of those functions alone that other files use; is it one of these: fit?"]
    assert (of.functions, of.nearest, of.refused) == ([], ["fit"], said if is_stripped else [])


def test_nothing_is_said_of_it_where_the_function_is_known(tmp_path: Path) -> None:
    assert found(built(tmp_path, ".go.buildinfo", "-s", "-rdynamic"), "program:fit").refused == []


def test_each_entry_is_a_call_of_which_no_end_is_looked_for() -> None:
    calls = Calls(2)
    calls.entry_alone.add(0)
    hits = [Hit(Kind.ENTRY, 0, at, stack, 1, 10, 1) for at, stack in ((5, 100), (6, 900), (7, 100))]
    ended = [call for hit in hits for call in calls.take(hit)]
    assert [(call.end, call.depth) for call in ended] == [(End.NOT_LOOKED_FOR, 0)] * 3
    sums = calls.sums[0]
    assert (sums.entries, sums.unknown, sums.inside, sums.unwound) == (3, 3, 0, 0) and not calls.switches_stacks


def test_a_person_is_told_of_entries_and_that_they_can_repeat() -> None:
    call = [1700000000.25, 1, 2, "main.fit", None, "entered", None, None, 0]
    (row,) = trace._understood(json.dumps({"calls": [call]}).encode())["calls"]
    assert trace.line(row).endswith("  1/2  main.fit")
    summary: dict[str, Any] = {name: 0 for name in (*trace._NUMBERS, *trace._SECONDS)}
    summary |= {"Function": "main.fit", "File": "/p", "SwitchedOff": False, "SwitchesStacks": False}
    summary |= {"EntriesAlone": True, "Calls": 7, "EndUnknown": 7, "CoveredSeconds": 2.0}
    (sums,) = trace._understood(json.dumps({"summary": [summary]}).encode())["summary"]
    lines = trace.page(sums)
    assert lines[2] == "  7 entries in 2.0 s" and "is entered again" in lines[3] and len(lines) == 4


def test_a_reader_that_leaves_it_out_makes_no_sense() -> None:
    with pytest.raises(JobLensError):
        file_reader.understood({"functions": [["f", 4096, 10, [0, 0], []]], "refused": [], "nearest": []})
