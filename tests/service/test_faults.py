"""Faults under load, from shared memory to a real Kafka: at the end every record is there, or declared as lost.

100 runs once a second and 1000 events a second. More, and longer runs of the same: benchmarks/bench_faults.py.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from exporter import Node
from faults import EVENTS, JOBS, Run
from servers import Kafka
from sinks import until


@pytest.mark.sampled(1)
@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_a_broker_that_fails_costs_nothing(kafka: Kafka, place: Path, fault: str) -> None:
    def happen() -> None:
        time.sleep(2)
        if fault == "killed":
            kafka.kill()
            time.sleep(3)
            kafka.start()
        else:
            kafka.freeze()
            time.sleep(8)
            kafka.thaw()

    with Run(kafka, place) as run:
        run.meanwhile(13, happen)
        run.check_whole(run.end())


def test_an_exporter_that_is_killed_at_random_loses_nothing(kafka: Kafka, place: Path) -> None:
    with Run(kafka, place) as run:

        def happen() -> None:
            for _ in range(6):
                time.sleep(random.uniform(0.5, 3))
                run.exporter.kill()
                run.exporter.start()

        run.meanwhile(18, happen)
        run.check_whole(run.end(), kills=6)


def test_a_broker_that_is_gone_for_longer_than_the_spool_lasts_costs_what_is_declared(
    kafka: Kafka, place: Path
) -> None:
    with Run(kafka, place, JOBLENS_SPOOL_BYTES="1048576") as run:

        def happen() -> None:
            time.sleep(2)
            kafka.kill()
            time.sleep(14)
            kafka.start()

        run.meanwhile(20, happen)
        found = run.end()
    run.check_declared(found, doubts=2)
    assert found["missing"] > 0


def test_a_spool_that_is_corrupted_in_the_middle_costs_what_is_declared(kafka: Kafka, place: Path) -> None:
    try:
        with Run(kafka, place) as run:
            kafka.kill()
            run.node.live(6, EVENTS)
            until(run.spooled, "something in the spool")
            run.exporter.stop()
            largest = max(run.spooled(), key=lambda path: path.stat().st_size)
            with largest.open("r+b") as file:
                file.seek(largest.stat().st_size // 2)
                file.write(b"\xff" * 64)
            kafka.start()
            run.exporter.start()
            run.node.live(2, EVENTS)
            found = run.end()
    finally:
        if kafka.process is None:
            kafka.start()
    assert found["missing"] == found["declared"] > 0, (found, run.exporter.said())


def test_joblensd_that_is_killed_and_comes_back_costs_nothing(kafka: Kafka, place: Path) -> None:
    with Run(kafka, place) as run:
        run.node.live(4, EVENTS)
        successor = Node(run.node.folder, JOBS)  # it takes over what is in the ring
        successor.rounds, successor.events, successor.before = run.node.rounds, run.node.events, run.node.before
        run.node = successor
        run.node.live(4, EVENTS)
        run.check_whole(run.end())


def test_an_endpoint_that_hangs_does_not_keep_others_from_theirs(kafka: Kafka, place: Path) -> None:
    nobody = "http://192.0.2.1:4318"  # and nobody says so
    with Run(kafka, place, sinks=["otlp"], JOBLENS_SINK_OTLP_URL=nobody) as run:
        run.node.live(8, EVENTS)
        run.check_whole(run.end())
