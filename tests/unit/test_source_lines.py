"""Lines of C++ in a profile, from debug information: right ones or none, whatever the file is."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.cli import source_lines as asking
from condor_joblens.cli import stacks
from condor_joblens.common.errors import JobLensError
from condor_joblens.profiles import evidence
from condor_joblens.profiles import profile as profiles
from condor_joblens.profiles.evidence import Evidence
from condor_joblens.profiles.flame_graph import flame_graph
from condor_joblens.profiles.folded import folded
from condor_joblens.profiles.hottest import by_line, hottest
from condor_joblens.profiles.profile import Frame, Kind, Profile, Stack
from condor_joblens.profiling import source_lines
from condor_joblens.profiling.elf import Elf

SOURCE = """#include <cstdlib>
namespace track {
__attribute__((noinline)) int fit(int n) {
    return n + std::atoi("3");
}
}
__attribute__((noinline)) int reconstruct(int n) {
    return track::fit(n) * 2;
}
int main(int argc, char **) { return reconstruct(argc); }
"""

AS_WHO_ASKS = os.getuid() or 65534


@contextlib.contextmanager
def reachable() -> Iterator[Path]:
    """A folder that every user can enter; pytest's own are not, and it sees to that again and again."""
    with tempfile.TemporaryDirectory(prefix="joblens-lines-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture
def place() -> Iterator[Path]:
    with reachable() as folder:
        yield folder


@pytest.fixture(scope="module")
def program() -> Iterator[Path]:
    with reachable() as folder:
        (folder / "fit.cpp").write_text(SOURCE)
        subprocess.run(["g++", "-O1", "-g", "-o", "reco", "fit.cpp"], cwd=folder, check=True)
        yield folder / "reco"


def build_id(program: Path) -> str:
    with open(program, "rb") as file:
        return Elf.unmapped(file.fileno()).build_id


def offsets(program: Path) -> dict[str, int]:
    """Where its functions are in the file: it is mapped from 0 on, so that is their addresses."""
    lines = subprocess.run(["nm", "-C", program], capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split(maxsplit=2)[2]: int(line.split()[0], 16) for line in lines if line[:1] == "0"}


def profile(program: Path, names: dict[str, str]) -> Profile:
    """Of the functions, called by what the profile calls them, one above the other."""
    at, identity = offsets(program), build_id(program)
    frames = tuple(Frame(name, Kind.NATIVE, str(program), 0, at[symbol], identity) for symbol, name in names.items())
    kernel = Frame("vfs_read", Kind.KERNEL)
    made = Profile(1.7e9, 1.7e9 + 60)
    made.add(Stack((*frames, kernel), 1), 7)
    made.add(Stack((Frame("f", Kind.PYTHON, "/x/fit.py", 12), Frame("g", Kind.NATIVE, "/lib/libx.so", 0, 64)), 1), 2)
    return made


FUNCTIONS = {"main": "main", "reconstruct(int)": "reconstruct(int)", "track::fit(int)": "track::fit(int)"}


def test_functions_have_the_lines_at_which_they_begin(program: Path) -> None:
    found, without = asking.with_lines(profile(program, FUNCTIONS), AS_WHO_ASKS)
    (stack,) = (stack for stack, count in found.stacks.items() if count == 7)
    assert [(frame.library, frame.line, frame.function) for frame in stack.frames] == [
        ("fit.cpp", 10, "main"),
        ("fit.cpp", 7, "reconstruct(int)"),
        ("fit.cpp", 3, "track::fit(int)"),
        ("[kernel]", 0, "vfs_read"),
    ]
    assert found.samples == 9 and without == ["libx.so"]
    names = {heat.name for heat in hottest(found, by_line)}
    assert {"fit.cpp:3 track::fit(int)", "fit.py:12 f", "g", "vfs_read"} <= names
    assert asking.lacking(without).startswith("No lines of libx.so:")
    picture = flame_graph(profiles.by_line(found))
    assert "track::fit(int) (fit.cpp:3)" in picture and "f (fit.py:12)" in picture and "(:0)" not in picture
    told = "main (fit.cpp:10);reconstruct(int) (fit.cpp:7);track::fit(int) (fit.cpp:3);vfs_read_[k] 7"
    assert told in folded(found).splitlines()


def test_threads_that_wait_have_the_lines_of_their_functions(program: Path) -> None:
    own = Frame("f", Kind.PYTHON, "/x/fit.py", 12)
    frames = [
        evidence.Frame(frame.function, frame.file, frame.offset, build_id=frame.build_id, is_python=False)
        for stack in profile(program, FUNCTIONS).stacks
        for frame in stack.frames
        if frame.kind is Kind.NATIVE
    ]
    frames.append(evidence.Frame(own.function, own.file, line=own.line, is_python=True))
    thread = evidence.Thread(os.getpid(), os.getpid(), 1, "reco", "S", 1.0, "read", (), frames=tuple(frames))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stacks, "_user_of", lambda seen: AS_WHO_ASKS)
        assert stacks.add_lines(Evidence([thread])) == (["libx.so"], "")
    assert [stacks.described(frame) for frame in thread.frames] == [
        "main  fit.cpp:10", "reconstruct(int)  fit.cpp:7", "track::fit(int)  fit.cpp:3", "g  libx.so", "f  fit.py:12",
    ]  # fmt: skip


