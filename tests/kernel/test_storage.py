"""Bytes and calls, faults and waiting for a CPU: what the kernel keeps per thread, summed without a gap."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np
import pytest
from ground import IO_COLUMNS, Ground, Job, Slot, assert_io_of, proc_io, until, until_asleep

from condor_joblens.jobs.run_state import OFFSETS
from condor_joblens.model.metrics import empty_rows
from condor_joblens.sample import totals as sums


@pytest.mark.parametrize(
    "verb",
    [
        ("move", 1000, 777),
        ("children", 50),
        ("orphans", 64),
        ("threads", 20, 8, "group", 0),
        ("threads", 20, 8, "leader", 0),
        ("threadexec", 20),
        ("contend", 5, 20),
    ],
    ids=lambda verb: "-".join(map(str, verb)),
)
@pytest.mark.guest
def test_io_is_what_proc_says(slot: Slot, verb: tuple[object, ...]) -> None:
    assert_io_of(slot, slot.run(*verb))


@pytest.mark.disk
def test_storage_bytes_are_what_proc_says(slot: Slot, tmp_path: Path) -> None:
    ended = slot.run("store", tmp_path / "data", 3 << 20)
    assert ended.io["write_bytes"] >= 3 << 20
    assert_io_of(slot, ended)


@pytest.mark.guest
@pytest.mark.parametrize("verb", [("children", 30), ("threads", 20, 8, "alone", 0)], ids=["children", "threads"])
def test_faults_are_those_of_rusage(slot: Slot, verb: tuple[object, ...]) -> None:
    ended = slot.run(*verb)
    known = ended.usage.ru_minflt - ended.said["faults"]
    # between its exec and its main the job can't look yet
    assert known <= slot.totals()["memory_minor_faults"] <= known + ended.said["faults"]


def test_the_living_are_counted_with_what_has_ended(slot: Slot) -> None:
    job = slot.start("children", 20, "wait", 60000)
    until(lambda: slot.totals()["process_exited"] == 20)
    until_asleep(job.pid, "clock_nanosleep")  # it has reaped all: /proc has what they did only then
    # in /proc are also those it reaped, and what its process had done before its exec
    assert 20 * 3000 < slot.io()["rchar"] <= proc_io(job.pid)["rchar"]
    job.kill()
    job.wait()


def sample_until_its_end(slot: Slot, job: Job) -> list[dict[str, float]]:
    """All that is seen of it; as in the agent, not before the kernel says that it has begun."""
    samples = []
    while not os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
        if not slot.tracer.counters["awaits_exec"][slot.index]:
            samples.append(slot.totals())
    return samples


@pytest.mark.guest
def test_no_sample_is_above_the_truth_while_processes_end(ground: Ground) -> None:
    sampled, jobs = 0, itertools.count()
    # on a busy machine a job can be over before it is looked at
    while (number := next(jobs)) < 20 or (sampled < 10 and number < 50):
        slot = ground.slot(f"condor_slot1_{number}")
        job = slot.start("move", 200, 100_000)
        samples = sample_until_its_end(slot, job)
        ended = job.wait()
        sampled += len(samples)
        assert [sample for sample in samples if sample["io_call_read_bytes"] > ended.io["rchar"]] == []
        assert_io_of(slot, ended)
    assert sampled >= 10


def test_published_totals_only_rise_and_end_at_the_truth_under_churn(slot: Slot) -> None:
    rows, offsets = empty_rows(1), np.zeros(1, OFFSETS)
    job = slot.start("churn", 1500)
    before = rows.copy()
    for sample in [*sample_until_its_end(slot, job), None]:
        ended = job.wait() if sample is None else None
        measured = {name: np.array([value]) for name, value in (sample or slot.totals()).items()}
        sums.merge(rows, offsets, np.array([0]), measured)
        for name in IO_COLUMNS.values():
            assert rows[name][0] >= before[name][0]
        before = rows.copy()
    assert ended is not None and ended.said["forked"] > 100
    assert_io_of(slot, ended)
    assert {name: rows[column][0] for name, column in IO_COLUMNS.items()} == slot.io()
    assert rows["process_forked"][0] == ended.said["forked"]


def waited(pid: int) -> int:
    """Nanoseconds that its only thread has waited for a CPU."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])


@pytest.mark.guest
def test_waiting_for_a_cpu_is_what_schedstat_says(slot: Slot) -> None:
    cpus = os.cpu_count() or 1
    job = slot.start("contend", 2 * cpus + 1, 60000)

    def children() -> list[int]:
        return [pid for pid in slot.pids() if pid != job.pid]

    until(lambda: len(children()) == 2 * cpus + 1 and sum(map(waited, children())) > 10**8)
    pids = children()
    least = sum(map(waited, pids)) * 1e-9
    counted = slot.totals()["cpu_run_queue_seconds"]
    most = sum(map(waited, [*pids, job.pid])) * 1e-9
    job.kill()
    job.wait()
    assert least <= counted <= most
