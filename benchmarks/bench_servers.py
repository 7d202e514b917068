#!/usr/bin/env python3
"""What counting requests costs: one to a daemon of FUSE, and the same call on a local file, which makes none.

Without the programs and with them in turn, again and again, in one run; the median of the differences counts. The
request is a look-up of a name that is not there: no other one is answered sooner. Then how long the programs
themselves run for one, by the kernel's own statistics.

    bench_servers.py [--rounds N]        as root, after `make build`
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "tests" / "kernel"), str(CHECKOUT / "benchmarks")]

from condor_joblens.tracer._bpf import lib  # noqa: E402
from ground import Cgroup, Ground, fuse_program, on_ground, until  # noqa: E402
from results import Section, verdict  # noqa: E402

COUNT, BATCHES = 50, 200
MODES = ("none", "unwatched", "watched")


@contextlib.contextmanager
def fuse(where: Path) -> Iterator[Path]:
    """Our own FUSE file system."""
    where.mkdir()
    server = subprocess.Popen([fuse_program(), where, "-f", "-o", "subtype=cvmfs2,negative_timeout=0"])
    try:
        until(where.is_mount)
        yield where
    finally:
        subprocess.run(["umount", "-l", where], check=True)
        server.wait(10)


class Bench:
    """A job and a neighbour outside of all slots, with the programs attached or not."""

    def __init__(self, ground: Ground, folder: Path) -> None:
        self.tracer = ground.tracer
        self.jobs = {"watched": ground.slot(), "unwatched": Cgroup(ground.base.parent)}
        self.program = folder / "calls"
        subprocess.run(["gcc", "-O2", "-Wall", "-o", self.program, CHECKOUT / "benchmarks" / "calls.c"], check=True)
        slot = self.tracer.slot_of(self.jobs["watched"].cgroup_id)
        assert slot is not None
        self.tracer.counters["awaits_exec"][slot] = 0

    def one(self, mode: str, path: Path) -> float:
        """Nanoseconds of a look-up: of the batches that which only one in twenty undercuts."""
        for sensor in self.tracer.requests:
            if sensor.loaded is not None and sensor.is_attached != (mode != "none"):
                sensor.detach() if sensor.is_attached else sensor.attach(None)
        cgroup = self.jobs["watched" if mode == "watched" else "unwatched"]
        command = [self.program, "stat", str(COUNT), str(BATCHES), path]
        done = subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=cgroup.enter)
        return statistics.quantiles(map(float, done.stdout.split()), n=20)[0]

    def each(self, rounds: int, path: Path) -> dict[str, list[float]]:
        """What each mode took, the modes in turn."""
        took: dict[str, list[float]] = {mode: [] for mode in MODES}
        for number in range(rounds):
            for mode in MODES if number % 2 else MODES[::-1]:
                took[mode].append(self.one(mode, path))
        return took

    def inside(self, path: Path) -> float:
        """Nanoseconds that the programs run for a look-up."""
        statistics_on = lib.bpf_enable_stats(lib.BPF_STATS_RUN_TIME)
        assert statistics_on >= 0, "kernel.bpf_stats_enabled can't be had"
        try:
            self.one("watched", path)
            names = [name for sensor in self.tracer.requests for name in sensor.programs()]
            costs = self.tracer.programs_cost()
            return sum(1e9 * costs[name][0] / costs[name][1] for name in names if costs[name][1])
        finally:
            os.close(statistics_on)


def more(took: dict[str, list[float]], mode: str) -> float:
    """By how much a mode takes longer than without any program."""
    return statistics.median(after - before for after, before in zip(took[mode], took["none"]))


def main() -> int:
    """Measures all of it; 1 where a target is missed."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=20)
    rounds = arguments.parse_args().rounds
    section = Section(
        "servers",
        "Level basic: requests to file servers",
        "A look-up of a name that is not there, on FUSE with a daemon that does nothing else, and on a tmpfs. Without "
        "our programs and with them in turn, in one run; the median of the rounds.",
    )
    with tempfile.TemporaryDirectory() as path, on_ground(f"joblens-bench-{os.getpid()}") as ground:
        bench = Bench(ground, Path(path))
        with fuse(Path(path) / "mounted") as where:
            took = bench.each(rounds, where / "nothing")
            section.add("FUSE: a request without our programs", min(took["none"]), "ns")
            section.add("FUSE: watched, more", more(took, "watched"), "ns", 3000.0)
            section.add("FUSE: of no job, more", more(took, "unwatched"), "ns")
            share = 100 * more(took, "watched") / statistics.median(took["none"])
            section.add("FUSE: watched, more", share, "%", note="of a daemon that does next to nothing")
            section.add("FUSE: inside our programs", bench.inside(where / "nothing"), "ns", note="by bpf_stats")
        local = bench.each(rounds, Path("/dev/shm/nothing"))
        section.add("local: a call without our programs", min(local["none"]), "ns")
        section.add("local: watched, more", more(local, "watched"), "ns", note="none of them runs: this is the noise")
    section.write()
    return verdict(section.missed)


if __name__ == "__main__":
    sys.exit(main())
