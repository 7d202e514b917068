"""Starts processes of one kind for joblensd, which can't become their user any more.

joblensd starts it while it still is root: `python -m condor_joblens.common.starter UID GID MODULE`, with a socket as
descriptor 0. It becomes that user for good, without any capability, and starts MODULE as often as it is asked. Each
process has the socket that comes with the request as its descriptor 0. They end with this one, and this one with
joblensd.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
from collections.abc import Callable
from typing import ClassVar

from condor_joblens.common import descriptors, own_process, privilege, readiness, seccomp

START, KILL = 1, 2  # requests
STARTED, FAILED, ENDED = 1, 2, 3  # reports
REQUEST = struct.Struct("<BI")  # what, and the number of the process, which joblensd gives it
REPORT = struct.Struct("<BIiI")
"""What, the number, and its process id, an error's number, or how it ended. At its end also the CPU time that it has
used, in milliseconds."""

CHANNEL = 0
IGNORED = (signal.SIGPIPE, signal.SIGXFSZ, *own_process.SIGNALS)  # here, and not to be by what it starts
SERVES = (
    *seccomp.INTERPRETERS,
    # a socket that is there already
    "recvmsg", "sendmsg", "sendto", "recvfrom", "getsockopt",
    # processes of its own
    "fork", "gettid", "getppid", "getpgrp", "set_robust_list", "set_tid_address", "wait4", "waitid",
    # what is done when modules are loaded, or a program starts
    "access", "arch_prctl", "close_range", "dup", "dup2", "dup3", "epoll_create1", "epoll_ctl", "epoll_pwait",
    "epoll_wait", "faccessat", "faccessat2", "fstat", "fstatfs",
    "getcwd", "getdents64", "getgid", "getgroups", "getpriority", "getresgid", "getresuid", "getrlimit", "getrusage",
    "getuid", "lstat", "mlock", "newfstatat", "pipe2", "pread64", "readlink",
    "readlinkat", "readv", "rseq", "sched_getaffinity", "sched_getparam", "sched_getscheduler", "sched_yield",
    "sigaltstack", "stat", "statfs", "statx", "sysinfo", "time", "times", "umask", "uname", "writev",
    # and when it gives up what it can
    "prctl", "seccomp", "setitimer",
)  # fmt: skip
"""What every starter does."""

_CALLS = (
    *SERVES,
    # processes of its own user, and programs
    "execve", "ioctl", "kill", "open", "openat", "prlimit64", "setrlimit", "tgkill", "vfork",
    "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self",
    "mbind",  # numpy's linear algebra says where its memory is to be
)  # fmt: skip
"""Of this process and of those that it starts: no other user, no connection, no namespace, and nothing of another
process. Programs and files are those that their user may have."""

_QUIETLY = ("bind", "connect", "socket")
"""What libraries try when they start, and do without: to ask a name service."""


class Starter:
    """The processes that have been started and not ended."""

    given_to_start: ClassVar[int] = 1
    """Descriptors that come with a request to start one; the first is its descriptor 0."""

    def __init__(self, channel: socket.socket, command: list[str]) -> None:
        self._channel, self._command = channel, command
        self._pids: dict[int, int] = {}  # number -> process id

    def confine(self) -> int | None:
        """Gives up all other system calls, also for what it starts; who answers what is refused (seccomp.py)."""
        arguments: dict[str, seccomp.Argument] = {
            "clone": seccomp.NO_NAMESPACE,
            "socketpair": seccomp.OneOf(0, socket.AF_UNIX),  # to a child of its own
        }
        return seccomp.allow_told(_CALLS, arguments, _QUIETLY)[1]

    def serve(self) -> bool:
        """Does what one request asks for; False at the end of the connection. Raises ValueError for any other."""
        packet, given = descriptors.receive(self._channel, REQUEST.size + 1, self.given_to_start)
        try:
            if not packet:
                return False
            if len(packet) != REQUEST.size:
                raise ValueError("a packet of another size")
            verb, number = REQUEST.unpack(packet)
            if verb == START and len(given) == self.given_to_start and number not in self._pids:
                self._start(number, given)
            elif verb == KILL and not given:
                if number in self._pids:
                    with contextlib.suppress(OSError):  # the machine has no process to spare: it lives on
                        self._kill(self._pids[number])
            else:
                raise ValueError("a request that joblensd does not make")
        finally:
            for descriptor in given:
                os.close(descriptor)
        return True

    def reap(self) -> None:
        """Reports those that have ended."""
        numbers = {pid: number for number, pid in self._pids.items()}
        while numbers:
            pid, status, used = os.wait4(-1, os.WNOHANG)
            if pid == 0:
                return
            number = numbers.pop(pid, None)
            if number is not None:
                del self._pids[number]
                milliseconds = 1000 * (used.ru_utime + used.ru_stime)
                self._report(ENDED, number, os.waitstatus_to_exitcode(status), round(milliseconds))

    def _start(self, number: int, given: list[int]) -> None:
        try:
            pid = self._run(*given)
        except OSError as error:
            self._report(FAILED, number, error.errno or 0)
        else:
            self._pids[number] = pid
            self._report(STARTED, number, pid)

    def _run(self, channel: int) -> int:
        """Starts one; its process id. Raises OSError."""
        actions = [(os.POSIX_SPAWN_DUP2, channel, 0)]
        program, *_ = self._command
        return os.posix_spawn(program, self._command, own_process.ENVIRONMENT, file_actions=actions, setsigdef=IGNORED)

    def _kill(self, pid: int) -> None:
        """Ends one, which has not been waited for: nobody else has its process id. Raises OSError."""
        os.kill(pid, signal.SIGKILL)

    def _report(self, what: int, number: int, value: int, milliseconds: int = 0) -> None:
        self._channel.send(REPORT.pack(what, number, value, milliseconds))


def main(arguments: list[str]) -> int:
    """Serves until joblensd closes the socket; exit code 0 then."""
    own_process.ignore_signals()
    uid, gid, module = int(arguments[0]), int(arguments[1]), arguments[2]
    privilege.become(uid, gid)
    return serve(lambda channel: Starter(channel, own_process.command(module)))


def serve(starter_on: Callable[[socket.socket], Starter]) -> int:
    """Serves with the starter that this makes, as the user that this process has become."""
    privilege.not_dumpable()
    privilege.end_with_parent(signal.SIGKILL)
    channel = socket.socket(fileno=CHANNEL)
    ended, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    starter = starter_on(channel)
    own_process.say_ready(channel, REPORT.pack(STARTED, 0, os.getpid(), 0), starter.confine())
    both: list[readiness.Waitable] = [channel, ended]
    while True:
        ready = readiness.readable(both)
        if ended in ready:
            os.read(ended, 4096)
            starter.reap()
        if channel in ready and not starter.serve():
            return 0


if __name__ == "__main__":
    own_process.run(main)
