"""What a job's threads wait for, when somebody asks: a child that is the job's owner looks.

One look at a time, whoever asks first, and one of each user. What a child says is never taken apart here: it is bytes
for whoever has asked.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from condor_joblens.agent.node import Node
from condor_joblens.common import descriptors
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.own_process import HelperLost
from condor_joblens.common.process_starter import ProcessStarter, StartedProcess
from condor_joblens.control.verbs import Payer, Refused
from condor_joblens.jobs.death_sentence import last_killed
from condor_joblens.jobs.sandbox import OF_ANOTHER
from condor_joblens.model.metrics import text

MOST_WAITING = 32
PATIENCE = 20.0
"""Seconds for one look. The child itself gives up before that."""

MOST_BYTES = 4 << 20
"""Of what a child says; it is not to fill joblensd's memory if the job has got hold of it."""

_PACKET = 65536
_MOST_JOBS_TEXT = 150_000


class Taker(Protocol):
    """Who takes what a look tells: a stream (control/stream.py), or joblensd itself."""

    on_room: Callable[[], object]
    on_close: Callable[[], object]

    @property
    def has_room(self) -> bool:
        """Whether more may be sent."""

    def send(self, data: bytes) -> bool:
        """A packet of what the child says; whether there is room for another one."""

    def end(self, fields: Mapping[str, str]) -> None:
        """All has been said."""

    def refuse(self, reason: str) -> None:
        """Why there is nothing, or no more."""


@dataclass
class _Look:
    run: int
    number: int  # its run_number: the index is another's when it is over
    whose: Payer | None  # who asks; None: joblensd itself
    stream: Taker
    patience: float  # seconds
    heading: str  # of the text that the look is to make; empty: it makes none
    least: float  # seconds for which an answer must have been awaited to be suspicious
    charge: Callable[[float], None]
    channel: socket.socket | None = None
    child: StartedProcess | None = None
    until: float = 0.0  # CLOCK_MONOTONIC
    said: deque[bytes] = field(default_factory=deque)
    bytes: int = 0
    is_over: bool = False


