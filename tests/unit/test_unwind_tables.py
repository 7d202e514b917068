"""Tables of files in the reader of samples: what is shared, what goes first, and that nothing stays open."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from condor_joblens.profiling.elf import Elf
from condor_joblens.profiling.unwind_tables import UnwindTables

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="unwind tables are read on x86-64 alone")


class Kernel:
    def __init__(self) -> None:
        self.tables: dict[int, int] = {}  # file -> rows

    def put(self, number: int, rows: np.ndarray) -> bool:
        self.tables[number] = len(rows)
        return True

    def drop(self, number: int) -> None:
        del self.tables[number]


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def programs(tmp_path: Path) -> list[Path]:
    """Copies of one program, which somebody besides root may write."""
    found = [Path(shutil.copy(os.path.realpath(sys.executable), tmp_path / str(number))) for number in range(4)]
    for path in found:
        path.chmod(0o775)
    return found


def size_of(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return 8 * (len(Elf.unmapped(descriptor).rows) + 1)
    finally:
        os.close(descriptor)


def opened(path: Path) -> int:
    return os.open(path, os.O_RDONLY)


def made(kernel: Kernel, most: int, files: int = 10) -> UnwindTables:
    return UnwindTables(most, files, kernel.put, kernel.drop)


def test_a_file_that_others_may_write_belongs_to_its_run(kernel: Kernel, programs: list[Path]) -> None:
    tables = made(kernel, 1 << 30)
    first, again, other = (tables.add(run, opened(programs[0]), "p") for run in (1, 1, 2))
    assert first == again != other and len(kernel.tables) == 2
    tables.forget_run(1)
    assert list(kernel.tables) == [other] and tables.file(first) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="a file of root's is made by root")
def test_a_file_that_root_alone_may_write_is_the_same_for_all(kernel: Kernel, programs: list[Path]) -> None:
    programs[0].chmod(0o755)
    tables = made(kernel, 1 << 30)
    number = tables.add(1, opened(programs[0]), "p")
    assert tables.add(2, opened(programs[0]), "p") == number
    tables.forget_run(1)
    assert number in kernel.tables, "the other run has it"
    tables.forget_run(2)
    assert not kernel.tables and tables.bytes == 0


def test_a_runs_own_tables_have_half_of_all_bytes_and_the_one_used_least_lately_goes(
    kernel: Kernel, programs: list[Path]
) -> None:
    tables = made(kernel, 4 * size_of(programs[0]))
    one, two = (tables.add(1, opened(path), "p") for path in programs[:2])
    tables.used(one)
    three = tables.add(1, opened(programs[2]), "p")
    assert sorted(kernel.tables) == [one, three]
    four = tables.add(2, opened(programs[3]), "p")
    assert sorted(kernel.tables) == [one, three, four] and tables.file(two) is not None


def test_a_table_that_is_too_large_is_not_made(kernel: Kernel, programs: list[Path]) -> None:
    tables = made(kernel, size_of(programs[0]))
    assert tables.add(1, opened(programs[0]), "p") and not kernel.tables


def test_what_is_no_program_has_a_number_and_no_table(kernel: Kernel, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"\x7fELF\2\1" + bytes(100))
    assert made(kernel, 1 << 20).add(1, opened(path), "p") and not kernel.tables


def test_a_file_that_does_not_say_what_it_is_is_closed(
    kernel: Kernel, programs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As FUSE of another user: such descriptors would fill the reader."""

    def refused(descriptor: int) -> os.stat_result:
        raise PermissionError(13, "Permission denied")

    tables, descriptor = made(kernel, 1 << 30), opened(programs[0])
    monkeypatch.setattr(os, "fstat", refused)
    assert tables.add(1, descriptor, "p") == 0
    monkeypatch.undo()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_run_alone_has_half_of_the_places_for_files(kernel: Kernel, programs: list[Path]) -> None:
    """Of many small libraries, say: a neighbour's are still taken."""
    tables = made(kernel, 1 << 30, files=4)
    one, two, three = (tables.add(1, opened(path), "p") for path in programs[:3])
    assert one and two and three == 0
    assert tables.add(2, opened(programs[3]), "p")
    tables.forget_run(1)
    assert all(tables.add(1, opened(path), "p") for path in programs[:2])


def test_a_file_that_others_have_too_takes_nobodys_place(kernel: Kernel) -> None:
    tables = made(kernel, 1 << 30, files=4)
    of_roots = [os.path.realpath(path) for path in ("/bin/sh", "/bin/cat", "/bin/ls")]
    for path in of_roots[:2]:
        assert tables.add(1, opened(Path(path)), "p") == tables.add(2, opened(Path(path)), "p")
    assert tables.add(1, opened(Path(of_roots[2])), "p")


def test_beyond_the_greatest_number_files_are_closed(kernel: Kernel, programs: list[Path]) -> None:
    tables = made(kernel, 1 << 30, files=2)
    assert tables.add(1, opened(programs[0]), "p")
    descriptor = opened(programs[1])
    assert tables.add(1, descriptor, "p") == 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
