"""The cursor's file: what it knows outlives the process, whatever the disk does."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from condor_joblens.export.cursor import Cursor, RunIndex


@pytest.fixture
def full_disk(disk: Callable[[str], Path]) -> Path:
    """A disk with room for one cursor, and not for a second one beside it."""
    return disk("1m")


def test_on_a_full_disk_it_goes_on_in_the_file_that_there_is(full_disk: Path) -> None:
    path, run_index = str(full_disk / "cursor"), RunIndex()
    first = Cursor(path, run_index)
    places = run_index.places([7, 8, 9])
    first.set_runs("sample", run_index.keys[places], places, np.array([70, 80, 90], "u8"))
    first.set_event(5, 1000)
    first.lose("overflow", 3)
    for sequence in (0, 1):  # of processes that are killed
        run_index = RunIndex()
        run_index.place_of(123)  # another sink's run came first: the places are not those in the file
        cursor = Cursor(path, run_index)
        assert not cursor.is_new and os.listdir(full_disk) == ["cursor"]
        assert cursor.event == (5, 1000 + sequence) and cursor.undeclared() == {"overflow": 3 + sequence}
        assert cursor.sequences("sample")[run_index.places([7, 8, 9, 123])].tolist() == [70, 80, 90, 0]
        assert np.count_nonzero(cursor.sequences("sample")) == 3
        cursor.set_event(5, 1001)
        cursor.lose("overflow", 1)


def test_a_disk_without_room_for_the_first_one_says_so(full_disk: Path) -> None:
    with (full_disk / "other").open("wb") as other:
        os.posix_fallocate(other.fileno(), 0, 500_000)
    with pytest.raises(OSError, match="No space left"):
        Cursor(str(full_disk / "cursor"), RunIndex())
    assert os.listdir(full_disk) == ["other"]
