"""joblensd without any capability: another process loads programs, and what it hands over is joblensd's to use."""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from condor_joblens.tracer._bpf import lib
from ground import (
    Cgroup,
    Ground,
    Slot,
    bpffs,
    in_child,
    kernel_version,
    known_to_be_missing,
    remove_cgroup,
    until,
)

from condor_joblens.common import descriptors
from condor_joblens.common.own_process import HelperLost
from condor_joblens.common.privilege import CAPABILITIES, keep_only, no_new_privileges
from condor_joblens.common.process_starter import ProcessStarter
from condor_joblens.tracer import loader_messages as messages
from condor_joblens.tracer import map_layout, map_rights
from condor_joblens.tracer.loader import Given
from condor_joblens.tracer.loader_client import MODULE, LoaderProcess, NotLoaded
from condor_joblens.tracer.makers import MAPPINGS, ROWS, Wanted
from condor_joblens.tracer.sensors import Profile, Recorder

UID, GID = 64002, 65534
IS_FREE = kernel_version() >= map_rights.FREE_SINCE

pytestmark = pytest.mark.guest


@pytest.fixture
def starter() -> Iterator[ProcessStarter]:
    starter = ProcessStarter("what loads programs", "-", UID, GID, MODULE)
    yield starter
    starter.close()


@pytest.fixture
def maker(starter: ProcessStarter) -> Iterator[LoaderProcess]:
    maker = LoaderProcess(starter, 64)
    yield maker
    maker.close()


@pytest.fixture
def base(name: str) -> Iterator[Path]:
    """A base with a slot in it, which stays when its tracer ends."""
    base = Ground.place(name)
    (base / "condor_slot1").mkdir(parents=True)
    with bpffs():
        yield base
    remove_cgroup(base)


def powerless(ground: Ground, starter: ProcessStarter) -> None:
    """As joblensd becomes once the node is served."""
    ground.tracer.load_by(starter)
    keep_only(())
    no_new_privileges()


def taken(ground: Ground, path: Path) -> Slot:
    slot = Slot(path, ground.tracer)
    assert ground.tracer.take(slot.cgroup_id, 1) is not None
    return slot


def held(pid: int | str) -> set[int]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    sets = [int(line.split()[1], 16) for line in lines if line.startswith(("CapEff", "CapPrm", "CapBnd", "CapAmb"))]
    return {number for number in range(64) if any(bits >> number & 1 for bits in sets)}


def test_this_kernel_says_whether_maps_can_be_used_without_a_right() -> None:
    """Whoever tries it has all that it had."""
    before = held("self")
    assert map_rights.are_free() == IS_FREE
    assert held("self") == before


def test_where_everybody_may_the_version_says_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "0").write_text("0\n")
    monkeypatch.setattr(map_rights, "DISABLED", tmp_path / "0")
    monkeypatch.setattr(map_rights, "kernel_version", lambda: (5, 15))
    assert not map_rights.are_free()


@pytest.mark.free_maps
def test_levels_are_loaded_counted_and_put_away_without_a_capability(
    name: str, base: Path, starter: ProcessStarter
) -> None:
    job = Cgroup(base / "condor_slot1")

    def live() -> None:
        ground = Ground(name, keep_loaded=("io",))
        before = starter.cpu_seconds()
        powerless(ground, starter)
        assert held("self") == set()
        slot = taken(ground, job.path)
        for _ in range(2):  # attached again without being loaded again
            slot.start_io()
            slot.run("children", 2)
            assert slot.io_totals()["syscall_read_bytes"] > 2 * 3000
            ground.tracer.sensors["io"].discard(slot.index)
            ground.tracer.settle()
            assert not ground.tracer.sensors["io"].sensor.is_attached
        until(lambda: [starter.receive(), starter.cpu_seconds() > before + 0.02][1])  # its child, which has loaded io
        assert set(ground.tracer.missing) <= known_to_be_missing() | {"requests to FUSE"}
        assert slot.totals(connections=True)["process_forked"] == 4
        assert ground.tracer.warnings == []
        ground.tracer.close()
        assert not ground.pins.exists()

    in_child(live)


