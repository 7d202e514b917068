"""What a window of samples becomes when it closes: names from files of jobs, and a profile of bounded size."""

from __future__ import annotations

import dataclasses
import lzma
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.profiles import pprof, segment
from condor_joblens.profiles import profile as profiles
from condor_joblens.profiles.flame_graph import counts
from condor_joblens.profiling import debug_files, names
from condor_joblens.profiling import elf as elves
from condor_joblens.profiling.demangle import demangled
from condor_joblens.profiling.elf import Elf, ElfError
from condor_joblens.profiling.names import Finisher, Names
from condor_joblens.profiling.samples import NO_FILE, NO_PLACE, FileKey, Frame, Kind, MappedFile, Stack, Window

SOURCE = """
#include <stdlib.h>
__attribute__((noinline)) static int inner(int n) { return n + atoi("3"); }
__attribute__((noinline)) int outer(int n) { return inner(n) * 2; }
int main(int argc, char **argv) { return outer(argc); }
"""


BUILD_ID = "0123456789abcdef0123456789abcdef01234567"


class Opened:
    """The files of a window, by their paths; how often each was asked for is counted."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._open: dict[str, int] = {}

    def descriptor(self, file: MappedFile) -> int | None:
        self.asked.append(file.path)
        return self._opened(file.path)

    def symbols(self, file: MappedFile) -> int | None:
        return self._opened(f"{file.path}.debug")

    def _opened(self, path: str) -> int | None:
        if path not in self._open and os.path.exists(path):
            self._open[path] = os.open(path, os.O_RDONLY)
        return self._open.get(path)

    def close(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)


@pytest.fixture
def opened():  # type: ignore[no-untyped-def]
    files = Opened()
    yield files
    files.close()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    (folder / "p.c").write_text(SOURCE)
    subprocess.run(["gcc", "-O1", f"-Wl,--build-id=0x{BUILD_ID}", "-o", "p", "p.c"], cwd=folder, check=True)
    return folder / "p"


def offsets(program: Path) -> dict[str, int]:
    """Where its functions are in the file: it is mapped from 0 on, so that is their addresses."""
    lines = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[2]: int(line.split()[0], 16) for line in lines if len(line.split()) == 3}


def mapped(path: Path | str, inode: int = 1, is_roots: bool = False) -> MappedFile:
    return MappedFile(FileKey(1, inode, 100, 5), str(path), is_roots)


def window(*stacks: Stack, files: list[MappedFile] | None = None, run: int = 7) -> Window:
    return Window(
        run, 1.7e9, 1.7e9 + 60, 99, files=files or [], stacks={stack: n + 1 for n, stack in enumerate(stacks)}
    )


def without_symbols(program: Path, folder: Path) -> tuple[Path, Path]:
    """The program as a distribution has it, and the file with its symbols."""
    stripped, symbols = folder / "stripped", folder / "stripped.debug"
    subprocess.run(["objcopy", "--only-keep-debug", program, symbols], check=True)
    subprocess.run(["objcopy", "--strip-all", program, stripped], check=True)
    return stripped, symbols


# -- one file -------------------------------------------------------------------------------------------------


def test_a_function_is_found_from_its_first_to_its_last_byte(program: Path) -> None:
    at = offsets(program)
    with open(program, "rb") as file:
        elf = Elf.unmapped(file.fileno())
        wanted = [at["outer"], at["outer"] + 3, at["main"], at["inner"] + 1]
        assert elf.functions(wanted) == [
            ("outer", at["outer"]), ("outer", at["outer"]), ("main", at["main"]), ("inner", at["inner"]),
        ]  # fmt: skip


def test_a_file_has_the_build_id_that_its_linker_gave_it(program: Path, tmp_path: Path) -> None:
    without = tmp_path / "without"
    shutil.copy(program, without)
    subprocess.run(["objcopy", "--remove-section", ".note.gnu.build-id", without], check=True)
    for path, expected in ((program, BUILD_ID), (without, "")):
        with open(path, "rb") as file:
            assert Elf.unmapped(file.fileno()).build_id == expected


@given(st.binary(max_size=200), st.sampled_from([0, 4, 8]))
def test_notes_of_any_bytes_have_a_build_id_of_bounded_length_or_none(notes: bytes, align: int) -> None:
    assert len(elves._build_id(notes, align)) <= 32
    mine = struct.pack("<III", 4, 20, 3) + b"GNU\0" + bytes(20)
    assert elves._build_id(mine + notes, align) == bytes(20)


def test_a_function_without_a_size_ends_with_its_section(program: Path) -> None:
    """`_init` has none, and the calls of other libraries' functions (.plt) follow it."""
    lines = subprocess.run(["readelf", "-SW", program], capture_output=True, text=True, check=True).stdout.splitlines()
    words = next(line.partition("]")[2].split() for line in lines if ".plt" in line and "PROGBITS" in line)
    with open(program, "rb") as file:
        ((name, _),) = Elf.unmapped(file.fileno()).functions([int(words[3], 16) + 17])
    assert name == ""


