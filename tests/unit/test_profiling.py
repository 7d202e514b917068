"""What a look at a job makes of what the kernel says: causes, locks, sockets, unwind tables; and of hostile input."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import mmap
import os
import socket
import struct
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from condor_joblens.profiling._eh_frame import ffi, lib
from condor_joblens.tracer._bpf import ffi as kernel_ffi
from condor_joblens.tracer._bpf import lib as kernel_lib
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.cli import hang, stacks
from condor_joblens.cli.terminal import Style
from condor_joblens.common.errors import JobLensError
from condor_joblens.profiles import evidence as told
from condor_joblens.profiles import evidence_page
from condor_joblens.profiles.thread import INTERPRETER_LOCK
from condor_joblens.profiling import alike, calls, elf, file_locks, full, look, sockets, threads, unwind, verdict
from condor_joblens.profiling.demangle import demangled
from condor_joblens.profiling.elf import Elf, ElfError, Rule
from condor_joblens.profiling.process import MOST_MAPPINGS, Descriptor, Process
from condor_joblens.profiling.threads import Thread
from condor_joblens.profiling.wait import Cause, Wait
from condor_joblens.profiling.waits import Waits

PIPE = Wait(Cause.PIPE, "data from pipe:[1]")
IDLE = Wait(Cause.FUTEX, "something of another thread")


def thread(tid: int, pid: int = 10, state: str = "S", waited: float = 5.0) -> Thread:
    return Thread(tid, pid, 1, tid, f"name{tid}", state, True, waited, "read")


# -- the verdict -----------------------------------------------------------------------------------------------------


def test_fifty_threads_that_have_nothing_to_do_hide_nothing() -> None:
    idle = [(thread(tid), IDLE) for tid in range(11, 61)]
    said = verdict.judge([*idle, (thread(10), PIPE)])
    assert (said.cause, said.tid) == (Cause.PIPE, 10)
    assert "process 10 (name10) waits for data from pipe:[1] in read since 5 s" in said.sentence


def test_a_thread_that_runs_is_no_hang() -> None:
    assert verdict.judge([(thread(10), PIPE), (thread(11, state="R"), Wait(Cause.RUNS))]).cause is Cause.RUNS


def test_who_waits_for_a_child_tells_less_than_the_child() -> None:
    child = (thread(20, 20), Wait(Cause.NETWORK, "tcp"))
    said = verdict.judge([(thread(10), Wait(Cause.CHILD, "process 20", holder_pid=20)), child])
    assert (said.cause, said.tid) == (Cause.NETWORK, 20)


FOR_CHILD = Wait(Cause.CHILD, "process 20 (name20)", holder_pid=20)
FOR_READER = Wait(Cause.PIPE, "room in pipe:[1]", "process 10 (name10)", holder_pid=10)


def test_processes_that_wait_for_each_other_are_a_deadlock() -> None:
    """A parent that reads when its child has ended, a child that ends when its parent has read."""
    idle = (thread(21, 20), IDLE)
    said = verdict.judge([(thread(10), FOR_CHILD), (thread(20, 20), FOR_READER), idle])
    assert (said.cause, said.tid, said.cycle, said.is_suspicious) == (Cause.DEADLOCK, 10, (10, 20), True)
    assert said.sentence == (
        "processes wait for each other: 10 (name10) waits for the end of process 20 (name20), "
        "20 (name20) waits for room in pipe:[1] of 10"
    )


def test_processes_that_each_wait_to_receive_from_the_other_are_a_deadlock_if_it_lasts() -> None:
    """No call tells a socket's own time-out."""
    one = Wait(Cause.NETWORK, "tcp a -> b", "process 20 (name20)", holder_pid=20, protocol="tcp", is_silent=True)
    other = dataclasses.replace(one, object="tcp b -> a", holder_pid=10)
    pairs = [(thread(10), one), (thread(20, 20, waited=3.0), other)]
    said = verdict.judge(pairs)
    assert (said.cause, said.cycle) == (Cause.DEADLOCK, (10, 20))
    assert "10 (name10) waits on tcp a -> b of 20" in said.sentence
    assert verdict.has_lasted(pairs, said, 3.0) and not verdict.has_lasted(pairs, said, 4.0)


def test_who_waits_for_another_process_of_the_job_by_a_socket_tells_less_than_that() -> None:
    asks = Wait(Cause.NETWORK, "tcp a -> b", "process 20 (name20)", holder_pid=20, protocol="tcp")
    assert verdict.judge([(thread(10), asks), (thread(20, 20), Wait(Cause.FILE, "/x"))]).tid == 20
    assert verdict.judge([(thread(10), asks), (thread(20, 20), Wait(Cause.CLIENT))]).tid == 10


def test_of_several_that_sleep_none_tells_more() -> None:
    """As one that looks every 0.1 s for what the other has."""
    looks, has = Wait(Cause.SLEEP, "for 0.1 s"), Wait(Cause.SLEEP, "until a time")
    said = verdict.judge([(thread(10, waited=0.0), looks), (thread(20, 20), has)])
    assert (said.cause, said.tid, said.is_suspicious) == (Cause.SLEEP, 0, False)
    assert said.sentence == "2 processes sleep: 10 (name10) for 0.1 s, 20 (name20) until a time"


@pytest.mark.parametrize(
    "other",
    [
        Wait(Cause.SLEEP, "for 1 s"),
        Wait(Cause.NETWORK, "tcp"),
        Wait(Cause.PIPE, "data from pipe:[2]", "nobody in the job"),
        Wait(Cause.CHILD, "a child that is not in the job"),
        dataclasses.replace(IDLE, has_deadline=True),
    ],
    ids=lambda wait: f"{wait.cause.value}",
)
def test_a_thread_that_may_come_and_help_makes_it_unknown(other: Wait) -> None:
    pairs = [(thread(10), FOR_CHILD), (thread(20, 20), FOR_READER), (thread(11), other)]
    assert verdict.judge(pairs).cause is not Cause.DEADLOCK


def test_a_server_that_does_not_answer_is_said_so() -> None:
    wait = Wait(Cause.FILE, "/cvmfs/x/f (fuse at /cvmfs/x) at byte 0", is_silent=True)
    assert verdict.judge([(thread(10, waited=61.0), wait)]).sentence == (
        "process 10 (name10) waits for the file system: /cvmfs/x/f (fuse at /cvmfs/x) at byte 0,"
        " which has not answered for 61 s, in read"
    )


