#!/usr/bin/env python3
"""How often the hub accuses the innocent, and how much of what is wrong it finds, on fixed generated worlds.

The worlds are those of tests/unit/generated_worlds.py, with dice that begin at the same number each time: clusters of
jobs, memory of jobs over six hours, and nodes for an hour. They are the kinds by which rules were chosen, and Student's
t beside each. The rule's last two constants were chosen with a look at both of these:

    bench_false_alarms.py                # a minute, one core
    bench_false_alarms.py --seed 9000    # clusters alone, of other dice; nothing is kept
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "benchmarks"), str(CHECKOUT / "tests" / "unit")]

from generated_worlds import CLUSTERS, GIB, INNOCENT, LEAK_NOISE, cluster, leak, node_hour  # noqa: E402
from results import Section, verdict  # noqa: E402

from condor_joblens.analysis.leaks import HOUR  # noqa: E402
from condor_joblens.hub.store.schema import READING_SECONDS  # noqa: E402
from condor_joblens.hub.web.failures import FEW_OF, FEWEST, SEVERAL  # noqa: E402
from condor_joblens.hub.web.leaking import LOOKED_AT, WINDOW  # noqa: E402
from condor_joblens.hub.web.leaking import judged as judged_memory  # noqa: E402
from condor_joblens.hub.web.nodes import NO_NUMBERS  # noqa: E402
from condor_joblens.hub.web.nodes import judged as judged_node  # noqa: E402
from condor_joblens.hub.web.siblings import MEASURES, NARROW, spread  # noqa: E402

SIZES = (10, 20, 50, 100, 1000)
WORLDS = {10: 1000, 20: 1000, 50: 1000, 100: 1000, 1000: 200}
"""Clusters of a size."""

JOBS = 1000
LOOKS = (3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 5.95)
"""Hours after the begin of a job at which the page of leaks is looked at."""

NODES, NODE_HOURS, BAD = 1000, 60, 3


def main() -> int:
    """All of it; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="other dice, of clusters alone")
    seed: int = parser.parse_args().seed
    if seed:
        found = [innocent_clusters(seed), outliers(seed)]
    else:
        found = [innocent_clusters(), outliers(), memory(), nodes()]
        for section in found:
            section.write()
    return verdict([what for section in found for what in section.missed])


def standing_out(values: np.ndarray) -> np.ndarray:
    """Which jobs of a cluster stand out by memory, as the page of a job says it."""
    whole = spread(MEASURES[0], [float(value) for value in values])
    return np.array([whole is not None and whole.stands_out(float(value)) for value in values])


def innocent_clusters(seed: int = 0) -> Section:
    """The share of them that have a job that stands out."""
    section = Section(
        "alarms_clusters",
        "Innocent clusters with a job that stands out",
        "Of clusters of so many jobs.",
        is_matrix=True,
    )
    for kind in CLUSTERS:
        for size in SIZES:
            dice = np.random.default_rng(seed + 100 + size)
            alarms = np.mean([standing_out(cluster(dice, kind, size)).any() for _ in range(WORLDS[size])])
            section.add(f"{kind}: {size} jobs", 100 * float(alarms), "%", 1.0)
    return section


def outliers(seed: int = 0) -> Section:
    """Whether a job of so many times the median stands out in a narrow cluster."""
    section = Section(
        "alarms_outliers",
        "Outliers that are found in narrow clusters",
        "One job has so many times the median of its cluster, of which nine in ten have at most 1.5 times the median. "
        "Clusters are lognormal, of widths 0.05 to 0.3, and of 10 to 1000 jobs.",
    )
    for factor in (2.0, 3.0, 4.0, 5.0, 6.0, 10.0):
        shares = []
        for size in SIZES:
            dice, hits = np.random.default_rng(seed + 200 + size), []
            while len(hits) < WORLDS[size] // 2:
                values = GIB * np.exp(dice.uniform(0.05, 0.3) * dice.normal(0, 1, size - 1))
                if np.quantile(values, 0.9) <= NARROW * np.median(values):
                    hits.append(standing_out(np.append(values, factor * np.median(values)))[-1])
            shares.append(float(np.mean(hits)))
        by_size = ", ".join(f"{size}: {100 * share:.1f} %" for size, share in zip(SIZES, shares))
        target = 95.0 if factor == 5.0 else None
        section.add(f"factor {factor:g}", 100 * float(np.mean(shares)), "%", target, by_size, is_least=True)
    return section


