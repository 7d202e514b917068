"""Tables of files in the reader of samples: what is shared, what goes first, and that nothing stays open."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples

from condor_joblens.profiling.elf import Elf
from condor_joblens.profiling.fair_shares import FairShares
from condor_joblens.profiling.unwind_tables import NO_PLACE, UnwindTables

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="unwind tables are read on x86-64 alone")


class Kernel:
    def __init__(self) -> None:
        self.tables: dict[int, int] = {}  # file -> rows

    def put(self, number: int, rows: memoryview) -> bool:
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
    found = [Path(shutil.copy(os.path.realpath("/bin/sh"), tmp_path / str(number))) for number in range(4)]
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


def test_a_file_of_root_that_is_open_is_known_again_by_its_place_until_it_changes(
    kernel: Kernel, programs: list[Path]
) -> None:
    if os.geteuid():
        pytest.skip("files of root are made by root")
    programs[0].chmod(0o755)
    tables = made(kernel, 1 << 30)
    roots, others = tables.add(1, opened(programs[0]), "r"), tables.add(1, opened(programs[1]), "o")
    places = [(status.st_dev, status.st_ino) for status in map(os.stat, programs)]
    assert tables.known(2, *places[0]) == roots
    assert not tables.known(2, *places[1]), "it is the first job's alone"
    assert not tables.known(2, *places[2]) and others
    tables.forget_run(1)
    assert tables.known(3, *places[0]) == roots, "the second job has it"
    programs[3].chmod(0o750)
    secret = tables.add(3, opened(programs[3]), "s")
    assert secret and not tables.known(2, *places[3]), "not everybody may read it"
    with open(programs[0], "ab") as file:
        file.write(b"more")
    assert not tables.known(4, *places[0])
    again = tables.add(4, opened(programs[0]), "r")
    assert again != roots and tables.known(5, *places[0]) == again
    for run in range(2, 6):
        tables.forget_run(run)
    assert not tables.known(6, *places[0]) and not kernel.tables


def test_files_with_symbols_are_kept_and_closed_with_those_that_lack_them(kernel: Kernel, programs: list[Path]) -> None:
    tables = made(kernel, 1 << 30)
    before = os.listdir("/proc/self/fd")
    number = tables.add(1, opened(programs[0]), "p", opened(Path("/etc/passwd")))  # root's, as it must be
    again = tables.add(1, opened(programs[0]), "p", opened(Path("/etc/passwd")))
    other = tables.add(1, opened(programs[1]), "p", opened(programs[2]))  # not root's alone
    file, without = tables.file(number), tables.file(other)
    assert number == again and file is not None and without is not None
    kept = tables.symbols(file)
    assert kept is not None and os.fstat(kept).st_ino == os.stat("/etc/passwd").st_ino
    assert tables.symbols(without) is None
    assert len(os.listdir("/proc/self/fd")) == len(before) + 3
    tables.forget_run(1)
    assert len(os.listdir("/proc/self/fd")) == len(before) and tables.symbols(file) is None


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


def test_a_run_has_all_bytes_until_another_one_needs_some(kernel: Kernel, programs: list[Path]) -> None:
    """Then it has to give of what it has used least lately, until both have the same."""
    tables = made(kernel, 4 * size_of(programs[0]))
    mine = [tables.add(1, opened(path), "p") for path in programs]
    assert sorted(kernel.tables) == mine
    tables.used(1, mine[0])
    theirs = [tables.add(2, opened(path), "p") for path in programs[:2]]
    assert sorted(kernel.tables) == [mine[0], mine[3], *theirs]
    assert tables.file(mine[1]) is not None, "it has no table, and its functions have names still"
    more = tables.add(2, opened(programs[2]), "p")
    assert sorted(kernel.tables) == [mine[0], mine[3], theirs[1], more], "it gives way itself, as it has as much"
    third = tables.add(3, opened(programs[0]), "p")
    assert third in kernel.tables and len(kernel.tables) == 4
    tables.forget_run(1)
    assert tables.add(2, opened(programs[3]), "p") in kernel.tables and tables.bytes <= 4 * size_of(programs[0])


@pytest.mark.skipif(os.geteuid() != 0, reason="a file of root's is made by root")
def test_what_several_runs_have_goes_after_what_one_has(kernel: Kernel, programs: list[Path]) -> None:
    programs[0].chmod(0o755)
    tables = made(kernel, 3 * size_of(programs[0]))
    shared = [tables.add(run, opened(programs[0]), "p") for run in (1, 2)]
    own = [tables.add(1, opened(path), "p") for path in programs[1:3]]
    new = tables.add(3, opened(programs[3]), "p")
    assert sorted(kernel.tables) == [shared[0], own[1], new] and shared[0] == shared[1]
    assert tables.add(2, opened(programs[1]), "p") not in kernel.tables, (
        "with its part of what is shared it has as much"
    )


def test_twenty_runs_with_copies_of_their_own_have_the_same_share(kernel: Kernel, programs: list[Path]) -> None:
    """As private environments of conda; those that begin last have no less."""
    tables = made(kernel, 40 * size_of(programs[0]), files=1000)
    numbers = {run: [tables.add(run, opened(path), "p") for path in programs] for run in range(1, 21)}
    assert len(kernel.tables) == 40 and tables.bytes <= 40 * size_of(programs[0])
    assert {len(kernel.tables.keys() & set(mine)) for mine in numbers.values()} == {2}


def test_a_table_that_gave_way_comes_back_when_there_is_room(kernel: Kernel, programs: list[Path]) -> None:
    """With the next samples of its file, and not by another's loss that has no more."""
    tables = made(kernel, 2 * size_of(programs[0]))
    mine = [tables.add(1, opened(path), "p") for path in programs[:2]]
    theirs = [tables.add(2, opened(path), "p") for path in programs[:2]]
    assert sorted(kernel.tables) == [mine[1], theirs[1]], "each has one"
    for run, number in ((1, mine[0]), (2, theirs[0]), (1, mine[0])):
        tables.used(run, number)
    assert sorted(kernel.tables) == [mine[1], theirs[1]]
    tables.forget_run(2)
    tables.used(2, mine[0])
    assert sorted(kernel.tables) == [mine[1]], "not by a run that does not have it"
    tables.used(1, mine[0])
    assert sorted(kernel.tables) == mine and tables.bytes == 2 * size_of(programs[0])
    tables.forget_run(1)
    assert tables.bytes == 0 and not kernel.tables


