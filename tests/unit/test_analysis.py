"""Answers from many jobs: causes put together, outliers by robust statistics, requests, and differences."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples

from condor_joblens.analysis.causes import causes, failures_inside, general
from condor_joblens.analysis.differences import differences, typical, wait_differences
from condor_joblens.analysis.job_summary import JobState, JobSummary, id_order
from condor_joblens.analysis.outliers import FEWEST, LEAST_FACTOR, modified_z_scores, outliers
from condor_joblens.analysis.requests import advice, rounded_up

MIB = 1 << 20


def well(process: int, **numbers: float) -> JobSummary:
    return JobSummary(f"5.{process}", JobState.WELL, numbers=numbers)


def failed(process: int, cause: str, state: JobState = JobState.FAILED) -> JobSummary:
    return JobSummary(f"5.{process}", state, cause)


def test_causes_that_differ_in_numbers_alone_are_one() -> None:
    jobs = [
        failed(11, "out of memory: reco held 3.9 GiB of 4 GiB"),
        failed(2, "out of memory: reco held 4 GiB of 4 GiB"),
        failed(3, "SIGSEGV in reco (core dumped)"),
        failed(4, "sh exited 1; first failure: dd exited 1, 3.1 s before"),
        failed(5, "sh exited 1; first failure: dd exited 1, 2 min before"),
        failed(9, "out of memory: reco held 5 GiB of 6 GiB"),
        well(1),
    ]
    found = [(cause.words, cause.jobs) for cause in causes(jobs)]
    assert found == [
        ("out of memory: reco", ("5.2", "5.9", "5.11")),
        ("sh exited 1; first failure: dd exited 1", ("5.4", "5.5")),
        ("SIGSEGV in reco", ("5.3",)),
    ]


def test_jobs_with_a_file_each_have_one_cause() -> None:
    full = "dd exited 1: no space left on /scratch: /scratch/out{}.root"
    held = "Transfer input files failure: reading from file /data/{}/x.root: (errno 2) No such file or directory"
    hashes = ("0123456789abcdef", "fedcba9876543210")
    jobs = [failed(n, full.format(n)) for n in range(500)]
    jobs += [failed(500 + n, held.format(name), JobState.HELD) for n, name in enumerate(hashes)]
    assert [(cause.words, len(cause.jobs)) for cause in causes(jobs)] == [
        (full.format("N"), 500),
        ("Transfer input files failure: reading from file /data/N/x.root: (errno 2) No such file or directory", 2),
    ]


def test_what_all_jobs_of_a_cause_share_is_named() -> None:
    refused = "load.py exited 1; first failure: curl exited 7: connection refused by 192.0.2.{}:443, {} s before"
    same = causes([failed(n, refused.format(7, n)) for n in range(3)])
    assert [cause.words for cause in same] == [refused.format(7, 0).replace(", 0 s before", "")]
    [cause] = causes([failed(n, refused.format(n, n)) for n in range(3)])
    assert "refused by an address" in cause.words


def test_what_failed_in_jobs_that_ended_well() -> None:
    copy = "cp exited 1: no such file: /data/{}.root, 0.{} s before the end"
    jobs = [dataclasses.replace(well(n), first_failure=copy.format(n, n)) for n in range(3)]
    [cause] = failures_inside([*jobs, well(3), failed(4, "sh exited 1")])
    assert (cause.words, cause.jobs) == ("cp exited 1: no such file: /data/N.root", ("5.0", "5.1", "5.2"))
    assert cause.example == jobs[0].first_failure and not causes(jobs)


def test_held_and_removed_are_not_failures_of_the_program() -> None:
    reason = "Error from slot1_{}@node{}: STARTER at 192.0.2.{}:9618 failed to write to the file"
    jobs = [failed(n, reason.format(n, n, n), JobState.HELD) for n in range(3)]
    jobs.append(failed(3, reason.format(1, 1, 1), JobState.REMOVED))
    states = [(cause.state, len(cause.jobs)) for cause in causes(jobs)]
    assert states == [(JobState.HELD, 3), (JobState.REMOVED, 1)]
    assert causes(jobs)[0].words == "Error from a slot: STARTER at an address failed to write to the file"


@settings(max_examples=examples(200))
@given(st.text(max_size=200))
def test_any_cause_has_general_words(cause: str) -> None:
    assert general(cause) and general(general(cause)) == general(cause)


def test_ids_are_in_the_order_of_their_numbers() -> None:
    assert sorted(["5.10", "5.9", "12.0", "x"], key=id_order) == ["x", "5.9", "5.10", "12.0"]


def test_the_slow_ones_of_a_cluster_are_found_and_no_others() -> None:
    seconds = [2000.0 + 30 * (n % 7) for n in range(95)] + [9000.0] * 5
    found = outliers([well(n, wall_seconds=value) for n, value in enumerate(seconds)])
    assert [one.job.job for one in found] == [f"5.{n}" for n in range(95, 100)]
    assert found[0].median == pytest.approx(2090) and found[0].count == 100


def test_a_third_that_is_slow_does_not_hide_itself() -> None:
    # by mean and standard deviation none of them would be beyond two
    seconds = [600.0 + n for n in range(20)] + [3600.0] * 10
    assert len(outliers([well(n, wall_seconds=value) for n, value in enumerate(seconds)])) == 10


def test_one_that_differs_from_equal_ones_is_found() -> None:
    jobs = [well(n, cpu_efficiency=0.97) for n in range(20)] + [well(20, cpu_efficiency=0.07)]
    assert [(one.job.job, one.measure.name) for one in outliers(jobs)] == [("5.20", "cpu_efficiency")]


def test_a_high_efficiency_and_a_small_difference_are_no_news() -> None:
    jobs = [well(n, cpu_efficiency=0.5, wall_seconds=10.0) for n in range(20)]
    jobs.append(well(20, cpu_efficiency=0.99, wall_seconds=50.0))
    assert outliers(jobs) == []


def test_few_siblings_other_clusters_and_running_jobs_say_nothing() -> None:
    slow = [well(n, wall_seconds=600.0) for n in range(FEWEST - 2)] + [well(90, wall_seconds=60000.0)]
    others = [JobSummary(f"6.{n}", JobState.WELL, numbers={"wall_seconds": 60000.0}) for n in range(20)]
    running = [JobSummary(f"5.{n}", JobState.RUNNING, numbers={"wall_seconds": 1.0}) for n in range(50, 60)]
    assert outliers([*slow, *others, *running]) == []


values = st.lists(st.floats(0, 1e15), min_size=1, max_size=60)


@settings(max_examples=examples(200))
@given(values)
def test_scores_are_finite_and_the_median_has_none(found: list[float]) -> None:
    scores = modified_z_scores(np.array(found))
    assert scores.shape == (len(found),) and np.isfinite(scores).all()
    assert (np.sign(scores) == np.sign(np.array(found) - np.median(found))).all() or not scores.any()


@settings(max_examples=examples(200))
@given(values)
def test_an_outlier_is_worse_than_the_median_by_a_factor(found: list[float]) -> None:
    for one in outliers([well(n, wall_seconds=value) for n, value in enumerate(found)]):
        assert one.value >= LEAST_FACTOR * one.median and one.value - one.median >= one.measure.least_difference


def test_requests_are_what_all_of_them_needed_with_headroom() -> None:
    jobs = [
        JobSummary(f"5.{n}", JobState.WELL, numbers={"memory_peak_bytes": (200 + n % 41) * MIB},
                   requested={"memory": 2048 * MIB, "cpus": 4}, used_cpus=0.97)
        for n in range(100)
    ]  # fmt: skip
    memory, cpus = advice(jobs)
    assert (memory.name, memory.ask, memory.asked, memory.above) == ("request_memory", 270 * MIB, 2048 * MIB, ())
    assert memory.greatest == 240 * MIB and memory.changes
    assert (cpus.name, cpus.ask, cpus.asked, cpus.changes) == ("request_cpus", 1, 4, True)


def test_one_job_that_needed_far_more_is_named_and_not_paid_for() -> None:
    sizes = [100.0] * 60 + [4000.0]
    jobs = [well(n, memory_peak_bytes=size * MIB) for n, size in enumerate(sizes)]
    [memory] = advice(jobs)
    assert (memory.ask, memory.above, memory.asked) == (110 * MIB, ("5.60",), None)


def test_what_failed_advises_nothing() -> None:
    jobs = [JobSummary(f"5.{n}", JobState.FAILED, "x", numbers={"memory_peak_bytes": 1.0}) for n in range(50)]
    assert advice(jobs) == [] and advice([well(n, memory_peak_bytes=1.0) for n in range(4)]) == []


@settings(max_examples=examples(200))
@given(st.floats(0, 1e15))
def test_a_request_is_never_less_than_its_size(size: float) -> None:
    asked = rounded_up(size)
    assert size - 1 <= asked <= max(1.1 * size + MIB, MIB) and asked % MIB == 0


def test_differences_are_worst_first() -> None:
    def job(name: str, seconds: float, efficiency: float, cvmfs: float) -> JobSummary:
        numbers = {"wall_seconds": seconds, "read_bytes": 1e9, "cpu_efficiency": efficiency}
        waits = {"cvmfs": cvmfs, "running": 100 - cvmfs}
        return JobSummary(name, JobState.WELL, numbers=numbers, waits=waits)

    slow = job("5.66", 7200.0, 0.07, 93.0)
    others = [job(f"5.{n}", 1800.0 + n, 0.9, 20.0) for n in range(9)]
    sibling = typical(others)
    assert sibling.numbers["wall_seconds"] == 1804.0
    found = differences(slow, sibling)
    assert [one.measure.name for one in found] == ["cpu_efficiency", "wall_seconds"]
    assert found[1].factor == pytest.approx(7200 / 1804)
    first, second = wait_differences(slow, sibling)
    assert {first.name, second.name} == {"cvmfs", "running"} and (first.share, first.other) in (
        (0.93, 0.2),
        (0.07, 0.8),
    )


def test_beside_nothing_a_factor_is_infinite_and_no_error() -> None:
    mine, theirs = well(1, read_bytes=1e12), well(2, read_bytes=0.0)
    [one] = differences(mine, theirs)
    assert math.isinf(one.factor) and wait_differences(mine, theirs) == []