def test_whose_the_files_of_a_thread_are_says_the_kernel() -> None:
    thread = evidence.Thread(os.getpid(), os.getpid(), 1, "reco", "S", 1.0, "read", ())
    assert stacks._user_of(Evidence([thread])) == os.getuid() and stacks._user_of(Evidence([])) is None


def main_of(program: Path, identity: str = "") -> set[asking.Place]:
    return {(str(program), identity or build_id(program), offsets(program)["main"])}


def test_a_line_within_a_function_is_told(program: Path) -> None:
    at = offsets(program)["reconstruct(int)"]
    found, failed = asking.read({(str(program), build_id(program), at + size) for size in range(12)}, AS_WHO_ASKS)
    assert not failed
    assert {7, 8} <= {line for _, line in found.values()} <= {7, 8, 9}


def test_another_file_in_its_place_has_no_lines(program: Path) -> None:
    found, failed = asking.read(main_of(program), AS_WHO_ASKS)
    assert found, failed
    assert asking.read(main_of(program, "ab" * 20), AS_WHO_ASKS) == ({}, {})


def test_a_file_without_debug_information_has_none(program: Path, place: Path) -> None:
    stripped = place / "stripped"
    subprocess.run(["strip", "-o", stripped, program], check=True)
    (_, identity, at), *_ = main_of(program)
    assert asking.read({(str(stripped), identity, at)}, AS_WHO_ASKS) == ({}, {})


def test_what_is_no_program_keeps_nobody_waiting(program: Path, place: Path) -> None:
    os.mkfifo(place / "fifo")
    (place / "text").write_text("no program")
    (place / "short").write_bytes(program.read_bytes()[:200])
    names = [*(str(place / name) for name in ("fifo", "text", "short", "nothing")), "/proc/self/mem", "/dev/zero"]
    assert not asking.read({(name, "ab" * 20, 4096) for name in names}, AS_WHO_ASKS)[0]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can ask as somebody else")
def test_for_root_the_jobs_user_reads(program: Path, place: Path) -> None:
    private = place / "reco"
    private.write_bytes(program.read_bytes())
    private.chmod(0o700)
    (_, identity, at), *_ = main_of(program)
    assert asking.read({(str(private), identity, at)}, 65534) == ({}, {str(private): "Permission denied"})
    assert asking.lines_of({(str(private), identity, at)}, 65534)[1] == ["reco (Permission denied)"]
    for nobody in (None, 0):
        with pytest.raises(JobLensError, match="ask as that user"):
            asking.read(main_of(program), nobody)


def test_without_the_program_that_reads_them_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_lines, "_ENVIRONMENT", {"PATH": "/nowhere"})
    assert "binutils" in source_lines.answer([])["error"]


@pytest.mark.parametrize(
    ("does", "why"), [("sleep 60", "addr2line took more than 1 s"), ("kill -9 $$", "addr2line ended with -9")]
)
def test_why_a_file_could_not_be_read_is_said(
    program: Path, place: Path, monkeypatch: pytest.MonkeyPatch, does: str, why: str
) -> None:
    (place / "addr2line").write_text(f"#!/bin/sh\nexec 0<&-\n{does.replace('sleep', 'exec sleep')}\n")
    (place / "addr2line").chmod(0o755)
    monkeypatch.setattr(source_lines, "_ENVIRONMENT", {"PATH": f"{place}:/usr/bin:/bin"})
    monkeypatch.setattr(source_lines, "FILE_SECONDS", 1 if "sleep" in does else 60)
    (path, identity, at), *_ = main_of(program)
    said = source_lines.answer([{"path": path, "build_id": identity, "offsets": [at]}])
    assert said == {"lines": [[]], "failed": [why]}


@pytest.mark.parametrize("said", [b"", b"[]", b"{", b"[" * 100_000])
def test_what_its_process_says_is_believed_no_further(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr(asking, "isolated_alike", lambda _: ["sh", "-c", 'cat >/dev/null; printf %s "$0"', said])
    with pytest.raises(JobLensError, match="could not be read"):
        asking.asked_of("any", {}, 1000)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("/src/fit.cpp:41", ("/src/fit.cpp", 41)),
        ("/src/fit.cpp:41 (discriminator 2)", ("/src/fit.cpp", 41)),
        ("a:b:3", ("a:b", 3)),
        ("??:0", None),
        ("??:?", None),
        ("/src/fit.cpp:?", None),
        ("/src/fit.cpp:0", None),
        ("", None),
    ],
)
def test_what_addr2line_says(words: str, expected: Any) -> None:
    assert source_lines.line_of(words) == expected


@given(st.text(max_size=2000))
def test_whatever_it_says_is_a_line_or_none(words: str) -> None:
    found = source_lines.line_of(words)
    assert found is None or (len(found[0]) <= source_lines.MOST_SOURCE and 0 < found[1] < 1 << 31)
