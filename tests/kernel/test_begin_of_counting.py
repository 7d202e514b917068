"""Counting begins with an exec: what the starter and the wrapper did in the slot before is not the job's."""

from __future__ import annotations

import os
from pathlib import Path

import ground as grounds
import pytest
from ground import Slot, assert_io_of

pytestmark = pytest.mark.guest


def busy() -> None:
    """What a starter might do in its child: I/O, and a process of its own."""
    data = Path(grounds.JOB).read_bytes()
    with open("/dev/null", "wb", buffering=0) as null:
        for _ in range(50):
            null.write(data)
    pid = os.fork()
    if pid == 0:
        os._exit(3)
    os.waitpid(pid, 0)


def test_what_came_before_the_first_exec_is_not_counted(slot: Slot) -> None:
    assert slot.tracer.counters["awaits_exec"][slot.index] == 1
    ended = slot.start("move", 10, 100, before_exec=busy).wait()
    totals = slot.totals()
    assert_io_of(slot, ended)
    assert (totals["process_forked"], totals["process_executed"], totals["process_exited"]) == (0, 1, 1)
    assert totals["process_failed"] == 0
    assert slot.tracer.counters["awaits_exec"][slot.index] == 0


def test_a_fork_that_never_execs_is_not_the_job(slot: Slot) -> None:
    slot.call(busy)
    assert slot.tracer.counters["main_exits"][slot.index] == 0
