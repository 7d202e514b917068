"""Every way to stand still, in C++ and Python: what is told of it is what the job knows itself.

Each way alone, beside threads that have nothing to do, in a pid namespace of its own, and in all of that. `make test`
has each alone and in all of that, and --soak the two others.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ground import HERE, Slot, until
from python_roots import root_of
from test_evidence import (
    ALICE,
    SECONDS,
    Look,
    as_user,
    assert_whole,
    judged,
    look,
    lookers,
    own_cgroup,
    program,
    seen,
    start_command,
    summary_of,
    thread_of,
)

from condor_joblens.profiles import caller, evidence_page
from condor_joblens.profiles import evidence as told
from condor_joblens.profiles.evidence import Evidence
from condor_joblens.profiles.thread import INTERPRETER_LOCK, Thread

__all__ = ["look", "lookers", "program"]

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="unwind tables are read on x86-64 alone")

IDLE = 50
HOLDER = "77.0"
"""The job that has the lock."""


@dataclass(frozen=True)
class Way:
    """What is to be said of it."""

    cause: str
    is_harmless: bool = False  # it ends by itself, or a job may wait so for as long as it likes
    first: str = ""  # cause of the first thread, if that waits for another thread or process, and this tells more
    needs: str = ""  # lock or fifo: a file that is there


CPP = {
    "sleep": Way("sleep", is_harmless=True),
    "pipe": Way("pipe"),
    "poll_pipe": Way("pipe"),
    "full_pipe": Way("pipe"),
    "pipe_of_child": Way("sleep", is_harmless=True, first="pipe"),
    "unread_child": Way("deadlock"),
    "locked_out_child": Way("deadlock"),
    "both_receive": Way("deadlock"),
    "behind_terminal": Way("unknown", is_harmless=True),
    "fifo": Way("pipe", needs="fifo"),
    "recv": Way("network"),
    "uring": Way("network"),
    "poll": Way("network"),
    "select": Way("network"),
    "epoll": Way("network"),
    "poll_and_sleep": Way("network", is_harmless=True),
    "udp": Way("network"),
    "unix": Way("network"),
    "join": Way("network", first="thread"),
    "accept": Way("client", is_harmless=True),
    "poll_clients": Way("client", is_harmless=True),
    "terminal": Way("terminal"),
    "flock": Way("file lock", needs="lock"),
    "fcntl": Way("file lock", needs="lock"),
    "ofd": Way("file lock", needs="lock"),
    "mutex": Way("mutex"),
    "forked_mutex": Way("mutex", first="child"),
    "own_mutex": Way("deadlock"),
    "deadlock": Way("deadlock", first="thread"),
    "three": Way("deadlock", first="thread"),
    "condition": Way("unknown"),
    "rwlock": Way("unknown", first="thread"),
    "leaked_read": Way("unknown"),
    "writer": Way("mutex"),
    "second_writer": Way("mutex"),
    "ended_writer": Way("mutex"),
    "posix_semaphore": Way("unknown"),
    "semaphore": Way("semaphore"),
    "queue": Way("message queue"),
    "pause": Way("signal", is_harmless=True),
    "child": Way("sleep", is_harmless=True, first="child"),
    "vfork": Way("signal", is_harmless=True, first="child"),
}
_LOCK = "read-write lock"
LOCKS = {name: ("write",) for name in ("rwlock", "leaked_read", "second_writer")}
LOCKS |= {name: ("read",) for name in ("writer", "ended_writer")}
"""What is to be done with such locks."""

PYTHON = {
    "sleep": Way("sleep", is_harmless=True),
    "pipe": Way("pipe"),
    "fifo": Way("pipe", needs="fifo"),
    "recv": Way("network"),
    "poll": Way("network"),
    "selected": Way("network"),
    "urlopen": Way("network"),
    "awaited": Way("network"),
    "join": Way("network", first="unknown"),
    "future": Way("network", first="unknown"),
    "stdin": Way("pipe"),
    "accept": Way("client", is_harmless=True),
    "flock": Way("file lock", needs="lock"),
    "lockf": Way("file lock", needs="lock"),
    "lock": Way("unknown"),
    "shared_lock": Way("unknown", is_harmless=True),
    "condition": Way("unknown"),
    "semaphore": Way("unknown"),
    "event": Way("unknown"),
    "get": Way("unknown"),
    "never_awaited": Way("unknown"),
    "subprocess_run": Way("sleep", is_harmless=True, first="child"),
    "communicate": Way("sleep", is_harmless=True, first="pipe"),
    "both_outputs": Way("sleep", is_harmless=True, first="pipe"),
    "waitpid": Way("sleep", is_harmless=True, first="child"),
    "unread_child": Way("deadlock"),
    "unread_queue": Way("deadlock"),
    "output_of_a_child": Way("sleep", is_harmless=True, first="pipe"),
    "process": Way("network", first="child"),
    "killed_worker": Way("unknown"),
    "interpreter_lock": Way("pipe"),
    "deadlock_with_interpreter": Way("deadlock"),
}


THROUGH = {
    "condition": r"threading\.py:\d+ (Condition\.)?wait",
    "get": r"queue\.py:\d+ (Queue\.)?get",
    "urlopen": r"request\.py:\d+ urlopen",
}
"""What of Python's library these have called."""


