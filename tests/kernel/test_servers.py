"""What reached a file server, by job: the sum over jobs and nobody is what the server itself has counted."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import ground as grounds
import numpy as np
import pytest
from condor_joblens.tracer._bpf import lib
from ground import Ground, Slot, until

from condor_joblens.agent import measure
from condor_joblens.cli.runs import from_rows as runs_of_rows
from condor_joblens.common.config import Config
from condor_joblens.jobs.run_table import Runs
from condor_joblens.model import classes, servers
from condor_joblens.model.levels import Level
from condor_joblens.publish.classad import usage_ads
from condor_joblens.sinks import server_families
from condor_joblens.tracer import map_layout

pytestmark = [pytest.mark.guest, pytest.mark.requests]

CVMFS, FUSE = list(classes.SERVERS).index("Cvmfs"), list(classes.SERVERS).index("Fuse")
MIB = 1 << 20
REQUESTS, SENT, RECEIVED, NANOSECONDS, ERRORS = range(5)
SAID = [REQUESTS, SENT, RECEIVED, ERRORS]
"""The numbers that a daemon knows as well, in its order."""

libc = ctypes.CDLL(None, use_errno=True)


class Daemon:
    """Our own FUSE file system, and what it was asked and has answered."""

    def __init__(self, where: Path, counts: mmap.mmap) -> None:
        self.where, self._counts = where, counts

    def counted(self) -> list[int]:
        """Requests, their bytes, bytes of answers, answers that are errors."""
        return np.frombuffer(self._counts, "u8").tolist()  # type: ignore[no-any-return]


@contextmanager
def fuse(where: Path, subtype: str = "cvmfs2", **options: str) -> Iterator[Daemon]:
    """Mounted at `where`; options are the environment's words FUSE_FS_..."""
    where.mkdir(exist_ok=True)
    file = where.parent / f"{where.name}.counts"
    file.write_bytes(bytes(32))
    program = [grounds.fuse_program(), where, "-f", "-o", f"subtype={subtype},attr_timeout=3600,entry_timeout=3600"]
    words = {f"FUSE_FS_{name}": value for name, value in options.items()}
    server = subprocess.Popen(program, env={**os.environ, **words, "FUSE_FS_COUNTS": str(file)})
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 32) as counts:
        try:
            until(lambda: where.is_mount() and counts[0])
            yield Daemon(where, counts)
        finally:
            subprocess.run(["umount", "-l", str(where)], check=True)
            server.wait(10)


def of_slot(slot: Slot) -> np.ndarray:
    """What the slot asked servers, by class and number."""
    counted = slot.tracer.counters["servers"][slot.index]
    return counted.reshape(map_layout.SERVER_CLASSES, map_layout.SERVER_NUMBERS).astype("i8")


class Totals:
    """What slots and nobody asked of a daemon."""

    def __init__(self, ground: Ground) -> None:
        self._tracer = ground.tracer

    def _of(self, daemon: Daemon, cgroup_ids: list[int]) -> np.ndarray:
        device = os.stat(daemon.where).st_dev
        keys, values = self._tracer.servers.read()
        its = (keys["address"][:, 1] & 0xFFFFFFFF) == os.major(device) << 20 | os.minor(device)
        its &= (keys["address"][:, 1] >> 32) == self._tracer.fuse_mounts()[os.minor(device)][0]
        its &= np.isin(keys["cgroup_id"], cgroup_ids)
        total: np.ndarray = values["numbers"][its].sum(axis=0).astype("i8")
        return total

    def nobodys(self, daemon: Daemon) -> np.ndarray:
        """By number; this machine may have other daemons."""
        return self._of(daemon, [0])

    def all(self, daemon: Daemon, *slots: Slot) -> np.ndarray:
        """With what `slots` asked."""
        return self._of(daemon, [0, *(slot.cgroup_id for slot in slots)])

    def agree(self, daemon: Daemon, *slots: Slot) -> None:
        """Waits until nothing is on its way any more, and both sides have the same."""
        try:
            until(lambda: self.all(daemon, *slots)[SAID].tolist() == daemon.counted())
        except AssertionError:
            assert self.all(daemon, *slots)[SAID].tolist() == daemon.counted()


