"""Jobs with process ids of their own: HTCondor's first process in the slot isn't the job, and hides nothing.

In guests, whose emulated CPUs take longer than a wrapper may, only what holds for an init that is counted as well.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import ground as grounds
import pytest
from ground import Slot, until

from condor_joblens.jobs.pid_namespace_init import NAME, NOBODY, PidNamespaceInit
from condor_joblens.tracer import map_layout

CLONE_NEWPID = 0x20000000
CHILDREN = 3
JOBS = {"process_forked": CHILDREN, "process_executed": 1 + CHILDREN, "process_exited": 1 + CHILDREN}
INITS = {"process_forked": 1, "process_executed": 1, "process_exited": 1}
"""What condor_pid_ns_init adds if it is counted."""

FEW = 64 << 20
_libc = ctypes.CDLL(None, use_errno=True)


class Starter:
    """Starts jobs as HTCondor's starter does with USE_PID_NAMESPACES."""

    def __init__(self, slot: Slot, folder: Path) -> None:
        self.slot = slot
        self.init = folder / NAME
        shutil.copy(grounds.init_program(), self.init)
        self.init.chmod(0o755)
        grounds.stays_in_memory(self.init)
        self.known = PidNamespaceInit(str(folder))
        self.slot.tracer.know_init(*(self.known.look() or NOBODY))

    def run(self, *arguments: str, init: bool = True, own_pids: bool = True, **environment: str) -> int:
        """A job of job.c to its end; the exit code of the slot's first process, as wait(2) has it."""
        return self.wait(self.start(*arguments, init=init, own_pids=own_pids, **environment))

    def start(self, *arguments: str, init: bool = True, own_pids: bool = True, **environment: str) -> int:
        """The process that waits for the slot's first one, and ends as it does."""
        command = [str(self.init)] * init + [str(grounds.JOB), *arguments]

        def first() -> None:
            if own_pids and _libc.unshare(CLONE_NEWPID):
                raise OSError(ctypes.get_errno(), "unshare")
            into = os.open(self.slot.path / "cgroup.procs", os.O_WRONLY)
            pid = os.fork()
            if not pid:
                os.write(into, b"0")
                os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
                os.execve(command[0], command, environment)
            os._exit(os.WEXITSTATUS(os.waitpid(pid, 0)[1]))

        return grounds.forked(first)

    def wait(self, pid: int) -> int:
        return os.waitpid(pid, 0)[1]

    @property
    def count(self) -> Mapping[str, int]:
        return self.slot.tracer.counters[self.slot.index]  # type: ignore[no-any-return]

    def first_and_job(self) -> tuple[int, int]:
        """The two processes of a job that waits, once it does."""
        until(lambda: len(self.slot.pids()) == 2 and not self.count["awaits_exec"])
        first, job = sorted(self.slot.pids(), key=lambda pid: os.readlink(f"/proc/{pid}/exe") != str(self.init))
        return first, job

    def counted(self) -> dict[str, float]:
        totals = self.slot.totals()
        return {name: totals[name] for name in JOBS}


@pytest.fixture
def starter(slot: Slot, tmp_path: Path) -> Iterator[Starter]:
    yield Starter(slot, tmp_path)
    slot.tracer.know_init(*NOBODY)


def with_init() -> dict[str, int]:
    return {name: JOBS[name] + INITS[name] for name in JOBS}


def test_numbers_are_the_jobs_own(starter: Starter) -> None:
    assert starter.run("children", str(CHILDREN)) == 0
    assert starter.counted() == JOBS
    assert starter.count["init_apart"] and not starter.count["kept_early"]


def test_its_end_is_that_of_the_job(starter: Starter) -> None:
    starter.run("leave", "3")
    assert (starter.count["main_exit_code"], starter.count["main_exits"]) == (3 << 8, 1)
    assert starter.slot.totals()["process_failed"] == 1


def test_of_a_job_that_lives_nothing_else_does(starter: Starter) -> None:
    pid = starter.start("wait", "600000")
    first, _ = starter.first_and_job()
    totals = starter.slot.totals()
    assert (totals["process_live"], totals["process_threads"], totals["process_forked"]) == (1, 1, 0)
    os.kill(first, signal.SIGTERM)
    starter.wait(pid)
    assert starter.count["main_exit_code"] == signal.SIGTERM
    assert starter.count["ender_signal"] == signal.SIGTERM, "who told it to end told the job"
    assert starter.slot.totals()["process_signalled"] == 1


