"""Traces of functions of a running job at level trace: a disposable process attaches the probes (tracing/child.py).

A child that is the job's owner opens the job's files for it. joblensd only makes the two known to each other.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from condor_joblens.agent import script_shares, trace_places
from condor_joblens.agent.node import Node
from condor_joblens.agent.trace_places import Place
from condor_joblens.common import descriptors
from condor_joblens.common.own_process import HelperLost
from condor_joblens.common.process_starter import ProcessStarter
from condor_joblens.control.verbs import Payer, Refused
from condor_joblens.jobs.sandbox import JobSandbox
from condor_joblens.model.levels import Level
from condor_joblens.policy.trace_request import ATTRIBUTE
from condor_joblens.profiling.program_files import REQUEST
from condor_joblens.tracer.sensors import recorder_of

MOST_AT_ONCE = 8
"""Traces of a node that somebody has asked for, of a job one at a time: what probes may cost it is reckoned by trace.

Whoever asks shares them with others (trace_places.py); root's give way to nobody. Beside it a trace can stand for the
job's life (function_traces.py). Then it may cost half. Those of its functions, of its shells and of what it throws
share the other half."""

GAVE_WAY = "the trace was ended: another user, who had fewer of them here, has its place"

STANDING_SHARE = 0.5

RECORDER_SECONDS = 5.0
"""So long a trace that is to stand waits for the flight recorder to be loaded."""

ROOT = "0"


@dataclass
class _Asked:
    """A trace that somebody has asked for."""

    place: Place  # whose it is: of whoever asks
    channel: socket.socket  # joblensd's end; closed: it is over


class StandingTraces(Protocol):
    """Those that stand for the lives of runs, of one kind."""

    def asked(self, run: int) -> bool:
        """Whether one stands for the run's life, or may come to stand."""

    def follow(self, run: int, seconds: float) -> socket.socket | None:
        """The socket on which it tells what ends in so many seconds; None if there is none. Raises OSError."""


