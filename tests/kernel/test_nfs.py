"""Level io on a real NFS: a server that waits, is written to late, and says no."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nfs
import pytest
from ground import Slot

pytestmark = [pytest.mark.guest, pytest.mark.nfs]


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A folder as the server has it, and as the client sees it."""
    folder, where = tmp_path / "served", tmp_path / "mounted"
    folder.mkdir()
    where.mkdir()
    with nfs.shared(folder, where):
        yield folder, where


def of_nfs(slot: Slot) -> dict[str, float]:
    return {name[7:]: value for name, value in slot.io_totals().items() if name.startswith("fs_nfs_")}


def test_calls_bytes_and_opens_are_those_of_the_job(slot: Slot, shared: tuple[Path, Path]) -> None:
    slot.start_io()
    _, where = shared
    slot.run("rw", where / "file", 1000, 777)
    assert of_nfs(slot) == {
        "opens": 1, "read_calls": 1000, "write_calls": 1000, "read_bytes": 777_000, "write_bytes": 777_000,
    }  # fmt: skip


def test_a_read_from_the_server_is_waited_for(slot: Slot, shared: tuple[Path, Path]) -> None:
    slot.start_io()
    folder, where = shared
    (folder / "cold").write_bytes(bytes(1 << 20))
    slot.run("readonce", where / "cold", 1 << 20)
    totals = slot.io_totals()
    assert (totals["fs_nfs_read_calls"], totals["fs_nfs_read_bytes"]) == (1, 1 << 20)
    assert totals["wait_nfs_blocked_seconds"] > 0


def test_a_failed_open_is_the_mounts_and_its_error_the_servers(slot: Slot, shared: tuple[Path, Path]) -> None:
    slot.start_io()
    _, where = shared
    slot.run("absent", where / "nothing", 50)
    totals = slot.io_totals()
    assert (totals["fs_nfs_failed_opens"], totals["errors_enoent"]) == (50, 50)
