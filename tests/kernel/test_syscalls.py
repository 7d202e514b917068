"""Level io: calls, errors, bytes and waits by class are what a job that counts them itself knows."""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import ground as grounds
import numpy as np
import pytest
from condor_joblens.tracer._bpf import lib
from ground import Cgroup, Ground, Slot, forked, leave_the_cpu, on_ground, until, until_asleep

from condor_joblens.common.errors import JobLensError
from condor_joblens.model import classes
from condor_joblens.sample import io_counters as level_io
from condor_joblens.tracer import loader, map_layout
from condor_joblens.tracer.cpus import possible_cpus
from condor_joblens.tracer.loader import OBJECTS
from condor_joblens.tracer.sensors.io import Io


@pytest.fixture
def io_slot(ground: Ground) -> Slot:
    slot = ground.slot()
    slot.start_io()
    return slot


@contextmanager
def mounted(*arguments: object) -> Iterator[None]:
    """`mount` with these arguments, the last of which is where."""
    subprocess.run(["mount", *map(str, arguments)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(arguments[-1])], check=True)


@contextmanager
def fuse(where: Path, subtype: str) -> Iterator[None]:
    """Our own FUSE file system."""
    program = grounds.fuse_program()
    server = subprocess.Popen([program, where, "-f", "-o", f"subtype={subtype},attr_timeout=3600,entry_timeout=3600"])
    try:
        until(lambda: where.is_mount())
        yield
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)
        server.wait(10)


@contextmanager
def place(kind: str, folder: Path) -> Iterator[Path]:
    """A file on a file system of this class, made in `folder`."""
    if kind == "local":
        yield folder / "data"
        return
    where = folder / "mounted"
    where.mkdir()
    if kind == "tmpfs":
        with mounted("-t", "tmpfs", "tmpfs", where):
            yield where / "data"
    elif kind == "overlay":
        # on a tmpfs, since an overlay can't lie on another
        base = folder / "base"
        base.mkdir()
        with mounted("-t", "tmpfs", "tmpfs", base):
            for part in ("lower", "upper", "work"):
                (base / part).mkdir()
            options = f"lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/work"
            with mounted("-t", "overlay", "-o", options, "overlay", where):
                yield where / "data"
    else:
        with fuse(where, "cvmfs2"):
            yield where / "data"


def of(slot: Slot, group: str) -> dict[str, float]:
    """The totals of one group."""
    return {name[len(group) :]: value for name, value in slot.io_totals().items() if name.startswith(group)}


@pytest.mark.parametrize(
    ("kind", "times"),
    [
        pytest.param("local", 500_000, marks=pytest.mark.disk),
        ("tmpfs", 500_000),
        ("overlay", 500_000),
        ("cvmfs", 25_000),  # its server is another process, which each of them asks
    ],
)
def test_a_million_reads_and_writes_are_counted_by_file_system(
    io_slot: Slot, tmp_path: Path, kind: str, times: int
) -> None:
    with place(kind, tmp_path) as path:
        io_slot.run("rw", path, times, 777)
    assert of(io_slot, f"fs_{kind}_") == {
        "opens": 1,
        "read_calls": times,
        "write_calls": times,
        "read_bytes": times * 777,
        "write_bytes": times * 777,
    }


@pytest.mark.guest
@pytest.mark.parametrize("kind", ["overlay", "cvmfs"])
def test_reads_and_writes_are_counted_by_file_system(io_slot: Slot, tmp_path: Path, kind: str) -> None:
    with place(kind, tmp_path) as path:
        ended = io_slot.run("rw", path, 1000, 777)
    files = of(io_slot, f"fs_{kind}_")
    assert files == {
        "opens": 1, "read_calls": 1000, "write_calls": 1000, "read_bytes": 777_000, "write_bytes": 777_000,
    }  # fmt: skip
    calls = of(io_slot, "syscall_")
    assert (calls["read_bytes"], calls["write_bytes"]) == (ended.io["rchar"], ended.io["wchar"])
    assert (calls["read_calls"], calls["write_calls"]) == (ended.io["syscr"], ended.io["syscw"])
    # half of the writes and reads seek first
    assert calls["metadata_calls"] >= 500


