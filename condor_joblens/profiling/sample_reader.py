"""The reader of samples: a process without any right, which counts stacks and makes the tables that unwind them.

joblensd starts it again if it ends: `python -m condor_joblens.profiling.sample_reader`, with a socket as descriptor 0
(reader_messages.py). What it reads, programs of jobs, can be made by an enemy. So it can do nothing else: it has two
kinds of sockets, and what it was handed. Files of a job are opened by a child that is the job's owner
(program_files.py).
"""

from __future__ import annotations

import base64
import contextlib
import json
import mmap
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from array import array
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from condor_joblens.common import descriptors, own_process, privilege, seccomp
from condor_joblens.profiles import pprof
from condor_joblens.profiles.coarser_segment import one_of, together
from condor_joblens.profiles.profile import Profile
from condor_joblens.profiles.report import report
from condor_joblens.profiling import names, program_files, python, python_identity, sample_counts
from condor_joblens.profiling import reader_messages as messages
from condor_joblens.profiling._sample_ring import ffi, lib
from condor_joblens.profiling.demangle_process import DemangleProcess
from condor_joblens.profiling.exception_types import CxxException
from condor_joblens.profiling.late_mappings import LateMappings
from condor_joblens.profiling.python import NO_NAME, CodeObject
from condor_joblens.profiling.python_offsets import NONE, Layout
from condor_joblens.profiling.sample_counts import Code, Counts, Process
from condor_joblens.profiling.samples import (
    FIRST_WINDOW_SECONDS,
    WINDOW_SECONDS,
    Finish,
    Frame,
    Killed,
    Kind,
    Window,
)
from condor_joblens.profiling.steady import Steady
from condor_joblens.profiling.unwind_tables import NO_PLACE, UnwindTables
from condor_joblens.profiling.waiting_processes import WaitingProcesses

LOOK_EVERY = 0.5
"""Seconds between two looks into the ring, if nothing wakes the reader."""

ANSWER_SECONDS = 30.0
"""For so long it waits for joblensd."""

MOST_WAITING = 500
"""Processes of a job that are to be looked at: such as have asked once, and such as have asked again."""

MOST_PYTHONS = 100
"""Processes of a job whose functions of Python are known, the latest (program_files.py has as many)."""

MOST_CODE_BYTES = 8 << 20
"""What is known of a job's functions of Python; further ones have no name."""

CODES_AT_ONCE = 40
NAMES_SECONDS = 5.0
"""For so long a window waits for names of functions of Python."""

MOST_QUESTIONS = 8
"""Whether a process has a Python, which it may only be about to load: within half a minute."""

_NOWHERE = 0xFFFF  # PYTHON_NOWHERE
_ROOM = 1 << 20  # for samples that are taken at once
_MEMORY_BYTES = 512 << 20
_GAP = 1.0
"""Seconds: if nobody has looked for longer, it is said."""

_IN_FLIGHT_SECONDS = 0.001
"""A sample that is counted is in the ring by then."""

_TRIES = 20
_MOST_BEFORE = 4

_MOST_EARLY = 64
_NAMED_AT_ONCE = 256
_MOST_NAMES = 50_000
_MOST_NAMED_BYTES = 1 << 16

_CALLS = (
    *seccomp.INTERPRETERS,
    # by descriptors that it was handed
    "fstat", "getsockopt", "newfstatat", "pread64", "recvmsg", "sendmsg", "sendto",
    "gettid", "sched_yield",
)  # fmt: skip


class Closed(Exception):
    """joblensd is gone."""


class Counted(NamedTuple):
    """What the kernel has counted of a slot: struct sampled of joblens_profile.h."""

    run: int = 0
    samples: int = 0
    not_ours: int = 0
    lost: int = 0
    waits: int = 0
    waited_ns: int = 0
    wait_stacks: int = 0

    @classmethod
    def unpacked(cls, memory: bytes | memoryview, at: int = 0) -> Counted:
        """The one that is there at a byte."""
        return cls(*_COUNTED.unpack_from(memory, at))

    def packed(self) -> bytes:
        """As the kernel has it."""
        return _COUNTED.pack(*self)


_COUNTED = struct.Struct("=7Q")


@dataclass
class _Look:
    """A process that is looked at: its mappings, and of which of them the files are still to be opened.

    Or one whose functions of Python are asked for.
    """

    process: Process
    mappings: list[list[Any]] = field(default_factory=list)
    to_open: list[list[Any]] = field(default_factory=list)  # the last one first
    asked: int = 0  # of these, so many are on their way
    has_asked_python: bool = False
    times: int = 0  # that it was asked for its Python before


@dataclass
class _Python:
    """The Python of a process, and its functions by their code objects."""

    process: Process
    version: tuple[int, int]
    layout: Layout
    codes: dict[Code, CodeObject | None] = field(default_factory=dict)
    wanted: set[Code] = field(default_factory=set)  # that are still to be asked for
    used: set[Code] = field(default_factory=set)  # since some were last forgotten


@dataclass
class _Later:
    """A process that is to be asked for its Python once more."""

    process: Process
    when: float  # by time.monotonic()
    times: int