@pytest.mark.parametrize(
    ("peer", "words"),
    [
        ("10.0.0.2:53", "waits for an answer of the DNS server 10.0.0.2 (udp a -> b)"),
        ("[2001:db8::1]:53", "waits for an answer of the DNS server [2001:db8::1] (udp a -> b)"),
        ("10.0.0.2:5353", "waits on udp a -> b"),
    ],
)
def test_a_dns_server_is_called_so(peer: str, words: str) -> None:
    wait = Wait(Cause.NETWORK, "udp a -> b", protocol="udp", peer=peer)
    assert verdict.judge([(thread(10), wait)]).sentence == f"process 10 (name10) {words} in read since 5 s"


@pytest.mark.parametrize(
    ("kernel", "call", "cause", "is_silent"),
    [
        (["request_wait_answer", "fuse_read"], "read", Cause.FILE, True),
        (["rpc_wait_bit_killable", "nfs4_proc_lookup"], "read", Cause.FILE, True),
        (["folio_wait_bit_common", "filemap_read"], "read", Cause.FILE, True),
        (["rwsem_down_write_slowpath", "fuse_file_write_iter"], "write", Cause.FILE, False),  # another thread has it
        (["folio_wait_bit_common", "filemap_fault", "handle_mm_fault", "fault_in_readable"], "write", Cause.PAGE, True),
        (["folio_wait_bit_common", "filemap_fault", "handle_mm_fault"], "", Cause.PAGE, True),
    ],
)
def test_which_waits_are_for_a_servers_answer(kernel: list[str], call: str, cause: Cause, is_silent: bool) -> None:
    waits = dataclasses.replace(thread(10), call=call, arguments=(3, 0, 0, 0, 0, 0), kernel=tuple(kernel))
    found = Waits([waits], {})
    found.processes[10] = OnServer(10)
    wait = found.of(waits)
    assert (wait.cause, wait.is_silent) == (cause, is_silent)
    assert (wait.target, wait.filesystem, wait.mount) == ("/x/f", "fuse.cvmfs2", "/x")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (b"/run/reco.sock\0", "/run/reco.sock"),
        (b"\0reco", "@reco"),
        (b"/x\x1b[2J", "/x\\x1b[2J"),
        (b"", "without a name"),
    ],
)
def test_a_server_that_accepts_nobody_has_the_name_connect_was_given(tmp_path: Path, name: bytes, words: str) -> None:
    has_open(tmp_path, 10, {3: ("socket:[57]", 2)})
    address = (1).to_bytes(2, sys.byteorder) + name
    (tmp_path / "10" / "mem").write_bytes(bytes(0x1000) + address)
    (tmp_path / "10" / "maps").write_text("00001000-00002000 rw-p 00000000 00:00 0\n")
    arguments = (3, 0x1000, len(address), 0, 0, 0)
    waits = dataclasses.replace(thread(10), call="connect", arguments=arguments, kernel=("unix_wait_for_peer",))
    wait = Waits([waits], {}, str(tmp_path)).of(waits)
    assert wait.object == f"the unix socket {words}, whose server accepts no more connections"
    assert (wait.cause, wait.protocol, wait.has_deadline) == (Cause.NETWORK, "unix", False)
    assert verdict.judge([(waits, wait)]).is_suspicious


@pytest.mark.parametrize("call", ["", "write"])
def test_memory_that_somebody_has_to_bring_is_in_no_file(call: str) -> None:
    kernel = ("handle_userfault", "do_anonymous_page", "handle_mm_fault")
    waits = dataclasses.replace(thread(10), call=call, arguments=(3, 0, 0, 0, 0, 0), kernel=kernel)
    wait = Waits([waits], {}).of(waits)
    assert wait.cause is Cause.PAGE and "userfaultfd" in wait.object and not wait.is_silent


@pytest.mark.parametrize(
    ("protocol", "peer", "words"),
    [
        ("tcp", "10.0.0.2:80", "waits on x, which has sent nothing for 61 s, in read"),
        ("udp", "10.0.0.2:53", "(x), which"),
    ],
)
def test_a_silent_other_end_is_said_so(protocol: str, peer: str, words: str) -> None:
    wait = Wait(Cause.NETWORK, "x", protocol=protocol, peer=peer, is_silent=True)
    assert words in verdict.judge([(thread(10, waited=61.0), wait)]).sentence


@pytest.mark.parametrize(
    ("cause", "waited", "lasted"),
    [(Cause.NETWORK, 449.0, False), (Cause.NETWORK, 450.0, True), (Cause.FILE, 1.0, True), (Cause.PIPE, 1.0, True)],
)
def test_an_answer_that_is_asked_for_again_and_again_is_not_awaited_for_long(
    cause: Cause, waited: float, lasted: bool
) -> None:
    pairs = [(thread(10, waited=waited), Wait(cause, "x")), (thread(11, waited=900.0), IDLE)]
    said = verdict.judge(pairs)
    assert said.is_suspicious and verdict.has_lasted(pairs, said, 450.0) == lasted


@pytest.mark.parametrize(
    ("flags", "mount", "room", "is_told"),
    [
        (os.O_WRONLY, 7, 0, True),
        (os.O_RDWR | os.O_APPEND, 7, full.LEAST_BYTES - 1, True),
        (os.O_RDWR, 7, full.LEAST_BYTES, False),
        (os.O_RDONLY, 7, 0, False),
        (os.O_RDWR, 8, 0, False),  # a file server, which might not answer
        (os.O_RDWR, 7, None, False),
    ],
)
def test_a_full_file_system_is_told_if_something_is_written_to_it(
    flags: int, mount: int, room: int | None, is_told: bool
) -> None:
    class Writes(Process):
        def text(self, name: str) -> str:
            return "7 1 8:1 / /out rw - ext4 x rw\n8 1 0:42 / /eos rw - fuse.eosxd x rw"

        def targets(self) -> Iterator[tuple[int, str]]:
            yield from [(0, "pipe:[5]"), (1, "/dev/pts/1"), (3, "/out/a.root")]

        def descriptor(self, number: int) -> Descriptor | None:
            assert number == 3
            return Descriptor(number, "/out/a.root", flags, 0, mount, 5, ())

        def room(self, number: int) -> int | None:
            assert mount == 7, "nobody else is asked"
            return room

    words = f"/out/a.root is open for writing, and its file system (ext4 at /out) has {room} bytes left"
    assert full.in_words([Writes(10)]) == (words if is_told else "")


