"""The disposable process of one trace: it attaches the probes, puts calls together, and tells them.

If it ends, for whatever reason, its probes are gone. A process of the job that hangs delays nobody else. It has the
rights to load and attach programs, and reads nothing that the job has made. Files are opened by a child that is the
job's owner (profiling/program_files.py). Processes without any right read them (file_reader.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from condor_joblens.common import descriptors, readiness
from condor_joblens.common.cgroup_processes import processes_in
from condor_joblens.common.errors import JobLensError
from condor_joblens.control.child_output import CONTENT, FAILED, MOST, NOTICE, WHOLE
from condor_joblens.profiling.program_files import MOST_ANSWER
from condor_joblens.profiling.program_files import MOST_FILES as MOST_GIVEN
from condor_joblens.tracing import file_reader
from condor_joblens.tracing import spec as specs
from condor_joblens.tracing.answers import wait_for
from condor_joblens.tracing.calls import Call, Calls, End, Kind
from condor_joblens.tracing.functions import Function
from condor_joblens.tracing.probes import MOST_FUNCTIONS, Probes
from condor_joblens.tracing.spec import Spec, shown
from condor_joblens.tracing.throws import Place, Throw, Throws

MOST_SECONDS = 3600
LOOK_SECONDS = 0.5
"""How often new processes of the job are looked for."""

MOST_LOOK_SECONDS = 8.0
"""A process is looked at again, for new programs and libraries, after twice as long each time, up to this."""

TAKE_SECONDS = 0.05
"""How often the ring of hits is looked into."""

MOST_PROCESSES = 64
MOST_FILES = 8
ANSWER_SECONDS = 12.0
"""For so long the child that is the job's owner may take for an answer; it gives up before that."""

GRACE_SECONDS = 30.0
"""After the time that was asked for, this process is ended."""

MOST_QUEUED = 4 << 20
"""Bytes that wait for a slow reader; calls beyond that are counted, and not told one by one."""

_CALLS_IN_A_MESSAGE = 100
_MOST_MAPPINGS = 20_000


@dataclass
class _Traced:
    """A function that is traced, by its number."""

    function: Function
    file: str  # its path, as the job sees it
    points: Sequence[int]
    since_ns: int  # CLOCK_MONOTONIC, when it was first probed
    until_ns: int = 0  # 0: it is probed still


@dataclass
class _File:
    """A file of the job that the SPEC means."""

    path: str
    descriptor: int
    numbers: list[int] = field(default_factory=list)


class Opener:
    """The child that is the job's owner: it tells mappings, and opens files. What it says is not to be trusted."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self.is_lost = False
        self.meanwhile: Callable[[], None] | None = None  # what is done again and again while it takes its time

    def mappings(self, pid: int) -> Iterator[tuple[int, tuple[int, int], str]]:
        """Address, device and inode, and path of the code that a process has mapped."""
        more, count = self._ask({"maps": pid}), 0
        while more:
            answer, given = self._answer()
            _close(given)
            for start, _, _, device, inode, path in answer.get("mappings", []):
                count += 1
                if count < _MOST_MAPPINGS and inode:
                    yield int(start), (int(device), int(inode)), str(path)
            more = bool(answer.get("more"))

    def open(self, address: int) -> int | None:
        """The file behind a mapping of the process whose mappings were told last."""
        if not self._ask({"open": address}):
            return None
        _, given = self._answer()
        _close(given[1:])
        return given[0] if given else None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Its answer to any other question; empty if there is none."""
        if not self._ask(request):
            return {}
        answer, given = self._answer()
        _close(given)
        return answer

    def _ask(self, request: dict[str, Any]) -> bool:
        with contextlib.suppress(OSError):
            if not self.is_lost:
                descriptors.send(self._channel, json.dumps(request).encode())
                return True
        self.is_lost = True
        return False

    def _answer(self) -> tuple[dict[str, Any], list[int]]:
        try:
            wait_for(self._channel, ANSWER_SECONDS, self.meanwhile)
            packet, given = descriptors.receive(self._channel, MOST_ANSWER, MOST_GIVEN)
            answer = json.loads(packet) if packet else None
            if isinstance(answer, dict):
                return answer, given
            _close(given)
        except (OSError, ValueError, RecursionError):
            pass
        self.is_lost = True
        return {}, []