@dataclass(frozen=True)
class Surroundings:
    """What is around the thread that waits."""

    has_idle: bool = False  # threads of the same process
    has_namespace: bool = False  # of its own: its threads have other numbers there


ALONE, ALL = Surroundings(), Surroundings(True, True)
OTHERS = {"idle_threads": Surroundings(has_idle=True), "namespace": Surroundings(has_namespace=True)}


def cases(ways: dict[str, Way]) -> Iterator[Any]:
    for name in ways:
        yield pytest.param(name, ALONE, id=f"{name}-alone", marks=pytest.mark.guest)
        yield pytest.param(name, ALL, id=f"{name}-idle_threads_in_namespace")
        for word, where in OTHERS.items():
            yield pytest.param(name, where, id=f"{name}-{word}", marks=pytest.mark.soak)


@dataclass
class Standing:
    """A job that stands still, and what it knows of that."""

    pid: int  # of the process that does it
    in_namespace: int  # of its starter, if it is in a namespace; else 0
    told: Path

    def truth(self, found: Evidence) -> dict[str, list[Any]]:
        """What it has said, by its word; numbers of threads as they are outside."""
        outside = {inner(thread): thread for thread in found.threads if thread.pid != self.in_namespace}
        said: dict[str, list[Any]] = {}
        for line in self.told.read_text().splitlines():
            word, _, value = line.partition(" ")
            is_thread = word in ("holder_pid", "holder_tid", "cycle")
            said.setdefault(word, []).append(outside[int(value)].tid if is_thread else value)
        return said


def inner(thread: Thread) -> int:
    """Its number in its own namespace."""
    lines = Path(f"/proc/{thread.pid}/task/{thread.tid}/status").read_text().splitlines()
    return int(next(line.split()[-1] for line in lines if line.startswith("NSpid:")))