class OnServer(Process):
    """A process with a file of CVMFS, open and mapped."""

    def text(self, name: str) -> str:
        return {
            "mountinfo": "7 1 0:42 / /x rw - fuse.cvmfs2 x rw",
            "maps": "1000-2000 r--p 00000000 00:2a 5 /x/f",
        }.get(name, "")

    def descriptor(self, number: int) -> Descriptor | None:
        return Descriptor(number, "/x/f", 0, 4096, 7, 5, ())


def test_standard_input_is_called_so() -> None:
    waits = dataclasses.replace(thread(10), call="read", arguments=(0, 0, 0, 0, 0, 0))
    found = Waits([waits], {})
    found.processes[10] = OnServer(10)
    assert found.of(waits).object == "standard input, /x/f (fuse.cvmfs2 at /x) at byte 4096"


def test_a_circle_of_mutexes_is_a_deadlock() -> None:
    pairs = [(thread(11 + n), Wait(Cause.MUTEX, "a mutex", "", 10, 11 + (n + 1) % 3)) for n in range(3)]
    assert verdict.judge([(thread(10), IDLE), *pairs]).cause is Cause.DEADLOCK


def test_a_lock_whose_holder_only_sleeps_is_the_cause() -> None:
    waits = (thread(10), Wait(Cause.MUTEX, "a mutex", "thread 11", 10, 11))
    assert verdict.judge([waits, (thread(11), Wait(Cause.SLEEP, "for 9 s"))]).cause is Cause.MUTEX
    assert verdict.judge([waits, (thread(11), Wait(Cause.NETWORK, "tcp"))]).cause is Cause.NETWORK


def test_threads_that_contradict_each_other_tell_no_cause() -> None:
    pairs = [(thread(10), IDLE), (thread(11), Wait(Cause.NETWORK, "a")), (thread(12), Wait(Cause.FILE, "b"))]
    assert verdict.judge(pairs).cause is Cause.UNKNOWN
    assert verdict.judge([]).cause is Cause.UNKNOWN


@pytest.mark.parametrize("memory", [b"", bytes(64)])
@pytest.mark.parametrize(
    ("operation", "threads", "waker"),
    [
        (0x80, 1, "something of its own process (which has no other thread)"),  # FUTEX_WAIT, private
        (0, 1, "something of another process"),
        (0x80, 2, "something of another thread"),
    ],
)
def test_who_could_end_the_wait_of_a_futex(
    tmp_path: Path, memory: bytes, operation: int, threads: int, waker: str
) -> None:
    (tmp_path / "10").mkdir()
    (tmp_path / "10" / "status").write_text(f"Name:\tpython3\nThreads:\t{threads}\nSigQ:\t0/1\n")
    (tmp_path / "10" / "mem").write_bytes(memory)
    waits = dataclasses.replace(thread(10), call="futex", arguments=(8, operation, 0, 0, 0, 0))
    wait = Waits([waits], {}, str(tmp_path)).of(waits)
    assert (wait.cause, wait.object) == (Cause.FUTEX, waker)
    said = verdict.judge([(waits, wait)])
    assert said.is_suspicious and said.sentence == f"process 10 (name10) waits for {waker} in futex since 5 s"


def has_open(folder: Path, pid: int, targets: dict[int, tuple[str, int]]) -> None:
    for name in ("fd", "fdinfo"):
        (folder / str(pid) / name).mkdir(parents=True)
    (folder / str(pid) / "comm").write_text(f"name{pid}\n")
    for number, (target, flags) in targets.items():
        (folder / str(pid) / "fd" / str(number)).symlink_to(target)
        (folder / str(pid) / "fdinfo" / str(number)).write_text(f"pos:\t0\nflags:\t{flags:o}\n")


@pytest.mark.parametrize(
    ("ends", "cause"),
    [
        ({1: ("pipe:[1]", 1), 2: ("pipe:[2]", 1)}, Cause.PIPE),
        ({1: ("pipe:[1]", 1)}, Cause.EVENTS),  # nobody in the job writes to the other one
    ],
)
def test_who_has_all_pipes_of_a_poll_is_told(tmp_path: Path, ends: dict[int, tuple[str, int]], cause: Cause) -> None:
    has_open(tmp_path, 10, {5: ("pipe:[1]", 0), 7: ("pipe:[2]", 0)})
    has_open(tmp_path, 20, ends)
    (tmp_path / "10" / "maps").write_text("00001000-00002000 rw-p 00000000 00:00 0\n")
    (tmp_path / "10" / "mem").write_bytes(bytes(0x1000) + struct.pack("<ihhihh", 5, 1, 0, 7, 1, 0))
    reads = dataclasses.replace(thread(10), call="poll", arguments=(0x1000, 2, 0xFFFFFFFF, 0, 0, 0))
    sleeps = (thread(20, 20), Wait(Cause.SLEEP, "for 86400 s", has_deadline=True))
    wait = Waits([reads, sleeps[0]], {}, str(tmp_path)).of(reads)
    assert wait.cause is cause
    if cause is Cause.PIPE:
        said = verdict.judge([(reads, wait), sleeps])
        assert (said.cause, said.tid, said.is_suspicious) == (Cause.SLEEP, 20, False)
        assert said.sentence.startswith(
            "process 10 (name10) waits for data from any of 2 pipes of 20; process 20 (name20) sleeps for 86400 s"
        )


@pytest.mark.parametrize(
    ("writers", "is_within"),
    [
        ({20: ["pipe:[1]"], 30: ["pipe:[2]"]}, True),
        ({20: ["pipe:[1]"], 30: []}, False),  # who may write to the other one can't be seen
        ({20: ["pipe:[1]"], 10: ["pipe:[2]"]}, False),  # a handler of a signal may do so
    ],
)
def test_who_waits_for_pipes_of_the_job_alone_hangs_if_all_others_do(
    tmp_path: Path, writers: dict[int, list[str]], is_within: bool
) -> None:
    """As a pool of multiprocessing whose worker was killed, and had the lock of the others."""
    reads = {5: ("pipe:[1]", 0), 7: ("pipe:[2]", 0)}
    for pid in (10, 20, 30):
        ends = {9 + at: (name, 1) for at, name in enumerate(writers.get(pid, []))}
        has_open(tmp_path, pid, ends | (reads if pid == 10 else {}))
    (tmp_path / "10" / "maps").write_text("00001000-00002000 rw-p 00000000 00:00 0\n")
    (tmp_path / "10" / "mem").write_bytes(bytes(0x1000) + struct.pack("<ihhihh", 5, 1, 0, 7, 1, 0))
    polls = dataclasses.replace(thread(10), call="poll", arguments=(0x1000, 2, 0xFFFFFFFF, 0, 0, 0))
    others = [(thread(pid, pid), IDLE) for pid in (20, 30)]
    wait = Waits([polls, *(each for each, _ in others)], {}, str(tmp_path)).of(polls)
    assert (wait.cause, wait.is_within) == (Cause.EVENTS, is_within)
    said = verdict.judge([(polls, wait), *others])
    assert (said.cause, said.is_suspicious) == (Cause.UNKNOWN, is_within)


