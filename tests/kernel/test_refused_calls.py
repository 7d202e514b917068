"""Lists of system calls that joblensd and what starts processes have left: the rest fails with EPERM, and is named."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ground import forked, in_child, kernel_version

from condor_joblens.agent import own_calls
from condor_joblens.agent.refused_calls import RefusedCalls
from condor_joblens.common import landlock, privilege, without_privilege
from condor_joblens.common.own_process import HelperLost
from condor_joblens.common.process_starter import ProcessStarter
from condor_joblens.common.system_calls import name_of, numbers

CHECKOUT = Path(__file__).resolve().parents[2]
UID, GID = 64002, 65534
IS_TOLD = kernel_version() >= (5, 7)

pytestmark = pytest.mark.guest


class Log(list[str]):
    """What was logged, and the process that says it."""

    def __init__(self) -> None:
        self.refused = RefusedCalls(self.append, UID, GID)
        self.names = self.refused._names  # a forked process has a list of its own

    def until(self, lines: int) -> None:
        end = time.monotonic() + 60
        while len(self) < lines and IS_TOLD:
            assert time.monotonic() < end, self
            self.hear()

    def hear(self) -> None:
        self.names[:] = self.names or ["joblensd"]
        self.refused.receive()
        time.sleep(0.005)


@pytest.fixture
def log() -> Iterator[Log]:
    log = Log()
    yield log
    log.refused.stop()


def confine(log: Log) -> None:
    """As joblensd does."""
    privilege.keep_only(())
    privilege.no_new_privileges()
    is_filtered, listener = own_calls.allow_only(loads=False)
    assert is_filtered and (listener is not None) == IS_TOLD
    log.refused.watch("joblensd", listener)


def failed(act: Callable[[], object]) -> int:
    """The number of the error."""
    try:
        act()
    except OSError as error:
        return error.errno or 0
    return 0


def test_what_is_refused_fails_with_eperm_and_has_one_line(log: Log) -> None:
    def live() -> None:
        confine(log)
        for _ in range(3):
            assert failed(lambda: os.open_tree("/") if hasattr(os, "open_tree") else os.chroot("/")) == 1
            assert failed(lambda: socket.socket(socket.AF_INET)) == 1
            assert failed(os.fork) == 1
            assert failed(lambda: os.kill(1, 0)) == 1
        with pytest.raises(PermissionError):
            subprocess.run(["/bin/true"])

    in_child(live)
    log.until(4)
    said = {line for line in log}
    assert len(said) == len(log)
    for call in ("chroot", "socket", "kill") if IS_TOLD else ():
        expected = f"joblensd may not make the system call {name_of(numbers()[call])}; it failed with EPERM"
        assert expected in said, said


COMPROMISED = """
import ctypes, json, os, sys
from condor_joblens.agent import own_calls
from condor_joblens.agent.refused_calls import RefusedCalls
from condor_joblens.common import privilege
from condor_joblens.common.system_calls import numbers
refused = RefusedCalls(lambda line: None, 64002, 65534)
loads = sys.argv[1] == "loads"
privilege.keep_only(tuple(privilege.NEEDED) if loads else ())
privilege.no_new_privileges()
is_filtered, listener = own_calls.allow_only(loads=loads)
assert is_filtered
refused.watch("joblensd", listener)
libc = ctypes.CDLL(None, use_errno=True)
found = {}
for name, number in numbers().items():
    if name in {*own_calls.calls(loads=loads), *own_calls.arguments(loads=loads), "exit", "exit_group", "clone3"}:
        continue
    ctypes.set_errno(0)
    found[name] = libc.syscall(number, -1, -1, -1, -1, -1, -1), ctypes.get_errno()
for name, first, second in (
    ("clone", 17, 0), ("clone", 0x10000011, 0), ("ioctl", 0, 0x5412), ("prctl", 4, 1), ("tgkill", 1, 1)
):
    ctypes.set_errno(0)
    found[f"{name} {first:x} {second:x}"] = libc.syscall(numbers()[name], first, second, 0, 0, 0), ctypes.get_errno()
for command in () if loads else (0, 5, 10, 11, 13, 14, 18, 30, 32, 34, 36):
    ctypes.set_errno(0)
    found[f"bpf {command}"] = libc.syscall(numbers()["bpf"], command, 0, 0), ctypes.get_errno()