class Trace:
    """One trace, from its beginning to its end."""

    def __init__(self, channel: socket.socket, spec_text: str, probes: Probes, cgroup: int, opener: Opener) -> None:
        """Raises SpecError."""
        self._channel, self._text, self._probes = channel, spec_text, probes
        self._cgroup, self._opener = cgroup, opener
        opener.meanwhile = self._detach_what_is_off  # what costs the job too much does not wait for an answer
        self._spec: Spec = specs.parse(spec_text)
        self._calls, self._throws = Calls(MOST_FUNCTIONS), Throws(opener.ask)
        self._thrown_by = [0] * MOST_FUNCTIONS
        self._traced: list[_Traced] = []
        self._files: dict[tuple[int, int], _File | None] = {}
        self._attached: set[tuple[int, int]] = set()  # process, and number of a function
        self._detached: set[int] = set()  # numbers of functions that are switched off
        self._looks: dict[int, tuple[float, float]] = {}  # process -> when to look next, and how long after that
        self._queue: deque[bytes] = deque()
        self._queued = self._untold = 0
        self._refused: dict[str, None] = {}
        self._nearest: list[str] = []
        self._epoch = time.time_ns() - time.monotonic_ns()

    def run(self, seconds: float) -> None:
        """Traces for so long, or until nobody takes what is told. Raises JobLensError if there is nothing to trace.

        The time begins when the probes are there: on a full machine that may take seconds.
        """
        self.look()
        if not self._traced:
            raise JobLensError(self._why_nothing())
        self._notice(self._what())
        until = time.monotonic() + seconds
        next_look = time.monotonic() + LOOK_SECONDS
        while (now := time.monotonic()) < until and self._channel.fileno() >= 0:
            self.take()
            if now >= next_look:
                if not self.look():
                    break
                next_look = time.monotonic() + LOOK_SECONDS
            if not self._flush():
                return
            self._wait(min(TAKE_SECONDS, max(0.0, until - now)))
        self._end()

    def _end(self) -> None:
        self._probes.close()
        ended = time.monotonic_ns()
        for traced in self._traced:
            traced.until_ns = traced.until_ns or ended
        while self.take():
            pass
        if self._spec.is_of_throws:
            self._say(CONTENT, {"places": [_place(place) for place in self._throws.places]})
            self._say(CONTENT, {"summary": [self._thrown(number) for number in range(len(self._traced))]})
        else:
            self._say(CONTENT, {"summary": [self._summary(number) for number in range(len(self._traced))]})
        self._say_all()

    # -- processes and files --------------------------------------------------------------------------------

    def look(self) -> bool:
        """Probes what is new of the job; False if it has no process any more."""
        pids = list(processes_in(f"/proc/self/fd/{self._cgroup}", MOST_PROCESSES + 1))
        if len(pids) > MOST_PROCESSES:
            self._refuse(f"of the job's processes, {MOST_PROCESSES} at a time are traced")
        for pid in pids[:MOST_PROCESSES]:
            if self._opener.is_lost:
                self._refuse("what opens the job's files as its owner has ended: new processes are not traced")
                break
            now = time.monotonic()
            due, pause = self._looks.get(pid, (now, LOOK_SECONDS))
            if now >= due:
                self._look_at(pid)
                self._looks[pid] = now + pause, min(2 * pause, MOST_LOOK_SECONDS)
        living = set(pids)
        self._attached = {each for each in self._attached if each[0] in living}
        self._looks = {pid: look for pid, look in self._looks.items() if pid in living}
        return bool(pids)

    def _look_at(self, pid: int) -> None:
        meant: dict[tuple[int, int], tuple[int, str]] = {}
        for start, identity, path in self._opener.mappings(pid):
            if self._spec.is_file(path):
                meant.setdefault(identity, (start, path))
        for identity, (start, path) in meant.items():
            if identity not in self._files:
                self._open(identity, start, path)
            file = self._files[identity]
            if file is not None:
                for number in file.numbers:
                    self._attach(pid, number, file)

    def _open(self, identity: tuple[int, int], start: int, path: str) -> None:
        if len(self._files) >= MOST_FILES:
            self._refuse(f"of the job's files, {MOST_FILES} are traced: {path} is not")
            self._files.setdefault(identity, None)
            return
        self._files[identity] = None
        descriptor = self._opener.open(start)
        if descriptor is None:
            self._refuse(f"{path} can't be opened as the job's owner")
            return
        try:
            found = file_reader.read(descriptor, self._text, self._detach_what_is_off)
        except JobLensError as error:
            self._refuse(f"{path} {error}")
            os.close(descriptor)
            return
        file = self._files[identity] = _File(path, descriptor)
        for text in found.refused:
            self._refuse(f"{path}: {text}")
        self._nearest += found.nearest
        for function in found.functions:
            try:
                points = self._probes.add(function, self._spec)
            except JobLensError as error:
                self._refuse(f"{path}: {error}")
                continue
            if function.is_entry_alone:
                self._calls.entry_alone.add(len(self._traced))
            file.numbers.append(len(self._traced))
            self._traced.append(_Traced(function, path, points, 0))

    def _attach(self, pid: int, number: int, file: _File) -> None:
        traced = self._traced[number]
        if (pid, number) in self._attached or self._probes.is_off(number):
            return
        self._attached.add((pid, number))
        try:
            self._probes.attach(number, file.descriptor, traced.function, traced.points, pid)
        except JobLensError as error:
            self._refuse(f"{traced.function.name} in process {pid}: {error}")
            return
        if not traced.since_ns:
            traced.since_ns = time.monotonic_ns()
        if self._spec.is_of_throws:
            self._opener.ask({"prepare": pid})

    def _refuse(self, text: str) -> None:
        if text not in self._refused and len(self._refused) < 100:
            self._refused[text] = None
            self._notice(text)

    def _why_nothing(self) -> str:
        if self._refused:
            return f"nothing is traced: {next(iter(self._refused))}"
        if self._opener.is_lost:
            return "nothing is traced: the job's files could not be looked at as its owner"
        if not self._files:
            return f"no process of the job has a file like {self._spec.file} in its memory"
        near = f"; is it one of these: {', '.join(self._nearest[:3])}?" if self._nearest else ""
        return f"there is no function like {self._spec.function} in it{near}"

    def _what(self) -> str:
        names = [each.function.name for each in self._traced]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        cost = self._probes.cost_ns / 1000
        return f"{', '.join(names[:3])}{more}: each hit of a probe costs the job about {cost:.0f} us"

    # -- calls ----------------------------------------------------------------------------------------------

    def take(self) -> int:
        """Takes what was hit, and tells the calls that have ended by it; how many hits there were."""
        self._detach_what_is_off()
        if self._spec.is_of_throws:
            return self._take_throws()
        hits = self._probes.take()
        ended: list[list[Any]] = []
        for hit in hits:
            if hit.kind is Kind.OFF:
                self._switch_off(hit.function, hit.time_ns)
            ended += [self._told(call) for call in self._calls.take(hit)]
        if not hits:
            for number in self._detached:  # there was no room to tell it
                self._switch_off(number, int(self._probes.functions[number].off_ns))
        self._tell_each("calls", ended)
        return len(hits)

    def _take_throws(self) -> int:
        """The same of what is thrown."""
        taken = self._probes.take_throws()
        rows = []
        for hit, thrown in taken:
            if hit.kind is Kind.OFF:
                self._switch_off(hit.function, hit.time_ns)
            self._thrown_by[hit.function] += 1
            rows.append(self._told_throw(thrown))
        if not taken:
            for number in self._detached:
                self._switch_off(number, int(self._probes.functions[number].off_ns))
        self._tell_each("throws", rows)
        return len(taken)

    def _told_throw(self, thrown: Throw) -> list[Any]:
        place, text = self._throws.take(thrown)
        where = place.frames[0][0] if place is not None and place.frames else ""
        kind = place.type if place is not None else ""
        number = place.number if place is not None else -1
        return [(thrown.time_ns + self._epoch) / 1e9, thrown.pid, thrown.tid, kind, text, where, number]

    def _tell_each(self, name: str, rows: list[list[Any]]) -> None:
        for at in range(0, len(rows), _CALLS_IN_A_MESSAGE):
            part = rows[at : at + _CALLS_IN_A_MESSAGE]
            if not self._say(CONTENT, {name: part}):
                self._untold += len(part)

    def _detach_what_is_off(self) -> None:
        """Before all else: what was hit until then can wait, and the job can't."""
        for number in range(len(self._traced)):
            if self._probes.is_off(number) and number not in self._detached:
                self._detached.add(number)
                self._probes.detach(number)

    def _switch_off(self, number: int, when_ns: int) -> None:
        traced = self._traced[number]
        if traced.until_ns:
            return
        traced.until_ns = when_ns
        self._calls.forget(number)
        self._notice(f"{traced.function.name} is called too often: it is not traced any more, so that the job goes on")

    def _told(self, call: Call) -> list[Any]:
        entry, spec = call.entry, self._spec
        texts = {at: json.dumps(text.decode("utf-8", "replace"), ensure_ascii=False) for at, text in entry.texts}
        arguments, register = [], 0
        for kind in spec.arguments or ():
            if kind.kind is specs.Kind.FLOATING:
                arguments.append("(floating-point)")
                continue
            arguments.append(shown(kind, entry.values[register], texts, register))
            register += 1
        result = None
        if call.end is End.RETURNED and spec.result is not None:
            result = shown(spec.result, call.result, {}, 0)
        return [
            (entry.time_ns + self._epoch) / 1e9,
            entry.pid,
            entry.tid,
            self._traced[entry.function].function.name,
            None if spec.arguments is None else arguments,
            (call.end or End.RETURNED).value,
            None if call.end in (End.UNWOUND, End.NOT_LOOKED_FOR) else (call.ended_ns - entry.time_ns) / 1e9,
            result,
            call.depth,
        ]

    def _thrown(self, number: int) -> dict[str, Any]:
        """What is known of all throws by the library of one file."""
        return {**self._counted(number), "Throws": self._thrown_by[number], "OtherPlaces": self._throws.others}

    def _counted(self, number: int) -> dict[str, Any]:
        """What is known of the probes of a function."""
        traced, counted = self._traced[number], self._probes.functions[number]
        return {
            "Function": traced.function.name,
            "File": traced.file,
            "LostHits": self._probes.lost,
            "NotOurs": int(counted.not_ours),
            "SwitchedOff": bool(counted.off_ns),
            "CoveredSeconds": max(0, traced.until_ns - (traced.since_ns or traced.until_ns)) / 1e9,
            "NotShown": self._untold,
        }

    def _summary(self, number: int) -> dict[str, Any]:
        sums = self._calls.sums[number]
        return {
            **self._counted(number),
            "Calls": sums.entries,
            "Returned": sums.returned,
            "LeftByJump": sums.left,
            "Unwound": sums.unwound,
            "EndNotSeen": sums.inside,
            "EndUnknown": sums.unknown,
            "BegunBefore": sums.begun_before,
            "TotalSeconds": sums.total_ns / 1e9,
            "LongestSeconds": sums.longest_ns / 1e9,
            "SwitchesStacks": self._calls.switches_stacks,
            "EntriesAlone": number in self._calls.entry_alone,
        }

    # -- what is told ---------------------------------------------------------------------------------------

    def _notice(self, text: str) -> None:
        self._put(NOTICE + text.encode("utf-8", "replace")[: MOST - 1])

    def _say(self, kind: bytes, told: dict[str, Any]) -> bool:
        """False if there is no room for it."""
        message = kind + json.dumps(told, separators=(",", ":")).encode()
        if self._queued > MOST_QUEUED and not {"summary", "places"} & set(told):
            return False
        if len(message) > MOST:
            (values,) = told.values()
            (name,) = told
            if len(values) < 2:
                return False
            middle = len(values) // 2
            return self._say(kind, {name: values[:middle]}) and self._say(kind, {name: values[middle:]})
        self._put(message)
        return True

    def _put(self, message: bytes) -> None:
        self._queue.append(message)
        self._queued += len(message)

    def _flush(self) -> bool:
        """Sends what is taken at once; False if nobody listens any more."""
        try:
            while self._queue:
                self._channel.send(self._queue[0], socket.MSG_DONTWAIT)
                self._queued -= len(self._queue.popleft())
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True

    def _say_all(self) -> None:
        self._put(WHOLE)
        until = time.monotonic() + GRACE_SECONDS / 2
        while self._queue and self._flush() and time.monotonic() < until:
            if self._queue:
                readiness.writable([self._channel], TAKE_SECONDS)

    def _wait(self, seconds: float) -> None:
        """Until a function is switched off, joblensd is gone, or for so long."""
        both: list[readiness.Waitable] = [self._channel, self._probes.fileno()]
        ready = readiness.readable(both, seconds)
        if self._channel in ready:
            with contextlib.suppress(OSError):
                if not self._channel.recv(1, socket.MSG_DONTWAIT):
                    self._channel.close()


def main(channel: socket.socket, request: dict[str, Any], given: Sequence[int]) -> None:
    """Answers a request for a trace, which has its SPEC, its seconds, and the user id of the job's owner.

    It is given the job's cgroup, and the socket of the child that is its owner.
    """
    cgroup, opener = given
    with socket.socket(fileno=os.dup(opener)) as asked:
        try:
            spec = specs.parse(request["spec"])
            probes = Probes(cgroup, int(request["uid"]), of_throws=spec.is_of_throws)
            Trace(channel, request["spec"], probes, cgroup, Opener(asked)).run(
                min(float(request["seconds"]), MOST_SECONDS)
            )
        except (JobLensError, specs.SpecError) as error:
            with contextlib.suppress(OSError):
                channel.send(FAILED + str(error).encode("utf-8", "replace")[: MOST - 1])


def _place(place: Place) -> list[Any]:
    return [place.number, place.pid, place.type, place.text, place.count, place.frames, place.is_whole]


def _close(given: Sequence[int]) -> None:
    for descriptor in given:
        os.close(descriptor)
