#!/usr/bin/env python3
"""What level profile costs a job's system calls and context switches above level io.

The same job at io and at profile, in turn, in one run: it calls, and switches through a pipe. Nobody reads the samples,
so none of what joblensd does is in it: bench_profile.py has that.

    bench_profile_calls.py [--rounds N]         as root, after `make build`
"""

from __future__ import annotations

import argparse
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


def nanoseconds(slot: Slot, program: Path, verb: str) -> float:
    """Of one call: of this time's batches that which only one in twenty undercuts."""
    command = [str(program), verb, *map(str, CALLS[verb])]
    done = subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=slot.enter)
    return statistics.quantiles(map(float, done.stdout.split()), n=20)[0]


def measured(slot: Slot, program: Path, verb: str, rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {mode: [] for mode in MODES}
    for number in range(rounds):
        for mode in list(MODES) if number % 2 else list(MODES)[::-1]:
            with MODES[mode](slot):
                found[mode].append(nanoseconds(slot, program, verb))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=40, help="of each, at io and at profile (40)")
    rounds = parser.parse_args().rounds
    if os.geteuid() != 0:
        parser.error("programs are loaded into the kernel: run it as root")
    section = Section(
        "profile_calls",
        "Level profile: system calls and context switches",
        f"One job at levels io and profile in turn, {rounds} times; the median of the differences.",
    )
    with tempfile.TemporaryDirectory() as folder, on_ground(f"joblens-bench-{os.getpid()}") as ground:
        program = Path(folder) / "calls"
        subprocess.run(["gcc", "-O2", "-Wall", "-o", program, CHECKOUT / "benchmarks" / "calls.c"], check=True)
        slot = ground.slot()
        for verb, (what, target) in WHAT.items():
            found = measured(slot, program, verb, rounds)
            section.add(f"{what}: at io", min(found["io"]), "ns")
            lower, more, upper = statistics.quantiles(
                (mine - other for mine, other in zip(found["profile"], found["io"])), n=4
            )
            note = f"half of the differences lie between {lower:.3g} and {upper:.3g}"
            section.add(f"{what}: at profile, more", more, "ns", target, note=note)
    section.write()
    return verdict(section.missed)


if __name__ == "__main__":
    sys.exit(main())
