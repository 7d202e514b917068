"""Names of functions in files of jobs, demangled in a process that may die of them.

A name of 200 bytes can stand for one of 2^60 characters, and the library's function takes the time and the memory for
it. So the reader of samples forks a keeper before it is confined. The keeper forks a worker, which has a bound of CPU
time and of memory. If a name kills the worker there is another one, and the name stays as it is in the file. A run
whose names have killed MOST_DEATHS keeps all its further names as they are.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import select
import signal
import socket
import struct
import time
from collections import Counter
from collections.abc import Sequence
from typing import NoReturn

from condor_joblens.common import privilege, seccomp
from condor_joblens.profiling.demangle import LONGEST, demangled, warm_up

MOST_DEATHS = 3
"""Workers that the names of one run kill; files of root alone count as a run of their own."""

CPU_SECONDS = 0.3
"""For AT_ONCE names, which take some hundred microseconds; a virtual machine may stand still meanwhile."""

AT_ONCE = 32
MOST_CHARACTERS = 2000
"""Of a demangled name that are told: no more are kept anywhere."""

PATIENCE = 30.0
"""Seconds for an answer, on a machine that has no time for the worker."""

REST_SECONDS = 0.05
"""From a worker's death to the next one."""

_MEMORY_BYTES = 64 << 20
_NUMBER = struct.Struct("Q")
_PACKET = 1 << 18  # more than AT_ONCE names of the longest, or so many answers
_MOST_RUNS = 10_000
_DIED = b"!"  # and the number of what was asked
_TALKS = (*seccomp.INTERPRETERS, "recvfrom", "sendto", "setitimer")
_KEEPS = (
    *_TALKS, "clone", "fork", "wait4", "waitid", "prctl", "gettid", "getppid", "rseq", "set_robust_list", "uname",
)  # fmt: skip


class DemangleProcess:
    """The reader's end. It never raises: what can't be had stays mangled."""

    def __init__(self) -> None:
        """Forks. Call it before the process is confined. Raises OSError."""
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setblocking(False)  # a process that is confined can't change that
        self._poll = select.poll()
        self._poll.register(self._channel, select.POLLIN)
        self._number = 0
        self.deaths: Counter[int] = Counter()  # by run
        warm_up()
        with theirs:
            self.keeper = os.fork()
            if self.keeper == 0:
                self._channel.close()
                _keep(theirs)

    def __call__(self, run: int, names: Sequence[str]) -> list[str]:
        """The names of a run as their authors wrote them; `run` is 0 for those of files that are every run's."""
        found = list(names)
        places = [place for place, name in enumerate(names) if name.startswith(("_Z", "_R")) and len(name) <= LONGEST]
        for at in range(0, len(places), AT_ONCE):
            some = places[at : at + AT_ONCE]
            if not self._answered(run, found, some):
                for place in some:  # one of them is to blame
                    self._answered(run, found, [place])
        return found

    def _answered(self, run: int, names: list[str], places: list[int]) -> bool:
        """Whether the names at these places have been demangled."""
        if self.deaths[run] >= MOST_DEATHS:
            return True
        answer = self._ask([names[place] for place in places])
        if answer is None:
            if len(self.deaths) > _MOST_RUNS:
                self.deaths.clear()
            self.deaths[run] += 1
            return False
        for place, name in zip(places, answer):
            names[place] = name
        return True

    def _ask(self, names: list[str]) -> list[str] | None:
        self._number += 1
        head, until = b"%d\0" % self._number, time.monotonic() + PATIENCE
        with contextlib.suppress(OSError, ValueError):
            self._channel.send(head + "\0".join(names).encode("utf-8", "replace"))
            while self._poll.poll(1000 * max(0.0, until - time.monotonic())):
                packet, *_ = self._channel.recvmsg(_PACKET)
                if not packet:
                    return None
                if packet.startswith(_DIED):
                    if int(packet[len(_DIED) :]) == self._number:
                        return None
                    continue  # of a name that nobody waits for any more
                number, *found = packet.split(b"\0")
                if int(number) == self._number:
                    return [name.decode("utf-8", "replace") for name in found] if len(found) == len(names) else None
        return None


def _keep(channel: socket.socket) -> NoReturn:
    """Has a worker until the reader closes the socket, and says when one has died."""
    code = 1
    try:
        privilege.end_with_parent(signal.SIGKILL)
        os.closerange(0, channel.fileno())
        os.closerange(channel.fileno() + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        with open("/proc/self/statm") as statm:
            data = int(statm.read().split()[5]) * resource.getpagesize()
        limits = ((resource.RLIMIT_DATA, data + _MEMORY_BYTES), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0))
        for limit, value in limits:
            resource.setrlimit(limit, (value, value))
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        privilege.no_new_privileges()
        seccomp.allow_only(_KEEPS, {"clone": seccomp.NO_NAMESPACE})
        asked = mmap.mmap(-1, _NUMBER.size)  # the worker's: the number of what it does
        while True:
            keeper, pid = os.getpid(), os.fork()
            if pid == 0:
                _work(channel, keeper, asked)
            if os.waitpid(pid, 0)[1] == 0:
                break
            channel.send(_DIED + b"%d" % _NUMBER.unpack_from(asked)[0])
            time.sleep(REST_SECONDS)
        code = 0
    finally:
        os._exit(code)


def _work(channel: socket.socket, keeper: int, asked: mmap.mmap) -> NoReturn:
    """Demangles until the reader closes the socket: exit code 0 then."""
    code = 1
    try:
        privilege.end_with_parent(signal.SIGKILL)
        is_kept = os.getppid() == keeper
        seccomp.allow_only(_TALKS)
        while is_kept and (packet := channel.recv(_PACKET)):
            number, *names = packet.decode("utf-8").split("\0")
            _NUMBER.pack_into(asked, 0, int(number))
            signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
            found = [_told(name, demangled(name)) for name in names]
            signal.setitimer(signal.ITIMER_PROF, 0)
            channel.send("\0".join([number, *found]).encode("utf-8", "replace"))
        code = 0
    finally:
        os._exit(code)


def _told(name: str, found: str) -> str:
    return name if found == name else found[:MOST_CHARACTERS].replace("\0", "")
