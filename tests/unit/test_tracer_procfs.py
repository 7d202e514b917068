"""A tracer without BPF, over a /proc and a cgroup tree that the test writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from condor_joblens.common.cgroup_processes import MOST_CGROUPS, MOST_PROCESSES, processes_in
from condor_joblens.owner_files.operations import Operations
from condor_joblens.sample.io_counters import calls_and_bytes
from condor_joblens.tracer import map_layout
from condor_joblens.tracer.procfs import ProcfsTracer

NAME = "var_lib_condor_execute_slot1_1@host.slice"
PAGES_A_KILOBYTE = 1024 / os.sysconf("SC_PAGE_SIZE")


class Machine:
    """A fake /proc, and a base below which slots appear."""

    def __init__(self, root: Path) -> None:
        self.root, self.base = root, root / "cgroup/htcondor"
        self.base.mkdir(parents=True)
        (root / "proc").mkdir()
        self.files = Operations(proc=str(root / "proc"))
        (root / "proc/stat").write_text("cpu  1 2 3 4 5 6 7 8 9 10\nbtime 1700000000\n")

    def slot(self, name: str = NAME) -> Path:
        folder = self.base / name
        folder.mkdir()
        (folder / "cgroup.procs").touch()
        (folder / "cgroup.events").write_text("populated 0\nfrozen 0\n")
        return folder

    def process(
        self, pid: int, read: int = 0, minor: int = 0, kilobytes: int = 0, state: str = "S", start: int = 1
    ) -> None:
        folder = self.root / f"proc/{pid}"
        folder.mkdir(exist_ok=True)
        # the name is a trap for who splits at blanks
        before = " ".join(["1"] * 6)
        between = "0 0 0 0 0 0 3 0"  # it has three threads
        (folder / "stat").write_text(
            f"{pid} (a) R 9 (b) {state} {before} {minor} 0 {minor // 10} 0 {between} {start}" + " 0" * 30 + "\n"
        )
        (folder / "status").write_text(
            f"Name:\ta) R\nState:\t{state} (x)\nThreads:\t777\nVmHWM:\t{kilobytes * 2} kB\nRssAnon:\t{kilobytes} kB\n"
            f"RssFile:\t8 kB\nRssShmem:\t4 kB\nVmSwap:\t16 kB\n"
        )
        (folder / "io").write_text(
            f"rchar: {read}\nwchar: {read * 2}\nsyscr: {read // 10}\nsyscw: 7\nread_bytes: 4096\nwrite_bytes: 8192\n"
            "cancelled_write_bytes: 0\n"
        )

    def end(self, pid: int) -> None:
        for file in (self.root / f"proc/{pid}").iterdir():
            file.unlink()
        (self.root / f"proc/{pid}").rmdir()

    def populate(self, folder: Path, *pids: int) -> None:
        (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
        (folder / "cgroup.events").write_text(f"populated {int(bool(pids))}\nfrozen 0\n")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def tracer(machine: Machine) -> Iterator[ProcfsTracer]:
    tracer = ProcfsTracer(16, [str(machine.base)], "a test", machine.files, str(machine.root))
    yield tracer
    tracer.close()
    psutil.PROCFS_PATH = "/proc"


def kinds(events: np.ndarray) -> list[int]:
    return [int(kind) for kind in events["kind"]]


def born(machine: Machine, tracer: ProcfsTracer, *pids: int) -> tuple[Path, int]:
    folder = machine.slot()
    machine.populate(folder, *pids)
    (event,) = tracer.events()
    assert event["kind"] == map_layout.BORN
    return folder, int(event["slot"])


def test_a_slot_is_born_with_its_first_process(machine: Machine, tracer: ProcfsTracer) -> None:
    folder = machine.slot()
    assert len(tracer.events()) == 0, "nobody knows yet whose it is"
    machine.process(100)
    machine.populate(folder, 100)
    (event,) = tracer.events()
    assert (event["kind"], event["pid"], event["name"]) == (map_layout.BORN, 100, NAME.encode())
    assert event["cgroup_id"] == folder.stat().st_ino
    assert tracer.slot_of(folder.stat().st_ino) == event["slot"]


def test_a_cgroup_that_stays_empty_is_told_of_all_the_same(
    machine: Machine, tracer: ProcfsTracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.slot()
    assert len(tracer.events()) == 0
    monkeypatch.setattr("condor_joblens.tracer.procfs.PATIENCE", -1.0)
    (event,) = tracer.events()
    assert (event["kind"], event["pid"]) == (map_layout.BORN, 0)


def test_what_lives_is_added_up(machine: Machine, tracer: ProcfsTracer) -> None:
    machine.process(100, read=1000, minor=50, kilobytes=4096, state="R")
    machine.process(101, read=500, minor=20, kilobytes=1024, state="D")
    _, slot = born(machine, tracer, 100, 101)
    living = tracer.living[slot]
    assert (living["processes"], living["threads"]) == (2, 6)
    assert (living["runnable"], living["uninterruptible"]) == (1, 1)
    assert (living["call_read_bytes"], living["call_write_bytes"]) == (1500, 3000)
    assert (living["read_calls"], living["write_calls"]) == (150, 14)
    assert (living["storage_read_bytes"], living["storage_write_bytes"]) == (8192, 16384)
    assert (living["minor_faults"], living["major_faults"]) == (70, 7)
    assert living["anon_pages"] == 5120 * PAGES_A_KILOBYTE
    assert living["file_pages"] == 2 * 12 * PAGES_A_KILOBYTE
    assert living["swap_pages"] == 2 * 16 * PAGES_A_KILOBYTE
    assert living["peak_pages"] == 8192 * PAGES_A_KILOBYTE, "of one process"


def test_what_an_ended_process_had_when_it_was_last_seen_stays(machine: Machine, tracer: ProcfsTracer) -> None:
    machine.process(100, read=1000, kilobytes=4096)
    machine.process(101, read=500)
    folder, slot = born(machine, tracer, 100, 101)
    machine.end(100)
    machine.populate(folder, 101)
    tracer.count_living()
    assert tracer.counters["call_read_bytes"][slot] == 1000
    assert tracer.living["call_read_bytes"][slot] == 500
    assert tracer.counters["ended_peak_pages"][slot] == 8192 * PAGES_A_KILOBYTE


def test_another_process_of_the_same_number_is_another_one(machine: Machine, tracer: ProcfsTracer) -> None:
    machine.process(100, read=1000)
    _, slot = born(machine, tracer, 100)
    machine.process(100, read=30, start=99)
    tracer.count_living()
    assert tracer.counters["call_read_bytes"][slot] == 1000
    assert tracer.living["call_read_bytes"][slot] == 30


def test_counting_begins_when_it_is_told_to(machine: Machine, tracer: ProcfsTracer) -> None:
    machine.process(100, read=1000, minor=40)
    machine.process(101, read=300)
    folder, slot = born(machine, tracer, 100, 101)
    tracer.begin_at_next_exec(slot)
    assert tracer.living["call_read_bytes"][slot] == 0
    machine.process(100, read=1250, minor=45)
    machine.end(101)
    machine.populate(folder, 100)
    tracer.count_living()
    assert tracer.living["call_read_bytes"][slot] == 250
    assert tracer.living["minor_faults"][slot] == 5
    assert tracer.counters["call_read_bytes"][slot] == 0, "what the wrapper did"
    assert tracer.counters["awaits_exec"][slot] == 0, "nobody would ever clear it"


def test_processes_in_cgroups_of_the_jobs_own_are_its_too(machine: Machine, tracer: ProcfsTracer) -> None:
    machine.process(100)
    machine.process(200)
    folder, slot = born(machine, tracer, 100)
    inner = folder / "mine/deeper"
    inner.mkdir(parents=True)
    (inner / "cgroup.procs").write_text("200\n")
    tracer.count_living()
    assert tracer.living["processes"][slot] == 2


def test_an_empty_slot_and_one_that_goes_are_told_in_order(machine: Machine, tracer: ProcfsTracer) -> None:
    machine.process(100, read=10)
    folder, slot = born(machine, tracer, 100)
    machine.end(100)
    machine.populate(folder)
    events = tracer.events()
    assert kinds(events) == [map_layout.EMPTY]
    assert tracer.counters["call_read_bytes"][slot] == 10
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    events = tracer.events()
    assert kinds(events) == [map_layout.CGROUP_GONE] and events["slot"][0] == slot
    tracer.stop(slot)
    tracer.settle()
    assert tracer.counters["cgroup_id"][slot] == 0


def test_an_end_is_seen_where_no_file_tells_of_it(machine: Machine, tracer: ProcfsTracer) -> None:
    """As with cgroups of version 1, which have no cgroup.events."""
    folder = machine.base / "condor_var_lib_condor_execute_slot1_2@host"
    folder.mkdir()
    machine.process(100)
    (folder / "cgroup.procs").write_text("100\n")
    assert kinds(tracer.events()) == [map_layout.BORN]
    machine.end(100)
    (folder / "cgroup.procs").write_text("")
    tracer.count_living()
    assert kinds(tracer.events()) == [map_layout.EMPTY]


def test_the_next_job_s_cgroup_of_the_same_name_is_another_slot(machine: Machine, tracer: ProcfsTracer) -> None:
    machine.process(100)
    folder, slot = born(machine, tracer, 100)
    folder.rename(machine.root / "away")  # its inode stays taken, so that the new folder has another one
    machine.process(101)
    machine.populate(machine.slot(), 101)
    events = tracer.events()
    assert kinds(events) == [map_layout.BORN, map_layout.EMPTY, map_layout.CGROUP_GONE]
    assert events["slot"][0] != slot and events["slot"][2] == slot
    assert tracer.living["processes"][slot] == 0, "the next job's are not its"


def test_a_zombie_loses_nothing_that_was_seen(machine: Machine, tracer: ProcfsTracer) -> None:
    machine.process(100, read=1000)
    _, slot = born(machine, tracer, 100)
    machine.process(100, read=0, state="Z")
    tracer.count_living()
    assert tracer.living["call_read_bytes"][slot] == 1000
    assert tracer.living["processes"][slot] == 0


def test_a_process_that_may_not_be_read_costs_its_numbers_alone(machine: Machine, tracer: ProcfsTracer) -> None:
    machine.process(100, read=1000)
    machine.process(101, read=20)
    (machine.root / "proc/101/io").unlink()
    _, slot = born(machine, tracer, 100, 101)
    assert tracer.living["processes"][slot] == 2
    assert tracer.living["call_read_bytes"][slot] == 1000


def test_a_job_with_any_number_of_cgroups_and_processes_costs_a_bounded_time(tmp_path: Path) -> None:
    for number in range(MOST_CGROUPS + 5):
        folder = tmp_path / f"{number:04}"
        folder.mkdir()
        (folder / "cgroup.procs").write_text("1\n")
    assert len(list(processes_in(str(tmp_path)))) < MOST_CGROUPS
    (tmp_path / "cgroup.procs").write_text("7\n" * (MOST_PROCESSES * 2))
    assert len(list(processes_in(str(tmp_path)))) == MOST_PROCESSES


def test_slots_take_turns_where_there_is_no_time_for_all(
    machine: Machine, tracer: ProcfsTracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        machine.process(100 + number, read=10)
        machine.populate(machine.slot(f"var_lib_condor_execute_slot1_{number}@host.slice"), 100 + number)
    tracer.events()
    for number in range(3):
        machine.process(100 + number, read=20)
    monkeypatch.setattr("condor_joblens.tracer.procfs.LONGEST", 0.0)
    for turn in range(1, 4):
        tracer.count_living()
        assert sum(tracer.living["call_read_bytes"]) == 30 + 10 * turn


def test_no_place_is_left_for_a_slot(machine: Machine) -> None:
    tracer = ProcfsTracer(1, [str(machine.base)], "a test", machine.files, str(machine.root))
    try:
        for number in range(2):
            machine.process(100 + number)
            machine.populate(machine.slot(f"var_lib_condor_execute_slot1_{number}@host.slice"), 100 + number)
        assert sorted(tracer.events()["slot"]) == [0, map_layout.NO_SLOT]
    finally:
        tracer.close()
        psutil.PROCFS_PATH = "/proc"


def test_no_system_call_is_counted_of_any_slot(tracer: ProcfsTracer) -> None:
    """A wrapper's call asks that at every level."""
    counts, counted = tracer.sensors["io"].counters(np.array([0, 3]))
    assert counts.tolist() == [False, False] and calls_and_bytes(counted) == (0, 0)
