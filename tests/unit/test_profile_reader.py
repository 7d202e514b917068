"""What joblensd tells its reader of samples, without a kernel."""

from __future__ import annotations

import contextlib
import json
import os
import select
import selectors
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from condor_joblens.agent.profiles import Profiles
from condor_joblens.profiles import pprof
from condor_joblens.profiles.profile import View
from condor_joblens.profiling import program_files, sample_reader
from condor_joblens.profiling import reader_messages as messages
from condor_joblens.profiling.python_offsets import Layout
from condor_joblens.profiling.sample_counts import Counts, Process
from condor_joblens.profiling.sample_reader import MOST_PYTHONS, Counted, Reader, _Job, _Look
from condor_joblens.profiling.samples import Frame, Kind
from condor_joblens.profiling.unwind_tables import NO_PLACE
from condor_joblens.tracer import map_changes
from condor_joblens.tracer.map_changes import MapChanges
from condor_joblens.tracer.sensors.profile import Profile as ProfileSensor


class Sensor:
    """Its maps have the same descriptors whenever it is loaded: the kernel gives out the lowest number that is free."""

    ring_bytes, slots, hz = 4096, 4, 99
    sampled = bytes(messages.SAMPLED_BYTES)  # what the kernel has counted of any slot

    def __init__(self, descriptor: int) -> None:
        self.loaded = object()
        self.changes = MapChanges()
        self.dropped: list[bytes] = []
        self._descriptor = descriptor

    def reader_maps(self) -> tuple[int, int, int]:
        return self._descriptor, self._descriptor, self._descriptor

    def counted(self, slot: int) -> bytes:
        return self.sampled

    def drop_mappings(self, process: bytes) -> None:
        self.dropped.append(process)

    def drop_all_mappings(self) -> None:
        self.dropped.clear()

    def drop_all_files(self) -> None:
        pass


@pytest.fixture
def channel() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        theirs.setblocking(False)
        yield ours, theirs


def ignore(*_: object) -> None:
    """What nobody asks for here."""


def told(theirs: socket.socket) -> list[int]:
    """The kinds of packets that have come."""
    found = []
    with contextlib.suppress(BlockingIOError):
        while True:
            found.append(theirs.recv(1000)[0])
    return found


def test_what_the_reader_asks_for_after_the_last_sampled_job_ends_nobody(
    channel: tuple[socket.socket, socket.socket],
) -> None:
    """The sensor has been unloaded by then, and the reader has not heard of it."""
    ours, theirs = channel
    ours.setblocking(False)
    basic: Any = SimpleNamespace(max_slots=4, cpus=1)
    process, file, said = bytes(messages.PROCESS_KEY.size), messages.FILE.pack(7), list[str]()
    with selectors.DefaultSelector() as selector:
        profiles = Profiles(ProfileSensor(basic, 2), 1 << 20, None, ignore, ignore, ignore, selector, said.append)
        profiles._channel = ours
        before = len(os.listdir("/proc/self/fd"))
        table = os.open(os.devnull, os.O_RDONLY)
        profiles._tables[7] = table, 0
        for what, text in (
            (messages.MAPPINGS, process + bytes(messages.MAPPING.size)),
            (messages.PYTHON, process + bytes(messages.PYTHON_PROCESS.size)),
            (messages.FORGET, process),
            (messages.PUT, file),
            (messages.DROP, file),
            (messages.NAMES, b""),
        ):
            theirs.send(bytes([what]) + text)
            profiles._receive()
            assert profiles._channel is ours and said == [], what
        assert told(theirs) == [messages.NAMES] and len(os.listdir("/proc/self/fd")) == before
        profiles._channel = None