def test_who_has_less_gets_a_table_back_from_who_has_more(kernel: Kernel, programs: list[Path]) -> None:
    tables = made(kernel, 3 * size_of(programs[0]))
    hers = [tables.add(3, opened(path), "p") for path in programs[:1]]
    mine = tables.add(1, opened(programs[0]), "p")
    theirs = [tables.add(2, opened(path), "p") for path in programs[:2]]
    assert sorted(kernel.tables) == [*hers, mine, theirs[1]], "no one has two"
    tables.forget_run(3)
    tables.used(2, theirs[0])
    assert sorted(kernel.tables) == [mine, *theirs]
    second = tables.add(1, opened(programs[1]), "p")
    assert sorted(kernel.tables) == sorted([theirs[0], theirs[1], second]), "as much as the other one has: its own goes"


def test_a_share_costs_what_has_happened_and_not_what_is_there(kernel: Kernel) -> None:
    """Of thousands of files of others none is looked at when there is room, else none but those that go."""
    shares = FairShares()
    for run in range(10):
        for number in range(400):
            shares.put(run * 400 + number, 10, {run})
    looked: list[int] = []

    class Watched(dict[int, Any]):
        def __getitem__(self, number: int) -> Any:
            looked.append(number)
            return super().__getitem__(number)

    shares._things = Watched(shares._things)
    assert shares.to_go(11, 30, 30, may_be_own=True) == []
    assert shares.to_go(11, 30, 0, may_be_own=True) == [0, 400, 800] and set(looked) == {0, 400, 800}


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["put", "runs", "use", "remove", "go"]), st.integers(0, 5),
                          st.sets(st.integers(1, 4), min_size=1), st.integers(1, 50)), max_size=60))  # fmt: skip
def test_shares_are_those_of_what_is_there(steps: list[tuple[str, int, set[int], int]]) -> None:
    shares = FairShares()
    there: dict[int, tuple[int, set[int]]] = {}
    for what, number, runs, cost in steps:
        if what == "put":
            there[number] = cost, runs
            shares.put(number, cost, runs)
        elif what == "runs" and number in there:
            there[number] = there[number][0], runs
            shares.change_runs(number, runs)
        elif what == "remove":
            there.pop(number, None)
            shares.remove(number)
        elif what == "use" and number in there:
            shares.use(number, min(there[number][1]))
        elif what == "go":
            for each in shares.to_go(min(runs), cost, 0, may_be_own=True) or ():
                shares.remove(each)
                del there[each]
        for run in range(1, 5):
            mine = {each: cost // len(runs) for each, (cost, runs) in there.items() if run in runs}
            assert sorted(shares.of(run)) == sorted(mine)
            assert (shares._runs[run].sum if run in shares._runs else 0) == sum(mine.values())


def test_a_table_for_which_nobody_has_to_give_way_is_not_made(kernel: Kernel, programs: list[Path]) -> None:
    """And none that is there goes in vain."""
    tables = made(kernel, int(1.5 * size_of(programs[0])))
    first = tables.add(1, opened(programs[0]), "p")
    assert tables.add(2, opened(programs[1]), "p") and sorted(kernel.tables) == [first]


def test_a_table_that_is_too_large_is_not_made(kernel: Kernel, programs: list[Path]) -> None:
    tables = made(kernel, size_of(programs[0]) - 8)
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


def test_a_run_has_all_places_for_files_until_another_one_needs_some(kernel: Kernel, programs: list[Path]) -> None:
    """Of many small libraries, say: its own is closed that it has used least lately, as long as it has more."""
    tables = made(kernel, 1 << 30, files=3)
    one, two, three = (tables.add(1, opened(path), "p") for path in programs[:3])
    assert one and two and three and tables.add(1, opened(programs[3]), "p") == NO_PLACE
    tables.used(1, one)
    theirs = tables.add(2, opened(programs[3]), "p")
    assert theirs and tables.file(two) is None and sorted(kernel.tables) == [one, three, theirs]
    assert tables.add(2, opened(programs[0]), "p") == NO_PLACE, "it would have more than the other one"
    assert tables.add(1, opened(programs[1]), "p") == NO_PLACE and not tables.has_place
    tables.forget_run(1)
    assert all(tables.add(2, opened(path), "p") for path in programs[:2])


def test_a_file_that_others_have_too_takes_nobodys_place(kernel: Kernel) -> None:
    tables = made(kernel, 1 << 30, files=4)
    of_roots = [os.path.realpath(path) for path in ("/bin/sh", "/bin/cat", "/bin/ls")]
    for path in of_roots[:2]:
        assert tables.add(1, opened(Path(path)), "p") == tables.add(2, opened(Path(path)), "p")
    assert tables.add(1, opened(Path(of_roots[2])), "p")


def test_beyond_the_greatest_number_files_are_closed(kernel: Kernel, programs: list[Path]) -> None:
    tables = made(kernel, 1 << 30, files=1)
    assert tables.add(1, opened(programs[0]), "p")
    descriptor = opened(programs[1])
    assert tables.add(1, descriptor, "p") == NO_PLACE
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