def pages_of(path: Path, flags: int = mmap.MAP_SHARED) -> mmap.mmap:
    """The file, mapped; not one page is touched."""
    file = os.open(path, os.O_RDONLY)
    pages = mmap.mmap(file, MIB, flags, mmap.PROT_READ)
    os.close(file)
    return pages


def locked(pages: mmap.mmap) -> None:
    """The kernel keeps them, whatever else needs memory."""
    memory = np.frombuffer(pages, np.uint8)
    assert libc.mlock(ctypes.c_void_p(memory.ctypes.data), ctypes.c_size_t(len(pages))) == 0


@pytest.fixture
def totals(ground: Ground) -> Totals:
    assert "requests to FUSE" not in ground.tracer.missing, ground.tracer.missing
    return Totals(ground)


def doing(slot: Slot, act: Callable[[], object]) -> None:
    """A child in the slot does this and ends."""
    slot.tracer.counters["awaits_exec"][slot.index] = 0
    slot.call(act)


def read_whole(path: Path) -> None:
    assert len(path.read_bytes()) == MIB


def test_the_daemon_has_counted_what_the_job_and_nobody_have(slot: Slot, totals: Totals, tmp_path: Path) -> None:
    with fuse(tmp_path / "mounted") as daemon:
        doing(slot, lambda: read_whole(daemon.where / "data"))
        totals.agree(daemon, slot)
        counted = of_slot(slot)[CVMFS]
        assert counted[RECEIVED] > MIB and counted[REQUESTS] > 3 and counted[NANOSECONDS] > 0
        assert totals.nobodys(daemon)[RECEIVED] < 4096  # the mount itself


def test_what_a_cache_answers_reaches_no_server(slot: Slot, totals: Totals, tmp_path: Path) -> None:
    with fuse(tmp_path / "mounted") as daemon, (daemon.where / "data").open("rb") as file:
        doing(slot, lambda: os.pread(file.fileno(), MIB, 0))
        with pages_of(daemon.where / "data") as pages:
            locked(pages)
            totals.agree(daemon, slot)
            before = of_slot(slot)[CVMFS][RECEIVED]
            assert before > MIB
            doing(slot, lambda: [os.pread(file.fileno(), MIB, 0) for _ in range(10)])
            totals.agree(daemon, slot)
            assert of_slot(slot)[CVMFS][RECEIVED] < before + 4096


def test_each_job_has_what_it_asked_itself(ground: Ground, totals: Totals, tmp_path: Path) -> None:
    slots = [ground.slot(f"condor_slot{number}") for number in (1, 2, 3)]
    with fuse(tmp_path / "mounted") as daemon:
        doing(slots[0], lambda: read_whole(daemon.where / "data"))
        doing(slots[1], lambda: [(daemon.where / f"nothing{number}").exists() for number in range(50)])
        totals.agree(daemon, *slots)
        first, second, third = (of_slot(slot)[CVMFS] for slot in slots)
        assert first[RECEIVED] > MIB > 100_000 > second[RECEIVED]
        assert (second[REQUESTS], second[ERRORS]) == (50, 50)
        assert not third.any()


def test_requests_that_had_to_wait_are_those_of_who_caused_them(ground: Ground, totals: Totals, tmp_path: Path) -> None:
    """One in the background at a time: all others are sent when the daemon answers one, be it another job's."""
    slots = [ground.slot(f"condor_slot{number}") for number in (1, 2)]
    with fuse(tmp_path / "mounted", BACKGROUND="1") as daemon:
        readers = []
        for slot, name in zip(slots, ("data", "other")):
            ground.tracer.counters["awaits_exec"][slot.index] = 0
            readers.append(slot.fork(lambda name=name: read_whole(daemon.where / name)))  # type: ignore[misc]
        assert [os.waitpid(reader, 0)[1] for reader in readers] == [0, 0]
        totals.agree(daemon, *slots)
        headers = 16 * daemon.counted()[0]
        for slot in slots:
            assert MIB <= of_slot(slot)[CVMFS][RECEIVED] <= MIB + headers + 4096
        assert totals.nobodys(daemon)[RECEIVED] < 4096


