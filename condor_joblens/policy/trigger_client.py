"""joblensd's end of the triggers' child: never blocks, and outlives whatever happens to the child.

Batches are sent as they come, and answered in their order. If the child falls behind, batches are dropped and counted:
nothing waits for it. A child that dies is replaced, later and later; what handlers had remembered is gone then.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from condor_joblens.common.errors import printable
from condor_joblens.common.signals import signal_name
from condor_joblens.policy import policy_answers, trigger_answers
from condor_joblens.policy.child_frames import BadFrame, Message, pack
from condor_joblens.policy.child_process import ChildProcess, Start
from condor_joblens.policy.trigger_answers import Did, Loaded
from condor_joblens.policy.trigger_kinds import load_message

CHILD = "the triggers' child"
BATCH_CPU = 2.0  # seconds of CPU for one batch: runs' shares are much smaller, and this ends what escapes them
WALL = 30.0  # seconds that one may take
START_SECONDS = 30.0
MOST_BYTES = 4 << 20  # of batches that the child has not answered
MOST_BATCHES = 16
BACKOFF = (0.0, 1.0, 5.0, 30.0)
"""Seconds before the n-th start in a row without an answer; the last one for all further ones."""

ENOUGH = 5
"""Deaths in a row without an answer between them, after which there is no child until condor_reconfig."""

Files = Sequence[tuple[str, str]]


@dataclass
class _Batch:
    number: int
    size: int  # bytes
    events: int
    sent_at: float


class TriggerClient:
    """The child with the triggers of a site; none as long as there are no triggers.

    `log` gets a line for what befalls it. `start` starts a child if this process may not.
    """

    def __init__(self, log: Callable[[str], None] = lambda line: None, start: Start | None = None) -> None:
        self._log, self._start = log, start
        self._files: list[tuple[str, str]] = []
        self._aside: set[str] = set()
        self._child: ChildProcess | None = None
        self._ending: list[ChildProcess] = []
        self._batches: deque[_Batch] = deque()
        self._bytes = self._number = 0
        self._started_at = 0.0
        self._start_at: float | None = None
        self._fruitless = 0
        self._fault = ""
        self._epoll = select.epoll()
        self.loaded: Loaded | None = None
        """What is in force; None between two children, and without triggers."""
        self.lives = 0
        """How many children have loaded the triggers: each knows no run at first."""
        self.lost = 0
        """Events that the child was not asked about, because it was behind or away."""

    @property
    def pid(self) -> int | None:
        """The child's process; None if there is none."""
        return self._child.pid if self._child is not None else None

    @property
    def has_files(self) -> bool:
        """Whether there are triggers at all."""
        return bool(self._files)

    @property
    def is_coming(self) -> bool:
        """Whether a child is being started, or will be: there are triggers, and they were not given up."""
        return self.loaded is None and (self._child is not None or self._start_at is not None)

    def is_at_work_with(self, files: Files) -> bool:
        """Whether a child has loaded just these, all of them without an error."""
        return self.loaded is not None and not self.loaded.errors and list(files) == self._files

    def cpu_seconds(self) -> float:
        """CPU time of the child that lives."""
        return self._child.cpu_seconds() if self._child is not None and self._child.connected else 0.0

    def fileno(self) -> int:
        """One descriptor for the life of the object, readable when `receive` has something to do."""
        return self._epoll.fileno()

    def load(self, files: Files) -> None:
        """These and no others from now on, in another child; without any there is none."""
        self._files, self._aside = list(files), set()
        self._fruitless, self._start_at = 0, None
        self._end("")
        if self._files:
            self._begin()

    def stop(self) -> None:
        """Ends the child, for good."""
        self._end("")
        for child in self._ending:
            child.wait(0.5)
        self._start_at = None
        self._epoll.close()

    def set_aside(self, file: str) -> None:
        """Handlers of this file are not asked any more, until `load`."""
        self._aside.add(file)
        if self._child is not None and self._child.connected:
            self._send(pack({"verb": "aside", "files": [file]}))

    def ask(self, verb: str, message: dict[str, Any], body: bytes, events: int, now: float) -> bool:
        """Sends a batch of so many events; whether it is on its way. Else they are counted as lost."""
        child = self._child
        is_behind = self._bytes + len(body) > MOST_BYTES or len(self._batches) >= MOST_BATCHES
        if child is None or not child.connected or self.loaded is None or is_behind:
            self.lost += events
            return False
        self._number += 1
        self._batches.append(_Batch(self._number, len(body), events, time.monotonic()))
        self._bytes += len(body)
        self._send(pack({"verb": verb, "id": self._number, "cpu": BATCH_CPU, "now": now, **message}, body))
        return True

    def receive(self) -> list[Did]:
        """What has come of batches since the last call."""
        found: list[Did] = []
        child = self._child
        if child is not None and child.connected:
            child.flush()
            try:
                for message in child.receive():
                    self._take(message, found)
            except BadFrame as error:
                self._fault = f"answered nonsense ({printable(str(error), 60)})"
                child.kill()
            self._watch()
        self._reap(time.monotonic())
        return found

    def timeout(self, now: float) -> float:
        """Seconds until `expire` has something to do; `now` is time.monotonic()."""
        if self._child is not None and not self._child.connected:
            return 0.01  # its end can't be heard
        due = [at for at in (self._start_at,) if at is not None]
        if self._child is not None and self.loaded is None:
            due.append(self._started_at + START_SECONDS)
        if self._batches:
            due.append(self._batches[0].sent_at + WALL)
        return max(0.0, min(due) - now) if due else 3600.0

    def expire(self, now: float) -> None:
        """Ends a child that takes too long, and starts one that is due."""
        child = self._child
        self._reap(now)
        if child is not None and child.connected:
            if self.loaded is None and now - self._started_at > START_SECONDS:
                self._fault = f"was not ready after {START_SECONDS:g} s"
                child.kill()
            elif self._batches and now - self._batches[0].sent_at > WALL:
                self._fault = f"took more than {WALL:g} s"
                child.kill()
        if self._start_at is not None and now >= self._start_at:
            self._begin()

    def _begin(self) -> None:
        self._start_at = None
        self._started_at = time.monotonic()
        try:
            self._child = ChildProcess(start=self._start)
        except OSError as error:
            self._log(f"{CHILD} can't be started: {error.strerror}: no triggers are in force")
            self._again(self._started_at)
            return
        self._fault = ""
        self._epoll.register(self._child, select.EPOLLIN)
        self._send(pack(load_message([file for file in self._files if file[0] not in self._aside])))

    def _send(self, frame: bytes) -> None:
        assert self._child is not None
        self._child.send(frame)
        self._watch()

    def _watch(self) -> None:
        if self._child is not None and self._child.connected:
            events = select.EPOLLIN | (select.EPOLLOUT if self._child.has_unsent else 0)
            self._epoll.modify(self._child, events)

    def _take(self, message: Message, found: list[Did]) -> None:
        verb = message.get("verb")
        if verb == "unfit":
            self._fault = policy_answers.unfit(message)
        elif self.loaded is None and verb == "loaded":
            self.loaded = trigger_answers.loaded(message)
            self.lives += 1
            for error in self.loaded.errors:
                self._log(f"trigger not in force: {error}")
        elif self.loaded is not None and verb == "did" and self._batches:
            batch = self._batches.popleft()
            if message.get("id") != batch.number:
                raise BadFrame("an answer that nobody asked for")
            self._bytes -= batch.size
            found.append(trigger_answers.did(message, self.loaded.handlers))
            self._fruitless = 0
        else:
            raise BadFrame("an unknown verb")

    def _reap(self, now: float) -> None:
        self._ending = [child for child in self._ending if child.exit_code() is None]
        child = self._child
        if child is None or child.connected:
            return
        code = child.exit_code()
        if code is None:
            return
        was_ready = self.loaded is not None
        self._forget()
        if code == 0 and was_ready and not self._fault:  # it has worked for long, and makes room for a fresh one
            self._start_at = now
            return
        how = signal_name(-code) if code < 0 else f"exit code {code}"
        self._log(f"{CHILD} {self._fault or f'ended ({how})'}: what triggers had remembered of jobs is forgotten")
        self._again(now)

    def _again(self, now: float) -> None:
        self._fruitless += 1
        if self._fruitless >= ENOUGH:
            self._log(f"{CHILD} ended {ENOUGH} times in a row: no triggers are in force until condor_reconfig")
            return
        self._start_at = now + BACKOFF[min(self._fruitless, len(BACKOFF) - 1)]

    def _forget(self) -> None:
        self.lost += sum(batch.events for batch in self._batches)
        self._child, self.loaded, self._bytes = None, None, 0
        self._batches.clear()

    def _end(self, fault: str) -> None:
        if self._child is not None:
            self._child.kill()
            self._ending.append(self._child)
        self._fault = fault
        self._forget()
