"""Full disks: a broker's, and that of the exporter's own spool. Each is a small file system in memory."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faults import Impatient, Run
from servers import Kafka
from sinks import until

EVENTS = 2500
"""A second: enough to fill the small disks in some seconds."""

NO_ROOM = ("No space left on device", "a fault occurred in a recent unsafe memory access operation")
"""What a broker says at its end: it could not write to a file, or into the memory that is mapped to its index."""


@contextlib.contextmanager
def disk(folder: Path, size: int) -> Iterator[None]:
    """A file system of so many bytes at `folder`."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def filled(folder: Path, leave: int) -> Iterator[None]:
    """Somebody else takes the disk's room, but for so many bytes."""
    room = os.statvfs(folder)
    taken = folder / "somebody-elses"
    with taken.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize - leave)
    try:
        yield
    finally:
        taken.unlink()


@pytest.fixture
def small_broker(server: Any, place: Path) -> Iterator[Kafka]:
    """A broker whose disk is soon full."""
    kafka = server(Kafka, place / "broker")
    with disk(kafka.folder / "data", 64 << 20), kafka:
        yield kafka


def test_a_leader_without_disk_costs_nothing(small_broker: Kafka, place: Path) -> None:
    """A broker that can't write to the only log folder it has ends itself: somebody makes room and starts it again."""
    with Run(small_broker, place) as run:

        def happen() -> None:
            with filled(small_broker.folder / "data", 256 << 10):
                run.exporter.until_said("the sink kafka does not work for now")
                until(lambda: small_broker.process and small_broker.process.poll() is not None, "the broker's end")
            small_broker.kill()
            small_broker.start()

        run.meanwhile(9, happen)
        run.check_whole(run.end())
    said = small_broker.log.read_text()
    assert any(words in said for words in NO_ROOM), said


class SmallMemory(Impatient):
    """Has room for 2 MiB in memory for a sink, and twice that where the disk takes nothing."""

    program = "from condor_joblens.export import backlog\nbacklog.QUEUE_BYTES = 2 << 20\n" + Impatient.program


@contextlib.contextmanager
def on_a_small_disk(kafka: Kafka, place: Path) -> Iterator[Run]:
    """A run whose spool has 4 MiB of disk; the broker lives again afterwards."""
    run = Run(kafka, place, SmallMemory)
    try:
        with disk(run.exporter.spool, 4 << 20), run:
            yield run
    finally:
        if kafka.process is None:
            kafka.start()


def check_declared(found: dict[str, Any], run: Run) -> None:
    """Something is lost, for want of room, and no more than was declared."""
    run.check_declared(found, doubts=3)
    assert found["missing"] > 0 and set(found["causes"]) <= {"overflow", "disk", "unseen"}, (found, run.exporter.said())


def test_a_spool_whose_disk_is_full_costs_what_is_declared_and_works_again(kafka: Kafka, place: Path) -> None:
    with on_a_small_disk(kafka, place) as run:
        run.settled()  # so that it has nothing there that it could drop for something new
        with filled(run.exporter.spool, 0):
            kafka.kill()
            run.node.live(6, EVENTS)
            run.exporter.until_said("takes no more: No space left on device")
        run.node.live(1, EVENTS)
        until(run.spooled, "something in the spool")
        kafka.start()
        run.node.live(1, EVENTS)
        found = run.end()
    check_declared(found, run)
    assert "disk" in found["causes"]


def test_an_exporter_that_starts_on_a_full_disk_knows_what_it_had(kafka: Kafka, place: Path) -> None:
    with on_a_small_disk(kafka, place) as run:
        with filled(run.exporter.spool, 300_000):
            kafka.kill()
            run.node.live(3, EVENTS)
            until(run.spooled, "something in the spool")
            run.exporter.kill()
            run.exporter.start()
            run.node.live(3, EVENTS)
        kafka.start()
        run.node.live(1, EVENTS)
        found = run.end()
    check_declared(found, run)
