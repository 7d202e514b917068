"""Others' files in a job's folder are noticed at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from condor_joblens.common import readiness
from condor_joblens.jobs.update_ad_watches import Watches
from condor_joblens.owner_files.operations import Operations


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def test_a_file_that_is_renamed_or_written_there_is_told(tmp_path: Path, folder: int) -> None:
    watches = Watches(Operations())
    watch = watches.add(folder)
    assert watches.take() == set()
    (tmp_path / "new").write_text("a = 1\n")
    (tmp_path / "new").rename(tmp_path / ".update.ad")
    assert watches.take() == {watch}
    assert watches.take() == set()
    (tmp_path / ".update.ad").write_text("a = 2\n")
    assert watches.take() == {watch}


def test_other_files_and_forgotten_folders_are_not_told(tmp_path: Path, folder: int) -> None:
    watches = Watches(Operations())
    watch = watches.add(folder)
    assert watch is not None
    (tmp_path / ".update.ad.tmp").write_text("a = 1\n")
    assert watches.take() == set()
    watches.remove(watch)
    (tmp_path / ".update.ad").write_text("a = 1\n")
    assert watches.take() == set()


def test_a_descriptor_of_something_else_is_refused(tmp_path: Path) -> None:
    assert Watches(Operations()).add(999_999) is None


def test_a_storm_of_files_does_not_hold_us(tmp_path: Path, folder: int) -> None:
    watches = Watches(Operations())
    watches.add(folder)
    for _ in range(3000):
        for name in ("a", "b"):  # the kernel takes two equal events in a row for one
            (tmp_path / name).write_bytes(b"")
    assert watches.take() == set()
    assert readiness.readable([watches], 0), "more is left for the next turn"


def test_after_a_storm_all_folders_are_looked_at(tmp_path: Path) -> None:
    """One job fills the kernel's queue; what is then put into another's folder is told nowhere."""
    folders = [tmp_path / name for name in ("storm", "other", "forgotten")]
    watches = Watches(Operations())
    numbers = []
    for each in folders:
        each.mkdir()
        descriptor = os.open(each, os.O_RDONLY | os.O_DIRECTORY)
        numbers.append(watches.add(descriptor))
        os.close(descriptor)
    assert numbers[2] is not None
    watches.remove(numbers[2])
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for _ in range(most // 2 + 1):
        for name in ("a", "b"):
            (folders[0] / name).write_bytes(b"")
    (folders[1] / ".update.ad").write_text("a = 1\n")
    found: set[int] = set()
    while readiness.readable([watches], 0):
        found |= watches.take()
    assert found == set(numbers[:2])
