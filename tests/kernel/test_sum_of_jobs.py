"""What all jobs did together is what the cgroup above them saw: nothing falls between two slots or is in both.

There are two witnesses. One is the kernel itself, with the CPU time of the base cgroup and who is in it. The other, for
what the kernel keeps of no cgroup, is a second tracer, for which the base of the first is one single slot.

Two witnesses would be inexact. The root's cpu.stat has the idle time of virtual CPUs and ticks in it, and everybody
else's; and the bytes of io.stat are those of the block layer, at another time than the tasks' and none for a tmpfs.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from ground import BPFFS, Cgroup, Ground, Job, Slot, leave_the_cpu, on_ground, until

from condor_joblens.jobs.cgroups import depths_of
from condor_joblens.sample import kernel_counters
from condor_joblens.tracer.bpf import Tracer

pytestmark = pytest.mark.guest

JOBS = 6
MICRO = 1e-6

NO_SUMS = {
    *kernel_counters.LIVING, *kernel_counters.LIVING_PAGES,
    "memory_resident_bytes", "memory_resident_peak_bytes", "memory_largest_process_peak_bytes",
    "tcp_rtt_seconds", "tcp_open",
}  # fmt: skip
"""Columns that are no sums of what was done."""

TIMES = {"cpu_run_queue_seconds"}
"""Columns whose sums are rounded."""


STATES = {f"wait_{state}_seconds" for state in ("running", "run_queue", "uninterruptible", "sleep")}
"""In one of these a thread always is; all other columns of waits are the classes of what was waited for."""

PAUSE_SECONDS = 0.1
"""For so long a virtual machine may stand still between two looks of which each should be at the same moment."""


LONG = (("awaitpipe", 4, 200), ("burn", 400))
"""Verbs that wait, and that run, for so long that twice of it is no mere pause of the machine."""


@dataclass
class Node:
    """A base with slots, one for each job, and above it the slot that the second tracer sees."""

    whole: Slot
    jobs: list[Slot]

    def totals(self) -> tuple[dict[str, float], dict[str, float]]:
        """The jobs' sums, and what the whole saw, by column."""
        each = [slot.totals(connections=True) for slot in self.jobs]
        return summed(each), self.whole.totals(connections=True)

    def io_totals(self) -> tuple[dict[str, float], dict[str, float]]:
        """The same of level io."""
        return summed([slot.io_totals() for slot in self.jobs]), self.whole.io_totals()


def summed(each: list[dict[str, float]]) -> dict[str, float]:
    """By name; a name that some lack counts as 0 there."""
    return {name: sum(one.get(name, 0) for one in each) for name in {name for one in each for name in one}}


@pytest.fixture
def node(name: str) -> Iterator[Node]:
    with on_ground(name) as ground, second_tracer(ground) as tracer:
        whole = ground.slot("jobs")
        if not ground.tree.hybrid:
            ground.delegate(whole.path)
        names = [str(whole.path.relative_to(ground.tree.mount))]
        tracer.watch_below([whole.cgroup_id], depths_of(names))
        jobs = [made(whole.path / f"slot1_{number}", tracer) for number in range(JOBS)]
        for slot in (whole, *jobs):
            # all that enters counts, with what it does before an exec: for both tracers the same
            slot.tracer.counters["awaits_exec"][slot.index] = 0
        yield Node(whole, jobs)


@contextlib.contextmanager
def second_tracer(ground: Ground) -> Iterator[Tracer]:
    tracer = Tracer(64, BPFFS / f"{ground.name}-second")
    try:
        yield tracer
    finally:
        tracer.close()


def made(path: Path, tracer: Tracer) -> Slot:
    path.mkdir()
    return Slot(path, tracer)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder on a tmpfs of its own."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", tmp_path], check=True)
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path], check=True)


