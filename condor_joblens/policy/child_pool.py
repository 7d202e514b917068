"""The processes of the policy child: the one that serves, the one that stands by, and those that end."""

from __future__ import annotations

import select
from collections.abc import Callable
from dataclasses import dataclass

from condor_joblens.policy.policy_child import CHILD, PolicyChild
from condor_joblens.policy.requests import ChildLimits

BACKOFF = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before the n-th start in a row that led to no decision; the last one for all further ones."""

SPARE_AGAIN = 30.0  # seconds until another spare is started for one that died


@dataclass(frozen=True)
class Death:
    """What has become of the child that served."""

    worker: PolicyChild
    code: int  # its exit code, or its signal below zero
    is_wanted: bool  # it has retired, or other policies are in force


class ChildPool:
    """Starts them, replaces them, and knows when the next thing is due; what they are asked is for others.

    `start` makes one with the policies in force, or raises OSError; `complain` is given a line where none can be had.
    """

    def __init__(self, start: Callable[[], PolicyChild], limits: ChildLimits, complain: Callable[[str], None]) -> None:
        self._make, self._complain = start, complain
        self.limits = limits
        self.serving: PolicyChild | None = None
        self.spare: PolicyChild | None = None
        self.lives = 0
        """How many have served."""
        self.fault = "did not come to this job"
        """What befell the one before."""
        self._ending: list[PolicyChild] = []  # those that are nobody's, until their processes are gone
        self._start_at: float | None = None  # when the next one is due
        self._spare_at: float | None = None  # when the next one to stand by is due
        self._fruitless = 0  # starts since the last decision
        self._for_others = False  # the one that serves is being ended because other policies are in force
        self._epoll = select.epoll()  # outlives them, so that fileno() never changes

    def fileno(self) -> int:
        """Readable when one of them says something or ends."""
        return self._epoll.fileno()

    @property
    def connected(self) -> list[PolicyChild]:
        """Those that can be talked to."""
        return [worker for worker in self._both() if worker.process.connected]

    def start(self, now: float) -> None:
        """The one that is to serve."""
        self._start_at = None
        try:
            self.serving = self._started()
            self.lives += 1
        except OSError as error:
            self.fault = f"can't be started: {error.strerror}"
            self._complain(f"{CHILD} {self.fault}: no policies are in force")
            self.replace_after_failure(now)

    def stop(self) -> None:
        """End them all, for good."""
        self._start_at = self._spare_at = None
        for worker in (*self._both(), *self._ending):
            worker.end("")
            worker.process.wait(0.5)
        self.serving = self.spare = None
        self._epoll.close()

    def send(self, worker: PolicyChild, frame: bytes) -> None:
        """To one that is connected."""
        worker.process.send(frame)
        self.watch(worker)

    def watch(self, worker: PolicyChild) -> None:
        """After something was sent or received."""
        if worker.process.connected:
            events = select.EPOLLIN | (select.EPOLLOUT if worker.process.has_unsent else 0)
            self._epoll.modify(worker.process, events)

    def begin_anew(self) -> None:
        """Other policies are in force: the one that loaded the ones before ends, and so does the spare."""
        if self.spare is not None:
            self.spare.end("")
            self._ending.append(self.spare)
            self.spare = None
        self._spare_at = None
        if self.serving is not None:
            self._for_others = True
            self.serving.end("")

    def worked(self, now: float) -> None:
        """The one that serves did what it was asked."""
        self._fruitless = 0
        self._want_spare(now)

    def replace(self, now: float, wait: float = 0.0) -> None:
        """The one that stands by takes over, ready or nearly so; else another is started after `wait` seconds."""
        if self.spare is not None and self.spare.process.connected:
            self.serving, self.spare = self.spare, None
            self.lives += 1
            if self.serving.ready:
                self._want_spare(now)
        else:
            self._start_at = now + wait

    def replace_after_failure(self, now: float) -> None:
        """The same, later and later."""
        wait = self._backoff()
        self._fruitless += 1
        self.replace(now, wait)

    def reap(self, now: float) -> Death | None:
        """The death of the one that served, once its process is gone. Another is for the caller to have."""
        self._ending = [worker for worker in self._ending if worker.process.exit_code() is None]
        spare, worker = self.spare, self.serving
        if spare is not None and not spare.process.connected and spare.process.exit_code() is not None:
            self.spare, self._spare_at = None, now + SPARE_AGAIN
        if worker is None or worker.process.connected:
            return None
        code = worker.process.exit_code()
        if code is None:
            return None
        retired = code == 0 and worker.ready and not worker.fault
        death = Death(worker, code, retired or self._for_others)
        self.serving, self._for_others = None, False
        return death

    def end_late(self, now: float) -> None:
        """End those that are not ready in time."""
        for worker in self.connected:
            if not worker.ready and now - worker.started_at > self.limits.start_seconds:
                worker.end(f"was not ready after {self.limits.start_seconds:g} s")

    def start_due(self, now: float) -> None:
        """Start those whose time has come."""
        if self._start_at is not None and now >= self._start_at:
            self.start(now)
        if self._spare_at is not None and now >= self._spare_at:
            self._stand_by(now)

    @property
    def is_one_dying(self) -> bool:
        """Whether `reap` will soon have something to do, of which `fileno` does not tell."""
        return any(not worker.process.connected for worker in self._both())

    def deadlines(self) -> list[float]:
        """When `end_late` and `start_due` have something to do."""
        due = [at for at in (self._start_at, self._spare_at) if at is not None]
        return due + [worker.started_at + self.limits.start_seconds for worker in self._both() if not worker.ready]

    def _both(self) -> list[PolicyChild]:
        return [worker for worker in (self.serving, self.spare) if worker is not None]

    def _started(self) -> PolicyChild:
        worker = self._make()
        self._epoll.register(worker.process, select.EPOLLIN)
        self.watch(worker)
        return worker

    def _stand_by(self, now: float) -> None:
        self._spare_at = None
        try:
            self.spare = self._started()
        except OSError:
            self._spare_at = now + SPARE_AGAIN

    def _want_spare(self, now: float) -> None:
        seconds = self.limits.spare_seconds
        if self.spare is None and self._spare_at is None and seconds is not None:
            self._spare_at = now + max(seconds, self._backoff())

    def _backoff(self) -> float:
        return BACKOFF[min(self._fruitless, len(BACKOFF) - 1)]
