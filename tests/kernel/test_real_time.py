"""joblensd's real-time priority in this kernel: when it is lent, what bounds it, and what the lender can do."""

from __future__ import annotations

import itertools
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ground import Ground, Job, Slot

from condor_joblens.agent.priority import PriorityLender
from condor_joblens.common import inotify, readiness
from condor_joblens.common.lender import LOAN_SECONDS
from condor_joblens.common.own_process import HelperLost
from condor_joblens.common.privilege import CAPABILITIES

LENDERS_USER, WEIGHT = 64002, 7

WORKS_FOR_US = """
import os, sys, time
from condor_joblens.agent import priority
from condor_joblens.common import lender

priority.LONGEST_AT_A_TIME = 300_000
priority.bound_real_time()
lender.set_priority([0], is_lent=True)
assert os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR
"""


def policy(pid: int) -> int:
    return os.sched_getscheduler(pid) & ~os.SCHED_RESET_ON_FORK


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.001)


@pytest.fixture
def lender() -> Iterator[PriorityLender]:
    lender = PriorityLender(LENDERS_USER, LENDERS_USER)
    yield lender
    lender.stop()


@pytest.fixture
def borrower() -> Iterator[int]:
    with subprocess.Popen(["nice", f"-{WEIGHT}", "sleep", "60"]) as process:
        yield process.pid
        process.kill()


def is_real_time(pid: int) -> bool:
    return policy(pid) == os.SCHED_RR


def written(ring: int) -> bytes:
    """How far the kernel has written in a BPF ring buffer: the page behind the reader's, see linux/bpf.h."""
    with mmap.mmap(ring, mmap.PAGESIZE, prot=mmap.PROT_READ, offset=mmap.PAGESIZE) as page:
        return page[:8]


def lends(borrower: int, act: Callable[[], object]) -> None:
    """Does it again and again until it is seen to be followed by a loan, and by the end of that."""

    def done() -> bool:
        until(lambda: not is_real_time(borrower), "a loan comes to its end")
        act()
        deadline = time.monotonic() + LOAN_SECONDS
        while not (found := is_real_time(borrower)) and time.monotonic() < deadline:
            pass
        return found

    until(done, "a loan")
    until(lambda: not is_real_time(borrower), "a loan comes to its end")
    assert os.getpriority(os.PRIO_PROCESS, borrower) == WEIGHT, "it has the weight that it had before"


@pytest.fixture
def watches(tmp_path: Path) -> Iterator[inotify.Inotify]:
    """They report what is moved into a job's folder."""
    watches = inotify.Inotify()
    watches.add(str(tmp_path), inotify.MOVED_TO)
    yield watches
    watches.close()


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        yield listener


@pytest.fixture
def callers(listener: socket.socket) -> Iterator[select.epoll]:
    """It is readable while somebody waits to be accepted."""
    with select.epoll() as callers:
        callers.register(listener, select.EPOLLIN)
        yield callers


@pytest.fixture
def urgent(ground: Ground) -> int:
    ring = ground.tracer.urgent_fileno()
    assert ring is not None
    return ring


@pytest.mark.guest
def test_starts_and_ends_of_jobs_lend_it_for_a_moment_and_nothing_else_does(
    ground: Ground,
    lender: PriorityLender,
    borrower: int,
    urgent: int,
    watches: inotify.Inotify,
    callers: select.epoll,
) -> None:
    numbers = itertools.count(1)

    def birth() -> Slot:
        return ground.slot(f"condor_slot{next(numbers)}")

    def settle() -> None:
        until(lambda: not is_real_time(borrower), "a loan comes to its end")

    def first_program(slot: Slot | None = None) -> Job:
        slot = slot or birth()
        settle()
        job = slot.start("wait", 60_000)
        until(job.has_begun, "the job has begun")
        return job

    def wrappers_helper() -> None:
        slot = birth()
        first_program(slot)
        settle()
        slot.run("exit", 0)

    def end() -> None:
        job = first_program()
        settle()
        job.kill()
        job.wait()

    lender.lend(urgent, (watches.fileno(), callers.fileno()), borrower)
    for act in (birth, first_program, wrappers_helper, end):
        lends(borrower, act)
    slot = birth()
    born = written(urgent)
    first = slot.start("wait", 60_000)
    until(lambda: written(urgent) != born and first.has_begun(), "the job has begun")
    slot.run("exit", 0)
    begun = written(urgent)
    slot.run("children", 3)
    assert written(urgent) == begun, "other processes of a job lend nothing"
    first.kill()
    first.wait()


