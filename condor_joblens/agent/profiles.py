"""Level profile in joblensd: which runs are sampled, and the process that reads the samples.

joblensd itself takes no sample apart. It makes tables in the kernel for the reader, which has no right, and starts
children for it that are jobs' owners. What the reader makes of a minute is bytes, which are kept.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

from condor_joblens.agent.output import unseen_parts
from condor_joblens.common import descriptors
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.own_process import HelperLost
from condor_joblens.common.process_starter import Process, ProcessStarter
from condor_joblens.profiling import program_files
from condor_joblens.profiling import reader_messages as messages
from condor_joblens.tracer.sensors import Profile

MODULE = "condor_joblens.profiling.sample_reader"
PING_EVERY = 20.0
PATIENCE = 90.0
"""Seconds after which a reader that says nothing is started anew; making names of a minute takes seconds."""

RESTART_AFTER = 5.0
AT_A_TIME = 0.002
"""Seconds for which packets of the reader are handled before all else has its turn again."""


Keep = Callable[[int, float, float, bytes, bool], bool]
"""What is done with a window: its run's number, from and until when (Unix time), and what is to be kept.

The last is whether it is of what has waited. It returns whether it is kept."""


Made = Callable[[bytes], object]
"""What is done with what was made of files that were kept of a run; it is empty if that can't be had."""

Steady = Callable[[int, float, float], object]
"""What is done if a run computes in the same places: its number, since and until when (Unix time).

"Since" is 0 if it computes in others."""

Crashed = Callable[[int, int, int, float, str, bytes], object]
"""What is done with a crash: its run's number, the process, the signal, when, where, and what is to be kept.

The process is a tgid in the kernel's own pid namespace, the time Unix time, and "where" words that can be anything."""


Seen = Callable[[int, float, int], object]
"""What is done when a window has closed: its run's number, until when it was seen (Unix time), and a number of samples.

So many have been lost with an earlier reader."""

Lost = Callable[[list[int]], object]
"""What is done if a reader has ended: the numbers of the runs whose profiles may lack samples."""

_NOTHING = bytes(messages.SAMPLED_BYTES)
_MOST_ENDED = 2000


@dataclass
class _Run:
    """A run that is sampled: until when its windows are kept (Unix time), and what the kernel had counted by then."""

    slot: int
    until: float = 0.0  # 0: it has not been sampled before
    counted: bytes = _NOTHING  # struct sampled
    ended: float = 0.0  # when it ended (Unix time), if it has
    at_end: bytes = _NOTHING  # what the kernel had counted then


