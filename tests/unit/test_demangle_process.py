"""Names of functions that are made to kill who demangles them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from condor_joblens.profiling import demangle_process, sample_reader
from condor_joblens.profiling.demangle import LONGEST
from condor_joblens.profiling.demangle_process import MOST_CHARACTERS, MOST_DEATHS, DemangleProcess

FILL, FILLED = "_ZN4Tree4FillEi", "Tree::Fill(int)"
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def pairs(levels: int) -> str:
    """A function of pairs of pairs of pairs: each level is twice as long as the one before."""
    found = "_Z1fSt4pairIiiE"
    for level in range(1, levels + 1):
        high, low = divmod(level - 1, 36)
        place = f"S{DIGITS[high] if high else ''}{DIGITS[low]}_"
        found += f"S_I{place}{place}E"
    return found


@pytest.fixture
def demangle() -> Iterator[DemangleProcess]:
    found = DemangleProcess()
    yield found
    found._channel.close()
    os.waitpid(found.keeper, 0)


def test_names_come_back_in_their_places(demangle: DemangleProcess) -> None:
    names = [FILL, "main", "", "_Znonsense", "_RNvCs1234_7mycrate3foo", "é", *[FILL] * 100]
    told = [FILLED, "main", "", "_Znonsense", "mycrate::foo", "é", *[FILLED] * 100]
    assert demangle(7, names) == told


@pytest.mark.parametrize("levels", [24, 60, 300])
def test_a_name_that_stands_for_an_endless_one_stays_as_it_is(demangle: DemangleProcess, levels: int) -> None:
    """Of 60 levels it has 600 bytes, and 2^64 characters."""
    hostile = pairs(levels)
    assert len(hostile) <= LONGEST
    assert demangle(7, [FILL, hostile, FILL]) == [FILLED, hostile, FILLED]
    assert demangle(8, [FILL]) == [FILLED]


def test_a_run_s_names_kill_few_and_no_other_run_loses_its_own(demangle: DemangleProcess) -> None:
    hostile = [pairs(60 + number) for number in range(60)]
    assert demangle(7, hostile) == hostile
    assert demangle.deaths == {7: MOST_DEATHS}
    assert demangle(7, [FILL]) == [FILL], "it has had its share"
    assert demangle(8, [FILL]) == demangle(0, [FILL]) == [FILLED]


def test_a_long_name_is_cut(demangle: DemangleProcess) -> None:
    (found,) = demangle(7, [pairs(8)])
    assert len(found) == MOST_CHARACTERS and found.startswith("f(std::pair<int, int>, std::pair<")


def test_without_the_process_names_stay_as_they_are(demangle: DemangleProcess) -> None:
    os.kill(demangle.keeper, signal.SIGKILL)
    assert demangle._poll.poll() and demangle._channel.recv(1) == b"", "the worker has ended too"
    assert demangle(7, [FILL, "main"]) == [FILL, "main"]
    assert demangle(7, [FILL] * 100) == [FILL] * 100


def test_one_that_does_not_answer_is_not_waited_for_for_ever(
    demangle: DemangleProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that comes late is nobody's."""
    monkeypatch.setattr(demangle_process, "PATIENCE", 0.0)
    assert demangle(7, [FILL]) == [FILL]
    monkeypatch.undo()
    assert demangle(8, ["_ZN4Tree5EmptyEv"]) == ["Tree::Empty()"]


def test_it_works_for_a_reader_that_is_confined() -> None:
    reader = os.fork()
    if reader == 0:
        code = 1
        try:
            made = DemangleProcess()
            sample_reader.confine()
            code = 0 if made(7, [FILL, pairs(60), FILL]) == [FILLED, pairs(60), FILLED] else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(reader, 0)[1]) == 0


def test_it_ends_with_its_reader() -> None:
    reading, writing = os.pipe()
    reader = os.fork()
    if reader == 0:
        made = DemangleProcess()
        made(7, [FILL])
        with open(f"/proc/{made.keeper}/task/{made.keeper}/children") as children:
            os.write(writing, f"{made.keeper} {children.read()}".encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(reader, 0)
    processes = os.read(reading, 100).split()
    assert len(processes) == 2
    for process in processes:
        while lives(int(process)):
            signal.sigtimedwait([signal.SIGUSR1], 0.01)


def lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
