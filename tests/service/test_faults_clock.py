"""The wall clock of the node goes back and forth by an hour, while joblens-export is at work, waits or is down."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest
from faults import EVENTS, Impatient, Run
from servers import Kafka
from sinks import until

HOUR = 3600.0

# time.time as FOLDER/clock shifts it; and waits as Python has them up to 3.10: until it is so late by the wall clock
CLOCK = """
import mmap, os, struct, threading, time

real_time, real_wait = time.time, threading.Condition.wait
with open(os.environ["FOLDER"] + "/clock", "rb") as file:
    shift = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)

def shifted_time():
    return real_time() + struct.unpack("d", shift[:])[0]

def wait(self, timeout=None):
    if timeout is None:
        return real_wait(self)
    end = time.time() + timeout
    while (left := end - time.time()) > 0:
        if real_wait(self, min(left, 0.05)):
            return True
    return False

time.time, threading.Condition.wait = shifted_time, wait
"""


class Shifted(Impatient):
    """Sees the wall clock as the test sets it."""

    program = CLOCK + Impatient.program

    def shift(self, seconds: float) -> None:
        """The clock is so far from the real one from now on."""
        with (self.folder / "clock").open("r+b" if (self.folder / "clock").exists() else "wb") as file:
            file.write(struct.pack("d", seconds))


def test_a_clock_that_jumps_by_an_hour_costs_nothing(
    kafka: Kafka, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(kafka, place, Shifted, JOBLENS_SPOOL_SECONDS="600")
    exporter, real = run.exporter, time.time
    assert isinstance(exporter, Shifted)
    lags: list[float] = []
    began = time.monotonic()

    def jump(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: real() + seconds)  # joblensd is played by this process
        exporter.shift(seconds)
        run.node.live(1, EVENTS)
        lags.append(run.page()['joblens_sink_lag_seconds{sink="kafka"}'])

    exporter.shift(0)
    with run:
        for seconds in (HOUR, 0, -HOUR):
            jump(seconds)
        kafka.kill()
        for seconds in (0, HOUR, 0, -HOUR):
            jump(seconds)
        until(run.spooled, "something in the spool")
        exporter.kill()
        exporter.shift(HOUR)
        exporter.start()
        exporter.until_said("the Prometheus page is at", 2)
        for seconds in (HOUR, -HOUR):
            jump(seconds)
        kafka.start()
        for seconds in (0, HOUR, -HOUR):
            jump(seconds)
        found = run.end()
    run.check_whole(found)
    assert 0 <= min(lags) <= max(lags) <= time.monotonic() - began