def test_what_the_kernel_writes_late_is_the_writers(slot: Slot, totals: Totals, tmp_path: Path) -> None:
    with fuse(tmp_path / "mounted", WRITES_LATE="yes") as daemon:
        slot.tracer.counters["awaits_exec"][slot.index] = 0
        ready, told = os.pipe()
        end, go_on = os.pipe()

        def write_and_stay() -> None:
            file = os.open(daemon.where / "data", os.O_WRONLY)
            assert os.pwrite(file, b"x" * MIB, 0) == MIB
            os.write(told, b"!")
            os.close(go_on)
            os.read(end, 1)

        writer = slot.fork(write_and_stay)
        assert os.read(ready, 1) == b"!"
        assert of_slot(slot)[CVMFS][SENT] < MIB
        folder = os.open(daemon.where, os.O_RDONLY)
        assert libc.syncfs(folder) == 0  # threads of the kernel write
        os.close(folder)
        until(lambda: of_slot(slot)[CVMFS][SENT] > MIB)
        assert totals.nobodys(daemon)[SENT] < 4096
        os.close(go_on)
        assert os.waitpid(writer, 0)[1] == 0
        for descriptor in (ready, told, end):
            os.close(descriptor)
        totals.agree(daemon, slot)


def test_what_two_jobs_write_to_one_file_late_is_nobodys(ground: Ground, totals: Totals, tmp_path: Path) -> None:
    slots = [ground.slot(f"condor_slot{number}") for number in (1, 2)]
    with fuse(tmp_path / "mounted", WRITES_LATE="yes") as daemon:
        for slot in slots:
            doing(slot, lambda: os.close(os.open(daemon.where / "data", os.O_WRONLY)))
        kept = os.open(daemon.where / "data", os.O_WRONLY)
        os.pwrite(kept, b"x" * MIB, 0)
        folder = os.open(daemon.where, os.O_RDONLY)
        assert libc.syncfs(folder) == 0
        until(lambda: totals.nobodys(daemon)[SENT] > MIB)
        os.close(folder)
        os.close(kept)
        totals.agree(daemon, *slots)
        assert all(of_slot(slot)[CVMFS][SENT] < 4096 for slot in slots)


def test_who_is_in_no_slot_is_nobody(ground: Ground, totals: Totals, tmp_path: Path) -> None:
    with fuse(tmp_path / "mounted", subtype="something") as daemon:
        read_whole(daemon.where / "data")
        totals.agree(daemon)
        assert ground.tracer.unattributed()[FUSE][RECEIVED] > MIB
        assert totals.nobodys(daemon)[RECEIVED] > MIB


def test_what_the_wrapper_asks_is_not_the_jobs(slot: Slot, totals: Totals, tmp_path: Path) -> None:
    with fuse(tmp_path / "mounted") as daemon:
        slot.tracer.begin_at_next_exec(slot.index)
        slot.call(lambda: read_whole(daemon.where / "data"))
        totals.agree(daemon, slot)
        assert not of_slot(slot).any() and totals.nobodys(daemon)[RECEIVED] > MIB


def entries(slot: Slot) -> dict[tuple[int, int], list[int]]:
    """The slot's entries by mount: its device number and when it began."""
    keys, values = slot.tracer.servers.read()
    own = keys["cgroup_id"] == slot.cgroup_id
    mounts = [(int(mount) & 0xFFFFFFFF, int(mount) >> 32) for mount in keys["address"][own][:, 1]]
    return dict(zip(mounts, values["numbers"][own].tolist()))


def test_each_mount_has_an_entry_and_they_add_up(slot: Slot, totals: Totals, tmp_path: Path) -> None:
    with fuse(tmp_path / "one") as one, fuse(tmp_path / "two", subtype="eosxd") as two:
        doing(slot, lambda: read_whole(one.where / "data"))
        doing(slot, lambda: (two.where / "nothing").exists())
        for daemon in (one, two):
            totals.agree(daemon, slot)
        found = entries(slot)
        devices = {os.stat(daemon.where).st_dev: daemon for daemon in (one, two)}
        assert {os.makedev(device >> 20, device & 0xFFFFF) for device, _ in found} == set(devices)
        assert np.sum(list(found.values()), axis=0).tolist() == of_slot(slot).sum(axis=0).tolist()
        known = slot.tracer.fuse_mounts()
        assert {known[device][1] for device, _ in found} == {"fuse.cvmfs2", "fuse.eosxd"}