class Traces:
    """Starts traces."""

    def __init__(
        self,
        node: Node,
        lookers: ProcessStarter | None,
        tracers: ProcessStarter | None,
        selector: selectors.BaseSelector,
    ) -> None:
        """`lookers` starts children that are the owner of a folder, `tracers` traces; None: nobody can."""
        self._node, self._lookers, self._tracers, self._selector = node, lookers, tracers, selector
        self._running: dict[int, _Asked] = {}  # by number of the run
        self._ended: set[socket.socket] = set()  # joblensd's ends of those that gave way
        self.standing: list[StandingTraces] = []
        self._awaited_since: float | None = None  # CLOCK_MONOTONIC
        if tracers is not None:
            selector.register(tracers, selectors.EVENT_READ, self._reports)

    def start(
        self,
        run: int,
        cgroup: int,
        sandbox: JobSandbox,
        request: Mapping[str, object],
        whose: Payer,
        charge: Callable[[float], None] = lambda _: None,
    ) -> socket.socket:
        """The socket of a trace that has its request: `spec`, and `seconds`. Raises Refused and OSError.

        With `follow` it is the one that stands for the run's life. `whose` asks, 0: root.

        `charge` is called with the seconds of CPU that it has used.
        """
        self._check()
        why = self.why_over(run, self.number(run))
        if why:
            raise Refused(why)
        if request.get("follow"):
            return self._follow(run, float(str(request["seconds"])))
        self._running = {number: each for number, each in self._running.items() if each.channel.fileno() >= 0}
        self._ended = {each for each in self._ended if each.fileno() >= 0}
        if self.number(run) in self._running:
            raise Refused("the job is traced already: a job has one trace at a time")
        place = Place(self.number(run), str(whose), (-time.monotonic(),))
        gone = self._to_go(place) if len(self._running) >= MOST_AT_ONCE else None
        share = 1.0 - STANDING_SHARE if self.stands(run) else 1.0
        cores = script_shares.asked(len(self._running) + 1, self._node.config.max_cpu)
        asked = {"specs": [request["spec"]], "seconds": request["seconds"], "share": share, **self._for_all(), **cores}
        channel = self._started(run, cgroup, sandbox, asked, charge)
        if gone is not None:
            self._ended.add(self._running.pop(gone).channel)
        self._running[place.number] = _Asked(place, channel)
        return channel

    def _to_go(self, wanting: Place) -> int:
        """Number of the run whose trace gives way. Raises Refused if this one has to wait."""
        having = {number: each.place for number, each in self._running.items()}
        users = {number: place for number, place in having.items() if place.whose != ROOT}
        gone = trace_places.to_go(wanting, having, users)
        if gone is None:
            own = sum(place.whose == wanting.whose for place in having.values())
            raise Refused(f"{MOST_AT_ONCE} jobs are traced here, {own} of them for you: try again")
        return gone.number

    def stand(
        self, run: int, cgroup: int, sandbox: JobSandbox, specs: Sequence[str], request: Mapping[str, float]
    ) -> socket.socket:
        """The socket of a trace that goes on until the job or the socket ends. Raises Refused and OSError."""
        self._check()
        share = STANDING_SHARE / max(1, self.stands(run))
        asked = {"specs": list(specs), "seconds": 0, "share": share, "stands": True, **self._for_all(), **request}
        return self._started(run, cgroup, sandbox, asked, lambda _: None)

    def stands(self, run: int) -> int:
        """How many traces stand for the run's life, or may come to stand."""
        return sum(each.asked(run) for each in self.standing)

    def _for_all(self) -> dict[str, bool]:
        """Of a shell: whether one probe is for all processes of the node."""
        return {"for_all": self._node.config.trace_shell == "node"}

    def _follow(self, run: int, seconds: float) -> socket.socket:
        """The socket on which a trace that stands tells what ends; that of functions comes before that of shells."""
        for each in self.standing:
            channel = each.follow(run, seconds)
            if channel is not None:
                return channel
        raise Refused(
            f"nothing of the job is traced for its life: {ATTRIBUTE} or a policy asks for it, and Note says why not. "
            "To trace it now, name a function, FILE:FUNCTION, or bash"
        )

    def _check(self) -> None:
        """Raises Refused."""
        if self._tracers is None or self._lookers is None:
            raise Refused(
                "nothing can be traced on this node: JOBLENS_MAX_LEVEL was below trace when joblensd started (joblens "
                "restart), or JobLensdLog says why"
            )

    def number(self, run: int) -> int:
        """The run's number: its index is another's when it is over."""
        return int(self._node.runs.rows["run_number"][run])

    def why_over(self, run: int, number: int, channel: socket.socket | None = None) -> str:
        """Why the run that had this number may not be traced any more, on this channel; empty if it may."""
        if channel is not None and channel in self._ended:
            return GAVE_WAY
        if not self._node.runs.state["used"][run] or self.number(run) != number:
            return "the job is over"
        level = Level(int(self._node.runs.rows["level_number"][run]))
        if level < Level.TRACE:
            return f"the job is at level {level.word}: only at level trace its functions are traced (joblens level)"
        return ""

    def _started(
        self,
        run: int,
        cgroup: int,
        sandbox: JobSandbox,
        request: Mapping[str, object],
        charge: Callable[[float], None],
    ) -> socket.socket:
        assert self._tracers is not None and self._lookers is not None
        channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        opener, opens = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        channel.setblocking(False)
        opens.setblocking(True)
        recorder, maps = self._recorder(run)
        asked = {**request, "uid": sandbox.scratch_uid, **recorder}
        try:
            with theirs, opener, opens:
                self._lookers.start(opens, sandbox.scratch, for_whom=("trace", self.number(run)), charge=charge)
                self._tracers.start(theirs, for_whom=("trace", self.number(run)), charge=charge)
                descriptors.send(opener, REQUEST)
                descriptors.send(channel, json.dumps(asked).encode(), [cgroup, opener.fileno(), *maps])
        except OSError:
            channel.close()
            raise
        return channel

    def _recorder(self, run: int) -> tuple[dict[str, object], list[int]]:
        """What a trace is told of the flight recorder, and the descriptors of its maps; nothing if it is not there."""
        sensor = recorder_of(self._node.tracer.sensors)
        maps = [] if sensor is None else sensor.for_traces()
        slot = int(self._node.runs.state["kernel_slot"][run])
        if sensor is None or not maps or slot < 0:
            return {}, []
        return {"recorder": {"slot": slot, "places": list(sensor.places)}}, maps

    def awaits_recorder(self) -> bool:
        """Whether the flight recorder is being loaded: a trace that begins before would have no part in it."""
        sensor, now = recorder_of(self._node.tracer.sensors), time.monotonic()
        if sensor is None or not sensor.rows or sensor.loaded is not None or sensor.missing:
            self._awaited_since = None
            return False
        self._awaited_since = now if self._awaited_since is None else self._awaited_since
        return now - self._awaited_since < RECORDER_SECONDS

    def _reports(self) -> None:
        assert self._tracers is not None
        try:
            self._tracers.receive()
        except HelperLost as lost:
            self._node.log(f"{lost}: no job is traced until joblensd is started anew")
            self._selector.unregister(self._tracers)
            self._tracers = None
