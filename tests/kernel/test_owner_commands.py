"""ps, tail and kill in a real cgroup, by the process that becomes the job's owner and can do no more than that."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ground import Slot, is_native, until, until_asleep

from condor_joblens.common import descriptors
from condor_joblens.common.process_starter import MOST_FOR_ONE, ProcessStarter
from condor_joblens.control.child_output import CONTENT, FAILED, MOST, NOTICE, WHOLE
from condor_joblens.owner_files.allowed_ids import AllowedIds
from condor_joblens.profiling import starter as starters

OWN, ALICE, BOB = 64001, 12345, 12346
ALLOWED = AllowedIds(1000, (), 1000, ()).encode()
SECONDS = 60.0 if is_native() else 300.0

pytestmark = pytest.mark.guest


@pytest.fixture(scope="module")
def owners() -> Iterator[ProcessStarter]:
    found = ProcessStarter("what looks at jobs", ALLOWED, OWN, OWN, starters.__name__)
    yield found
    found.close()


class Asker:
    """Asks as joblensd does, about a job of Alice in a slot."""

    def __init__(self, slot: Slot, owners: ProcessStarter, scratch: Path) -> None:
        self._slot, self._owners, self.scratch = slot, owners, scratch
        self.for_whom: int | None = None

    def begin(self, verb: str, **arguments: object) -> socket.socket:
        """Our end of the socket of a child that has its request."""
        self._owners.receive()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        folders = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY) for folder in (self.scratch, self._slot.path)]
        with theirs:
            self.child = self._owners.start(theirs, folders[0], for_whom=self.for_whom)
        descriptors.send(ours, json.dumps({"verb": verb, **arguments}).encode(), folders)
        for each in folders:
            os.close(each)
        ours.settimeout(SECONDS)
        return ours

    def __call__(self, verb: str, **arguments: object) -> list[bytes]:
        """All messages."""
        with self.begin(verb, **arguments) as ours:
            return list(iter(lambda: ours.recv(MOST + 1), b""))


@pytest.fixture
def ask(slot: Slot, owners: ProcessStarter) -> Iterator[Asker]:
    with tempfile.TemporaryDirectory(prefix="joblens-scratch", dir="/tmp") as name:
        os.chown(name, ALICE, ALICE)
        os.chmod(name, 0o700)
        yield Asker(slot, owners, Path(name))


def sleeps(slot: Slot, uid: int = ALICE) -> int:
    """A process in the slot that waits for signals; its id."""

    def act() -> None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        os.execv("/bin/sleep", ["sleep", "100000"])

    pid = slot.fork(act)
    until_asleep(pid, "clock_nanosleep")  # before that its exec, or its loader, may still be on its way
    return pid


def test_the_processes_of_the_slot_and_of_the_cgroups_below(slot: Slot, ask: Asker) -> None:
    pids = {sleeps(slot), sleeps(slot, BOB)}
    below = slot.path / "below"
    below.mkdir()
    inner = sleeps(slot)
    (below / "cgroup.procs").write_text(str(inner))
    *told, last = ask("ps")
    assert last == WHOLE
    records = [json.loads(message[1:]) for message in told]
    assert {record["Pid"] for record in records} == {*pids, inner}
    assert {record["Command"] for record in records} == {"sleep 100000"}
    for pid in (*pids, inner):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    below.rmdir()
    assert ask("ps") == [WHOLE]


def test_the_job_gets_a_signal_and_nobody_else(slot: Slot, ask: Asker) -> None:
    first, second, bobs = sleeps(slot), sleeps(slot), sleeps(slot, BOB)
    said, last = ask("kill", pid=second, signal=int(signal.SIGUSR1))
    assert json.loads(said[1:]) == {"Pid": second, "Signal": "SIGUSR1", "Command": "sleep 100000"} and last == WHOLE
    assert os.WTERMSIG(os.waitpid(second, 0)[1]) == signal.SIGUSR1
    # in the job's cgroup, and another user's
    assert ask("kill", pid=bobs, signal=9) == [FAILED + f"process {bobs} runs as another user than the job".encode()]
    # the owner's, and outside of the job's cgroup
    outside = os.fork()
    if outside == 0:
        os.setresuid(ALICE, ALICE, ALICE)
        signal.pause()
        os._exit(0)
    assert ask("kill", pid=outside, signal=9) == [FAILED + f"process {outside} is none of the job".encode()]
    assert ask("kill", pid=os.getpid(), signal=9) == [FAILED + f"process {os.getpid()} is none of the job".encode()]
    for pid in (outside, bobs):
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    ask("kill", pid=0, signal=int(signal.SIGTERM))
    assert os.WTERMSIG(os.waitpid(first, 0)[1]) == signal.SIGTERM
    assert slot.tracer.counters["ender"][slot.index] == b"joblens kill", "Death says so"


def test_a_file_is_read_as_its_owner(slot: Slot, ask: Asker) -> None:
    for name, uid in (("log", ALICE), ("others", BOB)):
        path = ask.scratch / name
        path.write_text("1\n2\n")
        os.chown(path, uid, uid)
        path.chmod(0o600)
    assert ask("tail", file="log", lines=1, follow=False) == [CONTENT + b"2\n", WHOLE]
    assert ask("tail", file="others", lines=1, follow=False) == [FAILED + b"Permission denied"]
    os.symlink("/etc/shadow", ask.scratch / "link")
    assert ask("tail", file="link", lines=1, follow=False) == [FAILED + b"it is outside of the job's folder"]
    assert ask("head", file="log", lines=1) == [CONTENT + b"1\n", WHOLE]
    assert ask("cat", file="log") == [CONTENT + b"1\n2\n", WHOLE]
    assert ask("cat", file="others") == [FAILED + b"Permission denied"]
    for name in ("stdout", "stderr"):
        os.symlink("log" if name == "stdout" else "/etc/shadow", ask.scratch / f"_condor_{name}")
    source, content, notice, last = ask("log", lines=1, follow=False)
    assert source.endswith(b"/log") and (content, last) == (CONTENT + b"2\n", WHOLE)
    assert notice == NOTICE + b"stderr: the job's first process does not show what it has open"
    header, content, last = ask("get", file="log", offset=1, most=4)
    assert json.loads(header[1:])["Bytes"] == 4 and (content, last) == (CONTENT + b"\n2\n", WHOLE)
    for name in ("others", "link"):
        assert ask("get", file=name, offset=0, most=4)[0][:1] == FAILED
    *entries, last = ask("ls", folder=".")
    assert {"link", "log", "others"} <= {json.loads(entry[1:])["Name"] for entry in entries} and last == WHOLE
    assert ask("ls", folder="..") == [FAILED + b"it is outside of the job's folder"]


def test_a_variable_of_the_jobs_own_processes_alone(slot: Slot, ask: Asker) -> None:
    """By the calls that the child has left."""
    own, bobs = sleeps(slot), sleeps(slot, BOB)
    spec, once = "libc.so*:environ as void*", {"follow": False}
    told, last = ask("peek", spec=spec, pid=own, **once)
    found = json.loads(told[1:])
    assert found["Pid"] == own and found.get("Value", "").startswith("0x") and last == WHOLE, found
    *values, last = ask("peek", spec=spec, pid=own, follow=True, every=0.01, seconds=0.1)
    assert len(values) > 1 and {json.loads(each[1:])["Value"] for each in values} == {found["Value"]} and last == WHOLE
    assert ask("peek", spec=spec, pid=bobs, **once) == [
        FAILED + b"no process of the job has a file like libc.so* in its memory"
    ]
    assert ask("peek", spec=spec, pid=os.getpid(), **once)[0][:1] == FAILED
    for pid in (own, bobs):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


_libc = ctypes.CDLL(None, use_errno=True)
_OWN_MOUNTS = 0x00020000  # CLONE_NEWNS of linux/sched.h
_PRIVATE, _BIND = 0x44000, 0x1000  # MS_REC | MS_PRIVATE, and MS_BIND, of linux/mount.h


def sees(slot: Slot, *mounts: tuple[Path | None, str]) -> int:
    """A process of Alice's with mounts of its own: of folders, or of something else where there is none; its id."""

    def act() -> None:
        called(_libc.unshare(_OWN_MOUNTS))
        called(_libc.mount(b"none", b"/", None, _PRIVATE, None))
        for folder, point in mounts:
            if folder is None:
                called(_libc.mount(b"none", point.encode(), b"tmpfs", 0, b"mode=755"))
            else:
                called(_libc.mount(str(folder).encode(), point.encode(), None, _BIND, None))
        os.setgroups([])
        os.setresgid(ALICE, ALICE, ALICE)
        os.setresuid(ALICE, ALICE, ALICE)
        os.execv("/bin/sleep", ["sleep", "100000"])

    pid = slot.fork(act)
    until_asleep(pid, "clock_nanosleep")  # before that its exec, or its loader, may still be on its way
    return pid