def test_an_ad_that_somebody_puts_into_a_folder_soon_after_a_start_lends_it(
    ground: Ground,
    lender: PriorityLender,
    borrower: int,
    urgent: int,
    watches: inotify.Inotify,
    callers: select.epoll,
    tmp_path: Path,
) -> None:
    numbers = itertools.count(1)

    def overwritten_after_birth() -> None:
        ground.slot(f"condor_slot{next(numbers)}")
        until(lambda: not is_real_time(borrower), "a loan comes to its end")
        list(watches.take())
        (tmp_path / "new").write_text("")
        (tmp_path / "new").rename(tmp_path / ".update.ad")

    lender.lend(urgent, (watches.fileno(), callers.fileno()), borrower)
    lends(borrower, overwritten_after_birth)
    assert list(watches.take()), "what is reported is left to joblensd"


def test_a_caller_soon_after_a_start_lends_it(
    ground: Ground,
    lender: PriorityLender,
    borrower: int,
    urgent: int,
    watches: inotify.Inotify,
    callers: select.epoll,
    listener: socket.socket,
) -> None:
    numbers = itertools.count(1)
    held: list[socket.socket] = []

    def calls_after_birth() -> None:
        while callers.poll(0):
            listener.accept()[0].close()
        ground.slot(f"condor_slot{next(numbers)}")
        until(lambda: not is_real_time(borrower), "a loan comes to its end")
        held.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        held[-1].connect(listener.getsockname())

    lender.lend(urgent, (watches.fileno(), callers.fileno()), borrower)
    lends(borrower, calls_after_birth)
    for caller in held:
        caller.close()


def test_the_lender_can_change_priorities_and_nothing_else(lender: PriorityLender) -> None:
    lines = Path(f"/proc/{lender.pid}/status").read_text().splitlines()
    facts = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    assert set(facts["Uid"].split()) == {str(LENDERS_USER)} and facts["Groups"] == ""
    for held in ("CapEff", "CapPrm", "CapBnd"):
        assert int(facts[held], 16) == 1 << CAPABILITIES["CAP_SYS_NICE"], held
    assert (facts["NoNewPrivs"], facts["Seccomp"]) == ("1", "2")
    assert is_real_time(lender.pid)


def test_its_end_is_noticed(lender: PriorityLender) -> None:
    os.kill(lender.pid, signal.SIGKILL)
    readiness.readable([lender], 20)
    with pytest.raises(HelperLost, match="lends priority was ended by signal 9"):
        lender.lost()


def test_without_the_capability_one_line_says_so() -> None:
    script = """
from condor_joblens.agent import priority
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.privilege import keep_only
keep_only(("CAP_SETUID", "CAP_SETGID"))
try:
    priority.PriorityLender(64002, 64002)
except JobLensError as error:
    assert "CAP_SYS_NICE" in str(error) and len(str(error).splitlines()) == 1
else:
    raise SystemExit("it has started")
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def ended(script: str) -> int:
    ran = subprocess.run([sys.executable, "-c", WORKS_FOR_US + script], stderr=subprocess.PIPE, text=True, timeout=120)
    assert ran.returncode <= 0, ran.stderr
    return ran.returncode


def test_who_hangs_with_a_loan_that_nobody_takes_back_is_ended_by_the_kernel() -> None:
    hang = "end = time.monotonic() + 60\nwhile time.monotonic() < end:\n    pass\n"
    assert ended(hang) == -signal.SIGKILL


def test_who_sleeps_now_and_then_is_not() -> None:
    work = """
began = time.process_time()
while time.process_time() < began + 0.6:
    until = time.process_time() + 0.02
    while time.process_time() < until:
        pass
    time.sleep(0.002)
"""
    assert ended(work) == 0


def test_what_it_starts_inherits_neither_priority_nor_weight() -> None:
    script = """
import subprocess
asked = [sys.executable, "-c", "import os; print(os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0))"]
said = []
assert subprocess.check_output(asked, text=True).split() == ["0", "0"]
lender.set_priority([0], is_lent=False)
priority.weigh(0, said.append)
assert os.getpriority(os.PRIO_PROCESS, 0) == priority.NICE and said == []
assert subprocess.check_output(asked, text=True).split() == ["0", "0"]
"""
    assert ended(script) == 0
