"""How long system calls wait, by class and length, against programs that wait for known times."""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from condor_joblens.tracer._bpf import ffi, lib
from ground import Cgroup, Ground, Slot, bpffs, forked, is_native, leave_the_cpu, on_ground, until

from condor_joblens.model.classes import SYSCALLS
from condor_joblens.profiles.call_waits import LENGTHS_NS
from condor_joblens.tracer.sensors import Io
from condor_joblens.tracer.sensors.io import CallWaits

pytestmark = pytest.mark.guest

READ, WAIT = (list(SYSCALLS).index(name) for name in ("Read", "Wait"))
SHORT_NS, LONG_NS = 300_000, 3_000_000
CLOCKS_NS = 50_000 if is_native() else 5_000_000
"""By so much two clocks of the kernel can tell a sleep of milliseconds apart, and what is read between two looks.

Emulated CPUs disagree on the time (dmesg: Marking TSC unstable). The scheduler's clock is right to a tick then: 4 ms.
"""

SLEEPS = 40
"""Of each length."""

DISTURBED = SLEEPS // 10
"""In so many sleeps the machine may do what no clock of a process tells: interrupts, and what its own host takes."""


def at_io(slot: Slot) -> Slot:
    """It, at level io: its job has begun, as one does with an exec."""
    slot.start_io()
    slot.run("children", 1)
    return slot


def kept(slot: Slot) -> tuple[Io, CallWaits]:
    sensor = slot.tracer.sensors["io"].sensor
    assert isinstance(sensor, Io)
    waits = sensor.keep_waits(slot.index)
    assert waits is not None, slot.tracer.missing
    return sensor, waits


def by_class(found: np.ndarray) -> np.ndarray:
    """How many calls of each class have waited for each length, shape (classes, lengths)."""
    table: np.ndarray = found["waits"].reshape(-1, 32)[: len(SYSCALLS), : len(LENGTHS_NS)]
    assert table.sum() == found["waits"].sum(), "there is no other class and no other length"
    return table


def run_delay_ns() -> int:
    """For how long this process was ready to run, and did not."""
    return int(Path("/proc/self/schedstat").read_text().split()[1])


def sleeps(says: Path, waits: CallWaits) -> Callable[[], None]:
    """Sleeps, and reads what never lets it wait; says of each sleep how long it took, and what of that was no wait.

    Only those count in which it has left the CPU: one can be over before that.
    """

    def act() -> None:
        leave_the_cpu()  # from then on it is known whose it is
        zeros, took = os.open("/dev/zero", os.O_RDONLY), []
        before = waits.read()  # it may have slept by then
        for wanted in itertools.chain.from_iterable([(SHORT_NS, LONG_NS)] * SLEEPS):
            switches, queued = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw, run_delay_ns()
            worked, began = time.thread_time_ns(), time.monotonic_ns()
            time.sleep(wanted / 1e9)
            ended, worked = time.monotonic_ns(), time.thread_time_ns() - worked
            os.read(zeros, 100)
            if resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw > switches:
                took.append([ended - began, worked + run_delay_ns() - queued])
        of_sleeps = by_class(before)[WAIT].tolist(), int(before["short_ns"][WAIT]), int(before["long_ns"][WAIT])
        says.write_text(json.dumps([took, of_sleeps]))

    return act


def assert_are_in(waits: CallWaits, said: Path) -> None:
    """All the sleeps are, one by one, as long as they were by the process's own clock and the kernel's run queue."""
    found = waits.read()
    took, (before, short_ns, long_ns) = json.loads(said.read_text())
    waited, sums = by_class(found)[WAIT] - np.array(before, "u8"), (found["short_ns"][WAIT], found["long_ns"][WAIT])
    most = np.array([whole for whole, _ in took]) + CLOCKS_NS
    least = np.array([whole - other for whole, other in took]) - CLOCKS_NS
    assert len(took) > SLEEPS and len(took) - DISTURBED <= waited.sum() <= len(took)
    for place, bound in enumerate(LENGTHS_NS):
        told, at_least = waited[place:].sum(), (least >= bound).sum() - DISTURBED
        assert at_least <= told <= (most >= bound).sum(), f"of {bound} ns or more"
    undisturbed = 1 - DISTURBED / SLEEPS
    assert undisturbed * least.sum() <= int(sums[0]) - short_ns + int(sums[1]) - long_ns <= most.sum()
    assert undisturbed * least[least >= 1e6].sum() <= int(sums[1]) - long_ns <= most[most >= 1e6].sum()