@pytest.mark.free_maps
def test_samples_are_taken_without_a_capability(name: str, base: Path, starter: ProcessStarter) -> None:
    job = Cgroup(base / "condor_slot1")

    def live() -> None:
        ground = Ground(name)
        powerless(ground, starter)
        slot, profile = taken(ground, job.path), ground.tracer.sensors["profile"]
        assert isinstance(profile.sensor, Profile)
        profile.sensor.describe(slot.index, 1, os.getuid())
        assert profile.start(slot.index), profile.missing
        assert profile.missing == {}
        rows = profile.sensor.new_rows(3)
        assert rows >= 0
        profile.sensor.put_rows(7, rows)
        profile.sensor.put_mappings(struct.pack("<IIQ", 1, 1, 1), struct.pack("<QQQII", 1, 2, 3, 7, 0))
        profile.sensor.changes.finish()
        assert profile.sensor.keys("jl_unwind_rows", 4) == [struct.pack("=I", 7)]
        assert len(profile.sensor.keys("jl_mappings", 16)) == 1
        os.close(profile.sensor.names_of_addresses())
        profile.discard(slot.index)
        ground.tracer.settle()
        ground.tracer.close()

    in_child(live)


@pytest.mark.free_maps
def test_last_events_are_recorded_without_a_capability(name: str, base: Path, starter: ProcessStarter) -> None:
    """Rings have the size that joblensd says, and outlive it."""
    job = Cgroup(base / "condor_slot1")
    job_bytes = 100_000

    def fail(slot: Slot, path: str) -> None:
        os.waitpid(slot.fork(lambda: os.execv("/bin/cat", ["cat", path])), 0)

    def failed(recorder: Recorder, slot: int) -> bytes:
        recording = recorder.recording(slot)
        assert recording is not None
        texts: list[bytes] = recording.records["text"][recording.records["kind"] == lib.RECORDED_FAILED].tolist()
        return b" ".join(texts)

    def without() -> None:
        ground = Ground(name, recorder_bytes=job_bytes)
        powerless(ground, starter)
        slot, demand = taken(ground, job.path), ground.tracer.sensors["recorder"]
        assert isinstance(demand.sensor, Recorder)
        demand.sensor.describe(slot.index, os.getuid())
        assert demand.start(slot.index), demand.missing
        ground.tracer.counters["awaits_exec"][slot.index] = map_layout.AWAITS_NOTHING
        fail(slot, "/before")
        assert b"/before" in failed(demand.sensor, slot.index)

    def with_them() -> None:
        ground = Ground(name, recorder_bytes=job_bytes)
        slot, demand = Slot(job.path, ground.tracer), ground.tracer.sensors["recorder"]
        assert isinstance(demand.sensor, Recorder)
        fail(slot, "/meanwhile")
        found = failed(demand.sensor, slot.index)
        assert b"/before" in found and b"/meanwhile" in found
        ground.tracer.close()

    for act in (without, with_them):
        in_child(act)


@pytest.mark.free_maps
def test_what_it_has_loaded_is_taken_over_in_both_directions(name: str, base: Path, starter: ProcessStarter) -> None:
    job = Cgroup(base / "condor_slot1")

    def without() -> None:
        ground = Ground(name)
        powerless(ground, starter)
        slot = taken(ground, job.path)
        slot.start_io()
        slot.run("children", 2)
        # it ends, and leaves all of it in the kernel

    def with_them() -> None:
        ground = Ground(name)
        assert (ground.tracer.adopted, ground.tracer.warnings) == (True, [])
        slot = Slot(job.path, ground.tracer)
        slot.run("children", 2)
        assert slot.totals()["process_forked"] == 4 and slot.io_totals()["syscall_read_bytes"] > 4 * 3000

    def without_again() -> None:
        ground = Ground(name)
        powerless(ground, starter)
        slot = Slot(job.path, ground.tracer)
        slot.run("children", 2)
        assert slot.totals()["process_forked"] == 6 and slot.io_totals()["syscall_read_bytes"] > 6 * 3000
        ground.tracer.close()
        assert not ground.pins.exists()

    for act in (without, with_them, without_again):
        in_child(act)