ctypes.set_errno(0)
found["as a 32-bit program"] = libc.syscall(0x40000000 | 39), ctypes.get_errno()
os.write(1, json.dumps(found).encode())
"""


@pytest.mark.parametrize("loads", ["loads", "loads nothing"])
def test_once_joblensd_is_compromised_it_makes_no_other_call(loads: str) -> None:
    """No process, no socket, no user, no signal, no namespace, no mount, no module, no other process's memory.

    Where another process loads programs for it: no new map, program or clock, and none of others by its number.
    """
    environment = {"PYTHONPATH": str(CHECKOUT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", COMPROMISED, loads], capture_output=True, cwd="/", env=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    found = json.loads(done.stdout)
    assert {name: result for name, result in found.items() if result != [-1, 1]} == {}
    not_for_it = {"execve", "execveat", "fork", "kill", "socket", "connect", "bind", "listen", "ptrace", "mount",
                  "setuid", "setfsuid", "setns", "unshare", "init_module", "process_vm_readv", "io_uring_setup",
                  "open_by_handle_at", "pidfd_getfd", "seccomp", "capset", "chroot", "keyctl"}  # fmt: skip
    assert not_for_it & set(numbers()) <= set(found) and len(found) > 150


def test_threads_can_be_made_whatever_the_c_library_tries_first_and_are_held_too(log: Log) -> None:
    def live() -> None:
        waiting, done = threading.Event(), []

        def work() -> None:
            waiting.wait()
            done.append(failed(lambda: os.chroot("/")))

        before = threading.Thread(target=work)
        before.start()
        confine(log)

        def blind() -> None:
            # as the thread that loads programs: what would kill such a thread is a signal for each refused call
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            work()

        after = threading.Thread(target=blind)
        after.start()
        waiting.set()
        before.join()
        after.join()
        assert done == [1, 1]

    in_child(live)
    log.until(1)
    assert all("chroot" in line for line in log)


def test_without_who_answers_calls_are_refused_all_the_same(log: Log) -> None:
    def live() -> None:
        os.close(kill)  # it ends with the test
        confine(log)
        os.close(log.refused._channel.detach())  # of this process; the test's own stays
        assert failed(lambda: os.chroot("/")) == 1
        os.write(ready, b"x")
        os.read(killed, 1)
        assert failed(lambda: os.chroot("/")) in (1, 38)

    read, ready = os.pipe()
    killed, kill = os.pipe()
    child = forked(live)
    os.read(read, 1)
    os.kill(log.refused.pid, signal.SIGKILL)
    with pytest.raises(HelperLost, match="the process that refuses system calls was ended by signal 9"):
        while True:
            log.hear()
    os.write(kill, b"x")
    assert os.waitpid(child, 0)[1] == 0
    for descriptor in (read, ready, killed, kill):
        os.close(descriptor)


@pytest.mark.parametrize("packet", [b"x", b"\0\0\0\0", b"x" * 100])
def test_what_joblensd_would_not_send_ends_it(packet: bytes) -> None:
    refused = RefusedCalls(print, UID, GID)
    refused._channel.send(packet)
    with pytest.raises(HelperLost):
        while True:
            refused.receive()
            time.sleep(0.005)
    refused.stop()


def test_it_is_an_ordinary_user_with_one_purpose(log: Log) -> None:
    lines = Path(f"/proc/{log.refused.pid}/status").read_text().splitlines()
    facts = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert facts["Uid"].split() == [str(UID)] * 4 and facts["Gid"].split() == [str(GID)] * 4
    assert [int(facts[f"Cap{name}"], 16) for name in ("Eff", "Prm", "Bnd", "Inh", "Amb")] == [0] * 5
    assert (facts["Groups"].split(), facts["NoNewPrivs"], facts["Seccomp"]) == ([], "1", "2")


REFUSER = """
import ctypes, json, os, sys
from condor_joblens.common import call_refuser
from condor_joblens.common.system_calls import numbers
call_refuser.confine(64002, 65534)
libc = ctypes.CDLL(None, use_errno=True)
found = {}
for name in ("openat", "socket", "connect", "clone", "execve", "kill", "ptrace", "setuid", "mmap2", "bpf", "unlinkat"):
    if name in numbers():
        found[name] = libc.syscall(numbers()[name], -1, -1, -1, -1, -1), ctypes.get_errno()
