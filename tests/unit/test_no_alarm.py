"""Jobs that do next to nothing and are well raise no alarm, at any level, for ten times the threshold.

Time is driven. What they use goes through the collector of progress, and what their threads wait for through the look's
own verdict. Each job that is harmless has a twin that hangs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from condor_joblens.agent.hangs import APART, Hangs, LookTaken, Summary
from condor_joblens.jobs.run_state import empty_state
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import empty_rows
from condor_joblens.profiling import calls, verdict
from condor_joblens.profiling.threads import Thread
from condor_joblens.profiling.wait import Cause, Wait
from condor_joblens.profiling.waits import Waits
from condor_joblens.sample.progress import Progress

MINUTES, PERIOD = 15.0, 10.0
THRESHOLD = 60 * MINUTES
NO_TIME, SOME_TIME, ANY = 0, 4096, (0, 0, 0, 0, 0, 0)
NEVER = 1e9


@dataclass(frozen=True)
class Job:
    """Its threads' calls with their arguments, how long each waits until it begins anew, and what it uses."""

    calls: tuple[tuple[str, tuple[int, ...]], ...]
    lasts: float = NEVER  # seconds
    cores: float = 0.0
    bytes_a_second: float = 0.0

    def pairs(self, run: int, now: float) -> list[verdict.Pair]:
        pid = 100 * (run + 1)
        waited = now % self.lasts if self.lasts < NEVER else now
        threads = [
            Thread(pid + number, pid, 1, pid + number, "job", "S", True, waited, call, arguments, (1, 2, 3))
            for number, (call, arguments) in enumerate(self.calls)
        ]
        waits = Waits(threads, {}, "/nowhere")
        return [(each, _on_socket(each) or waits.of(each)) for each in threads]


def _on_socket(thread: Thread) -> Wait | None:
    """There is no process of which a socket could be known."""
    if thread.call not in calls.READS:
        return None
    return Wait(Cause.NETWORK, "tcp a -> b", protocol="tcp", peer="b", is_silent=True)


SLEEPS = ("clock_nanosleep", ANY)
IDLE = ("futex", (SOME_TIME, 0x80, 0, NO_TIME, 0, 0))
HARMLESS = {
    "sleeps for an hour": Job((SLEEPS,)),
    "tries again after a minute": Job((SLEEPS,), 60),
    "asks for a licence each second": Job((SLEEPS,), 1, 0.0002, 300),
    "waits for a server that is not there": Job((("connect", ANY),), 120),
    "reads from a socket that has a time-out": Job((("recvfrom", ANY),), 300),
    "polls a server": Job((("poll", (0, 1, 5000, 0, 0, 0)),), 5, 0.0001, 40),
    "waits for clients": Job((("accept", ANY), IDLE, IDLE)),
    "waits for a signal": Job((("pause", ANY), IDLE)),
    "waits for work, and looks at the time": Job((("futex", (SOME_TIME, 0x80, 0, SOME_TIME, 0, 0)), IDLE), 10),
    "sleeps beside threads without work": Job((SLEEPS, IDLE, IDLE, IDLE)),
    "works once in ten minutes": Job((SLEEPS,), 600, 0.0009, 900),
}
HANGS = {
    "reads from a server that is silent": Job((("recvfrom", ANY),)),
    "threads that wait for each other": Job((IDLE, IDLE)),
    "waits for a message": Job((("msgrcv", ANY), SLEEPS)),
}


class Site:
    """Jobs of a node, which are measured and looked at."""

    def __init__(self, jobs: Sequence[Job], level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.jobs, self.said = 1e6, jobs, list[int]()
        self.began = self.now
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        count = len(jobs)
        self.rows, self.state = empty_rows(count), empty_state(count)
        self.rows["cpu_seconds"] = self.rows["tcp_sent_bytes"] = 0
        self.rows["level_number"], self.rows["run_number"] = int(level), np.arange(count) + 1
        self.state["used"], self.state["idle_since"] = True, self.now
        self.state["kernel_slot"] = self.all = np.arange(count)
        node: Any = SimpleNamespace(
            config=SimpleNamespace(hang_minutes=MINUTES, max_cpu=0.05, reports=False),
            runs=SimpleNamespace(rows=self.rows, state=self.state, living=lambda: self.all),
            guard=lambda run, step, act, *arguments: act(*arguments),
            log=lambda line: None,
            describe=str,
        )
        given: Any = self
        self.progress, self.hangs = Progress(node), Hangs(node, given, given, given, lambda *tag: None)

    def take(
        self, run: int, uid: object, look: LookTaken, patience: float, heading: str, least: float, charge: object
    ) -> None:
        """What profiling/look.py says in short. It costs nothing."""
        pairs = self.jobs[run].pairs(run, self.now - self.began)
        found = verdict.judge(pairs)
        is_suspicious = found.is_suspicious and verdict.has_lasted(pairs, found, least)
        look.summary = Summary(found.cause.value, is_suspicious, verdict.fingerprint(pairs, found).encode())
        look.end({})

    def hang(self, run: int, cause: str) -> None:
        self.said += [run] if cause else []

    def keep(self, run: int, kind: str, pieces: object, **more: object) -> None:
        pass

    def goes_on(self, seconds: float) -> None:
        for _ in range(int(seconds / PERIOD)):
            self.now += PERIOD
            self.rows["cpu_seconds"] += [PERIOD * job.cores for job in self.jobs]
            self.rows["tcp_sent_bytes"] += [int(PERIOD * job.bytes_a_second) for job in self.jobs]
            self.progress.read(self.all, False)
            for _ in range(len(self.jobs)):
                self.hangs.tick()
                self.now += APART / len(self.jobs)


@pytest.mark.parametrize("level", [Level.BASIC, Level.IO, Level.PROFILE, Level.TRACE])
def test_what_is_harmless_is_never_suspected_and_what_hangs_is(level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = {**HARMLESS, **HANGS}
    site = Site(list(jobs.values()), level, monkeypatch)
    site.goes_on(10 * THRESHOLD)
    still = site.rows["hang_seconds"] >= THRESHOLD
    assert still.all(), "numbers alone can't tell them apart"
    assert sorted(list(jobs)[run] for run in site.said) == sorted(HANGS)


def test_a_job_that_works_now_and_then_is_not_even_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site([Job((SLEEPS,), cores=0.002), Job((SLEEPS,), bytes_a_second=2000)], Level.BASIC, monkeypatch)
    site.goes_on(10 * THRESHOLD)
    assert (site.rows["hang_seconds"] < THRESHOLD).all() and site.said == []