def test_lengths_of_waits_are_those_of_the_kernel() -> None:
    assert len(LENGTHS_NS) == lib.WAIT_LENGTHS
    shortest = lib.SHORTEST_WAIT_NUMERATOR / lib.SHORTEST_WAIT_DENOMINATOR
    assert tuple([0.0, *(shortest * 2**step for step in range(lib.WAIT_LENGTHS - 1))]) == LENGTHS_NS
    assert 1e6 in LENGTHS_NS


def test_sleeps_are_counted_one_by_one_with_their_lengths(ground: Ground, tmp_path: Path) -> None:
    slot = at_io(ground.slot())
    sensor, waits = kept(slot)
    slot.call(sleeps(tmp_path / "said", waits))
    assert_are_in(waits, tmp_path / "said")
    assert slot.io_totals()["syscall_read_calls"] >= 2 * SLEEPS > by_class(waits.read())[READ].sum()
    sensor.keep_no_waits(waits)


def test_a_read_that_waits_is_told_from_those_that_do_not(ground: Ground) -> None:
    slot = at_io(ground.slot())
    _, waits = kept(slot)
    reader, writer = os.pipe()

    def act() -> None:
        leave_the_cpu()
        for _ in range(20):
            os.read(reader, 1)

    pid = slot.fork(act)
    for count in range(20):
        # it has waited for the ones before, and sleeps again
        until(lambda count=count: by_class(waits.read())[READ].sum() == count and is_asleep(pid))  # type: ignore[misc]
        os.write(writer, b"x")
    os.waitpid(pid, 0)
    assert by_class(waits.read())[READ].sum() == 20
    os.close(reader)
    os.close(writer)


def is_asleep(pid: int) -> bool:
    return Path(f"/proc/{pid}/wchan").read_text().startswith(("pipe", "anon_pipe"))


def test_nothing_is_kept_of_jobs_at_io_and_the_next_job_in_a_row_begins_anew(ground: Ground, tmp_path: Path) -> None:
    first, other = at_io(ground.slot()), at_io(ground.slot("condor_slot2"))
    sensor, waits = kept(first)
    other.call(sleeps(tmp_path / "said", waits))
    assert waits.read()["waits"].sum() == 0
    assert sensor.keep_waits(63) is None, "a slot that is not at io"
    first.tracer.sensors["io"].stop(first.index)
    third = at_io(ground.slot("condor_slot3"))  # in the first one's row
    third.call(sleeps(tmp_path / "said", waits))
    assert waits.read()["waits"].sum() == 0
    _, again = kept(third)
    assert again.read()["waits"].sum() == 0
    third.call(sleeps(tmp_path / "said", again))
    assert_are_in(again, tmp_path / "said")
    assert waits.read()["waits"].sum() == 0


def test_what_an_agent_has_left_behind_is_nobodys(name: str, tmp_path: Path) -> None:
    def live() -> None:
        slot = at_io(Ground(name).slot())
        assert is_kept(*kept(slot)[:1], row=0)
        os.kill(os.getpid(), signal.SIGKILL)

    with bpffs():
        assert os.waitpid(forked(live), 0)[1] == signal.SIGKILL
        go_on(name, tmp_path)


def go_on(name: str, tmp_path: Path) -> None:
    with on_ground(name) as ground:
        assert ground.tracer.adopted
        sensor = ground.tracer.sensors["io"].sensor
        assert isinstance(sensor, Io) and not is_kept(sensor, row=0)
        slot = Slot(Cgroup(Ground.place(name) / "condor_slot1").path, ground.tracer)
        _, waits = kept(slot)
        slot.call(sleeps(tmp_path / "said", waits))
        assert_are_in(waits, tmp_path / "said")


def is_kept(sensor: Io, row: int) -> bool:
    """Whether there is an array for the row."""
    return lib.bpf_map_lookup_elem(sensor.maps["jl_call_waits"], ffi.new("__u32 *", row), ffi.new("__u32 *")) == 0