@pytest.fixture
def port() -> Iterator[int]:
    """A server that reads what it is sent to the end."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        threading.Thread(target=swallow, args=(server,), daemon=True).start()
        yield int(server.getsockname()[1])


def swallow(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection:
                while connection.recv(65536):
                    pass


def talk(port: int, number: int) -> None:
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"x" * 1000 * number)
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""


def work(node: Node, memory: Path, port: int, *beside: Job) -> None:
    """All jobs at the same time, each something else; the first is a job with a sub-cgroup, as any may have."""
    verbs: list[tuple[object, ...]] = [
        ("rwbelow", node.jobs[0].path / "below", memory / "0", 500, 777),
        ("children", 60),
        ("orphans", 30),
        ("threads", 20, 8, "group", 0),
        ("rwthreads", 8, memory / "4", 200, 100),
        ("badopens", memory, 50),
    ]
    started = [slot.start(*verb, before_exec=leave_the_cpu) for slot, verb in zip(node.jobs, verbs)]
    talking = [slot.fork(talking_to(port, number)) for number, slot in enumerate(node.jobs, 1)]
    for pid in talking:
        assert os.waitpid(pid, 0)[1] == 0
    for job in (*started, *beside):
        assert job.wait().status == 0
    until(lambda: not alive(node.whole))


def talking_to(port: int, number: int) -> Callable[[], None]:
    return lambda: talk(port, number)


def alive(cgroup: Cgroup, file: str = "cgroup.procs") -> list[str]:
    """Who is in a cgroup or below it."""
    return [entry for path in cgroup.path.rglob(file) for entry in path.read_text().split()]


def cpu_microseconds(cgroup: Cgroup) -> int:
    fields = (cgroup.path / "cpu.stat").read_text().split()
    return int(fields[fields.index("usage_usec") + 1])


def test_the_sum_over_jobs_is_what_their_base_saw(node: Node, memory: Path, port: int) -> None:
    work(node, memory, port)
    until(lambda: all(is_all_closed(slot) for slot in (node.whole, *node.jobs)))
    ours, whole = node.totals()
    assert without(ours, NO_SUMS | TIMES) == without(whole, NO_SUMS | TIMES)
    for column in TIMES:
        assert ours[column] == pytest.approx(whole[column], rel=1e-9, abs=1e-9)
    # a thousand bytes for each number, twenty times
    assert ours["tcp_sent_bytes"] == 20 * 1000 * sum(range(1, JOBS + 1))
    assert ours["process_forked"] >= 60 + 2 * 30
    # each is rounded down to a microsecond
    assert 0 <= cpu_microseconds(node.whole) - sum(map(cpu_microseconds, node.jobs)) <= JOBS
    assert cpu_microseconds(node.whole) > 0


def without(totals: dict[str, float], columns: set[str]) -> dict[str, float]:
    return {column: value for column, value in totals.items() if column not in columns}


def is_all_closed(slot: Slot) -> bool:
    count = slot.tracer.counters[slot.index]
    return bool(count["connected"] + count["accepted"] == count["closed"])


def test_so_it_is_at_level_io(node: Node, memory: Path, port: int) -> None:
    for slot in node.jobs:
        slot.run("burn", 1)  # a job's time begins at its first exec: the whole has one, and they have one each
    for slot in (node.whole, *node.jobs):
        slot.start_io()
    long = [slot.start(*verb, before_exec=leave_the_cpu) for slot, verb in zip(node.jobs[1:], LONG)]
    work(node, memory, port, *long)
    # who has left the cgroup's lists may still be on its way off the CPU: as long as that is so, no two readings agree
    until(lambda: node.io_totals() == node.io_totals())
    ours, whole = node.io_totals()
    waits = {name for name in ours | whole if name.startswith("wait_")}
    assert without(ours, waits) == without(whole, waits)
    assert ours["fs_tmpfs_read_bytes"] == 500 * 777 + 8 * 200 * 100
    assert ours["errors_enoent"] >= 50
    assert {"wait_running_seconds", "wait_run_queue_seconds", "wait_sleep_seconds"} <= waits
    # Each looks by itself, one after the other: at the clock, if a switch was hidden from both (docs/kernels.md), and
    # before 5.18 at a state that another CPU may be changing. A pause of the machine may lie between.
    for name in (*STATES, "wait_pipe_blocked_seconds"):
        assert ours.get(name, 0) == pytest.approx(whole.get(name, 0), rel=0.1, abs=PAUSE_SECONDS), name
    for each in (ours, whole):
        # what was waited for is a part of the waits, each once
        waited = sum(each.get(name, 0) for name in ("wait_sleep_seconds", "wait_uninterruptible_seconds"))
        assert 0 < sum(each.get(name, 0) for name in waits - STATES) <= waited + MICRO


def test_who_lives_is_in_one_job(node: Node) -> None:
    jobs = [slot.start("wait", 60_000) for slot in node.jobs for _ in range(3)]
    until(lambda: all(job.has_begun() for job in jobs))
    ours, whole = node.totals()
    assert ours["process_live"] == whole["process_live"] == len(alive(node.whole)) == 3 * JOBS
    assert ours["process_threads"] == whole["process_threads"] == len(alive(node.whole, "cgroup.threads"))
    for job in jobs:
        job.kill()
        job.wait()
    until(lambda: not alive(node.whole))
    ours, whole = node.totals()
    assert ours["process_live"] == whole["process_live"] == 0
    assert ours["process_signalled"] == whole["process_signalled"] == 3 * JOBS