for request in (0xC0182103, 0x40182103, 0x5412):  # SECCOMP_IOCTL_NOTIF_ADDFD, as an older kernel has it, TIOCSTI
    found[hex(request)] = libc.ioctl(0, ctypes.c_ulong(request), 0), ctypes.get_errno()
os.write(1, json.dumps(found).encode())
"""


def test_once_it_is_compromised_it_opens_nothing_and_gives_nobody_a_file() -> None:
    environment = {"PYTHONPATH": str(CHECKOUT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", REFUSER], capture_output=True, cwd="/", env=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    found = json.loads(done.stdout)
    assert {name: result for name, result in found.items() if result != [-1, 1]} == {} and len(found) > 10


INTRUDER = """
import ctypes, os, socket, subprocess
def failed(act):
    try:
        act()
    except OSError as error:
        return error.errno

libc = ctypes.CDLL(None, use_errno=True)
refused = [failed(lambda: socket.socket(kind)) for kind in (socket.AF_UNIX, socket.AF_INET)]
for call in (lambda: libc.unshare(0x10000000), lambda: libc.ptrace(16, 1, 0, 0), lambda: libc.setuid(0)):
    refused.append(ctypes.get_errno() if call() == -1 else 0)
os.write(0, repr((refused, subprocess.run(["/bin/true"]).returncode)).encode())
os._exit(0)
"""


def test_what_starts_policy_children_and_its_children_open_no_connection(log: Log) -> None:
    """Nor a namespace; a program that it starts runs, and what is refused there is named too."""
    starter = ProcessStarter("intruders", "code", UID, GID, watch=log.refused.watch)  # which runs what it reads
    ours, theirs = socket.socketpair()
    process = starter.start(theirs)
    theirs.close()
    ours.settimeout(60)
    ours.send(f"exec({INTRUDER!r})\n".encode())
    assert ours.recv(4096) == b"([1, 1, 1, 1, 1], 0)"
    assert process.wait() == 0
    log.until(3)
    refused = {line.split("call ")[1].split(" ")[0] for line in log}
    assert refused == ({"unshare", "ptrace", "setuid"} if IS_TOLD else set())
    assert all(line.startswith("the process that starts intruders may not") for line in log)
    starter.close()
    ours.close()


CHANGES = """
grep -E '^(Cap...|NoNewPrivs):' /proc/self/status
for change in 'touch new' 'mkdir made' 'rm file' 'sh -c "echo x >>file"' 'ln -s / link'; do
    eval "$change" 2>/dev/null && echo "did $change"
done
kill -0 1 2>/dev/null && echo signalled
cat file
"""


@pytest.mark.parametrize("read_only", [True, False])
def test_what_it_runs_changes_nothing_and_gains_nothing(tmp_path: Path, read_only: bool) -> None:
    """As root, as HTCondor's configuration is read; and without --read-only, as startds are asked."""
    (tmp_path / "file").write_text("readable\n")
    command = without_privilege.command(["/bin/sh", "-c", CHANGES], read_only=read_only)
    environment = without_privilege.environment({"PATH": "/usr/bin:/bin"})
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    said = done.stdout.splitlines()
    assert done.stderr == ""
    none = {f"Cap{name}:\t{0:016x}" for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")}
    assert set(said[:6]) == {*none, "NoNewPrivs:\t1"}
    if read_only and landlock.version():
        assert [line for line in said[6:] if line != "signalled"] == ["readable"]
        assert sorted(os.listdir(tmp_path)) == ["file"]
        assert ("signalled" in said) == (landlock.version() < 6)


def test_a_list_costs_no_call_that_is_on_it() -> None:
    """A refused call is a question; all others the kernel answers itself, and nobody is asked."""

    def live() -> None:
        privilege.no_new_privileges()
        is_filtered, listener = own_calls.allow_only(loads=False)
        assert is_filtered  # nobody has the listener but this thread, which would wait for ever
        with open("/proc/self/status", encoding="ascii") as file:
            assert "Seccomp:\t2" in file.read()
        os.close(os.open("/", os.O_RDONLY))
        if listener is not None:
            os.close(listener)
        assert ctypes.CDLL(None).getppid() == os.getppid()

    in_child(live)
