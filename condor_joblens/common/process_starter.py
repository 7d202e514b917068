"""joblensd's end of a starter (starter.py): processes of another user, without the privilege to make them."""

from __future__ import annotations

import contextlib
import errno
import itertools
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Hashable
from typing import NoReturn, Protocol

from condor_joblens.common import descriptors, own_process, readiness
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.starter import ENDED, FAILED, KILL, REPORT, REQUEST, START, STARTED

MODULE = "condor_joblens.common.starter"

MOST_FOR_ONE = 8
"""Processes that live at a time on behalf of one user or job."""


class Process(Protocol):
    """What subprocess.Popen and StartedProcess have in common."""

    @property
    def pid(self) -> int:
        """Its process id; 0 as long as that isn't known."""

    def kill(self) -> None:
        """Ends it."""

    def poll(self) -> int | None:
        """As subprocess has it: how it ended, negative for a signal; None while it lives."""

    def wait(self, timeout: float | None = None) -> int:
        """Gives it so much time to end. Raises subprocess.TimeoutExpired."""


class ProcessStarter:
    """Starts processes of the kind `what`. Nothing here waits but `__init__`."""

    def __init__(
        self,
        what: str,
        argument: str,
        uid: int,
        gid: int,
        starter: str = MODULE,
        watch: own_process.Watch = own_process.unwatched,
        *,
        have_children: bool = False,
    ) -> None:
        """The module `starter` does it as this user. What its `argument` is it says itself: of starter.py a module.

        `watch` is told who answers what its list of system calls refuses. `have_children`: what it starts forks.
        Raises JobLensError if it can't start.
        """
        self._what = what
        self._used = own_process.cpu_seconds_of_family if have_children else own_process.cpu_seconds
        self._used_by_ended = 0.0
        self._numbers = itertools.count(1)
        self._living: dict[int, StartedProcess] = {}
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._process = own_process.start(own_process.command(starter, str(uid), str(gid), argument), theirs)
            said = own_process.hear_ready(self._channel, f"the process that starts {what}", watch)
        except OSError as error:
            self._channel.close()
            raise JobLensError(f"what starts {what} can't be started: {error.strerror or error}") from None
        if not said:
            self._channel.close()
            code = self._process.wait()
            raise JobLensError(f"what starts {what} ended with code {code}: is there CAP_SETUID, and a user {uid}?")
        self._channel.setblocking(False)

    @property
    def pid(self) -> int:
        """Of the starter itself."""
        return self._process.pid

    def cpu_seconds(self) -> float:
        """CPU time that it and all that it has started have used; what has ended counts once `receive` has heard so."""
        living = list(self._living.values())
        for process in living:
            process.has_used(self._used(process.known_pid))
        return own_process.cpu_seconds(self.pid) + self._used_by_ended + sum(process.used for process in living)

    def fileno(self) -> int:
        """Readable when `receive` has something to do."""
        return self._channel.fileno()

    def start(
        self,
        channel: socket.socket,
        *others: int,
        for_whom: Hashable = None,
        charge: Callable[[float], None] = lambda _: None,
    ) -> StartedProcess:
        """A process with this socket as its descriptor 0; `others` are what its starter needs. Raises OSError.

        `for_whom` has MOST_FOR_ONE at a time. `charge` is called at its end, with the seconds of CPU that it has used.
        """
        if for_whom is not None and sum(each.for_whom == for_whom for each in self._living.values()) >= MOST_FOR_ONE:
            raise OSError(errno.EAGAIN, f"{MOST_FOR_ONE} processes that were started for it before have not ended")
        number = next(self._numbers)
        # it is known before the first report of it can come, which another thread may hear
        process = self._living[number] = StartedProcess(self, number, for_whom, charge)
        try:
            descriptors.send(self._channel, REQUEST.pack(START, number), [channel.fileno(), *others])
        except OSError:
            self._living.pop(number, None)
            raise
        return process

    def kill(self, number: int) -> None:
        """Ends one of them; if the starter has ended, it has ended too."""
        with contextlib.suppress(OSError):
            self._channel.send(REQUEST.pack(KILL, number))

    def receive(self) -> None:
        """Learns what has become of the processes. Raises HelperLost."""
        while True:
            try:
                report = self._channel.recv(REPORT.size)
            except BlockingIOError:
                return
            except OSError:
                report = b""
            if not report:
                self._lost()
            what, number, value, milliseconds = REPORT.unpack(report)
            process = self._living.get(number)
            if process is None:
                continue
            if what == STARTED:
                process.known_pid = value
            elif what in (FAILED, ENDED):
                process.code = value if what == ENDED else 1
                del self._living[number]
                process.has_used(milliseconds / 1000)
                self._used_by_ended += process.used
                process.charge(milliseconds / 1000)

    def wait(self, seconds: float) -> None:
        """Waits for so long at most that `receive` has something to do."""
        readiness.readable([self._channel], seconds)

    def close(self) -> None:
        """Ends it, and all that it has started."""
        self._channel.close()
        self._process.wait()

    def _lost(self) -> NoReturn:
        for process in self._living.values():
            process.code = -signal.SIGKILL
        self._living.clear()
        own_process.lost(self._process, f"what starts {self._what}")


class StartedProcess:
    """One of its processes, as subprocess.Popen has it."""

    def __init__(
        self, starter: ProcessStarter, number: int, for_whom: Hashable, charge: Callable[[float], None]
    ) -> None:
        self._starter, self._number, self.for_whom, self.charge = starter, number, for_whom, charge
        self.known_pid = 0
        self.code: int | None = None
        self.used = 0.0  # seconds of CPU, as far as is known

    @property
    def pid(self) -> int:
        if not self.known_pid:
            self._starter.receive()
        return self.known_pid

    def has_used(self, seconds: float) -> None:
        """So much CPU. A child that it never waits for is not in what the kernel says at its end."""
        self.used = max(self.used, seconds)

    def kill(self) -> None:
        if self.code is None:
            self._starter.kill(self._number)

    def poll(self) -> int | None:
        if self.code is None:
            self._starter.receive()
        return self.code

    def wait(self, timeout: float | None = None) -> int:
        until = time.monotonic() + (own_process.START_SECONDS if timeout is None else timeout)
        while (code := self.poll()) is None:
            left = until - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(MODULE, timeout or 0.0)
            self._starter.wait(left)
        return code
