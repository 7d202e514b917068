#!/usr/bin/env python3
"""What level profile costs a job's system calls and context switches above level io.

The same job at io and at profile, in one run and on one core: it calls, and switches through a pipe. A round is io,
profile, profile, io, or the other way round: what the machine does to all of them more and more is in no difference.
Nobody reads the samples, so none of what joblensd does is in it: bench_profile.py has that.

    bench_profile_calls.py [--rounds N]         as root, after `make build`
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "tests" / "kernel"), str(CHECKOUT / "benchmarks")]

from ground import Slot, on_ground  # noqa: E402
from results import Section, verdict  # noqa: E402

from condor_joblens.tracer.sensors import Io, Profile  # noqa: E402

ROOT, RUN = 0, 1
CALLS = {"getppid": (200, 3000), "switch": (20, 1000)}
"""How many calls in a batch, and how many batches."""

WHAT = {"getppid": ("a call that does not wait", 5.0), "switch": ("a switch through a pipe, with its calls", 20.0)}
"""With the most nanoseconds that level profile may add."""


@contextmanager
def at_io(slot: Slot) -> Iterator[None]:
    slot.start_io()
    try:
        yield
    finally:
        slot.tracer.sensors["io"].stop(slot.index)


@contextmanager
def at_profile(slot: Slot) -> Iterator[None]:
    """As joblensd has it: samples, stacks of waits, and the lengths of all waits."""
    on_demand, io = slot.tracer.sensors["profile"], slot.tracer.sensors["io"].sensor
    assert isinstance(on_demand.sensor, Profile) and isinstance(io, Io)
    with at_io(slot):
        on_demand.sensor.describe(slot.index, RUN, ROOT)
        assert on_demand.start(slot.index), on_demand.missing
        waits = io.keep_waits(slot.index)
        assert waits is not None
        try:
            yield
        finally:
            io.keep_no_waits(waits)
            on_demand.stop(slot.index)
            on_demand.sensor.detach()  # so that nothing of it is there while io is measured


MODES = {"io": at_io, "profile": at_profile}
ROUND, REVERSED = ("io", "profile", "profile", "io"), ("profile", "io", "io", "profile")
_STANDARD_ERRORS = 1.96  # for 95 %


def nanoseconds(slot: Slot, program: Path, verb: str, cpu: int) -> float:
    """Of one call: of this time's batches that which only one in twenty undercuts."""

    def enter() -> None:
        slot.enter()
        os.sched_setaffinity(0, {cpu})

    command = [str(program), verb, *map(str, CALLS[verb])]
    done = subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=enter)
    return statistics.quantiles(map(float, done.stdout.split()), n=20)[0]


def measured(slot: Slot, program: Path, verb: str, rounds: int) -> dict[str, list[float]]:
    """The mean of each mode, round by round."""
    found: dict[str, list[float]] = {mode: [] for mode in MODES}
    cpu = max(os.sched_getaffinity(0))
    for number in range(rounds):
        took: dict[str, list[float]] = {mode: [] for mode in MODES}
        for mode in ROUND if number % 2 else REVERSED:
            with MODES[mode](slot):
                took[mode].append(nanoseconds(slot, program, verb, cpu))
        for mode, each in took.items():
            found[mode].append(statistics.mean(each))
    return found


def interval(differences: list[float]) -> tuple[float, float]:
    """Where their median is with a confidence of 95 %: by their order, however they are distributed."""
    ordered, middle = sorted(differences), (len(differences) - 1) / 2
    away = _STANDARD_ERRORS * math.sqrt(len(ordered)) / 2
    return ordered[max(0, math.floor(middle - away))], ordered[min(len(ordered) - 1, math.ceil(middle + away))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=40, help="each is io, profile, profile, io (40)")
    rounds = parser.parse_args().rounds
    if os.geteuid() != 0:
        parser.error("programs are loaded into the kernel: run it as root")
    section = Section(
        "profile_calls",
        "Level profile: system calls and context switches",
        f"One job at levels io and profile in turn on one core, {rounds} rounds; the median of their differences.",
    )
    with tempfile.TemporaryDirectory() as folder, on_ground(f"joblens-bench-{os.getpid()}") as ground:
        program = Path(folder) / "calls"
        subprocess.run(["gcc", "-O2", "-Wall", "-o", program, CHECKOUT / "benchmarks" / "calls.c"], check=True)
        slot = ground.slot()
        for verb, (what, target) in WHAT.items():
            found = measured(slot, program, verb, rounds)
            section.add(f"{what}: at io", min(found["io"]), "ns")
            differences = [mine - other for mine, other in zip(found["profile"], found["io"])]
            lower, upper = interval(differences)
            note = f"with a confidence of 95 % from {lower:.3g} to {upper:.3g}"
            if lower <= target < upper:
                note += ": more rounds would tell"
            section.add(f"{what}: at profile, more", statistics.median(differences), "ns", target, note=note)
    section.write()
    return verdict(section.missed)


if __name__ == "__main__":
    sys.exit(main())
