"""Fixed generated worlds of jobs and clusters: innocent ones, and some in which something is wrong.

The kinds are those by which rules were chosen: noise whose values resemble their neighbours (AR(1)), random walks,
warm-ups and steps of one job's memory; lognormal, bimodal and mostly empty clusters, and each with heavy tails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

MINUTES = 360
"""Of a world of memory: a value a minute."""

GIB = float(1 << 30)

DEGREES = 3
"""Of freedom, of Student's t: the heaviest tails with a standard deviation."""


def hours() -> np.ndarray:
    """When the values of a world of memory are, shape (MINUTES,)."""
    return np.arange(MINUTES) / 60.0


def noise(dice: np.random.Generator, count: int, memory: float, size: float, heavy: bool = False) -> np.ndarray:
    """AR(1) of standard deviation `size`, shape (count, MINUTES): each value keeps `memory` of the one before."""
    shape = (count, MINUTES)
    shocks = dice.standard_t(DEGREES, shape) / np.sqrt(DEGREES / (DEGREES - 2)) if heavy else dice.normal(0, 1, shape)
    found = shocks.copy()
    for place in range(1, MINUTES):
        found[:, place] = memory * found[:, place - 1] + np.sqrt(1 - memory**2) * shocks[:, place]
    return size * found


def walk(dice: np.random.Generator, count: int, step: float, heavy: bool = False) -> np.ndarray:
    """A random walk from 1, never below a twentieth."""
    shape = (count, MINUTES)
    steps = dice.standard_t(DEGREES, shape) / np.sqrt(DEGREES / (DEGREES - 2)) if heavy else dice.normal(0, 1, shape)
    return np.maximum(0.05, 1 + np.cumsum(step * steps, axis=1))


def step(dice: np.random.Generator, count: int) -> np.ndarray:
    """Half as much again, from some moment on."""
    at = dice.integers(0, MINUTES, (count, 1))
    return 1 + 0.5 * (np.arange(MINUTES) >= at) + noise(dice, count, 0.9, 0.02)


def warm_up(dice: np.random.Generator, count: int, hours_long: float) -> np.ndarray:
    """From a fifth to the whole: quickly at first, then ever more slowly."""
    return 1 - 0.8 * np.exp(-hours() / hours_long) + noise(dice, count, 0.9, 0.02)


World = Callable[[np.random.Generator, int], np.ndarray]

INNOCENT: Mapping[str, World] = {
    "AR(1), weak": lambda dice, count: 1 + noise(dice, count, 0.5, 0.05),
    "AR(1)": lambda dice, count: 1 + noise(dice, count, 0.9, 0.05),
    "AR(1), strong": lambda dice, count: 1 + noise(dice, count, 0.97, 0.05),
    "AR(1), Student-t": lambda dice, count: 1 + noise(dice, count, 0.9, 0.05, heavy=True),
    "random walk": lambda dice, count: walk(dice, count, 0.005),
    "random walk, wild": lambda dice, count: walk(dice, count, 0.01),
    "random walk, Student-t": lambda dice, count: walk(dice, count, 0.005, heavy=True),
    "warm-up of minutes": lambda dice, count: warm_up(dice, count, 0.2),
    "warm-up of an hour": lambda dice, count: warm_up(dice, count, 1.0),
    "step": step,
}
"""Memory of jobs that do not leak, in units of what they have: a function of dice and the number of jobs each."""

LEAK_NOISE = {"0.5": (0.5, 0.02), "0.9": (0.9, 0.02), "0.9, Student-t": (0.9, 0.02), "0.9, wide": (0.9, 0.05)}
"""AR(1) noise of leaks, by name: what each value keeps of the one before, and the standard deviation."""


def leak(dice: np.random.Generator, count: int, an_hour: float, kind: str) -> np.ndarray:
    """Memory that grows by this share of its begin an hour, in one of LEAK_NOISE."""
    memory, size = LEAK_NOISE[kind]
    return 1 + an_hour * hours() + noise(dice, count, memory, size, "Student-t" in kind)


def cluster(dice: np.random.Generator, kind: str, count: int) -> np.ndarray:
    """A number of each of an innocent cluster's jobs, shape (count,): bytes."""
    heavy = kind.endswith("Student-t")
    wide = dice.standard_t(DEGREES, count) if heavy else dice.normal(0, 1, count)
    if kind.startswith("lognormal"):
        return GIB * np.exp(0.5 * wide)
    if kind.startswith("narrow"):
        return GIB * np.exp(0.1 * wide)
    if kind.startswith("bimodal"):
        return GIB * np.where(dice.random(count) < 0.3, 4 + 0.2 * wide, 1 + 0.05 * wide).clip(0)
    return np.where(dice.random(count) < 0.9, 0.0, dice.exponential(20e6, count) * np.abs(wide))


CLUSTERS = tuple(
    f"{shape}{tails}" for shape in ("lognormal", "narrow", "bimodal", "mostly 0") for tails in ("", ", Student-t")
)
"""Kinds of clusters."""


def node_hour(dice: np.random.Generator, nodes: int, bad: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """An hour in which clusters begin in bursts: of each cluster and node, how many jobs ended, and how many failed.

    Each shape (clusters, nodes). A cluster's jobs go to neighbouring nodes. One cluster in twenty is broken and fails
    nearly everywhere; one in ten fails for a third. The first `bad` nodes fail nine in ten jobs, whosever they are.
    """
    clusters = nodes // 2
    ended, failed = np.zeros((clusters, nodes), int), np.zeros((clusters, nodes), int)
    rates = dice.choice([0.01, 0.3, 0.95], clusters, p=[0.85, 0.1, 0.05])
    sizes = np.minimum(dice.lognormal(3, 1, clusters).astype(int) + 1, 4 * nodes)
    for number, (rate, size, begin) in enumerate(zip(rates, sizes, dice.integers(0, nodes, clusters))):
        where = (begin + dice.integers(0, max(1, int(size) // 3), size)) % nodes
        fails = dice.random(size) < np.where(where < bad, 0.9, rate)
        ended[number] = np.bincount(where, minlength=nodes)
        failed[number] = np.bincount(where[fails], minlength=nodes)
    return ended, failed