def called(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def ended(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def told(ask: Asker, file: str) -> bytes:
    """What the job has in a file, or why that is not said."""
    said, *_ = ask("cat", file=file)
    return said[1:]


OUTSIDE = b"it is outside of the job's folder"


def test_a_file_has_the_name_that_it_has_for_the_job(slot: Slot, ask: Asker) -> None:
    private = ask.scratch / "tmp"
    for path in (private, private / "log", ask.scratch / "log"):
        path.mkdir() if path == private else path.write_text(f"{path.parent.name}\n")
        os.chown(path, ALICE, ALICE)
    own, first = told(ask, "log"), b"tmp\n"
    assert told(ask, f"{ask.scratch}/log") == own, "by the node's name, too, without any process"
    assert told(ask, "/mnt/log") == OUTSIDE
    job = sees(slot, (private, "/mnt"))
    assert told(ask, "/mnt/log") == told(ask, "/mnt//./log") == told(ask, "tmp/log") == first
    *entries, last = ask("ls", folder="/mnt")
    assert [json.loads(entry[1:])["Name"] for entry in entries] == ["log"] and last == WHOLE
    for outside in ("/etc/passwd", "/mnt2/log", "/"):
        assert told(ask, outside) == OUTSIDE
    assert b"no .. here" in told(ask, "/mnt/../mnt/log")
    with ask.begin("tail", file="/mnt/log", lines=10, follow=True) as ours:
        assert ours.recv(MOST) == CONTENT + first
        (private / "new").write_text("another\n")
        os.chown(private / "new", ALICE, ALICE)
        (private / "new").rename(private / "log")
        assert ours.recv(MOST) == NOTICE + b"/mnt/log is another file now"
        assert ours.recv(MOST) == CONTENT + b"another\n"
    other = sees(slot, (ask.scratch, "/mnt"))
    assert b"see different files by this name" in told(ask, "/mnt/log")
    ended(job, other)
    assert told(ask, "/mnt/log") == OUTSIDE


def test_what_the_job_sees_and_the_node_does_not_is_refused_in_words(slot: Slot, ask: Asker) -> None:
    over = ask.scratch / "over"
    over.mkdir(mode=0o755)
    for path in (over / "log", ask.scratch / "log"):
        path.write_text("the node's\n")
        path.chmod(0o644)
    os.symlink("over/log", ask.scratch / "link")
    assert told(ask, "over/log") == told(ask, "link") == b"the node's\n"
    job = sees(slot, (None, str(over)))
    assert told(ask, "log") == b"the node's\n"
    for hidden in ("over/log", "over/nothing", "link", f"{over}/log"):
        assert told(ask, hidden) in (b"in the job something else is mounted there, which is not shown", OUTSIDE)
    assert b"something else is mounted" in ask("ls", folder="over")[0]
    ended(job)
    assert told(ask, "over/log") == b"the node's\n"
    job = sees(slot, (None, str(ask.scratch)))
    assert told(ask, "log") == b"the job does not see its folder of this node: its files are elsewhere"
    ended(job)


def test_the_environment_of_the_jobs_own_processes_alone(slot: Slot, ask: Asker) -> None:
    own, bobs = sleeps(slot), sleeps(slot, BOB)
    *told, last = ask("env", pid=own, values=False)
    assert last == WHOLE and all(set(json.loads(each[1:])) == {"Name"} for each in told)
    why = FAILED + f"process {bobs} does not show its environment: it runs as another user".encode()
    assert ask("env", pid=bobs, values=True) == [why + b", or may not be looked into"]
    assert ask("env", pid=os.getpid(), values=True) == [FAILED + f"process {os.getpid()} is none of the job".encode()]
    for pid in (own, bobs):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_the_machine(ask: Asker) -> None:
    machine, last = ask("node", jobs=[], more=0)
    found = json.loads(machine[1:])
    assert last == WHOLE and found["Host"] == os.uname().nodename and found["ScratchBytes"] > 0
    assert found["Cpus"] > 0 and found["MemoryBytes"] > 0


def test_a_file_is_followed_to_the_end_of_the_job(slot: Slot, ask: Asker) -> None:
    log = ask.scratch / "log"
    log.write_text("1\n")
    log.chmod(0o644)
    job = sleeps(slot)
    with ask.begin("tail", file="log", lines=10, follow=True) as ours:
        assert ours.recv(MOST) == CONTENT + b"1\n"
        with open(log, "a") as file:
            file.write("2\n")
        assert ours.recv(MOST) == CONTENT + b"2\n"
        os.kill(job, signal.SIGKILL)
        os.waitpid(job, 0)
        assert ours.recv(MOST) == NOTICE + b"the job has ended"
        assert ours.recv(MOST) == WHOLE


def test_the_child_that_follows_is_the_owner_and_nothing_more(slot: Slot, ask: Asker) -> None:
    (ask.scratch / "log").write_text("1\n")
    (ask.scratch / "log").chmod(0o644)
    job = sleeps(slot)
    with ask.begin("tail", file="log", lines=10, follow=True) as ours:
        assert ours.recv(MOST) == CONTENT + b"1\n"
        until(lambda: ask.child.pid, SECONDS)
        said = Path(f"/proc/{ask.child.pid}/status").read_text()
        assert f"Uid:\t{OWN}\t{ALICE}\t{OWN}\t{ALICE}\n" in said
        assert "CapPrm:\t0000000000000000\n" in said and "NoNewPrivs:\t1\n" in said and "Seccomp:\t2\n" in said
        # one list for what it may do before it knows its request, and the verb's own
        assert "Seccomp_filters:" not in said or "Seccomp_filters:\t2\n" in said
        assert os.stat(f"/proc/{ask.child.pid}/maps").st_uid == 0
    os.kill(job, signal.SIGKILL)
    os.waitpid(job, 0)
    until(lambda: ask.child.poll() is not None, SECONDS)


@pytest.mark.parametrize("verb", ["nonsense", ""])
def test_a_verb_that_there_is_not_ends_the_child(verb: str, ask: Asker) -> None:
    assert ask(verb) == []
    assert ask("ps") == [WHOLE]


def test_the_job_stops_no_child_that_looks_at_it_and_gives_it_no_limit(slot: Slot, ask: Asker) -> None:
    """So the child ends in time, by its own clock, and its user's share comes back."""
    job = sleeps(slot)
    (ask.scratch / "log").write_text("1\n")
    (ask.scratch / "log").chmod(0o644)
    with ask.begin("tail", file="log", lines=10, follow=True) as ours:
        assert ours.recv(MOST) == CONTENT + b"1\n"
        until(lambda: ask.child.pid, SECONDS)
        pid = ask.child.pid

        def try_all() -> None:
            os.setgroups([])
            os.setresgid(ALICE, ALICE, ALICE)
            os.setresuid(ALICE, ALICE, ALICE)
            refused = 0
            tries = [lambda number=number: os.kill(pid, number) for number in (signal.SIGSTOP, signal.SIGKILL, 0)]
            limits = (resource.RLIMIT_CPU, resource.RLIMIT_NOFILE)
            for attempt in [*tries, *(lambda limit=limit: resource.prlimit(pid, limit, (0, 0)) for limit in limits)]:
                try:
                    attempt()
                except PermissionError:
                    refused += 1
            os._exit(refused)

        attacker = slot.fork(try_all)
        assert os.waitstatus_to_exitcode(os.waitpid(attacker, 0)[1]) == 5
        with open(ask.scratch / "log", "a") as file:
            file.write("2\n")
        assert ours.recv(MOST) == CONTENT + b"2\n", "it goes on"
    os.kill(job, signal.SIGKILL)
    os.waitpid(job, 0)
    until(lambda: ask.child.poll() is not None, SECONDS)


def test_children_that_are_stopped_end_with_their_starter(slot: Slot, ask: Asker) -> None:
    own = ProcessStarter("what looks at jobs", ALLOWED, OWN, OWN, starters.__name__)
    job = sleeps(slot)
    (ask.scratch / "log").write_text("1\n")
    (ask.scratch / "log").chmod(0o644)
    asker = Asker(slot, own, ask.scratch)
    with asker.begin("tail", file="log", lines=10, follow=True) as ours:
        assert ours.recv(MOST) == CONTENT + b"1\n"
        until(lambda: asker.child.pid, SECONDS)
        os.kill(asker.child.pid, signal.SIGSTOP)
        own.close()
        assert ours.recv(MOST) == b"", "whoever held the other end is gone"
    os.kill(job, signal.SIGKILL)
    os.waitpid(job, 0)


def test_children_of_one_user_are_bounded(slot: Slot, ask: Asker) -> None:
    """Whatever keeps them from ending: here root stops them."""
    job = sleeps(slot)
    (ask.scratch / "log").write_text("1\n")
    (ask.scratch / "log").chmod(0o644)
    ask.for_whom = ALICE
    stopped = []
    for _ in range(MOST_FOR_ONE):
        with ask.begin("tail", file="log", lines=10, follow=True) as ours:
            assert ours.recv(MOST) == CONTENT + b"1\n"
            until(lambda: ask.child.pid, SECONDS)
            os.kill(ask.child.pid, signal.SIGSTOP)
        stopped.append(ask.child)
    with pytest.raises(OSError, match="8 processes that were started for it before have not ended"):
        ask.begin("ps")
    ask.for_whom = BOB
    assert ask("ps")
    for child in stopped:
        os.kill(child.pid, signal.SIGKILL)
    until(lambda: all(child.poll() is not None for child in stopped), SECONDS)
    ask.for_whom = ALICE
    assert ask("ps")
    os.kill(job, signal.SIGKILL)
    os.waitpid(job, 0)