@pytest.fixture
def folder() -> Iterator[Path]:
    """One in which every user may look."""
    with tempfile.TemporaryDirectory(prefix="joblens-ways", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def standing(
    slot: Slot, folder: Path, command: list[str], name: str, way: Way, where: Surroundings
) -> Iterator[Standing]:
    told, path = folder / "told", folder / "file"
    told.touch()
    os.mkfifo(path) if way.needs == "fifo" else path.touch()
    for each in (told, path):
        each.chmod(0o666)
    if where.has_namespace:
        command = ["/usr/bin/unshare", "-r", "-m", "-p", "--fork", "--", *command]
    more = ["idle"] if where.has_idle else []
    with open(path, "r+") if way.needs == "lock" else open(os.devnull) as file:
        if way.needs == "lock":
            (fcntl.flock if name == "flock" else fcntl.lockf)(file, fcntl.LOCK_EX)
        started = pid = start_command(slot, [*command, name, str(path), *more], HANG_TOLD=str(told))
        if where.has_namespace:
            children = Path(f"/proc/{started}/task/{started}/children")
            until(lambda: children.read_text().split(), SECONDS)
            pid = int(children.read_text())
        yield Standing(pid, started if where.has_namespace else 0, told)


def stood(look: Look, job: Standing, way: Way, where: Surroundings) -> Evidence:
    """Two looks that find the same, as soon as no thread is on its way any more: what they have found."""

    def stands(found: Evidence) -> bool:
        threads = [thread for thread in found.threads if thread.pid == job.pid]
        first = next((thread for thread in threads if thread.tid == job.pid), None)
        if found.cause != way.cause or first is None or first.cause == "runs":
            return False
        if len(threads) < 1 + (IDLE if where.has_idle else 0) or (way.first and first.tid == found.tid):
            return False
        return judged(look) == (way.cause, not way.is_harmless) and summary_of(look) == summary_of(look)

    return seen(look, stands)


def assert_true(found: Evidence, job: Standing, way: Way) -> None:
    """What programs are told is what the job knows."""
    truth, record = job.truth(found), found.record()
    assert record["Cause"] == way.cause
    first = thread_of(found, job.pid)
    about = first.record() if way.first and way.cause != "network" else record
    if way.first not in ("", "unknown"):
        assert first.cause == way.first
    if way.first in ("child", "pipe"):
        assert found.tid != job.pid and first.holder_pid == record["Pid"]
    for word, name in (
        ("holder_pid", "HolderPid"), ("holder_tid", "HolderTid"), ("target", "Target"), ("protocol", "Protocol"),
        ("peer", "Peer"),
    ):  # fmt: skip
        if word in truth:
            assert [about[name]] == truth[word], name
    if "descriptor" in truth:
        assert [str(about["Descriptor"])] == truth["descriptor"]
    assert sorted(record["Cycle"]) == sorted(truth.get("cycle", []))
    if way.needs == "lock":
        assert about["HolderJob"] == HOLDER


def called_by(found: Evidence) -> str:
    """What stands before the function in the sentence: of those that wait for each other, each has one."""
    return f"; {found.tid} in " if len(found.cycle) > 1 else "; called by "


@pytest.mark.parametrize(("name", "where"), list(cases(CPP)))
def test_in_cpp(name: str, where: Surroundings, slot: Slot, look: Look, program: Path, folder: Path) -> None:
    look.jobs = {own_cgroup(): HOLDER}
    way = CPP[name]
    with standing(slot, folder, [str(program)], name, way, where) as job:
        found = stood(look, job, way, where)
        assert_true(found, job, way)
        if name != "vfork":  # its child has the same stack, and has written over the return address
            assert_whole(thread_of(found, job.pid))
        if not way.first and way.cause != "mutex":
            assert found.tid == job.pid or (way.cause == "unknown" and where.has_idle)
        if found.tid == job.pid:
            assert f"{called_by(found)}wait_for_ever(std::" in found.sentence
        is_orphaned = ", which this process does not have: it has ended" in found.sentence
        assert is_orphaned == (name in ("forked_mutex", "ended_writer"))
        of_lock = [(each.object.partition(" at ")[0], each.holder) for each in found.threads if _LOCK in each.object]
        assert [what for what, _ in of_lock] == [f"a {_LOCK} (to {word})" for word in LOCKS.get(name, ())]
        if name in ("rwlock", "leaked_read"):
            times = "once" if name == "rwlock" else "2 times"
            alone = "" if where.has_idle or name == "rwlock" else ", and its process has no other thread"
            assert of_lock[0][1] == f"readers, {times}{alone}"
        for tid, after in zip(found.cycle, [*found.cycle[1:], *found.cycle[:1]]):
            thread = thread_of(found, tid)
            assert (thread.holder_tid or thread.holder_pid) == after


@pytest.mark.parametrize(("name", "where"), list(cases(PYTHON)))
def test_in_python(name: str, where: Surroundings, slot: Slot, look: Look, folder: Path) -> None:
    look.jobs = {own_cgroup(): HOLDER}
    way = PYTHON[name]
    script = shutil.copy(HERE / "hang_in_python.py", folder)
    with standing(slot, folder, [os.path.realpath("/usr/bin/python3"), script], name, way, where) as job:
        found = stood(look, job, way, where)
        assert_true(found, job, way)
        if "called" in (truth := job.truth(found)):
            waiting = found.telling if (way.cause, way.first) == ("network", "unknown") else thread_of(found, job.pid)
            called = caller.of(waiting) if waiting is not None else None
            assert called is not None and [caller.words(called)] == truth["called"]
            assert found.tid != job.pid or f"{called_by(found)}{truth['called'][0]}" in found.sentence
        assert ("data from standard input, pipe:" in found.sentence) == (name == "stdin")
        if name == "interpreter_lock":  # each look may find the other thread awake
            held = rf"held by thread {job.pid} \(\S+\)"
            said = re.compile(rf"; thread \d+ \(\S+\) waits for {INTERPRETER_LOCK}, {held}; called by ")
            seen(look, lambda found: found.cause == way.cause and said.search(found.sentence))
        if through := THROUGH.get(name):
            assert re.search(rf"; called by \S+ {name}\(\) through {through}\(\)", found.sentence)


@pytest.mark.parametrize("version", ["3.9", "3.13", "3.14"])
def test_who_has_the_lock_of_another_python(version: str, slot: Slot, look: Look) -> None:
    """It keeps that elsewhere in each version. Who has the lock waits for one of C, which another thread has."""
    with root_of(version) as root, tempfile.TemporaryDirectory(dir=root / "tmp") as name:
        folder, told = Path(name), Path(name, "told")
        folder.chmod(0o755)
        told.touch()
        told.chmod(0o666)
        script = shutil.copy(HERE / "hang_in_python.py", folder)

        def act() -> None:
            os.chroot(root)
            os.chdir("/")
            as_user(ALICE)
            inside = [f"/{Path(path).relative_to(root)}" for path in (script, told)]
            command = [f"/usr/bin/python{version}", inside[0], "deadlock_with_interpreter", "-"]
            os.execve(command[0], command, {"HANG_TOLD": inside[1]})

        job, way = Standing(slot.fork(act), 0, told), PYTHON["deadlock_with_interpreter"]
        found = stood(look, job, way, ALONE)
        assert_true(found, job, way)
        (wants,) = [thread for thread in found.threads if thread.object == INTERPRETER_LOCK]
        assert (found.tid, wants.holder_tid, len(found.cycle)) == (job.pid, job.pid, 2)
        assert f"{wants.tid} waits for {INTERPRETER_LOCK} of {job.pid}; {job.pid} in " in found.sentence


def test_of_thousands_of_threads_few_bytes_are_told(slot: Slot, look: Look, program: Path) -> None:
    """All of them are counted, and both places are found."""
    pid = start_command(slot, [str(program), "crowd", "-"], HANG_TOLD=os.devnull)

    def counted(found: Evidence, cause: str) -> int:
        return sum(1 + thread.alike for thread in found.threads if thread.cause == cause)

    def stands(found: Evidence) -> bool:
        return found.cause == "mutex" and (counted(found, "mutex"), counted(found, "futex")) == (1250, 1250)

    found = seen(look, stands)
    assert len(look.lines()) <= 64 << 10
    assert (found.left_out, thread_of(found, pid).cause) == (0, "signal")
    for cause in ("mutex", "futex"):
        assert next(each for each in found.threads if each.cause == cause).is_whole
    (line,) = [line for line in evidence_page.page(found) if "mutex: a mutex at" in line]
    assert f"; thread {pid} (hang)" in line


@pytest.mark.guest
@pytest.mark.parametrize("name", ["dead_owner", "shared_mutex"])
def test_a_mutex_that_processes_share(name: str, slot: Slot, look: Look, program: Path, folder: Path) -> None:
    with standing(slot, folder, [str(program)], name, Way("mutex"), ALONE) as job:
        found = stood(look, job, Way("mutex"), ALONE)
        truth = job.truth(found)
        holder = truth.get("holder_pid", [0])[0]
        assert (found.tid, found.record()["HolderPid"], found.record()["HolderTid"]) == (job.pid, holder, holder)
        (file,) = truth["file"]
        assert re.search(rf" waits for a mutex at 0x[0-9a-f]+ in {re.escape(file)} in futex", found.sentence)
        dead = f"thread {truth.get('dead', [''])[0]}, which has ended, or can't be seen from here"
        assert f"; held by {f'process {holder} (hang)' if holder else dead}; called by " in found.sentence


def test_no_owner_is_told_by_a_number_of_another_namespace(slot: Slot, look: Look, program: Path, folder: Path) -> None:
    """Of a mutex that processes share: its owner may be in a third one."""
    where, way = Surroundings(has_namespace=True), Way("unknown")
    with standing(slot, folder, [str(program)], "dead_owner", way, where) as job:
        found = stood(look, job, way, where)
        (file,) = job.truth(found)["file"]
        assert f" waits for something of another process in {file} in futex" in found.sentence


@pytest.mark.guest
@pytest.mark.parametrize("is_apart", [False, True])
@pytest.mark.parametrize("name", ["semaphore", "used_semaphore"])
def test_which_system_v_semaphore(
    name: str, is_apart: bool, slot: Slot, look: Look, program: Path, folder: Path
) -> None:
    """Of another IPC namespace than joblensd's, the set has the number that the call has, and no more is known."""
    command = [*(("/usr/bin/unshare", "-r", "-i", "--") if is_apart else ()), str(program)]
    with standing(slot, folder, command, name, Way("semaphore"), ALONE) as job:
        found = stood(look, job, Way("semaphore"), ALONE)
        truth = job.truth(found)
        known = "no semop has ended there yet"
        if name == "used_semaphore":
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(int(truth["changed"][0])))
            known = f"key {int(truth['key'][0]):#x}, the last semop ended there on {when}"
        known = "" if is_apart else f" ({known})"
        assert f" waits for semaphore 1 of the System V set {truth['set'][0]}{known}, to take 2 in " in found.sentence
        if not is_apart:
            subprocess.run(["ipcrm", "-s", truth["set"][0]], check=True)


