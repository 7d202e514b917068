"""Commands on a running job, when somebody asks: a child that is the job's owner does each (owner_commands/).

A trace is one of them, which another process does (traces.py).

What a child says is never taken apart here: it is bytes for whoever has asked, and is read as fast as they are taken.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import selectors
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from condor_joblens.agent.node import Node, open_cgroup
from condor_joblens.agent.throttle import TimeShare
from condor_joblens.agent.traces import Traces
from condor_joblens.common import descriptors
from condor_joblens.common.process_starter import ProcessStarter
from condor_joblens.control.child_output import MOST
from condor_joblens.control.stream import Stream
from condor_joblens.control.user_turns import MAX_USERS
from condor_joblens.control.verbs import Payer, Refused
from condor_joblens.jobs.sandbox import OF_ANOTHER, JobSandbox

MOST_AT_ONCE = 32
MOST_OF_A_USER = 4
"""Commands that go on; a file that is followed is one of them. When half of the places are taken, a user has one."""

SHARE_OF_A_USER, SAVED_OF_A_USER = 0.1, 10.0
"""Cores, and seconds of CPU, that all of a user's commands on this node may use, and that are saved up for him. They
run outside of his jobs' slots, so that a job's limits don't bound them."""

PATIENCE = 20.0
FOLLOWING_SECONDS = 3700.0
TRACING_SECONDS = 60.0
"""Seconds for one command, for a file that is followed, and for a trace beside the time that was asked for. The child
itself gives up before that."""

MOST_BYTES = 64 << 20
FOLLOWING_BYTES = 4 << 30
"""Of what a child says: more than it has to say, if nobody else has got hold of it."""


@dataclass
class _Command:
    whose: Payer
    stream: Stream
    channel: socket.socket
    until: float  # CLOCK_MONOTONIC
    room: int  # bytes that the child may still say
    listens: bool = False
    why_over: Callable[[], str] = str  # why it must not go on; empty: it may