@dataclass(frozen=True)
class _Before:
    """A window before: from and until when it was (Unix time), and its samples with those that are lost."""

    began: float
    until: float
    samples: int


@dataclass
class _Job:
    """A run that is sampled."""

    run: int
    counts: Counts
    counted: Counted  # what the kernel had counted when the window began
    window_seconds: float = FIRST_WINDOW_SECONDS
    opener: socket.socket | None = None
    has_asked: bool = False  # for the opener
    until: float = 0.0  # when the opener must have answered, by time.monotonic()
    look: _Look | None = None
    waiting: WaitingProcesses = field(default_factory=lambda: WaitingProcesses(MOST_WAITING))
    files: dict[tuple[int, int], int] = field(default_factory=dict)  # device and inode of a mapping -> file's number
    pythons: dict[bytes, _Python] = field(default_factory=dict)  # by struct process_key
    interpreters: dict[int, tuple[int, int]] = field(default_factory=dict)  # as Window's, by numbers of files
    code_bytes: int = 0  # of all that is known of code objects
    later: deque[_Later] = field(default_factory=deque)
    late: LateMappings = field(default_factory=LateMappings)  # since the window began
    close_by: float = 0.0  # the window is to be closed, at the latest then, by time.monotonic(); 0: it is not
    is_asked: bool = False  # joblensd has asked for it
    steady: Steady = field(default_factory=Steady)
    is_steady: bool = False  # joblensd has been told so
    unseen: tuple[tuple[float, float], ...] = ()  # before the window, as Window's
    unseen_off_cpu: tuple[tuple[float, float], ...] = ()  # those that no window off the CPU has said yet
    lost: int = 0  # samples that an earlier reader has taken, and not made anything of
    refused: int = 0  # samples in windows before this one that were not kept
    before: deque[_Before] = field(default_factory=lambda: deque(maxlen=_MOST_BEFORE))

    def ended_at(self, ended: float) -> None:
        """It was over before it was taken over from an earlier reader: then nobody could have looked any more."""
        if ended >= self.counts.began:
            return
        self.unseen = tuple((begun, ended) for begun, _ in self.unseen if ended - begun > _GAP)
        self.counts.began = self.unseen[0][0] if self.unseen else ended

    def forget_python(self, process: bytes) -> None:
        """What is known of its functions makes room for those of others."""
        found = self.pythons.pop(process, None)
        if found is not None:
            self.code_bytes -= sum(map(_size_of, found.codes.values()))

    def forget_unused_codes(self) -> None:
        """Functions that are made again and again make room: those that no sample had since this was last called."""
        if self.code_bytes < MOST_CODE_BYTES // 2:
            return
        for found in self.pythons.values():
            for code in found.codes.keys() - found.used:
                self.code_bytes -= _size_of(found.codes.pop(code))
            found.used.clear()

    def wants_names(self) -> bool:
        """Whether names of functions of Python are on their way."""
        return any(found.wanted for found in self.pythons.values())


@dataclass
class _Report:
    """The picture for a job's own folder, which is made of one segment after another."""

    run: int
    content_at: int
    job: str
    node: str
    files: deque[int]  # descriptors of those that are still to be read
    profile: Profile | None = None

    def add(self, segment: bytes) -> None:
        """Raises ValueError."""
        self.profile = together([*([self.profile] if self.profile else []), pprof.decode(segment)])

    def content(self) -> bytes:
        """The picture; nothing if there was no segment."""
        if self.profile is None:
            return b""
        self.profile.job, self.profile.node = self.job, self.node
        return report(self.profile, messages.MOST_REPORT_BYTES)