def test_a_file_that_had_to_give_way_is_opened_for_the_next_process(
    channel: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    reader = Reader(channel[1], SimpleNamespace(crash=ignore), 1 << 20)  # type: ignore[arg-type]
    (tmp_path / "text").write_text("no program: it has no table")
    number = reader._tables.add(1, os.open(tmp_path / "text", os.O_RDONLY), "text")
    assert number and reader._is_to_be_opened(None) and not reader._is_to_be_opened(number)
    reader._tables.forget_run(1)
    assert reader._is_to_be_opened(number)
    assert not reader._is_to_be_opened(0), "it can't be had"


def test_a_file_without_a_place_is_opened_when_there_is_one(
    channel: tuple[socket.socket, socket.socket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "MOST_FILES", 1)
    reader = Reader(channel[1], SimpleNamespace(crash=ignore), 1 << 20)  # type: ignore[arg-type]
    numbers = []
    for name in ("a", "b"):
        (tmp_path / name).write_text("no program")
        numbers.append(reader._tables.add(1, os.open(tmp_path / name, os.O_RDONLY), name))
    assert numbers[1] == NO_PLACE and not reader._is_to_be_opened(NO_PLACE), "it would be asked for again and again"
    reader._tables.forget_run(1)
    assert reader._is_to_be_opened(NO_PLACE)


def python_of(reader: Reader, job: Any, pid: int, *codes: int) -> Any:
    """A process with a Python, some of whose functions are known, as an opener tells of them."""
    look = _Look(Process(messages.PROCESS_KEY.pack(pid, 1, 1), pid))
    said = {"python": [3, 11], "layout": [8] * len(Layout._fields), "head": 1, "runs": [0, 0, 0, 0]}
    reader._put_python(job, look, said)
    found = job.pythons[look.process.key]
    for address in codes:
        found.wanted.add((address, 5))
        reader._keep_code(job, look, {"code": [address, 5], "told": ["f", "fit.py", "", 1, 10], "more": False})
    return found


def test_a_python_that_is_looked_at_again_keeps_the_names_of_its_functions(
    channel: tuple[socket.socket, socket.socket],
) -> None:
    """As it is when it loads a module with a library: samples of the present window have been counted by them."""
    reader = Reader(channel[1], SimpleNamespace(crash=ignore), 1 << 20)  # type: ignore[arg-type]
    job = _Job(1, Counts(0.0, 0), Counted())
    before = python_of(reader, job, 10, 8, 16)
    assert python_of(reader, job, 10) is before and len(before.codes) == 2


def asked_of(opener: socket.socket) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(opener.recv(1 << 16))
    return found


def looking(reader: Reader, files: int) -> tuple[_Job, _Look, socket.socket]:
    """A job whose opener has told mappings of so many files; the opener's end of its socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    job = _Job(1, Counts(0.0, 0), Counted(), opener=ours)
    reader._poll.register(ours.fileno(), select.POLLIN)
    mappings = [[0x1000 * number, 0x1000 * (number + 1), 0, 1, number, f"/f{number}"] for number in range(1, files + 1)]
    job.look = look = _Look(Process(struct.pack("<IIQ", 70, 1, 7), 70), mappings, list(mappings))
    theirs.setblocking(False)
    return job, look, theirs


def test_files_are_asked_for_some_at_a_time_and_behind_the_last_ones_for_python(
    channel: tuple[socket.socket, socket.socket],
) -> None:
    reader = Reader(channel[1], SimpleNamespace(crash=ignore), 1 << 20)  # type: ignore[arg-type]
    job, look, opener = looking(reader, program_files.OPEN_AT_ONCE + 1)
    reader._go_on_opening(job, look)
    asked = asked_of(opener)["open"]
    assert asked == [each[0] for each in reversed(look.mappings)][: program_files.OPEN_AT_ONCE]
    for address in asked:
        with pytest.raises(BlockingIOError):
            asked_of(opener)
        opener.send(json.dumps({"opened": address}).encode())
        reader._answered(job)
    assert asked_of(opener) == {"open": [0x1000]} and asked_of(opener) == {"python": 70}
    assert len(look.to_open) == 1 and not messages_of(channel[0])
    opener.send(b'{"opened": 4096}')
    reader._answered(job)
    assert [packet[0] for packet in messages_of(channel[0])] == [messages.MAPPINGS]
    opener.send(b'{"python": null, "later": false}')
    reader._answered(job)
    assert job.look is None


def test_windows_close_one_by_one_and_processes_that_are_looked_at_do_not_wait_for_them(
    channel: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of all windows of a node take seconds, and its jobs' windows are due together."""
    reader = Reader(channel[1], SimpleNamespace(crash=ignore), 1 << 20)  # type: ignore[arg-type]
    done: list[str] = []

    def closed(job: _Job) -> None:
        done.append(f"closed {job.run}")
        job.close_by = 0.0

    monkeypatch.setattr(reader, "_close_window", closed)
    monkeypatch.setattr(reader, "_answered", lambda job: done.append(f"heard {job.opener.recv(10).decode()}"))
    looked, _, opener = looking(reader, 1)
    late = time.monotonic() + 3600
    looked.counts.began = time.time()
    reader._jobs = {1: looked}
    for run in (2, 3):
        reader._jobs[run] = _Job(run, Counts(time.time(), 0), Counted(), close_by=late - run)
    looked.until = late
    opener.send(b"a")
    for expected in ("heard a", "closed 3", "closed 2"):
        reader.turn(0)
        assert done == [expected]
        done.clear()
    reader._jobs[2].close_by = 1.0
    opener.send(b"b")
    reader.turn(0)
    assert done == ["heard b", "closed 2"], "that one was late"


def test_an_opener_that_ends_while_it_is_asked_costs_that_look_alone(
    channel: tuple[socket.socket, socket.socket],
) -> None:
    reader = Reader(channel[1], SimpleNamespace(crash=ignore), 1 << 20)  # type: ignore[arg-type]
    for files in (0, 1):
        job, look, opener = looking(reader, files)
        opener.close()
        reader._go_on_opening(job, look)
        assert job.opener is None and job.look is None and not job.has_asked
    assert not messages_of(channel[0])


def test_a_process_that_is_over_has_no_place_among_those_that_are_known(
    channel: tuple[socket.socket, socket.socket],
) -> None:
    """Of these there is a bounded number; a storm of forks would push out those that live."""
    reader = Reader(channel[1], SimpleNamespace(crash=ignore), 1 << 20)  # type: ignore[arg-type]
    job, _, opener = looking(reader, 0)
    job.waiting.add(Process(struct.pack("<IIQ", 71, 1, 7), 71))
    opener.send(json.dumps({"mappings": [], "more": False}).encode())
    reader._answered(job)
    assert asked_of(opener) == {"maps": 71}, "the next one is looked at"
    assert not reader._processes and not messages_of(channel[0])


def test_a_child_that_opens_files_is_wanted_when_a_run_begins_and_again_if_it_was_too_early(
    channel: tuple[socket.socket, socket.socket],
) -> None:
    reader = Reader(channel[1], SimpleNamespace(crash=ignore), 1 << 20)  # type: ignore[arg-type]
    reader._begin(1, 0, 0.0, bytes(messages.SAMPLED_BYTES))
    wanted = bytes([messages.OPENER]) + messages.NUMBER.pack(1)
    assert messages_of(channel[0]) == [wanted]
    job = reader._jobs[1]
    reader._take_opener([], 1)
    job.waiting.add(Process(struct.pack("<IIQ", 70, 1, 7), 70))
    reader._look(job)
    assert messages_of(channel[0]) == [wanted]
    reader._take_opener([], 1)
    reader._look(job)
    assert not messages_of(channel[0]), "it would be asked for again and again"


def messages_of(joblensd: socket.socket) -> list[bytes]:
    """What the reader has said to it so far."""
    found = []
    with contextlib.suppress(BlockingIOError):
        while True:
            found.append(joblensd.recv(1 << 16, socket.MSG_DONTWAIT))
    return found


def test_what_was_known_of_pythons_that_have_ended_makes_room(channel: tuple[socket.socket, socket.socket]) -> None:
    """A job that starts one after the other has names to its end."""
    reader = Reader(channel[1], SimpleNamespace(crash=ignore), 1 << 20)  # type: ignore[arg-type]
    job = _Job(1, Counts(0.0, 0), Counted())
    channel[0].setblocking(False)
    for pid in range(1, 3 * MOST_PYTHONS):
        python_of(reader, job, pid, 8)
        told(channel[0])
    known = job.code_bytes
    python_of(reader, job, 1000, 8)
    assert len(job.pythons) == MOST_PYTHONS and job.code_bytes == known
    for key in list(job.pythons):
        job.forget_python(key)
    assert job.code_bytes == 0


def test_functions_that_no_sample_has_any_more_make_room(
    channel: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a program that makes new ones all the time."""
    reader = Reader(channel[1], SimpleNamespace(crash=ignore), 1 << 20)  # type: ignore[arg-type]
    job = _Job(1, Counts(0.0, 0), Counted())
    found = python_of(reader, job, 10, *range(8, 808, 8))
    key, known, kept = found.process.key, job.code_bytes, (800, 5)
    assert sample_reader._frame_of_python(job, key, kept, 0) == Frame(Kind.PYTHON, function="f", source="fit.py")
    job.forget_unused_codes()
    assert len(found.codes) == 100, "there is room"
    monkeypatch.setattr(sample_reader, "MOST_CODE_BYTES", known)
    job.forget_unused_codes()
    assert found.codes.keys() == {kept} and job.code_bytes == known // 100
    assert sample_reader._frame_of_python(job, key, (8, 5), 0) == Frame(Kind.PYTHON), "it has no name, and is there"


def test_maps_of_a_sensor_that_was_loaded_anew_are_handed_over(channel: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = channel
    sensor: Any = Sensor(ours.fileno())
    with selectors.DefaultSelector() as selector:
        profiles = Profiles(sensor, 1 << 20, None, ignore, ignore, ignore, selector, print)
        profiles._channel = ours
        profiles.begin(1, 0)
        profiles.begin(2, 1)
        assert told(theirs) == [messages.RING, messages.BEGIN, messages.BEGIN]
        for run in (1, 2):
            profiles.end(run)
        sensor.loaded = object()  # after the last job it was taken out
        profiles.begin(3, 0)
        assert told(theirs) == [messages.END, messages.END, messages.RING, messages.BEGIN]


def test_the_reader_waits_while_the_kernel_lags_behind(
    channel: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = channel
    ours.setblocking(False)
    sensor: Any = Sensor(ours.fileno())
    may_go_on = threading.Event()
    monkeypatch.setattr(map_changes, "_change", lambda *_: may_go_on.wait(60))

    def handle() -> None:
        for key, _ in selector.select(0):
            key.data()

    with selectors.DefaultSelector() as selector:
        profiles = Profiles(sensor, 1 << 20, None, ignore, ignore, ignore, selector, print)
        profiles._channel = ours
        selector.register(ours, selectors.EVENT_READ, profiles._receive)
        key = bytes(messages.PROCESS_KEY.size)
        for _ in range(map_changes.MOST_WAITING + 1):  # all of one key: one after the other
            sensor.changes.drop(1, key)
        assert sensor.changes.is_full
        theirs.send(bytes([messages.FORGET]) + key)
        handle()
        assert len(sensor.dropped) == 1
        theirs.send(bytes([messages.FORGET]) + key)
        assert selector.select(0) == []  # nothing turns in vain
        may_go_on.set()
        selector.select(60)
        handle()
        handle()
        assert len(sensor.dropped) == 2


def test_a_reader_that_ends_while_it_waits_is_followed_by_one_that_is_heard(
    channel: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = channel
    ours.setblocking(False)
    sensor: Any = Sensor(ours.fileno())
    with selectors.DefaultSelector() as selector:
        profiles = Profiles(sensor, 1 << 20, None, ignore, ignore, ignore, selector, print)
        profiles._channel, profiles._rests = ours, True
        profiles._lose()
        again, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        again.setblocking(False)
        with again, theirs:
            profiles._channel = again
            theirs.send(bytes([messages.FORGET]) + bytes(messages.PROCESS_KEY.size))
            profiles._receive()
            assert len(sensor.dropped) == 1
            profiles.close()


class Readers:
    """Starts readers that say nothing; `theirs` is the other end of the last one's socket."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self.theirs: Any = None

    def fileno(self) -> int:
        return self._read

    def start(self, theirs: socket.socket, for_whom: object) -> Any:
        self.theirs = theirs.dup()
        self.theirs.setblocking(False)
        return SimpleNamespace(pid=1, kill=ignore)

    def close(self) -> None:
        for descriptor in (self._read, self._write):
            os.close(descriptor)


def packets(theirs: socket.socket) -> dict[int, list[bytes]]:
    """What has come, by its kind."""
    found: dict[int, list[bytes]] = {}
    with contextlib.suppress(BlockingIOError):
        while True:
            packet = theirs.recv(1000)
            found.setdefault(packet[0], []).append(packet[1:])
    return found


SAMPLED = bytes(range(messages.SAMPLED_BYTES))
SEEN = bytes([messages.SEEN]) + messages.SEEN_OF.pack(1, 1000.0, 7, SAMPLED)


def test_another_reader_is_told_how_far_the_one_before_has_come(channel: tuple[socket.socket, socket.socket]) -> None:
    """So what was lost with that one is declared: of runs that go on, and of one that has ended meanwhile."""
    sensor: Any = Sensor(channel[0].fileno())
    said: list[str] = []
    seen: list[tuple[int, float, int]] = []
    lost: list[list[int]] = []
    readers: Any = Readers()
    with contextlib.closing(readers), selectors.DefaultSelector() as selector:
        profiles = Profiles(sensor, 1 << 20, readers, ignore, ignore, ignore, selector, said.append)
        profiles.on_seen, profiles.on_lost = lambda *told: seen.append(told), lost.append
        for run in (1, 2):
            profiles.begin(run, run)
        told_first = packets(readers.theirs)[messages.BEGIN]
        assert [messages.NEW_RUN.unpack(each)[2:] for each in told_first] == [(0.0, bytes(messages.SAMPLED_BYTES))] * 2
        readers.theirs.send(SEEN)
        profiles._receive()
        assert seen == [(1, 1000.0, 7)]
        readers.theirs.close()
        profiles._receive()
        assert lost == [[1, 2]] and len(said) == 1
        sensor.sampled = SAMPLED[::-1]
        profiles.end(2)
        profiles.tick(profiles._not_before)
        told_again = packets(readers.theirs)
        by_run = {each[0]: each[1:] for each in map(messages.NEW_RUN.unpack, told_again[messages.BEGIN])}
        assert by_run[1] == (1, 1000.0, SAMPLED)
        assert by_run[2][1] > 0 and by_run[2][2] == bytes(messages.SAMPLED_BYTES)
        ((run, slot, ended, counted),) = map(messages.END_OF.unpack, told_again[messages.END])
        assert (run, slot, counted) == (2, 2, SAMPLED[::-1]) and 0 < ended <= time.time()
        profiles.close()
        assert len(lost) == 1, "joblensd ends: nobody is told"


def test_what_a_reader_has_not_confirmed_of_runs_that_ended_the_next_one_is_told(
    channel: tuple[socket.socket, socket.socket],
) -> None:
    """It has been told of their ends, and may have hung. If nothing is sampled any more, it is declared at once."""
    sensor: Any = Sensor(channel[0].fileno())
    readers: Any = Readers()
    kept: list[tuple[int, float, float, pprof.Profile, bool]] = []

    def keep(run: int, begun: float, ended: float, data: bytes, is_off_cpu: bool) -> bool:
        kept.append((run, begun, ended, pprof.decode(data), is_off_cpu))
        return True

    with contextlib.closing(readers), selectors.DefaultSelector() as selector:
        profiles = Profiles(sensor, 1 << 20, readers, ignore, keep, ignore, selector, ignore)
        for run in (1, 2):
            profiles.begin(run, run)
        readers.theirs.send(bytes([messages.SEEN]) + messages.SEEN_OF.pack(1, 1000.0, 0, counted_of(1, 500)))
        profiles._receive()
        sensor.sampled = counted_of(1, 800)
        for run in (1, 2):
            profiles.end(run)
        readers.theirs.send(bytes([messages.ENDED]) + messages.NUMBER.pack(2))
        profiles._receive()
        readers.theirs.close()
        profiles._receive()
        profiles.tick(profiles._not_before)
        told_again = packets(readers.theirs)
        assert [messages.NEW_RUN.unpack(each)[::2] for each in told_again[messages.BEGIN]] == [(1, 1000.0)]
        assert [messages.END_OF.unpack(each)[0] for each in told_again[messages.END]] == [1]
        readers.theirs.close()
        profiles._receive()
        assert kept == []
        sensor.loaded = None
        profiles.tick(profiles._not_before)
        profiles.tick(profiles._not_before)
        profiles.close()
    assert [(run, begun, is_off_cpu) for run, begun, _, _, is_off_cpu in kept] == [
        (1, 1000.0, False),
        (1, 1000.0, True),
    ]
    for _, begun, ended, part, _ in kept:
        assert [pytest.approx(pair, abs=0.01) for pair in part.unseen] == [(begun, ended)]
        assert (part.samples, part.lost) == ((0, 300) if part.view is View.ON_CPU else (0, 0))


def counted_of(run: int, samples: int) -> bytes:
    """What the kernel has counted of a run."""
    return Counted(run, samples).packed()


def test_a_reader_that_takes_nothing_is_named_in_the_log(channel: tuple[socket.socket, socket.socket]) -> None:
    ours, _theirs = channel
    ours.setblocking(False)
    said: list[str] = []
    sensor: Any = Sensor(ours.fileno())
    with selectors.DefaultSelector() as selector:
        profiles = Profiles(sensor, 1 << 20, None, ignore, ignore, ignore, selector, said.append)
        profiles._channel = ours
        profiles.begin(1, 0)
        while profiles._channel is not None:
            profiles.close_window(1)
    assert len(said) == 1 and "takes nothing" in said[0] and profiles.restarts == 1
