#!/usr/bin/env python3
"""What it would cost that a process of its own holds the BPF descriptors, and joblensd asks it once a round.

The programs are loaded and one slot is watched. A round's work in the kernel is done by this process, and by a forked
one that is asked over a socket, as joblensd asks its other helpers. Maps that are shared memory stay shared in both.

    bench_bpf_part.py            as root, after `make build`
"""

from __future__ import annotations

import os
import socket
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "tests" / "kernel"), str(CHECKOUT / "benchmarks")]

from ground import forked, on_ground  # noqa: E402
from results import Section, verdict  # noqa: E402

from condor_joblens.common.own_process import cpu_seconds  # noqa: E402

ROUNDS = 2000
PAUSE = 0.002  # seconds between two rounds: both processes sleep before each, as they do once a second

ROUND_SECONDS, A_JOB_SECONDS = 0.003, 0.000018
"""Of joblensd's CPU, by docs/sizing.md."""

MOST = 10.0
"""Percent of a round: what is dearer is not worth it."""

NOTHING, ROUND = b"n", b"r"


def main() -> int:
    """Measures both; exit code 1 if it is dearer than MOST."""
    section = Section("bpf_part", "BPF in a process of its own, which joblensd does not have", f"{ROUNDS} rounds each.")
    with on_ground(f"joblens-bench-{os.getpid()}") as ground:
        ground.slot()
        tracer = ground.tracer

        def work() -> None:
            tracer.count_living()
            tracer.count_connections()

        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        part = forked(lambda: serve(ours, theirs, work))
        theirs.close()

        def ask(what: bytes) -> None:
            ours.send(what)
            ours.recv(1)

        both = (os.getpid(), part)
        direct, _ = rounds(work, both)
        asked, _ = rounds(lambda: ask(ROUND), both)
        exchange, waits = rounds(lambda: ask(NOTHING), both)
        nothing, _ = rounds(lambda: None, both)
        ours.close()
        os.waitpid(part, 0)
    section.add("a round's work in the kernel, by joblensd", (direct - nothing) * 1e6, "µs of CPU")
    section.add("the same by the other process, both sides", (asked - nothing) * 1e6, "µs of CPU")
    section.add("an exchange without work, both sides", (exchange - nothing) * 1e6, "µs of CPU")
    section.add("an exchange without work: 99 % last", sorted(waits)[int(0.99 * ROUNDS)] * 1e6, "µs")
    section.add("an exchange without work: median", statistics.median(waits) * 1e6, "µs")
    for jobs in (1, 200):
        share = (exchange - nothing) / (ROUND_SECONDS + jobs * A_JOB_SECONDS) * 100
        section.add(f"one exchange a round, {jobs} jobs", share, "% of a round", MOST)
    section.write()
    return verdict(section.missed)


def serve(ours: socket.socket, theirs: socket.socket, work: Callable[[], None]) -> None:
    """The other process, until the socket is closed."""
    ours.close()
    while what := theirs.recv(1):
        if what == ROUND:
            work()
        theirs.send(b".")


def rounds(act: Callable[[], object], processes: tuple[int, ...]) -> tuple[float, list[float]]:
    """CPU seconds of all these processes a round, and how long each took."""
    began = sum(map(cpu_seconds, processes))
    took = []
    for _ in range(ROUNDS):
        time.sleep(PAUSE)
        start = time.perf_counter()
        act()
        took.append(time.perf_counter() - start)
    return (sum(map(cpu_seconds, processes)) - began) / ROUNDS, took


if __name__ == "__main__":
    sys.exit(main())