@pytest.mark.guest
def test_failing_opens_are_counted_by_error_and_file_system(io_slot: Slot, tmp_path: Path) -> None:
    times = 100_000 // 6 if grounds.is_native() else 500
    with place("tmpfs", tmp_path) as path:
        io_slot.run("badopens", path.parent, times)
    errors = of(io_slot, "errors_")
    for name in ("enoent", "enotdir", "eisdir", "eloop", "eexist", "eacces"):
        assert errors[name] == times, name
    assert of(io_slot, "fs_tmpfs_") == {"opens": 1, "failed_opens": 6 * times}
    assert of(io_slot, "syscall_")["open_errors"] == 6 * times


@pytest.mark.parametrize("kind", ["tmpfs", pytest.param("cvmfs", marks=pytest.mark.guest)])
def test_a_failed_opens_class_is_that_of_the_mount_with_the_longest_prefix(
    ground: Ground, tmp_path: Path, kind: str
) -> None:
    slot = ground.slot()
    slot.start_io()
    with place(kind, tmp_path) as path:
        # as joblensd does with every round
        ground.tracer.settle()
        slot.run("absent", path.parent / "not" / "there", 100)
        slot.run("absent", f"{path.parent}else", 10)
    assert of(slot, f"fs_{kind}_") == {"failed_opens": 100}
    assert sum(value for name, value in of(slot, "fs_").items() if name.endswith("failed_opens")) == 110


@pytest.mark.guest
def test_a_copy_reads_from_one_file_system_and_writes_to_the_other(io_slot: Slot, tmp_path: Path) -> None:
    times, size = 500, 1000
    with place("tmpfs", tmp_path) as path:
        io_slot.run("copies", path, path.parent / "copy", times, size)
    assert of(io_slot, "fs_tmpfs_") == {
        "opens": 2,
        "read_calls": 3 * times,
        "read_bytes": 3 * times * size,
        "write_calls": 3 * times,
        "write_bytes": 3 * times * size,
    }
    pipe = of(io_slot, "fs_pipe_")
    assert (pipe["read_calls"], pipe["read_bytes"]) == (times, times * size)


@pytest.mark.guest
def test_io_uring_is_counted_by_file_system_or_named_as_missing(io_slot: Slot, tmp_path: Path) -> None:
    times, size = 800, 512
    with place("tmpfs", tmp_path) as path:
        io_slot.run("uring", path, times, size)
    done = 0 if "io_uring" in io_slot.tracer.missing else times
    files = of(io_slot, "fs_tmpfs_")
    # one write is an ordinary one
    assert (files["write_calls"], files["write_bytes"]) == (done + 1, (done + 1) * size)
    assert (files.get("read_calls", 0), files.get("read_bytes", 0)) == (done, done * size)
    assert ("io_uring" in io_slot.tracer.missing) == (grounds.kernel_version() < (5, 19))


def declared(slot: Slot) -> list[str]:
    """What was seen of the slot and could not be counted."""
    _, counted = slot.tracer.sensors["io"].counters(np.array([slot.index]))
    return level_io.uncounted(counted)[0]


@pytest.mark.guest
@pytest.mark.parametrize("verb", ["uringskip", "uringfull"])
def test_io_uring_s_completions_that_are_told_nobody_are_declared(io_slot: Slot, tmp_path: Path, verb: str) -> None:
    if "io_uring" in io_slot.tracer.missing:
        assert grounds.kernel_version() < (5, 19)
        return
    with place("tmpfs", tmp_path) as path:
        io_slot.run("uring", path, 8, 512)
        assert declared(io_slot) == []
        io_slot.run(verb, path, 20, 512)
    assert declared(io_slot) == ["io_uring without completions"]
    files = of(io_slot, "fs_tmpfs_")
    assert files["write_calls"] + files["read_calls"] < 1 + 8 + 8 + 20


