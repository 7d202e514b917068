"""The wall clock of the node goes back and forth by an hour, while joblens-export is at work, waits or is down."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest
from faults import Impatient, Run
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
    shift = 0.0

    def jump(self, seconds: float) -> None:
        """The clock goes to so many seconds from the real one, in steps: what matters is who waits at that moment."""
        before, self.shift = self.shift, seconds
        for step in range(1, 11):
            with (self.folder / "clock").open("r+b") as file:
                file.write(struct.pack("d", before + (seconds - before) * step / 10))
            time.sleep(0.03)

    def start(self) -> None:
        (self.folder / "clock").write_bytes(struct.pack("d", self.shift))
        super().start()


def test_a_clock_that_jumps_by_an_hour_costs_nothing(
    kafka: Kafka, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(kafka, place, Shifted, JOBLENS_SPOOL_SECONDS="600")
    exporter, real = run.exporter, time.time
    assert isinstance(exporter, Shifted)
    monkeypatch.setattr(time, "time", lambda: real() + exporter.shift)  # joblensd is played by this process
    lags: list[float] = []
    began = time.monotonic()

    def live_at(*shifts: float) -> None:
        for shift in shifts:
            run.meanwhile(1.5, lambda shift=shift: exporter.jump(shift))
            lags.append(run.page()['joblens_sink_lag_seconds{sink="kafka"}'])

    with run:
        live_at(HOUR, -HOUR)
        kafka.kill()
        live_at(0, HOUR, -HOUR)
        until(run.spooled, "something in the spool")
        exporter.kill()
        exporter.shift = HOUR
        exporter.start()
        exporter.until_said("the Prometheus page is at", 2)
        live_at(-HOUR)
        kafka.start()
        live_at(HOUR, -HOUR)
        found = run.end()
    run.check_whole(found, kills=1)
    assert 0 <= min(lags) <= max(lags) <= time.monotonic() - began
