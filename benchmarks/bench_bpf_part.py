#!/usr/bin/env python3
"""What it costs that a process of its own loads programs for joblensd (tracer/loader_process.py), and what another way
would: that it holds all BPF descriptors, and joblensd asks it once a round.

The programs are loaded and one slot is watched. A round's work in the kernel is done by this process, and by a forked
one that is asked over a socket, as joblensd asks its other helpers. Maps that are shared memory stay shared in both.
What is loaded, attached and made is so by this process, and by the other one.

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
from condor_joblens.common.process_starter import ProcessStarter  # noqa: E402
from condor_joblens.tracer.loader_client import MODULE  # noqa: E402
from condor_joblens.tracer.makers import ROWS, Maker  # noqa: E402
from condor_joblens.tracer.sensor import Sensor  # noqa: E402

ROUNDS = 2000
PAUSE = 0.002  # seconds between two rounds: both processes sleep before each, as they do once a second

ROUND_SECONDS, A_JOB_SECONDS = 0.003, 0.000018
"""Of joblensd's CPU, by docs/sizing.md."""

MOST = 10.0
"""Percent of a round: what is dearer is not worth it."""

LOADS, ATTACHES, ARRAYS = 11, 101, 501
"""How often each is done."""

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
    of_loading(section)
    section.write()
    return verdict(section.missed)


def of_loading(section: Section) -> None:
    """Level io, loaded and attached again and again, and arrays for level profile."""
    starter = ProcessStarter("what loads programs", "-", os.getuid(), os.getgid(), MODULE)
    with on_ground(f"joblens-bench-{os.getpid()}") as ground:
        tracer = ground.tracer
        sensor, shared = tracer.sensors["io"].sensor, tracer.basic.maps
        for who in ("joblensd", "the other process"):
            if who != "joblensd":
                tracer.load_by(starter)
            maker = sensor.maker

            def load(sensor: Sensor = sensor) -> None:
                sensor.unload()
                sensor.take(sensor.load(shared))

            def attach(sensor: Sensor = sensor) -> None:
                sensor.attach(None)
                sensor.detach()

            def array(maker: Maker = maker) -> None:
                os.close(maker.array(ROWS, 1000))

            for what, act, times in (
                ("level io is loaded", load, LOADS),
                ("it is attached and detached", attach, ATTACHES),
                ("an unwind table is made", array, ARRAYS),
            ):
                took = sorted(lasts(act) for _ in range(times))
                section.add(f"{what}, by {who}: median", statistics.median(took) * 1e3, "ms")
                section.add(f"{what}, by {who}: 90 %", took[int(0.9 * times)] * 1e3, "ms")
        sensor.unload()
    starter.close()


def lasts(act: Callable[[], object]) -> float:
    """Seconds."""
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


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