class Evidence:
    """The looks that are asked for, and the one that is taken."""

    def __init__(self, node: Node, starter: ProcessStarter | None, selector: selectors.BaseSelector) -> None:
        """`starter` starts profiling/look.py as the owner of a folder; None: nobody can."""
        self._node, self._starter, self._selector = node, starter, selector
        self._waiting: deque[_Look] = deque()
        self._current: _Look | None = None
        self._passing: list[_Look] = []  # whose child has said all, and whose reader has not taken all
        if starter is not None:
            selector.register(starter, selectors.EVENT_READ, self._reports)

    def take(
        self,
        run: int,
        whose: Payer | None,
        stream: Taker,
        patience: float = PATIENCE,
        heading: str = "",
        least: float = 0.0,
        charge: Callable[[float], None] = lambda _: None,
    ) -> None:
        """Sends what a look at the run tells, as soon as it is its turn; for so many seconds. Raises Refused.

        `whose`: who asks; None: joblensd itself, which waits until all users have their answers. With a heading it
        is told as a text as well (profiling/look.py). An answer that has been awaited for less than `least` seconds is
        not suspicious. `charge` is called once the child has ended, with the seconds of CPU that it has used.
        """
        if self._starter is None:
            raise Refused("joblensd can't become the job's owner on this node: JobLensdLog says why")
        if self._node.handles[run].sandbox is None or self._node.runs.state["kernel_slot"][run] < 0:
            raise Refused("the job is not watched: its level is off, or its folder is unknown")
        if whose is not None and any(
            look.whose == whose for look in [*self._waiting, *self._passing, self._current] if look is not None
        ):
            raise Refused("you have asked for another job a moment ago: wait for that answer")
        if len(self._waiting) >= MOST_WAITING:
            raise Refused(f"{MOST_WAITING} users have asked before you: try again")
        look = _Look(run, int(self._node.runs.rows["run_number"][run]), whose, stream, patience, heading, least, charge)
        stream.on_close = lambda: self._end(look)
        stream.on_room = lambda: self._pass_on(look)
        self._waiting.append(look)
        self._next()

    def timeout(self, now: float) -> float:
        """Seconds until a look has taken too long; `now` is time.monotonic()."""
        return 3600.0 if self._current is None else max(0.0, self._current.until - now)

    def expire(self, now: float) -> None:
        """Ends a look that takes too long."""
        if self._current is not None and now >= self._current.until:
            self._kill(self._current)
            self._finish(self._current)

    def _next(self) -> None:
        while self._current is None and self._waiting:
            look = self._current = min(self._waiting, key=lambda look: look.whose is None)
            self._waiting.remove(look)
            try:
                self._begin(look)
            except (Refused, JobLensError, OSError) as error:
                look.stream.refuse(str(error))
                self._end(look)

    def _begin(self, look: _Look) -> None:
        runs, sandbox = self._node.runs, None
        if runs.state["used"][look.run] and int(runs.rows["run_number"][look.run]) == look.number:
            sandbox = self._node.handles[look.run].sandbox
        if sandbox is None or self._starter is None:
            raise Refused("the job is over")
        if not sandbox.is_of_its_user():
            raise Refused(OF_ANOTHER)
        threads = self._node.tracer.open_threads(int(runs.state["kernel_slot"][look.run]), sandbox.scratch_uid)
        try:
            look.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            look.channel.setblocking(False)
            with theirs:
                whose = sandbox.scratch_uid
                look.child = self._starter.start(theirs, sandbox.scratch, for_whom=whose, charge=look.charge)
            killed = last_killed(runs.state["death"][look.run], time.time())
            request = {"jobs": self._jobs(), "heading": look.heading, "least": look.least, "killed": killed}
            descriptors.send(look.channel, json.dumps(request).encode(), [threads])
        finally:
            os.close(threads)
        look.until = time.monotonic() + look.patience
        self._selector.register(look.channel, selectors.EVENT_READ, lambda: self._receive(look))

    def _jobs(self) -> dict[str, str]:
        """The job in each slot, by the slot's cgroup, as far as there is room for them in a request."""
        found, room = {}, _MOST_JOBS_TEXT
        for run in self._node.runs.living().tolist():
            cgroup = "/" + os.path.relpath(self._node.handles[run].path, self._node.tree.mount)
            job = text(self._node.runs.rows["job_id"][run])
            room -= 4 * len(cgroup) + len(job) + 8
            if job and room > 0:
                found[cgroup] = job
        return found

    def _receive(self, look: _Look) -> None:
        assert look.channel is not None
        try:
            packet = look.channel.recv(_PACKET)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        look.bytes += len(packet)
        if not packet or look.bytes > MOST_BYTES:
            self._finish(look)
            return
        look.said.append(packet)
        self._pass_on(look)

    def _pass_on(self, look: _Look) -> None:
        while look.said and look.stream.has_room:
            look.stream.send(look.said.popleft())
        if look.is_over and not look.said:
            self._forget(look)
            look.stream.end({})

    def _finish(self, look: _Look) -> None:
        """The child says no more; what it has said is still to be passed on."""
        look.is_over = True
        self._passing.append(look)
        self._pass_on(look)
        self._end_child(look)

    def _end(self, look: _Look) -> None:
        """Nobody waits for an answer any more."""
        with contextlib.suppress(ValueError):
            self._waiting.remove(look)
        self._forget(look)
        self._kill(look)
        self._end_child(look)

    def _kill(self, look: _Look) -> None:
        """The job may have stopped its child, which then would never end."""
        if look.child is not None and look.channel is not None:
            look.child.kill()

    def _forget(self, look: _Look) -> None:
        with contextlib.suppress(ValueError):
            self._passing.remove(look)

    def _end_child(self, look: _Look) -> None:
        """The child ends by itself: nobody reads what it says."""
        if look.channel is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(look.channel)
            look.channel.close()
            look.channel = None
        if self._current is look:
            self._current = None
            self._next()

    def _reports(self) -> None:
        assert self._starter is not None
        try:
            self._starter.receive()
        except HelperLost as lost:
            self._node.log(f"{lost}: what jobs wait for is not told until joblensd is started anew")
            self._selector.unregister(self._starter)
            self._starter = None
