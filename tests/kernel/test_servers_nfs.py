"""What reached a server of NFS, by job: the sum over jobs and nobody is what the server has counted."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import nfs
import numpy as np
import pytest
from ground import Ground, Slot, until
from test_mapped_files import mapped, touch
from test_servers import ERRORS, MIB, NANOSECONDS, RECEIVED, REQUESTS, SENT, doing, of_slot

from condor_joblens.model import classes
from condor_joblens.tracer import map_layout

pytestmark = [pytest.mark.guest, pytest.mark.nfs, pytest.mark.requests]

NFS = list(classes.SERVERS).index("Nfs")
NFSD = Path("/proc/net/rpc/nfsd")
HEADERS = 700
"""Bytes that a request and its answer have at most beside what is read or written."""

libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def shared(ground: Ground, tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A folder as the server has it, and as the client sees it."""
    assert not ground.tracer.missing, ground.tracer.missing
    folder, where = tmp_path / "served", tmp_path / "mounted"
    folder.mkdir()
    where.mkdir()
    with nfs.shared(folder, where):
        yield folder, where


class Both:
    """What server and tracer have counted since this was made."""

    def __init__(self, ground: Ground, *slots: Slot) -> None:
        self._tracer, self._slots = ground.tracer, slots
        self._before, self._served_before = self._counted(), self._served()

    def _counted(self) -> np.ndarray:
        total: np.ndarray = self._tracer.unattributed()[NFS].astype("i8")
        return total + sum(of_slot(slot)[NFS] for slot in self._slots)

    @staticmethod
    def _served() -> np.ndarray:
        lines = {line.split()[0]: line.split()[1:] for line in NFSD.read_text().splitlines()}
        return np.array([int(lines["rpc"][0]), *(int(number) for number in lines["io"][:2])])

    def counted(self) -> np.ndarray:
        """By number, of all slots and nobody."""
        found: np.ndarray = self._counted() - self._before
        return found

    def served(self) -> list[int]:
        """Requests, bytes that were read, bytes that were written."""
        return (self._served() - self._served_before).tolist()

    def agree(self) -> None:
        """Waits until nothing is on its way, and both have the same requests, and bytes but for headers."""
        until(lambda: int(self.counted()[REQUESTS]) == self.served()[0])
        requests, read, written = self.served()
        assert read <= self.counted()[RECEIVED] <= read + requests * HEADERS
        assert written <= self.counted()[SENT] <= written + requests * HEADERS


def test_the_server_has_counted_what_the_job_and_nobody_have(
    ground: Ground, slot: Slot, shared: tuple[Path, Path]
) -> None:
    folder, where = shared
    (folder / "cold").write_bytes(bytes(MIB))
    both = Both(ground, slot)
    doing(slot, lambda: (where / "cold").read_bytes())
    doing(slot, lambda: (where / "new").write_bytes(bytes(MIB)))
    doing(slot, lambda: (where / "nothing").exists())
    both.agree()
    counted = of_slot(slot)[NFS]
    assert counted[RECEIVED] > MIB and counted[SENT] > MIB
    assert counted[NANOSECONDS] > 0 and counted[ERRORS] >= 1


def test_each_job_has_what_it_asked_itself(ground: Ground, shared: tuple[Path, Path]) -> None:
    folder, where = shared
    for name in ("one", "two", "three"):
        (folder / name).write_bytes(bytes(MIB))
    slots = [ground.slot(f"condor_slot{number}") for number in (1, 2, 3)]
    both = Both(ground, *slots)
    doing(slots[0], lambda: (where / "one").read_bytes())
    doing(slots[1], lambda: (where / "mine").write_bytes(bytes(MIB)))
    (where / "three").read_bytes()
    both.agree()
    first, second, third = (of_slot(slot)[NFS] for slot in slots)
    assert first[RECEIVED] > MIB > 100_000 > first[SENT]
    assert second[SENT] > MIB > 100_000 > second[RECEIVED]
    assert not third.any()


def test_what_the_kernel_writes_late_is_the_writers(ground: Ground, slot: Slot, shared: tuple[Path, Path]) -> None:
    _, where = shared
    slot.tracer.counters["awaits_exec"][slot.index] = 0
    ready, told = os.pipe()
    end, go_on = os.pipe()
    both = Both(ground, slot)

    def write_and_stay() -> None:
        file = os.open(where / "late", os.O_WRONLY | os.O_CREAT)
        assert os.pwrite(file, b"x" * MIB, 0) == MIB
        os.write(told, b"!")
        os.close(go_on)
        os.read(end, 1)

    writer = slot.fork(write_and_stay)
    assert os.read(ready, 1) == b"!"
    folder = os.open(where, os.O_RDONLY)
    assert libc.syncfs(folder) == 0  # threads of the kernel write
    os.close(folder)
    until(lambda: of_slot(slot)[NFS][SENT] > MIB)
    os.close(go_on)
    assert os.waitpid(writer, 0)[1] == 0
    for descriptor in (ready, told, end):
        os.close(descriptor)
    both.agree()


def test_a_server_has_an_entry_by_its_address(ground: Ground, slot: Slot, shared: tuple[Path, Path]) -> None:
    folder, where = shared
    (folder / "cold").write_bytes(bytes(MIB))
    doing(slot, lambda: (where / "cold").read_bytes())
    keys, values = ground.tracer.servers.read()
    own = keys["cgroup_id"] == slot.cgroup_id
    assert keys["address"][own].tobytes() == bytes(10) + b"\xff\xff" + bytes((127, 0, 0, 1))
    assert (keys["port"][own], keys["class"][own]) == (2049, NFS)
    assert values["numbers"][own].sum(axis=0).tolist() == of_slot(slot)[NFS].tolist()
    assert len(of_slot(slot)[NFS]) == map_layout.SERVER_NUMBERS


def test_a_mapped_file_is_counted_to_the_byte(ground: Ground, slot: Slot, shared: tuple[Path, Path]) -> None:
    folder, where = shared
    (folder / "cold").write_bytes(bytes(MIB))
    (folder / "read").write_bytes(bytes(MIB))
    both = Both(ground, slot)
    doing(slot, lambda: ((where / "read").read_bytes(), touch(where / "cold")))
    both.agree()
    assert of_slot(slot)[NFS][RECEIVED] > 2 * MIB
    assert mapped(slot) == {"server_nfs_mapped_bytes": MIB}