class Reader:
    """Serves joblensd on a socket. `finish` makes of a window what is kept of it."""

    def __init__(self, channel: socket.socket, finish: Finish, table_bytes: int) -> None:
        self._channel, self._finish = channel, finish
        self._tables = UnwindTables(table_bytes, messages.MOST_FILES, self._put_rows, self._drop_rows, self._closed)
        self._opened: dict[int, bytes] = {}  # struct open_file by the file's number
        self._jobs: dict[int, _Job] = {}
        self._counts: dict[int, Counts] = {}
        self._early: dict[int, Counts] = {}  # of runs that joblensd has not told of yet, or that have ended
        self._processes: OrderedDict[bytes, int] = OrderedDict()  # whose mappings the kernel has -> their run
        self._later: deque[tuple[bytes, list[int]]] = deque()
        self._reports: deque[_Report] = deque()
        self._has_due = False  # windows that are to be closed
        self._poll = select.poll()
        self._poll.register(channel.fileno(), select.POLLIN)
        self._ring: Any = ffi.NULL
        self._ring_fd = -1
        self._buffer = ffi.new("char[]", _ROOM)
        self._names: dict[int, str] = {}
        self.hz = 0

    # -- the loop ---------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Until joblensd closes the socket."""
        with contextlib.suppress(Closed):
            while True:
                self.turn(LOOK_EVERY)

    def turn(self, seconds: float) -> None:
        """Waits for so long at most, and does what there is to do. Raises Closed."""
        seconds = 0.0 if self._reports or self._has_due else seconds
        ready = [] if self._later else [number for number, _ in self._poll.poll(1000 * seconds)]
        if self._channel.fileno() in ready or self._later:
            self._hear(*self._next_packet())
        for job in list(self._jobs.values()):
            if job.opener is not None and job.opener.fileno() in ready:
                self._answered(job)
        self._take_samples()
        for job in self._jobs.values():
            self._tell_crashes(job)
        if self._reports:
            self._go_on_with_report()
        now = time.monotonic()
        for job in list(self._jobs.values()):
            self._want_codes(job)
            if job.look is not None and now >= job.until:
                self._lose_opener(job)
            if not job.close_by and time.time() >= job.counts.began + job.window_seconds:
                job.window_seconds = min(WINDOW_SECONDS, 2 * job.window_seconds)
                job.close_by = now + NAMES_SECONDS
        self._close_one_due(now, is_free=not self._later and not set(ready) - {self._ring_fd})

    def _close_one_due(self, now: float, *, is_free: bool) -> None:
        """Closes one window at most: names take long, and processes that are looked at wait meanwhile.

        If there is something else to do, only one that can wait no longer.
        """
        due = [job for job in self._jobs.values() if job.close_by and (now >= job.close_by or not job.wants_names())]
        first = min(due, key=lambda job: job.close_by, default=None)
        if first is not None and (is_free or now >= first.close_by):
            self._close_window(first)
            due.remove(first)
        self._has_due = bool(due)

    def _next_packet(self) -> tuple[bytes, list[int]]:
        return self._later.popleft() if self._later else self._receive()

    def _receive(self) -> tuple[bytes, list[int]]:
        try:
            packet, given = descriptors.receive(self._channel, messages.MOST_BYTES, messages.MOST_GIVEN)
        except OSError:
            packet, given = b"", []
        if not packet:
            raise Closed
        return packet, given

    def _say(self, what: int, text: bytes = b"") -> None:
        try:
            self._channel.send(bytes([what]) + text)
        except OSError:
            raise Closed from None

    def _ask(self, what: int, text: bytes = b"") -> int:
        """The descriptor that answers; -1: there is none. What comes before that is heard later."""
        self._say(what, text)
        until = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < until:
            packet, given = self._receive()
            if packet[0] == what:
                return given[0] if given else -1
            self._later.append((packet, given))
        raise Closed

    def _hear(self, packet: bytes, given: list[int]) -> None:
        what, text = packet[0], packet[1:]
        if what == messages.RING:
            self._open_ring(given, *messages.RING_SIZES.unpack(text))
        elif what == messages.BEGIN:
            self._begin(*messages.NEW_RUN.unpack(text))
        elif what == messages.END:
            self._end(*messages.END_OF.unpack(text))
        elif what == messages.CLOSE:
            self._take_samples()
            job = self._jobs.get(messages.RUN.unpack(text)[0])
            if job is not None:
                job.close_by, job.is_asked = time.monotonic() + NAMES_SECONDS, True
        elif what == messages.OPENER:
            self._take_opener(given, *messages.NUMBER.unpack(text))
        elif what == messages.MERGE:
            self._merge(given, *messages.MERGE_OF.unpack(text))
        elif what == messages.REPORT:
            run, content_at = messages.REPORT_OF.unpack_from(text)
            name, _, node = text[messages.REPORT_OF.size :].decode("utf-8", "replace").partition("\0")
            self._reports.append(_Report(run, content_at, name, node, deque(given)))
        elif what == messages.REFUSED:
            self._refused(*messages.REFUSED_OF.unpack(text))
        elif what == messages.PING:
            self._say(messages.PONG)

    # -- the ring -----------------------------------------------------------------------------------------------

    def _open_ring(self, given: list[int], size: int, slots: int, hz: int) -> None:
        self.hz = hz
        if self._ring != ffi.NULL:
            self._poll.unregister(self._ring_fd)
            os.close(self._ring_fd)
            lib.unmap_samples(self._ring)
        ring, sampled, addresses = given
        self._ring, self._ring_fd = lib.map_samples(ring, size), ring
        if self._ring == ffi.NULL:
            raise OSError(ffi.errno, os.strerror(ffi.errno))
        self._poll.register(ring, select.POLLIN)
        self._sampled = _view(sampled, _COUNTED.size * slots)
        self._addresses = _view(addresses, 8 * (_NAMED_AT_ONCE + 1)).cast("Q")

    def _take_samples(self) -> None:
        """Counts what is in the ring, and looks at processes that it asks for."""
        while self._ring != ffi.NULL:
            filled = lib.take_samples(self._ring, self._buffer, _ROOM)
            if not filled:
                return
            for run, process in self._count(bytes(ffi.buffer(self._buffer, filled))):
                job = self._jobs.get(run)
                if job is None:
                    continue
                job.waiting.add(process)
                self._look(job)

    def _count(self, data: bytes) -> list[tuple[int, Process]]:
        if len(self._early) > _MOST_EARLY:
            self._early.clear()
        return sample_counts.take(data, self._counts, self._early)

    # -- runs ---------------------------------------------------------------------------------------------------

    def _begin(self, run: int, slot: int, seen_until: float, counted: bytes) -> None:
        """Another reader may have counted it before: `counted`, until `seen_until`. The rest of that is lost."""
        if run in self._jobs:
            self._end(run, slot, time.time(), b"")
        now_counted = self._settled(slot) if seen_until else None
        counts = self._counts[run] = self._early.pop(run, Counts(time.time(), slot))
        counts.slot = slot
        job = self._jobs[run] = _Job(run, counts, Counted.unpacked(counted))
        if seen_until and counts.began - seen_until > _GAP:
            job.unseen = ((seen_until, counts.began),)
        if now_counted is not None and now_counted.run == run:
            known = sum(counts.samples.values()) + counts.left_out
            job.lost = max(0, _came(now_counted) - _came(job.counted) - known)
        self._want_opener(job)  # the first sample will ask for it, and it takes a while

    def _counted_now(self, slot: int) -> Counted:
        return Counted.unpacked(self._sampled, _COUNTED.size * slot)

    def _settled(self, slot: int) -> Counted:
        """What the kernel has counted of a slot when all of that has been taken from the ring.

        If samples come without a pause, as on very many CPUs, one or two of these may still be in the ring.
        """
        for _ in range(_TRIES):
            counted = self._counted_now(slot)
            time.sleep(_IN_FLIGHT_SECONDS)
            self._take_samples()
            if self._counted_now(slot) == counted:
                break
        return self._counted_now(slot)

    def _end(self, run: int, _slot: int, ended: float, counted: bytes) -> None:
        """`ended`: when (Unix time); `counted`: of it, in all. If that is of another run, the slot was given away."""
        job = self._jobs.get(run)
        if job is not None:
            self._take_samples()
            self._tell_crashes(job)
            job.ended_at(ended)
            self._close_window(job, counted, ended)
            del self._jobs[run], self._counts[run]
            self._close_opener(job)
            for key in [key for key, owner in self._processes.items() if owner == run]:
                self._forget_process(key)
            self._tables.forget_run(run)
        self._say(messages.ENDED, messages.NUMBER.pack(run))

    def _close_window(self, job: _Job, counted: bytes = b"", ended: float = 0.0) -> None:
        """Another one begins; not if the run has `ended`: then this is its last one, and the ring has nothing of it."""
        counts, is_last = job.counts, bool(ended)
        until = max(counts.began, min(time.time(), ended)) if is_last else time.time()
        window, waits = self._window(job, counts, until), self._window(job, counts.off_cpu(), until)
        # the slot may be another run's by now
        after = Counted.unpacked(counted) if counted else self._counted_now(counts.slot)
        _count_samples(job, window, after, is_last)
        _count_waits(job, waits, after)
        if after.run == job.run:  # what is counted and still in the ring is the next window's
            told = _counted_before(job).samples + _told(window) + window.lost + window.not_ours
            after = after._replace(samples=told)
        lost, window.lost = job.lost + job.refused, window.lost + job.refused
        self._begin_window(job, until, after)
        self._tell_steady(job, window)
        self._keep_both(job, window, waits, is_last)
        job.before.append(_Before(window.began, until, _told(window) + window.lost))
        self._say(messages.SEEN, messages.SEEN_OF.pack(job.run, until, lost, after.packed()))
        job.close_by, job.is_asked, job.unseen, job.lost, job.refused = 0.0, False, (), 0, 0
        job.forget_unused_codes()

    def _begin_window(self, job: _Job, now: float, counted: Counted) -> None:
        """What waits to be told of crashes goes over into it."""
        before = job.counts
        job.counted, job.late = counted, LateMappings()
        job.counts = self._counts[job.run] = Counts(now, before.slot, crashes=before.crashes)
        job.counts.memory, job.counts.exceptions = before.memory, before.exceptions

    def _keep_both(self, job: _Job, window: Window, waits: Window, is_last: bool) -> None:
        """The window on the CPU and that off it, with the times before them at which nobody looked."""
        window.unseen = job.unseen
        job.unseen_off_cpu += job.unseen
        if waits.waits or waits.stacks or (is_last and job.unseen_off_cpu):
            waits.unseen, job.unseen_off_cpu = job.unseen_off_cpu, ()
            self._keep(waits)
        if window.samples or window.lost or window.unseen or job.is_asked:
            self._keep(window)

    def _refused(self, run: int, began: float, is_off_cpu: bool) -> None:
        """The window before could not be kept, as on a disk that is full: the next one says so."""
        job = self._jobs.get(run)
        if job is None:
            return
        for before in [each for each in job.before if each.began == began]:
            hole = (began, before.until)
            if is_off_cpu:
                job.unseen_off_cpu += (hole,)
            else:
                job.unseen += (hole,)
                job.refused += before.samples

    def _tell_steady(self, job: _Job, window: Window) -> None:
        since = job.steady.add(window)
        if since or job.is_steady:
            self._say(messages.STEADY, messages.STEADY_OF.pack(job.run, since, window.until))
        job.is_steady = since > 0

    def _window(self, job: _Job, counts: Counts, until: float) -> Window:
        window, numbers = sample_counts.window_of(
            job.run,
            counts,
            until,
            self.hz,
            self._tables.file,
            self._kernel_names,
            lambda process, code, place: _frame_of_python(job, process, code, place),
            job.interpreters,
            job.late,
            self._processes,
        )
        for number in numbers:
            self._tables.used(job.run, number)
        return window

    def _tell_crashes(self, job: _Job) -> None:
        """Somebody may wait for the job's end: no name is asked for that is not known by now."""
        crashes, memory, now = job.counts.crashes, job.counts.memory, time.time()
        exceptions = job.counts.exceptions
        if not crashes:
            return
        job.counts.crashes, job.counts.memory, job.counts.exceptions = [], {}, {}
        for sample in crashes:
            _learn_codes(job, sample, memory)
            head = sample_counts.HEAD.unpack_from(sample)
            window = self._window(job, Counts(now, job.counts.slot, {sample: 1}), now)
            exception = CxxException.unpacked(exceptions.get(sample_counts.key_of(sample), b""))
            killed = Killed(head[11], now, not head[6] & sample_counts.NOT_OURS, exception)
            words, data = self._finish.crash(window, self._tables, killed)
            told = words.encode("ascii", "replace")
            self._say(
                messages.CRASH, messages.CRASH_HEAD.pack(job.run, head[1], head[11], now, len(told)) + told + data
            )

    def _keep(self, window: Window) -> None:
        data = self._finish(window, self._tables)[: messages.MOST_WINDOW_BYTES]
        for at in range(0, len(data), messages.PART_BYTES):
            part = data[at : at + messages.PART_BYTES]
            is_last = at + messages.PART_BYTES >= len(data)
            head = messages.WINDOW_HEAD.pack(window.run, window.began, window.until, window.is_off_cpu, is_last)
            self._say(messages.WINDOW, head + part)

    def _merge(self, given: list[int], run: int, content_at: int) -> None:
        """Two segments of a run, which joblensd has kept, become one; nothing if that is impossible."""
        data = b""
        try:
            with contextlib.suppress(OSError, ValueError, OverflowError, MemoryError):
                parts = [os.pread(each, messages.MOST_WINDOW_BYTES, content_at) for each in given]
                data = one_of(parts, names.MOST_BYTES)
        finally:
            for descriptor in given:
                os.close(descriptor)
        self._answer(messages.MERGED, run, data)

    def _answer(self, what: int, run: int, data: bytes) -> None:
        for at in range(0, max(1, len(data)), messages.PART_BYTES):
            is_last = at + messages.PART_BYTES >= len(data)
            part = data[at : at + messages.PART_BYTES]
            self._say(what, messages.MERGED_HEAD.pack(run, is_last) + part)

    def _go_on_with_report(self) -> None:
        """With one of its segments: samples wait meanwhile. One that can't be read costs the report."""
        report = self._reports[0]
        data = b""
        try:
            if report.files:
                descriptor = report.files.popleft()
                try:
                    report.add(os.pread(descriptor, messages.MOST_WINDOW_BYTES, report.content_at))
                finally:
                    os.close(descriptor)
                return
            data = report.content()
        except (OSError, ValueError, OverflowError, MemoryError):
            for descriptor in report.files:
                os.close(descriptor)
        self._reports.popleft()
        self._answer(messages.REPORTED, report.run, data)

    def _kernel_names(self, addresses: set[int]) -> dict[int, str]:
        if len(self._names) > _MOST_NAMES:
            self._names.clear()
        missing = sorted(addresses - self._names.keys())
        for at in range(0, len(missing), _NAMED_AT_ONCE):
            some = missing[at : at + _NAMED_AT_ONCE]
            self._addresses[1 : 1 + len(some)] = array("Q", some)
            self._addresses[0] = len(some)
            descriptor = self._ask(messages.NAMES)
            if descriptor < 0:
                break
            lines = _read_all(descriptor, _MOST_NAMED_BYTES).decode("ascii", "replace").splitlines()
            self._names.update(zip(some, (line.partition("+")[0] for line in lines)))
        return self._names

    # -- processes ----------------------------------------------------------------------------------------------

    def _look(self, job: _Job) -> None:
        """Begins to look at the next process of a run, if it is its turn."""
        if job.opener is None:
            if job.waiting:
                self._want_opener(job)
            return
        if job.look is None and job.waiting:
            process = job.waiting.take()
            job.look = _Look(process)
            self._ask_opener(job, {"maps": process.pid})
        elif job.look is None:
            self._ask_codes(job)

    def _want_opener(self, job: _Job) -> None:
        if not job.has_asked:
            job.has_asked = True
            self._say(messages.OPENER, messages.NUMBER.pack(job.run))

    def _take_opener(self, given: list[int], run: int) -> None:
        job = self._jobs.get(run)
        if job is None:
            for descriptor in given:
                os.close(descriptor)
        elif given:
            job.opener = socket.socket(fileno=given[0])
            self._poll.register(job.opener.fileno(), select.POLLIN)
            self._look(job)
        else:  # it may be there when a process asks, if none has so far
            job.has_asked = bool(job.waiting)

    def _ask_opener(self, job: _Job, question: dict[str, Any]) -> None:
        """Asks it; afterwards there may be none any more, and nothing that is looked at."""
        assert job.opener is not None
        job.until = time.monotonic() + program_files.ANSWER_SECONDS + 1
        try:
            job.opener.send(json.dumps(question).encode())
        except OSError:
            self._lose_opener(job)

    def _answered(self, job: _Job) -> None:
        look = job.look
        try:
            assert job.opener is not None
            packet, given = descriptors.receive(job.opener, program_files.MOST_ANSWER, program_files.MOST_FILES)
            answer = json.loads(packet)
            if look is None:
                raise ValueError("nothing was asked")
            if "mappings" in answer:
                look.mappings += _mappings(answer["mappings"])[: messages.MOST_MAPPINGS - len(look.mappings)]
                if answer["more"]:
                    return
                if not look.mappings:  # it is over, and needs no place among those that are known
                    self._next_look(job)
                    return
                new = {(each[3], each[4]): each for each in look.mappings if each[4]}
                self._know_again(job, new)
                look.to_open = [each for key, each in new.items() if self._is_to_be_opened(job.files.get(key))]
                self._go_on_opening(job, look)
                return
            elif "python" in answer:
                self._put_python(job, look, answer)
                self._next_look(job)
                return
            elif "code" in answer:
                self._keep_code(job, look, answer)
                if not answer["more"]:
                    self._next_look(job)
                return
            else:
                _, _, _, device, inode, path = look.to_open.pop()
                job.files[device, inode] = self._tables.add(job.run, given[0], path, *given[1:]) if given else 0
                look.asked -= 1
                self._tell_of_file(job, device, inode)
                self._go_on_opening(job, look)
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            self._lose_opener(job)

    def _know_again(self, job: _Job, mapped: Iterable[tuple[int, int]]) -> None:
        """Files of root that another job has are not opened once more; by device and inode."""
        for device, inode in mapped:
            if not job.files.get((device, inode)):
                number = self._tables.known(job.run, device, inode)
                if number:
                    job.files[device, inode] = number

    def _go_on_opening(self, job: _Job, look: _Look) -> None:
        """Asks for the next files if none is on its way, and behind the last ones for the process's Python."""
        job.until = time.monotonic() + program_files.ANSWER_SECONDS + 1
        if look.to_open and not look.asked:
            addresses = [each[0] for each in look.to_open[: -program_files.OPEN_AT_ONCE - 1 : -1]]
            look.asked = len(addresses)
            self._ask_opener(job, {"open": addresses})
        if look.asked == len(look.to_open) and not look.has_asked_python:
            look.has_asked_python = True
            if job.opener is not None:
                self._ask_opener(job, {"python": look.process.pid})
        if not look.to_open and job.look is look:
            self._put_mappings(job, look)

    def _tell_of_file(self, job: _Job, device: int, inode: int) -> None:
        """Processes that end before they are looked at have names of what they ran, if it is in this file."""
        number = job.files[device, inode]
        file = self._tables.file(number)
        if file is None or number in self._opened:
            return
        kernels = os.major(device) << 20 | os.minor(device)
        told = messages.OPEN_FILE.pack(0 if file.is_roots else job.run, inode, kernels, 0, number)
        self._opened[number] = told[: messages.FILE_KEY_BYTES]
        self._say(messages.OPENED, told)

    def _closed(self, number: int) -> None:
        key = self._opened.pop(number, b"")
        if key:
            self._say(messages.OPENED, key + messages.FILE.pack(0))

    def _is_to_be_opened(self, number: int | None) -> bool:
        """Whether a file has not been asked for, or had to give way and may have a place; 0: it can't be had."""
        if number == NO_PLACE:
            return self._tables.has_place
        return number is None or (number != 0 and self._tables.file(number) is None)

    def _next_look(self, job: _Job) -> None:
        job.look = None
        self._look(job)

    def _put_mappings(self, job: _Job, look: _Look) -> None:
        key = look.process.key
        while len(self._processes) >= messages.MOST_PROCESSES and key not in self._processes:
            self._forget_process(next(iter(self._processes)))
        self._processes[key] = job.run
        self._processes.move_to_end(key)
        found = [
            (start, end, offset, job.files.get((device, inode), 0))
            for start, end, offset, device, inode, _ in look.mappings
        ]
        job.late.learn(key, found)
        self._say(messages.MAPPINGS, key + b"".join(messages.MAPPING.pack(*each, 0) for each in found))

    # -- Python ---------------------------------------------------------------------------------------------------

    def _put_python(self, job: _Job, look: _Look, answer: dict[str, Any]) -> None:
        """Raises ValueError, TypeError and KeyError."""
        if answer["python"] is None:
            if answer["later"] and look.times < MOST_QUESTIONS and len(job.later) < MOST_WAITING:
                job.later.append(_Later(look.process, time.monotonic() + 0.25 * 2**look.times, look.times + 1))
            return
        found = _Python(look.process, _version(answer["python"]), _layout(answer["layout"]))
        before = job.pythons.get(look.process.key)
        if before is not None and (before.version, before.layout) == (found.version, found.layout):
            found = before  # it was looked at again, as after a dlopen(3): its functions are the same
        else:
            job.forget_python(look.process.key)
            if len(job.pythons) >= MOST_PYTHONS:
                job.forget_python(next(iter(job.pythons)))
        job.pythons[look.process.key] = found
        device, inode, first, end = _numbers(answer["runs"], 4)
        number = job.files.get((device, inode), 0)
        if number and end:
            job.interpreters[number] = first, end
        (head,) = _numbers([answer["head"]], 1)
        described = messages.PYTHON_PROCESS.pack(head, *_places(found.version, found.layout))
        self._say(messages.PYTHON, look.process.key + described)

    def _want_codes(self, job: _Job) -> None:
        """New code objects in samples are asked for, as long as there is room for what is known of them."""
        for key, codes in job.counts.codes.items():
            found = job.pythons.get(key)
            if found is not None and job.code_bytes < MOST_CODE_BYTES:
                found.wanted |= codes - found.codes.keys()
        job.counts.codes.clear()
        if job.look is None:
            self._look(job)

    def _ask_codes(self, job: _Job) -> None:
        for later in job.later:
            if later.when <= time.monotonic():
                job.later.remove(later)
                job.look = _Look(later.process, times=later.times)
                self._ask_opener(job, {"python": later.process.pid})
                return
        for found in job.pythons.values():
            if found.wanted:
                some = sorted(found.wanted)[:CODES_AT_ONCE]
                job.look = _Look(found.process)
                self._ask_opener(job, {"of": found.process.pid, "codes": some})
                return

    def _keep_code(self, job: _Job, look: _Look, answer: dict[str, Any]) -> None:
        """Raises ValueError, TypeError and KeyError."""
        found = job.pythons.get(look.process.key)
        if found is None:
            return
        address, identity = answer["code"]
        if (address, identity) not in found.wanted:
            raise ValueError("nothing was asked")
        found.wanted.discard((address, identity))
        found.codes[address, identity] = code = _code_object(answer["told"]) if answer["told"] else None
        job.code_bytes += _size_of(code)

    def _forget_process(self, key: bytes) -> None:
        job = self._jobs.get(self._processes[key])
        if job is not None:
            job.forget_python(key)
        del self._processes[key]
        self._say(messages.FORGET, key)

    def _lose_opener(self, job: _Job) -> None:
        """It does not answer, or not as it should. What it was to open is left out, and another one goes on."""
        look = job.look
        if look is not None and look.to_open:
            _, _, _, device, inode, _ = look.to_open.pop()
            job.files[device, inode] = 0
        for found in job.pythons.values():
            found.wanted.clear()
        self._close_opener(job)
        job.look, job.has_asked = None, False

    def _close_opener(self, job: _Job) -> None:
        if job.opener is not None:
            self._poll.unregister(job.opener.fileno())
            job.opener.close()
            job.opener = None

    # -- tables in the kernel -------------------------------------------------------------------------------------

    def _put_rows(self, number: int, rows: memoryview) -> bool:
        table = self._ask(messages.ROWS, messages.ROWS_OF.pack(number, len(rows)))
        if table < 0:
            return False
        view = _view(table, 8 * (len(rows) + 1)).cast("Q")
        view[0] = len(rows)
        view[1 : len(rows) + 1] = rows
        self._say(messages.PUT, messages.FILE.pack(number))
        return True

    def _drop_rows(self, number: int) -> None:
        self._say(messages.DROP, messages.FILE.pack(number))


