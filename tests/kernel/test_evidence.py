"""What a job that stands still waits for, and where: by a process that has become its owner, against the truth."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ground import Ground, Slot, hang_program, is_native, kernel_version, until

from condor_joblens.agent.refused_calls import RefusedCalls
from condor_joblens.cli import hang, stacks
from condor_joblens.cli.terminal import Style
from condor_joblens.common import descriptors
from condor_joblens.common.process_starter import ProcessStarter
from condor_joblens.owner_files.allowed_ids import AllowedIds
from condor_joblens.profiles import evidence as told
from condor_joblens.profiles.evidence import Evidence
from condor_joblens.profiles.thread import Thread
from condor_joblens.profiling import starter as starters
from condor_joblens.profiling.look import TEXT
from condor_joblens.profiling.process import Process

CHECKOUT = Path(__file__).resolve().parents[2]
OWN, ALICE, BOB = 64001, 12345, 12346
ALLOWED = AllowedIds(1000, (), 1000, ())
SECONDS = 60.0 if is_native() else 300.0

pytestmark = [
    pytest.mark.guest,
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="unwind tables are read on x86-64 alone"),
]


@pytest.fixture(scope="module")
def program() -> Iterator[Path]:
    """The job's program, where its owner may run it."""
    with tempfile.TemporaryDirectory(prefix="joblens-hang", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(shutil.copy(hang_program(), f"{name}/hang"))


@pytest.fixture(scope="module")
def lookers() -> Iterator[ProcessStarter]:
    found = ProcessStarter("what looks at jobs", ALLOWED.encode(), OWN, OWN, starters.__name__)
    yield found
    found.close()


class Look:
    """Asks as joblensd does."""

    def __init__(self, slot: Slot, lookers: ProcessStarter, folder: Path, uid: int = ALICE) -> None:
        self._slot, self._lookers, self._folder, self.uid = slot, lookers, folder, uid
        self.jobs: dict[str, str] = {}

    def __call__(self) -> Evidence:
        """The evidence of one look."""
        return told.parse(self.lines())

    def lines(self) -> bytes:
        """The same as it comes."""
        return b"".join(self.packets())

    def packets(self, **more: str | float) -> list[bytes]:
        """The same, packet by packet."""
        with self.begun(**more) as channel:
            pieces = []
            with contextlib.suppress(ConnectionResetError):  # it ended without reading what it was asked
                pieces.extend(iter(lambda: channel.recv(65536), b""))
            return pieces

    def begun(self, **more: str | float) -> socket.socket:
        """A look that is taken now: what it says comes there."""
        self._lookers.receive()
        channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        threads = self._slot.tracer.open_threads(self._slot.index, self.uid)
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        with theirs:
            self._lookers.start(theirs, folder)
        with contextlib.suppress(BrokenPipeError):  # nobody is there
            descriptors.send(channel, json.dumps({"jobs": self.jobs, **more}).encode(), [threads])
        os.close(threads)
        os.close(folder)
        channel.settimeout(SECONDS)
        return channel


@pytest.fixture
def look(slot: Slot, lookers: ProcessStarter) -> Iterator[Look]:
    with tempfile.TemporaryDirectory(prefix="joblens-scratch", dir="/tmp") as name:
        os.chown(name, ALICE, ALICE)
        yield Look(slot, lookers, Path(name))


def as_user(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def start(slot: Slot, program: Path, way: str, path: str = "-") -> int:
    """The job of Alice that stands still in this way; its process id."""
    return start_command(slot, [str(program), way, path])


def start_command(slot: Slot, command: list[str], **environment: str) -> int:
    """Another job of hers."""

    def act() -> None:
        os.setsid()
        as_user(ALICE)
        os.execve(command[0], command, {**os.environ, **environment})

    return slot.fork(act)


def seen(look: Look, is_it: Callable[[Evidence], object]) -> Evidence:
    """The first evidence that is so: before, the job is on its way there."""
    found: list[Evidence] = []

    def holds() -> bool:
        found.append(look())
        return bool(found[-1].is_whole and is_it(found[-1]))

    try:
        until(holds, SECONDS)
    except AssertionError:
        raise AssertionError("\n".join(hang.page(found[-1], Style()))) from None
    return found[-1]


def thread_of(evidence: Evidence, tid: int) -> Thread:
    return next(thread for thread in evidence.threads if thread.tid == tid)


def functions(thread: Thread) -> list[str]:
    return [frame.function for frame in thread.frames]


CALLERS = ["work::Tree::fill", "main"]


def assert_whole(thread: Thread) -> None:
    """Each function that the program called is there, in their order, by tables alone."""
    names = [function.partition("(")[0] for function in functions(thread)]
    at = [names.index(name) for name in ["wait_for_ever", *CALLERS]]
    assert at == sorted(at), names
    assert thread.is_whole, names
    assert not any(frame.is_guessed for frame in thread.frames), names
    assert all(frame.build_id for frame in thread.frames if frame.function == "main")  # by which its lines are found


# -- why it hangs ----------------------------------------------------------------------------------------------------


def judged(look: Look) -> tuple[object, object]:
    """Its cause, and whether it is suspicious."""
    summary = summary_of(look)
    return summary["cause"], summary["suspicious"]


def summary_of(look: Look) -> dict[str, object]:
    """What joblensd itself reads of a look."""
    parts = [json.loads(line) for line in look.lines().splitlines()]
    (found,) = (part for part in parts if part["part"] == "summary")
    return dict(found)


def _names(evidence: Evidence) -> str:
    return " ".join(thread.name for thread in evidence.threads)


@pytest.mark.parametrize("way", ["flock", "fcntl"])
def test_a_file_lock_and_who_holds_it(way: str, slot: Slot, look: Look, program: Path, tmp_path: Path) -> None:
    with tempfile.NamedTemporaryFile(prefix="joblens-lock", dir="/tmp") as file:
        os.chmod(file.name, 0o666)
        (fcntl.flock if way == "flock" else fcntl.lockf)(file, fcntl.LOCK_EX)
        pid = start(slot, program, way, file.name)
        found = seen(look, lambda evidence: evidence.cause == "file lock")
        thread = thread_of(found, pid)
        assert file.name in thread.object
        assert file.name in found.sentence
        # it is root's: no more than that is told
        assert "another user" in thread.holder
        assert thread.call == way
        assert any("lock" in frame.function or "setlk" in frame.function for frame in thread.kernel), thread.kernel
        assert_whole(thread)
        look.jobs = {own_cgroup(): "77.0"}
        assert thread_of(look(), pid).holder == "job 77.0"


def own_cgroup() -> str:
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return next(line[3:] for line in lines if line.startswith("0::"))


def test_a_file_lock_that_another_process_of_the_job_holds(slot: Slot, look: Look, program: Path) -> None:
    with tempfile.NamedTemporaryFile(prefix="joblens-lock", dir="/tmp") as file:
        os.chmod(file.name, 0o666)
        holder = start(slot, program, "hold", file.name)
        until(lambda: f" {holder} " in Path("/proc/locks").read_text(), SECONDS)
        pid = start(slot, program, "flock", file.name)
        found = seen(look, lambda evidence: evidence.cause == "file lock")
        assert f"process {holder} " in thread_of(found, pid).holder


def test_a_text_for_the_jobs_owner(slot: Slot, look: Look, program: Path) -> None:
    """First without stacks, which may never come; the last one has all."""
    start(slot, program, "pipe")
    seen(look, lambda found: found.cause == "pipe")
    texts = [packet[len(TEXT) :].decode() for packet in look.packets(heading="ours:") if packet.startswith(TEXT)]
    assert len(texts) == 3 and all(text.startswith("ours:\n\n") and "cause: pipe" in text for text in texts)
    assert "this is not all" in texts[0] and "main" not in texts[0]
    assert "this is not all" not in texts[-1] and "main" in texts[-1]


def test_a_deadlock_names_both_threads(slot: Slot, look: Look, program: Path) -> None:
    pid = start(slot, program, "deadlock")
    found = seen(look, lambda evidence: evidence.cause == "deadlock")
    both = [thread for thread in found.threads if thread.cause == "mutex"]
    assert len(both) == 2
    assert {thread.holder.split()[1] for thread in both} == {str(thread.tid) for thread in both}
    assert all(str(thread.tid) in found.sentence for thread in both)
    assert all("take_both(std::mutex&, std::mutex&, int)" in functions(thread) for thread in both)
    assert all(f"{thread.tid} in take_both(std::mutex&, std::mutex&, int)" in found.sentence for thread in both)
    # the first thread waits for one of them
    first = thread_of(found, pid)
    assert first.cause == "thread"
    assert first.object.split()[-1] in {str(thread.tid) for thread in both}


def test_a_wait_for_a_thread_that_waits_for_something_else(slot: Slot, look: Look, program: Path) -> None:
    pid = start(slot, program, "join")
    found = seen(look, lambda evidence: evidence.cause == "network")
    assert thread_of(found, pid).cause == "thread"
    assert found.tid != pid
    assert "127.0.0.1" in thread_of(found, found.tid).object


def test_a_wait_for_a_child(slot: Slot, look: Look, program: Path) -> None:
    pid = start(slot, program, "child")
    found = seen(look, lambda evidence: evidence.cause == "sleep" and len(evidence.threads) == 2)
    child = next(thread for thread in found.threads if thread.tid != pid)
    assert child.parent == pid
    assert thread_of(found, pid).cause == "child"
    assert str(child.tid) in thread_of(found, pid).object
    assert found.tid == child.tid
    assert "4321 s" in child.object


def test_a_child_that_has_not_begun_its_program_yet(slot: Slot, look: Look, program: Path) -> None:
    pid = start(slot, program, "vfork")
    found = seen(look, lambda evidence: evidence.cause == "signal" and len(evidence.threads) == 2)
    assert thread_of(found, pid).cause == "child"
    assert str(found.tid) in thread_of(found, pid).object


def test_a_job_that_is_suspended(slot: Slot, look: Look, program: Path) -> None:
    pid = start(slot, program, "recv")
    seen(look, lambda evidence: evidence.cause == "network")
    freeze = slot.path / "cgroup.freeze"
    freeze.write_text("1")
    try:
        found = seen(look, lambda evidence: evidence.cause == "stopped")
        assert "frozen" in thread_of(found, pid).object
        assert summary_of(look)["suspicious"] is False
    finally:
        freeze.write_text("0")


SHELLS = {
    "a loop": "while :; do sleep 4321; done",
    "a child and its wait": "sleep 4321 & wait",
    "retries": "until false; do exec 3<>/dev/tcp/127.0.0.1/1 || sleep 4321; done",
    "a pipe": "sleep 4321 | cat",
    "a lock": "exec 3>$(mktemp); flock 3; sleep 4321",
    "python": "exec python3 -c 'import time; time.sleep(4321)'",
    "python's threads": "exec python3 -c 'import threading; threading.Event().wait(4321)'",
    "python's server": "exec python3 -c 'import socket; s = socket.create_server((\"127.0.0.1\", 0)); s.accept()'",
    "python's select": "exec python3 -c 'import select; select.select([], [], [], 4321)'",
    "a trap": "trap : USR1; while :; do sleep 4321 & wait $!; done",
}


@pytest.mark.parametrize("shell", SHELLS)
def test_what_is_harmless_is_not_suspicious(shell: str, slot: Slot, look: Look) -> None:
    def act() -> None:
        os.setsid()
        as_user(ALICE)
        os.execv("/bin/bash", ["bash", "-c", SHELLS[shell]])

    slot.fork(act)
    seen(look, lambda evidence: evidence.cause in ("sleep", "client", "unknown", "events", "file") and _waits(evidence))
    until(lambda: summary_of(look)["suspicious"] is False)  # one that it has just forked may still read its program


def _waits(evidence: Evidence) -> bool:
    """Whether it has reached the call in which it stays."""
    calls = {thread.call for thread in evidence.threads}
    return bool(calls & {"clock_nanosleep", "nanosleep", "accept4", "accept", "select", "pselect6", "futex"})


def test_a_pipe_and_who_has_its_other_end(slot: Slot, look: Look, program: Path) -> None:
    pid = start(slot, program, "pipe_of_child")
    found = seen(look, lambda evidence: evidence.cause == "sleep" and len(evidence.threads) == 2)
    child = next(thread for thread in found.threads if thread.tid != pid)
    assert thread_of(found, pid).cause == "pipe"
    assert f"process {child.tid} " in thread_of(found, pid).holder


def test_a_fifo_that_nobody_else_opens(slot: Slot, look: Look, program: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="joblens-fifo", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        os.mkfifo(f"{folder}/fifo", 0o666)
        os.chmod(f"{folder}/fifo", 0o666)
        start(slot, program, "fifo", f"{folder}/fifo")
        found = seen(look, lambda evidence: evidence.cause == "pipe")
        assert f"{folder}/fifo" in found.sentence


def test_a_stopped_job(slot: Slot, look: Look, program: Path) -> None:
    pid = start(slot, program, "stop")
    assert thread_of(seen(look, lambda evidence: evidence.cause == "stopped"), pid).state == "T"


def test_a_zombie_is_not_what_a_job_waits_for(slot: Slot, look: Look, program: Path) -> None:
    pid = start(slot, program, "zombie")
    found = seen(look, lambda evidence: any(thread.cause == "ended" for thread in evidence.threads))
    assert {thread.state for thread in found.threads if thread.tid != pid} == {"Z"}
    assert seen(look, lambda evidence: evidence.cause == "signal").tid == pid


def test_a_job_that_computes_does_not_hang(slot: Slot, look: Look, program: Path) -> None:
    pid = start(slot, program, "busy")
    found = seen(look, lambda evidence: evidence.cause == "runs" and _is_in_loop(pid))
    assert not thread_of(found, pid).frames
    assert "(it runs: only a thread that waits can be looked at)" in "\n".join(stacks.page(found, Style()))


def _is_in_loop(pid: int) -> bool:
    return os.readlink(f"/proc/{pid}/exe").endswith("/hang")


def test_how_long_it_has_waited(slot: Slot, look: Look, program: Path) -> None:
    pid = start(slot, program, "sleep")
    seen(look, lambda evidence: evidence.cause == "sleep")
    first = thread_of(look(), pid).waited
    later = seen(look, lambda evidence: thread_of(evidence, pid).waited >= first + 0.5)
    # never longer than it has lived
    began = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    assert 0 < thread_of(later, pid).waited <= uptime - began + 1


# -- where it is -----------------------------------------------------------------------------------------------------


def test_a_stack_through_a_signal_handler(slot: Slot, look: Look, program: Path) -> None:
    pid = start(slot, program, "handler")
    found = seen(look, lambda evidence: evidence.cause == "signal" and thread_of(evidence, pid).is_whole)
    assert_whole(thread_of(found, pid))
    assert functions(thread_of(found, pid)).index("in_handler(int)") > 0


def test_a_stack_through_a_realigned_function_with_alloca(slot: Slot, look: Look, program: Path) -> None:
    pid = start(slot, program, "realigned")
    found = seen(look, lambda evidence: evidence.cause == "signal" and thread_of(evidence, pid).is_whole)
    assert_whole(thread_of(found, pid))
    assert any(function.startswith("in_realigned(") for function in functions(thread_of(found, pid)))


GDB = """
import gdb, json
found = {}
for thread in gdb.selected_inferior().threads():
    thread.switch()
    frame, frames, is_caller = gdb.newest_frame(), [], False
    while frame is not None:
        # others are not on the stack: debug information says that the compiler has taken them out
        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            frames.append(frame.pc() - is_caller)
            # whoever has been interrupted has not called
            is_caller = frame.type() != gdb.SIGTRAMP_FRAME
        frame = frame.older()
    found[thread.ptid[1]] = frames
print("frames", json.dumps(found))
"""


@pytest.mark.parametrize(
    ("way", "cause", "count"),
    [("deadlock", "deadlock", 53), ("handler", "signal", 1), ("realigned", "signal", 1), ("recv", "network", 1)],
)
def test_the_same_frames_as_gdb(
    way: str, cause: str, count: int, slot: Slot, look: Look, program: Path, tmp_path: Path
) -> None:
    """By file and offset, of all threads; gdb stops the job, so it comes afterwards."""
    pid = start_command(slot, [str(program), way, "-", *(["idle"] if count > 1 else [])])
    found = seen(
        look, lambda found: found.cause == cause and len(found.threads) == count and all(map(_stays, found.threads))
    )
    (tmp_path / "frames.py").write_text(GDB)
    settings = [
        f"set {what}" for what in ("backtrace past-main on", "backtrace past-entry on", "debuginfod enabled off")
    ]
    lines = [*settings, f"attach {pid}", f"source {tmp_path}/frames.py", "detach"]
    command = ["gdb", "-nx", "-batch", *(word for line in lines for word in ("-ex", line))]
    said = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS).stdout
    theirs = json.loads(next(line for line in said.splitlines() if line.startswith("frames ")).partition(" ")[2])
    process = Process(pid)

    def place(address: int) -> tuple[str, int]:
        mapping = process.mapping_at(address)
        assert mapping is not None
        return mapping.path, address - mapping.start + mapping.offset

    for thread in found.threads:
        ours = [(frame.file, frame.offset) for frame in thread.frames]
        assert ours == [place(address) for address in theirs[str(thread.tid)]], thread.tid


def _stays(thread: Thread) -> bool:
    """Not one that is on its way to where it will wait."""
    return thread.state == "S" and bool(thread.call) and thread.is_whole and thread.waited > 1


def test_a_program_whose_file_has_been_deleted_and_stripped(slot: Slot, look: Look, program: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="joblens-deleted", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        copy = Path(shutil.copy(program, f"{folder}/gone"))
        subprocess.run(["strip", copy], check=True)
        pid = start(slot, copy, "pause")
        until(lambda: os.readlink(f"/proc/{pid}/exe") == str(copy))
        copy.unlink()
        found = seen(look, lambda evidence: evidence.cause == "signal")
        thread = thread_of(found, pid)
        assert thread.is_whole
        assert not any(frame.is_guessed for frame in thread.frames)
        assert any(frame.name.startswith("gone (deleted)+0x") for frame in thread.frames)


def test_a_job_in_namespaces_of_its_own(slot: Slot, look: Look, program: Path) -> None:
    """As in a container without a set-user-id program: there it is root, and its threads have other numbers."""

    def act() -> None:
        as_user(ALICE)
        os.execv("/usr/bin/unshare", ["unshare", "-r", "-m", "-p", "--fork", "--", str(program), "deadlock", "-"])

    slot.fork(act)
    found = seen(look, lambda evidence: evidence.cause == "deadlock")
    both = [thread for thread in found.threads if thread.cause == "mutex"]
    assert {thread.holder.split()[1] for thread in both} == {str(thread.tid) for thread in both}
    assert all("take_both(std::mutex&, std::mutex&, int)" in functions(thread) for thread in both)
    assert all(thread.is_whole for thread in both)


# -- what is not the owner's -----------------------------------------------------------------------------------------


def test_a_program_of_another_user_in_the_job_is_left_alone(slot: Slot, look: Look, program: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="joblens-setuid", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        copy = Path(shutil.copy(program, f"{folder}/setuid"))
        os.chown(copy, BOB, BOB)
        copy.chmod(0o4755)
        pid = start(slot, copy, "sleep")
        until(lambda: f"Uid:\t{ALICE}\t{BOB}" in Path(f"/proc/{pid}/status").read_text())
        found = look()
        thread = thread_of(found, pid)
        assert (thread.cause, thread.call, thread.kernel, thread.frames, thread.waited) == (
            "not the owner's",
            "",
            (),
            (),
            0.0,
        )
        assert "not looked into" in found.sentence


def test_a_process_that_may_not_be_dumped_is_left_alone(slot: Slot, look: Look) -> None:
    def hide() -> None:
        as_user(ALICE)
        import ctypes

        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
        signal.pause()

    slot.fork(hide)
    seen(look, lambda evidence: evidence.cause == "not the owner's")


def test_nobody_looks_as_root_or_as_a_user_who_has_no_jobs(slot: Slot, lookers: ProcessStarter, look: Look) -> None:
    with tempfile.TemporaryDirectory() as name:
        assert Look(slot, lookers, Path(name)).lines() == b""
        os.chown(name, 33, 33)
        assert Look(slot, lookers, Path(name)).lines() == b""
    # and it goes on serving
    assert look().is_whole


def test_the_child_that_looks_is_the_owner_and_nothing_more(slot: Slot, look: Look, lookers: ProcessStarter) -> None:
    channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    folder = os.open(look._folder, os.O_RDONLY | os.O_DIRECTORY)
    with channel:
        with theirs:
            child = lookers.start(theirs, folder)
        os.close(folder)
        until(lambda: child.pid)
        # it waits for the request
        until(lambda: f"Uid:\t{OWN}\t{ALICE}\t{OWN}\t{ALICE}" in status(child.pid))
        # its starter has a list of system calls as well, so that it has one from its birth on
        until(lambda: "CapPrm:\t0000000000000000" in status(child.pid))
        said = status(child.pid)
        assert "Seccomp:\t2" in said
        assert f"Gid:\t{ALICE}\t{ALICE}\t{ALICE}\t{ALICE}" in said
        assert "NoNewPrivs:\t1" in said
        # the job can't look into it
        assert os.stat(f"/proc/{child.pid}/maps").st_uid == 0
    until(lambda: child.poll() is not None)


def test_a_child_that_the_job_stops_while_it_looks_can_be_ended(look: Look, lookers: ProcessStarter) -> None:
    """To read a container's files on the owner's own FUSE it is the owner in every way, so the owner may stop it."""
    channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    folder = os.open(look._folder, os.O_RDONLY | os.O_DIRECTORY)
    endless, write = os.pipe()
    with channel:
        with theirs:
            child = lookers.start(theirs, folder)
        descriptors.send(channel, b'{"jobs":{},"heading":""}', [endless])
        for each in (folder, endless):
            os.close(each)
        until(lambda: child.pid and f"Uid:\t{ALICE}\t{ALICE}\t{ALICE}\t{ALICE}" in status(child.pid))
        pid = child.pid

        def stop() -> None:
            os.setresuid(ALICE, ALICE, ALICE)
            os.kill(pid, signal.SIGSTOP)
            os._exit(0)

        if (stopper := os.fork()) == 0:
            try:
                stop()
            finally:
                os._exit(1)
        assert os.waitpid(stopper, 0)[1] == 0
        until(lambda: "State:\tT" in status(pid))
        child.kill()
        until(lambda: child.poll() is not None)
        assert child.poll() == -signal.SIGKILL
        assert channel.recv(100) == b""
    os.close(write)


COMPROMISED = """
import ctypes, json, os, socket
from condor_joblens.agent.refused_calls import RefusedCalls
from condor_joblens.common import privilege
from condor_joblens.common.system_calls import numbers
from condor_joblens.owner_files.allowed_ids import AllowedIds
from condor_joblens.profiling.starter import CAPABILITIES, OwnerStarter
refused = RefusedCalls(lambda line: None, 64002, 64002)
privilege.become_with(64001, 64001, CAPABILITIES)
listener = OwnerStarter(socket.socketpair()[0], AllowedIds(1000, (990,), 1000, (990,))).confine()
refused.watch("what looks", listener)
libc, same, parent = ctypes.CDLL(None, use_errno=True), -1, os.getppid()
def of(name, *arguments):
    ctypes.set_errno(0)
    return libc.syscall(numbers()[name], *arguments), ctypes.get_errno()
found = {}
for name in ("setresuid", "setresgid"):
    for ids in ((0, 0, 0), (33, 33, 33), (990, 990, 0), (990, 0, 990), (0, 990, 990), (same, 0, same), (12345, 990, 0),
                (990, same, same), (same, 33, same), (33, 990, same), (same, 990, 0)):
        found[f"{name} {ids}"] = of(name, *ids)
for name in ("setuid", "setgid", "setfsuid", "setfsgid", "setreuid", "setregid", "unshare", "setns", "execve", "kill",
             "tgkill", "socket", "connect", "ptrace", "process_vm_readv", "mount", "chroot", "bpf", "io_uring_setup",
             "keyctl", "mkdirat", "unlinkat", "renameat2", "linkat", "symlinkat", "fchmod", "fchown", "open", "creat",
             "truncate", "ftruncate", "memfd_create", "setpriority", "sched_setscheduler", "openat2"):
    if name in numbers():
        found[name] = of(name, -1, -1, -1, -1, -1)
found["setgroups"] = of("setgroups", 1, (ctypes.c_uint32 * 1)(0))
found["prlimit64"] = of("prlimit64", parent, 7, None, None)
found["clone"] = of("clone", 0x10000011, 0, 0, 0, 0)
for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_CREAT, os.O_RDONLY | os.O_TRUNC):
    found[f"openat {flags:o}"] = of("openat", -100, b"/dev/null", flags, 0)
for uid in (990, 12345):
    if os.fork() == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(-1, uid, -1)
        os._exit(0 if os.getresuid() == (64001, uid, 64001) and os.getresgid() == (uid,) * 3 else 1)
    assert os.wait()[1] == 0
os.write(1, json.dumps(found).encode())
"""


def test_once_it_is_compromised_it_becomes_no_more_than_a_user() -> None:
    """It never becomes root, starts and signals nothing, and gives no file a byte."""
    environment = {"PYTHONPATH": str(CHECKOUT), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", COMPROMISED]
    done = subprocess.run(command, capture_output=True, cwd="/", env=environment, timeout=60)
    assert done.stderr == b""
    found = json.loads(done.stdout)
    assert {name: result for name, result in found.items() if result != [-1, 1]} == {}
    assert len(found) > 45 and "setresuid (0, 0, 0)" in found


def test_it_makes_no_call_that_its_list_lacks(look: Look, slot: Slot, program: Path) -> None:
    said: list[str] = []
    refused = RefusedCalls(said.append, OWN, OWN)
    arguments = (ALLOWED.encode(), OWN, OWN, starters.__name__, refused.watch)
    lookers = ProcessStarter("what looks at jobs", *arguments)
    pid = start(slot, program, "deadlock")
    mine = Look(slot, lookers, look._folder)
    assert thread_of(seen(mine, lambda evidence: evidence.cause == "deadlock"), pid)
    lookers.close()
    refused.receive()
    refused.stop()
    assert said == []


def status(pid: int) -> str:
    return Path(f"/proc/{pid}/status").read_text()


def test_a_job_is_neither_stopped_nor_traced_nor_slowed_to_a_stop(slot: Slot, look: Look, program: Path) -> None:
    pid = start(slot, program, "pause")
    seen(look, lambda evidence: evidence.cause == "signal")
    before = status(pid)
    look()
    after = status(pid)
    assert "TracerPid:\t0" in after
    switches = [line for line in before.splitlines() if "ctxt_switches" in line]
    assert all(line in after for line in switches)


# -- bad input -------------------------------------------------------------------------------------------------------


def test_threads_that_are_named_after_escape_sequences(slot: Slot, look: Look) -> None:
    def rename() -> None:
        as_user(ALICE)
        import ctypes

        ctypes.CDLL(None).prctl(15, b"\x1b[31m\n<b>\xff", 0, 0, 0)  # PR_SET_NAME
        signal.pause()

    slot.fork(rename)
    found = seen(look, lambda evidence: "<b>" in _names(evidence))
    text = "\n".join([*hang.page(found, Style()), *stacks.page(found, Style())])
    assert "\x1b" not in text
    assert all(" " <= letter <= "~" for letter in text.replace("\n", ""))


def test_ten_thousand_mappings_and_a_file_that_is_no_program(slot: Slot, look: Look) -> None:
    def work() -> None:
        import mmap

        with tempfile.NamedTemporaryFile(dir="/tmp") as file:
            file.write(b"\x7fELF\x02\x01" + b"\xff" * 8192)
            file.flush()
            kept = [mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC) for _ in range(10_000)]
            as_user(ALICE)
            assert len(kept) == 10_000
            # users of another id may not look into a process that has changed its own
            import ctypes

            ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
            signal.pause()

    slot.fork(work)
    seen(look, lambda evidence: evidence.cause == "signal" and evidence.threads[0].frames)


def test_a_kernel_without_registers_says_so(ground: Ground) -> None:
    missing = ground.tracer.basic.missing
    assert not missing, (kernel_version(), missing)