@pytest.mark.parametrize(
    ("address", "deadline", "is_lock"),
    [(0x1008, 1, True), (0x2008, 1, True), (0x1008, 0, False), (0x3008, 1, False), (0x4008, 1, False)],
)
def test_who_waits_for_the_lock_of_a_python(tmp_path: Path, address: int, deadline: int, is_lock: bool) -> None:
    """It is in the library's data, or in what follows that and is 0 at the beginning."""
    has_open(tmp_path, 10, {})
    (tmp_path / "10" / "maps").write_text(
        "00001000-00002000 rw-p 00000000 08:01 7 /opt/lib/libpython3.12.so.1.0\n"
        "00002000-00003000 rw-p 00000000 00:00 0\n"
        "00003000-00004000 rw-p 00000000 08:01 8 /opt/lib/libpythonic.so\n"
        "00004000-00005000 rw-p 00000000 00:00 0 [heap]\n"
    )
    wants = dataclasses.replace(thread(11), call="futex", arguments=(address, 0x189, 0, 0xF000 * deadline, 0, 0))
    wait = Waits([wants], {}, str(tmp_path)).of(wants)
    assert (wait.object == INTERPRETER_LOCK, wait.has_deadline) == (is_lock, bool(deadline) and not is_lock)
    pairs = [(thread(10), PIPE), (wants, wait)]
    fact = f"thread 11 (name11) waits for {INTERPRETER_LOCK}" if is_lock else ""
    assert verdict.without_interpreter(pairs, verdict.judge(pairs)) == fact


GLIBC, ELSEWHERE, OWNER = 0x7000_0000, 0x8000_0000, 4321
HELD = (2, 0, OWNER, 1, 0)
"""A std::mutex that is held and waited for: __lock, __count, __owner, __nusers, __kind."""


def waits_for_mutex(folder: Path, fields: tuple[int, ...], tasks: tuple[int, ...] = (10,), **more: Any) -> Wait:
    process = folder / "10"
    for tid in tasks:
        (process / "task" / str(tid)).mkdir(parents=True)
    (process / "status").write_text(f"Threads:\t{len(tasks)}\n")
    (process / "maps").write_text(
        "00001000-00002000 rw-p 00000000 00:00 0\n"
        f"{GLIBC:x}-{GLIBC + 4096:x} r-xp 00000000 08:01 7 /usr/lib/libc.so.6\n"
    )
    (process / "mem").write_bytes(bytes(0x1000) + struct.pack("<iIiIi", *fields))
    asked = {"call": "futex", "arguments": (0x1000, 0x80, 2, 0, 0, 0), "registers": (GLIBC + 8, 0, 0), **more}
    waits = dataclasses.replace(thread(10), **asked)
    return Waits([waits], {}, str(folder)).of(waits)


def test_a_mutex_whose_owner_is_no_thread_of_the_process_is_one(tmp_path: Path) -> None:
    wait = waits_for_mutex(tmp_path, HELD)
    assert (wait.cause, wait.object, wait.holder_pid) == (Cause.MUTEX, "a mutex at 0x1000", 0)
    parent = (dataclasses.replace(thread(9, 9)), Wait(Cause.CHILD, "process 10 (name10)", holder_pid=10))
    sleeps = (thread(OWNER, 9), Wait(Cause.SLEEP, "for 2 s", has_deadline=True))
    said = verdict.judge([parent, sleeps, (dataclasses.replace(thread(10), call="futex"), wait)])
    assert (said.cause, said.tid, said.is_suspicious) == (Cause.MUTEX, 10, True)
    assert said.sentence == (
        "process 10 (name10) waits for a mutex at 0x1000 in futex since 5 s; "
        "held by thread 4321, which this process does not have: it has ended, or fork left it behind"
    )


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        ((2, 0, 0, 1, 0), {}),  # nobody has it
        ((2, 0, 1 << 23, 1, 0), {}),  # no thread's number
        ((2, 0, OWNER, 0, 0), {}),  # a mutex that is held has a user
        ((2, 3, OWNER, 1, 0), {}),  # taken thrice, and not recursive
        ((2, 0, OWNER, 1, 1), {}),
        ((2, 0, OWNER, 1, 77), {}),
        (HELD, {"tasks": (10, OWNER)}),  # it has come since
        (HELD, {"arguments": (0x1000, 0x89, 2, 0, 0, 0)}),  # as Rust does
        (HELD, {"registers": (ELSEWHERE, 0, 0)}),  # as Go does
        (HELD, {"registers": None}),
    ],
)
def test_memory_that_may_be_something_else_is_no_mutex(
    tmp_path: Path, fields: tuple[int, ...], more: dict[str, Any]
) -> None:
    assert waits_for_mutex(tmp_path, fields, **more).cause is Cause.FUTEX


def test_shared_memory_that_has_a_lock_is_named(tmp_path: Path) -> None:
    (tmp_path / "10").mkdir()
    (tmp_path / "10" / "status").write_text("Name:\tit\nThreads:\t1\nSigQ:\t0/1\n")
    (tmp_path / "10" / "maps").write_text("00001000-00002000 rw-s 00000000 00:19 7 /dev/shm/conditions\n")
    waits = dataclasses.replace(thread(10), call="futex", arguments=(0x1000, 0, 2, 0, 0, 0))
    wait = Waits([waits], {}, str(tmp_path)).of(waits)
    assert (wait.cause, wait.object) == (Cause.FUTEX, "something of another process in /dev/shm/conditions")


@pytest.mark.parametrize(
    ("mapping", "waker"),
    [
        ("rw-p 00000000 00:00 0 [stack]", "something of its own process (which has no other thread)"),  # std::promise
        ("rw-p 00003000 08:01 7 /x/reco", "something of its own process (which has no other thread)"),  # atomic.wait()
        ("rw-s 00000000 00:01 9 /dev/zero (deleted)", "something of another process"),
    ],
)
def test_a_futex_in_memory_that_nobody_else_has_is_its_processs_own(tmp_path: Path, mapping: str, waker: str) -> None:
    (tmp_path / "10").mkdir()
    (tmp_path / "10" / "status").write_text("Name:\tit\nThreads:\t1\nSigQ:\t0/1\n")
    (tmp_path / "10" / "maps").write_text(f"00001000-00002000 {mapping}\n")
    waits = dataclasses.replace(thread(10), call="futex", arguments=(0x1000, 0, 2, 0, 0, 0))
    assert Waits([waits], {}, str(tmp_path)).of(waits).object == waker


