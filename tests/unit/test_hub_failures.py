"""Failures by cause, and whether site or task is to blame: worlds in which it is known."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from condor_joblens.hub.web.failures import Ended, Failure, Wave, kind, waves


def failure(cluster: int, node: int, cause: str = "SIGSEGV in reco", owner: str = "", **other: Any) -> Failure:
    return Failure(cause, None, f"ap#{cluster}", f"n{node}", owner or f"u{cluster}", **other)


def told(
    failures: Sequence[Failure],
    well: Sequence[Failure] = (),
    before: Any = None,
) -> list[Wave]:
    """well: of runs that ended well, cluster, node and servers."""
    whole = [*failures, *well]
    ended = Ended(
        Counter(one.node for one in whole),
        Counter(one.cluster for one in whole),
        Counter(name for one in whole for name in one.servers),
    )
    return waves(failures, before or {}, ended)


def test_few_failures_are_no_wave() -> None:
    (wave,) = told([failure(1, n, "out of memory: reco") for n in range(3)])
    assert (wave.cause, wave.count, wave.is_wave, wave.sentence) == ("out of memory: reco", 3, False, "")


def test_an_equal_name_at_two_schedds_is_named_as_nobody() -> None:
    failures = [replace(failure(n, n, owner="alice"), cluster=f"ap{n % 2}#{n}") for n in range(20)]
    (wave,) = told(failures)
    assert "alice" not in wave.sentence and wave.blamed is None, "a firing of it has no owner, so nobody takes it out"


def test_one_cluster_on_many_nodes_is_the_task() -> None:
    failures = [failure(12, node, owner="alice") for node in range(20)]
    well = [failure(cluster, node) for cluster in range(20, 25) for node in range(20)]
    (wave,) = told(failures, well)
    assert wave.verdict == "task" and wave.blamed == ("cluster", "ap#12")
    assert wave.sentence == (
        "20 jobs of cluster 12 of alice failed on 20 nodes, where 100 other jobs ended in that hour."
    )


def test_jobs_that_ended_beside_failures_of_one_cluster_are_those_of_the_same_nodes() -> None:
    failures = [failure(12, node, owner="alice") for node in range(20)] + [failure(13, 50) for _ in range(4)]
    well = [failure(cluster, node) for cluster in range(20, 25) for node in range(20)]
    assert "on 20 nodes, where 100 other jobs ended" in told(failures, well)[0].sentence


def test_many_clusters_on_one_node_that_do_well_elsewhere_are_the_site() -> None:
    failures = [failure(cluster, 7) for cluster in range(6) for _ in range(3)]
    well = [failure(cluster, node) for cluster in range(6) for node in range(20, 40)]
    (wave,) = told(failures, well)
    assert wave.verdict == "site" and wave.blamed == ("node", "n7")
    assert wave.sentence == (
        "18 jobs of 6 clusters failed on the node n7; elsewhere 0 of at least 120 jobs of these clusters did."
    )


def test_a_node_on_which_bad_clusters_run_is_not_blamed() -> None:
    """Their jobs fail elsewhere too, or run nowhere else."""
    nowhere = [failure(cluster, 7, owner="alice") for cluster in range(6)]
    assert told(nowhere)[0].verdict == "task"
    elsewhere = [failure(c, 7) for c in range(4) for _ in range(10)] + [
        failure(c, 8) for c in range(4) for _ in range(2)
    ]
    assert "the node n7" not in told(elsewhere)[0].sentence


def test_what_ends_well_on_a_node_is_not_elsewhere() -> None:
    failures = [failure(cluster, 7) for cluster in range(4) for _ in range(5)]
    well = [failure(cluster, 7) for cluster in range(4) for _ in range(20)]
    assert told(failures, well)[0].verdict != "site"


def test_a_server_that_all_who_failed_asked_is_the_site_if_others_did_not_ask_it() -> None:
    failures = [failure(c, node, servers=("/cvmfs", "nfs1")) for c in range(5) for node in range(4)]
    well = [failure(c, node, servers=("/cvmfs",)) for c in range(10, 20) for node in range(4)]
    (wave,) = told(failures, well)
    assert wave.verdict == "site"
    assert wave.sentence.startswith("20 of 20 jobs that asked the file server nfs1 failed, of 5 clusters on 4 nodes")
    assert wave.blamed == ("server", "nfs1")


def test_a_server_that_everybody_asks_is_not_blamed() -> None:
    failures = [failure(c, c, servers=("/cvmfs",)) for c in range(6)]
    well = [failure(c, c, servers=("/cvmfs",)) for c in range(10, 60)]
    assert "/cvmfs" not in told(failures, well)[0].sentence


def test_a_site_on_which_all_fail_is_the_site_and_some_bad_jobs_of_many_people_are_not() -> None:
    failures = [failure(c, n) for c in range(6) for n in range(6)]
    assert told(failures)[0].verdict == "site" and "36 of 36" in told(failures)[0].sentence
    well = [failure(c, n) for c in range(6) for n in range(6) for _ in range(3)]
    assert told(failures, well)[0].verdict == "unclear"


def test_one_cluster_on_one_node_is_not_clear() -> None:
    (wave,) = told([failure(3, 1) for _ in range(9)])
    assert wave.verdict == "unclear" and "1 node alone" in wave.sentence


def test_what_is_usual_is_no_wave() -> None:
    failures = [failure(1, node) for node in range(10)]
    assert told(failures, before={"SIGSEGV in reco": 24 * 5})[0].is_wave
    (wave,) = told(failures, before={"SIGSEGV in reco": 24 * 6})
    assert not wave.is_wave and wave.usual == 6 and not wave.verdict


def test_a_kind_has_no_words_of_a_job() -> None:
    said = [
        "SIGSEGV in /home/alice/secret",
        "out of memory: secret held 3 GiB",
        "exit code 3: open of /secret failed",
        "x",
    ]
    assert [kind(one) for one in said] == ["SIGSEGV", "out of memory", "exit code 3", "another cause"]


def test_an_exit_code_is_a_cause() -> None:
    (wave,) = told([Failure("", 3, "ap#1", "n1", "x")] * 2)
    assert wave.cause == "exit code 3"
    assert Failure("", None, "", "", "").words == "no reason is known"


@pytest.mark.parametrize("seed", range(20))
def test_no_innocent_node_is_blamed(seed: int) -> None:
    """Clusters fail in bursts, each wherever it runs; whole clusters may land on few nodes."""
    world = random.Random(seed)
    failures, well = [], []
    for cluster in range(150):
        rate = world.choice([0.0, 0.0, 0.02, 0.02, 0.9])
        nodes = world.sample(range(100), world.randint(2, 10))
        for _ in range(world.randint(5, 60)):
            one = failure(cluster, world.choice(nodes))
            (failures if world.random() < rate else well).append(one)
    for wave in told(failures, well):
        assert "the node" not in wave.sentence


@pytest.mark.parametrize("seed", range(20))
def test_a_node_that_kills_is_found(seed: int) -> None:
    world = random.Random(seed)
    failures, well = [], []
    for cluster in range(100):
        for _ in range(world.randint(5, 60)):
            one = failure(cluster, world.randrange(50), "disk is full")
            (failures if one.node == "n13" and world.random() < 0.9 else well).append(one)
    (wave,) = told(failures, well)
    assert wave.verdict == "site" and wave.blamed == ("node", "n13")