def test_it_has_no_calls_and_no_waits_at_level_io(starter: Starter) -> None:
    starter.slot.start_io()
    pid = starter.start("wait", "600000")
    _, job = starter.first_and_job()
    until(lambda: starter.slot.io_totals().get("wait_sleep_seconds", 0) > 0)
    os.kill(job, signal.SIGKILL)
    starter.wait(pid)
    lived = starter.count["ender_ns"] - starter.count["born_ns"]
    assert starter.slot.io_totals()["wait_sleep_seconds"] <= lived * 1e-9, "of one process, and not of two"


@pytest.mark.parametrize("what", ["late", "thread"])
def test_one_that_does_more_beside_the_job_is_counted(starter: Starter, what: str) -> None:
    assert starter.run("children", str(CHILDREN), PID_NS_INIT=what) == 0
    totals = starter.slot.totals()
    assert starter.count["kept_early"] == map_layout.KEPT_INIT
    assert totals["process_exited"] == JOBS["process_exited"] + INITS["process_exited"]
    assert what == "thread" or totals["io_call_read_bytes"] >= FEW


@pytest.mark.guest
def test_one_that_does_more_before_the_job_is_counted(starter: Starter) -> None:
    assert starter.run("children", str(CHILDREN), PID_NS_INIT="read") == 0
    assert starter.count["kept_early"] == map_layout.KEPT_WRAPPER
    assert starter.counted() == with_init()
    assert starter.slot.totals()["io_call_read_bytes"] >= FEW
    assert starter.count["main_exits"] == 1 and starter.count["main_tgid"] != starter.count["init_tgid"]


def test_a_job_that_is_such_a_program_is_no_init(starter: Starter) -> None:
    """In the machine's own pid namespace."""
    assert starter.run("children", str(CHILDREN), own_pids=False) == 0
    assert starter.counted() == with_init() and not starter.count["init_tgid"]


def test_a_job_below_the_init_that_is_such_a_program_is_counted(starter: Starter) -> None:
    grounds.JOB, job = starter.init, grounds.JOB
    try:
        assert starter.run(str(job), "children", str(CHILDREN)) == 0
    finally:
        grounds.JOB = job
    assert starter.counted() == with_init() and starter.count["init_apart"]


def test_another_file_of_that_name_is_no_init(starter: Starter) -> None:
    starter.slot.tracer.know_init(1, 1)
    assert starter.run("children", str(CHILDREN)) == 0
    assert starter.counted() == with_init()


def test_a_first_process_without_init_is_the_job(starter: Starter) -> None:
    """USE_PID_NAMESPACE_INIT = false."""
    assert starter.run("children", str(CHILDREN), init=False) == 0
    assert starter.counted() == JOBS and not starter.count["init_tgid"]


def test_an_upgraded_init_is_told_anew_and_others_files_are_not(starter: Starter) -> None:
    assert starter.known.look() is None
    new = starter.init.with_suffix(".new")
    shutil.copy(starter.init, new)
    new.rename(starter.init)
    found = starter.known.look()
    assert found is not None and found != NOBODY
    starter.init.chmod(0o777)
    assert starter.known.look() == NOBODY
    starter.init.unlink()
    assert starter.known.look() == NOBODY and starter.known.look() is None


@pytest.mark.guest
def test_a_job_that_is_older_than_the_programs_ends_as_its_own(starter: Starter) -> None:
    """Of its init it is told as far as it can be: by the program that it runs."""
    pid = starter.start("wait", "600000")
    _, job = starter.first_and_job()
    tracer, index = starter.slot.tracer, starter.slot.index
    for name in ("init_tgid", "init_apart", "main_tgid", "main_exits"):
        tracer.counters[name][index] = 0
    for _ in range(2):
        tracer.count_living()
    assert starter.count["init_tgid"] and starter.count["main_tgid"] not in (0, starter.count["init_tgid"])
    os.kill(job, signal.SIGSEGV)
    starter.wait(pid)
    assert starter.count["main_exit_code"] & 0x7F == signal.SIGSEGV