def test_a_mount_with_the_device_number_of_an_earlier_one_is_another(
    slot: Slot, totals: Totals, tmp_path: Path
) -> None:
    devices = []
    for _ in range(2):
        with fuse(tmp_path / "mounted") as daemon:
            devices.append(os.stat(daemon.where).st_dev)
            doing(slot, lambda where=daemon.where: read_whole(where / "data"))  # type: ignore[misc]
    if devices[0] == devices[1]:
        assert len(entries(slot)) == 2


def test_a_job_with_many_mounts_keeps_its_total(slot: Slot, totals: Totals, tmp_path: Path) -> None:
    with fuse(tmp_path / "one") as one, fuse(tmp_path / "two") as two:
        slot.tracer.counters["servers_made"][slot.index] = map_layout.MAX_SERVERS - 1
        for daemon in (one, two):
            doing(slot, lambda where=daemon.where: read_whole(where / "data"))  # type: ignore[misc]
        totals.agree(one, slot)
        until(lambda: of_slot(slot)[CVMFS][RECEIVED] > 2 * MIB)
        assert len(entries(slot)) == 1


TRIES = 10


def test_local_files_run_none_of_it(slot: Slot, totals: Totals, data: Path, tmp_path: Path) -> None:
    programs = [name for sensor in slot.tracer.requests for name in sensor.programs()]
    assert programs
    stats = lib.bpf_enable_stats(lib.BPF_STATS_RUN_TIME)
    try:
        for _ in range(TRIES):  # other tests on this machine may use FUSE meanwhile
            before = slot.tracer.programs_cost()
            slot.run("rw", data, 1000, 4096)
            local = slot.tracer.programs_cost()
            if all(local[name][1] - before[name][1] < 1000 for name in programs):
                break
        else:
            pytest.fail("they run for local files")
        with fuse(tmp_path / "mounted") as daemon:
            doing(slot, lambda: read_whole(daemon.where / "data"))
        remote = slot.tracer.programs_cost()
        assert any(remote[name][1] > local[name][1] for name in programs)
    finally:
        os.close(stats)


def test_entries_of_a_slot_go_with_it(ground: Ground, totals: Totals, tmp_path: Path) -> None:
    slot = ground.slot()
    with fuse(tmp_path / "mounted") as daemon:
        doing(slot, lambda: read_whole(daemon.where / "data"))
        totals.agree(daemon, slot)
        assert entries(slot)
        index = slot.index
        ground.tracer.stop(index)
        ground.tracer.settle()
        assert not entries(slot) and not ground.tracer.counters["servers"][index].any()


def test_it_goes_by_the_row_into_the_ad_the_page_and_top(slot: Slot, totals: Totals, tmp_path: Path) -> None:
    runs = Runs(str(tmp_path / "runs"), 4)
    node = grounds.kernel_node(slot.tracer, runs, Config())
    run = runs.add(slot.cgroup_id)
    assert run is not None
    runs.state["kernel_slot"][run] = slot.index
    runs.rows["level_number"][run], runs.rows["owner"][run] = Level.BASIC, b"alice"
    with fuse(tmp_path / "mounted") as daemon:
        doing(slot, lambda: read_whole(daemon.where / "data"))
        totals.agree(daemon, slot)
        row = runs.rows[run : run + 1]

        def is_measured() -> bool:
            node.collectors.kernel.walk_next_time()
            measure._collect(node, runs.living(), at_end=False)
            return int(row["server_cvmfs_requests"][0]) == of_slot(slot)[CVMFS][REQUESTS]

        until(is_measured)  # that the file was closed can be answered late
        requests, received = (int(row[f"server_cvmfs_{name}"][0]) for name in ("requests", "received_bytes"))
        assert requests > 3 and received > MIB and row["server_fuse_requests"][0] == 0
        assert all(row[f"server_{name}_requests"][0] == -1 for name in slot.tracer.uncounted_servers())
        (listed,) = servers.records(row["servers"][0])
        assert listed["Name"][:40] == str(daemon.where)[:40] and listed["Class"] == "Cvmfs"
        assert (listed["Requests"], listed["ReceivedBytes"]) == (requests, received)
    (ad,) = usage_ads(row)
    assert f"Server=[Cvmfs=[Requests={requests};" in ad and f'Class="Cvmfs";Requests={requests};' in ad
    page = b"".join(server_families.of_jobs(['owner="alice"'], row, False, str)).decode()
    assert f'filesystem="cvmfs"}} {received}\n' in page
    (shown,) = runs_of_rows(row)
    assert shown.servers == [listed]
