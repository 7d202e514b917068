"""joblensd's end of the process that asks startds: one question at a time, for all new slots at once.

Whoever wants to know calls `want`. The next question then answers all who wanted until it is sent. How soon it is sent
depends on what the last one took, so that a startd spends a small share of its time on us. After a failure the pauses
grow. joblensd's loop registers `fileno()`, and calls `receive()` when it is readable or `timeout(now)` is over.
"""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable, Sequence

from condor_joblens.common.own_process import HelperLost
from condor_joblens.startd.startd_answers import Answer, parse
from condor_joblens.startd.startd_child import SECONDS, StartdChild

TOGETHER = 0.01
"""Seconds between the first wish and its question: jobs often start several at a time."""

BURST = 0.5
"""Seconds that questions may take at once, after a time without any: a job of milliseconds is then known at its end."""

SHARE = 0.05
"""Share of the time that they may take in the long run."""

LONGEST = 5.0
"""Seconds that a question waits at most for that."""

BACKOFF = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds before the next question after so many failures in a row."""

COST, COST_OF_A_SLOT, COST_OF_A_BYTE = 0.002, 0.001, 2e-8
"""Seconds that a startd works for a question at most, for each slot in it, and for each byte of its answer. 1.1 ms were
measured with two slots. The time until the answer is longer on a busy node, where condor_status waits for a core, and
costs the startd nothing."""

Start = Callable[[], StartdChild]


class StartdClient:
    """Asks the startds of this node. `fault` is why they can't be asked; empty: they answer, or were not asked yet."""

    def __init__(
        self, start: Start, files: Sequence[str], attributes: Sequence[str], *, only_once: bool = False
    ) -> None:
        """`start` makes the process, or raises OSError; `files` have the addresses of the node's startds.

        `only_once`: when it has been started, nobody may start another.
        """
        self._start, self._only_once = start, only_once
        self.files, self.attributes = list(files), list(attributes)
        self.fault = ""
        self.asked_at = 0.0
        """CLOCK_MONOTONIC of the question that was last answered."""
        self._child: StartdChild | None = None
        self._has_begun = False  # there has been such a process
        self._number = 0
        self._sent_at: float | None = None  # of the question that is being answered
        self._wanted_at: float | None = None  # the first wish that no question has served
        self._next_at = 0.0  # no question before
        self._failures = 0
        self._budget, self._counted_at = BURST, 0.0  # seconds that questions may take, at that time
        self._epoll = select.epoll()

    @property
    def pid(self) -> int | None:
        """The process that asks; None if there is none."""
        return self._child.pid if self._child is not None else None

    def fileno(self) -> int:
        """One descriptor for the life of the object, readable when `receive` has something to do."""
        return self._epoll.fileno()

    def begin(self) -> None:
        """Starts the process now, while joblensd still can; if that fails, the first question says so."""
        with contextlib.suppress(OSError):
            self._start_child()

    def want(self, now: float) -> None:
        """Somebody wants to know what the startds hold from `now` (CLOCK_MONOTONIC) on. Raises HelperLost."""
        if self._wanted_at is None:
            self._wanted_at = now
            self._next_at = max(self._next_at, now + TOGETHER)
        self._send_if_due(now)

    def timeout(self, now: float) -> float | None:
        """Seconds until `receive` has something to do of which `fileno` does not tell; None: never."""
        if self._sent_at is not None:
            return max(0.0, self._deadline() - now)
        return None if self._wanted_at is None else max(0.0, self._next_at - now)

    def receive(self, now: float) -> Answer | None:
        """The answer to a question, once; sends the next one if it is due. Raises HelperLost."""
        answer = None
        if self._sent_at is not None:
            answer = self._take(now)
        elif self._child is not None:
            self._child.take(self._number)  # nothing, or its end
            if not self._child.connected:
                self._end_child()
                self.begin()
        self._send_if_due(now)
        return answer

    def stop(self) -> None:
        """Ends the process. The object is of no further use."""
        self._end_child()
        self._epoll.close()

    def _deadline(self) -> float:
        return (self._sent_at or 0.0) + (SECONDS + 2) * max(1, len(self.files))

    def _send_if_due(self, now: float) -> None:
        if self._wanted_at is None or self._sent_at is not None or now < self._next_at:
            return
        if not self.files:
            self._fail("HTCondor's configuration names no STARTD_ADDRESS_FILE", now)
            return
        try:
            child = self._start_child()
        except OSError as error:
            self._fail(f"the process that asks can't be started: {error.strerror}", now)
            return
        self._number += 1
        self._wanted_at, self._sent_at = None, now
        child.ask(self._number, self.attributes, self.files)

    def _start_child(self) -> StartdChild:
        if self._child is None or not self._child.connected:
            if self._has_begun and self._only_once:
                raise HelperLost("the process that asks startds has ended")
            self._child = self._start()
            self._has_begun = True
            self._epoll.register(self._child, select.EPOLLIN)
        return self._child

    def _take(self, now: float) -> Answer | None:
        child, sent_at = self._child, self._sent_at or 0.0
        said = child.take(self._number) if child is not None else None
        if child is None or said is None:
            if child is None or not child.connected:
                self._end_child()
                self._fail("the process that asks has ended", now)
            elif now >= self._deadline():  # the process stays: joblensd can't start another as that user
                self._fail(f"no answer within {SECONDS} s", now)
            return None
        answer = parse(said)
        if answer.faults and len(answer.faults) >= len(self.files):
            self._fail(answer.faults[0], now)
            return None
        self.asked_at, self._sent_at, self._failures = sent_at, None, 0
        self.fault = answer.faults[0] if answer.faults else ""
        cost = _cost(answer, child.received, now - sent_at)
        self._budget = min(BURST, self._budget + SHARE * (now - self._counted_at)) - cost
        self._counted_at = now
        self._next_at = now + min(LONGEST, max(0.0, -self._budget / SHARE))
        return answer

    def _fail(self, why: str, now: float) -> None:
        self.fault = why
        self._sent_at = None
        self._wanted_at = now if self._wanted_at is None else self._wanted_at
        self._next_at = now + BACKOFF[min(self._failures, len(BACKOFF) - 1)]
        self._failures += 1

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None


def _cost(answer: Answer, received: int, seconds: float) -> float:
    """Seconds that the startds have worked for an answer of so many bytes that came after `seconds`, at most."""
    return min(seconds, COST + COST_OF_A_SLOT * len(answer.jobs) + COST_OF_A_BYTE * received)