@pytest.mark.parametrize("damage", ["", "cut off", "another file"])
def test_of_a_stripped_file_another_one_can_have_the_symbols(
    program: Path, tmp_path: Path, opened: Opened, damage: str
) -> None:
    at = offsets(program)
    stripped, symbols = without_symbols(program, tmp_path)
    if damage:
        symbols.write_bytes(symbols.read_bytes()[:80] if damage == "cut off" else b"no program")
    names = Names().of(1, mapped(stripped), [at["outer"] + 1, at["inner"]], opened)
    if not damage:
        assert names == {at["outer"] + 1: ("outer", at["outer"]), at["inner"]: ("inner", at["inner"])}
    else:
        assert {name for name, _ in names.values()} == {
            f"stripped+{at[function]:#x}" for function in ("outer", "inner")
        }


def test_the_file_with_the_symbols_is_found_by_its_build_id(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stripped, symbols = without_symbols(program, tmp_path)
    place = Path(debug_files.path_of(BUILD_ID))
    assert place == Path(f"/usr/lib/debug/.build-id/{BUILD_ID[:2]}/{BUILD_ID[2:]}.debug")
    assert [debug_files.path_of(short) for short in ("", "ab", "abcd")] == ["", "", ""]
    monkeypatch.setattr(debug_files, "FOLDER", str(tmp_path))
    place = Path(debug_files.path_of(BUILD_ID))
    place.parent.mkdir()
    shutil.copy(symbols, place)
    found: list[tuple[int, int]] = []
    with open(stripped, "rb") as file:
        for trusted in (False, True):
            monkeypatch.setattr(debug_files, "is_trusted", lambda descriptor, trusted=trusted: trusted)
            descriptor = debug_files.opened(file.fileno())
            if descriptor is not None:
                found.append((os.fstat(descriptor).st_ino, place.stat().st_ino))
                os.close(descriptor)
    assert len(found) == 1 and found[0][0] == found[0][1]


def test_symbols_are_trusted_that_root_alone_can_have_written(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.touch()
    mine.chmod(0o666)
    trusted = {}
    for path in ("/etc/passwd", "/etc", mine):
        descriptor = os.open(path, os.O_RDONLY)
        trusted[path] = debug_files.is_trusted(descriptor)
        os.close(descriptor)
    assert trusted == {"/etc/passwd": True, "/etc": False, mine: False}


def test_of_a_stripped_file_the_unwind_table_knows_where_functions_begin(program: Path, tmp_path: Path) -> None:
    at, stripped = offsets(program), tmp_path / "stripped"
    subprocess.run(["strip", "-o", stripped, program], check=True)
    with open(stripped, "rb") as file:
        found = Elf.unmapped(file.fileno()).functions([at["outer"] + 3, at["inner"] + 1, at["main"]])
    assert found == [("", at["outer"]), ("", at["inner"]), ("", at["main"])]


def test_a_stripped_file_may_have_its_symbols_within_itself(program: Path, tmp_path: Path) -> None:
    at, both = offsets(program), tmp_path / "both"
    (tmp_path / "symbols.xz").write_bytes(lzma.compress(program.read_bytes()))
    shutil.copy(program, both)
    subprocess.run(["strip", both], check=True)
    subprocess.run(["objcopy", "--add-section", f".gnu_debugdata={tmp_path}/symbols.xz", both], check=True)
    with open(both, "rb") as file:
        assert Elf.unmapped(file.fileno()).functions([at["inner"] + 1]) == [("inner", at["inner"])]


def test_a_place_outside_of_the_file_has_no_function(program: Path) -> None:
    with open(program, "rb") as file:
        assert Elf.unmapped(file.fileno()).functions([1 << 40, (1 << 64) - 1]) == [("", 1 << 40), ("", (1 << 64) - 1)]


def test_a_file_that_is_cut_off_meanwhile_is_an_error(program: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copy(program, copy)
    with open(copy, "rb+") as file:
        elf = Elf.unmapped(file.fileno())
        file.truncate(100)
        with pytest.raises(ElfError):
            elf.functions([offsets(program)["main"]])


def test_sections_that_are_one_part_of_the_file_have_no_more_symbols_together(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a file of three megabytes would fill any memory."""
    content = bytearray(program.read_bytes())
    at, size, count = struct.unpack_from("<Q", content, 40)[0], *struct.unpack_from("<HH", content, 58)
    sections = [bytes(content[at + size * each :][:size]) for each in range(count)]
    symbols = next(each for each in sections if each[4:8] == b"\2\0\0\0")
    struct.pack_into("<Q", content, 40, len(content))
    struct.pack_into("<HHH", content, 58, size, 4000, 0)
    content += symbols * 4000
    monkeypatch.setattr(elves, "MOST_SYMBOLS", 100)
    assert 0 < len(Elf.within(bytes(content))._functions[0]) <= 100


@given(st.data())
def test_a_file_of_which_any_bytes_are_wrong_gives_names_or_an_error(program: Path, data: st.DataObject) -> None:
    content = bytearray(program.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(16, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = Elf.within(bytes(content)).functions([0x1139, 0, 1 << 33])
    except ElfError:
        return
    assert len(found) == 3


@pytest.mark.parametrize(
    "mangled, name",
    [
        ("_ZN4Tree4FillEi", "Tree::Fill(int)"),
        ("_Z3foov.constprop.0", "foo() [clone .constprop.0]"),
        ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
        (
            "_ZN61_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$core..fmt..Debug$GT$3fmt17h0123456789abcdefE",
            "<alloc::vec::Vec<T> as core::fmt::Debug>::fmt",
        ),
        ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
        ("_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"),
        ("_RNCNvCsgStHSCytQ6I_7mycrate4main0B3_", "mycrate::main::{closure}"),
        ("_RINvCs7QNsCvBiQ1i_4demo4pairlNtB2_5ThingE", "demo::pair<i32, demo::Thing>"),
        ("_RNvMCs7QNsCvBiQ1i_4demoNtB2_5Thing4work", "<demo::Thing>::work"),
        (
            "_RNvXCs7QNsCvBiQ1i_4demoNtB2_5ThingNtNtCs1_4core3fmt5Debug3fmt",
            "<demo::Thing as core::fmt::Debug>::fmt",
        ),
        ("_RINvC1a1fRShE", "a::f<&[u8]>"),
        ("_RNvB_1f", "_RNvB_1f"),
        ("_RINvC1a1f" + "RB7_" * 500 + "E", "_RINvC1a1f" + "RB7_" * 500 + "E"),
        ("_R", "_R"),
        ("_RINvC1a1f" + "RINvC1a1f" * 300, "_RINvC1a1f" + "RINvC1a1f" * 300),
        ("main", "main"),
    ],
)
def test_names_as_their_authors_wrote_them(mangled: str, name: str) -> None:
    assert demangled(mangled) == name


@given(st.text("RINvCsMXYBTSA_0123456789abcELKupz", max_size=60))
def test_any_text_as_a_name_of_rust(text: str) -> None:
    assert len(demangled(f"_R{text}")) < 5000


# -- a window -------------------------------------------------------------------------------------------------


def test_a_window_becomes_a_profile(program: Path, opened: Opened) -> None:
    at = offsets(program)
    frames = (
        Frame(Kind.NATIVE, at["main"] + 9, 0),
        Frame(Kind.PYTHON, function="fit", source="/home/alice/fit.py", line=12),
        Frame(Kind.NATIVE, at["inner"] + 1, 0),
        Frame(Kind.NATIVE, 0x7FFF0000, NO_FILE),
        Frame(Kind.KERNEL, 0xFFFF_FFFF_8100_0000, function="vfs_read"),
    )
    found = window(Stack(10, 10, "reco", frames), Stack(10, 11, "io", frames[:1], True, False), files=[mapped(program)])
    found.lost, found.left_out, found.not_ours = 3, 4, 5
    packed = Finisher()(found, opened)
    hottest = segment.hottest_of(packed)
    profile = pprof.decode(packed)
    assert hottest == "67% main (p), 33% vfs_read"
    assert (profile.samples, profile.lost, profile.guessed, profile.broken, profile.not_ours) == (3, 7, 2, 2, 5)
    assert (profile.begun, profile.ended, profile.hz) == (1.7e9, 1.7e9 + 60, 99)
    whole = next(stack for stack in profile.stacks if not stack.is_guessed)
    assert (whole.pid, whole.process, whole.thread) == (10, "reco", "reco")
    assert [(frame.function, frame.kind.value, frame.line) for frame in whole.frames] == [
        ("main", "native", 0), ("fit", "python", 12), ("inner", "native", 0), ("(unknown code)", "native", 0),
        ("vfs_read", "kernel", 0),
    ]  # fmt: skip
    assert (whole.frames[0].file, whole.frames[0].build_id, whole.frames[0].offset) == (
        str(program),
        BUILD_ID,
        at["main"] + 9,
    )
    assert whole.frames[4] == profiles.Frame("vfs_read", profiles.Kind.KERNEL), "no address of the kernel"
    other = next(stack for stack in profile.stacks if stack.is_guessed)
    assert (other.process, other.thread) == ("reco", "io")


def test_how_many_samples_lie_in_files_without_a_place_is_said(program: Path, opened: Opened) -> None:
    main, gone = Frame(Kind.NATIVE, offsets(program)["main"] + 9, 0), Frame(Kind.NATIVE, file=NO_PLACE)
    found = window(Stack(10, 10, "reco", (main, gone, gone)), Stack(10, 11, "io", (main,)), files=[mapped(program)])
    profile = pprof.decode(Finisher()(found, opened))
    assert profile.unplaced == 1 and counts(profile).endswith("; 1 in files without a place")
    assert counts(dataclasses.replace(profile, view=profiles.View.OFF_CPU)).count("in files without a place") == 1
    without = window(Stack(10, 11, "io", (main,)), files=[mapped(program)])
    assert "without a place" not in counts(pprof.decode(Finisher()(without, opened)))


@pytest.mark.parametrize("content", [None, b"", b"\x7fELF", b"\x7fELF\x02\x01" + bytes(100)])
def test_a_file_that_can_not_be_read_costs_its_names_alone(
    opened: Opened, tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "x").write_bytes(content)
    found = window(Stack(1, 1, "x", (Frame(Kind.NATIVE, 0x1234, 0),)), files=[mapped(tmp_path / "x")])
    (stack,) = pprof.decode(Finisher()(found, opened)).stacks
    assert stack.frames[0].function == "x+0x1234"


def test_a_name_is_asked_of_a_file_once(program: Path, opened: Opened) -> None:
    known, at = Names(), offsets(program)
    for _ in range(3):
        assert known.of(7, mapped(program), [at["main"]], opened)[at["main"]] == ("main", at["main"])
    assert len(opened.asked) == 1


def test_names_of_a_file_are_shared_only_if_root_alone_can_write_it(program: Path, opened: Opened) -> None:
    known, at = Names(), offsets(program)
    for is_roots, asked in ((False, 2), (True, 3)):
        for run in (7, 8):
            known.of(run, mapped(program, is_roots=is_roots), [at["main"]], opened)
        assert len(opened.asked) == asked
    known.forget_run(7)
    known.of(8, mapped(program), [at["main"]], opened)
    assert len(opened.asked) == 3
    known.of(7, mapped(program), [at["main"]], opened)
    assert len(opened.asked) == 4


def test_what_is_remembered_is_bounded(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "_MOST_NAMES", 100)
    known = Names()
    for inode in range(50):
        found = known.of(7, mapped("/nowhere", inode), range(inode, inode + 10), opened)
        assert found[inode] == (f"nowhere+{inode:#x}", inode)
    assert known._count == sum(map(len, known._known.values())) <= 100
    assert len(known.of(7, mapped("/nowhere", 99), range(1000), opened)) == 1000


def test_a_window_of_any_size_becomes_one_that_can_be_kept(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "MOST_BYTES", 20_000)
    monkeypatch.setattr(names, "MOST_PLACES", 3000)
    stacks = [
        Stack(
            1, 1, "x" * 5000, tuple(Frame(Kind.PYTHON, function=os.urandom(600).hex(), source="s") for _ in range(10))
        )
        for _ in range(400)
    ]
    found = window(*stacks)
    packed = Finisher()(found, opened)
    profile = pprof.decode(packed)
    assert len(packed) <= 20_000 + segment.MOST_SENTENCE + 1 and profile.stacks
    assert profile.samples + profile.lost == sum(found.stacks.values())
    assert min(profile.stacks.values()) > 300, "the rarest go first"


def test_an_empty_window(opened: Opened) -> None:
    packed = Finisher()(window(), opened)
    assert segment.hottest_of(packed) == "" and pprof.decode(packed).samples == 0


CONFINED = """
import os, sys
from condor_joblens.common import seccomp
from condor_joblens.profiles import pprof
from condor_joblens.profiling.names import Finisher
from condor_joblens.profiling.samples import FileKey, Frame, Kind, MappedFile, Stack, Window

class Files:
    def descriptor(self, file):
        return descriptor

    def symbols(self, file):
        return None

descriptor = os.open(sys.argv[1], os.O_RDONLY)
finish = Finisher()
seccomp.allow_only((*seccomp.INTERPRETERS, "fstat", "newfstatat", "pread64"))
window = Window(1, 0, 60, 99, files=[MappedFile(FileKey(1, 1, 1, 1), "/x/p")])
window.stacks[Stack(1, 1, "x", (Frame(Kind.NATIVE, int(sys.argv[2]), 0),))] = 1
((stack, _),) = pprof.decode(finish(window, Files())).stacks.items()
print(stack.frames[0].function)
"""


def test_a_process_that_may_open_nothing_gives_names(tmp_path: Path) -> None:
    """As the reader of samples is: all libraries are there before it gives that up."""
    (tmp_path / "p.cc").write_text(
        "namespace job { int work(int n) { return n + 1; } } int main() { return job::work(1); }"
    )
    subprocess.run(["g++", "-O0", "-o", "p", "p.cc"], cwd=tmp_path, check=True)
    at = offsets(tmp_path / "p")["_ZN3job4workEi"]
    done = subprocess.run(
        [sys.executable, "-c", CONFINED, tmp_path / "p", str(at + 4)],
        capture_output=True,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert (done.stdout, done.stderr) == ("job::work(int)\n", "")


def test_what_is_hottest_is_told_of_the_whole_run(opened: Opened) -> None:
    finish, said = Finisher(), ""
    for function in ("first", "second", "second"):
        said = segment.hottest_of(finish(window(Stack(1, 1, "x", (Frame(Kind.KERNEL, function=function),))), opened))
    assert said == "67% second, 33% first"
    said = segment.hottest_of(finish(window(Stack(1, 1, "x", (Frame(Kind.KERNEL, function="other"),)), run=8), opened))
    assert said == "100% other"


def test_functions_of_python_take_the_places_of_what_runs_them(program: Path, opened: Opened) -> None:
    """What runs them has a name, or a place in its file; what C calls is behind C."""
    at = offsets(program)
    main, outer, inner = (Frame(Kind.NATIVE, at[name] + 1, 0) for name in ("main", "outer", "inner"))
    leaf, caller, module = (
        Frame(Kind.PYTHON, function=name, source="/home/a/fit.py", line=line)
        for name, line in (("chi2", 3), ("fit", 9), ("<module>", 20))
    )
    kernel = Frame(Kind.KERNEL, function="do_it")
    window = Window(1, 0.0, 60.0, 99, files=[MappedFile(FileKey(1, 2, 3, 4), str(program))])
    window.interpreters = {0: (outer.offset, outer.offset + 1)}
    frames = (main, outer, inner, outer, kernel)
    stacks = [
        Stack(1, 1, "t", frames, calls=((leaf,), (caller, module))),
        Stack(1, 1, "t", frames, calls=((leaf, caller, module),)),
        Stack(1, 1, "t", frames, calls=((leaf,), (caller,)), has_all_calls=False),
    ]
    window.stacks = {stacks[0]: 20, stacks[1]: 10, stacks[2]: 3}
    found = Finisher().profile(window, opened)
    assert found.broken == 3, "callers in Python are missing, in a whole stack"
    told = [([frame.function for frame in stack.frames], stack.is_guessed) for stack in found.stacks]
    assert told[0] == (["main", "<module>", "fit", "inner", "chi2", "do_it"], False)
    names_of, is_guessed = told[1]
    assert is_guessed and [name for name in names_of if name in ("<module>", "fit", "chi2")] == [
        "<module>",
        "fit",
        "chi2",
    ]
    first = next(iter(found.stacks))
    assert (first.frames[4].kind, first.frames[4].file, first.frames[4].line) == (profiles.Kind.PYTHON, leaf.source, 3)