def _told(window: Window) -> int:
    """The samples, or nanoseconds, of which something is in it."""
    return sum(window.stacks.values()) + window.left_out


def _counted_before(job: _Job) -> Counted:
    """What the kernel had counted of the run when its window began; nothing, if that was of another run."""
    return job.counted if job.counted.run == job.run else Counted()


def _count_samples(job: _Job, window: Window, after: Counted, is_last: bool) -> None:
    """Its numbers, of what the kernel has counted. What is not there of the last window will not come any more."""
    if after.run == job.run:
        before = _counted_before(job)
        window.samples = max(0, after.samples - before.samples)
        window.not_ours = max(0, after.not_ours - before.not_ours)
        window.lost = max(0, after.lost - before.lost)
    window.samples = max(window.samples - window.lost - job.lost, _told(window))
    if is_last:
        missing = max(0, window.samples - window.not_ours - _told(window))
        window.samples -= missing
        job.lost += missing
    window.lost += job.lost


def _count_waits(job: _Job, waits: Window, after: Counted) -> None:
    """The same, of what has waited: `lost` is what no stack stands for."""
    waits.is_off_cpu = True
    if after.run == job.run:
        before = _counted_before(job)
        waits.waits = max(0, after.waits - before.waits)
        waits.samples = max(0, after.waited_ns - before.waited_ns)
        waits.taken = max(0, after.wait_stacks - before.wait_stacks)
    waits.lost, waits.samples = max(0, waits.samples - _told(waits)), _told(waits)