@pytest.mark.parametrize(
    ("cause", "its"),
    [(Cause.STOPPED, "is stopped by a signal"), (Cause.SLEEP, "sleeps for 9 s"), (Cause.EVENTS, "waits for any")],
)
def test_who_waits_for_one_that_seems_harmless_is_told(cause: Cause, its: str) -> None:
    words = {Cause.STOPPED: "by a signal", Cause.SLEEP: "for 9 s", Cause.EVENTS: "any"}[cause]
    lock = (thread(20, 20), Wait(Cause.FILE_LOCK, "a lock on /x", "process 10 (name10)", holder_pid=10))
    room = (thread(20, 20), FOR_READER)
    for waits, what in ((lock, "a lock on /x"), (room, "room in pipe:[1]")):
        said = verdict.judge([(thread(10), Wait(cause, words)), waits])
        is_lock = waits is lock and cause is not Cause.STOPPED
        assert said.cause is (Cause.FILE_LOCK if is_lock else cause), "a lock tells more itself"
        if not is_lock:
            assert said.sentence.startswith(f"process 20 (name20) waits for {what} of 10; process 10 (name10) {its}")


# -- whether it hangs -------------------------------------------------------------------------------------------------

FOR_EVER = [Cause.FILE_LOCK, Cause.MUTEX, Cause.PIPE, Cause.NETWORK, Cause.FILE, Cause.PAGE, Cause.SEMAPHORE]


@pytest.mark.parametrize("cause", FOR_EVER)
def test_a_wait_without_a_deadline_is_suspicious(cause: Cause) -> None:
    assert verdict.judge([(thread(10), Wait(cause, "it"))]).is_suspicious
    assert not verdict.judge([(thread(10), Wait(cause, "it", has_deadline=True))]).is_suspicious


@pytest.mark.parametrize("cause", [Cause.SLEEP, Cause.CLIENT, Cause.SIGNAL, Cause.EVENTS, Cause.RUNS, Cause.NOT_OURS])
def test_who_sleeps_or_listens_does_not_hang(cause: Cause) -> None:
    assert not verdict.judge([(thread(10), Wait(cause))]).is_suspicious


def test_a_shell_whose_child_sleeps_does_not_hang() -> None:
    pairs = [(thread(10), Wait(Cause.CHILD, holder_pid=20)), (thread(20, 20), Wait(Cause.SLEEP, has_deadline=True))]
    assert not verdict.judge(pairs).is_suspicious


def test_threads_that_wait_for_each_other_alone_hang_if_none_has_a_deadline() -> None:
    joins = (thread(10), Wait(Cause.THREAD, holder_tid=11))
    assert verdict.judge([joins, (thread(11), IDLE)]).is_suspicious
    assert not verdict.judge([joins, (thread(11), IDLE), (thread(12), Wait(Cause.SLEEP))]).is_suspicious
    assert not verdict.judge([joins, (thread(11), Wait(Cause.FUTEX, has_deadline=True))]).is_suspicious


def test_the_same_wait_has_the_same_fingerprint_whatever_idle_threads_do() -> None:
    def taken(*pairs: verdict.Pair) -> str:
        return verdict.fingerprint(pairs, verdict.judge(pairs))

    waits, naps = (thread(10), PIPE), Wait(Cause.SLEEP, has_deadline=True)
    assert taken(waits, (thread(11), naps)) == taken((thread(10, waited=9.0), PIPE), (thread(12), naps))
    assert taken(waits) != taken((thread(10), Wait(Cause.PIPE, "data from pipe:[2]")))
    assert taken(waits) != taken((dataclasses.replace(thread(10), registers=(1, 2, 3)), PIPE))


@pytest.mark.parametrize(
    ("call", "arguments", "has"),
    [
        ("nanosleep", (0, 0, 0, 0, 0, 0), True),
        ("poll", (1, 1, 1000, 0, 0, 0), True),
        ("poll", (1, 1, 0xFFFFFFFF, 0, 0, 0), False),
        ("ppoll", (1, 1, 0, 0, 0, 0), False),
        ("epoll_wait", (1, 1, 1, (1 << 64) - 1, 0, 0), False),
        ("futex", (1, 0, 2, 0, 0, 0), False),
        ("futex", (1, 0, 2, 4096, 0, 0), True),
        ("read", (1, 0, 0, 0, 0, 0), False),
        ("restart_syscall", (0, 0, 0, 0, 0, 0), True),
    ],
)
def test_calls_with_a_deadline(call: str, arguments: tuple[int, ...], has: bool) -> None:
    assert calls.has_deadline(call, arguments) is has


# -- what the kernel says --------------------------------------------------------------------------------------------


LOCKS = """\
1: FLOCK  ADVISORY  WRITE 100 08:01:4711 0 EOF
1: -> FLOCK  ADVISORY  WRITE 101 08:01:4711 0 EOF
1:  -> FLOCK  ADVISORY  WRITE 102 08:01:4711 0 EOF
2: POSIX  ADVISORY  READ  200 08:01:4712 0 9
3: OFDLCK ADVISORY  WRITE -1 08:01:4713 0 EOF
3: -> OFDLCK ADVISORY  WRITE -1 08:01:4713 0 EOF
nonsense
"""


def test_who_holds_a_file_lock() -> None:
    locks = file_locks.parse(LOCKS)
    assert len(locks) == 6
    assert [lock.pid for lock in file_locks.holders(locks, 101, 4711)] == [100]
    assert [lock.pid for lock in file_locks.holders(locks, 102, 0)] == [100]
    assert file_locks.holders(locks, 102, 4712) == []
    assert file_locks.holders(locks, 200, 0) == []
    # of an open file: /proc/locks says of nobody that he waits for it
    assert [lock.number for lock in file_locks.holders(locks, 100, 4713, of_open_file=True)] == ["3"]
    assert file_locks.holders(locks, 100, 4713) == file_locks.holders(locks, 100, 4711, of_open_file=True) == []