@pytest.mark.guest
def test_multishot_reads_of_io_uring_are_declared(io_slot: Slot) -> None:
    if "io_uring" in io_slot.tracer.missing:
        assert grounds.kernel_version() < (5, 19)
        return
    is_known = io_slot.run("uringmultishot", 100).said["known"]
    assert is_known == (grounds.kernel_version() >= (6, 7))
    assert declared(io_slot) == (["opens, network and multishot reads of io_uring"] if is_known else [])


@pytest.mark.guest
def test_a_mapped_file_of_a_server_that_nobody_sees_is_declared(io_slot: Slot, data: Path) -> None:
    def map_it() -> None:
        leave_the_cpu()  # counted from its next switch on
        with data.open("rb") as file:
            mmap.mmap(file.fileno(), 4096, mmap.MAP_SHARED, mmap.PROT_READ)

    data.write_bytes(bytes(4096))
    tracer, lustre = io_slot.tracer, list(classes.FILESYSTEMS).index("Lustre")
    tracer.counters["awaits_exec"][io_slot.index] = 0
    io_slot.call(map_it)
    assert declared(io_slot) == [] and of(io_slot, "fs_tmpfs_")["opens"] == 1
    tracer.classify_filesystems({"tmpfs": lustre})
    tracer.settle()
    try:
        io_slot.call(map_it)
        assert declared(io_slot) == ["mapped files of some file servers"]
        assert of(io_slot, "fs_lustre_") == {"opens": 1}
    finally:
        tracer.classify_filesystems({})
        tracer.settle()


@pytest.mark.guest
def test_64_threads_are_counted_exactly(io_slot: Slot, tmp_path: Path) -> None:
    times = 5000 if grounds.is_native() else 100
    with place("tmpfs", tmp_path) as path:
        io_slot.run("rwthreads", 64, path, times, 100)
    files = of(io_slot, "fs_tmpfs_")
    assert (files["opens"], files["read_calls"], files["write_bytes"]) == (64, 64 * times, 64 * times * 100)