def python_job(slot: Slot, folder: Path, way: str, path: str) -> int:
    (folder / "told").touch()
    (folder / "told").chmod(0o666)
    script = shutil.copy(HERE / "hang_in_python.py", folder)
    command = [os.path.realpath("/usr/bin/python3"), script, way, path]
    return start_command(slot, command, HANG_TOLD=str(folder / "told"))


def test_who_tries_again_on_a_full_file_system_is_told_so(slot: Slot, look: Look, folder: Path) -> None:
    (folder / "small").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", folder / "small"], check=True)
    try:
        (folder / "small" / "out").touch()
        (folder / "small" / "out").chmod(0o666)
        pid = python_job(slot, folder, "disk_full", str(folder / "small" / "out"))
        found = seen(look, lambda found: found.cause == "sleep" and found.record()["Pid"] == pid)
        words = (
            f"; {folder}/small/out is open for writing, and its file system (tmpfs at {folder}/small) has 0 bytes left"
        )
        assert words in found.sentence and "; called by hang_in_python.py:" in found.sentence
    finally:
        subprocess.run(["umount", "-l", folder / "small"], check=True)


def test_of_a_lock_that_tells_no_owner_it_is_said_who_was_killed_before(slot: Slot, look: Look, folder: Path) -> None:
    """As a worker of a pool that had its lock."""
    python_job(slot, folder, "semaphore", "-")
    seen(look, lambda found: found.cause == "unknown" and " in futex " in found.sentence)
    killed = "SIGKILL in worker.py (process 12), 6 min ago"
    found = told.parse(b"".join(look.packets(killed=killed)))
    assert f"; before: {killed}: what it held, nobody gives back" in found.sentence