@pytest.mark.parametrize("kind", ["FLOCK", "OFDLCK"])
def test_a_lock_that_a_child_has_inherited_is_the_childs(tmp_path: Path, kind: str) -> None:
    """In a pid namespace /proc/locks leaves out locks whose taker has ended; the open file of its child has them."""
    call = {"call": "flock"} if kind == "FLOCK" else {"call": "fcntl", "arguments": (3, 38, 0, 0, 0, 0)}
    for pid, lock in ((10, ""), (20, f"lock:\t1: {kind}  ADVISORY  WRITE 0 00:2b:4711 0 EOF\n")):
        has_open(tmp_path, pid, {3: ("/x/lock", 2)})
        (tmp_path / str(pid) / "fdinfo" / "3").write_text(f"pos:\t0\nflags:\t02\nino:\t4711\n{lock}")
    waits = dataclasses.replace(thread(10), **{"call": "flock", "arguments": (3, 2, 0, 0, 0, 0), **call})
    wait = Waits([waits, thread(20, 20)], {}, str(tmp_path)).of(waits)
    assert (wait.holder, wait.holder_pid) == ("process 20 (name20)", 20)
    (tmp_path / "20" / "fdinfo" / "3").write_text("pos:\t0\nflags:\t02\nino:\t4711\n")
    wait = Waits([waits, thread(20, 20)], {}, str(tmp_path)).of(waits)
    assert (wait.holder, wait.holder_pid) == ("no process on this node that can be seen", 0)


@given(st.text())
def test_any_text_as_a_table_of_locks(text: str) -> None:
    assert file_locks.holders(file_locks.parse(text), 1, 0) == []


