"""What a job reads of mapped files from a file server is in no call: it is counted where the server answers."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from ground import Ground, Slot
from test_servers import CVMFS, FUSE, MIB, RECEIVED, Totals, doing, fuse, locked, of_slot, pages_of

from condor_joblens.sample import server_counters
from condor_joblens.tracer import map_layout

pytestmark = [pytest.mark.guest, pytest.mark.requests]

MAP_POPULATE = 0x8000
libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def totals(ground: Ground) -> Totals:
    assert "requests to FUSE" not in ground.tracer.missing, ground.tracer.missing
    return Totals(ground)


def mapped(slot: Slot) -> dict[str, int]:
    """What was counted of the slot's mapped files, by class, without zeros."""
    found = server_counters.columns(slot.tracer.counters[slot.index : slot.index + 1])
    return {name: int(found[name][0]) for name in server_counters.MAPPED if found[name][0]}


def touched(pages: mmap.mmap) -> None:
    assert not any(pages[place] for place in range(0, MIB, mmap.PAGESIZE))


def touch(path: Path) -> None:
    touched(pages_of(path))


def populate(path: Path) -> None:
    pages_of(path, mmap.MAP_SHARED | MAP_POPULATE)


def lock(path: Path) -> None:
    locked(pages_of(path))


def write_from(path: Path) -> None:
    """The kernel touches the pages, in a call that writes."""
    memory = os.memfd_create("copy")
    assert os.write(memory, pages_of(path)) == MIB


@pytest.mark.parametrize("act", [touch, populate, lock, write_from])
def test_a_mapped_file_is_counted_to_the_byte(
    slot: Slot, totals: Totals, tmp_path: Path, act: Callable[[Path], None]
) -> None:
    with fuse(tmp_path / "mounted") as daemon:
        doing(slot, lambda: act(daemon.where / "data"))
        totals.agree(daemon, slot)
        assert mapped(slot) == {"server_cvmfs_mapped_bytes": MIB}
        assert of_slot(slot)[CVMFS][RECEIVED] > MIB


def test_what_calls_read_is_not_that_of_mapped_files(slot: Slot, totals: Totals, tmp_path: Path) -> None:
    def read() -> None:
        file = os.open(daemon.where / "data", os.O_RDONLY)
        os.posix_fadvise(file, 0, 65536, os.POSIX_FADV_WILLNEED)
        assert len(os.read(file, MIB // 2)) == MIB // 2
        buffer = bytearray(MIB // 4)
        assert os.preadv(file, [buffer], MIB // 2) == len(buffer)
        memory = os.memfd_create("copy")
        assert os.sendfile(memory, file, 3 * MIB // 4, MIB // 4) == MIB // 4

    with fuse(tmp_path / "mounted") as daemon:
        doing(slot, read)
        totals.agree(daemon, slot)
        assert of_slot(slot)[CVMFS][RECEIVED] > MIB
        assert not mapped(slot)


def test_what_a_cache_has_costs_a_mapped_file_nothing(ground: Ground, totals: Totals, tmp_path: Path) -> None:
    first, second = ground.slot("condor_slot1"), ground.slot("condor_slot2")
    with fuse(tmp_path / "mounted") as daemon:
        pages = pages_of(daemon.where / "data")
        doing(first, lambda: touched(pages))
        locked(pages)  # the kernel keeps them, whatever else needs memory
        doing(second, lambda: touched(pages))
        totals.agree(daemon, first, second)
        assert mapped(first) == {"server_cvmfs_mapped_bytes": MIB}
        assert not mapped(second) and not of_slot(second).any()
        pages.close()


def test_it_is_by_class_and_a_local_file_has_none(slot: Slot, totals: Totals, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(bytes(MIB))
    file = os.open(local, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, MIB, os.POSIX_FADV_DONTNEED)
    os.close(file)
    with fuse(tmp_path / "mounted", subtype="sshfs") as daemon:
        doing(slot, lambda: (touch(local), touch(daemon.where / "other")))
        totals.agree(daemon, slot)
        assert mapped(slot) == {"server_fuse_mapped_bytes": MIB}
        assert of_slot(slot)[FUSE][RECEIVED] > MIB


def test_what_nobody_maps_is_nobody_s_and_a_job_s_begins_anew(slot: Slot, totals: Totals, tmp_path: Path) -> None:
    with fuse(tmp_path / "mounted") as daemon:
        touch(daemon.where / "data")
        doing(slot, lambda: touch(daemon.where / "other"))
        totals.agree(daemon, slot)
        assert mapped(slot) == {"server_cvmfs_mapped_bytes": MIB}
        index = slot.index
        slot.tracer.stop(index)
        slot.tracer.settle()
        assert not slot.tracer.counters["mapped_bytes"][index].any()


def test_each_class_has_a_word_of_the_kernel_s(slot: Slot) -> None:
    assert len(server_counters.MAPPED) == map_layout.SERVER_CLASSES
    assert slot.tracer.counters["mapped_bytes"].shape[1] == map_layout.SERVER_CLASSES