def test_vfork_and_a_script_are_counted(io_slot: Slot, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(f"#!{grounds.JOB} short\n")
    script.chmod(0o755)
    ended = io_slot.run("script", script, 50)
    calls = of(io_slot, "syscall_")
    assert calls["write_bytes"] == ended.io["wchar"]
    # execve itself reads the script and its interpreter, which is no call of the job; and the job has read its own io
    assert 50 * 3000 <= calls["read_bytes"] < 50 * 3000 + 1000 < ended.io["rchar"]
    # vfork, execve, and what a static program does at its start
    assert calls["process_calls"] >= 100


def test_calls_of_a_32_bit_program_are_other_and_declared(io_slot: Slot, tmp_path: Path) -> None:
    source = ".globl _start\n_start: mov $100, %esi\n1: mov $20, %eax\nint $0x80\ndec %esi\njnz 1b\n"
    source += "mov $1, %eax\nxor %ebx, %ebx\nint $0x80\n"
    program, parts = tmp_path / "program", tmp_path / "program.o"
    subprocess.run(["as", "--32", "-o", parts, "-"], input=source, text=True, check=True)
    subprocess.run(["ld", "-m", "elf_i386", "-o", program, parts], check=True)
    io_slot.run("script", program, 3)
    # number 20 is getpid there, and writev here
    assert of(io_slot, "syscall_")["other_calls"] >= 300
    assert of(io_slot, "syscall_")["write_calls"] == 1
    _, counted = io_slot.tracer.sensors["io"].counters(np.array([io_slot.index]))
    assert level_io.uncounted(counted) == [["32-bit calls by class"]]


@pytest.mark.guest
def test_work_below_a_sub_cgroup_is_counted(io_slot: Slot, tmp_path: Path) -> None:
    with place("tmpfs", tmp_path) as path:
        io_slot.run("rwbelow", io_slot.path / "below", path, 1000, 10)
    files = of(io_slot, "fs_tmpfs_")
    # it runs on while it moves: its next switch finds it in its new place, which is the same job's
    assert (files["read_calls"], files["write_calls"]) == (1000, 1000)


def test_neighbours_are_not_counted(ground: Ground, tmp_path: Path) -> None:
    watched, neighbour = ground.slot(), ground.slot("condor_slot2")
    watched.start_io()
    neighbour.run("rw", tmp_path / "data", 1000, 10)
    (tmp_path / "data").read_bytes()
    assert watched.io_totals() == {}
    at_io, _ = ground.tracer.sensors["io"].counters(np.array([neighbour.index]))
    assert not at_io.any()


@pytest.mark.guest
def test_a_wait_for_a_pipe_is_blocked_time_of_the_pipe(io_slot: Slot) -> None:
    """In one of three jobs: a wait is missing if its beginning was hidden from us (docs/kernels.md)."""
    seen: list[float] = []
    while len(seen) < 3 and (not seen or seen[-1] < 0.28):
        before = of(io_slot, "wait_").get("pipe_blocked_seconds", 0)
        io_slot.run("awaitpipe", 3, 100)
        waits = of(io_slot, "wait_")
        seen.append(waits.get("pipe_blocked_seconds", 0) - before)
    assert seen[-1] >= 0.28, seen
    assert waits["sleep_seconds"] >= waits["pipe_blocked_seconds"]


@pytest.mark.guest
def test_a_slow_fuse_read_is_blocked_time_of_its_class_and_seen_while_it_lasts(io_slot: Slot, tmp_path: Path) -> None:
    jobs, seen, before = 0, False, 0.0
    with place("cvmfs", tmp_path) as path:
        # on a machine that stands still for a moment a read can be over before it is looked at
        while not seen and jobs < 50:
            before = of(io_slot, "wait_").get("cvmfs_blocked_seconds", 0)
            job = io_slot.start("readonce", path.with_name("slow"), 1000)
            jobs += 1
            while not seen and not os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
                totals = io_slot.io_totals()
                waits = totals.get("wait_cvmfs_blocked_seconds", 0) > before + 0.05
                seen = waits and totals.get("fs_cvmfs_read_calls", 0) == jobs - 1
            job.wait()
    assert seen
    totals = io_slot.io_totals()
    assert totals["fs_cvmfs_read_bytes"] == jobs * 1000
    # of those before, the beginning of a wait can have been hidden from us
    assert totals["wait_cvmfs_blocked_seconds"] >= before + 0.19


@pytest.mark.guest
def test_waits_are_what_the_kernel_says(ground: Ground) -> None:
    """In one of three jobs: what a machine stands still for is in one of two clocks, and in the other or not."""
    assert any(is_what_the_kernel_says(ground.slot(f"condor_slot{number}")) for number in range(3))


def is_what_the_kernel_says(slot: Slot) -> bool:
    slot.start_io()
    began = time.monotonic()
    ended = slot.run("wait", 200, "contend", 2 * (os.cpu_count() or 1), 100)
    took = time.monotonic() - began
    waits = of(slot, "wait_")
    cpu = ended.usage.ru_utime + ended.usage.ru_stime
    queued = slot.totals()["cpu_run_queue_seconds"]
    assert waits["sleep_seconds"] <= 2 * took
    # it counts from its exec on; before its main it can't look
    return bool(
        waits["sleep_seconds"] >= 0.19
        and 0.9 * (cpu - ended.said["cpu_us"] * 1e-6) - 0.02 <= waits["running_seconds"] <= 1.1 * cpu + 0.02
        and waits["run_queue_seconds"] == pytest.approx(queued, rel=0.25, abs=0.02)
    )


@pytest.mark.guest
def test_a_clock_that_was_read_late_is_put_right(io_slot: Slot) -> None:
    """A virtual CPU can stand still between the scheduler's look at its clock and ours."""
    sensor, cpus = io_slot.tracer.sensors["io"].sensor, sorted(os.sched_getaffinity(0))
    running = sensor.view("jl_io_running", map_layout.IO_RUNNING, possible_cpus())

    def have_looked() -> bool:
        for cpu in cpus:
            os.sched_setaffinity(0, {cpu})
        os.sched_setaffinity(0, cpus)
        return bool((running["clock_looks"][cpus] == lib.CLOCK_LOOKS).all())

    until(have_looked)
    right = running["clock_offset"][cpus].astype("i8")
    # read late, and this was the first look; and one from long ago, since when the clocks have come to differ
    for offset, looks in ((right + 10**9, 1), (right - 10**9, 0)):
        running["clock_offset"][cpus], running["clock_looks"][cpus] = offset, looks
        until(have_looked)
        assert (np.abs(running["clock_offset"][cpus].astype("i8") - right) < 10**9 // 2).all()


def test_a_wait_that_goes_on_is_seen(io_slot: Slot) -> None:
    job = io_slot.start("wait", 60_000)
    until(lambda: of(io_slot, "wait_").get("sleep_seconds", 0) > 0.1)
    first = of(io_slot, "wait_")["sleep_seconds"]
    until(lambda: of(io_slot, "wait_")["sleep_seconds"] > first + 0.05)
    job.kill()
    job.wait()


@pytest.mark.guest
def test_a_thread_that_slept_before_level_io_waits_from_there_on(ground: Ground) -> None:
    slot = ground.slot()
    job = slot.start("wait", 600_000)
    until(lambda: slot.tracer.counters["executed"][slot.index])
    until_asleep(job.pid)
    before = time.monotonic()
    slot.start_io()
    until(lambda: of(slot, "wait_").get("sleep_seconds", 0) > 0.3)
    first, now = of(slot, "wait_")["sleep_seconds"], time.monotonic()
    assert now >= before + 0.2 and first <= now - before + 0.1
    # when it wakes, it has waited as long as that, and not once more
    job.kill()
    job.wait()
    # its parent can go on before it leaves the CPU, and a wait that moves while it is read is met once at most
    until(lambda: of(slot, "wait_").get("sleep_seconds", 0) >= first)
    waits = of(slot, "wait_")
    assert set(waits) <= {"sleep_seconds", "running_seconds", "run_queue_seconds"}
    assert waits["sleep_seconds"] <= time.monotonic() - before + 0.1


@pytest.mark.guest
def test_what_a_thread_slept_in_before_level_io_is_known(ground: Ground, tmp_path: Path) -> None:
    slot, (pipe, _), (ours, theirs) = ground.slot(), os.pipe(), socket.socketpair()
    begun = slot.start("wait", 600_000)
    reader, receiver = slot.fork(lambda: os.read(pipe, 1)), slot.fork(lambda: theirs.recv(1))
    with place("cvmfs", tmp_path) as path:
        opener = slot.start("readonce", path.with_name("stuck"), 1000)
        for pid, call in ((begun.pid, ""), (reader, "read"), (receiver, "recvfrom"), (opener.pid, "openat")):
            until_asleep(pid, call)
        until(opener.has_begun)
        until_asleep(opener.pid, "openat")
        slot.start_io()
        until(lambda: of(slot, "wait_").get("sleep_seconds", 0) > 0.1)
        waits = of(slot, "wait_")
        opener.kill()
    ours.close()
    for pid in (begun.pid, reader, receiver, opener.pid):
        os.waitpid(pid, 0)
    assert waits.keys() >= {"pipe_blocked_seconds", "socket_blocked_seconds", "cvmfs_blocked_seconds"}
    assert declared(slot) == []


def test_threads_asleep_that_the_kernel_does_not_show_are_declared(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their waits are missing then, and nobody takes them for 0."""
    slot = ground.slot()
    job = slot.start("wait", 600_000)
    until(lambda: slot.tracer.counters["executed"][slot.index])
    until_asleep(job.pid)

    def fails(sensor: object, name: str) -> None:
        raise JobLensError(f"the kernel fails at {name}")

    monkeypatch.setattr(Io, "_iterate", fails)
    slot.start_io()
    assert declared(slot) == ["waits of some threads"]
    job.kill()
    job.wait()


@pytest.mark.guest
@pytest.mark.parametrize("asleep_before", [False, True])
def test_waits_for_locks_and_for_the_other_end_of_a_fifo_are_no_file_systems(
    ground: Ground, tmp_path: Path, asleep_before: bool
) -> None:
    slot = ground.slot()
    begun = slot.start("wait", 600_000)
    until(lambda: slot.tracer.counters["executed"][slot.index])
    with place("tmpfs", tmp_path) as path:
        fifo = path.with_name("fifo")
        os.mkfifo(fifo)

        def fork(call: str, act: Callable[[int], object], name: str, mode: str) -> int:
            def waits() -> None:
                leave_the_cpu()  # a process that comes into the slot is known from its next context switch on
                with open(path.with_name(name), mode) as file:
                    act(file.fileno())

            pid = slot.fork(waits)
            until_asleep(pid, call)
            return pid

        with open(path.with_name("lock"), "wb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            fcntl.lockf(held, fcntl.LOCK_EX)
            if not asleep_before:
                slot.start_io()
            waiters = (
                fork("flock", lambda fd: fcntl.flock(fd, fcntl.LOCK_SH), "lock", "r+b"),
                fork("fcntl", lambda fd: fcntl.lockf(fd, fcntl.LOCK_EX), "lock", "r+b"),
                fork("openat", lambda fd: None, "fifo", "rb"),
            )
            if asleep_before:
                slot.start_io()

            def waits_of_each_kind() -> bool:
                waits = of(slot, "wait_")
                least = 10 * waits.get("tmpfs_blocked_seconds", 0) + 0.1
                return min(waits.get("file_lock_seconds", 0), waits.get("pipe_blocked_seconds", 0)) > least

            until(waits_of_each_kind)
            fcntl.lockf(held, fcntl.LOCK_UN)
            fcntl.flock(held, fcntl.LOCK_UN)  # those who wait have it open too
        open(fifo, "wb").close()
        for pid in waiters:
            assert os.waitpid(pid, 0)[1] == 0
    begun.kill()
    begun.wait()

    def have_all_slept() -> bool:
        waits = of(slot, "wait_")
        return waits.get("sleep_seconds", 0) >= waits["file_lock_seconds"] + waits["pipe_blocked_seconds"]

    until(have_all_slept)  # one that leaves the CPU just now has its wait on the way


def test_threads_that_run_when_level_io_begins_are_not_taken_for_asleep(ground: Ground) -> None:
    slot, children = ground.slot(), 2 * (os.cpu_count() or 1)
    job = slot.start("contend", children, 600_000)
    until(lambda: len(slot.pids()) > children)
    until_asleep(job.pid, "wait4")
    before = time.monotonic()
    slot.start_io()
    until(lambda: of(slot, "wait_").get("sleep_seconds", 0) > 0.3)
    waits, took = of(slot, "wait_"), time.monotonic() - before
    job.kill()
    job.wait()
    # the first process waits for the others, which run or queue all the time
    assert waits["sleep_seconds"] <= took + 0.1


class Writer:
    """A job that writes byte after byte, and says how many it has written."""

    def __init__(self, slot: Slot, folder: Path) -> None:
        shared = folder / "written"
        shared.write_bytes(bytes(4096))
        with open(shared, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 4096)
        self.job = slot.start("write", folder / "data", shared)
        until(lambda: self.written)

    @property
    def written(self) -> int:
        """So far."""
        return int(struct.unpack("l", self._memory[:8])[0])

    def end(self) -> None:
        """By SIGKILL."""
        self.job.kill()
        self.job.wait()


@pytest.mark.guest
def test_a_job_that_changes_its_level_under_load_loses_and_doubles_nothing(ground: Ground, tmp_path: Path) -> None:
    slot = ground.slot()
    writer = Writer(slot, tmp_path)
    for _ in range(10 if grounds.is_native() else 3):
        before = writer.written
        slot.start_io()
        began = writer.written
        until(lambda began=began: writer.written > began + 1000)
        about_to_end = writer.written
        counted = slot.tracer.sensors["io"].stop(slot.index)
        after = writer.written
        assert counted is not None
        writes = level_io.columns(counted)["syscall_write_calls"][0]
        # one is on its way when we look
        assert about_to_end - began - 1 <= writes <= after - before + 1
        assert slot.tracer.sensors["io"].stop(slot.index) is None
        ground.tracer.settle()
    writer.end()


def test_level_io_goes_on_without_its_agent_and_is_adopted(name: str, tmp_path: Path) -> None:
    def live() -> None:
        ground = Ground(name)
        ground.slot().start_io()
        os.kill(os.getpid(), signal.SIGKILL)

    assert os.waitpid(forked(live), 0)[1] == signal.SIGKILL
    cgroup = Cgroup(Ground.place(name) / "condor_slot1")
    with place("tmpfs", tmp_path) as path:
        cgroup.run("rw", path, 1000, 10)
        with on_ground(name) as ground:
            assert ground.tracer.adopted
            slot = Slot(cgroup.path, ground.tracer)
            slot.run("rw", path, 500, 10)
            files = of(slot, "fs_tmpfs_")
            assert (files["read_calls"], files["write_bytes"]) == (1500, 15_000)


def test_mounts_that_went_while_there_was_no_agent_are_forgotten(name: str, tmp_path: Path) -> None:
    where = tmp_path / "mounted"

    def live() -> None:
        ground = Ground(name)
        ground.slot().start_io()
        os.kill(os.getpid(), signal.SIGKILL)

    where.mkdir()
    with mounted("-t", "tmpfs", "tmpfs", where):
        assert os.waitpid(forked(live), 0)[1] == signal.SIGKILL
    cgroup = Cgroup(Ground.place(name) / "condor_slot1")
    cgroup.run("absent", where / "nothing", 3)
    with on_ground(name) as ground:
        slot = Slot(cgroup.path, ground.tracer)
        assert of(slot, "fs_tmpfs_") == {"failed_opens": 3}
        ground.tracer.settle()
        slot.run("absent", where / "nothing", 5)
        assert of(slot, "fs_tmpfs_") == {"failed_opens": 3}


def test_programs_are_there_while_a_job_needs_them_and_at_no_other_time(ground: Ground) -> None:
    slots = [ground.slot(), ground.slot("condor_slot2")]
    basic = set(ground.tracer.attached())
    assert not basic & {"jl_switch", "jl_switch_5_17", "jl_switch_rd", "jl_sys_exit", "jl_sys_exit_rd"}
    for slot in slots:
        slot.start_io()
    assert set(ground.tracer.attached()) > basic
    slots[0].tracer.sensors["io"].stop(slots[0].index)
    ground.tracer.settle()
    assert set(ground.tracer.attached()) > basic
    slots[1].tracer.stop(slots[1].index)
    ground.tracer.settle()
    assert set(ground.tracer.attached()) == basic


def test_no_more_jobs_than_there_is_room_for(name: str) -> None:
    with on_ground(name) as ground:
        ground.tracer.close()
        ground.tracer = grounds.Tracer(8, ground.pins, max_jobs={"io": 2})
        ground.watch(ground.base)
        slots = [ground.slot(f"condor_slot{number}") for number in range(3)]
        assert [ground.tracer.sensors["io"].start(slot.index) for slot in slots] == [True, True, False]
        ground.tracer.sensors["io"].stop(slots[0].index)
        assert ground.tracer.sensors["io"].start(slots[2].index)


def test_where_none_is_allowed_nothing_is_loaded(name: str) -> None:
    with on_ground(name) as ground:
        ground.tracer.close()
        ground.tracer = grounds.Tracer(8, ground.pins, max_jobs={"io": 0})
        ground.watch(ground.base)
        basic = ground.tracer.attached()
        assert not ground.tracer.sensors["io"].start(ground.slot().index)
        assert ground.tracer.attached() == basic and not ground.tracer.sensors["io"].missing


def test_a_part_that_the_kernel_refuses_is_named_and_the_rest_counts(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # in the place of io_uring's program one that no kernel takes
    broken = tmp_path / "broken.bpf.o"
    broken.write_bytes(b"\x7fELF, but no more")
    monkeypatch.setattr(loader, "_object_path", lambda name: broken if name == "uring" else OBJECTS / f"{name}.bpf.o")
    with on_ground(name) as ground, place("tmpfs", tmp_path) as path:
        slot = ground.slot()
        slot.start_io()
        assert list(ground.tracer.sensors["io"].missing) == ["io_uring"]
        slot.run("rw", path, 100, 10)
        assert of(slot, "fs_tmpfs_")["read_calls"] == 100


@pytest.mark.guest
def test_what_the_kernel_says_of_a_threads_state_is_used_where_it_says_it(io_slot: Slot) -> None:
    """Since 5.18. Read from the thread it can be another one by then: who wakes it does not wait for this CPU."""
    reads_it = {"jl_switch_5_17", "jl_switch_rd517"}
    attached = set(io_slot.tracer.attached())
    assert len(attached & {"jl_switch", "jl_switch_rd", *reads_it}) == 1
    assert bool(attached & reads_it) == (grounds.kernel_version() < (5, 18))


def test_a_thread_whose_coming_was_hidden_counts_from_then_on_also_if_it_execs(io_slot: Slot) -> None:
    """As on kernels that do not tell of each switch: the programs still have another thread on that CPU."""
    cpu, spent = max(os.sched_getaffinity(0)), mmap.mmap(-1, 4096)
    counters, running = io_slot.tracer.counters, io_slot.tracer.sensors["io"].sensor._running  # type: ignore[attr-defined]
    counters["awaits_exec"][io_slot.index] = 0
    io_slot.run("burn", 1)  # the job has begun

    def burn_and_exec() -> None:
        os.sched_setaffinity(0, {cpu})
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))  # it runs through
        while not running["key"][cpu]:
            time.sleep(0.001)
        began = time.thread_time_ns()
        while time.thread_time_ns() - began < 30_000_000:
            pass
        spent[:8] = (time.thread_time_ns() - began).to_bytes(8, "little")
        running["task"][cpu] = 1
        running["key"][cpu] = running["index"][cpu] = 0
        os.execv(grounds.JOB, ["job", "burn", "1"])

    io_slot.call(burn_and_exec)
    known = int.from_bytes(spent[:8], "little") / 1e9
    # a switch within the three statements brings all back but for what came after it
    assert of(io_slot, "wait_")["running_seconds"] >= known - 0.01


def test_what_a_thread_waits_for_whose_coming_was_hidden_is_in_its_own_call(io_slot: Slot) -> None:
    """As above: the programs still have another thread on that CPU, and where the registers of that one are."""
    cpu = max(os.sched_getaffinity(0))
    running = io_slot.tracer.sensors["io"].sensor._running  # type: ignore[attr-defined]
    io_slot.tracer.counters["awaits_exec"][io_slot.index] = 0
    (reads, writes), looks = os.pipe(), itertools.count(1)

    def wait_in_reads() -> None:
        os.sched_setaffinity(0, {cpu})
        leave_the_cpu()
        received = b""
        while received != b".":
            running["registers"][cpu] = 0
            running["task"][cpu] = 1
            received = os.read(reads, 1)

    def is_mostly_for_the_pipe() -> bool:
        if next(looks) % 40 == 0:  # a wait whose beginning was hidden as well is none: then the next one
            os.write(writes, b"1")
        waits = of(io_slot, "wait_")
        return waits.get("pipe_blocked_seconds", 0) > 0.1 + waits.get("sleep_seconds", 0) / 2

    pid = io_slot.fork(wait_in_reads)
    until_asleep(pid, "read")
    until(is_mostly_for_the_pipe)
    os.write(writes, b".")
    assert os.waitpid(pid, 0)[1] == 0
    os.close(reads)
    os.close(writes)
