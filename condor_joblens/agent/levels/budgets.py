"""The node's budgets: jobs at each level, and CPU of joblensd. Over a budget, the least important jobs step down."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

import numpy as np

from condor_joblens.model.levels import Level

SMOOTHED_SECONDS = 60.0
"""Time constant of joblensd's own CPU: a burst of jobs that start must not lower the levels of others."""

ROOM = 0.8
"""Share of the CPU budget below which one step is taken back. Without this gap a job would go up and down."""


class Over(enum.IntEnum):
    """The budget that last lowered a job's level."""

    NONE = 0
    JOBS_IO = 1
    JOBS_PROFILE = 2
    JOBS_TRACE = 3
    CPU = 4
    QUOTA = 5


@dataclass(frozen=True)
class JobLimits:
    """Greatest number of jobs at each level or a higher one: a higher level counts what the lower ones count."""

    io: int
    profile: int
    trace: int


@dataclass(frozen=True)
class Quotas:
    """Which quota of the policies each of n jobs counts for, and what that allows; all of shape (n,)."""

    key: np.ndarray  # u8; 0: none
    jobs: np.ndarray  # f8; below 0: it says no number
    share: np.ndarray  # f8 of the node's jobs; below 0: it says none

    def limits(self) -> dict[int, int]:
        """Key -> jobs that it allows. A share of n jobs allows one at least, unless it is 0."""
        found: dict[int, int] = {}
        keys, first = np.unique(self.key, return_index=True)
        for key, place in zip(keys.tolist(), first.tolist()):
            jobs, share = float(self.jobs[place]), float(self.share[place])
            limits = [int(jobs)] if jobs >= 0 else []
            limits += [max(int(share * len(self.key)), int(share > 0))] if share >= 0 else []
            if key and limits:
                found[key] = min(limits)
        return found


def within_quotas(
    wanted: np.ndarray, priority: np.ndarray, began: np.ndarray, quotas: Quotas
) -> tuple[np.ndarray, np.ndarray]:
    """`wanted` (n,) within the quotas of the policies: the levels, and Over.QUOTA for each job that one has lowered.

    A quota counts the jobs that are watched closer than basic; the least important step down to basic.
    """
    levels: np.ndarray = wanted.astype("i8")
    over: np.ndarray = np.zeros(len(levels), "i8")
    order = np.lexsort((-began, priority))  # the least important first
    for key, limit in quotas.limits().items():
        closer = order[(levels[order] > Level.BASIC) & (quotas.key[order] == key)]
        down = closer[: max(0, len(closer) - limit)]
        levels[down], over[down] = Level.BASIC, Over.QUOTA
    return levels, over


def within(
    wanted: np.ndarray, priority: np.ndarray, began: np.ndarray, limits: JobLimits, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """`wanted` within the budgets: the levels, and for each job the budget (Over) that lowered its level last.

    `wanted`, `priority` and `began` (when the run started) have shape (n,). The least important job has the lowest
    priority and, among equals, started last. `steps` is the number of steps down that joblensd's use of CPU calls for.
    First jobs above `io` take them, because their samples are what costs CPU; the others only when no job is above it.
    Of both the least important job begins, and each takes one before any takes a second. No job steps below `basic`,
    and none is raised.
    """
    levels: np.ndarray = wanted.astype("i8")
    over: np.ndarray = np.zeros(len(levels), "i8")
    order = np.lexsort((-began, priority))  # the least important first
    for level, limit, reason in (
        (Level.TRACE, limits.trace, Over.JOBS_TRACE),
        (Level.PROFILE, limits.profile, Over.JOBS_PROFILE),
        (Level.IO, limits.io, Over.JOBS_IO),
    ):
        closer = order[levels[order] >= level]
        down = closer[: max(0, len(closer) - limit)]
        levels[down] = level - 1
        over[down] = reason
    for least in (Level.IO, Level.BASIC):
        while steps > 0 and len(closer := order[levels[order] > least]):
            down = closer[:steps]
            levels[down] -= 1
            over[down] = Over.CPU
            steps -= len(down)
    return levels, over


class OwnCpu:
    """What joblensd and its processes use of CPU, smoothed, and how many steps down it calls for."""

    def __init__(self) -> None:
        self.cores = 0.0
        self.steps = 0
        self._before: tuple[float, float] | None = None  # what `measure` was told

    def measure(self, cpu_seconds: float, now: float) -> None:
        """Updates `cores`. `cpu_seconds`: what all of them have used so far; `now`: CLOCK_MONOTONIC.

        What was used before the first call is of the start, and lowers nobody's level. If a process is gone, its time
        was counted before.
        """
        before, since = self._before or (cpu_seconds, now)
        seconds = now - since
        if seconds > 0:
            new = 1 - math.exp(-seconds / SMOOTHED_SECONDS)
            self.cores += new * (max(0.0, cpu_seconds - before) / seconds - self.cores)
        self._before = cpu_seconds, now

    def adapt(self, budget: float, sampled: int, most: int) -> None:
        """Over the budget (cores) there are more steps, below ROOM of it fewer; `most` is the greatest number possible.

        The further above, the more at once: at twice the budget, half of the steps that are left. The first `sampled`
        are those of jobs above `io`: if they have not all been taken, none further is before it shows what they bring.
        """
        if self.cores > budget:
            left = max(0, (sampled if self.steps < sampled else most) - self.steps)
            self.steps += math.ceil(left * (1 - budget / self.cores))
        elif self.cores < ROOM * budget:
            self.steps -= 1
        self.steps = max(0, min(self.steps, most))
