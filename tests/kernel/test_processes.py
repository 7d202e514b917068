"""Processes and threads: every fork, exec and end is counted once, however it comes about."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from ground import COUNTS, Ended, Slot, until


def counted(slot: Slot) -> dict[str, int]:
    totals = slot.totals()
    return {name: int(totals[f"process_{name}"]) for name in COUNTS}


def expected(ended: Ended) -> dict[str, int]:
    """What the job said, and its own exec and end, which it can't say."""
    said = {name: ended.said[name] for name in COUNTS}
    return {**said, "executed": said["executed"] + 1, "exited": said["exited"] + 1}


@pytest.mark.guest
@pytest.mark.parametrize("verb", [("children", 30), ("orphans", 32), ("threadexec", 20), ("move", 1, 1)])
def test_counts_are_what_the_job_counted(slot: Slot, verb: tuple[object, ...]) -> None:
    assert expected(slot.run(*verb)) == counted(slot)


@pytest.mark.guest
@pytest.mark.parametrize("manner", ["group", "alone", "leader"])
def test_processes_whose_threads_end_together_end_once(slot: Slot, manner: str) -> None:
    ended = slot.run("threads", 200, 8, manner, 0)
    assert ended.said["exited"] == 200
    assert expected(ended) == counted(slot)


@pytest.mark.parametrize("count", [pytest.param(50, marks=pytest.mark.guest), 5000])
def test_processes_without_their_first_thread_live_once(slot: Slot, count: int) -> None:
    job = slot.start("leaderless", count)
    until(lambda: slot.totals()["process_threads"] == 2 * count + 1, 60)
    assert slot.totals()["process_live"] == count + 1
    job.kill()
    job.wait()


@pytest.mark.guest
def test_every_kind_of_end(slot: Slot, tmp_path: Path) -> None:
    ended = slot.run("ends", tmp_path)
    assert (ended.said["failed"], ended.said["signalled"]) == (3, 6)
    assert expected(ended) == counted(slot)


@pytest.mark.parametrize("code", [0, 7, 255])
def test_exit_code_of_the_first_process(slot: Slot, code: int) -> None:
    assert slot.run("children", 2, "leave", code).status == code << 8
    counters = slot.tracer.counters[slot.index]
    assert (counters["main_exits"], counters["main_exit_code"]) == (1, code << 8)


@pytest.mark.guest
def test_first_process_that_is_killed(slot: Slot) -> None:
    job = slot.start("wait", 60000)
    until(lambda: slot.totals()["process_executed"] == 1)
    job.kill()
    job.wait()
    assert slot.tracer.counters["main_exit_code"][slot.index] & 0x7F == signal.SIGKILL