def called(world: np.ndarray, hours: float) -> np.ndarray:
    """Which jobs are on the page of leaks so long after their begin."""
    readings = GIB * world[:, :: READING_SECONDS // 60]
    times = READING_SECONDS * np.arange(readings.shape[1])
    seen = (times <= hours * HOUR) & (times > hours * HOUR - LOOKED_AT)
    rows = [
        {"Run": number, "Times": times[seen], "Sizes": row[seen], "Held": 0, "Limit": None}
        for number, row in enumerate(readings)
    ]
    found = np.zeros(len(rows), bool)
    found[[one["Run"] for one in judged_memory(rows)]] = True
    return found


def memory() -> Section:
    """Innocent jobs on the page of leaks, and leaks."""
    section = Section(
        "alarms_leaks",
        "Leaks",
        f"Of innocent jobs the greatest share on the page at any of {len(LOOKS)} looks. In brackets: those that "
        "were on it at any of them. Leaks: after two windows, and by then or within six hours.",
    )
    for kind, world in INNOCENT.items():
        memory_of = world(np.random.default_rng(300), JOBS)
        looks = [called(memory_of, hours) for hours in LOOKS]
        ever = 100 * float(np.any(looks, axis=0).mean())
        section.add(f"innocent: {kind}", 100 * max(float(one.mean()) for one in looks), "%", 3.0, f"({ever:.1f} %)")
    for kind in LEAK_NOISE:
        for an_hour in (0.05, 0.1, 0.2, 0.5):
            world = leak(np.random.default_rng(301), JOBS, an_hour, kind)
            looks = [called(world, hours) for hours in LOOKS]
            first, ever = (100 * float(one.mean()) for one in (looks[0], np.any(looks, axis=0)))
            has_bar = an_hour >= 0.1 and "wide" not in kind  # a curve: that much noise is half of the growth
            name = f"{100 * an_hour:.0f} % an hour, noise {kind}"
            section.add(f"{name}: {2 * WINDOW / HOUR:g} h", first, "%", 60.0 if has_bar else None, is_least=True)
            section.add(f"{name}: 6 h", ever, "%", 90.0 if has_bar else None, is_least=True)
    return section


class Viewer:
    """As much of a reader as a node's judgement needs."""

    now, sees_others = 1e9, True


def nodes() -> Section:
    """Nodes that are called failing."""
    section = Section(
        "alarms_nodes",
        "Nodes",
        f"{NODE_HOURS} hours of {NODES} nodes; clusters begin in bursts, and some are broken. In as many more hours "
        f"{BAD} nodes fail nine in ten jobs.",
    )
    accused = caught = planted = 0
    for number in range(NODE_HOURS):
        accused += sum(is_failing(*node_hour(np.random.default_rng(400 + number), NODES)))
        ended, failed = node_hour(np.random.default_rng(500 + number), NODES, BAD)
        failing = is_failing(ended, failed)
        caught += sum(failing[:BAD])
        accused += sum(failing[BAD:])
        planted += int(((failed.sum(axis=0) >= FEWEST) & ((failed > 0).sum(axis=0) >= SEVERAL))[:BAD].sum())
    section.add("innocent nodes accused", accused, "", 0)
    section.add("bad nodes found, of those that failed five jobs of three clusters", 100 * caught / planted, "%")
    return section


def is_failing(ended: np.ndarray, failed: np.ndarray) -> list[bool]:
    """Of each node whether the page calls it so. Of each cluster and node: how many jobs ended, and failed."""
    viewer: Any = Viewer()
    others = ended.sum(axis=1)[:, None] - ended
    bad_others = failed.sum(axis=1)[:, None] - failed
    clusters = ((failed > 0) & (others > 0) & (bad_others < FEW_OF * others)).sum(axis=0)  # as nodes.py asks the store
    all_ended, all_failed = int(ended.sum()), int(failed.sum())
    found = []
    for here, bad, of in zip(ended.sum(axis=0).tolist(), failed.sum(axis=0).tolist(), clusters.tolist()):
        one = {**NO_NUMBERS, "ended": here, "failed": bad, "failed_clusters": of, "told": viewer.now}
        found.append(judged_node("n", one, all_ended - here, all_failed - bad, viewer)["health"] == "failing")
    return found


if __name__ == "__main__":
    sys.exit(main())
