"""Memory: peaks are rusage's, nothing is counted twice, and the OOM killer's victims are told."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ground import Ground, Slot, until

pytestmark = pytest.mark.guest

MIB = 1 << 20
PEAK = "memory_largest_process_peak_bytes"


@pytest.mark.parametrize("end", ["freed", "killed"])
def test_the_peak_of_a_short_life_is_that_of_rusage(slot: Slot, end: str) -> None:
    ended = slot.run("peak", 64, 50, end)
    assert ended.usage.ru_maxrss * 1024 == slot.totals()[PEAK] >= 64 * MIB
    assert ended.said["signalled"] == (end == "killed")


def test_peaks_are_of_one_process_and_stay(slot: Slot) -> None:
    # more than this process has, of which each job is a copy until its exec
    first = slot.run("peak", 192, 0, "freed")
    slot.run("peak", 16, 0, "freed", "peak", 32, 0, "killed")
    assert slot.totals()[PEAK] == first.usage.ru_maxrss * 1024


def test_the_peak_of_what_lives_is_seen(slot: Slot) -> None:
    job = slot.start("peak", 64, 60000, "freed")
    until(lambda: slot.totals()[PEAK] >= 64 * MIB)
    job.kill()
    job.wait()


def error_of_rss() -> int:
    """Bytes that one kind of page may be off: the kernel keeps up to a batch a CPU to itself (from 6.2 on)."""
    cpus = os.cpu_count() or 1
    return max(32, 2 * cpus) * cpus * os.sysconf("SC_PAGE_SIZE")


def test_what_lives_is_what_proc_says(slot: Slot) -> None:
    job = slot.start("peak", 32, 60000, "freed")
    # before its exec it is a copy of this process, with memory of its own
    until(lambda: job.has_begun())
    until(lambda: slot.totals()["memory_anon_bytes"] >= 32 * MIB - error_of_rss())
    counted = slot.totals()
    # programs that lie on tmpfs are mapped as shared memory
    for column, fields in (("memory_anon_bytes", ("RssAnon:",)), ("memory_file_bytes", ("RssFile:", "RssShmem:"))):
        known = 0
        for pid in slot.pids():
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            known += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(fields))
        assert abs(counted[column] - known) <= 2 * error_of_rss()
    assert counted["memory_resident_bytes"] == counted["memory_anon_bytes"] + counted["memory_file_bytes"]
    assert (counted["process_live"], counted["process_threads"]) == (2, 2)
    job.kill()
    job.wait()


def test_a_vforked_child_has_no_memory_of_its_own(slot: Slot) -> None:
    job = slot.start("vfork", 64, 60000)
    until(lambda: slot.totals()["process_live"] == 2)
    assert 64 * MIB - error_of_rss() <= slot.totals()["memory_resident_bytes"] < 2 * 64 * MIB
    job.kill()
    job.wait()


@pytest.mark.guest
def test_a_memory_of_two_processes_is_counted_once(slot: Slot) -> None:
    job = slot.start("shared", 64)
    until(lambda: slot.totals()["process_live"] == 2 and slot.totals()["process_exited"] == 1)
    assert 64 * MIB - error_of_rss() <= slot.totals()["memory_resident_bytes"] < 2 * 64 * MIB
    job.kill()
    job.wait()


@pytest.fixture
def limited(slot: Slot, name: str) -> Iterator[Path]:
    """The cgroup that limits the slot to 32 MiB: the slot's own, or one of version 1 where the controller is there."""
    if (slot.path / "memory.max").exists():
        (slot.path / "memory.max").write_text(str(32 * MIB))
        yield slot.path
        return
    path = Path("/sys/fs/cgroup/memory") / name
    path.mkdir()
    (path / "memory.limit_in_bytes").write_text(str(32 * MIB))
    yield path
    path.rmdir()


def test_a_victim_of_the_oom_killer_is_told(slot: Slot, limited: Path) -> None:
    enter = limited / "cgroup.procs"
    ended = slot.start("greedy", 128, before_exec=lambda: enter.write_text("0")).wait()
    totals = slot.totals()
    assert (ended.status, ended.said["signalled"]) == (0, 1)
    assert (totals["memory_oom_kills"], totals["process_signalled"]) == (1, 1)


def test_a_kill_is_no_oom_kill(slot: Slot) -> None:
    slot.run("peak", 8, 0, "killed")
    totals = slot.totals()
    assert (totals["memory_oom_kills"], totals["process_signalled"]) == (0, 1)


@pytest.mark.controllers
def test_a_whole_cgroup_that_the_oom_killer_ends(ground: Ground) -> None:
    slot = ground.slot()
    (slot.path / "memory.max").write_text(str(32 * MIB))
    (slot.path / "memory.oom.group").write_text("1")
    job = slot.start("greedy", 128)
    assert job.wait().status & 0x7F == 9
    events = dict(line.split() for line in (slot.path / "memory.events").read_text().splitlines())
    totals = slot.totals()
    # the kernel's own number is greater where it strikes one process twice, as 5.10 does
    assert totals["memory_oom_kills"] == 2 <= int(events["oom_kill"])
    assert slot.tracer.counters["main_exit_code"][slot.index] == 9