class OwnerCommands:
    """The commands that go on."""

    def __init__(
        self,
        node: Node,
        starter: ProcessStarter | None,
        selector: selectors.BaseSelector,
        traces: Traces | None = None,
    ) -> None:
        """`starter` starts children that are the owner of a folder; None: nobody can. No `traces`: none is begun."""
        self._node, self._starter, self._selector, self._traces = node, starter, selector, traces
        self._running: list[_Command] = []
        self._shares: OrderedDict[Payer, TimeShare] = OrderedDict()  # who has used some last at the end

    def begin(self, run: int, whose: Payer, request: Mapping[str, object], stream: Stream) -> None:
        """Has a child do what `request` says (owner_commands/children.py), and sends what it says. Raises Refused."""
        sandbox = self._node.handles[run].sandbox
        if self._starter is None:
            raise Refused("joblensd can't become the job's owner on this node: JobLensdLog says why")
        if sandbox is None:
            raise Refused("the job's folder is unknown")
        if not sandbox.is_of_its_user():
            raise Refused(OF_ANOTHER)
        own = sum(command.whose == whose for command in self._running)
        if own >= (MOST_OF_A_USER if len(self._running) < MOST_AT_ONCE // 2 else 1):
            raise Refused(f"{own} of your commands still go on here: wait, or end one")
        self.check_share(whose)
        if len(self._running) >= MOST_AT_ONCE:
            raise Refused(f"{MOST_AT_ONCE} commands go on here: try again")
        try:
            cgroup = open_cgroup(self._node.handles[run].path, int(self._node.runs.state["cgroup_id"][run]))
        except OSError:
            raise Refused("the job is over") from None
        is_trace = request.get("verb") == "trace"
        charge = functools.partial(self.charge, whose)
        try:
            if is_trace:
                channel = self._begun_trace(run, cgroup, sandbox, whose, request, charge)
            else:
                channel = self._started(sandbox, cgroup, whose, request, charge)
        except OSError as error:
            raise Refused(f"nobody can do it now: {error.strerror}") from None
        finally:
            os.close(cgroup)
        goes_on = is_trace or bool(request.get("follow"))
        seconds = FOLLOWING_SECONDS if goes_on else PATIENCE
        if is_trace:
            seconds = float(str(request["seconds"])) + TRACING_SECONDS
        room = FOLLOWING_BYTES if goes_on else MOST_BYTES
        command = _Command(whose, stream, channel, time.monotonic() + seconds, room)
        if is_trace and self._traces is not None:
            traces, number = self._traces, self._traces.number(run)
            command.why_over = lambda: traces.why_over(run, number, channel)
        self._running.append(command)
        stream.on_close = lambda: self._end(command)
        stream.on_room = lambda: self._listen(command)
        self._listen(command)

    def timeout(self, now: float) -> float:
        """Seconds until a command has taken too long; `now` is time.monotonic()."""
        return min((max(0.0, command.until - now) for command in self._running), default=3600.0)

    def expire(self, now: float) -> None:
        """Ends those that take too long."""
        for command in [each for each in self._running if now >= each.until]:
            self._end(command)
            command.stream.end({})
        for command in list(self._running):
            why = command.why_over()
            if why and why != "the job is over":  # else it tells what it has seen, and ends by itself
                self._end(command)
                command.stream.refuse(why)

    def check_share(self, whose: Payer) -> None:
        """Raises Refused if what was done for this user has used more CPU than his share. root has all of it."""
        pause = self._shares[whose].pause(time.monotonic()) if whose and whose in self._shares else 0.0
        if pause > 0:
            raise Refused(
                f"your commands here have used their share of CPU ({SHARE_OF_A_USER:g} of a core, and "
                f"{SAVED_OF_A_USER:g} s): try again in {math.ceil(pause)} s"
            )

    def charge(self, whose: Payer, seconds: float) -> None:
        """What was done for this user has used so many seconds of CPU."""
        share = self._shares.setdefault(whose, TimeShare(SAVED_OF_A_USER, SHARE_OF_A_USER))
        share.take(seconds)
        self._shares.move_to_end(whose)
        if len(self._shares) > MAX_USERS:
            self._shares.popitem(last=False)

    def _begun_trace(
        self,
        run: int,
        cgroup: int,
        sandbox: JobSandbox,
        whose: Payer,
        request: Mapping[str, object],
        charge: Callable[[float], None],
    ) -> socket.socket:
        if self._traces is None:
            raise Refused("nothing is traced here")
        return self._traces.start(run, cgroup, sandbox, request, whose, charge)

    def _started(
        self,
        sandbox: JobSandbox,
        cgroup: int,
        whose: Payer,
        request: Mapping[str, object],
        charge: Callable[[float], None],
    ) -> socket.socket:
        """The socket of a child that has its request. Raises OSError."""
        assert self._starter is not None
        channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        channel.setblocking(False)
        try:
            with theirs:
                # those that a user has stopped are in nobody else's way
                for_whom = sandbox.scratch_uid, whose
                self._starter.start(theirs, sandbox.scratch, for_whom=for_whom, charge=charge)
            descriptors.send(channel, json.dumps(request).encode(), [sandbox.scratch, cgroup])
        except OSError:
            channel.close()
            raise
        return channel

    def _listen(self, command: _Command) -> None:
        """Reads from the child from now on, for as long as the reader has room."""
        if not command.listens:
            command.listens = True
            self._selector.register(command.channel, selectors.EVENT_READ, lambda: self._receive(command))

    def _pause(self, command: _Command) -> None:
        if command.listens:
            command.listens = False
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(command.channel)

    def _receive(self, command: _Command) -> None:
        if not command.listens:
            return
        try:
            packet = command.channel.recv(MOST)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        command.room -= len(packet)
        if not packet or command.room < 0:
            self._end(command)
            command.stream.end({})
        elif not command.stream.send(packet):
            self._pause(command)

    def _end(self, command: _Command) -> None:
        """Nobody waits for it any more, or it is done. The child ends by itself: nobody reads what it says."""
        with contextlib.suppress(ValueError):
            self._running.remove(command)
        self._pause(command)
        command.channel.close()
