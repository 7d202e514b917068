"""What a job costs a node at each level, for `joblens policy simulate` and `joblens control preview`.

docs/policies.md shows this table. The times are those of the machines that docs/performance.md names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from condor_joblens.model.levels import Level

SYSCALLS, SWITCHES = 10_000, 1_000
"""A busy job, each second: what levels above basic cost grows with what the job asks of the kernel."""


@dataclass(frozen=True)
class Cost:
    """CPU that a job at a level takes from its node."""

    cores: float  # share of one core, while the job runs
    source: str  # where the figure comes from


RECORDER_CALL, RECORDER_EVENT = 2e-9, 230e-9
"""Seconds of a system call that is no event, and of one that is, for the flight recorder, beyond an empty program. They
are those of benchmarks/results/recorder.json. Of an event, another CPU had 150 ns."""

_BASIC = 0.018e-3 / 1 + 0.23e-3 / 30 + (1e-3 + 1.5e-3) / 75
_CALLS = SYSCALLS * 94e-9 + SWITCHES * 185e-9
_IO = _BASIC + _CALLS

COSTS = {
    Level.OFF: Cost(0.0, "nothing is counted"),
    Level.BASIC: Cost(
        _BASIC, "docs/sizing.md: 0.018 ms a round each second, 0.23 ms an ad each 30 s, 2.5 ms an update each 75 s"
    ),
    Level.IO: Cost(_IO, "and 94 ns a syscall, 185 ns a context switch (benchmarks/results/syscalls.json)"),
    Level.PROFILE: Cost(_IO + SYSCALLS * 100e-9 + 0.001, "and 100 ns a syscall, 0.1 % of a core for stacks"),
    Level.TRACE: Cost(
        _IO + SYSCALLS * (100e-9 + RECORDER_CALL) + 0.001,
        f"and {RECORDER_CALL * 1e9:.0f} ns a syscall for the flight recorder (benchmarks/results/recorder.json), "
        f"besides {RECORDER_EVENT * 1e9:.0f} ns an event; joblens trace has bounds of its own",
    ),
}


def gained(before: Sequence[int], after: Sequence[int], begun: int) -> float:
    """Cores that nodes spend more, if so many jobs of theirs are at each level (off to trace) before and after.

    While one job of a node is at io or above, calls of all its jobs cost. `begun` is the number of jobs on the nodes
    where that begins, less those where it ends. All jobs are supposed to be as busy as COSTS supposes.
    """
    own = [COSTS[level].cores - (_CALLS if level >= Level.IO else 0.0) for level in Level]
    return begun * _CALLS + sum((new - old) * cost for old, new, cost in zip(before, after, own))
