"""Traces that stand for the life of runs at level trace (levels/standing_requests.py): begun, ended, and heard.

What their processes say comes from the job in the end, so it is checked. Sums go into the run's row; what is to be kept
is an artifact, into which joblensd does not look.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import selectors
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from condor_joblens.agent import script_shares, trace_places
from condor_joblens.agent.levels import standing_requests
from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.agent.node import open_cgroup
from condor_joblens.agent.output.run_artifacts import RunArtifacts
from condor_joblens.agent.trace_places import Place
from condor_joblens.agent.traces import Traces
from condor_joblens.common import descriptors
from condor_joblens.common.errors import printable
from condor_joblens.control.child_output import FAILED, MOST, NOTICE, WHOLE
from condor_joblens.control.verbs import Refused
from condor_joblens.model.events import EventKind
from condor_joblens.model.metrics import cut_words
from condor_joblens.policy.trace_request import ATTRIBUTE
from condor_joblens.profiles import traced_calls
from condor_joblens.shm.artifact_header import Artifact
from condor_joblens.tracing import followers, for_triggers
from condor_joblens.tracing import standing_messages as messages

MOST_AT_ONCE = 16
"""Of a node: each is a process, and a child that is a job's owner. Users share them (trace_places.py)."""

AGAIN_SECONDS = 60.0
"""After a trace that failed, or that ended before its run."""

MOST_KEPT = 4
"""Artifacts of a run: a trace has one, which each new one of its own replaces."""

MESSAGES_AT_A_TIME = 20


@dataclass
class Standing:
    """A trace that goes on."""

    run: int
    place: Place
    specs: tuple[str, ...]
    channel: socket.socket
    about: Artifact
    base: tuple[int, int, float]  # calls, unwound and seconds of the run before this trace
    parts: list[bytes] = field(default_factory=list)
    kept: str = ""  # name of its artifact
    asked: bytes = b""  # what it was told that triggers want

    @property
    def number(self) -> int:
        """Of the run."""
        return self.place.number


