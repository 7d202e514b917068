"""The variables that runs ask for by their +JobLensPeek, each period: a child that is the job's owner reads them.

It lives as long as the run (profiling/peek_values.py). What it says comes from the job in the end, so it is checked.
Values go into the run's row, and stay there when there are no newer ones.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import re
import selectors
import socket
import time
from dataclasses import dataclass

from condor_joblens.agent import trace_places
from condor_joblens.agent.levels import peeking
from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.agent.node import open_cgroup
from condor_joblens.agent.trace_places import Place
from condor_joblens.common import descriptors
from condor_joblens.common.errors import printable
from condor_joblens.common.process_starter import ProcessStarter
from condor_joblens.control.child_output import CONTENT, FAILED, MOST
from condor_joblens.control.verbs import Refused
from condor_joblens.jobs.sandbox import OF_ANOTHER
from condor_joblens.model import peek_spec
from condor_joblens.model.metrics import METRICS, cut_words
from condor_joblens.policy.peek_request import ATTRIBUTE
from condor_joblens.profiling import peek_messages
from condor_joblens.profiling.peek_messages import Seen
from condor_joblens.profiling.peek_values import VERB

AGAIN_SECONDS = 60.0
"""After a child that could not be started, or that ended before its run."""

FILES_SHARE = 0.2
"""Of JOBLENS_MAX_CPU: what reading the programs of all jobs that ask may take together."""

LOOKS_SHARE = 0.1
"""Of it: what all other looks may take, if there are as many readers as there may be."""

SHOWN = 60
"""Characters of a value, in a text that has several."""

MESSAGES_AT_A_TIME = 20

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?")
_COLUMNS = tuple(metric.column for metric in METRICS if metric.group == "Peek")


@dataclass
class _Peek:
    """A child that goes on."""

    run: int
    place: Place
    specs: tuple[str, ...]
    period: float  # seconds
    channel: socket.socket


class Peeks:
    """All of the node."""

    def __init__(self, levels: Levels) -> None:
        """There are none until `open`."""
        self._levels = levels
        self._lookers: ProcessStarter | None = None
        self._selector: selectors.BaseSelector | None = None
        self._running: dict[int, _Peek] = {}  # by number of the run
        self._not_before: dict[int, float] = {}  # number of a run -> CLOCK_MONOTONIC
        self._known: dict[int, dict[str, str]] = {}  # number of a run -> what each variable held last, by its SPEC

    def open(self, lookers: ProcessStarter | None, selector: selectors.BaseSelector) -> None:
        """From now on they can be begun. `lookers` starts children that are the owner of a folder; None: nobody can."""
        self._lookers, self._selector = lookers, selector

    def tick(self) -> None:
        """Once a round: begins those that are wanted, and ends those that are not any more."""
        if self._selector is None:
            return
        runs = self._levels.node.runs.by_number()
        for number, peek in list(self._running.items()):
            run = runs.get(number)
            if run is None or self._asked(run) != (peek.specs, peek.period):
                self._end(peek)
                self._not_before.pop(number, None)
        for of_runs in (self._not_before, self._known):
            for number in of_runs.keys() - runs.keys():
                del of_runs[number]
        for place in trace_places.waiting(self._levels, runs, self._having(), self._not_before, peeking.wanted):
            self._levels.node.guard(runs[place.number], "peek", self._begin, runs[place.number], place)

    def _asked(self, run: int) -> tuple[tuple[str, ...], float]:
        return peeking.wanted(self._levels, run), float(self._levels.node.runs.rows["period_seconds"][run])

    def _having(self) -> dict[int, Place]:
        return {number: peek.place for number, peek in self._running.items()}

    def _begin(self, run: int, place: Place) -> None:
        self._not_before[place.number] = time.monotonic() + AGAIN_SECONDS
        try:
            gone = self._to_go(place) if len(self._running) >= self._levels.node.config.max_peeks else None
            self._start(run, place)
        except (Refused, OSError) as error:
            self._trouble(run, f"no variable is read: {error}")
            return
        if gone is not None:
            self._trouble(gone.run, "no variable is read any more: a job of another user, who has fewer, has its place")
            self._end(gone)
            self._not_before[gone.place.number] = time.monotonic() + AGAIN_SECONDS

    def _to_go(self, wanting: Place) -> _Peek:
        """Which one gives way. Raises Refused if it is this run that has to wait."""
        having = self._having()
        gone = trace_places.to_go(wanting, having, having)
        if gone is None:
            raise Refused(f"variables of {len(having)} jobs are read here already (JOBLENS_MAX_PEEKS)")
        return self._running[gone.number]

    def _start(self, run: int, place: Place) -> None:
        """Raises Refused and OSError."""
        node, (specs, period) = self._levels.node, self._asked(run)
        handles = node.handles[run]
        if self._lookers is None:
            raise Refused("joblensd can't become the job's owner on this node: JobLensdLog says why")
        if handles.sandbox is None:
            raise Refused("the job's folder is unknown")
        if not handles.sandbox.is_of_its_user():
            raise Refused(OF_ANOTHER)
        request = json.dumps({"verb": VERB, "specs": specs, "every": period, "follow": True, **self._shares()}).encode()
        cgroup = open_cgroup(handles.path, int(node.runs.state["cgroup_id"][run]))
        try:
            channel = self._started(handles.sandbox.scratch, cgroup, request, place)
        finally:
            os.close(cgroup)
        peek = self._running[place.number] = _Peek(run, place, specs, period, channel)
        self._trouble(run, "")
        assert self._selector is not None
        self._selector.register(channel, selectors.EVENT_READ, functools.partial(self._receive, peek))

    def _shares(self) -> dict[str, float]:
        """Of a core, so that readers alone never make jobs' levels step down."""
        config = self._levels.node.config
        looks = LOOKS_SHARE * config.max_cpu / config.max_peeks
        return {"files_share": FILES_SHARE * config.max_cpu, "looks_share": looks}

    def _started(self, scratch: int, cgroup: int, request: bytes, place: Place) -> socket.socket:
        """The socket of a child that has its request. Raises OSError."""
        assert self._lookers is not None
        channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        channel.setblocking(False)
        try:
            with theirs:
                self._lookers.start(theirs, scratch, for_whom=("peek", place.number))
            descriptors.send(channel, request, [scratch, cgroup])
        except OSError:
            channel.close()
            raise
        return channel

    def _receive(self, peek: _Peek) -> None:
        for _ in range(MESSAGES_AT_A_TIME):
            if peek.channel.fileno() < 0:
                return
            try:
                message = peek.channel.recv(MOST)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                self._end(peek)
                return
            self._hear(peek, message[:1], message[1:])

    def _hear(self, peek: _Peek, kind: bytes, said: bytes) -> None:
        if not self._is_living(peek):
            return
        try:
            if kind == CONTENT:
                self._put(peek, peek_messages.understood(said, len(peek.specs)))
            elif kind == FAILED:
                self._trouble(peek.run, said.decode("utf-8", "replace"))
        except ValueError as error:
            self._trouble(peek.run, f"no variable is read: {error}")
            self._end(peek)

    def _put(self, peek: _Peek, seen: list[Seen]) -> None:
        """Into the run's row. Why a value is not known is in its note.

        A later child has not seen programs that have ended by then: what they held stays.
        """
        rows, run = self._levels.node.runs.rows, peek.run
        known = self._known.setdefault(peek.place.number, {})
        known.update((spec, each.value) for spec, each in zip(peek.specs, seen) if each.value)
        shown = "; ".join(described(spec, known[spec]) for spec in peek.specs if spec in known)
        rows["peek_values"][run] = cut_words(shown, "peek_values")
        for column, spec in zip(_COLUMNS, peek.specs):
            rows[column][run] = as_number(known.get(spec, ""))
        lacking = (f"{spec}: {each.why}" for spec, each in zip(peek.specs, seen) if each.why and spec not in known)
        self._trouble(run, next(lacking, ""))

    def _is_living(self, peek: _Peek) -> bool:
        runs = self._levels.node.runs
        return bool(runs.state["used"][peek.run]) and int(runs.rows["run_number"][peek.run]) == peek.place.number

    def _trouble(self, run: int, text: str) -> None:
        """The run's note says it, and nothing of what it said of this before."""
        sent = self._levels.inputs.get(run)
        if sent is not None:
            sent.peek_trouble = f"{ATTRIBUTE}: {text}" if text else ""
            peeking.update(self._levels, run)

    def _end(self, peek: _Peek) -> None:
        """The child finds nobody who listens, and ends."""
        assert self._selector is not None
        if self._running.get(peek.place.number) is peek:
            del self._running[peek.place.number]
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(peek.channel)
        peek.channel.close()


def described(spec: str, value: str) -> str:
    """`state.run[3] = 22`, fit for an ad."""
    return f"{peek_spec.parse(spec).shown} = {printable(value, SHOWN)}"


def as_number(value: str) -> float:
    """What a metric can be: NaN unless it is a number of 0 or more."""
    found = float(value) if _NUMBER.fullmatch(value) else math.nan
    return found if found < math.inf else math.nan
