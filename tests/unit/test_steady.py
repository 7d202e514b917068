"""Windows of samples in which a run has been in the same places, and others."""

from __future__ import annotations

import pytest

from condor_joblens.profiling.samples import FileKey, Frame, Kind, MappedFile, Stack, Window
from condor_joblens.profiling.steady import LEAST_CORES, LEAST_SECONDS, SHARE, Steady

FILES = [MappedFile(FileKey(1, number, 3, 4), f"/lib/{number}.so") for number in range(2)]
MAIN = Frame(Kind.NATIVE, 0x1000, 0)
SECONDS, HZ = 60.0, 99


def stack(offset: int, file: int = 0, pid: int = 10, caller: Frame = MAIN, lines: tuple[int, ...] = ()) -> Stack:
    calls = (tuple(Frame(Kind.PYTHON, function="f", source="fit.py", line=line) for line in lines),) if lines else ()
    return Stack(pid, pid, "job", (caller, Frame(Kind.NATIVE, offset, file)), calls=calls)


class Run:
    """Its windows follow each other."""

    def __init__(self) -> None:
        self.now, self.steady = 1000.0, Steady()

    def goes_on(self, stacks: dict[Stack, int] | None = None, seconds: float = SECONDS, left_out: int = 0) -> float:
        began, self.now = self.now, self.now + seconds
        if stacks is None:
            stacks = {stack(0x2000): int(seconds * HZ)}
        return self.steady.add(Window(1, began, self.now, HZ, stacks=stacks, files=FILES, left_out=left_out))


@pytest.fixture
def run() -> Run:
    return Run()


def test_the_same_place_counts_from_the_first_window_on(run: Run) -> None:
    assert [run.goes_on() for _ in range(4)] == [0, 1000, 1000, 1000]


@pytest.mark.parametrize(
    "other",
    [
        stack(0x2000 + 256),  # another piece of code
        stack(0x2000, file=1),
        stack(0x2000, caller=Frame(Kind.NATIVE, 0x1001, 0)),  # another call of the same function
        stack(0x2000, pid=11),
        stack(0x2000, lines=(7,)),
    ],
)
def test_another_place_begins_anew(run: Run, other: Stack) -> None:
    run.goes_on()
    run.goes_on()
    assert run.goes_on({other: 5000}) == 0
    assert run.goes_on({other: 5000}) == 1120


def test_a_line_of_python_is_a_place(run: Run) -> None:
    assert [run.goes_on({stack(0x2000, lines=(line,)): 5000}) for line in (7, 7, 8, 8)] == [0, 1000, 0, 1120]


def test_so_is_an_instruction_nearby_and_the_kernel_s_own_is_none(run: Run) -> None:
    run.goes_on()
    there = Stack(10, 11, "x", (MAIN, Frame(Kind.NATIVE, 0x20F0, 0), Frame(Kind.KERNEL, 0xFFFF, function="tick")))
    assert run.goes_on({there: 5000}) == 1000


def test_few_samples_elsewhere_do_not_count_and_more_do(run: Run) -> None:
    run.goes_on()
    few = int(5000 * (1 - SHARE))
    assert run.goes_on({stack(0x2000): 5000 - few, stack(0x9000): few}) == 1000
    assert run.goes_on({stack(0x2000): 4999 - few, stack(0x9000): few + 1}) == 0


def test_stacks_for_which_there_was_no_place_are_elsewhere(run: Run) -> None:
    run.goes_on()
    assert run.goes_on({stack(0x2000): 5000}, left_out=500) == 0


def test_a_job_that_moves_slowly_from_place_to_place_is_in_others_in_the_end(run: Run) -> None:
    """All are compared with the first window, not with the one before."""
    said = []
    for step in range(0, 5000, 200):
        said.append(run.goes_on({stack(0x2000): 5000 - step, stack(0x9000): step} if step else None))
    assert said[1] == 1000 and 0 in said[2:]
    assert all(later >= before or later == 0 for before, later in zip(said, said[1:]))


def test_who_sleeps_or_is_suspended_is_not_busy(run: Run) -> None:
    run.goes_on()
    assert run.goes_on({stack(0x2000): int(LEAST_CORES * HZ * SECONDS) - 1}) == 0
    assert run.goes_on() == 0
    run.now += 30  # windows without samples are not told of
    assert run.goes_on() == 0


def test_a_window_that_somebody_has_asked_for_neither_proves_nor_disproves(run: Run) -> None:
    run.goes_on()
    assert run.goes_on({stack(0x9000): 50}, LEAST_SECONDS / 2) == 0
    assert run.goes_on() == 1000
    assert run.goes_on({stack(0x9000): 50}, LEAST_SECONDS / 2) == 1000