class FunctionTraces:
    """All of the node. What of it is of functions is in the methods that shell_traces.py has in another way."""

    what, kind, content_type = standing_requests.FUNCTIONS, traced_calls.KIND, traced_calls.CONTENT_TYPE
    tells, one_by_one = EventKind.FUNCTION, "calls"
    """What triggers are told one by one: its kind, and a word for people."""

    def __init__(self, levels: Levels, artifacts: RunArtifacts) -> None:
        """There are none until `open`."""
        self._levels, self._artifacts = levels, artifacts
        self._traces: Traces | None = None
        self._selector: selectors.BaseSelector | None = None
        self._running: dict[int, Standing] = {}  # by number of the run
        self._not_before: dict[int, float] = {}  # number of a run -> CLOCK_MONOTONIC
        self._told: dict[int, dict[str, float]] = {}  # by number of the run: its share, as it was told

    def open(self, traces: Traces, selector: selectors.BaseSelector) -> None:
        """From now on they can be begun."""
        self._traces, self._selector = traces, selector
        traces.standing.append(self)

    def asked(self, run: int) -> bool:
        """Whether a trace of it stands for the run's life, or may come to stand."""
        return bool(self.what.asked(self._levels, run))

    def wanted(self, levels: Levels, run: int) -> tuple[str, ...]:
        """The SPECs that are to be traced of the run now."""
        return self.what.wanted(levels, run)

    def request(self, place: Place) -> dict[str, float]:
        """What its process is told at the begin: what it may take of JOBLENS_MAX_CPU."""
        share = self._told[place.number] = self.shares({**self.having(), place.number: place})[place.number]
        return share

    def shares(self, having: Mapping[int, Place]) -> dict[int, dict[str, float]]:
        """What each of them may take, in cores, by number of the run."""
        return script_shares.looking(having, self._levels.node.config.max_cpu)

    def follow(self, run: int, seconds: float) -> socket.socket | None:
        """Where the run's trace tells what ends in so many seconds; None if there is none. Raises OSError."""
        standing = self._running.get(int(self._levels.node.runs.rows["run_number"][run]))
        if standing is None:
            return None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            with theirs:
                descriptors.send(standing.channel, followers.request(seconds), [theirs.fileno()])
        except OSError:
            ours.close()
            raise
        return ours

    def tick(self) -> None:
        """Once a round: begins those that are wanted, and ends those that are not any more."""
        if self._traces is None:
            return
        node = self._levels.node
        runs = self._levels.node.runs.by_number()
        for number, standing in list(self._running.items()):
            run = runs.get(number)
            is_over = run is None or bool(node.runs.rows["final"][run])  # then it ends by itself, and tells the rest
            if not is_over and self.wanted(self._levels, standing.run) != standing.specs:
                self._end(standing)
            else:
                self._ask_for_triggers(standing)
        for number in self._not_before.keys() - runs.keys():
            del self._not_before[number]
        for place in trace_places.waiting(self._levels, runs, self.having(), self._not_before, self.wanted):
            if self._traces.awaits_recorder():
                break
            run = runs[place.number]
            node.guard(run, "trace", self._begin, run, place)
        self._tell_shares()

    def _tell_shares(self) -> None:
        """All are told their shares when these are others."""
        self._told = {
            number: share
            for number, share in self.shares(self.having()).items()
            if share == self._told.get(number) or self.tell(number, json.dumps(share).encode())
        }

    def having(self) -> dict[int, Place]:
        """Runs that have a trace, by their numbers."""
        return {number: standing.place for number, standing in self._running.items()}

    def _begin(self, run: int, place: Place) -> None:
        self._not_before[place.number] = time.monotonic() + AGAIN_SECONDS
        try:
            gone = self._to_go(place) if len(self._running) >= MOST_AT_ONCE else None
            self._start(run, place)
        except (Refused, OSError) as error:
            self._trouble(run, f"no {self.what.subject} is traced: {error}")
            return
        if gone is not None:
            self._say(
                gone, f"no {self.what.subject} is traced any more: a job of another user, who has fewer, has its place"
            )
            self._end(gone)
            self._not_before[gone.number] = time.monotonic() + AGAIN_SECONDS

    def _to_go(self, wanting: Place) -> Standing:
        """Which trace gives way. Raises Refused if it is this run that has to wait."""
        having = self.having()
        living = {number: place for number, place in having.items() if self.living(self._running[number]) is not None}
        gone = trace_places.to_go(wanting, having, living)
        if gone is None:
            own = sum(place.whose == wanting.whose for place in having.values())
            raise Refused(f"{MOST_AT_ONCE} jobs are traced here already, {own} of them of this user")
        return self._running[gone.number]

    def _start(self, run: int, place: Place) -> None:
        """Raises Refused and OSError."""
        assert self._traces is not None and self._selector is not None
        node, specs = self._levels.node, self.wanted(self._levels, run)
        handles = node.handles[run]
        if handles.sandbox is None:
            raise Refused("the job's folder is unknown")
        cgroup = open_cgroup(handles.path, int(node.runs.state["cgroup_id"][run]))
        try:
            channel = self._traces.stand(run, cgroup, handles.sandbox, specs, self.request(place))
        finally:
            os.close(cgroup)
        about = dataclasses.replace(self._artifacts.about(run), kind=self.kind, content_type=self.content_type)
        standing = self._running[place.number] = Standing(run, place, specs, channel, about, self.base(run))
        self._trouble(run, "")
        self._ask_for_triggers(standing)
        self._selector.register(channel, selectors.EVENT_READ, functools.partial(self._receive, standing))
        node.log(f"{node.describe(run)}: traces {printable('; '.join(specs), 200)}")

    def _ask_for_triggers(self, standing: Standing) -> None:
        """Tells the trace what triggers want, if that is not what it was told last."""
        wanted = self._levels.output.events.wanted_kinds & {self.tells}
        asked = for_triggers.request(wanted, self._levels.node.config.max_events)
        if asked == standing.asked or not (wanted or standing.asked):
            return
        try:
            standing.channel.send(asked, socket.MSG_DONTWAIT)
        except OSError:  # it is about to end, or has not read what it was told before
            return
        standing.asked = asked

    def _receive(self, standing: Standing) -> None:
        for _ in range(MESSAGES_AT_A_TIME):
            if standing.channel.fileno() < 0:
                return
            try:
                message = standing.channel.recv(MOST)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                self._end(standing)
                return
            try:
                self._take(standing, message[:1], message[1:])
            except ValueError as error:
                self._say(standing, f"its trace was ended: {error}")
                self._end(standing)

    def _take(self, standing: Standing, kind: bytes, said: bytes) -> None:
        """Raises ValueError for what can't be."""
        if kind == messages.SUMS:
            self.put(standing, said)
        elif kind == messages.PART:
            standing.parts.append(said)
            if sum(map(len, standing.parts)) > traced_calls.MOST_BYTES:
                raise ValueError("there is too much to keep")
        elif kind == messages.KEEP:
            self._keep(standing, *messages.span(said))
        elif kind == messages.EVENTS:
            self._tell_triggers(standing, *messages.understood_events(said, standing.number))
        elif kind in (NOTICE, FAILED):
            self._say(standing, said.decode("utf-8", "replace"))
        elif kind != WHOLE:
            raise ValueError("it says what it does not know")

    def _tell_triggers(self, standing: Standing, untold: int, events: np.ndarray) -> None:
        self._levels.output.events.tell_triggers(events)
        run = self.living(standing)
        if untold and run is not None:
            what = f"triggers were not told of {untold} {self.one_by_one}: they are more than JOBLENS_MAX_EVENTS"
            self._levels.node.handles[run].notes[f"untold {self.one_by_one}"] = what
            self._levels.node.update_note(run)

    def base(self, run: int) -> tuple[int, int, float]:
        """What its row has of traces before this one."""
        rows = self._levels.node.runs.rows
        return max(0, int(rows["trace_calls"][run])), max(0, int(rows["trace_unwound"][run])), _known(rows, run)

    def put(self, standing: Standing, said: bytes) -> None:
        """Into the run's row, if there is still one. Raises ValueError for what can't be."""
        sums, run = messages.understood(said), self.living(standing)
        if run is None or not sums.begun:
            return
        rows = self._levels.node.runs.rows
        calls, unwound, seconds = standing.base
        rows["trace_calls"][run], rows["trace_unwound"][run] = calls + sums.calls, unwound + sums.unwound
        rows["trace_seconds"][run], rows["trace_from_time"][run] = seconds + sums.seconds, int(sums.begun)
        rows["trace_unseen_seconds"][run] = float("nan") if sums.unseen is None else sums.unseen
        rows["trace_functions"][run] = cut_words("; ".join(map(described, sums.functions)), "trace_functions")

    def _keep(self, standing: Standing, begun: float, ended: float) -> None:
        """The newest of a trace takes the place of the one before."""
        about = dataclasses.replace(standing.about, begun=begun, ended=ended)
        stored = self._artifacts.store.stored(about.run_number)
        kept = [each for each in stored if each.run == about.run and each.name.endswith(f".{self.kind}")]
        made = self._artifacts.keep_about(about, standing.parts, is_new=not standing.kept)
        standing.parts = []
        if made is None:
            return
        names = [each.name for each in kept if each.name != standing.kept]
        for name in ([standing.kept] if standing.kept else []) + names[: max(0, len(names) + 1 - MOST_KEPT)]:
            self._artifacts.store.delete(name)
        standing.kept = made.name

    def _say(self, standing: Standing, text: str) -> None:
        node, run = self._levels.node, self.living(standing)
        node.log_once(f"{standing.about.slot}: run {standing.about.run}: {ATTRIBUTE}: {printable(text, 200)}")
        if run is not None:
            self._trouble(run, text)

    def _trouble(self, run: int, text: str) -> None:
        """The run's note says it, and nothing of what it said of this before."""
        sent = self._levels.inputs.get(run)
        if sent is not None:
            self.what.say(self._levels, run, f"{ATTRIBUTE}: {text}" if text else "")

    def tell(self, number: int, said: bytes) -> bool:
        """Tells the trace of the run with this number; False if it does not listen now."""
        try:
            self._running[number].channel.send(said, socket.MSG_DONTWAIT)
        except OSError:
            return False
        return True

    def living(self, standing: Standing) -> int | None:
        """The run that it is of, if that goes on."""
        runs = self._levels.node.runs
        is_there = runs.state["used"][standing.run] and int(runs.rows["run_number"][standing.run]) == standing.number
        return standing.run if is_there and not runs.rows["final"][standing.run] else None

    def _end(self, standing: Standing) -> None:
        """Its probes are gone in a moment: its process finds nobody who listens."""
        assert self._selector is not None
        if self._running.get(standing.number) is standing:
            del self._running[standing.number]
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(standing.channel)
        standing.channel.close()


def described(listed: messages.Listed) -> str:
    """`fit(int, char*) 4711 calls 12.3 s, 2 unwound (off after 3 s)`, fit for an ad."""
    words = f"{printable(listed.name, 80)} {listed.calls} calls {listed.seconds:.3g} s"
    unwound = f", {listed.unwound} unwound" if listed.unwound else ""
    return words + unwound + (f", counted for {listed.covered:.3g} s alone" if listed.is_off else "")


def _known(rows: object, run: int) -> float:
    seconds = float(rows["trace_seconds"][run])  # type: ignore[index]
    return seconds if seconds > 0 else 0.0
