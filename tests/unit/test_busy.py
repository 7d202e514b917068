"""A run that computes in the same places and moves nothing is suspected; one that moves bytes, or ends, is not."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from condor_joblens.agent import busy
from condor_joblens.agent.busy import STALE, BusyRuns
from condor_joblens.jobs.run_state import empty_state
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import empty_rows
from condor_joblens.profiling.wait import Cause
from condor_joblens.sample import progress
from condor_joblens.sample.progress import ALLOWED_BYTES, Progress

THRESHOLD, PERIOD, NUMBER = 900.0, 10.0, 7


class Job:
    """One run at level profile, which computes: measured every ten seconds, and sampled every minute."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.suspected, self.at, self.since = 100_000.0, False, "a", 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "time", lambda: self.now + 1e9)
        self.rows, self.state = empty_rows(1), empty_state(1)
        self.rows["cpu_seconds"], self.rows["tcp_sent_bytes"], self.rows["run_number"] = 0.0, 0, NUMBER
        self.rows["level_number"], self.state["used"] = int(Level.PROFILE), True
        runs = SimpleNamespace(rows=self.rows, state=self.state, living=lambda: np.flatnonzero(self.state["used"]))
        node: Any = SimpleNamespace(config=SimpleNamespace(hang_minutes=THRESHOLD / 60), runs=runs)
        self.busy, self.progress = BusyRuns(node), Progress(node)

    def goes_on(self, seconds: float, bytes_a_second: float = 0.0, says: bool = True) -> bool:
        """Whether it is suspected at the end."""
        since = self.now
        for step in range(1, int(seconds / PERIOD) + 1):
            self.now += PERIOD
            self.rows["cpu_seconds"] += PERIOD
            self.rows["tcp_sent_bytes"] += int(PERIOD * bytes_a_second)
            if says and step % 6 == 0:
                self.busy.heard(NUMBER, (self.since or since) + 1e9, self.now + 1e9)
            self.progress.read(np.array([0]), False)
            self.suspected = self.busy.tick(THRESHOLD) == [0]
        self.since = self.since or since
        return self.suspected


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(monkeypatch)


def test_the_word_is_one_of_the_list() -> None:
    assert Cause(busy.CAUSE) is Cause.BUSY


def test_it_is_suspected_after_the_threshold_and_not_before(job: Job) -> None:
    assert not job.goes_on(THRESHOLD - PERIOD)
    assert job.goes_on(120)
    assert job.rows["hang_seconds"][0] >= THRESHOLD


def test_until_then_its_seconds_are_those_of_a_job_that_computes(job: Job) -> None:
    job.goes_on(THRESHOLD / 2)
    assert job.rows["hang_seconds"][0] < progress.WINDOW


@pytest.mark.parametrize("rate", [2 * ALLOWED_BYTES, 1e6])
def test_one_that_moves_bytes_is_not(job: Job, rate: float) -> None:
    assert not job.goes_on(10 * THRESHOLD, rate)


def test_keep_alives_are_no_progress(job: Job) -> None:
    assert job.goes_on(2 * THRESHOLD, ALLOWED_BYTES / 2)


def test_bytes_end_the_suspicion(job: Job) -> None:
    assert job.goes_on(2 * THRESHOLD)
    assert not job.goes_on(60, 1e6)
    job.goes_on(PERIOD, 1e6)
    assert (job.rows["hang_seconds"][0], job.rows["hang_suspected"][0], job.state["busy_since"][0]) == (0, 0, 0)


def test_other_places_end_it(job: Job) -> None:
    assert job.goes_on(2 * THRESHOLD)
    job.busy.heard(NUMBER, 0.0, job.now + 1e9)
    assert not job.goes_on(PERIOD, says=False)
    assert job.state["busy_since"][0] == 0


def test_what_was_said_long_ago_does_not_hold(job: Job) -> None:
    assert job.goes_on(2 * THRESHOLD)
    assert job.goes_on(STALE / 2, says=False)
    assert not job.goes_on(STALE, says=False)


@pytest.mark.parametrize("what", ["level", "final", "interactive", "gone", "off"])
def test_others_are_not(job: Job, what: str) -> None:
    assert job.goes_on(2 * THRESHOLD)
    if what == "level":
        job.rows["level_number"] = int(Level.IO)
    elif what == "final":
        job.rows["final"] = True
    elif what == "interactive":
        job.state["is_interactive"] = True
    elif what == "gone":
        job.rows["run_number"] = NUMBER + 1  # another run in its place
    assert job.busy.tick(math.inf if what == "off" else THRESHOLD) == []
    assert job.state["busy_since"][0] == 0