class Profiles:
    """The runs that are sampled, and their reader."""

    def __init__(
        self,
        sensor: Profile,
        table_bytes: int,
        readers: ProcessStarter | None,
        start_opener: Callable[[int, socket.socket], None],
        keep: Keep,
        crashed: Crashed,
        selector: selectors.BaseSelector,
        log: Callable[[str], None],
    ) -> None:
        """`start_opener` starts, with a socket, a child that is the owner of a run's job; it raises JobLensError."""
        self._sensor, self._table_bytes, self._readers = sensor, table_bytes, readers
        self._start_opener, self._keep, self._selector, self._log = start_opener, keep, selector, log
        self._crashed = crashed
        self.on_steady: Steady = lambda run, since, until: None
        self.on_seen: Seen = lambda run, until, lost: None
        self.on_lost: Lost = lambda runs: None
        self._runs: dict[int, _Run] = {}  # by their numbers
        self._ended: dict[int, _Run] = {}  # whose last windows have not come: another reader makes them, if need be
        self._channel: socket.socket | None = None
        self._process: Process | None = None
        self._heard, self._pinged, self._not_before = 0.0, 0.0, 0.0
        self._tables: dict[int, tuple[int, int]] = {}  # file -> descriptor until it is put, bytes
        self._bytes = 0
        self._parts: dict[int, list[bytes]] = {}
        self._asked: dict[tuple[int, int], tuple[Made, list[bytes]]] = {}  # kind of answer, run number
        self._told_of: object = None  # the loaded sensor whose ring the reader has
        self.restarts = 0
        self._rests = False  # what the reader says is not heard until the kernel has followed
        selector.register(sensor.changes, selectors.EVENT_READ, self._changes_have_room)
        if readers is not None:
            selector.register(readers, selectors.EVENT_READ, self._reports)

    def begin(self, run: int, slot: int, seen_until: float = 0.0) -> None:
        """The kernel samples the slot for this run number from now on.

        `seen_until`: if it was sampled before, until when (Unix time).
        """
        self._runs[run] = _Run(slot, seen_until)
        if self._channel is None:
            self._start()
        else:
            self._tell_of_ring()
            self._tell_of(run, self._runs[run])
        if not seen_until:
            self._runs[run].until = time.time()

    def end(self, run: int) -> None:
        """The run is not sampled any more; its last window comes in a moment."""
        known = self._runs.pop(run, None)
        if known is None:
            return
        known.ended, known.at_end = time.time(), self._sensor.counted(known.slot)
        while len(self._ended) >= _MOST_ENDED:
            self._declare(next(iter(self._ended)))
        self._ended[run] = known
        self._tell_of_end(run, known)

    def close(self) -> None:
        """Ends the reader: nobody wants another window."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(self._sensor.changes)
        if self._readers is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self._readers)
        self._runs.clear()
        if self._channel is not None:
            self._lose()
        self._readers = None

    def close_window(self, run: int) -> None:
        """What was sampled of the run until now comes in a moment, and another window begins."""
        known = self._runs.get(run)
        if known is not None:
            self._say(messages.CLOSE, messages.RUN.pack(run, known.slot))

    def merge(self, run: int, files: list[int], content_at: int, done: Made) -> None:
        """Of two files (descriptors) that were kept of a run one is made, and handed to `done` in a moment.

        Their content begins at the byte `content_at`. One question of a run at a time.
        """
        self._ask((messages.MERGE, messages.MERGED), run, messages.MERGE_OF.pack(run, content_at), files, done)

    def report(self, run: int, files: list[int], content_at: int, whose: tuple[str, str], done: Made) -> None:
        """Of all files that were kept of a run a picture is made, as `merge` does; `whose`: the job, and the node."""
        text = messages.REPORT_OF.pack(run, content_at) + "\0".join(whose).encode("utf-8", "replace")
        self._ask((messages.REPORT, messages.REPORTED), run, text, files, done)

    def _ask(self, what: tuple[int, int], run: int, text: bytes, files: list[int], done: Made) -> None:
        """The question and the kind of its answer."""
        if self._channel is None:
            done(b"")
            return
        self._asked[what[1], run] = done, []
        self._send(what[0], text, files)

    def tick(self, now: float) -> None:
        """Once a round: starts a reader that is missing, and ends one that hangs; `now` is time.monotonic()."""
        if self._channel is None:
            if self._readers is None or self._sensor.loaded is None:  # nothing is sampled any more
                for run in list(self._ended):
                    self._declare(run)
            elif (self._runs or self._ended) and now >= self._not_before:
                self._start()
        elif now - self._heard > PATIENCE and not self._rests:
            self._log("the reader of samples hangs, and is started anew: profiles lack some minutes")
            self._lose()
        elif now - self._pinged > PING_EVERY:
            self._pinged = now
            self._say(messages.PING)

    @property
    def pid(self) -> int:
        """Of the reader; 0: there is none."""
        return 0 if self._process is None else self._process.pid

    # -- the reader -----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._readers is None or self._sensor.loaded is None:
            return
        self._heard = self._pinged = time.monotonic()
        try:
            self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._channel.setblocking(False)
            with theirs:
                self._process = self._readers.start(theirs, for_whom=MODULE)
        except OSError as error:
            self._log(f"the reader of samples can't be started ({error.strerror}): there are no profiles")
            self._lose()
            return
        self._selector.register(self._channel, selectors.EVENT_READ, self._receive)
        self._told_of = None
        with contextlib.suppress(OSError):
            self._channel.send(b"%d" % self._table_bytes)
        self._tell_of_ring()
        for run, known in [*self._ended.items(), *self._runs.items()]:
            self._tell_of(run, known)
            if known.ended:
                self._tell_of_end(run, known)

    def _tell_of(self, run: int, known: _Run) -> None:
        self._say(messages.BEGIN, messages.NEW_RUN.pack(run, known.slot, known.until, known.counted))

    def _tell_of_end(self, run: int, known: _Run) -> None:
        self._say(messages.END, messages.END_OF.pack(run, known.slot, known.ended, known.at_end))

    def _declare(self, run: int) -> None:
        """No reader makes the last window of a run that has ended: it says that nobody has seen what was in it."""
        known = self._ended.pop(run)
        begun = min(known.until or known.ended, known.ended)
        for is_off_cpu, part in unseen_parts.of(begun, known.ended, known.counted, known.at_end):
            self._keep(run, begun, known.ended, part, is_off_cpu)

    def _tell_of_ring(self) -> None:
        """The maps are new if the sensor was loaded anew; what was in the old ones is gone."""
        given = self._sensor.reader_maps()
        if self._sensor.loaded is self._told_of:  # descriptors of new maps can have the numbers of the old ones
            return
        self._told_of = self._sensor.loaded
        sizes = messages.RING_SIZES.pack(self._sensor.ring_bytes, self._sensor.slots, self._sensor.hz)
        self._send(messages.RING, sizes, list(given))

    def _say(self, what: int, text: bytes = b"") -> None:
        self._send(what, text, [])

    def _send(self, what: int, text: bytes, given: list[int]) -> None:
        if self._channel is None:
            return
        try:
            descriptors.send(self._channel, bytes([what]) + text, given)
        except OSError as error:  # it has ended, or takes nothing
            why = f"takes nothing ({error.strerror})"
            self._log(f"the reader of samples {why}, and is started anew: profiles lack some minutes")
            self._lose()

    def _lose(self) -> None:
        """Ends the reader. All that it has made goes; the next one begins anew."""
        self.restarts += 1
        self._rests = False
        self._not_before = time.monotonic() + RESTART_AFTER
        if self._channel is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self._channel)
            self._channel.close()
        if self._process is not None:
            self._process.kill()
        self._channel = self._process = None
        for file in list(self._tables):
            self._drop(file)
        self._sensor.drop_all_mappings()
        self._sensor.drop_all_files()
        self._parts.clear()
        asked, self._asked = self._asked, {}
        for done, _ in asked.values():
            done(b"")
        if self._runs:
            self.on_lost([*self._runs])

    def _reports(self) -> None:
        assert self._readers is not None
        try:
            self._readers.receive()
        except HelperLost as lost:
            self._log(f"{lost}: there are no profiles until joblensd is started anew")
            self._selector.unregister(self._readers)
            self._lose()
            self._readers = None

    def _receive(self) -> None:
        until = time.monotonic() + AT_A_TIME
        while self._channel is not None and not self._rests:
            try:
                packet = self._channel.recv(messages.MOST_BYTES + 1)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            if not packet:
                self._log("the reader of samples has ended, and is started anew: profiles lack some minutes")
                self._lose()
                return
            self._heard = time.monotonic()
            try:
                self._hear(packet[0], packet[1:])
            except (ValueError, KeyError, struct.error) as error:
                self._log(f"the reader of samples says what makes no sense ({error}), and is started anew")
                self._lose()
            self._rest_if_full()
            if time.monotonic() >= until:
                return

    def _rest_if_full(self) -> None:
        """The reader waits with what it asks for while the kernel lags behind."""
        if self._channel is not None and self._sensor.changes.is_full:
            self._rests = True
            self._selector.unregister(self._channel)

    def _changes_have_room(self) -> None:
        self._sensor.changes.heard()
        self._heard = time.monotonic()  # it was not heard because of us
        if self._rests and self._channel is not None:
            self._selector.register(self._channel, selectors.EVENT_READ, self._receive)
        self._rests = False

    def _hear(self, what: int, text: bytes) -> None:
        """What the reader asks for. It can be anything: raises ValueError, KeyError and struct.error."""
        if what == messages.ROWS:
            self._new_rows(*_unpacked(messages.ROWS_OF, text))
        elif what == messages.PUT:
            self._put(*_unpacked(messages.FILE, text))
        elif what == messages.DROP:
            self._drop(*_unpacked(messages.FILE, text))
        elif what == messages.OPENED:
            *_, number = _unpacked(messages.OPEN_FILE, text)
            self._sensor.put_file(text[: messages.FILE_KEY_BYTES], number)
        elif what == messages.MAPPINGS:
            key, mappings = text[: messages.PROCESS_KEY.size], text[messages.PROCESS_KEY.size :]
            if len(key) < messages.PROCESS_KEY.size or len(mappings) % messages.MAPPING.size:
                raise ValueError("half a mapping")
            self._sensor.put_mappings(key, mappings)
        elif what == messages.PYTHON:
            if len(text) != messages.PROCESS_KEY.size + messages.PYTHON_PROCESS.size:
                raise ValueError("half of a Python")
            self._sensor.put_python(text[: messages.PROCESS_KEY.size], text[messages.PROCESS_KEY.size :])
        elif what == messages.FORGET:
            if len(text) != messages.PROCESS_KEY.size:
                raise ValueError("half a key")
            self._sensor.drop_mappings(text)
        elif what == messages.OPENER:
            self._new_opener(*_unpacked(messages.NUMBER, text))
        elif what == messages.NAMES:
            self._new_names()
        elif what == messages.WINDOW:
            self._window(text)
        elif what in (messages.MERGED, messages.REPORTED):
            self._take_answer(what, text)
        elif what == messages.CRASH:
            self._crash(text)
        elif what == messages.SEEN:
            self._seen(*messages.SEEN_OF.unpack(text))
        elif what == messages.ENDED:
            (run,) = _unpacked(messages.NUMBER, text)
            self._ended.pop(run, None)
        elif what == messages.STEADY:
            self._steady(*messages.STEADY_OF.unpack(text))
        elif what != messages.PONG:
            raise ValueError(f"packet {what}")

    # -- what it asks for -------------------------------------------------------------------------------------------

    def _new_rows(self, file: int, rows: int) -> None:
        size = 8 * (rows + 1)
        self._drop(file)
        if self._bytes + size > self._table_bytes or len(self._tables) >= messages.MOST_FILES:
            self._say(messages.ROWS)
            return
        descriptor = self._sensor.new_rows(rows)
        if descriptor < 0:
            self._say(messages.ROWS)
            return
        self._tables[file] = descriptor, size
        self._bytes += size
        self._send(messages.ROWS, b"", [descriptor])

    def _put(self, file: int) -> None:
        descriptor, size = self._tables[file]
        if descriptor < 0:
            raise ValueError("a table that is in its place")
        self._sensor.put_rows(file, descriptor)  # which closes it
        self._tables[file] = -1, size

    def _drop(self, file: int) -> None:
        if file not in self._tables:
            return
        descriptor, size = self._tables.pop(file)
        self._bytes -= size
        if descriptor >= 0:
            os.close(descriptor)
        else:
            self._sensor.drop_rows(file)

    def _new_opener(self, run: int) -> None:
        """Starts it, and hands its socket over: what the two say is nothing to joblensd."""
        given: list[int] = []
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            try:
                if run not in self._runs:
                    raise JobLensError("the run is over")
                self._start_opener(run, theirs)
                descriptors.send(ours, program_files.REQUEST)
                given = [ours.fileno()]
            except (JobLensError, OSError):
                given = []
            self._send(messages.OPENER, messages.NUMBER.pack(run), given)

    def _new_names(self) -> None:
        try:
            descriptor = self._sensor.names_of_addresses()
        except JobLensError:
            self._say(messages.NAMES)
            return
        try:
            self._send(messages.NAMES, b"", [descriptor])
        finally:
            os.close(descriptor)

    def _window(self, text: bytes) -> None:
        run, begun, ended, is_off_cpu, is_last = messages.WINDOW_HEAD.unpack_from(text)
        parts = self._parts.setdefault(run, [])
        parts.append(text[messages.WINDOW_HEAD.size :])
        if sum(map(len, parts)) > messages.MOST_WINDOW_BYTES or len(self._parts) > messages.MOST_PROCESSES:
            raise ValueError("too much")
        if is_last:
            del self._parts[run]
            if not self._keep(run, begun, ended, b"".join(parts), is_off_cpu):
                self._say(messages.REFUSED, messages.REFUSED_OF.pack(run, begun, is_off_cpu))

    def _take_answer(self, what: int, text: bytes) -> None:
        run, is_last = messages.MERGED_HEAD.unpack_from(text)
        done, parts = self._asked[what, run]
        parts.append(text[messages.MERGED_HEAD.size :])
        if sum(map(len, parts)) > messages.MOST_WINDOW_BYTES:
            raise ValueError("too much")
        if is_last:
            del self._asked[what, run]
            done(b"".join(parts))

    def _steady(self, run: int, since: float, until: float) -> None:
        if not 0 <= since <= until < math.inf:
            raise ValueError("no time")
        if run in self._runs:
            self.on_steady(run, since, until)

    def _seen(self, run: int, until: float, lost: int, counted: bytes) -> None:
        if not 0 < until < math.inf:
            raise ValueError("no time")
        known = self._runs.get(run) or self._ended.get(run)
        if known is not None:
            known.until, known.counted = until, counted
        self.on_seen(run, until, lost)  # also of a run that is at a lower level by now

    def _crash(self, text: bytes) -> None:
        run, tgid, signal, when, length = messages.CRASH_HEAD.unpack_from(text)
        words, data = text[messages.CRASH_HEAD.size :][:length], text[messages.CRASH_HEAD.size + length :]
        if not math.isfinite(when):
            raise ValueError("no time")
        self._crashed(run, tgid, signal, when, words.decode("ascii", "replace"), data)


def _unpacked(layout: struct.Struct, text: bytes) -> tuple[int, ...]:
    if len(text) != layout.size:
        raise ValueError("a packet of another size")
    found: tuple[int, ...] = layout.unpack(text)
    return found