def _came(counted: Counted) -> int:
    """How many samples the ring has had."""
    return counted.samples - counted.lost - counted.not_ours


def _view(descriptor: int, size: int) -> memoryview:
    """The memory of a map, which stays as long as this has it; the descriptor is closed."""
    try:
        memory = mmap.mmap(descriptor, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
    finally:
        os.close(descriptor)
    return memoryview(memory)[:size]


def _mappings(told: Any) -> list[list[Any]]:
    """Mappings as an opener tells them, which can tell anything. Raises ValueError and TypeError."""
    for start, end, offset, device, inode, path in told:
        for number in (start, end, offset, device, inode):
            if not isinstance(number, int) or not 0 <= number < 1 << 64:
                raise ValueError("no number of 64 bits")
        if not isinstance(path, str):
            raise TypeError("no path")
    return list(told)


def _numbers(told: Any, count: int) -> list[int]:
    """So many numbers of 64 bits, as an opener tells them. Raises ValueError and TypeError."""
    if len(told) != count or not all(isinstance(number, int) and 0 <= number < 1 << 64 for number in told):
        raise ValueError("no numbers of 64 bits")
    return list(told)


def _version(told: Any) -> tuple[int, int]:
    major, minor = _numbers(told, 2)
    return major, minor


def _layout(told: Any) -> Layout:
    """Raises ValueError and TypeError for what no Python can be."""
    if not all(isinstance(place, int) and NONE <= place < 1 << 24 for place in told):
        raise ValueError("no offsets")
    return Layout(*told)


def _places(version: tuple[int, int], layout: Layout) -> list[int]:
    """As struct python_process has them, behind the head."""
    frame = (
        layout.frame_previous, layout.frame_code, layout.frame_instruction, layout.frame_owner, layout.frame_is_entry,
    )  # fmt: skip
    size, code = max(frame) + 8, python_identity.part_of(version, layout)
    places = (
        layout.threads, layout.interpreter_next, layout.thread_next, layout.thread_id, layout.thread_frame,
        layout.cframe_frame, size, *frame, code.first, code.size, _from(code.first, code.number),
        *(_from(code.first, place) for place in (layout.code_filename, layout.code_name, layout.code_line_table)),
        layout.text_length, layout.text_data, layout.text_kind_bit, layout.bytes_size, layout.bytes_data,
    )  # fmt: skip
    return [_NOWHERE if place == NONE else place for place in places]


def _from(first: int, place: int) -> int:
    """A place as seen from the first one."""
    return NONE if place == NONE else place - first


def _code_object(told: Any) -> CodeObject:
    name, file, table, first_line, size = told
    if not isinstance(name, str) or not isinstance(file, str) or not isinstance(first_line, int):
        raise TypeError("no code object")
    return CodeObject(name, file, base64.b64decode(table), first_line, *_numbers([size], 1))


def _learn_codes(job: _Job, crash: bytes, memory: dict[bytes, dict[int, bytes]]) -> None:
    """Functions of Python in a crash that nobody can be asked for any more, by what the kernel has read of them."""
    key = sample_counts.key_of(crash)
    found = job.pythons.get(key)
    if found is None or key not in memory:
        return
    for code in sample_counts.codes_of(crash):
        if (found.codes.get(code) or NO_NAME) == NO_NAME and job.code_bytes < MOST_CODE_BYTES:
            job.code_bytes -= _size_of(found.codes[code]) if code in found.codes else 0
            found.codes[code] = learnt = python.code_in(memory[key], found.version, found.layout, code[0])
            job.code_bytes += _size_of(learnt)


def _size_of(code: CodeObject | None) -> int:
    return 200 + (0 if code is None else len(code.name) + len(code.file) + len(code.line_table))


def _frame_of_python(job: _Job, process: bytes, code: Code, place: int) -> Frame | None:
    """A function of Python in a sample; without a name if it or its process was gone before it could be asked for."""
    found = job.pythons.get(process)
    known = found.codes.get(code) if found is not None else None
    if found is None or known is None:
        return None if found is not None and code in found.codes else Frame(Kind.PYTHON)
    found.used.add(code)
    if known.is_own:
        return None
    line = python.line_of_sample(found.version, found.layout, known, place)
    return Frame(Kind.PYTHON, function=known.name, source=known.file, line=line)


def _read_all(descriptor: int, most: int) -> bytes:
    data = b""
    try:
        while len(data) < most:
            with contextlib.suppress(InterruptedError, BlockingIOError):
                piece = os.read(descriptor, most)
                if not piece:
                    break
                data += piece
    finally:
        os.close(descriptor)
    return data


def main() -> int:
    """Serves until joblensd closes the socket; exit code 0 then."""
    own_process.ignore_signals()
    signal.set_wakeup_fd(-1)
    privilege.not_dumpable()
    privilege.end_with_parent(signal.SIGKILL)
    channel = socket.socket(fileno=0)
    table_bytes = int(channel.recv(64))
    for limit, value in (
        (resource.RLIMIT_DATA, _MEMORY_BYTES),
        (resource.RLIMIT_NOFILE, 8192),
        (resource.RLIMIT_FSIZE, 0),
    ):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, (value, value))
    reader = Reader(channel, finisher(), table_bytes)
    confine()
    reader.serve()
    return 0


def confine() -> None:
    """This process opens, starts and signals nothing any more. For good."""
    privilege.no_new_privileges()
    seccomp.allow_only(_CALLS)


def finisher() -> Finish:
    """What makes names. Afterwards the process needs no file for that, nor for a report."""
    report(Profile(0.0, 1.0), messages.MOST_REPORT_BYTES)
    return names.Finisher(DemangleProcess())


if __name__ == "__main__":
    sys.exit(main())