@pytest.mark.parametrize("end", ["\x0b", "\x0c", "\r", "\x1c", "\x85", "\u2028"])
def test_a_path_with_ends_of_lines_is_one_mapping(end: str, tmp_path: Path) -> None:
    name = f"a{end}00400000-7fffffffffff r-xp 00000000 00:00 1 lies"
    (tmp_path / name).write_bytes(b"x" * mmap.PAGESIZE)
    with open(tmp_path / name, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        paths = [mapping.path for mapping in Process(os.getpid()).mappings]
    assert str(tmp_path / name) in paths and "lies" not in paths


@pytest.mark.parametrize("path", ["", " /a", f" /{'x' * 4000}"], ids=["no file", "a file", "a long path"])
def test_of_too_many_mappings_those_at_both_ends_are_known(path: str, tmp_path: Path) -> None:
    """In a bounded part of the list; what is left out is left out as a whole."""
    count = 100_000 if len(path) < 100 else 2000
    (tmp_path / "7").mkdir()
    with open(tmp_path / "7" / "maps", "w") as maps:
        maps.writelines(
            f"{at:012x}-{at + 4096:012x} r-xp 00000000 00:00 {1 if path else 0}{path}\n"
            for at in range(1 << 32, (1 << 32) + count * 8192, 8192)
        )
    found = Process(7, str(tmp_path))
    assert 500 < len(found.mappings) <= MOST_MAPPINGS
    starts = [mapping.start for mapping in found.mappings]
    assert starts == sorted(set(starts)) and {mapping.end - mapping.start for mapping in found.mappings} == {4096}
    assert (starts[0], starts[-1]) == (1 << 32, (1 << 32) + (count - 1) * 8192)
    (at,) = (place for place, start in enumerate(starts[1:], 1) if start - starts[place - 1] != 8192)
    assert found.mapping_at(starts[at] - 8192) is None and found.mapping_at(starts[at]) is found.mappings[at]


def test_whoever_names_his_socket_as_a_line_of_the_kernels_names_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as liar:
        one.bind("mine")
        inode = sockets.inode_of(os.readlink(f"/proc/self/fd/{one.fileno()}"))
        process = Process(os.getpid())
        assert sockets.find(process, inode).words == "unix socket mine"
        liar.bind(f"\0a\n0: 00000002 00000000 00010000 0001 01 {inode} /lies")
        assert sockets.find(process, inode).words == "unix socket whose name is not known"


class Tables(Process):
    """A process with four sockets."""

    def text(self, name: str) -> str:
        lines = {
            "net/tcp": "head\n 0: 0100007F:1F90 0200007F:0050 01 0:0 0:0 0 0 0 55 1\n"
            " 1: 0100007F:0001 0100007F:0002 01 0:0 0:0 0 0 0 60 1\n"
            " 2: 0100007F:0002 0100007F:0001 01 0:0 0:0 0 0 0 61 1\n",
            "net/tcp6": f"head\n 0: {'0' * 16}FFFF00000100007F:0050 {'0' * 32}:0000 0A 0:0 0:0 0 0 0 56 1\n",
            "net/unix": "head\n0: 2 0 0 1 01 57 /run/x y\n1: 2 0 0 1 01 59\n",
            "status": "Threads:\t1\n",
        }
        return lines.get(name, "")

    def descriptor(self, number: int) -> Descriptor | None:
        return Descriptor(number, f"socket:[{number}]", 2, 0, 0, 0, ())

    def read(self, address: int, size: int) -> bytes:
        return self.polled[:size]

    polled = b""


def test_both_ends_of_a_socket() -> None:
    process = Tables(1)
    assert (sockets.find(process, 55).peer, sockets.find(process, 56).is_listening) == ("127.0.0.2:80", True)
    assert sockets.find(process, 55).words == "tcp 127.0.0.1:8080 -> 127.0.0.2:80, established"
    assert sockets.find(process, 56).words == "tcp 127.0.0.1:80, listening"
    assert sockets.find(process, 57).words == "unix socket /run/x y"
    assert sockets.find(process, 58) is None
    assert [sockets.other_end(process, sockets.find(process, inode)) for inode in (55, 57, 60, 61)] == [0, 0, 61, 60]
    assert (sockets.inode_of("socket:[12]"), sockets.inode_of("pipe:[12]")) == (12, 0)


@pytest.mark.parametrize(
    ("polled", "cause", "words", "peer"),
    [
        ([55], Cause.NETWORK, "tcp 127.0.0.1:8080 -> 127.0.0.2:80, established", "127.0.0.2:80"),
        ([56], Cause.CLIENT, "somebody who connects", ""),
        ([57], Cause.NETWORK, "unix socket /run/x y", ""),
        ([59], Cause.FUTEX, "something of another thread or process", ""),  # by which an event loop wakes itself
        ([59, 55], Cause.NETWORK, "tcp 127.0.0.1:8080 -> 127.0.0.2:80, established, and 1 others", "127.0.0.2:80"),
        ([57, 55], Cause.NETWORK, "unix socket /run/x y, and 1 others", ""),
        ([55, 56], Cause.EVENTS, "any of 2 descriptors", ""),
        ([55, 58], Cause.EVENTS, "any of 2 descriptors", ""),
    ],
)
def test_what_a_poll_of_sockets_waits_for(polled: list[int], cause: Cause, words: str, peer: str) -> None:
    waits = dataclasses.replace(thread(10), call="poll", arguments=(8, len(polled), 1 << 31, 0, 0, 0))
    found = Waits([waits], {})
    found.processes[10] = process = Tables(10)
    process.polled = b"".join(struct.pack("<ihh", number, 1, 0) for number in polled)
    wait = found.of(waits)
    assert (wait.cause, wait.object, wait.peer) == (cause, words, peer)


def test_the_iterators_output_that_is_cut_off_is_no_thread() -> None:
    with pytest.raises(ValueError):
        threads.parse(b"x" * 10)
    assert threads.parse(b"") == []


def test_a_threads_report_is_as_the_kernels_program_writes_it() -> None:
    """joblens_evidence.h has it."""
    flags = kernel_lib.THREAD_IS_OWNERS, kernel_lib.THREAD_HAS_REGISTERS, kernel_lib.THREAD_IS_ZOMBIE
    assert flags == (threads.IS_OWNERS, threads.HAS_REGISTERS, threads.IS_ZOMBIE)
    report = kernel_ffi.new("struct thread_report *", {"tid": 7, "tgid": 5, "parent_tgid": 1, "inner_tid": 3})
    report.flags = flags[0] | flags[1]
    report.state, report.waited_ns, report.call, report.arguments[5] = 1, 10**9, (1 << 64) - 1, 6
    report.ip, report.sp, report.bp, report.thread_pointer, report.kernel_frames = 11, 12, 13, 14, 1
    report.name = b"worker"
    (found,) = threads.parse(bytes(kernel_ffi.buffer(report)) + b"pipe_read+0x1/0x2\n")
    assert found == Thread(7, 5, 1, 3, "worker", "S", True, 1.0, "", (), (11, 12, 13), 14, ("pipe_read+0x1/0x2",))
    report.call = 0
    (found,) = threads.parse(bytes(kernel_ffi.buffer(report)) + b"pipe_read+0x1/0x2\n")
    assert (found.call, found.arguments) == ("read" if os.uname().machine == "x86_64" else found.call, (0,) * 5 + (6,))


def test_calls_have_names() -> None:
    assert calls.name({"x86_64": 73, "aarch64": 32}[os.uname().machine]) == "flock"
    assert calls.name(9999) == "call 9999"


# -- stacks ----------------------------------------------------------------------------------------------------------


class Fake:
    """A program of one rule everywhere, and words of memory."""

    def __init__(self, rules: dict[int, Rule], words: dict[int, int]) -> None:
        self._rules, self._words = rules, words

    def rule(self, address: int) -> Rule:
        return self._rules.get(address, elf.NO_RULE)

    def read(self, address: int, size: int) -> bytes:
        return self._words[address].to_bytes(8, "little") if address in self._words else b""


def test_a_stack_by_tables_then_by_frame_pointers_is_marked() -> None:
    rules = {100: Rule(lib.RULE_STACK, 16, 16)}
    words = {0x1008: 200, 0x1000: 0x2000, 0x2008: 0, 0x2000: 0}
    found = unwind.unwind(Fake(rules, words), 100, 0x1000, 0x7777)
    assert [(step.address, step.is_guessed) for step in found.steps] == [(100, False), (199, False)]
    assert not found.is_whole
    words[0x2008] = 300
    found = unwind.unwind(Fake(rules, words), 100, 0x1000, 0x7777)
    assert [(step.address, step.is_guessed) for step in found.steps][2:] == [(299, True)]


def test_a_stack_that_leads_in_a_circle_ends() -> None:
    rules = dict.fromkeys(range(1000), Rule(lib.RULE_FRAME, 16, 16))
    found = unwind.unwind(Fake(rules, {0x1008: 200, 0x1000: 0x1000}), 100, 0x800, 0x1000)
    assert len(found.steps) <= unwind.MOST_FRAMES
    assert not found.is_whole


def test_the_table_of_the_c_library() -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("unwind tables are read on x86-64 alone")
    address = ctypes.cast(ctypes.CDLL(None).flock, ctypes.c_void_p).value
    mapping = Process(os.getpid()).mapping_at(address or 0)
    assert mapping is not None
    library = _opened(mapping.path)
    rows = library.rows
    assert len(rows) > 10_000
    assert rows.tolist() == sorted(rows)
    offset = (address or 0) - mapping.start + mapping.offset
    found = library.function(offset + 1)
    assert found is not None
    assert found[0] in ("flock", "__flock")
    assert found[1] == offset
    # a function begins with the return address on top of the stack
    assert library.rule(offset) == Rule(lib.RULE_STACK, 8, 0)


def test_a_file_of_more_than_two_gigabytes_is_read_where_it_has_something(tmp_path: Path) -> None:
    """Its section headers lie behind that. The reader of samples may take 512 MiB."""
    content, far = bytearray(_small_program()), (2 << 30) + 4096
    (sections,) = struct.unpack_from("<Q", content, 0x28)
    size, count = struct.unpack_from("<HH", content, 0x3A)
    struct.pack_into("<Q", content, 0x28, far)
    large, small = tmp_path / "large", tmp_path / "small"
    small.write_bytes(_small_program())
    with open(large, "wb") as file:
        file.write(content)
        file.seek(far)
        file.write(content[sections : sections + size * count])
    with open(large, "rb") as file, open(small, "rb") as same:
        tracemalloc.start()
        try:
            found, wanted = Elf.unmapped(file.fileno()), Elf.unmapped(same.fileno())
            assert len(found.rows) and found.rows == wanted.rows and found.build_id == wanted.build_id
            offsets = (found.rows >> np.uint64(32)).tolist()
            assert found.functions(offsets) == wanted.functions(offsets)
            assert tracemalloc.get_traced_memory()[1] < 64 << 20
        finally:
            tracemalloc.stop()


def _opened(path: str) -> Elf:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return Elf(descriptor)
    finally:
        os.close(descriptor)


def _use(content: bytes) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        try:
            found = Elf(file.fileno())
            for offset in (0, 64, 0x1000, 1 << 33):
                found.rule(offset)
                found.function(offset)
        except ElfError:
            pass


@given(st.data())
def test_a_file_of_which_any_bytes_are_wrong(data: st.DataObject) -> None:
    content = bytearray(_small_program())
    for _ in range(data.draw(st.integers(1, 12))):
        at = data.draw(st.one_of(st.integers(0, 1023), st.integers(0, len(content) - 1)))
        content[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    _use(bytes(content))


@given(st.binary(max_size=4096))
def test_any_file(content: bytes) -> None:
    _use(content)
    _use(b"\x7fELF\x02\x01" + content)


def _small_program() -> bytes:
    """A real program, of which all parts are there."""
    return next(Path(path) for path in ("/usr/bin/true", "/bin/true") if Path(path).exists()).read_bytes()


@given(st.binary(max_size=2000))
def test_any_section_of_unwind_rules(section: bytes) -> None:
    code = ffi.new("struct code[]", [{"address": 0, "offset": 0, "size": 1 << 32}])
    count = lib.unwind_rows(section, len(section), 0, code, 1, ffi.NULL, 0)
    rows = ffi.new("uint64_t[]", max(count, 1))
    assert lib.unwind_rows(section, len(section), 0, code, 1, rows, count) == count


def test_names_of_functions() -> None:
    assert demangled("_ZN4Tree4FillEi") == "Tree::Fill(int)"
    assert demangled("main") == "main"
    assert demangled("_Znonsense") == "_Znonsense"
    assert demangled("_ZN4Tree4FillEi" + "i" * 10_000).startswith("_ZN4Tree")


# -- what a person sees ----------------------------------------------------------------------------------------------

LINES = b"""\
{"part":"threads","threads":[{"tid":10,"pid":10,"parent":1,"name":"a\\u001b[31m","state":"S","waited":3.0,"call":"read",\
"kernel":["pipe_read"]}],"left_out":2}
{"part":"waits","cause":"pipe","sentence":"process 10 waits","tid":10,"waits":{"10":{"cause":"pipe",\
"object":"pipe:[1]","holder":"<b>\\n","holder_pid":0,"holder_tid":0}}}
{"part":"stacks","pid":10,"stacks":[{"tids":[10],"frames":[{"function":"","file":"/x/libx.so","offset":16,"line":0,"python":false,"guessed":true}],\
"whole":false}],"refused":""}
{"part":"end"}
"""


def test_what_is_shown_is_escaped_and_says_what_is_missing() -> None:
    found = told.parse(LINES)
    text = "\n".join([*hang.page(found, Style()), *stacks.page(found, Style())])
    assert "\x1b" not in text
    assert "libx.so+0x10?" in text
    assert "(guessed)" in text
    assert "(its callers are unknown)" in text
    assert "and 2 threads that were not looked at" in text
    assert "this is not all" not in text


def crowd(count: int) -> list[Thread]:
    """Half of them wait for one thing, the others for another; and one reads from a pipe."""
    kernel = ("futex_do_wait+0x1/0x2", "__futex_wait+0x1/0x2", "do_syscall_64+0x1/0x2")
    there = (0, 0x80, 0, 0, 0, 0)
    found = [
        dataclasses.replace(
            thread(10 + number, waited=float(number)), call="futex", arguments=there, kernel=kernel,
            registers=(number % 2, number * 100, 0),
        )
        for number in range(count)
    ]  # fmt: skip
    return [*found, dataclasses.replace(thread(10 + count), call="msgrcv", registers=(7, 7, 7), kernel=kernel)]


@pytest.mark.parametrize("count", [100, 10_000])
def test_threads_that_wait_alike_are_told_of_in_few_bytes(count: int) -> None:
    lines = b"".join(
        json.dumps(part, separators=(",", ":")).encode() + b"\n" for part in look.parts(crowd(count), {}, "/nowhere")
    )
    found = told.parse(lines)
    assert len(lines) <= 64 << 10
    assert found.left_out == 0 and sum(1 + each.alike for each in found.threads) == count + 1
    assert (found.cause, found.tid) == ("message queue", 10 + count)
    text = "\n".join(evidence_page.page(found))
    assert (f"and {count - 17} more that wait for the same; where was not read" in text) == (count > 1000)
    assert (f"    and {count - 17} more that wait" in "\n".join(stacks.page(found, Style()))) == (count > 1000)


def test_threads_that_all_wait_for_something_else_are_told_of_up_to_a_number() -> None:
    several = [dataclasses.replace(thread(10 + number), call=f"call {number}") for number in range(3000)]
    shown = alike.first_of(several)
    assert len(shown) == alike.MOST_THREADS and shown[0].is_first
    pairs = [(each, Wait(Cause.UNKNOWN, each.call)) for each in several]
    found = alike.beyond(pairs, shown, [3009])
    assert ([each.tid for each in found.more], found.alike, found.left_out) == ([3009], {}, 999)


def test_a_thread_is_alike_only_if_it_waits_for_the_same() -> None:
    """The kernel's own words are the same for all of them."""
    several = crowd(2000)[:-1]
    shown = alike.first_of(several)
    others = {1999: Wait(Cause.MUTEX, "a mutex at 0x10"), 1001: Wait(Cause.MUTEX, "a mutex at 0x20")}
    pairs = [(each, others.get(each.tid, IDLE)) for each in several]
    found = alike.beyond(pairs, shown, [])
    assert {each.tid for each in found.more} == set(others)
    assert sum(found.alike.values()) == 2000 - len(shown) - 2 and found.left_out == 0


@pytest.mark.parametrize("lines", range(4))
def test_evidence_that_ends_before_its_time(lines: int) -> None:
    cut = told.parse(b"".join(LINES.splitlines(keepends=True)[:lines]) + b'{"part":"wai')
    assert not cut.is_whole
    page = hang.page(cut, Style())
    assert "this is not all: a file or a process of the job did not answer in time" in page
    assert (lines > 1) == ("cause: pipe" in page)
    if lines < 2:
        assert "could not be read in time" in page[0]


def test_a_text_has_as_much_of_it_as_fits() -> None:
    found = told.parse(LINES)
    whole = evidence_page.file("ours:", found, 60_000).decode()
    assert whole.splitlines() == ["ours:", "", *hang.page(found, Style())]
    first = found.threads[0]
    found.threads = [dataclasses.replace(first, tid=tid, object=f"{tid}" * 300) for tid in range(10_000)]
    for most in (200, 1000, 60_000):
        cut = evidence_page.file("ours:", found, most)
        assert len(cut) <= most and cut.endswith(b"and more, for which there is no room\n")
        assert max(map(len, cut.splitlines())) <= evidence_page.MOST_LINE


@pytest.mark.parametrize("line", [b"[]\n", b"{}\n", b"nonsense\n", b'{"part":"threads","threads":[1],"left_out":0}\n'])
def test_evidence_that_makes_no_sense(line: bytes) -> None:
    with pytest.raises(JobLensError, match="makes no sense"):
        told.parse(line)
