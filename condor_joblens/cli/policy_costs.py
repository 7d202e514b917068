"""What a job costs a node at each level, for `joblens policy simulate`. docs/policies.md shows this table."""

from __future__ import annotations

from dataclasses import dataclass

from condor_joblens.model.levels import Level

SYSCALLS, SWITCHES = 10_000, 1_000
"""A busy job, each second: what levels above basic cost grows with what the job asks of the kernel."""


@dataclass(frozen=True)
class Cost:
    """CPU that a job at a level takes from its node."""

    cores: float  # share of one core, while the job runs
    source: str  # where the figure comes from


_BASIC = 0.018e-3 / 1 + 0.23e-3 / 30 + (1e-3 + 1.5e-3) / 75
_IO = _BASIC + SYSCALLS * 94e-9 + SWITCHES * 185e-9

COSTS = {
    Level.OFF: Cost(0.0, "nothing is counted"),
    Level.BASIC: Cost(
        _BASIC, "docs/sizing.md: 0.018 ms a round each second, 0.23 ms an ad each 30 s, 2.5 ms an update each 75 s"
    ),
    Level.IO: Cost(_IO, "and 94 ns a syscall, 185 ns a context switch (benchmarks/results/syscalls.json)"),
    Level.PROFILE: Cost(_IO + SYSCALLS * 100e-9 + 0.001, "and 100 ns a syscall, 0.1 % of a core for stacks"),
    Level.TRACE: Cost(
        _IO + SYSCALLS * (100e-9 + 11e-9) + 0.001,
        "and 11 ns a syscall for the flight recorder (benchmarks/results/recorder.json), besides 190 ns an event; "
        "joblens trace has bounds of its own",
    ),
}