def test_what_loads_has_two_capabilities_and_nothing_else(starter: ProcessStarter) -> None:
    lines = Path(f"/proc/{starter.pid}/status").read_text().splitlines()
    facts = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert facts["Uid"].split() == [str(UID)] * 4 and facts["Gid"].split() == [str(GID)] * 4
    assert held(starter.pid) == {CAPABILITIES["CAP_BPF"], CAPABILITIES["CAP_PERFMON"]}
    assert (facts["Groups"].split(), facts["NoNewPrivs"], facts["Seccomp"]) == ([], "1", "2")


def test_arrays_and_clocks_are_bounded(maker: LoaderProcess) -> None:
    for kind in (ROWS, MAPPINGS):
        made = maker.array(kind, 2)
        assert made >= 0
        os.close(made)
    clock = maker.clock(0, 99)
    assert clock >= 0
    os.close(clock)
    for entries in (0, messages.MOST_ENTRIES[MAPPINGS] + 1):
        assert maker.array(MAPPINGS, entries) < 0
    assert maker.array(2, 2) < 0 and maker.clock(1 << 20, 99) < 0 and maker.clock(0, messages.MOST_HZ + 1) < 0


def test_a_child_that_has_ended_costs_no_array(starter: ProcessStarter, maker: LoaderProcess) -> None:
    os.close(maker.array(ROWS, 2))
    assert maker._singles is not None
    process = maker._singles[1]
    until(lambda: maker.begin() == process.pid != 0)
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: process.poll() is not None)
    os.close(maker.array(ROWS, 2))


@pytest.mark.parametrize(
    "packet",
    [
        b"x",
        b"[]",
        b"{}",
        messages.request(messages.Asked(64, Wanted("nothing", 1)), {})[0],
        messages.request(messages.Asked(64, Wanted("../io", 1)), {})[0],
        messages.request(messages.Asked(-1, Wanted("io", 1)), {})[0],
        messages.request(messages.Asked(64, Wanted("io", messages.MOST_SLOTS + 1)), {})[0],
        messages.request(messages.Asked(64, Wanted("recorder", 1, messages.MOST_JOB_BYTES + 1)), {})[0],
        messages.request(messages.Asked(64, Wanted("io", 1)), {"jl_counters": 0})[0],
        b"y" * 9000,
    ],
    ids=range(10),
)
def test_what_joblensd_would_not_ask_for_is_not_done(starter: ProcessStarter, packet: bytes) -> None:
    """And costs no more than the child that was asked."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = starter.start(theirs)
    theirs.close()
    ours.settimeout(60)
    ours.send(packet)
    assert ours.recv(4096) == b""
    assert process.wait(60) == 1
    ours.close()


def test_who_sends_it_another_map_gets_no_program(starter: ProcessStarter) -> None:
    """The kernel checks what a program does with the maps that it has."""
    made = int(lib.new_array(lib.BPF_MAP_TYPE_ARRAY, b"jl_other", 8, 4, 0))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    starter.start(theirs)
    theirs.close()
    ours.settimeout(60)
    descriptors.send(
        ours, *messages.request(messages.Asked(64, Wanted("io", 1)), {"jl_counters": made, "jl_slot_index": made})
    )
    packet, given = descriptors.receive(ours, messages.MOST_ANSWER_BYTES, messages.MOST_DESCRIPTORS)
    assert b'"refused"' in packet and given == []
    os.close(made)
    ours.close()


def ask(maker: LoaderProcess, is_wanted: Callable[[], bool] = lambda: True) -> None:
    maker.load(Wanted("io", 1), [], Given({}, b"", {}), is_wanted)


def test_who_has_ended_is_no_refusal_of_the_kernels(starter: ProcessStarter, maker: LoaderProcess) -> None:
    """joblensd begins again as root."""
    os.kill(starter.pid, signal.SIGKILL)
    with pytest.raises(NotLoaded):
        ask(maker)
    assert maker.array(ROWS, 2) < 0
    os.waitid(os.P_PID, starter.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(HelperLost, match="what loads programs was ended by signal 9"):
        while True:
            starter.receive()
            time.sleep(0.005)


def test_who_hangs_keeps_nobody_waiting_who_wants_nothing_any_more(
    starter: ProcessStarter, maker: LoaderProcess
) -> None:
    os.kill(starter.pid, signal.SIGSTOP)
    try:
        with pytest.raises(Exception, match="given up"):
            ask(maker, lambda: False)
    finally:
        os.kill(starter.pid, signal.SIGCONT)