def test_how_long_the_other_end_has_been_silent(slot: Slot, look: Look, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        pid = python_job(slot, folder, "silent", f"{host}:{port}")
        server.settimeout(SECONDS)
        client, _ = server.accept()
        with client:
            for _ in range(2):
                before = time.monotonic()
                client.send(b"x")
                assert client.recv(1) == b"x"
                found = seen(look, lambda found: found.cause == "network" and thread_of(found, pid).waited > 0.5)
                assert found.record()["SilentSeconds"] <= time.monotonic() - before + 1, "since that"
                assert f"{host}:{port}, established, which has sent nothing for " in found.sentence
                until(lambda: (thread_of(look(), pid).record()["SilentSeconds"] or 0) > 2, SECONDS)


def test_a_name_server_that_does_not_answer(slot: Slot, look: Look, folder: Path) -> None:
    (folder / "told").touch()
    (folder / "told").chmod(0o666)
    (folder / "resolv.conf").write_text("nameserver 127.0.0.99\noptions timeout:30 attempts:5\n")
    (folder / "nsswitch.conf").write_text("hosts: dns\n")
    script = shutil.copy(HERE / "hang_in_python.py", folder)
    mounts = [f"mount --bind {folder}/{name} /etc/{name}" for name in ("resolv.conf", "nsswitch.conf")]
    job = f"exec {os.path.realpath('/usr/bin/python3')} {script} getaddrinfo -"
    command = ["/usr/bin/unshare", "-r", "-m", "--", "sh", "-c", " && ".join([*mounts, job])]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.99", 53))
        pid = start_command(slot, command, HANG_TOLD=str(folder / "told"))
        found = seen(look, lambda found: found.cause == "network" and found.record()["Pid"] == pid)
        assert (found.record()["Protocol"], found.record()["Peer"]) == ("udp", "127.0.0.99:53")
        assert " waits for an answer of the DNS server 127.0.0.99 (udp 127.0.0.1:" in found.sentence
        assert "; called by hang_in_python.py:" in found.sentence and "getaddrinfo()" in found.sentence
        assert summary_of(look)["suspicious"] is False, "the resolver gives it up"
